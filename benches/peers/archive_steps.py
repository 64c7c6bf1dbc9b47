#!/usr/bin/env python3
"""Measures training steps of R-SAGE on a heterogeneous dataset, sampling and gathering included.

usage: archive_steps.py DATA/debian-archive [--mode graphbolt|pyg] [--threads 2] ...      (the folder: debian.py)

graphbolt is `dgl.graphbolt` with a fanout per relation and DGL's `HeteroGraphConv` of `SAGEConv`; pyg is `NeighborLoader`,
which needs torch-sparse or pyg-lib, and `to_hetero` of `SAGEConv`. Both sum over relations. The input rows of `package` are
a linear layer of its features, those of other types are trainable. A step is sampling, gathering, forward, cross entropy,
backward, Adam, and SparseAdam for trainable rows. `--workers 1` prepares batches in another process.

`archive_step_mean` is the mean of the `--steps` steps after the warm-up, which is what kiln prints as `iteration`;
`archive_step` is their median. On a machine with other load, compare the CPU times (`archive_step_cpu`), which do not
include workers.
"""
import common

args = common.arguments(__doc__, mode="graphbolt", fanouts="10,10", hidden=128, dropout=0.5, lr=0.003, batch=1024, workers=0,
                        steps=30, warmup=10)
import itertools, json, statistics, sys, time
import torch, torch.nn.functional as F
from archive import Archive, Inputs, Optimizers, dgl_model, graphbolt_loader, pyg_loader, pyg_model, pyg_scores

if args.mode not in ("graphbolt", "pyg"):
    sys.exit(f"invalid --mode '{args.mode}': expected graphbolt or pyg")
torch.set_num_threads(args.threads)
torch.manual_seed(0)
data, fanouts = Archive(args.data), common.fanouts(args.fanouts)
inputs = Inputs(data, args.hidden, "kiln")
if args.mode == "pyg":
    model = pyg_model(data, args.hidden, len(fanouts), args.dropout)
    loader = pyg_loader(data, "train", fanouts, args.batch, args.workers)
else:
    model = dgl_model(data, args.hidden, len(fanouts), args.dropout)
    loader = graphbolt_loader(data, fanouts, args.batch, args.workers)
optimizers = Optimizers(inputs, model, args.lr)


def outputs(batch):
    if args.mode == "pyg":
        return pyg_scores(inputs, model, batch)
    rows = inputs(batch.node_features[("package", "feat")], batch.input_nodes)
    return model(batch.blocks, rows), batch.labels["source"]


batches = itertools.chain.from_iterable(loader for _ in itertools.count())
steps, cpu, losses, start, used = [], [], [], time.perf_counter(), time.process_time()
for batch in itertools.islice(batches, args.warmup + args.steps):
    scores, labels = outputs(batch)
    loss = F.cross_entropy(scores, labels)
    optimizers.step(loss)
    losses.append(loss.item())
    end = time.perf_counter()
    steps.append((end - start) * 1e3)
    cpu.append((time.process_time() - used) * 1e3)
    start, used = time.perf_counter(), time.process_time()
print(json.dumps(dict(what="first and last loss " + args.mode, values=[losses[0], losses[-1]])), flush=True)
steps, cpu = steps[args.warmup:], cpu[args.warmup:]
common.report("archive_step_mean " + args.mode, [statistics.mean(steps)], "ms")
common.report("archive_step " + args.mode, steps, "ms")
common.report("archive_step_cpu " + args.mode, cpu, "ms")
