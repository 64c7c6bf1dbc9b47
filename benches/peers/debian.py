#!/usr/bin/env python3
"""Writes the built-in data sets `debian-packages`, `debian-tags` and `debian-archive` as folders of .npy files. Needs
numpy only.

usage: debian.py OUTDIR [--datasets crates/data/datasets]

OUTDIR/debian-packages/ and OUTDIR/debian-tags/ contain indptr.npy int64[N+1] and indices.npy int32[E] (in-neighbours, both
directions of each edge, ascending), features.npy f32[N,128], train.npy, val.npy and test.npy int64, and labels.npy:
int32[N] with the section of each package or -1, and uint8[N,130] with the Debtags, 255 where a package has none.
kiln opens both folders. The features are computed in the order of `kiln_data::debian_packages`, and their SHA-256 is
compared with that of kiln's test. They are not scaled.

OUTDIR/debian-archive/ is a GraphBolt folder with several node types, which kiln opens too. Nodes are numbered within their
type. edges/RELATION.npy is int64[2,E], sources first, for each of the ten relations in the order of
`kiln_data::debian_archive`; metadata.yaml lists them with the types of their ends. features.npy is f32[63437,128], the
features of the type `package`, which are not scaled either; other types have none. The target type is `source`:
SET_seeds.npy int64 has the nodes of the training, validation and test set, and SET_labels.npy int64 their classes.
"""
import argparse, gzip, hashlib, io, json, pathlib
import numpy as np

FEATURES_SHA256 = "8f7b83ed10ad74db708a39efdd659178cac14f631ed1ab4fd232ae19779b5f0f"
NO_SOURCE = 2**32 - 1


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


def archive(folders, out, x):
    """Writes the heterogeneous set from the folders of packages, tags, and sources. The relations are those of
    `kiln_data::debian_archive`."""
    packages, tagged, folder = folders
    fields = json.loads((packages / "manifest.json").read_text())["type_names"]
    manifest = json.loads((folder / "manifest.json").read_text())
    arcs = np.stack([array(packages, name).astype(np.int64) for name in ("src", "dst")])
    of_field = array(packages, "edge_types")
    sources, maintainers = array(folder, "sources"), array(folder, "maintainers").astype(np.int64)
    n_packages, n_sources = len(sources), len(maintainers)
    has_source = np.flatnonzero(sources != NO_SOURCE)
    indptr = array(tagged, "indptr").astype(np.int64)
    tagged_packages = np.repeat(array(tagged, "nodes").astype(np.int64), np.diff(indptr))

    def of_fields(*names):
        kept = arcs[:, np.isin(of_field, [fields.index(name) for name in names])]
        return np.stack(np.divmod(np.unique(kept[0] * n_packages + kept[1]), n_packages))

    relations = {
        ("package", "depends", "package"): of_fields("Depends", "Pre-Depends"),
        ("package", "recommends", "package"): of_fields("Recommends", "Suggests"),
        ("package", "built-from", "source"): np.stack([has_source, sources[has_source].astype(np.int64)]),
        ("source", "maintained-by", "maintainer"): np.stack([np.arange(n_sources), maintainers]),
        ("package", "tagged", "tag"): np.stack([tagged_packages, array(tagged, "tags").astype(np.int64)]),
    }
    reverse = {(dst, "rev-" + name, src): edges[::-1] for (src, name, dst), edges in relations.items()}
    relations.update(reverse)
    n_tags = len(json.loads((tagged / "manifest.json").read_text())["tag_names"])
    n_nodes = dict(package=n_packages, source=n_sources, maintainer=manifest["counts"]["maintainers"], tag=n_tags)
    labels, parts = array(folder, "labels").astype(np.int64), array(folder, "split")
    arrays = {"features": x}
    lines = ["dataset_name: debian-archive", "graph:", "  nodes:"]
    lines += [f"  - {{type: {name}, num: {number}}}" for name, number in n_nodes.items()] + ["  edges:"]
    for (src, name, dst), edges in relations.items():
        arrays["edges/" + name] = np.ascontiguousarray(edges)
        lines.append(f'  - {{type: "{src}:{name}:{dst}", format: numpy, path: edges/{name}.npy}}')
    lines += ["feature_data:", "- {domain: node, type: package, name: feat, format: numpy, path: features.npy}"]
    lines += ["tasks:", "- name: node_classification", f"  num_classes: {len(manifest['class_names'])}"]
    for part, split in enumerate(("train", "validation", "test")):
        arrays[split + "_seeds"] = np.flatnonzero(parts == part)
        arrays[split + "_labels"] = labels[arrays[split + "_seeds"]]
        lines += [f"  {split}_set:", "  - type: source", "    data:"]
        lines += [f"    - {{name: {name}, format: numpy, path: {split}_{name}.npy}}" for name in ("seeds", "labels")]
    (out / "edges").mkdir(parents=True, exist_ok=True)
    for name, values in arrays.items():
        np.save(out / (name + ".npy"), values)
    (out / "metadata.yaml").write_text("\n".join(lines) + "\n")
    n_edges = sum(edges.shape[1] for edges in relations.values())
    print(out, f"{sum(n_nodes.values())} nodes of {len(n_nodes)} types, {n_edges} edges of {len(relations)} relations;",
          *(len(arrays[split + "_seeds"]) for split in ("train", "validation", "test")))


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
    archive((packages, args.datasets / "debian-tags", args.datasets / "debian-archive"), args.out / "debian-archive", x)


if __name__ == "__main__":
    main()
