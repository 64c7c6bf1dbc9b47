"""Batches as DGL's blocks, and datasets of its graphs. DGL needs old versions of PyTorch and NumPy, so these tests have an environment
of their own: `pip install dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 "numpy<2" pandas pyyaml pydantic packaging pytest`.
"""

import dgl
import torch

import kiln


def homogeneous():
    torch.manual_seed(0)
    graph = dgl.graph((torch.randint(40, (200,)), torch.randint(40, (200,))), num_nodes=40)
    graph.ndata["feat"] = torch.randn(40, 3)
    graph.ndata["label"] = torch.randint(4, (40,))
    graph.ndata["train_mask"] = torch.arange(40) < 10
    graph.edata["weight"] = torch.rand(200)
    return graph


def heterogeneous():
    edges = {("user", "rates", "item"): (torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 0, 2])),
             ("item", "rated", "user"): (torch.tensor([0, 1, 0]), torch.tensor([0, 1, 2]))}
    graph = dgl.heterograph(edges, num_nodes_dict={"user": 3, "item": 3})
    graph.nodes["item"].data["feat"] = torch.eye(3)
    graph.nodes["item"].data["label"] = torch.tensor([0, 1, 1])
    return graph


def test_blocks_index_the_tensors_of_the_graph():
    graph = homogeneous()
    data = kiln.Dataset.from_dgl(graph)
    srcs, dsts = graph.edges(order="eid")
    loader = kiln.NeighborLoader(data, [3, 4], data.train, batch_size=4, output="dgl")
    for input_nodes, output_nodes, blocks in loader:
        outer, inner = blocks
        assert torch.equal(outer.srcdata["feat"], graph.ndata["feat"][input_nodes])
        assert torch.equal(inner.dstdata["label"], graph.ndata["label"][output_nodes])
        assert torch.equal(outer.dstdata[dgl.NID], inner.srcdata[dgl.NID])
        for block in blocks:
            block_srcs, block_dsts = block.edges()
            ids = block.edata[dgl.EID]
            assert torch.equal(block.srcdata[dgl.NID][block_srcs], srcs[ids])
            assert torch.equal(block.dstdata[dgl.NID][block_dsts], dsts[ids])
            assert torch.equal(block.edata["weight"], graph.edata["weight"][ids])


def test_a_layer_of_dgl_reads_a_block():
    data = kiln.Dataset.from_dgl(homogeneous())
    layers = [dgl.nn.SAGEConv(3, 8, "mean"), dgl.nn.SAGEConv(8, 4, "mean")]
    _, output_nodes, blocks = next(iter(kiln.NeighborLoader(data, [3, 4], batch_size=6, output="dgl")))
    rows = blocks[0].srcdata["feat"]
    for layer, block in zip(layers, blocks):
        rows = layer(block, rows)
    assert rows.shape == (len(output_nodes), 4)


def test_heterogeneous_blocks_index_the_tensors_of_the_graph():
    graph = heterogeneous()
    data = kiln.Dataset.from_dgl(graph)
    loader = kiln.NeighborLoader(data, [-1, -1], ("item", [0, 2]), batch_size=2, output="dgl")
    ((input_nodes, output_nodes, blocks),) = loader
    assert output_nodes["item"].tolist() == [0, 2]
    assert torch.equal(blocks[0].srcnodes["item"].data["feat"], torch.eye(3)[input_nodes["item"]])
    for block in blocks:
        assert block.canonical_etypes == graph.canonical_etypes or set(block.canonical_etypes) == set(graph.canonical_etypes)
    assert sorted(blocks[-1].edges["rates"].data[dgl.EID].tolist()) == [0, 2, 3]
