#!/usr/bin/env python3
"""Trains GIN of PyTorch Geometric on the regression task of triangles.py, and prints RMSE, MAE and R2 of scikit-learn.

usage: pyg_triangles.py DATA/imdb [--seed 0] [--epochs 100] ...

The counterpart of `kiln train --data DATA/imdb --dropout 0 --readout mean --lr 0.003
--lr-schedule cosine --epochs 100`: the network of the GIN paper, 4 layers with MLPs
of two dense layers, batch normalisation, sums over neighbours, means over nodes, and a dense layer on the pooled
rows of the input and of each layer, whose outputs are summed; mean squared error, Adam, a learning rate that decreases to 0
along a cosine, batches of 32 graphs. The epoch of the best validation RMSE gives the test metrics, one JSON object.
"""
import common

args = common.arguments(__doc__, hidden=64, layers=4, lr=0.003, epochs=100, batch=32, seed=0, readout="mean")
import copy, json, math, os
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from sklearn import metrics
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)


def table(*path, dtype):
    return np.loadtxt(os.path.join(args.data, *path) + ".csv.gz", delimiter=",", dtype=dtype)


nodes = np.concatenate([[0], np.cumsum(table("raw", "num-node-list", dtype=np.int64))])
ends = np.concatenate([[0], np.cumsum(table("raw", "num-edge-list", dtype=np.int64))])
x, edges = table("raw", "node-feat", dtype=np.float32), table("raw", "edge", dtype=np.int64)
y = table("raw", "graph-label", dtype=np.float64).astype(np.float32)
graphs = [
    Data(x=torch.from_numpy(x[nodes[i]:nodes[i + 1]]), edge_index=torch.from_numpy(edges[ends[i]:ends[i + 1]].T.copy()),
         y=torch.tensor([[y[i]]]))
    for i in range(len(y))
]
split = {part: table("split", "random", part, dtype=np.int64) for part in ("train", "valid", "test")}
pool = {"sum": global_add_pool, "mean": global_mean_pool}[args.readout]


class Gin(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * args.layers
        mlp = lambda i, o: nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Linear(o, o))
        self.convs = nn.ModuleList(GINConv(mlp(i, o)) for i, o in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:])
        self.heads = nn.ModuleList(nn.Linear(width, 1) for width in widths)

    def forward(self, batch):
        h = batch.x
        out = self.heads[0](pool(h, batch.batch))
        for conv, norm, head in zip(self.convs, self.norms, self.heads[1:]):
            h = F.relu(norm(conv(h, batch.edge_index)))
            out = out + head(pool(h, batch.batch))
        return out


def predict(part):
    model.eval()
    with torch.no_grad():
        outputs = [model(batch) for batch in DataLoader([graphs[i] for i in split[part]], batch_size=256)]
    return y[split[part]], torch.cat(outputs).numpy()[:, 0]


def epoch():
    model.train()
    for batch in loader:
        loss = F.mse_loss(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


model = Gin()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
n_steps = args.epochs * -(-len(split["train"]) // args.batch)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / n_steps)) / 2)
loader = DataLoader([graphs[i] for i in split["train"]], batch_size=args.batch, shuffle=True)
best, best_epoch, weights, seconds = float("inf"), 0, None, 0.0
for number in range(1, args.epochs + 1):
    elapsed, _ = common.timed(epoch)
    seconds += elapsed
    value = metrics.root_mean_squared_error(*predict("valid"))
    if value < best:
        best, best_epoch, weights = value, number, copy.deepcopy(model.state_dict())
model.load_state_dict(weights)
test = predict("test")
scores = {"rmse": metrics.root_mean_squared_error, "mae": metrics.mean_absolute_error, "r2": metrics.r2_score}
result = {"seed": args.seed, "best_epoch": best_epoch, "val": float(best)}
result["test"] = {name: float(score(*test)) for name, score in scores.items()}
print(json.dumps({**result, "epoch_s": seconds / args.epochs}), flush=True)
