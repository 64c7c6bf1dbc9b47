"""Generates the test files of attention layers and relations in its folder: weights of models of two layers in PyG and
DGL, and the outputs that these libraries compute with them in float64 on the graph of graph.json.

    python make_attention.py        writes attention.json and gat*.safetensors, rgcn*.safetensors, gine*.safetensors

needs torch, torch_geometric, dgl and safetensors (2.2.1, 2.8.1, 2.1.0 and 0.5 or later).
"""

import json
import pathlib

import dgl
import dgl.nn as dgl_nn
import torch
import torch_geometric.nn as pyg_nn
from safetensors.torch import save_file
from torch.nn.functional import elu, relu

HERE = pathlib.Path(__file__).parent
GRAPH = json.loads((HERE / "graph.json").read_text())
N_NODES = GRAPH["n_nodes"]
D_IN, HIDDEN, N_CLASSES = GRAPH["widths"]
SRCS, DSTS = torch.tensor(GRAPH["srcs"]), torch.tensor(GRAPH["dsts"])
X = torch.tensor(GRAPH["features"], dtype=torch.float64).reshape(N_NODES, D_IN)
# Two heads of half the hidden width are concatenated, and three heads of the output are averaged.
HEADS, D_HEAD, OUTPUT_HEADS = 2, HIDDEN // 2, 3
# Node 0 has two edges of type 0 and two of type 2. No edge has type 3.
EDGE_TYPES = torch.tensor([0, 0, 2, 2, 1, 0, 1, 2, 0, 1])
N_RELATIONS, N_BASES = 4, 2
# Numbers that float32 represents exactly.
D_EDGE = 3
EDGE_X = torch.arange(len(EDGE_TYPES) * D_EDGE, dtype=torch.float64).reshape(-1, D_EDGE) / 8 - 2


def gat_pyg(conv):
    layers = [
        conv(D_IN, D_HEAD, heads=HEADS),
        conv(HIDDEN, N_CLASSES, heads=OUTPUT_HEADS, concat=False),
    ]
    edges = torch.stack([SRCS, DSTS])
    return layers, lambda x: layers[1](elu(layers[0](x, edges)), edges)


def gat_dgl(conv):
    layers = [conv(D_IN, D_HEAD, HEADS), conv(HIDDEN, N_CLASSES, OUTPUT_HEADS)]
    graph = dgl.add_self_loop(dgl.remove_self_loop(dgl.graph((SRCS, DSTS), num_nodes=N_NODES)))
    return layers, lambda x: layers[1](graph, elu(layers[0](graph, x).flatten(1))).mean(1)


def rgcn_pyg(num_bases):
    layers = [
        pyg_nn.RGCNConv(d_in, d_out, N_RELATIONS, num_bases=num_bases)
        for d_in, d_out in [(D_IN, HIDDEN), (HIDDEN, N_CLASSES)]
    ]
    edges = torch.stack([SRCS, DSTS])
    return layers, lambda x: layers[1](relu(layers[0](x, edges, EDGE_TYPES)), edges, EDGE_TYPES)


def rgcn_dgl(regularizer, num_bases):
    layers = [
        dgl_nn.RelGraphConv(d_in, d_out, N_RELATIONS, regularizer, num_bases)
        for d_in, d_out in [(D_IN, HIDDEN), (HIDDEN, N_CLASSES)]
    ]
    graph = dgl.graph((SRCS, DSTS), num_nodes=N_NODES)
    same = (DSTS[:, None] == DSTS) & (EDGE_TYPES[:, None] == EDGE_TYPES)
    norm = 1 / same.sum(dim=1, keepdim=True).double()
    return layers, lambda x: layers[1](
        graph, relu(layers[0](graph, x, EDGE_TYPES, norm)), EDGE_TYPES, norm
    )


def mlp(d_in, d_out):
    return torch.nn.Sequential(torch.nn.Linear(d_in, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, d_out))


def gine_pyg():
    layers = [
        pyg_nn.GINEConv(mlp(d_in, d_out), train_eps=True, edge_dim=D_EDGE)
        for d_in, d_out in [(D_IN, HIDDEN), (HIDDEN, N_CLASSES)]
    ]
    edges = torch.stack([SRCS, DSTS])
    return layers, lambda x: layers[1](relu(layers[0](x, edges, EDGE_X)), edges, EDGE_X)


class Projected(dgl_nn.GINEConv):
    """DGL's layer has no linear layer of edges."""

    def __init__(self, d_in, d_out):
        super().__init__(mlp(d_in, d_out), learn_eps=True)
        self.lin = torch.nn.Linear(D_EDGE, d_in)

    def forward(self, graph, x):
        return super().forward(graph, x, self.lin(EDGE_X))


def gine_dgl():
    layers = [Projected(D_IN, HIDDEN), Projected(HIDDEN, N_CLASSES)]
    graph = dgl.graph((SRCS, DSTS), num_nodes=N_NODES)
    return layers, lambda x: layers[1](graph, relu(layers[0](graph, x)))


def write(models):
    """Draws weights, writes their files and returns the outputs."""
    outputs = {}
    for name, (layers, forward) in models.items():
        layers = torch.nn.ModuleDict({"convs": torch.nn.ModuleList(layers)})
        for parameter in layers.parameters():
            torch.nn.init.uniform_(parameter, -1, 1)
        save_file(layers.state_dict(), HERE / f"{name}.safetensors")
        # The weights are exact in float32.
        layers.double()
        outputs[name] = [round(value, 9) for value in forward(X).flatten().tolist()]
    return outputs


def main():
    torch.manual_seed(7)
    models = {
        "gat_pyg": gat_pyg(pyg_nn.GATConv),
        "gat_dgl": gat_dgl(dgl_nn.GATConv),
        "gatv2_pyg": gat_pyg(pyg_nn.GATv2Conv),
        "gatv2_dgl": gat_dgl(dgl_nn.GATv2Conv),
        "rgcn_pyg": rgcn_pyg(N_BASES),
        "rgcn_dgl": rgcn_dgl("basis", N_BASES),
        "rgcn_pyg_without_bases": rgcn_pyg(None),
        "rgcn_dgl_without_bases": rgcn_dgl(None, None),
    }
    outputs = write(models)
    # After the others, so that their weights do not depend on these layers.
    outputs |= write({"gine_pyg": gine_pyg(), "gine_dgl": gine_dgl()})
    expected = {
        "heads": [HEADS, OUTPUT_HEADS],
        "edge_types": EDGE_TYPES.tolist(),
        "n_relations": N_RELATIONS,
        "n_bases": N_BASES,
        "edge_features": EDGE_X.flatten().tolist(),
        "outputs": outputs,
    }
    (HERE / "attention.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
