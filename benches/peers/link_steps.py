#!/usr/bin/env python3
"""Measures training steps on links: GraphSAGE with means, the dot product, binary cross entropy, Adam, no dropout.

usage: link_steps.py DATA/depends [--mode classic|graphbolt|pyg] [--threads 2] ...      (the folder: links.py mrr)

A step has `--batch` links and one negative each: the source and a random destination. classic is `dgl.dataloading`,
graphbolt is `dgl.graphbolt`, and both exclude the links' edges and their reverses from the samples; pyg is
`LinkNeighborLoader`, which cannot, and needs torch-sparse or pyg-lib. Two steps of warm-up are not measured. On a
machine with other load, compare the CPU times of one thread (`link_step_cpu`).
"""
import common

args = common.arguments(__doc__, mode="classic", fanouts="10,10", hidden=256, out=128, batch=1024, steps=20)
import itertools, time
import numpy as np, torch, torch.nn.functional as F

torch.set_num_threads(args.threads)
torch.manual_seed(0)
fanouts = common.fanouts(args.fanouts)
indptr, indices = common.read(args.data, "indptr"), common.read(args.data, "indices").astype(np.int64)
n_nodes = len(indptr) - 1
dsts = np.repeat(np.arange(n_nodes), np.diff(indptr))
links = common.read(args.data, "train_edges")
x = torch.from_numpy(common.read(args.data, "features"))
widths = [x.shape[1]] + [args.hidden] * (len(fanouts) - 1) + [args.out]


def edge_ids():
    """Returns the edge of each link, and the reverse of each edge; parallel edges are matched in order."""
    of_links = np.searchsorted(dsts * n_nodes + indices, links[:, 1] * n_nodes + links[:, 0])
    reverse = np.empty(len(dsts), np.int64)
    reverse[np.lexsort((indices, dsts))] = np.lexsort((dsts, indices))
    return torch.from_numpy(of_links), torch.from_numpy(reverse)


def classic():
    """Yields the model's input, its blocks, and the rows and targets of the pairs."""
    import dgl
    graph = dgl.graph((torch.from_numpy(indices), torch.from_numpy(dsts)), num_nodes=n_nodes)
    of_links, reverse = edge_ids()
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler(fanouts), exclude="reverse_id", reverse_eids=reverse,
        negative_sampler=dgl.dataloading.negative_sampler.Uniform(1))
    loader = dgl.dataloading.DataLoader(graph, of_links, sampler, batch_size=args.batch, shuffle=True, drop_last=True)
    for inputs, positive, negative, blocks in loader:
        pairs = [torch.cat(ends) for ends in zip(positive.edges(), negative.edges())]
        targets = torch.cat([torch.ones(positive.num_edges()), torch.zeros(negative.num_edges())])
        yield x[inputs], blocks, pairs, targets


def graphbolt():
    import functools
    import dgl.graphbolt as gb
    graph = gb.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    store = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(x)})
    items = gb.ItemSampler(gb.ItemSet(torch.from_numpy(links), names="node_pairs"), args.batch, shuffle=True, drop_last=True)
    pipe = items.sample_uniform_negative(graph, 1).sample_neighbor(graph, fanouts)
    pipe = pipe.transform(functools.partial(gb.exclude_seed_edges, include_reverse_edges=True))
    for batch in gb.DataLoader(pipe.fetch_feature(store, node_feature_keys=["feat"]), num_workers=0):
        pairs, targets = batch.node_pairs_with_labels
        yield batch.node_features["feat"], batch.blocks, pairs, targets.float()


def pyg():
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader
    from torch_geometric.sampler import NegativeSampling
    data = Data(x=x, edge_index=torch.from_numpy(np.stack([indices, dsts])))
    loader = LinkNeighborLoader(
        data, fanouts[::-1], edge_label_index=torch.from_numpy(links.T.copy()), batch_size=args.batch, shuffle=True,
        drop_last=True, neg_sampling=NegativeSampling("binary", 1.0))
    for batch in loader:
        yield batch.x, [batch.edge_index] * len(fanouts), batch.edge_label_index, (0 < batch.edge_label).float()


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        if args.mode == "pyg":
            from torch_geometric.nn import SAGEConv
            self.layers = torch.nn.ModuleList(SAGEConv(i, o) for i, o in zip(widths, widths[1:]))
        else:
            import dgl.nn as dglnn
            self.layers = torch.nn.ModuleList(dglnn.SAGEConv(i, o, "mean") for i, o in zip(widths, widths[1:]))

    def forward(self, h, blocks):
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            h = layer(h, block) if args.mode == "pyg" else layer(block, h)
            if i + 1 < len(self.layers):
                h = F.relu(h)
        return h


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
batches = {"classic": classic, "graphbolt": graphbolt, "pyg": pyg}[args.mode]
steps, cpu, start, used = [], [], time.perf_counter(), time.process_time()
for inputs, blocks, (src, dst), targets in itertools.islice(batches(), args.steps + 2):
    rows = model(inputs, blocks)
    loss = F.binary_cross_entropy_with_logits((rows[src] * rows[dst]).sum(1), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    end = time.perf_counter()
    steps.append((end - start) * 1e3)
    cpu.append((time.process_time() - used) * 1e3)
    start, used = time.perf_counter(), time.process_time()
common.report("link_step " + args.mode, steps[2:], "ms")
common.report("link_step_cpu " + args.mode, cpu[2:], "ms")
