"""Measures training on GraphBolt's batches: GraphSAGE with means or a GCN, Adam, no dropout, cross entropy.

--steps K   measures K steps after two steps of warm-up
--epochs N  trains N epochs, and then validates with sampled neighbours
The script reports the times of steps, the time from the start of the process to the end of its first step, and peak
resident memory."""
import common

args = common.arguments(__doc__, model="sage", fanouts="10,10,10", hidden=256, batch=1024, decay=0.0, steps=0, epochs=1)
import itertools, resource, time
import numpy as np, torch, torch.nn.functional as F
torch.set_num_threads(args.threads)
import dgl.graphbolt as gb, dgl.nn as dglnn

fanouts = common.fanouts(args.fanouts)
indptr, indices = common.read(args.data, "indptr").astype(np.int64), common.read(args.data, "indices").astype(np.int64)
if args.model == "gcn":  # adds a self-loop to each node, as PyG's GCN does
    n_nodes = len(indptr) - 1
    indices = np.insert(indices, indptr[:-1], np.arange(n_nodes))
    indptr = indptr + np.arange(n_nodes + 1)
graph = gb.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
x = torch.from_numpy(common.read(args.data, "features"))
y = torch.from_numpy(common.read(args.data, "labels").astype(np.int64))
store = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(x)})


def loader(split, shuffle):
    ids = torch.from_numpy(common.read(args.data, split + "_idx", split).astype(np.int64))
    items = gb.ItemSampler(gb.ItemSet((ids, y[ids]), names=("seed_nodes", "labels")), args.batch, shuffle=shuffle)
    return gb.DataLoader(items.sample_neighbor(graph, fanouts).fetch_feature(store, node_feature_keys=["feat"]), num_workers=0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * (len(fanouts) - 1) + [int(y.max()) + 1]
        layer = (lambda i, o: dglnn.SAGEConv(i, o, "mean")) if args.model == "sage" else dglnn.GraphConv
        self.layers = torch.nn.ModuleList(layer(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, batch):
        h = batch.node_features["feat"]
        for i, (layer, block) in enumerate(zip(self.layers, batch.blocks)):
            h = layer(block, h) if i == 0 else layer(block, F.relu(h))
        return h


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=args.decay)
train, steps, first = loader("train", True), [], None
n_steps = args.steps + 2 if args.steps else None
batches = itertools.chain.from_iterable(train for _ in itertools.count()) if args.steps else \
    itertools.chain.from_iterable(train for _ in range(args.epochs))
start = time.perf_counter()
for batch in itertools.islice(batches, n_steps):
    loss = F.cross_entropy(model(batch), batch.labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    if first is None:
        first = common.since_start()
    end = time.perf_counter()
    steps.append((end - start) * 1e3)
    start = end
common.report("first_step", [first], "s")
if 2 < len(steps):
    common.report("step", steps[2:], "ms")
common.report("memory", [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024], "bytes")
if not args.steps:
    model.eval()
    with torch.no_grad():
        hits = [(model(batch).argmax(1) == batch.labels).float() for batch in loader("val", False)]
    common.report("accuracy", [torch.cat(hits).mean().item()], "share")
