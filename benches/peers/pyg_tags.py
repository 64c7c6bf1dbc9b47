#!/usr/bin/env python3
"""Trains GraphSAGE of PyTorch Geometric on several labels per node, and prints the metrics of scikit-learn.

usage: pyg_tags.py DATA/debian-tags [--fanouts 10,10] [--seed 0] ...      (the folder: debian.py)

The counterpart of `kiln train --data DATA/debian-tags --standardize true --eval exact --metric average-precision-micro`:
features of mean 0 and deviation 1, layers with mean aggregation, ReLU and dropout between them, binary cross entropy,
Adam. `--fanouts all` trains on the whole graph, with one step an epoch; numbers, input layer first, need torch-sparse or
pyg-lib. Each epoch is evaluated on the validation split with all neighbours; the best epoch's weights give the test
metrics, one JSON object.
"""
import common

args = common.arguments(__doc__, fanouts="10,10", hidden=256, dropout=0.5, lr=0.003, epochs=30, batch=1024, seed=0)
import copy, json
import numpy as np, torch, torch.nn.functional as F
from sklearn import metrics
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
indptr, indices = common.read(args.data, "indptr"), common.read(args.data, "indices").astype(np.int64)
dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
edges = torch.from_numpy(np.stack([indices, dst]))
x = common.read(args.data, "features").astype(np.float64)
x = torch.from_numpy(((x - x.mean(0)) / x.std(0)).astype(np.float32))
y = torch.from_numpy(common.read(args.data, "labels").astype(np.float32))
train, val, test = (torch.from_numpy(common.read(args.data, part).astype(np.int64)) for part in ("train", "val", "test"))
n_layers = len(args.fanouts.split(","))


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * (n_layers - 1) + [y.shape[1]]
        self.layers = torch.nn.ModuleList(SAGEConv(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, h, edges):
        for i, layer in enumerate(self.layers):
            h = layer(h, edges)
            if i + 1 < n_layers:
                h = F.dropout(F.relu(h), args.dropout, self.training)
        return h


def batches():
    """Yields the inputs, the edges, the number of seeds, which are the first nodes, and their targets."""
    if "all" in args.fanouts:
        yield x, whole, train, y[train]
        return
    for batch in loader:
        yield batch.x, batch.edge_index, slice(0, batch.batch_size), batch.y[:batch.batch_size]


def adjacency():
    """Returns the graph for `SAGEConv`: a sparse matrix if torch-sparse is installed, which takes less memory."""
    try:
        from torch_sparse import SparseTensor
    except ImportError:
        return edges
    n = len(x)
    return SparseTensor(rowptr=torch.from_numpy(indptr), col=torch.from_numpy(indices), sparse_sizes=(n, n))


def scores(nodes):
    model.eval()
    with torch.no_grad():
        return model(x, whole)[nodes].numpy()


def evaluate(nodes):
    z, targets = scores(nodes), y[nodes].numpy().astype(int)
    return {
        "average-precision-micro": metrics.average_precision_score(targets, z, average="micro"),
        "average-precision": metrics.average_precision_score(targets, z, average="macro"),
        "roc-auc": metrics.roc_auc_score(targets, z, average="macro"),
        "f1-micro": metrics.f1_score(targets, z > 0, average="micro"),
        "f1-macro": metrics.f1_score(targets, z > 0, average="macro", zero_division=0),
    }


def epoch():
    model.train()
    for inputs, graph, seeds, targets in batches():
        loss = F.binary_cross_entropy_with_logits(model(inputs, graph)[seeds], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


whole = adjacency()
if "all" not in args.fanouts:
    from torch_geometric.loader import NeighborLoader
    # PyG's first number belongs to the seeds.
    of_hops = common.fanouts(args.fanouts)[::-1]
    data = Data(x=x, y=y, edge_index=edges)
    loader = NeighborLoader(data, of_hops, input_nodes=train, batch_size=args.batch, shuffle=True)
model = Sage()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
best, best_epoch, weights, seconds = -1.0, 0, None, 0.0
for number in range(1, args.epochs + 1):
    elapsed, _ = common.timed(epoch)
    seconds += elapsed
    value = metrics.average_precision_score(y[val].numpy().astype(int), scores(val), average="micro")
    if best < value:
        best, best_epoch, weights = value, number, copy.deepcopy(model.state_dict())
model.load_state_dict(weights)
result = {"seed": args.seed, "best_epoch": best_epoch, "val": best, "test": evaluate(test)}
print(json.dumps({**result, "epoch_s": seconds / args.epochs}), flush=True)
