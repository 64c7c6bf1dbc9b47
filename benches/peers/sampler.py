"""A neighbour sampler for the scripts that train with PyTorch Geometric, whose own sampler has no wheel on PyPI."""
import numpy as np, torch


class Sampler:
    """Draws neighbours uniformly without replacement, as kiln and PyG's `NeighborLoader` do. `fanouts` begin at the input
    layer."""

    def __init__(self, indptr, indices, fanouts, rng):
        self.indptr, self.indices, self.fanouts, self.rng = indptr, indices, fanouts, rng
        self.n_nodes = len(indptr) - 1
        self.dsts = np.repeat(np.arange(self.n_nodes), np.diff(indptr))
        self.position = np.empty(self.n_nodes, np.int64)

    def pairs(self, src, dst):
        """Returns a number for each pair of nodes, the same for both directions."""
        return np.minimum(src, dst) * self.n_nodes + np.maximum(src, dst)

    def hop(self, nodes, fanout, excluded):
        """Returns edges to at most `fanout` neighbours of each node, as sources and positions in `nodes`."""
        degrees = self.indptr[nodes + 1] - self.indptr[nodes]
        dst = np.repeat(np.arange(len(nodes)), degrees)
        edge = np.arange(len(dst)) + np.repeat(self.indptr[nodes] - np.cumsum(degrees) + degrees, degrees)
        if excluded is not None:
            keep = ~np.isin(self.pairs(self.indices[edge], nodes[dst]), excluded)
            dst, edge = dst[keep], edge[keep]
        order = np.lexsort((self.rng.random(len(dst)), dst))
        dst, edge = dst[order], edge[order]
        first = np.searchsorted(dst, np.arange(len(nodes)))
        chosen = np.arange(len(dst)) - first[dst] < fanout
        return self.indices[edge[chosen]], dst[chosen]

    def sample(self, seeds, excluded=None):
        """Returns the input nodes and the blocks of distinct seeds, input layer first. A block is its edges and its number
        of destinations, which are its first sources. The pairs `excluded` have no edges in either direction."""
        nodes, blocks = seeds, []
        for fanout in reversed(self.fanouts):
            src, dst = self.hop(nodes, fanout, excluded)
            self.position.fill(-1)
            self.position[nodes] = np.arange(len(nodes))
            new = np.unique(src[self.position[src] < 0])
            self.position[new] = len(nodes) + np.arange(len(new))
            edges = np.stack([self.position[src], dst])
            blocks.insert(0, (torch.from_numpy(edges), len(nodes)))
            nodes = np.concatenate([nodes, new])
        return nodes, blocks

    def whole(self):
        """Returns the blocks of all nodes with all neighbours."""
        edges = torch.from_numpy(np.stack([self.indices, self.dsts]))
        return [(edges, self.n_nodes)] * len(self.fanouts)


def run_layers(layers, h, blocks, between):
    """Applies layers such as `SAGEConv` to blocks, and `between` after each but the last."""
    for i, (layer, (edges, n_dst)) in enumerate(zip(layers, blocks)):
        h = layer((h, h[:n_dst]), edges)
        if i + 1 < len(layers):
            h = between(h)
    return h
