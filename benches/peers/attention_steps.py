#!/usr/bin/env python3
"""Measures training steps of attention and relational layers of DGL and PyG on the CPU, without sampling.

usage: attention_steps.py DATA/arxiv-like [--layers dgl-gat] [--threads 2] [--steps 20] ...

--layers dgl-gat        dgl.nn.GATConv
         dgl-rgcn       dgl.nn.RelGraphConv with bases, the edges in the order of their types
         pyg-gat        GATConv
         pyg-gatv2      GATv2Conv
         pyg-rgcn       RGCNConv with bases
         pyg-fast-rgcn  FastRGCNConv with bases, which stores a matrix per edge: only for small graphs and widths

A step is forward, cross entropy, backward and Adam, without dropout. `Sampler` of sampler.py draws the blocks of
`--batches` batches before the first step, the same ones for all layers, and the features of their inputs are gathered
then. A GAT has `--heads` heads with `--hidden` outputs in total, no added self-loops, ELU between layers, and in the last
layer the mean of heads with one output per class. An R-GCN has `--hidden` outputs per layer, ReLU between layers, the mean
per edge type, and a weight matrix for the node's own features. Edge e of the CSC has the type
`(e * 2654435761 >> 16) % relations`.

DGL's blocks are rebuilt before each step, so the step converts their sparse formats, as it does in training. The factors of
the mean and the order of the edge types are computed for DGL before the step; PyG computes the mean in the step. Two steps
of warm-up are not measured. On a machine with other load, compare the CPU times of one thread (`step_cpu`).
"""
import common

args = common.arguments(__doc__, layers="dgl-gat", fanouts="10,10,10", hidden=256, heads=4, relations=10, bases=4,
                        batch=1024, batches=10, steps=20, lr=0.003)
import json, os, sys, time
import numpy as np, torch, torch.nn.functional as F
from sampler import Sampler

LAYERS = ["dgl-gat", "dgl-rgcn", "pyg-gat", "pyg-gatv2", "pyg-rgcn", "pyg-fast-rgcn"]
if args.layers not in LAYERS:
    sys.exit(f"invalid --layers '{args.layers}': expected one of {', '.join(LAYERS)}")
torch.set_num_threads(args.threads)
torch.manual_seed(0)
library, layer_type = args.layers.split("-", 1)
is_gat = layer_type.startswith("gat")
indptr, indices = common.read(args.data, "indptr").astype(np.int64), common.read(args.data, "indices").astype(np.int64)
x, y = common.read(args.data, "features"), common.read(args.data, "labels").astype(np.int64)
fanouts, n_classes = common.fanouts(args.fanouts), int(y.max()) + 1
widths = [x.shape[1]] + [args.hidden] * (len(fanouts) - 1) + [n_classes]


class EdgeSampler(Sampler):
    """Draws edges as `Sampler` does, and also returns their types."""

    def __init__(self):
        # With the edges' numbers as indices, `hop` returns the numbers of the drawn edges.
        super().__init__(indptr, np.arange(len(indices)), fanouts, np.random.default_rng(0))

    def sample(self, seeds):
        """Returns the input nodes and the blocks, input layer first: edges in the order of destinations, number of
        sources, number of destinations, types of the edges."""
        nodes, blocks = seeds, []
        for fanout in reversed(self.fanouts):
            edge, dst = self.hop(nodes, fanout, None)
            self.position[nodes] = np.arange(len(nodes))
            new = np.setdiff1d(indices[edge], nodes)
            self.position[new] = len(nodes) + np.arange(len(new))
            types = (edge * 2654435761 >> 16) % args.relations
            edges = torch.from_numpy(np.stack([self.position[indices[edge]], dst]))
            blocks.insert(0, (edges, len(nodes) + len(new), len(nodes), torch.from_numpy(types)))
            nodes = np.concatenate([nodes, new])
        return nodes, blocks


def by_type(edges, n_src, n_dst, types):
    """Returns a block with its edges in the order of their types."""
    types, order = torch.sort(types, stable=True)
    return edges[:, order], n_src, n_dst, types


def factors(edges, n_src, n_dst, types):
    """Returns 1 / the number of edges of the same destination and type, for each edge."""
    group = edges[1] * args.relations + types
    return 1 / torch.bincount(group).float()[group].unsqueeze(1)


def dgl_input(edges, n_src, n_dst, types):
    """Returns a new block, the types of its edges, and the factors of the mean."""
    import dgl
    if is_gat:
        counts = torch.bincount(edges[1], minlength=n_dst)
        form = "csc", (F.pad(counts.cumsum(0), (1, 0)), edges[0], torch.arange(len(edges[0])))
    else:
        form = edges[0], edges[1]
    block = dgl.create_block(form, num_src_nodes=n_src, num_dst_nodes=n_dst)
    return block, types, None if is_gat else factors(edges, n_src, n_dst, types)


def layer(d_in, d_out, is_last):
    width = d_out if is_last else d_out // args.heads
    if library == "dgl":
        import dgl.nn as dglnn
        if is_gat:
            return dglnn.GATConv(d_in, width, args.heads, allow_zero_in_degree=True)
        return dglnn.RelGraphConv(d_in, d_out, args.relations, "basis", args.bases)
    import torch_geometric.nn as pyg
    if is_gat:
        conv = pyg.GATConv if layer_type == "gat" else pyg.GATv2Conv
        return conv(d_in, width, args.heads, concat=not is_last, add_self_loops=False)
    conv = pyg.RGCNConv if layer_type == "rgcn" else pyg.FastRGCNConv
    return conv(d_in, d_out, args.relations, args.bases)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.layers = torch.nn.ModuleList(layer(*pair, i + 1 == len(pairs)) for i, pair in enumerate(pairs))

    def forward(self, h, blocks):
        for i, (run, block) in enumerate(zip(self.layers, blocks)):
            is_last = i + 1 == len(self.layers)
            if library == "pyg":
                edges, _, n_dst, types = block
                h = run((h, h[:n_dst]), edges) if is_gat else run((h, h[:n_dst]), edges, types)
            elif is_gat:
                h = run(block[0], h)
                h = h.mean(1) if is_last else h.flatten(1)
            else:
                graph, types, norm = block
                h = run(graph, h, types, norm, presorted=True)
            if not is_last:
                h = F.elu(h) if is_gat else F.relu(h)
        return h


sampler, batches = EdgeSampler(), []
for seeds in common.batches(args.data, args.batch, args.batches):
    nodes, blocks = sampler.sample(seeds)
    if args.layers == "dgl-rgcn":
        blocks = [by_type(*block) for block in blocks]
    batches.append((torch.from_numpy(x[nodes]), blocks, torch.from_numpy(y[seeds])))
for i in range(len(fanouts)):
    counts = {"edges": [b[1][i][0].shape[1] for b in batches], "sources": [b[1][i][1] for b in batches]}
    for what, values in counts.items():
        common.report(f"{what} {i}", values, what)
if layer_type == "fast-rgcn":  # the matrix of each edge, and its gradient
    needed = max(sum(8 * b[0].shape[1] * i * o for b, i, o in zip(blocks, widths, widths[1:])) for _, blocks, _ in batches)
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < needed:
        sys.exit(f"FastRGCNConv needs about {needed / 1e9:.0f} GB for a step, more than the memory of this machine")
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
steps, cpu, losses = [], [], []
for i in range(args.steps + 2):
    features, blocks, targets = batches[i % len(batches)]
    if library == "dgl":
        blocks = [dgl_input(*block) for block in blocks]
    start, used = time.perf_counter(), time.process_time()
    loss = F.cross_entropy(model(features, blocks), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    steps.append((time.perf_counter() - start) * 1e3)
    cpu.append((time.process_time() - used) * 1e3)
print(json.dumps(dict(what="first losses " + args.layers, values=[round(loss, 6) for loss in losses[:5]])), flush=True)
common.report("step " + args.layers, steps[2:], "ms")
common.report("step_cpu " + args.layers, cpu[2:], "ms")
