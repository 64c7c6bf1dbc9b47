"""Times training steps of PyG's GraphSAGE on batches that `kit batches` wrote, like `kit steps` does with kiln.

    python3 benches/gpu/pyg_steps.py BATCHES DATA [--compile] [--steps 50] [--hidden 256] [--device cuda|cpu]

BATCHES is the folder of the batches, and DATA that of the graph, whose `features.npy` has the input rows. The model has a
`SAGEConv` with mean aggregation per layer, and no dropout. A step is the forward and backward passes and Adam, on a batch
that is on the device with its input rows; sampling and gathering are not timed. The first ten steps, or half of fewer than 20,
are not timed, either.
The script prints one JSON object.
"""

import argparse
import json
import os
import time

import numpy
import torch
from torch_geometric.nn import SAGEConv

N_WARM_UP = 10


class Sage(torch.nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(d_in, d_out) for d_in, d_out in zip(widths, widths[1:]))

    def forward(self, x, edges, sizes):
        for number, (layer, edge_index, n_dst) in enumerate(zip(self.layers, edges, sizes)):
            x = layer((x, x[:n_dst]), edge_index)
            if number + 1 < len(self.layers):
                x = x.relu()
        return x


class Batch:
    """A batch on the device: input rows, edges and number of destinations of each layer, and classes."""

    def __init__(self, folder, n_layers, features, device):
        load = lambda name: numpy.load(os.path.join(folder, name + ".npy"))
        self.rows = torch.from_numpy(load("nodes").astype(numpy.int64)).to(device)
        self.x, self.edges, self.sizes = features[self.rows], [], []
        self.labels = torch.from_numpy(load("labels").astype(numpy.int64)).to(device)
        for layer in range(n_layers):
            indptr = torch.from_numpy(load(f"indptr-{layer}").astype(numpy.int64)).to(device)
            sources = torch.from_numpy(load(f"indices-{layer}").astype(numpy.int64)).to(device)
            n_dst = len(indptr) - 1
            dsts = torch.arange(n_dst, device=device).repeat_interleave(indptr.diff())
            self.edges.append(torch.stack([sources, dsts]))
            self.sizes.append(n_dst)


def main():
    args = parse()
    device = torch.device(args.device)
    with open(os.path.join(args.batches, "batches.json")) as file:
        shape = json.load(file)
    features = torch.from_numpy(numpy.load(os.path.join(args.data, "features.npy"))).to(device)
    n_batches = min(shape["batches"], args.steps)
    batches = [Batch(os.path.join(args.batches, f"batch-{number:03}"), shape["layers"], features, device)
               for number in range(n_batches)]
    torch.manual_seed(0)
    widths = [features.shape[1]] + [args.hidden] * (shape["layers"] - 1) + [shape["classes"]]
    model = Sage(widths).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    forward = torch.compile(model, dynamic=True, backend=args.backend) if args.compile else model

    def step(number):
        batch = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(forward(batch.x, batch.edges, batch.sizes), batch.labels)
        loss.backward()
        optimizer.step()
        return loss

    n_warm_up = min(N_WARM_UP, args.steps // 2)
    begun = time.perf_counter()
    for number in range(n_warm_up):
        step(number)
    wait(device)
    warm_up, started = time.perf_counter() - begun, time.perf_counter()
    n_timed = args.steps - n_warm_up
    for number in range(n_timed):
        loss = step(n_warm_up + number)
    wait(device)
    ms = (time.perf_counter() - started) * 1e3 / n_timed
    print(json.dumps({"library": "pyg", "compiled": args.compile, "device": args.device, "torch": torch.__version__,
                      "batches": n_batches, "steps": n_timed, "ms_per_step": ms, "warm_up_s": warm_up, "loss": loss.item()}))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches")
    parser.add_argument("data")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
