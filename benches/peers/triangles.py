#!/usr/bin/env python3
"""Writes a regression task on a file of DGL's GIN collection, such as IMDB-BINARY, in OGB's text files. Needs numpy only.

usage: triangles.py IMDBBINARY.txt OUTDIR [--seed 0]

The target of a graph is the natural logarithm of its number of triangles. A graph without triangles is an error. The
features are one-hot degrees, as in the GIN paper: one column per degree that occurs in the file, ascending. The split is
random, 80/10/10 % of the graphs. kiln and the peers read this folder:

OUTDIR/raw/{edge,num-node-list,num-edge-list,node-feat,graph-label}.csv.gz, OUTDIR/split/random/{train,valid,test}.csv.gz
"""
import argparse, gzip, math, pathlib
import numpy as np


def read(path):
    """Returns the neighbours of each node of each graph."""
    lines = iter(path.read_text().splitlines())
    graphs = []
    for _ in range(int(next(lines))):
        n_nodes = int(next(lines).split()[0])
        graphs.append([sorted(int(word) for word in next(lines).split()[2:]) for _ in range(n_nodes)])
    return graphs


def n_triangles(neighbours):
    adjacency = np.zeros((len(neighbours), len(neighbours)), np.int64)
    for node, others in enumerate(neighbours):
        adjacency[node, others] = 1
    assert (adjacency == adjacency.T).all() and not adjacency.diagonal().any()
    return int(np.trace(adjacency @ adjacency @ adjacency)) // 6


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    graphs = read(args.file)
    counts = [n_triangles(graph) for graph in graphs]
    assert 0 < min(counts), f"graph {counts.index(0)} has no triangle, so its logarithm is undefined"
    degrees = sorted({len(others) for graph in graphs for others in graph})
    one_hot = {degree: ",".join("1" if degree == other else "0" for other in degrees) for degree in degrees}
    raw = args.out / "raw"
    write(raw / "num-node-list.csv.gz", map(len, graphs))
    write(raw / "num-edge-list.csv.gz", (sum(map(len, graph)) for graph in graphs))
    write(raw / "edge.csv.gz", (f"{src},{dst}" for graph in graphs for dst, srcs in enumerate(graph) for src in srcs))
    write(raw / "node-feat.csv.gz", (one_hot[len(others)] for graph in graphs for others in graph))
    write(raw / "graph-label.csv.gz", (repr(math.log(count)) for count in counts))
    order = np.random.default_rng(args.seed).permutation(len(graphs))
    ends = [0, round(0.8 * len(graphs)), round(0.9 * len(graphs)), len(graphs)]
    for part, start, end in zip(("train", "valid", "test"), ends, ends[1:]):
        write(args.out / "split" / "random" / f"{part}.csv.gz", sorted(order[start:end]))
    logs = np.log(counts)
    print(f"{len(graphs)} graphs, {len(degrees)} degrees, ln of {min(counts)} to {max(counts)} triangles, "
          f"mean {logs.mean():.4f}, deviation {logs.std():.4f}")


main()
