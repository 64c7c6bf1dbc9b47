#!/usr/bin/env python3
"""Writes two edge tasks as tables, which `kiln data import` reads, and as arrays for pyg_edges.py. Needs numpy only.

usage: edges.py OUTDIR [--datasets crates/data/datasets] [--seed 0]

OUTDIR/kinds/: the kind of a dependency of debian-packages, as classes. All dependencies are items.
OUTDIR/ratings/: 30,000 ratings of 500 items by 1,500 users, as numbers: the product of two vectors, of which the features of
     the nodes are noisy copies, plus a feature of the rating and noise.

Each has nodes.csv (key, features), edges.csv (source, destination, target, part and, of ratings, the feature) and spec.yaml;
x.npy f32[N,D], edges.npy int64[E,2], y.npy (int64 or f32), part.npy int64[E] (0 training, 1 validation, 2 test) and, of
ratings, features.npy f32[E,1]. 60 % of the items train, 20 % validate and 20 % test; all edges of two nodes are in one part.
"""
import argparse, pathlib
import numpy as np
from debian import array, features

PARTS = ("train", "val", "test")


def parts(edges, n_nodes, rng):
    """Returns the part of each edge, the same for all edges between two nodes."""
    low, high = edges.min(1), edges.max(1)
    _, pair = np.unique(low * n_nodes + high, return_inverse=True)
    return np.searchsorted([0.6, 0.8], rng.random(pair.max() + 1), side="right")[pair]


def kinds(datasets):
    folder = datasets / "debian-packages"
    edges = np.stack([array(folder, name).astype(np.int64) for name in ("src", "dst")], 1)
    x = features(folder).astype(np.float64)
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    return x, edges, array(folder, "edge_types").astype(np.int64), None


def ratings(rng):
    n_users, n_items, n_edges, dim = 1_500, 500, 30_000, 4
    vectors = rng.normal(size=(n_users + n_items, dim))
    edges = np.stack([rng.integers(n_users, size=n_edges), n_users + rng.integers(n_items, size=n_edges)], 1)
    own = rng.normal(size=(n_edges, 1)).astype(np.float32)
    of_pair = (vectors[edges[:, 0]] * vectors[edges[:, 1]]).sum(1)
    y = 3 + 0.8 * of_pair + 0.5 * own[:, 0] + 0.3 * rng.normal(size=n_edges)
    is_user = (np.arange(len(vectors)) < n_users)[:, None]
    x = np.concatenate([vectors + 0.5 * rng.normal(size=vectors.shape), is_user], 1)
    return x.astype(np.float32), edges, y.astype(np.float32), own


def write(out, x, edges, y, own, rng):
    out.mkdir(parents=True, exist_ok=True)
    part = parts(edges, len(x), rng)
    with open(out / "nodes.csv", "w") as file:
        file.write("id,x\n")
        for node, row in enumerate(x):
            file.write(f"{node},{' '.join(str(value) for value in row)}\n")
    with open(out / "edges.csv", "w") as file:
        file.write("src,dst,y,part,own\n")
        for edge, (src, dst) in enumerate(edges):
            feature = "" if own is None else own[edge, 0]
            file.write(f"{src},{dst},{y[edge]},{PARTS[part[edge]]},{feature}\n")
    target = "{class: {column: y}}" if y.dtype == np.int64 else "{regression: {columns: [y]}}"
    columns = "" if own is None else "    edge_columns: [{column: own, name: features}]\n"
    (out / "spec.yaml").write_text(f"""name: {out.name}
nodes:
  - name: node
    files: [nodes.csv]
    key: id
    columns: [{{column: x, transform: {{vector: {{columns: {x.shape[1]}, separator: " "}}}}}}]
relations:
  - name: edge
    files: [edges.csv]
    src: {{type: node, column: src}}
    dst: {{type: node, column: dst}}
{columns}    reverse: reversed
    target: {target}
    split: {{column: {{column: part}}}}
""")
    arrays = dict(x=x, edges=edges, y=y, part=part) | ({} if own is None else dict(features=own))
    for name, values in arrays.items():
        np.save(out / (name + ".npy"), values)
    print(out, f"{len(x)} nodes, {len(edges)} edges, parts", *np.bincount(part))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=pathlib.Path, default=pathlib.Path("crates/data/datasets"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    write(args.out / "kinds", *kinds(args.datasets), rng)
    write(args.out / "ratings", *ratings(rng), rng)


if __name__ == "__main__":
    main()
