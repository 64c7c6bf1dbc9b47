"""Datasets: graphs with features, targets and a split."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _arrays, _kiln
from ._arrays import Array

EdgeType = tuple[str, str, str]

# The node type and the edge type of a graph without types.
_NODE = "node"
_EDGE = ("node", "edge", "node")

# The attributes of PyG's stores that a dataset has, and those that describe others.
_NODE_ATTRIBUTES = {"x", "y", "train_mask", "val_mask", "test_mask", "num_nodes", "time"}
_EDGE_ATTRIBUTES = {"edge_index", "edge_weight", "edge_attr", "edge_type", "edge_time"}


class Dataset:
    """A graph with features, targets and a split. It does not change.

    Node ids count from 0 within their type. The edges have the order in which they were given, which `edge_index` returns and to
    which `e_id` of batches refers; a saved set has the order of its adjacency: by destination.

    Arrays that are given are used without a copy where their type fits: features of float32, float16 or bfloat16, class labels
    of int32, and an adjacency (`csc`) of int64 ends and uint32 or int32 sources. They must not be changed as long as the dataset
    is used.
    """

    def __init__(self, data: _kiln.Dataset) -> None:
        if not isinstance(data, _kiln.Dataset):
            raise TypeError("use Dataset.open, Dataset.from_arrays, Dataset.from_pyg, Dataset.from_dgl or Dataset.from_scipy")
        self._data = data
        # Whether targets of one column were given with two dimensions, and the relations whose edge_attr was given with one.
        self._y_has_column = False
        self._flat_edge_attr: frozenset[EdgeType] = frozenset()
        self._edge_types: list[EdgeType] = [tuple(edge_type) for edge_type in data.edge_types]  # type: ignore[misc]

    @classmethod
    def open(cls, path: Union[str, os.PathLike[str]]) -> Dataset:
        """Opens a folder in the format of kiln, OGB, GraphBolt or NumPy arrays, or a built-in set such as `debian-packages`.

        Raises DataError if there is no such set, or if it is damaged.
        """
        return cls(_kiln.Dataset.open(os.fspath(path)))

    @classmethod
    def from_arrays(
        cls,
        edge_index: Any = None,
        *,
        csc: Any = None,
        num_nodes: Any = None,
        x: Any = None,
        y: Any = None,
        task: str | None = None,
        num_classes: int | None = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        edge_type: Any = None,
        edge_time: Any = None,
        node_time: Any = None,
        node_names: Any = None,
        name: str = "dataset",
    ) -> Dataset:
        """Makes a dataset of arrays of NumPy, tensors or lists.

        A graph without types has `edge_index` `[2, n_edges]`, or `csc`: the ends `[n_nodes + 1]` of each destination's edges, and
        their sources. A heterogeneous graph has a dictionary `{(source, name, destination): [2, n_edges]}`; then arguments of nodes
        are dictionaries by node type, and those of edges by edge type.

        Shapes: `x` `[n_nodes, dim]`; `y` `[n_nodes]` of classes (negative without a class), or `[n_nodes, k]`; `train`, `val` and
        `test` ids, or masks `[n_nodes]`; `edge_weight`, `edge_type` and `edge_time` `[n_edges]`; `edge_attr` `[n_edges, dim]`;
        `node_time` `[n_nodes]`. Times are integers. One node type has `y`.

        `task` is "classes", "multi_label" (0 or 1 per label) or "regression" (floats); by default, integers are classes, booleans
        labels, and floats regression targets.

        Raises TypeError and ValueError for wrong arguments, and DataError for arrays that do not fit each other.
        """
        if (edge_index is None) == (csc is None):
            raise TypeError("pass either edge_index or csc")
        if isinstance(edge_index, Mapping):
            given = _Given(edge_index, num_nodes, x, y, node_time, node_names)
            edges = {"edge_weight": edge_weight, "edge_attr": edge_attr, "edge_type": None, "edge_time": edge_time}
            if edge_type is not None:
                raise TypeError("edge_type: the edges of a heterogeneous graph have the types of its relations")
        else:
            by_type = {key: {_NODE: value} for key, value in dict(num_nodes=num_nodes, x=x, y=y, node_time=node_time, node_names=node_names).items() if value is not None}
            given = _Given({_EDGE: edge_index}, *(by_type.get(key) for key in ("num_nodes", "x", "y", "node_time", "node_names")))
            edges = {"edge_weight": edge_weight, "edge_attr": edge_attr, "edge_type": edge_type, "edge_time": edge_time}
            edges = {key: None if value is None else {_EDGE: value} for key, value in edges.items()}
        given.check_edges(edges)
        heterogeneous = isinstance(edge_index, Mapping)
        counts = given.count_nodes({"train": train, "val": val, "test": test}, csc)
        data = _kiln.Dataset.build(
            str(name),
            list(counts.items()),
            heterogeneous,
            given.relations(edges, csc),
            given.nodes(counts),
            given.targets(counts, task, num_classes, {"train": train, "val": val, "test": test}),
        )
        dataset = cls(data)
        dataset._y_has_column = any(np.ndim(values) == 2 for values in given.of_nodes["y"].values() if values is not None)
        by_edge_type = edges["edge_attr"] or {}
        dataset._flat_edge_attr = frozenset(_as_edge_type(e) for e, values in by_edge_type.items() if np.ndim(values) == 1)
        return dataset

    @classmethod
    def from_pyg(cls, data: Any, *, task: str | None = None, target_type: str | None = None, name: str = "dataset") -> Dataset:
        """Makes a dataset of PyG's `Data` or `HeteroData`: `edge_index`, `x`, `y`, `train_mask`, `val_mask`, `test_mask`, and of edges
        `edge_weight`, `edge_attr`, `edge_time`; of `HeteroData` also `time`.

        `target_type` is the node type whose `y` are the targets, if several types have some. A warning names attributes that a
        dataset does not have; read them by `n_id` of a batch.
        """
        if hasattr(data, "node_types") and hasattr(data, "edge_types"):
            return _from_hetero_data(data, task, target_type, name)
        if getattr(data, "edge_index", None) is None:
            raise TypeError(f"got {type(data).__name__}, expected a Data or HeteroData of PyG with edge_index")
        if target_type is not None:
            raise ValueError("target_type: the graph has one type of nodes")
        _warn_of_others(data, _NODE_ATTRIBUTES | _EDGE_ATTRIBUTES, "the data")
        return cls.from_arrays(
            data.edge_index,
            num_nodes=data.num_nodes,
            x=data.get("x"),
            y=data.get("y"),
            task=task,
            train=data.get("train_mask"),
            val=data.get("val_mask"),
            test=data.get("test_mask"),
            edge_weight=data.get("edge_weight"),
            edge_attr=data.get("edge_attr"),
            edge_type=data.get("edge_type"),
            edge_time=data.get("edge_time"),
            node_time=data.get("time"),
            name=name,
        )

    @classmethod
    def from_dgl(
        cls, graph: Any, *, x: str = "feat", y: str = "label", task: str | None = None, target_type: str | None = None, name: str = "dataset"
    ) -> Dataset:
        """Makes a dataset of DGL's graph. `x` and `y` are the names of features and targets in `ndata`; masks are `train_mask`,
        `val_mask` and `test_mask`, and columns of edges `weight`.
        """
        if not hasattr(graph, "canonical_etypes"):
            raise TypeError(f"got {type(graph).__name__}, expected a DGLGraph")
        edge_types = [tuple(edge_type) for edge_type in graph.canonical_etypes]
        node_types = list(graph.ntypes)
        columns = {node_type: graph.nodes[node_type].data for node_type in node_types}
        with_y = [node_type for node_type in node_types if y in columns[node_type] and target_type in (None, node_type)]
        masks = {part: {t: columns[t][f"{part}_mask"] for t in with_y if f"{part}_mask" in columns[t]} for part in ("train", "val", "test")}
        edge_index = {edge_type: graph.edges(etype=edge_type, order="eid") for edge_type in edge_types}
        weights = {e: graph.edges[e].data["weight"] for e in edge_types if "weight" in graph.edges[e].data}
        of_nodes: dict[str, dict[str, Any]] = {
            "num_nodes": {node_type: int(graph.num_nodes(node_type)) for node_type in node_types},
            "x": {node_type: columns[node_type][x] for node_type in node_types if x in columns[node_type]},
            "y": {node_type: columns[node_type][y] for node_type in with_y},
            **masks,
        }
        if len(node_types) == 1 and len(edge_types) == 1:
            only = {key: value.get(node_types[0]) for key, value in of_nodes.items()}
            return cls.from_arrays(edge_index[edge_types[0]], edge_weight=weights.get(edge_types[0]), task=task, name=name, **only)
        given: dict[str, Any] = {key: value or None for key, value in of_nodes.items()}
        return cls.from_arrays(edge_index, edge_weight=weights or None, task=task, name=name, **given)

    @classmethod
    def from_scipy(cls, matrix: Any, **arrays: Any) -> Dataset:
        """Makes a dataset of a square sparse matrix of SciPy, whose entry `[i, j]` is an edge from node `i` to node `j`. Entries are
        weights, unless all are 1. `arrays` are those of `from_arrays`, without edges.
        """
        if not hasattr(matrix, "tocsc"):
            raise TypeError(f"got {type(matrix).__name__}, expected a sparse matrix of SciPy")
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the matrix has the shape {matrix.shape}, expected as many rows as columns")
        columns = matrix.tocsc()
        if not bool(np.all(columns.data == 1)):
            arrays.setdefault("edge_weight", columns.data.astype(np.float32, copy=False))
        arrays.setdefault("num_nodes", matrix.shape[0])
        return cls.from_arrays(csc=(columns.indptr, columns.indices), **arrays)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the dataset to a new folder in the format of kiln, which the program `kiln` and `Dataset.open` read."""
        self._data.save(os.fspath(path))

    @property
    def name(self) -> str:
        """The name of the set in messages."""
        return self._data.name

    @property
    def is_heterogeneous(self) -> bool:
        """Whether nodes or edges have types with names."""
        return self._data.is_heterogeneous

    @property
    def node_types(self) -> list[str]:
        """The names of the node types; `["node"]` for a graph without types."""
        return self._data.node_types

    @property
    def edge_types(self) -> list[EdgeType]:
        """The source type, the name and the destination type of each relation."""
        return list(self._edge_types)

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return sum(self._data.nodes_per_type)

    @property
    def num_edges(self) -> int:
        """The number of edges of all relations."""
        return sum(self._data.edges_per_type)

    @property
    def num_nodes_dict(self) -> dict[str, int]:
        """The number of nodes of each type."""
        return dict(zip(self._data.node_types, self._data.nodes_per_type))

    @property
    def num_features_dict(self) -> dict[str, int]:
        """The number of feature columns of each node type; 0 for a type without features."""
        return {node_type: dim or 0 for node_type, dim in zip(self._data.node_types, self._data.dims)}

    @property
    def num_features(self) -> int:
        """The number of feature columns of a graph with one type of nodes; 0 without features."""
        return self.num_features_dict[self._node_type(None)]

    @property
    def target_type(self) -> str | None:
        """The node type with targets; None without targets."""
        position = self._data.target_type
        return None if position is None else self._data.node_types[position]

    @property
    def num_classes(self) -> int:
        """The number of classes, labels or columns of the targets; 0 without targets."""
        return self._data.n_outputs

    @property
    def class_names(self) -> list[str]:
        """The names of the classes."""
        return self._data.class_names

    def x(self, node_type: str | None = None) -> Array | None:
        """The features of a node type, `[n_nodes, dim]`, as a view that cannot be written to; None without features. Those of
        bfloat16 are their bits as uint16.
        """
        return self._data.x(self._node_position(node_type))

    def y(self) -> Array | None:
        """The classes `[n]`, or the labels or numbers `[n, k]`, of the nodes of `target_type`; None without targets. Those of one column
        are `[n]`, unless they were given as `[n, 1]`.
        """
        y = self._data.y()
        return None if y is None else self._y_as_given(y)

    @property
    def train(self) -> Array:
        """The ids of the nodes of the training."""
        return self._data.split()[0]

    @property
    def val(self) -> Array:
        """The ids of the nodes of the validation."""
        return self._data.split()[1]

    @property
    def test(self) -> Array:
        """The ids of the nodes of the test."""
        return self._data.split()[2]

    def edge_index(self, edge_type: EdgeType | str | None = None) -> Array:
        """The edges of a relation, `[2, n_edges]` of int64, in the order to which `e_id` of batches refers."""
        return self._data.edge_index(self._edge_position(edge_type))

    def csc(self, edge_type: EdgeType | str | None = None) -> tuple[Array, Array]:
        """The adjacency of a relation: the ends `[n_dst + 1]` of each destination's edges as uint64, and their sources as uint32.
        Those of a graph with one type of nodes are views.
        """
        return self._data.csc(self._edge_position(edge_type))

    def edge_attributes(self, edge_type: EdgeType | str | None = None) -> dict[str, Array]:
        """The columns of a relation's edges, such as `edge_weight` and `edge_attr`, in the order of `edge_index`. Those whose order is
        that of the adjacency are views.
        """
        position = self._edge_position(edge_type)
        columns = self._edges_as_given(self._edge_types[position], self._data.edge_columns(position))
        order = self._data.adjacency_positions(position)
        return columns if order is None else {key: values[order] for key, values in columns.items()}

    def node_time(self, node_type: str | None = None) -> Array | None:
        """The times of the nodes of a type as a view; None without times."""
        return self._data.node_times(self._node_position(node_type))

    def __repr__(self) -> str:
        return repr(self._data)

    def _y_as_given(self, y: Array) -> Array:
        """Returns targets of one column in the shape in which they were given."""
        if y.ndim == 2 and y.shape[1] > 1:
            return y
        return y.reshape(-1, 1) if self._y_has_column else y.reshape(-1)

    def _edges_as_given(self, edge_type: EdgeType, columns: dict[str, Array]) -> dict[str, Array]:
        """Returns columns of edges in the shapes in which they were given."""
        flat = {"edge_weight"} | ({"edge_attr"} if edge_type in self._flat_edge_attr else set())
        for key in flat & columns.keys():
            columns[key] = columns[key].reshape(-1)
        return columns

    def _node_type(self, node_type: str | None) -> str:
        names = self._data.node_types
        if node_type is None:
            if len(names) != 1:
                raise ValueError(f"the graph has several node types: pass one of {names}")
            return names[0]
        if node_type not in names:
            raise ValueError(f"there is no node type {node_type!r}: expected one of {names}")
        return node_type

    def _node_position(self, node_type: str | None) -> int:
        return self._data.node_types.index(self._node_type(node_type))

    def _edge_position(self, edge_type: EdgeType | str | None) -> int:
        if edge_type is None:
            found = list(range(len(self._edge_types)))
        elif isinstance(edge_type, str):
            found = [i for i, (_, name, _) in enumerate(self._edge_types) if name == edge_type]
        else:
            found = [i for i, other in enumerate(self._edge_types) if other == tuple(edge_type)]
        if len(found) != 1:
            raise ValueError(f"{edge_type!r} is {len(found)} edge types, expected one of {self._edge_types}")
        return found[0]


class _Given:
    """The arguments of `from_arrays` by node type and edge type."""

    def __init__(self, edge_index: Mapping[Any, Any], num_nodes: Any, x: Any, y: Any, node_time: Any, node_names: Any) -> None:
        self.edge_index = {_as_edge_type(edge_type): values for edge_type, values in edge_index.items()}
        of_nodes = {"num_nodes": num_nodes, "x": x, "y": y, "node_time": node_time, "node_names": node_names}
        for key, values in of_nodes.items():
            if values is not None and not isinstance(values, Mapping):
                raise TypeError(f"{key}: got {type(values).__name__}, expected a dictionary by node type")
        self.of_nodes: dict[str, Mapping[str, Any]] = {key: values or {} for key, values in of_nodes.items()}
        self.rows = {t: _arrays.rows(values, f"x of {t}") for t, values in self.of_nodes["x"].items() if values is not None}
        self.pairs = {e: _arrays.edge_pair(v, "edge_index") for e, v in self.edge_index.items() if v is not None}

    def check_edges(self, edges: Mapping[str, Any]) -> None:
        """Checks that columns of edges are those of relations that exist."""
        for key, values in edges.items():
            if values is None:
                continue
            if not isinstance(values, Mapping):
                raise TypeError(f"{key}: got {type(values).__name__}, expected a dictionary by edge type")
            for edge_type in values:
                if _as_edge_type(edge_type) not in self.edge_index:
                    raise ValueError(f"{key}: there is no edge type {edge_type!r}: expected one of {list(self.edge_index)}")

    def count_nodes(self, parts: Mapping[str, Any], csc: Any) -> dict[str, int]:
        """Returns the number of nodes of each type: given, that of the rows of features or targets, or one more than the largest id."""
        names = [name for src, _, dst in self.edge_index for name in (src, dst)]
        of_all = [name for values in self.of_nodes.values() for name in values]
        counts = {}
        for name in dict.fromkeys([*self.of_nodes["num_nodes"], *names, *of_all]):
            given = self.of_nodes["num_nodes"].get(name)
            if given is not None:
                counts[name] = _count(given, f"num_nodes of {name}")
            elif name in self.rows:
                counts[name] = len(self.rows[name][0])
            elif self.of_nodes["y"].get(name) is not None:
                counts[name] = len(_arrays.to_numpy(self.of_nodes["y"][name], "y"))
            elif csc is not None:
                counts[name] = max(len(csc[0]) - 1, 0)
            else:
                largest = [int(ids.max()) for e, pair in self.pairs.items() for t, ids in zip((e[0], e[2]), pair) if t == name and ids.size]
                counts[name] = max(largest, default=-1) + 1
        return counts

    def relations(self, edges: Mapping[str, Any], csc: Any) -> list[dict[str, Any]]:
        """Returns the relations as the extension module takes them."""
        all_names = [name for _, name, _ in self.edge_index]
        relations = []
        for src, name, dst in self.edge_index:
            edge_type = (src, name, dst)
            if csc is None:
                first, second = self.pairs[edge_type]
            else:
                if not isinstance(csc, (tuple, list)) or len(csc) != 2:
                    raise TypeError("csc: expected a pair of arrays, the ends of each node's edges and their sources")
                first, second = _arrays.contiguous(csc[0], np.int64, "csc[0]"), _arrays.ids(csc[1], "csc[1]")
            columns = [
                _column(key, by_type[given], len(second))
                for key, by_type in edges.items()
                if by_type is not None
                for given in by_type
                if _as_edge_type(given) == edge_type and by_type[given] is not None
            ]
            relations.append({
                "name": name if all_names.count(name) == 1 else "__".join(edge_type),
                "src_type": src,
                "dst_type": dst,
                "first": first,
                "second": second,
                "is_adjacency": csc is not None,
                "columns": columns,
            })
        return relations

    def nodes(self, counts: Mapping[str, int]) -> list[dict[str, Any]]:
        """Returns what belongs to nodes as the extension module takes it."""
        nodes = []
        for name, count in counts.items():
            x, bfloat16 = self.rows.get(name, (None, False))
            times = self.of_nodes["node_time"].get(name)
            names = self.of_nodes["node_names"].get(name)
            if x is not None and len(x) != count:
                raise ValueError(f"x of {name}: got {len(x)} rows, expected {count}, one per node")
            if names is not None and len(names) != count:
                raise ValueError(f"node_names of {name}: got {len(names)} names, expected {count}, one per node")
            nodes.append({
                "node_type": name,
                "x": x,
                "dim": 0 if x is None else x.shape[1],
                "is_bf16": bfloat16,
                "times": None if times is None else _arrays.contiguous(times, np.int64, f"node_time of {name}"),
                "names": None if names is None else [str(of_node) for of_node in names],
            })
        return nodes

    def targets(
        self, counts: Mapping[str, int], task: str | None, num_classes: int | None, parts: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Returns the targets and the split as the extension module takes them."""
        given = {name: values for name, values in self.of_nodes["y"].items() if values is not None}
        if len(given) > 1:
            raise ValueError(f"y: {list(given)} have targets, expected one node type")
        if not given:
            named = [key for key, value in {"task": task, "num_classes": num_classes, **parts}.items() if value is not None]
            if named:
                raise ValueError(f"{', '.join(named)}: there are no targets: pass y")
            return None
        ((name, values),) = given.items()
        kind, converted = _targets(_arrays.to_numpy(values, "y"), task)
        if len(converted) != counts[name]:
            raise ValueError(f"y: got {len(converted)} rows, expected {counts[name]}, one per node of {name}")
        if kind == "classes":
            most = int(converted.max(initial=-1)) + 1
            n_columns = most if num_classes is None else _count(num_classes, "num_classes")
            if n_columns < most:
                raise ValueError(f"num_classes is {n_columns}, but y has class {most - 1}")
        elif num_classes is not None:
            raise ValueError("num_classes: the targets are no classes")
        else:
            n_columns = converted.shape[1]
        split = []
        for part, nodes in parts.items():
            if isinstance(nodes, Mapping):
                others = [other for other in nodes if other != name]
                if others:
                    raise ValueError(f"{part}: {others} have no targets")
                nodes = nodes.get(name)
            split.append(np.empty(0, np.int64) if nodes is None else _arrays.ids_or_mask(nodes, counts[name], part))
        return {"node_type": name, "kind": kind, "values": converted, "n_columns": n_columns, "split": split}


def _as_edge_type(edge_type: Any) -> EdgeType:
    if not isinstance(edge_type, tuple) or len(edge_type) != 3 or not all(isinstance(name, str) for name in edge_type):
        raise TypeError(f"got the edge type {edge_type!r}, expected a tuple (source type, name, destination type)")
    return edge_type


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what}: got {value!r}, expected a number")
    if value < 0:
        raise ValueError(f"{what}: got {value}, expected at least 0")
    return int(value)


def _column(key: str, values: Any, n_edges: int) -> tuple[str, Array, bool]:
    names = {"edge_weight": "weights", "edge_attr": "features", "edge_type": "types", "edge_time": "times"}
    bfloat16 = False
    if key == "edge_attr":
        array = _arrays.to_numpy(values, key)
        array, bfloat16 = _arrays.rows(values if array.ndim == 2 else array.reshape(len(array), -1), key)
    else:
        dtype = {"edge_weight": np.float32, "edge_type": np.uint8, "edge_time": np.int64}[key]
        array = _arrays.contiguous(_arrays.to_numpy(values, key), dtype, key)
    if len(array) != n_edges:
        raise ValueError(f"{key}: got {len(array)} rows, expected {n_edges}, one per edge")
    return names[key], array, bfloat16


def _targets(y: Array, task: str | None) -> tuple[str, Array]:
    """Returns the kind of targets, and the targets as the extension module takes them."""
    kind = task
    if kind is None:
        kind = {"i": "classes", "u": "classes", "b": "multi_label", "f": "regression"}.get(y.dtype.kind)
    if kind == "classes":
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.dtype.kind == "f" and not np.array_equal(np.nan_to_num(y, nan=-1.0), np.nan_to_num(np.floor(y), nan=-1.0)):
            raise ValueError("y: classes are whole numbers")
        if y.dtype.kind == "f":
            y = np.nan_to_num(y, nan=-1.0).astype(np.int64)
        return kind, _arrays.contiguous(y, np.int32, "y")
    if y.ndim == 1:
        y = y[:, None]
    if y.ndim != 2 or y.dtype.kind not in "iufb":
        raise ValueError(f"y: got an array of {y.dtype} of shape {y.shape}, expected numbers (n,) or (n, k)")
    if kind == "multi_label":
        missing = np.isnan(y) if y.dtype.kind == "f" else np.zeros(y.shape, bool)
        labels = np.where(missing, 255, np.nan_to_num(y)).astype(np.uint8)
        if not np.array_equal(labels[~missing], y[~missing]):
            raise ValueError("y: labels are 0 or 1, or NaN if missing")
        return kind, np.ascontiguousarray(labels)
    if kind == "regression":
        return kind, np.ascontiguousarray(y, np.float32)
    raise ValueError(f'task is {kind!r}, expected "classes", "multi_label" or "regression"')


def _from_hetero_data(data: Any, task: str | None, target_type: str | None, name: str) -> Dataset:
    stores = {node_type: data[node_type] for node_type in data.node_types}
    if target_type is not None and target_type not in stores:
        raise ValueError(f"target_type: there is no node type {target_type!r}: expected one of {list(stores)}")
    with_y = [t for t, store in stores.items() if store.get("y") is not None and target_type in (None, t)]
    if len(with_y) > 1:
        raise ValueError(f"{with_y} have y: pass target_type")
    for node_type, store in stores.items():
        _warn_of_others(store, _NODE_ATTRIBUTES, node_type)
    edge_stores = {tuple(edge_type): data[edge_type] for edge_type in data.edge_types}
    for edge_type, store in edge_stores.items():
        _warn_of_others(store, _EDGE_ATTRIBUTES - {"edge_type"}, str(edge_type))

    def of_nodes(key: str, among: Sequence[str] = tuple(stores)) -> dict[str, Any] | None:
        return {t: stores[t].get(key) for t in among if stores[t].get(key) is not None} or None

    def of_edges(key: str) -> dict[Any, Any] | None:
        return {e: store.get(key) for e, store in edge_stores.items() if store.get(key) is not None} or None

    return Dataset.from_arrays(
        of_edges("edge_index") or {},
        num_nodes={node_type: store.num_nodes for node_type, store in stores.items()},
        x=of_nodes("x"),
        y=of_nodes("y", with_y),
        task=task,
        train=of_nodes("train_mask", with_y),
        val=of_nodes("val_mask", with_y),
        test=of_nodes("test_mask", with_y),
        edge_weight=of_edges("edge_weight"),
        edge_attr=of_edges("edge_attr"),
        edge_time=of_edges("edge_time"),
        node_time=of_nodes("time"),
        name=name,
    )


def _warn_of_others(store: Any, known: set[str], what: str) -> None:
    others = sorted(key for key in store.keys() if key not in known) if callable(getattr(store, "keys", None)) else []
    if others:
        warnings.warn(f"{', '.join(others)} of {what} are not in the dataset: index them by n_id of a batch", stacklevel=4)
