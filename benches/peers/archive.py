"""The heterogeneous dataset `debian-archive` and R-SAGE of PyG and DGL, for the scripts that train on it."""
import pathlib
import numpy as np, torch, yaml


class Archive:
    """The folder that debian.py writes."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
        self.n_nodes = {nodes["type"]: nodes["num"] for nodes in metadata["graph"]["nodes"]}
        # The edges of each relation, sources first. The key is the types of the ends and the name, which PyG wants without
        # hyphens.
        self.edges = {tuple(edges["type"].replace("-", "_").split(":")): torch.from_numpy(np.load(folder / edges["path"]))
                      for edges in metadata["graph"]["edges"]}
        self.x = torch.from_numpy(np.load(folder / "features.npy"))
        self.n_classes = metadata["tasks"][0]["num_classes"]
        self.labels = torch.full((self.n_nodes["source"],), -1)
        self.split = {}
        for part in ("train", "validation", "test"):
            seeds, labels = (torch.from_numpy(np.load(folder / f"{part}_{name}.npy")) for name in ("seeds", "labels"))
            self.labels[seeds], self.split[part] = labels, seeds


class Inputs(torch.nn.Module):
    """The input rows of all types: a linear layer of the features of `package`, and a trainable row for each node of the
    other types. Their initial distribution is that of PyTorch, normal with deviation 1, or that of kiln, uniform within
    1 / sqrt(hidden). With `mean_of_learned`, a node whose row was in no step has the mean of the other rows in evaluations,
    as in kiln."""

    def __init__(self, archive, hidden, init, mean_of_learned=False):
        super().__init__()
        self.linear = torch.nn.Linear(archive.x.shape[1], hidden)
        embedded = [name for name in archive.n_nodes if name != "package"]
        self.tables = torch.nn.ModuleDict(
            {name: torch.nn.Embedding(archive.n_nodes[name], hidden, sparse=True) for name in embedded})
        self.mean_of_learned = mean_of_learned
        for name in embedded:
            self.register_buffer("is_learned_" + name, torch.zeros(archive.n_nodes[name], dtype=torch.bool))
        if init == "kiln":
            for table in self.tables.values():
                torch.nn.init.uniform_(table.weight, -hidden ** -0.5, hidden ** -0.5)

    def rows(self, name, nodes):
        table, is_learned = self.tables[name], self.get_buffer("is_learned_" + name)
        if self.training:
            is_learned[nodes] = True
        elif self.mean_of_learned:
            return torch.where(is_learned[nodes, None], table(nodes), table.weight[is_learned].mean(0))
        return table(nodes)

    def forward(self, x, nodes):
        return {"package": self.linear(x), **{name: self.rows(name, nodes[name]) for name in self.tables}}


class Optimizers:
    """SparseAdam for trainable rows, and Adam for the other weights."""

    def __init__(self, inputs, model, lr):
        dense = list(inputs.linear.parameters()) + list(model.parameters())
        self.both = torch.optim.Adam(dense, lr=lr), torch.optim.SparseAdam(list(inputs.tables.parameters()), lr=lr)

    def step(self, loss):
        for optimizer in self.both:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.both:
            optimizer.step()


def widths(archive, hidden, n_layers):
    outputs = [hidden] * (n_layers - 1) + [archive.n_classes]
    return list(zip([hidden] + outputs, outputs))


def pyg_model(archive, hidden, n_layers, dropout, init="pyg", own="relation"):
    """Returns `to_hetero` of GraphSAGE with means, summed over relations. kiln and DGL draw larger initial weights. A layer
    has a matrix of the own row for each relation, or with `own="type"` for each node type, as in kiln."""
    from torch_geometric.nn import Linear, SAGEConv, to_hetero

    class Sage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            pairs = widths(archive, hidden, n_layers)
            self.layers = torch.nn.ModuleList(SAGEConv(*pair, root_weight=own == "relation") for pair in pairs)
            self.own = torch.nn.ModuleList(Linear(*pair, bias=False) for pair in pairs) if own == "type" else None
            # Tracing stores `training` as a constant, except in modules.
            self.dropouts = torch.nn.ModuleList(torch.nn.Dropout(dropout) for _ in self.layers[1:])

        def forward(self, x, edge_index):
            for i, layer in enumerate(self.layers):
                x = layer(x, edge_index) if self.own is None else layer(x, edge_index) + self.own[i](x)
                if i + 1 < len(self.layers):
                    x = self.dropouts[i](x.relu())
            return x

    model = to_hetero(Sage(), (list(archive.n_nodes), list(archive.edges)), aggr="sum")
    if init == "kiln":
        for layer in (module for module in model.modules() if isinstance(module, Linear)):
            torch.nn.init.xavier_uniform_(layer.weight, torch.nn.init.calculate_gain("relu"))
            if layer.bias is not None:
                torch.nn.init.zeros_(layer.bias)
    return model


def pyg_loader(archive, part, fanouts, batch, workers=0):
    """Returns a loader of PyG, which needs torch-sparse or pyg-lib. The training set is shuffled."""
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import NeighborLoader
    data = HeteroData()
    for name, number in archive.n_nodes.items():
        data[name].num_nodes = number
    data["package"].x, data["source"].y = archive.x, archive.labels
    for relation, edges in archive.edges.items():
        data[relation].edge_index = edges
    return NeighborLoader(data, fanouts[::-1], ("source", archive.split[part]), batch_size=batch, shuffle=part == "train",
                          num_workers=workers, persistent_workers=0 < workers)


def pyg_scores(inputs, model, batch):
    """Returns the outputs of the seeds of a batch of `pyg_loader`, and their labels."""
    nodes = {name: batch[name].n_id for name in batch.node_types}
    rows = model(inputs(batch["package"].x, nodes), batch.edge_index_dict)["source"]
    n_seeds = batch["source"].batch_size
    return rows[:n_seeds], batch["source"].y[:n_seeds]


def dgl_model(archive, hidden, n_layers, dropout):
    """Returns `HeteroGraphConv` of `SAGEConv` with means, summed over relations, on DGL's blocks."""
    from dgl.nn import HeteroGraphConv, SAGEConv

    class Sage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            names = [name for _, name, _ in archive.edges]
            self.layers = torch.nn.ModuleList(
                HeteroGraphConv({name: SAGEConv(*pair, "mean") for name in names}, "sum")
                for pair in widths(archive, hidden, n_layers))
            self.dropout = torch.nn.Dropout(dropout)

        def forward(self, blocks, rows):
            for i, (layer, block) in enumerate(zip(self.layers, blocks)):
                rows = layer(block, rows)
                if i + 1 < len(self.layers):
                    rows = {name: self.dropout(of_type.relu()) for name, of_type in rows.items()}
            return rows["source"]

    return Sage()


def graphbolt_loader(archive, fanouts, batch, workers=0):
    """Returns a loader of GraphBolt over the training set, with a fanout for each relation."""
    import dgl, dgl.graphbolt as gb
    edges = {relation: tuple(edges) for relation, edges in archive.edges.items()}
    graph = gb.from_dglgraph(dgl.heterograph(edges, archive.n_nodes), is_homogeneous=False)
    store = gb.BasicFeatureStore({("node", "package", "feat"): gb.TorchBasedFeature(archive.x)})
    seeds = archive.split["train"]
    items = gb.ItemSetDict({"source": gb.ItemSet((seeds, archive.labels[seeds]), names=("seed_nodes", "labels"))})
    pipe = gb.ItemSampler(items, batch, shuffle=True).sample_neighbor(graph, [torch.full((len(edges),), n) for n in fanouts])
    return gb.DataLoader(pipe.fetch_feature(store, {"package": ["feat"]}), num_workers=workers)
