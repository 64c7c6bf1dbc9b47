#!/usr/bin/env python3
"""Writes the built-in data sets `debian-packages` and `debian-tags` as folders of .npy files. Needs numpy only.

usage: debian.py OUTDIR [--datasets crates/data/datasets]

OUTDIR/debian-packages/ and OUTDIR/debian-tags/ contain indptr.npy int64[N+1] and indices.npy int32[E] (in-neighbours, both
directions of each edge, ascending), features.npy f32[N,128], train.npy, val.npy and test.npy int64, and labels.npy:
int32[N] with the section of each package or -1, and uint8[N,130] with the Debtags, 255 where a package has none.
kiln opens both folders. The features are computed in the order of `kiln_data::debian_packages`, and their SHA-256 is
compared with that of kiln's test. They are not scaled.
"""
import argparse, gzip, hashlib, io, json, pathlib
import numpy as np

FEATURES_SHA256 = "8f7b83ed10ad74db708a39efdd659178cac14f631ed1ab4fd232ae19779b5f0f"


def array(folder, name):
    return np.load(io.BytesIO(gzip.decompress((folder / (name + ".npy.gz")).read_bytes())))


def features(folder):
    """Returns the sums of the words' vectors over the norms of their weights. Each row is summed word by word in f32."""
    indptr, words = array(folder, "word_indptr").astype(np.int64), array(folder, "words")
    idf, scales = array(folder, "idf"), array(folder, "scales")
    vectors = array(folder, "word_vectors").astype(np.float32) * (scales * idf)[:, None]
    counts = np.diff(indptr)
    rows = np.zeros((len(counts), vectors.shape[1]), np.float32)
    squares = np.zeros(len(counts), np.float32)
    for position in range(counts.max()):
        nodes = np.flatnonzero(position < counts)
        of_nodes = words[indptr[nodes] + position]
        rows[nodes] += vectors[of_nodes]
        squares[nodes] += idf[of_nodes] * idf[of_nodes]
    some = 0 < squares
    rows[some] /= np.sqrt(squares[some])[:, None]
    digest = hashlib.sha256(rows.tobytes()).hexdigest()
    assert digest == FEATURES_SHA256, digest
    return rows


def graph(folder, n_nodes):
    src, dst = (array(folder, name).astype(np.int64) for name in ("src", "dst"))
    src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    order = np.lexsort((src, dst))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=n_nodes))])
    return indptr.astype(np.int64), src[order].astype(np.int32)


def tags(folder, n_nodes):
    names = json.loads((folder / "manifest.json").read_text())["tag_names"]
    nodes, indptr, of_nodes = (array(folder, name).astype(np.int64) for name in ("nodes", "indptr", "tags"))
    labels = np.full((n_nodes, len(names)), 255, np.uint8)
    labels[nodes] = 0
    labels[np.repeat(nodes, np.diff(indptr)), of_nodes] = 1
    return labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--datasets", type=pathlib.Path, default=pathlib.Path("crates/data/datasets"))
    args = parser.parse_args()
    packages = args.datasets / "debian-packages"
    sections = array(packages, "labels").astype(np.int32)
    parts, x = array(packages, "split"), features(packages)
    indptr, indices = graph(packages, len(sections))
    of_sets = {"debian-packages": sections, "debian-tags": tags(args.datasets / "debian-tags", len(sections))}
    for name, labels in of_sets.items():
        out = args.out / name
        out.mkdir(parents=True, exist_ok=True)
        arrays = dict(indptr=indptr, indices=indices, features=x, labels=labels)
        for part, split in enumerate(("train", "val", "test")):
            in_part = parts == part
            if labels.ndim == 2:
                in_part &= labels[:, 0] != 255
            arrays[split] = np.flatnonzero(in_part)
        for array_name, values in arrays.items():
            np.save(out / (array_name + ".npy"), values)
        print(out, *(len(arrays[split]) for split in ("train", "val", "test")))


if __name__ == "__main__":
    main()
