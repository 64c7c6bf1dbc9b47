#!/usr/bin/env python3
"""Writes outputs and gradients of layers of PyTorch Geometric on a small block, for the tests of kiln's layers.

usage: layer_values.py [FILE]      (default: crates/nn/tests/parity/layer_values.json)

Each case of the file has a layer's settings, a block, the inputs, the weights under PyG's names, the output, and the
gradients of the inputs and weights for the loss `sum(out * out_grad)`. Inputs and weights are random and exact in float32;
the layers run in float64, except where `dtype` is `float32`. Tensors are row-major, with 9 significant digits.

The destinations of the block are its first sources. The block has self-loops, parallel edges of the same type and of
different types, a destination without edges, a source without edges and an edge type without edges.
"""
import json, pathlib, sys
import numpy as np, torch, torch_geometric
from torch_geometric.nn import FastRGCNConv, GATConv, GATv2Conv, GINConv, GINEConv, RGCNConv, TransformerConv

DEFAULT = pathlib.Path(__file__).resolve().parents[2] / "crates/nn/tests/parity/layer_values.json"
# The sources of each destination's edges, with their types.
EDGES = [[(0, 0), (4, 0), (4, 0), (5, 2), (6, 2)], [(2, 0), (4, 0), (4, 2)], [], [(3, 2), (3, 2), (5, 2), (0, 2)]]
N_SRC, N_DST, N_TYPES = 7, len(EDGES), 3
D_IN, D_OUT, D_HIDDEN, D_EDGE = 5, 4, 6, 2
INDICES = [src for edges in EDGES for src, _ in edges]
TYPES = [edge_type for edges in EDGES for _, edge_type in edges]
INDPTR = [0, *np.cumsum([len(edges) for edges in EDGES]).tolist()]
TYPED = dict(d_in=D_IN, d_out=D_OUT, n_relations=N_TYPES, aggr="mean", root_weight=True, bias=True)
ATTENTION = dict(d_in=D_IN, d_out=D_OUT, heads=3, negative_slope=0.2, add_self_loops=False, bias=True)
TRANSFORMER = dict(d_in=D_IN, d_out=D_OUT, heads=3, bias=True)
GIN = dict(d_in=D_IN, d_hidden=D_HIDDEN, d_out=D_OUT, train_eps=True)


def rgcn(settings, layer=RGCNConv):
    keys = "num_bases", "aggr", "root_weight", "bias"
    return layer(D_IN, D_OUT, N_TYPES, **{key: settings[key] for key in keys})


def attention(layer):
    def build(settings):
        return layer(D_IN, D_OUT, **{key: value for key, value in settings.items() if key not in ("d_in", "d_out")})
    return build


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(D_IN, D_HIDDEN), torch.nn.ReLU(), torch.nn.Linear(D_HIDDEN, D_OUT))


def gin(settings):
    return GINConv(mlp(), train_eps=True)


def gine(settings):
    return GINEConv(mlp(), train_eps=True, edge_dim=settings["edge_dim"])


def d_edge(settings):
    """Returns the width of the edge features, or None if the layer reads none."""
    return settings["edge_dim"] or D_IN if "edge_dim" in settings else None


# The name, the type in PyG, the function that builds the layer, the settings, and the dtype of each case.
CASES = [
    ("rgcn", "RGCNConv", rgcn, dict(TYPED, num_bases=None), "float64"),
    ("rgcn_bases", "RGCNConv", rgcn, dict(TYPED, num_bases=2), "float64"),
    ("rgcn_bases_f32", "RGCNConv", rgcn, dict(TYPED, num_bases=2), "float32"),
    *(
        (f"gat_{heads}", "GATConv", attention(GATConv), dict(ATTENTION, concat=heads == "concat"), "float64")
        for heads in ("concat", "mean")
    ),
    *(
        (f"gatv2_{heads}{shared}", "GATv2Conv", attention(GATv2Conv),
         dict(ATTENTION, concat=heads == "concat", share_weights=shared == "_shared"), "float64")
        for heads in ("concat", "mean") for shared in ("", "_shared")
    ),
    ("gin", "GINConv", gin, GIN, "float64"),
    ("gine", "GINEConv", gine, dict(GIN, edge_dim=None), "float64"),
    ("gine_projected", "GINEConv", gine, dict(GIN, edge_dim=D_EDGE), "float64"),
    *(
        (f"transformer_{heads}{skip}", "TransformerConv", attention(TransformerConv),
         dict(TRANSFORMER, concat=heads == "concat", beta=skip == "_beta", root_weight=skip != "_no_root"), "float64")
        for heads in ("concat", "mean") for skip in ("", "_beta", "_no_root")
    ),
    *(
        (f"edge_gatv2_{heads}", "GATv2Conv", attention(GATv2Conv),
         dict(ATTENTION, concat=heads == "concat", share_weights=False, edge_dim=D_EDGE), "float64")
        for heads in ("concat", "mean")
    ),
    *(
        (f"edge_transformer_{heads}{skip}", "TransformerConv", attention(TransformerConv),
         dict(TRANSFORMER, concat=heads == "concat", beta=skip == "_beta", root_weight=True, edge_dim=D_EDGE), "float64")
        for heads in ("concat", "mean") for skip in ("", "_beta")
    ),
]


def draw(rng, shape):
    """Draws float32 numbers; 9 significant digits identify each of them."""
    return torch.from_numpy(rng.uniform(-1, 1, shape).astype(np.float32))


def run(layer, inputs, weights, out_grad, dtype):
    """Returns the output, and the gradients of the inputs and of the weights that the layer reads."""
    inputs = {name: value.to(dtype, copy=True).requires_grad_() for name, value in inputs.items()}
    layer.to(dtype)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(weights[name])
    edges = torch.tensor([INDICES, np.repeat(range(N_DST), np.diff(INDPTR)).tolist()])
    extra = [torch.tensor(TYPES)] if isinstance(layer, RGCNConv) else [inputs[name] for name in inputs if name != "x"]
    out = layer((inputs["x"], inputs["x"][:N_DST]), edges, *extra)
    assert out.dtype == dtype
    (out * out_grad).sum().backward()
    tensors = {**inputs, **dict(layer.named_parameters())}
    return out.detach(), {name: value.grad for name, value in tensors.items() if value.grad is not None}


def check_same(one, two, tolerance):
    for a, b in zip((one[0], *one[1].values()), (two[0], *two[1].values())):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def case(name, layer_type, build, settings, dtype):
    # Cases that differ in the dtype only have the same inputs and weights.
    rng = np.random.default_rng(list(name.removesuffix("_f32").encode()))
    inputs = {"x": draw(rng, (N_SRC, D_IN))}
    if d_edge(settings) is not None:
        inputs["edge_attr"] = draw(rng, (len(INDICES), d_edge(settings)))
    layer = build(settings)
    weights = {name: draw(rng, parameter.shape) for name, parameter in layer.named_parameters()}
    width = D_OUT * settings["heads"] if settings.get("concat") else D_OUT
    out_grad = draw(rng, (N_DST, width))
    out, grads = run(layer, inputs, weights, out_grad, getattr(torch, dtype))
    # In float32 the results are close: no ReLU has an input that rounding moves to its other side.
    check_same((out, grads), run(build(settings), inputs, weights, out_grad, torch.float32), 1e-5)
    if layer_type == "RGCNConv":
        check_same((out, grads), run(rgcn(settings, FastRGCNConv), inputs, weights, out_grad, out.dtype), 1e-5)
    block = dict(n_src=N_SRC, n_dst=N_DST, indptr=INDPTR, indices=INDICES, edge_types=TYPES)
    return dict(name=name, layer=layer_type, settings=settings, dtype=dtype, block=block, inputs=inputs, weights=weights,
                out_grad=out_grad, out=out, grads=grads)


def write(value, indent=0):
    """Returns JSON with one list or tensor per line."""
    if isinstance(value, torch.Tensor):
        numbers = [float(f"{number:.9g}") + 0.0 for number in value.double().flatten().tolist()]
        return json.dumps(dict(shape=list(value.shape), values=numbers))
    pad = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        lines = (f"{pad}{json.dumps(key)}: {write(entry, indent + 1)}" for key, entry in value.items())
        return "{" + ",".join(lines) + pad[:-1] + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[" + ",".join(pad + write(entry, indent + 1) for entry in value) + pad[:-1] + "]"
    return json.dumps(value)


versions = dict(torch=torch.__version__.split("+")[0], torch_geometric=torch_geometric.__version__)
text = write(dict(versions=versions, cases=[case(*entry) for entry in CASES]))
path = pathlib.Path(sys.argv[1]) if 1 < len(sys.argv) else DEFAULT
path.write_text(text + "\n")
print(f"{path.name}: {len(CASES)} cases, {len(text)} bytes")
