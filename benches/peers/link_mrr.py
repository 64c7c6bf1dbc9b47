#!/usr/bin/env python3
"""Trains GraphSAGE of PyTorch Geometric on links, and prints the mean reciprocal rank (MRR) of the test links.

usage: link_mrr.py DATA/depends [--seed 0] ...      (the folder: links.py mrr)

Layers with mean aggregation and ReLU between them, features of mean 0 and deviation 1, the dot product as the decoder,
binary cross entropy over a batch's links and one negative each (the source and a random destination), Adam. PyG's sampler
has no wheel and excludes no edges: sampler.py draws neighbours from the message graph without the edges of the batch's
links, in both directions. The evaluation uses all neighbours and the fixed negatives; a tie takes the mean rank. The epoch
of the best validation MRR gives the test MRR, one JSON object. `--init xavier` draws the initial weights as kiln and DGL do,
in a larger range than PyG.
"""
import common

args = common.arguments(__doc__, fanouts="10,10", hidden=256, out=128, lr=0.003, epochs=10, batch=4096, seed=0, init="pyg")
import json
import numpy as np, torch, torch.nn.functional as F
from torch_geometric.nn import SAGEConv
from sampler import Sampler, run_layers

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)
indptr, indices = common.read(args.data, "indptr"), common.read(args.data, "indices").astype(np.int64)
sampler = Sampler(indptr, indices, common.fanouts(args.fanouts), rng)
x = common.read(args.data, "features").astype(np.float64)
x = torch.from_numpy(((x - x.mean(0)) / x.std(0)).astype(np.float32))
links = {part: common.read(args.data, part + "_edges") for part in ("train", "val", "test")}
negatives = {part: torch.from_numpy(common.read(args.data, part + "_negatives").astype(np.int64)) for part in ("val", "test")}


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * (len(sampler.fanouts) - 1) + [args.out]
        self.layers = torch.nn.ModuleList(SAGEConv(i, o) for i, o in zip(widths, widths[1:]))
        if args.init == "xavier":
            for layer in self.layers:
                torch.nn.init.xavier_uniform_(layer.lin_l.weight, torch.nn.init.calculate_gain("relu"))
                torch.nn.init.xavier_uniform_(layer.lin_r.weight, torch.nn.init.calculate_gain("relu"))
                torch.nn.init.zeros_(layer.lin_l.bias)

    def forward(self, h, blocks):
        return run_layers(self.layers, h, blocks, F.relu)


def epoch():
    model.train()
    order = rng.permutation(len(links["train"]))
    for start in range(0, len(order), args.batch):
        src, dst = links["train"][order[start:start + args.batch]].T
        seeds, rows = np.unique(np.concatenate([src, dst, rng.integers(sampler.n_nodes, size=len(src))]), return_inverse=True)
        nodes, blocks = sampler.sample(seeds, np.unique(sampler.pairs(src, dst)))
        of_src, of_dst, of_negative = model(x[nodes], blocks)[torch.from_numpy(rows)].split(len(src))
        scores = torch.cat([(of_src * of_dst).sum(1), (of_src * of_negative).sum(1)])
        targets = torch.cat([torch.ones(len(src)), torch.zeros(len(src))])
        loss = F.binary_cross_entropy_with_logits(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mean_reciprocal_rank(part):
    model.eval()
    ranks = []
    with torch.no_grad():
        rows = model(x, sampler.whole())
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
