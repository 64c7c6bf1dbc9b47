"""Measures an epoch of GIN on small graphs with DGL's GraphDataLoader. The model has two layers, each with an MLP of
two dense layers, ReLU, the sum over each graph and a dense layer to two classes. The features are one-hot degrees up to
64; the optimizer is Adam with a learning rate of 0.01, and a batch has 32 graphs."""
import common

args = common.arguments(__doc__, epochs=10, hidden=64, batch=32)
import warnings
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
warnings.filterwarnings("ignore")
torch.set_num_threads(args.threads)
import dgl
from dgl.dataloading import GraphDataLoader
from dgl.nn import GINConv

nodes, edges = common.read(args.data, "node_ptr"), common.read(args.data, "edge_ptr")
srcs, dsts = (torch.from_numpy(common.read(args.data, name).astype(np.int64)) for name in ("src", "dst"))
labels = common.read(args.data, "labels")
WIDTH = 65


def graph(i):
    of_graph = slice(edges[i], edges[i + 1])
    made = dgl.graph((srcs[of_graph], dsts[of_graph]), num_nodes=int(nodes[i + 1] - nodes[i]))
    made.ndata["x"] = F.one_hot(made.in_degrees().clamp(max=WIDTH - 1), WIDTH).float()
    return made, torch.tensor(int(labels[i]))


class Gin(nn.Module):
    def __init__(self):
        super().__init__()
        mlp = lambda width: nn.Sequential(nn.Linear(width, args.hidden), nn.ReLU(), nn.Linear(args.hidden, args.hidden))
        self.layers = nn.ModuleList(GINConv(mlp(width), "sum") for width in (WIDTH, args.hidden))
        self.head = nn.Linear(args.hidden, 2)

    def forward(self, graphs):
        h = graphs.ndata["x"]
        for layer in self.layers:
            h = F.relu(layer(graphs, h))
        with graphs.local_scope():
            graphs.ndata["h"] = h
            return self.head(dgl.sum_nodes(graphs, "h"))


train = [graph(i) for i in range(len(labels) * 4 // 5)]
loader = GraphDataLoader(train, batch_size=args.batch, shuffle=True, num_workers=0)
torch.manual_seed(0)
model = Gin()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def epoch():
    for graphs, classes in loader:
        loss = F.cross_entropy(model(graphs), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


epoch()
common.report("epoch", [common.timed(epoch)[0] * 1e3 for _ in range(args.epochs)], "ms")
