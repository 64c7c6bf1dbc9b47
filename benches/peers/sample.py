"""Sampling and relabelling the blocks of batches, or gathering the rows of their input nodes.

--mode classic    dgl.dataloading.NeighborSampler.sample_blocks
--mode graphbolt  FusedCSCSamplingGraph.sample_neighbors and unique_and_compact, hop by hop
--mode rows       torch.index_select of the rows of the input nodes, into new memory and into the same memory
The rate of edges counts those of all blocks of a batch. Each hop samples neighbours of all nodes reached so far."""
import common

args = common.arguments(__doc__, mode="classic", fanouts="10,10,10", batches=16, rounds=3)
import torch
torch.set_num_threads(args.threads)
import dgl, dgl.graphbolt as gb

fanouts = common.fanouts(args.fanouts)
indptr = torch.from_numpy(common.read(args.data, "indptr"))
indices = torch.from_numpy(common.read(args.data, "indices")).to(torch.int64)
seeds = [torch.from_numpy(ids).to(torch.int64) for ids in common.batches(args.data, 1024, args.batches)]

if args.mode == "classic":
    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))))
    sampler = dgl.dataloading.NeighborSampler(fanouts)

    def sample(nodes):
        inputs, _, blocks = sampler.sample_blocks(graph, nodes)
        return sum(block.num_edges() for block in blocks), inputs
else:
    graph = gb.fused_csc_sampling_graph(indptr, indices)

    def sample(nodes):
        n_edges = 0
        for fanout in reversed(fanouts):
            picked = graph.sample_neighbors(nodes, torch.LongTensor([fanout]))
            nodes, csc = gb.unique_and_compact_csc_formats(picked.sampled_csc, nodes)
            n_edges += csc.indices.numel()
        return n_edges, nodes

if args.mode == "rows":
    features = torch.from_numpy(common.read(args.data, "features"))
    inputs = [sample(nodes)[1] for nodes in seeds[:4]]
    out = torch.empty(max(len(ids) for ids in inputs), features.shape[1])
    rates, rates_out, ms = [], [], []
    for ids in inputs * args.rounds:
        seconds, rows = common.timed(torch.index_select, features, 0, ids)
        rates.append(rows.shape[0] / seconds)
        ms.append(seconds * 1e3)
        into = out[:len(ids)]
        seconds, _ = common.timed(lambda: torch.index_select(features, 0, ids, out=into))
        rates_out.append(len(ids) / seconds)
    common.report("rows", rates, "rows/s")
    common.report("rows-out", rates_out, "rows/s")
else:
    sample(seeds[0])
    rates, ms = [], []
    for nodes in seeds * args.rounds:
        seconds, (n_edges, _) = common.timed(sample, nodes)
        rates.append(n_edges / seconds)
        ms.append(seconds * 1e3)
    common.report("edges", rates, "edges/s")
common.report("batch", ms, "ms")
