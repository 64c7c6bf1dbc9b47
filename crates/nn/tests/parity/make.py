"""Generates the test files in its folder: weights in the formats of PyG and DGL, and the outputs of models with
these weights on a small graph, computed in float64 with dense matrices from the papers' formulas.

    python make.py        needs numpy, writes graph.json and *.safetensors
"""

import json
import pathlib
import struct

import numpy as np

HERE = pathlib.Path(__file__).parent
N_NODES, D_IN, HIDDEN, N_CLASSES = 6, 5, 4, 3
# Node 0 is a hub, node 3 has a self-loop, node 5 has no edges. The graph is not symmetric.
EDGES = [(1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (0, 2), (1, 2), (3, 3), (2, 3), (3, 4)]
RNG = np.random.RandomState(7)


def draw(*shape):
    """Draws weights that are exact in float32."""
    return RNG.uniform(-1, 1, shape).astype(np.float32).astype(np.float64)


def write_safetensors(name, tensors):
    """Writes a safetensors file: eight bytes with the header's length, the header, the data."""
    header, data = {}, b""
    for key, value in tensors.items():
        raw = value.astype("<f4").tobytes(order="C")
        offsets = [len(data), len(data) + len(raw)]
        header[key] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (HERE / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def adjacency():
    """Returns the matrix with A[v, u] = 1 for each edge u -> v."""
    matrix = np.zeros((N_NODES, N_NODES))
    for src, dst in EDGES:
        matrix[dst, src] += 1
    return matrix


def relu(x):
    return np.maximum(x, 0)


def sage(x, layers):
    """Runs GraphSAGE: Hamilton, Ying and Leskovec 2017, algorithm 1, lines 4 and 5 with the mean, and a bias:
    h_v = W [x_v, mean x_u] + b, W = [W_self, W_neigh]. The mean of no rows is zero."""
    matrix = adjacency()
    degrees = matrix.sum(axis=1, keepdims=True)
    mean = np.divide(matrix, degrees, out=np.zeros_like(matrix), where=degrees > 0)
    for i, (w_self, w_neigh, bias) in enumerate(layers):
        x = np.concatenate([x, mean @ x], axis=1) @ np.concatenate([w_self, w_neigh], axis=0) + bias
        x = relu(x) if i + 1 < len(layers) else x
    return x


def gcn(x, layers):
    """Runs GCN: Kipf and Welling 2017, equation 2: h = D^-1/2 (A + I) D^-1/2 x W, and a bias. No second self-loop
    is added to a node that has one. D sums incoming edges."""
    matrix = adjacency()
    np.fill_diagonal(matrix, np.maximum(np.diag(matrix), 1))
    root = np.diag(1 / np.sqrt(matrix.sum(axis=1)))
    for i, (weight, bias) in enumerate(layers):
        x = root @ matrix @ root @ x @ weight + bias
        x = relu(x) if i + 1 < len(layers) else x
    return x


def main():
    x = draw(N_NODES, D_IN)
    widths = [(D_IN, HIDDEN), (HIDDEN, N_CLASSES)]
    outputs = {}

    layers = [(draw(d_in, d_out), draw(d_in, d_out), draw(d_out)) for d_in, d_out in widths]
    outputs["sage_pyg"] = sage(x, layers)
    tensors = {}
    for i, (w_self, w_neigh, bias) in enumerate(layers):
        tensors[f"convs.{i}.lin_l.weight"] = w_neigh.T
        tensors[f"convs.{i}.lin_l.bias"] = bias
        tensors[f"convs.{i}.lin_r.weight"] = w_self.T
    write_safetensors("sage_pyg.safetensors", tensors)

    layers = [(draw(d_in, d_out), draw(d_in, d_out), draw(d_out)) for d_in, d_out in widths]
    outputs["sage_dgl"] = sage(x, layers)
    tensors = {}
    for i, (w_self, w_neigh, bias) in enumerate(layers):
        tensors[f"module.layers.{i}.fc_neigh.weight"] = w_neigh.T
        tensors[f"module.layers.{i}.fc_self.weight"] = w_self.T
        tensors[f"module.layers.{i}.fc_self.bias"] = bias
    write_safetensors("sage_dgl.safetensors", tensors)

    layers = [(draw(d_in, d_out), draw(d_out)) for d_in, d_out in widths]
    outputs["gcn_pyg"] = gcn(x, layers)
    tensors = {}
    for i, (weight, bias) in enumerate(layers):
        tensors[f"conv{i + 1}.bias"] = bias
        tensors[f"conv{i + 1}.lin.weight"] = weight.T
    write_safetensors("gcn_pyg.safetensors", tensors)

    graph = {
        "n_nodes": N_NODES,
        "srcs": [src for src, _ in EDGES],
        "dsts": [dst for _, dst in EDGES],
        "widths": [D_IN, HIDDEN, N_CLASSES],
        "features": x.flatten().tolist(),
        "outputs": {name: output.flatten().round(9).tolist() for name, output in outputs.items()},
    }
    (HERE / "graph.json").write_text(json.dumps(graph, indent=1) + "\n")


main()
