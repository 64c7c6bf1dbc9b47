"""Measures PyTorch and, if it is installed, PyG on the data of the bench stage `device`: means over random rows.

    python benches/gpu/torch_compare.py --device cuda > torch.jsonl
    python benches/gpu/torch_compare.py --device cpu --rows 16384 --edges 40000

The script prints one JSON object per line: minimum, median and maximum over the iterations in milliseconds, including
the wait for the device, and the bytes per second at the median, counted as by `cargo xtask bench --device`.
"""

import argparse
import json
import statistics
import time

import numpy
import torch

SPREAD = 0x9E37_79B9_7F4A_7C15


def main():
    args = parse()
    device = torch.device(args.device)
    print(json.dumps({"torch": torch.__version__, "device": name(device), "rows": args.rows, "edges": args.edges}))
    copied = torch.ones(args.copied, device=device)
    report("copy", device, args, 8 * args.copied, lambda: copied + 1.0)
    for degree in (10, 50):
        n_dst = args.edges // degree
        sources = torch.from_numpy(random_sources(n_dst * degree, args.rows)).to(device)
        dsts = torch.arange(n_dst, device=device).repeat_interleave(degree)
        indptr = torch.arange(0, n_dst * degree + 1, degree, device=device)
        for dim, dtype in ((100, torch.float32), (128, torch.float32), (256, torch.float32), (256, torch.bfloat16)):
            x = (torch.arange(args.rows * dim, device=device) % 1021 / 1021).to(dtype).reshape(args.rows, dim)
            n_bytes = n_dst * degree * (dim * dtype.itemsize + 4) + n_dst * (dim * dtype.itemsize + 8)
            variant = f"{dim}-{str(dtype).removeprefix('torch.')}-degree-{degree}"
            for library, mean in means(x, sources, dsts, indptr, degree):
                report(f"{library}-{variant}", device, args, n_bytes, mean)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=1 << 21, help="number of rows of the table")
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--copied", type=int, default=1 << 28, help="number of copied values")
    parser.add_argument("--iterations", type=int, default=20)
    return parser.parse_args()


def random_sources(n_edges, n_rows):
    """Returns the rows that `random_block` in benches/benches/device.rs reads."""
    edges = numpy.arange(n_edges, dtype=numpy.uint64)
    upper = (edges * numpy.uint64(SPREAD)) >> numpy.uint64(32)
    return ((upper * numpy.uint64(n_rows)) >> numpy.uint64(32)).astype(numpy.int64)


def means(x, sources, dsts, indptr, degree):
    """Yields the names and functions of the libraries' ways to compute means of `degree` rows each."""
    n_dst = len(indptr) - 1

    def index_add():
        sums = torch.zeros(n_dst, x.shape[1], dtype=x.dtype, device=x.device)
        return sums.index_add_(0, dsts, x.index_select(0, sources)) / degree

    yield "torch-index-add", index_add
    # The weights of the edges are created once, like those of a graph.
    weights = torch.full((len(sources),), 1.0 / degree, dtype=x.dtype, device=x.device)
    matrix = torch.sparse_csr_tensor(indptr, sources, weights, size=(n_dst, x.shape[0]))
    yield "torch-csr", lambda: matrix @ x
    try:
        from torch_geometric.nn.aggr import MeanAggregation
    except ImportError:
        return
    aggregation = MeanAggregation()
    yield "pyg-mean", lambda: aggregation(x.index_select(0, sources), ptr=indptr, dim_size=n_dst)


def report(bench, device, args, n_bytes, run):
    try:
        times = [timed(device, run) for _ in range(args.iterations + 3)][3:]
    except RuntimeError as error:
        print(json.dumps({"bench": bench, "error": str(error).splitlines()[0]}))
        return
    median = statistics.median(times)
    line = {"bench": bench, "min_ms": min(times) * 1e3, "median_ms": median * 1e3, "max_ms": max(times) * 1e3}
    print(json.dumps({**line, "rate": n_bytes / median, "unit": "bytes"}), flush=True)


def timed(device, run):
    wait(device)
    started = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - started


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def name(device):
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


if __name__ == "__main__":
    main()
