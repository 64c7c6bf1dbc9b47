#!/usr/bin/env python3
"""Trains a GCN of PyTorch Geometric on the links of a graph, and prints the area under the ROC curve of the test links.

usage: link_auc.py DATA/cora-links [--seed 0] ...      (the folder: links.py auc)

The setting of PyG's example on link prediction: two `GCNConv` layers with ReLU between them, the dot product as the
decoder, binary cross entropy over the training pairs and as many negatives, drawn anew in each epoch, Adam with a
learning rate of 0.01, 100 epochs on the whole graph. The epoch of the best validation area gives the test area. Messages
pass over training edges only; `--messages val` adds the validation edges in the test, as PyG's example does.
"""
import common

args = common.arguments(__doc__, hidden=128, out=64, lr=0.01, epochs=100, seed=0, messages="train")
import json
import numpy as np, torch, torch.nn.functional as F
from sklearn.metrics import average_precision_score, roc_auc_score
from torch_geometric import seed_everything
from torch_geometric.nn import GCNConv
from torch_geometric.utils import negative_sampling

torch.set_num_threads(args.threads)
seed_everything(args.seed)  # also of `random`, from which PyG draws negatives
indptr, indices = common.read(args.data, "indptr"), common.read(args.data, "indices").astype(np.int64)
edges = torch.from_numpy(np.stack([indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))]))
x = torch.from_numpy(common.read(args.data, "features"))
links = {part: torch.from_numpy(common.read(args.data, part + "_edges").T.copy()) for part in ("train", "val", "test")}
negatives = {
    part: torch.from_numpy(np.concatenate([common.read(args.data, part + name).T for name in ("_negative_srcs", "_negatives")])
                           .astype(np.int64))
    for part in ("val", "test")
}
messages = {"train": edges, "val": edges, "test": edges}
if args.messages == "val":
    messages["test"] = torch.cat([edges, links["val"], links["val"].flip(0)], 1)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GCNConv(x.shape[1], args.hidden), GCNConv(args.hidden, args.out)

    def forward(self, edges):
        return self.two(F.relu(self.one(x, edges)), edges)


def scores(part, pairs):
    rows = model(messages[part])
    return (rows[pairs[0]] * rows[pairs[1]]).sum(1)


def step():
    model.train()
    drawn = negative_sampling(edges, len(x), links["train"].shape[1], method="sparse")
    pairs = torch.cat([links["train"], drawn], 1)
    targets = torch.cat([torch.ones(links["train"].shape[1]), torch.zeros(drawn.shape[1])])
    loss = F.binary_cross_entropy_with_logits(scores("train", pairs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def evaluate(part):
    model.eval()
    pairs = torch.cat([links[part], negatives[part]], 1)
    targets = np.repeat([1, 0], [links[part].shape[1], negatives[part].shape[1]])
    with torch.no_grad():
        z = scores(part, pairs).numpy()
    return float(roc_auc_score(targets, z)), float(average_precision_score(targets, z))


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
best, result, seconds = 0.0, {}, 0.0
for epoch in range(1, args.epochs + 1):
    seconds += common.timed(step)[0]
    (val, _), (auc, precision) = evaluate("val"), evaluate("test")
    if best < val:
        best, result = val, {"best_epoch": epoch, "val_auc": val, "test_auc": auc, "test_ap": precision}
print(json.dumps({"seed": args.seed, **result, "epoch_s": seconds / args.epochs}), flush=True)
