#!/usr/bin/env python3
"""Trains R-SAGE of PyTorch Geometric on a heterogeneous dataset, and prints accuracies, one JSON object.

usage: pyg_archive.py DATA/debian-archive [--fanouts 10,10] [--seed 0] ...      (the folder: debian.py)

The counterpart of `kiln train --data debian-archive`: the input rows of `package` are a linear layer of its features, those
of the other types are trainable; then `to_hetero` of GraphSAGE with means, ReLU and dropout between the layers, cross
entropy, Adam, and SparseAdam for trainable rows. PyG has a matrix of the own row for each relation, kiln has one for each
type. `NeighborLoader`, which needs torch-sparse or pyg-lib, draws the neighbours, in evaluations too. The weights of the
best epoch by the validation accuracy give the test accuracy.

These options bring PyG closer to kiln:
--rows kiln     the initial values of trainable rows are uniform within 1 / sqrt(hidden), not normal with deviation 1
--layers kiln   the initial weights of the layers have the larger range of kiln and DGL
--own type      a layer has a matrix of the own row for each node type
--unseen mean   in evaluations, a node whose row was in no step has the mean of the other rows, not its initial row
"""
import common

args = common.arguments(__doc__, fanouts="10,10", hidden=128, dropout=0.5, lr=0.003, epochs=20, batch=1024, seed=0,
                        rows="pyg", layers="pyg", own="relation", unseen="initial")
import copy, json
import torch, torch.nn.functional as F
from archive import Archive, Inputs, Optimizers, pyg_loader, pyg_model, pyg_scores

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
data, fanouts = Archive(args.data), common.fanouts(args.fanouts)
inputs = Inputs(data, args.hidden, args.rows, args.unseen == "mean")
model = pyg_model(data, args.hidden, len(fanouts), args.dropout, args.layers, args.own)
both = torch.nn.ModuleList([inputs, model])
optimizers = Optimizers(inputs, model, args.lr)
loaders = {part: pyg_loader(data, part, fanouts, args.batch) for part in data.split}


def epoch():
    both.train()
    for batch in loaders["train"]:
        scores, labels = pyg_scores(inputs, model, batch)
        optimizers.step(F.cross_entropy(scores, labels))


def accuracy(part):
    both.eval()
    with torch.no_grad():
        outputs = (pyg_scores(inputs, model, batch) for batch in loaders[part])
        n_right = sum((scores.argmax(1) == labels).sum().item() for scores, labels in outputs)
    return n_right / len(data.split[part])


best, best_epoch, weights, seconds, values = -1.0, 0, None, 0.0, []
for number in range(1, args.epochs + 1):
    seconds += common.timed(epoch)[0]
    values.append(accuracy("validation"))
    if best < values[-1]:
        best, best_epoch, weights = values[-1], number, copy.deepcopy(both.state_dict())
both.load_state_dict(weights)
result = {"seed": args.seed, "best_epoch": best_epoch, "val": best, "test": accuracy("test")}
print(json.dumps({**result, "vals": [round(value, 4) for value in values], "epoch_s": seconds / args.epochs}), flush=True)
