#!/usr/bin/env python3
"""Trains GraphSAGE of PyTorch Geometric on links, and prints the mean reciprocal rank (MRR) of the test links.

usage: link_mrr.py DATA/depends [--seed 0] ...      (the folder: links.py mrr)

Layers with mean aggregation and ReLU between them, features of mean 0 and deviation 1, the dot product as the decoder,
binary cross entropy over a batch's links and one negative each (the source and a random destination), Adam. PyG's sampler
has no wheel and excludes no edges, so neighbours are drawn by this script: uniform without replacement from the message
graph without the edges of the batch's links in both directions. The evaluation uses all neighbours and the fixed
negatives; a tie takes the mean rank. The epoch of the best validation MRR gives the test MRR, one JSON object.
"""
import common

args = common.arguments(__doc__, fanouts="10,10", hidden=256, out=128, lr=0.003, epochs=10, batch=4096, seed=0)
import json
import numpy as np, torch, torch.nn.functional as F
from torch_geometric.nn import SAGEConv

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)
fanouts = common.fanouts(args.fanouts)
indptr, indices = common.read(args.data, "indptr"), common.read(args.data, "indices").astype(np.int64)
n_nodes = len(indptr) - 1
dsts = np.repeat(np.arange(n_nodes), np.diff(indptr))
edge_pairs = np.minimum(indices, dsts) * n_nodes + np.maximum(indices, dsts)
x = common.read(args.data, "features").astype(np.float64)
x = torch.from_numpy(((x - x.mean(0)) / x.std(0)).astype(np.float32))
links = {part: common.read(args.data, part + "_links") for part in ("train", "val", "test")}
negatives = {part: torch.from_numpy(common.read(args.data, part + "_negatives")[:, :, 1].copy()) for part in ("val", "test")}


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * (len(fanouts) - 1) + [args.out]
        self.layers = torch.nn.ModuleList(SAGEConv(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, h, blocks):
        for i, (layer, (edges, n_dst)) in enumerate(zip(self.layers, blocks)):
            h = layer((h, h[:n_dst]), edges)
            if i + 1 < len(self.layers):
                h = F.relu(h)
        return h


def hop(nodes, fanout, excluded):
    """Returns the edges to at most `fanout` random neighbours of each node, as sources and positions in `nodes`."""
    degrees = indptr[nodes + 1] - indptr[nodes]
    dst = np.repeat(np.arange(len(nodes)), degrees)
    edge = np.arange(len(dst)) + np.repeat(indptr[nodes] - np.cumsum(degrees) + degrees, degrees)
    keep = ~np.isin(edge_pairs[edge], excluded)
    dst, edge = dst[keep], edge[keep]
    order = np.lexsort((rng.random(len(dst)), dst))
    dst, edge = dst[order], edge[order]
    first = np.searchsorted(dst, np.arange(len(nodes)))
    chosen = np.arange(len(dst)) - first[dst] < fanout
    return indices[edge[chosen]], dst[chosen]


def sample(seeds, excluded):
    """Returns the input nodes and the blocks, input layer first. The first sources of a block are its destinations."""
    nodes, blocks = seeds, []
    position = np.full(n_nodes, -1)
    for fanout in reversed(fanouts):
        src, dst = hop(nodes, fanout, excluded)
        position[nodes] = np.arange(len(nodes))
        new = np.unique(src[position[src] < 0])
        position[new] = len(nodes) + np.arange(len(new))
        blocks.insert(0, (torch.from_numpy(np.stack([position[src], dst])), len(nodes)))
        nodes = np.concatenate([nodes, new])
    return nodes, blocks


def epoch():
    model.train()
    order = rng.permutation(len(links["train"]))
    for start in range(0, len(order), args.batch):
        src, dst = links["train"][order[start:start + args.batch]].T
        seeds, rows = np.unique(np.concatenate([src, dst, rng.integers(n_nodes, size=len(src))]), return_inverse=True)
        excluded = np.unique(np.minimum(src, dst) * n_nodes + np.maximum(src, dst))
        nodes, blocks = sample(seeds, excluded)
        of_src, of_dst, of_negative = model(x[nodes], blocks)[torch.from_numpy(rows)].split(len(src))
        scores = torch.cat([(of_src * of_dst).sum(1), (of_src * of_negative).sum(1)])
        targets = torch.cat([torch.ones(len(src)), torch.zeros(len(src))])
        loss = F.binary_cross_entropy_with_logits(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mean_reciprocal_rank(part):
    model.eval()
    whole = (torch.from_numpy(np.stack([indices, dsts])), n_nodes)
    ranks = []
    with torch.no_grad():
        rows = model(x, [whole] * len(fanouts))
        for pairs, others in zip(torch.from_numpy(links[part]).split(256), negatives[part].split(256)):
            of_src = rows[pairs[:, 0]]
            positive = (of_src * rows[pairs[:, 1]]).sum(1, keepdim=True)
            scores = torch.einsum("nd,nkd->nk", of_src, rows[others])
            ranks.append(1 + (positive < scores).sum(1) + (positive == scores).sum(1) / 2)
    return (1 / torch.cat(ranks).double()).mean().item()


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
best, result, seconds = 0.0, {}, 0.0
for number in range(1, args.epochs + 1):
    seconds += common.timed(epoch)[0]
    val = mean_reciprocal_rank("val")
    if best < val:
        best, result = val, {"best_epoch": number, "val_mrr": val, "test_mrr": mean_reciprocal_rank("test")}
print(json.dumps({"seed": args.seed, **result, "epoch_s": seconds / args.epochs}), flush=True)
