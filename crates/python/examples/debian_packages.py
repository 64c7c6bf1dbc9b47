"""PyG's GraphSAGE on the built-in set debian-packages, with kiln's loader.

The lines that a script with PyG's own loader has instead are in the comments. Run it after `pip install crates/python[pyg]`:

    python crates/python/examples/debian_packages.py --seed 0
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from kiln import Dataset, NeighborLoader  # from torch_geometric.loader import NeighborLoader


def predict(model: GraphSAGE, batch: Data) -> torch.Tensor:
    """Returns the scores of a batch's seeds. Each layer computes only the nodes that the next one reads."""
    hops = dict(num_sampled_nodes_per_hop=batch.num_sampled_nodes, num_sampled_edges_per_hop=batch.num_sampled_edges)
    return model(batch.x, batch.edge_index, **hops)[: batch.batch_size]


def evaluate(model: GraphSAGE, loader: NeighborLoader) -> float:
    """Returns the share of the loader's nodes whose class the model predicts."""
    model.eval()
    n_right = n_nodes = 0
    with torch.no_grad():
        for batch in loader:
            n_right += int((predict(model, batch).argmax(dim=1) == batch.y[: batch.batch_size]).sum())
            n_nodes += batch.batch_size
    return n_right / n_nodes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    data = Dataset.open("debian-packages")  # data = torch.load("debian-packages.pt")
    settings = dict(num_neighbors=[10, 10], batch_size=1024, seed=args.seed)  # without seed
    train = NeighborLoader(data, input_nodes=data.train, shuffle=True, **settings)  # input_nodes=data.train_mask
    val, test = (NeighborLoader(data, input_nodes=nodes, **settings) for nodes in (data.val, data.test))  # the masks

    model = GraphSAGE(data.num_features, 256, num_layers=2, out_channels=data.num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    best_val = best_test = 0.0
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for batch in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(predict(model, batch), batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        accuracy = evaluate(model, val)
        if best_val < accuracy:
            best_val, best_test = accuracy, evaluate(model, test)
        print(f"epoch {epoch}: loss {total / len(train):.4f}, validation accuracy {accuracy:.4f}")
    print(f"test accuracy {best_test:.4f}")


if __name__ == "__main__":
    main()
