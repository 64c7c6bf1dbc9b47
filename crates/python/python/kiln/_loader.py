"""Loaders of minibatches with sampled neighbourhoods."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _arrays, _kiln
from ._arrays import Array
from ._dataset import Dataset, EdgeType

# The largest number of neighbours of a node, and of the negatives of a batch, for which memory is reserved.
_MOST_ENDS = 2**24

_OUTPUTS = ("auto", "pyg", "dgl", "numpy", "blocks")


class Batch(dict[str, Any]):
    """The arrays of a batch by name, which are attributes, too. The arrays of a heterogeneous graph are dictionaries by node type or
    edge type.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class _Loader:
    """What the loaders of nodes and of links have in common."""

    _data: Dataset
    _loader: Any

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        *,
        batch_size: int,
        shuffle: bool,
        replace: bool,
        drop_last: bool,
        seed: int,
        num_workers: int,
        rank: int,
        world_size: int,
        uneven: str,
        phase: str,
        subgraph_type: str,
        disjoint: bool,
        transform: Callable[[Any], Any] | None,
        output: str,
        queue_bytes: int,
    ) -> None:
        self._data = data if isinstance(data, Dataset) else Dataset.from_pyg(data)
        if getattr(subgraph_type, "value", subgraph_type) != "directional":
            raise ValueError(f'subgraph_type is {subgraph_type!r}, but kiln samples "directional" subgraphs only')
        if _flag(disjoint, "disjoint"):
            raise ValueError("disjoint subgraphs are not possible: the trees of a batch share their nodes")
        if transform is not None and not callable(transform):
            raise TypeError("transform: expected a function of a batch")
        if output not in _OUTPUTS:
            raise ValueError(f"output is {output!r}, expected one of {', '.join(_OUTPUTS)}")
        if output == "auto":
            output = "pyg" if importlib.util.find_spec("torch_geometric") else "numpy"
        if output in ("pyg", "dgl"):
            _require("torch_geometric" if output == "pyg" else "dgl", output)
        if phase != "train" and shuffle:
            raise ValueError('shuffle: batches of phase "validation" or "test" are not shuffled')
        fanouts = _fanouts(num_neighbors, self._data.edge_types)
        self.output = output
        self._transform = transform
        self._settings: dict[str, Any] = {
            # PyG's first number is the hop from the seeds, which is kiln's last layer.
            "fanouts": fanouts[::-1],
            "replace": _flag(replace, "replace"),
            "subgraph": output in ("pyg", "numpy"),
            "batch_size": _number(batch_size, "batch_size", 1),
            "shuffle": _flag(shuffle, "shuffle"),
            "drop_last": _flag(drop_last, "drop_last"),
            "uneven": _text(uneven, "uneven"),
            "phase": _text(phase, "phase"),
            "seed": _number(seed, "seed", 0, 2**64 - 1),
            "rank": _number(rank, "rank", 0),
            "world_size": _number(world_size, "world_size", 1),
            "num_workers": _number(num_workers, "num_workers", 0),
            "queue_bytes": _number(queue_bytes, "queue_bytes", 0),
        }
        self._next_epoch = 0
        self._position = (0, 0)
        self._resumes = False

    @property
    def data(self) -> Dataset:
        """The dataset of the batches."""
        return self._data

    def __len__(self) -> int:
        """The number of batches of this rank in an epoch, which is the same on all ranks."""
        return int(self._loader.n_steps())

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which determines its order and its samples. Without it, epochs count from 0. The epoch of
        a loaded state continues at the step of the state.
        """
        self._next_epoch = _number(epoch, "epoch", 0, 2**32 - 1)
        if epoch != self._position[0]:
            self._resumes = False
        if not self._resumes:
            self._position = (self._next_epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last batch that was taken, for an exact resume with `load_state_dict`."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, "settings": self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Lets the next iteration continue at the position of a state. The settings that determine batches must be the same; the
        number of ranks may differ if the batches of all ranks together have the same size.
        """
        if not isinstance(state, Mapping) or not {"epoch", "step", "settings"} <= set(state):
            raise ValueError("the state is not one of state_dict()")
        own = self._identity()
        other = dict(state["settings"])
        different = [key for key in own if own[key] != other.get(key)]
        if different:
            values = ", ".join(f"{key} {other.get(key)!r} instead of {own[key]!r}" for key in different)
            raise ValueError(f"the state is that of a loader with other settings: {values}")
        epoch = _number(state["epoch"], "epoch", 0, 2**32 - 1)
        self._position = (epoch, _number(state["step"], "step", 0))
        self._resumes = True

    def __iter__(self) -> Iterator[Any]:
        epoch, step = self._position if self._resumes else (self._next_epoch, 0)
        batches = self._loader.epoch(epoch, step)
        self._resumes = False
        self._next_epoch = epoch + 1
        self._position = (epoch, step)
        return self._iterate(batches, epoch, step)

    def _iterate(self, batches: Any, epoch: int, step: int) -> Iterator[Any]:
        n_steps = len(self)
        for arrays in batches:
            step += 1
            self._position = (epoch, step) if step < n_steps else (epoch + 1, 0)
            batch = self._convert(arrays)
            yield batch if self._transform is None else self._transform(batch)

    def _identity(self) -> dict[str, Any]:
        free = {"rank", "world_size", "batch_size", "num_workers", "queue_bytes"}
        settings = {key: value for key, value in self._settings.items() if key not in free}
        global_size = self._settings["batch_size"] * self._settings["world_size"]
        return {**settings, "global_batch_size": global_size, "data": repr(self._data), "items": self._hash_of_items}

    def _convert(self, arrays: dict[str, Any]) -> Any:
        output = self.output
        for graph in arrays["graphs"]:
            for values in graph["nodes"].values():
                if "y" in values:
                    values["y"] = self._data._y_as_given(values["y"])
            for edge_type, values in graph["edges"].items():
                self._data._edges_as_given(edge_type, values)
        if output == "pyg":
            return self._to_pyg(arrays)
        if output == "numpy":
            (graph,) = arrays["graphs"]
            return Batch(**self._flat(graph), **self._of_items(arrays))
        if output == "dgl":
            return self._to_dgl(arrays)
        blocks = [self._flat(graph) for graph in arrays["graphs"]]
        x, y = blocks[0].pop("x", None), blocks[-1].pop("y", None)
        of_rows = {key: value for key, value in (("x", x), ("y", y)) if value is not None}
        return Batch(blocks=[Batch(**block) for block in blocks], **of_rows, **self._of_items(arrays))

    def _of_items(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Returns what belongs to the items of a batch."""
        return {key: arrays[key] for key in ("input_id", "seed_index", "batch_size")}

    def _flat(self, graph: dict[str, Any]) -> dict[str, Any]:
        """Returns the arrays of a graph by name, and those of a heterogeneous graph by name and type."""
        self._widen(graph)
        if not self._data.is_heterogeneous:
            (nodes,) = graph["nodes"].values()
            (edges,) = graph["edges"].values()
            return {**nodes, **edges}
        flat: dict[str, Any] = {}
        for part in ("nodes", "edges"):
            for type_name, values in graph[part].items():
                for key, array in values.items():
                    flat.setdefault(key, {})[type_name] = array
        return flat

    def _widen(self, graph: dict[str, Any]) -> None:
        """Replaces the bits of bfloat16, which NumPy does not have, by the numbers as float32."""
        for part, dtypes in (("nodes", self._node_dtypes()), ("edges", self._edge_dtypes())):
            for type_name, values in graph[part].items():
                for key, dtype in dtypes[type_name].items():
                    if dtype == "bf16" and key in values:
                        values[key] = (values[key].astype(np.uint32) << 16).view(np.float32)

    def _node_dtypes(self) -> dict[Any, dict[str, Any]]:
        data = self._data._data
        return {name: {"x": dtype} for name, dtype in zip(data.node_types, data.dtypes)}

    def _edge_dtypes(self) -> dict[Any, dict[str, Any]]:
        return {e: self._data._data.column_dtypes(i) for i, e in enumerate(self._data.edge_types)}

    def _tensors(self, values: dict[str, Any], dtypes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arrays as tensors of PyTorch, without copies."""
        import torch

        tensors = {}
        for key, value in values.items():
            if not isinstance(value, np.ndarray):
                tensors[key] = value
                continue
            tensor = torch.from_numpy(value)
            tensors[key] = tensor.view(torch.bfloat16) if dtypes.get(key) == "bf16" else tensor
        return tensors

    def _to_pyg(self, arrays: dict[str, Any]) -> Any:
        from torch_geometric.data import Data, HeteroData  # type: ignore[import-untyped, import-not-found, unused-ignore]

        (graph,) = arrays["graphs"]
        node_dtypes, edge_dtypes = self._node_dtypes(), self._edge_dtypes()
        nodes = {t: self._tensors(values, node_dtypes[t]) for t, values in graph["nodes"].items()}
        edges = {e: self._tensors(values, edge_dtypes[e]) for e, values in graph["edges"].items()}
        if not self._data.is_heterogeneous:
            (of_nodes,) = nodes.values()
            (of_edges,) = edges.values()
            data = Data(**of_nodes, **of_edges)
            data.num_nodes = len(of_nodes["n_id"])
            self._add_items(data, data, data, arrays)
            return data
        hetero = HeteroData()
        for node_type, values in nodes.items():
            store = hetero[node_type]
            for key, value in values.items():
                store[key] = value
            store["num_nodes"] = len(values["n_id"])
        for edge_type, values in edges.items():
            store = hetero[edge_type]
            for key, value in values.items():
                store[key] = value
        self._add_items(hetero, *self._item_stores(hetero), arrays)
        return hetero

    def _item_stores(self, hetero: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def _add_items(self, batch: Any, of_items: Any, of_links: Any, arrays: dict[str, Any]) -> None:
        raise NotImplementedError

    def _to_dgl(self, arrays: dict[str, Any]) -> Any:
        import dgl  # type: ignore[import-untyped, import-not-found, unused-ignore]
        import torch

        blocks = []
        for graph in arrays["graphs"]:
            of_nodes = graph["nodes"]
            n_src = {t: len(values["n_id"]) for t, values in of_nodes.items()}
            n_dst = {t: values["num_sampled_nodes"][0] for t, values in of_nodes.items()}
            edges = {e: tuple(torch.from_numpy(v["edge_index"])) for e, v in graph["edges"].items()}
            block = dgl.create_block(edges, num_src_nodes=n_src, num_dst_nodes=n_dst)
            dtypes = self._edge_dtypes()
            for e, values in graph["edges"].items():
                columns = self._tensors(values, dtypes[e])
                block.edges[e].data[dgl.EID] = columns["e_id"]
                for key in columns.keys() - {"edge_index", "e_id", "num_sampled_edges"}:
                    block.edges[e].data[key.removeprefix("edge_")] = columns[key]
            for t, values in of_nodes.items():
                columns = self._tensors(values, self._node_dtypes()[t])
                block.srcnodes[t].data[dgl.NID] = columns["n_id"]
                block.dstnodes[t].data[dgl.NID] = columns["n_id"][: n_dst[t]]
                if "x" in columns:
                    block.srcnodes[t].data["feat"] = columns["x"]
                if "y" in columns:
                    block.dstnodes[t].data["label"] = columns["y"]
            blocks.append(block)
        ends = (blocks[0].srcdata[dgl.NID], blocks[-1].dstdata[dgl.NID])
        return (*ends, blocks)


class NeighborLoader(_Loader):
    """Minibatches of nodes with sampled neighbourhoods, with the arguments of PyG's `NeighborLoader`.

    Iterating over it returns the batches of an epoch, which threads of Rust prefetch. `num_workers` is their number, at least 0; it
    does not change the batches, which depend on the seed, the epoch and the step only. With `rank` and `world_size`, each rank gets
    its share of the nodes of each step: N ranks with batches of B nodes see the nodes and the neighbours of one rank with batches
    of N * B. A batch is the same as that of kiln's loader in Rust.

    Arguments:
        data: a `Dataset`, or PyG's `Data` or `HeteroData`, which `Dataset.from_pyg` converts.
        num_neighbors: the neighbours of each node in each hop, the hop from the seeds first (PyG's order); -1 is all. A dictionary
            by edge type for relations with different numbers.
        input_nodes: ids or a mask; all nodes by default. Of a heterogeneous graph, the name of a node type, or a pair of the name
            and ids or a mask.
        uneven: what happens to a last step whose nodes are no multiple of the number of ranks: "pad" repeats nodes (PyTorch's
            DistributedSampler), "drop" leaves nodes out, "join" gives ranks unequal shares.
        phase: "train"; "validation" or "test" have the same samples in each epoch, those of kiln's evaluations.
        output: "pyg" for `Data` or `HeteroData`, "dgl" for `(input_nodes, output_nodes, blocks)`, "numpy" for a `Batch` like "pyg",
            "blocks" for a `Batch` with a block per layer, input layer first. "auto" is "pyg" if PyG is installed, else "numpy".
        transform: a function that is applied to each batch.

    "pyg" and "numpy" sample subgraphs as PyG does: the neighbours of each node once, in the hop after the one that adds it. "dgl" and
    "blocks" sample as DGL does: in each layer, the neighbours of all nodes.

    Attributes of a batch: `n_id` `[n]` (the nodes, the seeds first), `e_id` `[m]`, `edge_index` `[2, m]`, `x` `[n, dim]`, `y` `[n]`,
    `edge_weight`, `edge_attr`, `batch_size` (the number of distinct seeds), `input_id` (positions in `input_nodes`), `seed_index`
    (the row of each input), `num_sampled_nodes` and `num_sampled_edges` per hop.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        input_nodes: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        replace: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        num_workers: int = 1,
        rank: int = 0,
        world_size: int = 1,
        uneven: str = "pad",
        phase: str = "train",
        subgraph_type: str = "directional",
        disjoint: bool = False,
        transform: Callable[[Any], Any] | None = None,
        output: str = "auto",
        queue_bytes: int = 256 << 20,
    ) -> None:
        super().__init__(
            data,
            num_neighbors,
            batch_size=batch_size,
            shuffle=shuffle,
            replace=replace,
            drop_last=drop_last,
            seed=seed,
            num_workers=num_workers,
            rank=rank,
            world_size=world_size,
            uneven=uneven,
            phase=phase,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            transform=transform,
            output=output,
            queue_bytes=queue_bytes,
        )
        node_type, nodes = _input_nodes(self._data, input_nodes)
        self._node_type = node_type
        self._hash_of_items = _hash([nodes])
        position = self._data.node_types.index(node_type)
        self._loader = _kiln.NodeLoader(self._data._data, position, nodes, self._settings)

    def _item_stores(self, hetero: Any) -> tuple[Any, Any]:
        store = hetero[self._node_type]
        return store, store

    def _add_items(self, batch: Any, of_items: Any, of_links: Any, arrays: dict[str, Any]) -> None:
        for key, value in self._tensors(self._of_items(arrays), {}).items():
            of_items[key] = value


class LinkNeighborLoader(_Loader):
    """Minibatches of links with the sampled neighbourhoods of their nodes and of negatives, with the arguments of PyG's
    `LinkNeighborLoader`.

    Arguments beside those of `NeighborLoader`:
        edge_label_index: the links `[2, n_links]`, all edges by default. Of a heterogeneous graph, an edge type, or a pair of the
            edge type and the links.
        edge_label: a label of each link, which batches have as `edge_label`; without negatives only.
        neg_sampling: "binary" (pairs of random nodes), "triplet" (another destination of the same source), or None.
        neg_sampling_ratio: the number of negatives of each link.
        exclude: the edges that messages of a training step leave out: "reverse" those of all its links in both directions, so that
            a model cannot read what it learns to predict, "directed" in their direction only, "none" as PyG does.
        rev_edge_type: the relation with the reverse of each link, for `exclude`. By default that of PyG's `ToUndirected`, `rev_<name>`
            between the same types; other relations between them must be named.

    Attributes of a batch beside those of `NeighborLoader`: `edge_label_index` `[2, p]` (the links, then their negatives) and
    `edge_label` `[p]`, or with "triplet" `src_index` `[n]`, `dst_pos_index` `[n]` and `dst_neg_index` `[n]` or `[n, k]`; `input_id`
    (positions in `edge_label_index`).
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        edge_label_index: Any = None,
        edge_label: Any = None,
        *,
        neg_sampling: str | None = None,
        neg_sampling_ratio: int = 1,
        exclude: str = "reverse",
        rev_edge_type: EdgeType | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        replace: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        num_workers: int = 1,
        rank: int = 0,
        world_size: int = 1,
        uneven: str = "pad",
        phase: str = "train",
        subgraph_type: str = "directional",
        disjoint: bool = False,
        transform: Callable[[Any], Any] | None = None,
        output: str = "auto",
        queue_bytes: int = 256 << 20,
    ) -> None:
        super().__init__(
            data,
            num_neighbors,
            batch_size=batch_size,
            shuffle=shuffle,
            replace=replace,
            drop_last=drop_last,
            seed=seed,
            num_workers=num_workers,
            rank=rank,
            world_size=world_size,
            uneven=uneven,
            phase=phase,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            transform=transform,
            output=output,
            queue_bytes=queue_bytes,
        )
        if self.output == "dgl":
            raise ValueError('output "dgl" is not possible for links: use "pyg", "numpy" or "blocks"')
        edge_type, links = _input_links(self._data, edge_label_index)
        relation = self._data._edge_position(edge_type)
        srcs, dsts = self._data.edge_index(edge_type) if links is None else links
        self._edge_type = self._data.edge_types[relation]
        self._negatives = "none" if neg_sampling is None else _text(neg_sampling, "neg_sampling")
        self._labels: Array | None = None
        if edge_label is not None:
            if neg_sampling is not None:
                raise ValueError("edge_label: links with negatives have the labels 1 and 0: pass neg_sampling=None")
            self._labels = _arrays.to_numpy(edge_label, "edge_label")
            if len(self._labels) != len(srcs):
                raise ValueError(f"edge_label: got {len(self._labels)} labels, expected {len(srcs)}, one per link")
        self._hash_of_items = _hash([srcs, dsts, *([] if self._labels is None else [self._labels])])
        exclude = _text(exclude, "exclude")
        if rev_edge_type is None and exclude == "reverse":
            rev_edge_type = _reverse(self._edge_type, self._data.edge_types)
        n_negatives = _number(neg_sampling_ratio, "neg_sampling_ratio", 1, _MOST_ENDS)
        n_pairs = n_negatives * self._settings["batch_size"]
        if neg_sampling is not None and n_pairs > _MOST_ENDS:
            raise ValueError(f"neg_sampling_ratio: a batch has {n_pairs} negatives, expected at most {_MOST_ENDS}")
        settings = {
            "relation": relation,
            "reverse": None if rev_edge_type is None else self._data._edge_position(rev_edge_type),
            "srcs": srcs,
            "dsts": dsts,
            "negatives": self._negatives,
            "n_negatives": n_negatives,
            "exclude": exclude,
        }
        self._settings_of_links = {key: settings[key] for key in ("relation", "reverse", "negatives", "n_negatives", "exclude")}
        self._loader = _kiln.LinkLoader(self._data._data, settings, self._settings)

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), **self._settings_of_links}

    def _of_items(self, arrays: dict[str, Any]) -> dict[str, Any]:
        srcs, dsts = arrays["srcs"], arrays["dsts"]
        items: dict[str, Any] = {"input_id": arrays["input_id"]}
        if self._negatives == "triplet":
            items["src_index"] = srcs[:, 0].copy()
            items["dst_pos_index"] = dsts[:, 0].copy()
            items["dst_neg_index"] = dsts[:, 1].copy() if dsts.shape[1] == 2 else dsts[:, 1:].copy()
            return items
        # The links come first, then the negatives of the first link, and so on.
        pairs = [np.concatenate([ends[:, 0], ends[:, 1:].reshape(-1)]) for ends in (srcs, dsts)]
        items["edge_label_index"] = np.stack(pairs)
        if self._negatives == "binary":
            items["edge_label"] = (np.arange(len(pairs[0])) < len(srcs)).astype(np.float32)
        elif self._labels is not None:
            items["edge_label"] = self._labels[arrays["input_id"]]
        return items

    def _item_stores(self, hetero: Any) -> tuple[Any, Any]:
        return hetero[self._edge_type], hetero[self._edge_type]

    def _add_items(self, batch: Any, of_items: Any, of_links: Any, arrays: dict[str, Any]) -> None:
        for key, value in self._tensors(self._of_items(arrays), {}).items():
            store = of_items
            if self._data.is_heterogeneous and key in ("src_index", "dst_pos_index", "dst_neg_index"):
                store = batch[self._edge_type[0] if key == "src_index" else self._edge_type[2]]
            store[key] = value


def _fanouts(num_neighbors: Any, edge_types: list[EdgeType]) -> list[list[int]]:
    """Returns the fanouts of each relation in each hop, the hop from the seeds first."""
    if isinstance(num_neighbors, Mapping):
        given = {tuple(edge_type): list(fanouts) for edge_type, fanouts in num_neighbors.items()}
        unknown = [edge_type for edge_type in given if edge_type not in edge_types]
        missing = [edge_type for edge_type in edge_types if edge_type not in given]
        if unknown or missing:
            raise ValueError(f"num_neighbors: expected numbers for each of {edge_types}: unknown {unknown}, missing {missing}")
        of_relations = [given[edge_type] for edge_type in edge_types]
    elif isinstance(num_neighbors, (str, bytes)) or not hasattr(num_neighbors, "__iter__"):
        raise TypeError(f"num_neighbors: got {num_neighbors!r}, expected a list of numbers, one per hop")
    else:
        of_relations = [list(num_neighbors)] * len(edge_types)
    n_hops = len(of_relations[0]) if of_relations else 0
    if n_hops == 0 or any(len(fanouts) != n_hops for fanouts in of_relations):
        raise ValueError("num_neighbors: expected at least one hop, and as many for each relation")
    for fanouts in of_relations:
        for fanout in fanouts:
            _number(fanout, "num_neighbors", -1, _MOST_ENDS)
    return [[int(fanouts[hop]) for fanouts in of_relations] for hop in range(n_hops)]


def _input_nodes(data: Dataset, input_nodes: Any) -> tuple[str, Array]:
    """Returns the type and the ids of the nodes of a loader."""
    if data.is_heterogeneous:
        if isinstance(input_nodes, str):
            input_nodes = (input_nodes, None)
        if not isinstance(input_nodes, tuple) or len(input_nodes) != 2:
            raise ValueError("input_nodes: expected a node type, or a pair of a node type and ids or a mask")
        node_type, nodes = input_nodes
    else:
        node_type, nodes = None, input_nodes
    name = data._node_type(node_type)
    n_nodes = data.num_nodes_dict[name]
    if nodes is None:
        return name, np.arange(n_nodes, dtype=np.uint32)
    return name, _arrays.ids_or_mask(nodes, n_nodes, "input_nodes")


def _input_links(data: Dataset, links: Any) -> tuple[Any, tuple[Array, Array] | None]:
    """Returns the edge type and the links of a loader."""
    if not data.is_heterogeneous:
        return None, None if links is None else _arrays.edge_pair(links, "edge_label_index")
    is_edge_type = isinstance(links, tuple) and len(links) == 3 and all(isinstance(name, str) for name in links)
    edge_type, pairs = (links, None) if is_edge_type or isinstance(links, str) else (None, None)
    if edge_type is None and isinstance(links, tuple) and len(links) == 2:
        edge_type, pairs = links
    if edge_type is None:
        raise ValueError("edge_label_index: expected an edge type, or a pair of an edge type and links")
    return edge_type, None if pairs is None else _arrays.edge_pair(pairs, "edge_label_index")


def _reverse(edge_type: EdgeType, edge_types: Sequence[EdgeType]) -> EdgeType | None:
    """Returns the relation with the reverses of the links between two types of nodes; None if no relation leads back."""
    src, name, dst = edge_type
    back = [other for other in edge_types if src != dst and (other[0], other[2]) == (dst, src)]
    if not back or (dst, f"rev_{name}", src) in back:
        return (dst, f"rev_{name}", src) if back else None
    raise ValueError(
        f"rev_edge_type: messages along {back[0]} would show the links of {edge_type} to the model if it has their reverses: "
        'pass it as rev_edge_type, or exclude="directed" if it has others'
    )


def _hash(arrays: Sequence[Array]) -> str:
    """Returns a hash of the items of a loader."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str(array.dtype).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _number(value: Any, what: str, least: int, most: int = 2**63 - 1) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what}: got {value!r}, expected a whole number")
    if not least <= value <= most:
        raise ValueError(f"{what} is {value}, expected {least} to {most}")
    return int(value)


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what}: got {value!r}, expected True or False")
    return bool(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what}: got {value!r}, expected a string")
    return value


def _require(module: str, output: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(f'output {output!r} needs the package {module}, which is not installed: use output="numpy"')
