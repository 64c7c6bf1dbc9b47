"""Writes a graph of the shape of ogbn-papers100M: nodes of degree 15, and 128 feature columns of f16 in a sparse file.

    python3 benches/gpu/papers.py FOLDER [NODES]         by default 111,059,956 nodes
"""

import os
import sys

import numpy as np

DEGREE = 15
N_CLASSES = 172
N_COLUMNS = 128
CHUNK_EDGES = 1 << 25


def main(folder, n=111_059_956):
    os.makedirs(folder, exist_ok=True)
    path = lambda name: os.path.join(folder, f"{name}.npy")
    np.save(path("indptr"), np.arange(n + 1, dtype=np.int64) * DEGREE)
    indices = np.lib.format.open_memmap(path("indices"), "w+", np.int32, (n * DEGREE,))
    for first in range(0, n * DEGREE, CHUNK_EDGES):
        # The multipliers are those of the generator SplitMix64 (Steele et al., 2014).
        edges = np.arange(first, min(first + CHUNK_EDGES, n * DEGREE), dtype=np.uint64)
        edges *= np.uint64(0x9E3779B97F4A7C15)
        edges ^= edges >> np.uint64(29)
        edges *= np.uint64(0xBF58476D1CE4E5B9)
        nodes = (edges >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)
        indices[first:first + len(edges)] = nodes.astype(np.int32)
    rows = np.lib.format.open_memmap(path("features"), "w+", np.float16, (n, N_COLUMNS))
    rows[:1024] = 0.5
    np.save(path("labels"), np.arange(n, dtype=np.int64) % N_CLASSES)
    # ogbn-papers100M has 1,207,179 training nodes, one of 92 nodes.
    train = np.arange(n // 92, dtype=np.int64) * 91
    np.save(path("train_idx"), train)
    np.save(path("val_idx"), train[:1000] + 1)
    np.save(path("test_idx"), train[:1000] + 2)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
