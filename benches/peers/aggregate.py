"""Measures the mean of neighbours over the largest block of a batch, forward and backward. Each iteration uses a new
block, as in training, so that the time of the backward pass includes sorting the edges by source."""
import common

args = common.arguments(__doc__, fanouts="15,10,5", dim=128, rounds=9)
import torch
torch.set_num_threads(args.threads)
import dgl, dgl.function as fn, dgl.graphbolt as gb

indptr = torch.from_numpy(common.read(args.data, "indptr"))
graph = gb.fused_csc_sampling_graph(indptr, torch.from_numpy(common.read(args.data, "indices")).to(torch.int64))
nodes = torch.from_numpy(common.batches(args.data, 1024, 1)[0]).to(torch.int64)
for fanout in reversed(common.fanouts(args.fanouts)):
    n_dst = nodes.numel()
    picked = graph.sample_neighbors(nodes, torch.LongTensor([fanout]))
    nodes, csc = gb.unique_and_compact_csc_formats(picked.sampled_csc, nodes)
n_src, no_ids = nodes.numel(), torch.empty(0, dtype=torch.int64)
x = torch.randn(n_src, args.dim, requires_grad=True)
gradient = torch.randn(n_dst, args.dim)


def mean(block):
    block.srcdata["x"] = x
    block.update_all(fn.copy_u("x", "m"), fn.mean("m", "y"))
    return block.dstdata["y"]


forward, backward = [], []
for i in range(args.rounds + 1):
    block = dgl.create_block(("csc", (csc.indptr, csc.indices, no_ids)), num_src_nodes=n_src, num_dst_nodes=n_dst)
    x.grad = None
    seconds, y = common.timed(mean, block)
    backward_seconds, _ = common.timed(y.backward, gradient)
    if 0 < i:
        forward.append(seconds * 1e3)
        backward.append(backward_seconds * 1e3)
common.report("forward", forward, "ms")
common.report("backward", backward, "ms")
