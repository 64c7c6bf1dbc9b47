"""Measures training: GraphSAGE with means or a GCN, Adam, no dropout, cross entropy.

--loader graphbolt | dgl  batches of GraphBolt, or of `dgl.dataloading`
--steps K                 measures K steps after two steps of warm-up
--epochs N                trains N epochs, and then validates with sampled neighbours
The script reports the times of steps, the time from the start of the process to the end of its first step, and peak
resident memory."""
import common

args = common.arguments(
    __doc__, loader="graphbolt", model="sage", fanouts="10,10,10", hidden=256, batch=1024, decay=0.0, steps=0, epochs=1)
import itertools, resource, time
import numpy as np, torch, torch.nn.functional as F
torch.set_num_threads(args.threads)
import dgl, dgl.graphbolt as gb, dgl.nn as dglnn

fanouts = common.fanouts(args.fanouts)
indptr, indices = common.read(args.data, "indptr").astype(np.int64), common.read(args.data, "indices").astype(np.int64)
if args.model == "gcn":  # adds a self-loop to each node, as PyG's GCN does
    n_nodes = len(indptr) - 1
    indices = np.insert(indices, indptr[:-1], np.arange(n_nodes))
    indptr = indptr + np.arange(n_nodes + 1)
indptr, indices = torch.from_numpy(indptr), torch.from_numpy(indices)
x = torch.from_numpy(common.read(args.data, "features"))
y = torch.from_numpy(common.read(args.data, "labels").astype(np.int64))
if args.loader == "graphbolt":
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    store = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(x)})
else:
    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))))


def batches_of(split, shuffle):
    """Yields the blocks, the features of the input nodes and the labels of each batch of an epoch."""
    ids = torch.from_numpy(common.read(args.data, split + "_idx", split).astype(np.int64))
    if args.loader == "graphbolt":
        items = gb.ItemSampler(gb.ItemSet((ids, y[ids]), names=("seed_nodes", "labels")), args.batch, shuffle=shuffle)
        items = items.sample_neighbor(graph, fanouts).fetch_feature(store, node_feature_keys=["feat"])
        for batch in gb.DataLoader(items, num_workers=0):
            yield batch.blocks, batch.node_features["feat"], batch.labels
    else:
        sampler = dgl.dataloading.NeighborSampler(fanouts)
        loader = dgl.dataloading.DataLoader(graph, ids, sampler, batch_size=args.batch, shuffle=shuffle, num_workers=0)
        for inputs, seeds, blocks in loader:
            yield blocks, x[inputs], y[seeds]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [x.shape[1]] + [args.hidden] * (len(fanouts) - 1) + [int(y.max()) + 1]
        layer = (lambda i, o: dglnn.SAGEConv(i, o, "mean")) if args.model == "sage" else dglnn.GraphConv
        self.layers = torch.nn.ModuleList(layer(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, blocks, h):
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            h = layer(block, h) if i == 0 else layer(block, F.relu(h))
        return h


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=args.decay)
steps, first = [], None
n_steps = args.steps + 2 if args.steps else None
epochs = itertools.count() if args.steps else range(args.epochs)
batches = itertools.chain.from_iterable(batches_of("train", True) for _ in epochs)
start = time.perf_counter()
for blocks, features, labels in itertools.islice(batches, n_steps):
    loss = F.cross_entropy(model(blocks, features), labels)
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
        hits = [(model(blocks, x).argmax(1) == labels).float() for blocks, x, labels in batches_of("val", False)]
    common.report("accuracy", [torch.cat(hits).mean().item()], "share")
