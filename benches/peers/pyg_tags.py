#!/usr/bin/env python3
"""Trains GraphSAGE of PyTorch Geometric on several labels per node, and prints the metrics of scikit-learn.

usage: pyg_tags.py DATA/debian-tags [--fanouts 10,10] [--seed 0] ...      (the folder: debian.py)

The counterpart of `kiln train --data DATA/debian-tags --standardize true --eval exact --metric average-precision-micro`:
features of mean 0 and deviation 1, layers with mean aggregation, ReLU and dropout between them, binary cross entropy,
Adam. The neighbours of a batch are drawn by sampler.py. Each epoch is evaluated on the validation split with all
neighbours; the weights of the best epoch give the test metrics, one JSON object. `--init xavier` draws the initial weights
as kiln and DGL do, in a larger range than PyG.
"""
import common

args = common.arguments(__doc__, fanouts="10,10", hidden=256, dropout=0.5, lr=0.003, epochs=40, batch=1024, seed=0, init="pyg")
import copy, json
import numpy as np, torch, torch.nn.functional as F
from sklearn import metrics
from torch_geometric.nn import SAGEConv
from sampler import Sampler, run_layers

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)
indptr, indices = common.read(args.data, "indptr"), common.read(args.data, "indices").astype(np.int64)
sampler = Sampler(indptr, indices, common.fanouts(args.fanouts), rng)
x = common.read(args.data, "features").astype(np.float64)
x = torch.from_numpy(((x - x.mean(0)) / x.std(0)).astype(np.float32))
y = common.read(args.data, "labels")
train, val, test = (common.read(args.data, part).astype(np.int64) for part in ("train", "val", "test"))


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * (len(sampler.fanouts) - 1) + [y.shape[1]]
        self.layers = torch.nn.ModuleList(SAGEConv(i, o) for i, o in zip(widths, widths[1:]))
        if args.init == "xavier":
            for layer in self.layers:
                torch.nn.init.xavier_uniform_(layer.lin_l.weight, torch.nn.init.calculate_gain("relu"))
                torch.nn.init.xavier_uniform_(layer.lin_r.weight, torch.nn.init.calculate_gain("relu"))
                torch.nn.init.zeros_(layer.lin_l.bias)

    def forward(self, h, blocks):
        return run_layers(self.layers, h, blocks, lambda h: F.dropout(F.relu(h), args.dropout, self.training))


def epoch():
    model.train()
    order = rng.permutation(train)
    for start in range(0, len(order), args.batch):
        seeds = order[start:start + args.batch]
        nodes, blocks = sampler.sample(seeds)
        targets = torch.from_numpy(y[seeds].astype(np.float32))
        loss = F.binary_cross_entropy_with_logits(model(x[nodes], blocks), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def scores(nodes):
    model.eval()
    with torch.no_grad():
        return model(x, sampler.whole())[torch.from_numpy(nodes)].numpy()


def evaluate(nodes):
    z, targets = scores(nodes), y[nodes].astype(int)
    return {
        "average-precision-micro": metrics.average_precision_score(targets, z, average="micro"),
        "average-precision": metrics.average_precision_score(targets, z, average="macro"),
        "roc-auc": metrics.roc_auc_score(targets, z, average="macro"),
        "f1-micro": metrics.f1_score(targets, z > 0, average="micro"),
        "f1-macro": metrics.f1_score(targets, z > 0, average="macro", zero_division=0),
    }


model = Sage()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
best, best_epoch, weights, seconds = -1.0, 0, None, 0.0
for number in range(1, args.epochs + 1):
    seconds += common.timed(epoch)[0]
    value = metrics.average_precision_score(y[val].astype(int), scores(val), average="micro")
    if best < value:
        best, best_epoch, weights = value, number, copy.deepcopy(model.state_dict())
model.load_state_dict(weights)
result = {"seed": args.seed, "best_epoch": best_epoch, "val": best, "test": evaluate(test)}
print(json.dumps({**result, "epoch_s": seconds / args.epochs}), flush=True)
