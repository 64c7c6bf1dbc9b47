"""Generates the node graphs of benches/peers/generate.py with PyTorch, on a GPU in seconds instead of minutes.

    python3 benches/gpu/graphs.py FOLDER SHAPE [--device cuda|cpu] [--test-nodes N]     SHAPE as in generate.py

Shape, model and files are those of generate.py, but not the random numbers. Without `--device`, and without PyTorch with
CUDA, generate.py itself runs.
"""

import argparse
import json
import os
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../peers"))

import generate

# The rows of features that are computed at once.
CHUNK_ROWS = 1 << 19


class Draws:
    """Uniform and normal random numbers of a device."""

    def __init__(self, torch, device, seed):
        self.torch, self.device = torch, device
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(seed)

    def uniform(self, n):
        # f64, because sums of weights of millions of nodes need more than 24 bits.
        return self.torch.rand(n, generator=self.generator, device=self.device, dtype=self.torch.float64)

    def normal(self, *shape):
        return self.torch.randn(*shape, generator=self.generator, device=self.device)

    def permutation(self, n):
        return self.torch.randperm(n, generator=self.generator, device=self.device)


def classes_of(n, c, device, torch):
    """Returns the class of each node, in ascending order, and the first node of each class, as in generate.py."""
    share = numpy.arange(1, c + 1) ** -0.7
    sizes = numpy.floor(share / share.sum() * n).astype(numpy.int64)
    sizes[0] += n - sizes.sum()
    sizes = torch.from_numpy(sizes).to(device)
    first = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), sizes.cumsum(0)])
    return torch.arange(c, device=device).repeat_interleave(sizes), first


def edges_of(draws, spec, cls, first):
    """Returns `min(u, v) * n + max(u, v)` of `m` distinct edges, in ascending order."""
    torch, n, m = draws.torch, spec["n"], spec["m"]
    weights = draws.uniform(n).clamp_min(1e-12) ** (-1.0 / (spec["gamma"] - 1.0))
    for _ in range(20):
        weights = weights.clamp_max(float(spec["cap"] * weights.mean() / (2.0 * m / n)))
    total = torch.cat([torch.zeros(1, dtype=torch.float64, device=draws.device), weights.cumsum(0)])
    keys = torch.empty(0, dtype=torch.int64, device=draws.device)
    while len(keys) < m:
        n_draws = int((m - len(keys)) * 1.12) + 1000
        u = (torch.searchsorted(total, draws.uniform(n_draws) * total[-1], right=True) - 1).clamp_(0, n - 1)
        inside = draws.uniform(n_draws) < spec["homo"]
        start = torch.where(inside, total[first[cls[u]]], 0.0)
        stop = torch.where(inside, total[first[cls[u] + 1]], total[-1])
        place = start + draws.uniform(n_draws) * (stop - start)
        del inside, start, stop
        v = (torch.searchsorted(total, place, right=True) - 1).clamp_(0, n - 1)
        key = torch.minimum(u, v) * n + torch.maximum(u, v)
        keys = torch.unique(torch.cat([keys, key[u != v]]))
        del u, v, key, place
    surplus = len(keys) - m
    if surplus:
        kept = torch.ones(len(keys), dtype=torch.bool, device=draws.device)
        kept[draws.permutation(len(keys))[:surplus]] = False
        keys = keys[kept]
    return keys


def adjacency(draws, keys, n):
    """Returns `indptr` and `indices` of both directions of the edges under new ids, and the new id of each node."""
    torch = draws.torch
    new = draws.permutation(n)
    u, v = new[torch.div(keys, n, rounding_mode="floor")], new[keys % n]
    both = torch.cat([v * n + u, u * n + v]).sort().values
    del u, v
    dsts = torch.div(both, n, rounding_mode="floor")
    degrees = torch.bincount(dsts, minlength=n)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64, device=draws.device), degrees.cumsum(0)])
    return indptr, (both % n).to(torch.int32), new


def node_graph(torch, device, out, name, spec):
    """Generates a graph and writes its files; meta.json is the last one."""
    started = time.time()
    n, d, c = spec["n"], spec["d"], spec["c"]
    draws = Draws(torch, torch.device(device), spec["seed"])
    cls, first = classes_of(n, c, draws.device, torch)
    indptr, indices, new = adjacency(draws, edges_of(draws, spec, cls, first), n)
    os.makedirs(out, exist_ok=True)
    save = lambda file, array: numpy.save(os.path.join(out, file + ".npy"), array.cpu().numpy())
    save("indptr", indptr)
    save("indices", indices)
    labels = torch.empty_like(cls)
    labels[new] = cls
    features(draws, out, labels, c, d, spec["sep"])
    flipped = draws.uniform(n) < spec["flip"]
    random = (draws.uniform(n) * c).to(torch.int64).clamp_max(c - 1)
    save("labels", torch.where(flipped, random, labels))
    order, (n_train, n_val, _) = draws.permutation(n), spec["split"]
    for split, nodes in (("train", order[:n_train]), ("val", order[n_train:n_train + n_val]), ("test", order[n_train + n_val:])):
        save(f"{split}_idx", nodes.sort().values)
    degrees = indptr.diff().cpu().numpy()
    meta = dict(name=name, nodes=n, entries=int(indptr[-1]), dim=d, classes=c, mean_deg=float(degrees.mean()),
                median_deg=float(numpy.median(degrees)), p99_deg=float(numpy.percentile(degrees, 99)),
                max_deg=int(degrees.max()), isolated=int((degrees == 0).sum()), seed=spec["seed"],
                generator=f"torch {torch.__version__} on {device}")
    with open(os.path.join(out, "meta.json"), "w") as file:
        json.dump(meta, file, indent=1)
    print(json.dumps(meta), f"{time.time() - started:.1f} s", flush=True)


def features(draws, out, labels, c, d, sep):
    """Writes the mean of a node's class plus noise, in parts, so that the memory of the device suffices."""
    n, means = len(labels), draws.normal(c, d) * sep
    rows = numpy.lib.format.open_memmap(os.path.join(out, "features.npy"), "w+", numpy.float32, (n, d))
    for start in range(0, n, CHUNK_ROWS):
        stop = min(n, start + CHUNK_ROWS)
        rows[start:stop] = (draws.normal(stop - start, d) + means[labels[start:stop]]).cpu().numpy()
    rows.flush()


def keep_test_nodes(out, n):
    """Keeps evenly spaced test nodes, so that the test after training does not take longer than the training."""
    path = os.path.join(out, "test_idx.npy")
    nodes = numpy.load(path)
    numpy.save(path, nodes[numpy.arange(min(n, len(nodes))) * len(nodes) // min(n, len(nodes))])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("shape", choices=sorted(generate.SPEC))
    parser.add_argument("--device", choices=("cuda", "cpu"), help="requires PyTorch")
    parser.add_argument("--test-nodes", type=int, help="number of test nodes that are kept; default: all")
    args = parser.parse_args()
    out, device = os.path.join(args.folder, f"{args.shape}-like"), args.device
    try:
        import torch
        device = device or ("cuda" if torch.cuda.is_available() else None)
    except ImportError:
        if device:
            sys.exit("graphs.py: --device requires PyTorch")
    if device:
        node_graph(torch, device, out, args.shape, generate.SPEC[args.shape])
    else:
        print("PyTorch with CUDA is not on this machine: NumPy generates the graph", flush=True)
        generate.node_graph(out, args.shape, **generate.SPEC[args.shape])
    if args.test_nodes:
        keep_test_nodes(out, args.test_nodes)


if __name__ == "__main__":
    main()
