#!/usr/bin/env python3
"""Trains R-SAGE of PyTorch Geometric on classes or numbers of edges, and prints the metric of the test edges.

usage: pyg_edges.py DATA/kinds [--seed 0] ...      (the folder: edges.py)

The counterpart of `kiln train --task edge --fanouts all --eval exact`: a linear layer of the features; layers that add the
mean over the neighbours of each relation (the edges and their reverses) to the own row, each with a matrix, with ReLU between
them; and a perceptron of two layers on the rows of both ends and the edge's own feature. Messages pass over the edges that
train, and a step leaves its own edges and their reverses out. Cross entropy, or the squared error of standardised numbers;
Adam. The epoch of the best validation metric gives the test metric, one JSON object.
"""
import common

args = common.arguments(__doc__, hidden=64, out=64, lr=0.003, epochs=10, batch=4096, seed=0)
import json
import numpy as np, torch, torch.nn.functional as F
from torch_geometric.nn import SAGEConv

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)
x = torch.from_numpy(common.read(args.data, "x"))
edges, y, part = (common.read(args.data, name) for name in ("edges", "y", "part"))
is_class = y.dtype == np.int64
own = None if is_class else torch.from_numpy(common.read(args.data, "features"))
n_outputs = int(y.max()) + 1 if is_class else 1
mean, std = (0.0, 1.0) if is_class else (float(y[part == 0].mean()), float(y[part == 0].std()))
targets = torch.from_numpy(y) if is_class else torch.from_numpy((y - mean) / std)
pairs = edges.min(1) * len(x) + edges.max(1)
messages = np.flatnonzero(~np.isin(pairs, pairs[part != 0]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.input = torch.nn.Linear(x.shape[1], args.hidden)
        widths = [(args.hidden, args.hidden), (args.hidden, args.out)]
        self.own = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in widths)
        self.relations = torch.nn.ModuleList(
            torch.nn.ModuleList(SAGEConv(*pair, root_weight=False, bias=False) for _ in range(2)) for pair in widths)
        d_in = 2 * args.out + (0 if own is None else own.shape[1])
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(d_in, args.out), torch.nn.ReLU(), torch.nn.Linear(args.out, n_outputs))

    def rows(self, message):
        forward = torch.from_numpy(edges[message].T.copy())
        h = self.input(x)
        for layer, (linear, relations) in enumerate(zip(self.own, self.relations)):
            h = linear(h) + sum(conv(h, way) for conv, way in zip(relations, (forward, forward.flip(0))))
            h = F.relu(h) if layer == 0 else h
        return h

    def forward(self, message, items):
        h, ends = self.rows(message), torch.from_numpy(edges[items])
        inputs = [h[ends[:, 0]], h[ends[:, 1]]] + ([] if own is None else [own[items]])
        return self.decoder(torch.cat(inputs, 1))


def loss_of(outputs, items):
    return F.cross_entropy(outputs, targets[items]) if is_class else F.mse_loss(outputs[:, 0], targets[items])


def epoch():
    model.train()
    order = rng.permutation(np.flatnonzero(part == 0))
    for start in range(0, len(order), args.batch):
        items = order[start:start + args.batch]
        loss = loss_of(model(messages[~np.isin(pairs[messages], pairs[items])], items), items)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(number):
    """Returns the accuracy, or minus the root of the mean squared error."""
    model.eval()
    items = np.flatnonzero(part == number)
    with torch.no_grad():
        outputs = model(messages, items).numpy()
    if is_class:
        return float((outputs.argmax(1) == y[items]).mean())
    return -float(np.sqrt(((outputs[:, 0] * std + mean - y[items]) ** 2).mean()))


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
best, result, seconds = -np.inf, {}, 0.0
for number in range(1, args.epochs + 1):
    seconds += common.timed(epoch)[0]
    val = evaluate(1)
    if best < val:
        best, result = val, {"best_epoch": number, "val": abs(val), "test": abs(evaluate(2))}
print(json.dumps({"seed": args.seed, **result, "epoch_s": seconds / args.epochs}), flush=True)
