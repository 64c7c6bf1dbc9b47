#!/usr/bin/env python3
"""Splits the edges of a graph for link prediction, so that kiln and the peers train on the same arrays. Needs numpy only.

usage: links.py auc CORA OUTDIR [--seed 0]
       links.py mrr OUTDIR [--datasets crates/data/datasets] [--seed 0]

auc: an undirected graph (indptr.npy, indices.npy, features as features.npy or features_{indptr,indices,data}.npy). 85 % of
     the pairs train, 5 % validate and 10 % test; each held-out pair has one negative, a random pair that is no edge, and
     no negative occurs twice.
mrr: debian-packages. 2 % of the pairs of its Depends edges validate and 5 % test, from a package to the one that it
     depends on; each has 1,000 negatives, the package and another random one (which may be a true dependency). Edges of
     all types in both directions pass messages, except those of held-out pairs.

OUTDIR/: the message graph, indptr.npy int64[N+1] and indices.npy int32[E]; features.npy f32[N,D]; train_edges.npy,
val_edges.npy and test_edges.npy int64[n,2] (source, destination); val_negatives.npy and test_negatives.npy uint32[n,k],
destinations of negatives; their sources in val_negative_srcs.npy and test_negative_srcs.npy, if they differ from those of
the links. The pairs of the training links are in the message graph. kiln opens this folder.
"""
import argparse, pathlib
import numpy as np


def rows_of(folder):
    if (folder / "features.npy").exists():
        return np.load(folder / "features.npy")
    indptr, indices, data = (np.load(folder / f"features_{name}.npy") for name in ("indptr", "indices", "data"))
    rows = np.zeros((len(indptr) - 1, indices.max() + 1), np.float32)
    rows[np.repeat(np.arange(len(rows)), np.diff(indptr)), indices] = data
    return rows


def pair_ids(src, dst, n_nodes):
    """Returns a number for each pair, the same for both directions."""
    return np.minimum(src, dst).astype(np.int64) * n_nodes + np.maximum(src, dst)


def without(src, dst, held_out, n_nodes):
    """Returns the arrays of the graph without the edges of the pairs, in both directions."""
    keep = ~np.isin(pair_ids(src, dst, n_nodes), held_out)
    src, dst = src[keep], dst[keep]
    order = np.lexsort((src, dst))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=n_nodes))])
    return indptr.astype(np.int64), src[order].astype(np.int32)


def split(links, shares, rng):
    """Returns random parts of the links: train, val and test."""
    order = rng.permutation(len(links))
    n_val, n_test = (int(share * len(links)) for share in shares)
    ends = [n_val, n_val + n_test]
    val, test, train = np.split(order, ends)
    return [links[np.sort(part)] for part in (train, val, test)]


def no_edges(known, n_pairs, n_nodes, rng):
    """Returns distinct random pairs that are no edges."""
    drawn = np.zeros(0, np.int64)
    while len(drawn) < n_pairs:
        src, dst = rng.integers(n_nodes, size=(2, 2 * n_pairs))
        ids = pair_ids(src, dst, n_nodes)[src != dst]
        drawn = np.concatenate([drawn, ids[~np.isin(ids, known)]])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    drawn = drawn[:n_pairs]
    return np.stack([drawn // n_nodes, drawn % n_nodes], 1)


def of_cora(folder, rng):
    indptr, src = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy").astype(np.int64)
    n_nodes = len(indptr) - 1
    dst = np.repeat(np.arange(n_nodes), np.diff(indptr))
    once = src < dst
    parts = split(np.stack([src[once], dst[once]], 1), (0.05, 0.1), rng)
    known = pair_ids(src, dst, n_nodes)
    n_val, n_test = len(parts[1]), len(parts[2])
    drawn = no_edges(known, n_val + n_test, n_nodes, rng)
    negatives = [drawn[:n_val], drawn[n_val:]]
    return rows_of(folder), src, dst, parts, negatives


def of_debian(datasets, rng):
    from debian import array, features
    folder = datasets / "debian-packages"
    src, dst = (array(folder, name).astype(np.int64) for name in ("src", "dst"))
    x = features(folder)
    depends = array(folder, "edge_types") == 0
    links = np.stack([src[depends], dst[depends]], 1)
    # A few packages depend on each other; one direction of such a pair is enough.
    links = links[np.sort(np.unique(pair_ids(*links.T, len(x)), return_index=True)[1])]
    parts = split(links, (0.02, 0.05), rng)
    negatives = []
    for held_out in parts[1:]:
        negatives.append(rng.integers(len(x), size=(len(held_out), 1000)))
    return x, np.concatenate([src, dst]), np.concatenate([dst, src]), parts, negatives


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--datasets", type=pathlib.Path, default=pathlib.Path("crates/data/datasets"))
    parser.add_argument("task", choices=("auc", "mrr"))
    parser.add_argument("folders", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    rng, out = np.random.default_rng(args.seed), args.folders[-1]
    made = of_cora(args.folders[0], rng) if args.task == "auc" else of_debian(args.datasets, rng)
    x, src, dst, parts, negatives = made
    held_out = pair_ids(*np.concatenate(parts[1:]).T, len(x))
    indptr, indices = without(src, dst, held_out, len(x))
    out.mkdir(parents=True, exist_ok=True)
    arrays = dict(indptr=indptr, indices=indices, features=x)
    arrays.update(zip(("train_edges", "val_edges", "test_edges"), parts))
    for part, drawn in zip(("val", "test"), negatives):
        if args.task == "auc":
            arrays[part + "_negative_srcs"], drawn = drawn[:, :1].astype(np.uint32), drawn[:, 1:]
        arrays[part + "_negatives"] = drawn.astype(np.uint32)
    for name, values in arrays.items():
        np.save(out / (name + ".npy"), values)
    print(out, f"{len(x)} nodes, {len(indices)} message edges, links", *map(len, parts))


if __name__ == "__main__":
    main()
