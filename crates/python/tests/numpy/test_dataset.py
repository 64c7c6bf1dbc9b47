"""Datasets: arrays in and out, without copies where the types fit, and files."""

import gc
import weakref

import numpy as np
import pytest

import kiln

SRCS = np.array([0, 3, 1, 2, 4, 0], np.uint32)
DSTS = np.array([1, 0, 2, 0, 0, 4], np.uint32)


def small(**arrays):
    given = dict(x=np.arange(10, dtype=np.float32).reshape(5, 2), y=np.array([0, 2, 1, -1, 0]), train=[0, 1], val=[2], test=[4])
    return kiln.Dataset.from_arrays(np.stack([SRCS, DSTS]), **{**given, **arrays})


def test_arrays_come_back_as_they_were_given():
    data = small(edge_weight=np.arange(6), edge_attr=np.arange(12).reshape(6, 2), edge_time=np.arange(6), edge_type=[0, 1, 0, 1, 2, 2])
    assert (data.num_nodes, data.num_edges, data.num_features, data.num_classes) == (5, 6, 2, 3)
    assert data.edge_index().tolist() == [SRCS.tolist(), DSTS.tolist()]
    assert data.y().tolist() == [0, 2, 1, -1, 0]
    assert [data.train.tolist(), data.val.tolist(), data.test.tolist()] == [[0, 1], [2], [4]]
    columns = data.edge_attributes()
    assert columns["edge_weight"].tolist() == list(range(6))
    assert columns["edge_attr"].tolist() == np.arange(12).reshape(6, 2).tolist()
    assert columns["edge_time"].tolist() == list(range(6))
    assert columns["edge_type"].tolist() == [0, 1, 0, 1, 2, 2]
    indptr, indices = data.csc()
    assert indptr.tolist() == [0, 3, 4, 5, 5, 6]
    assert sorted(indices[:3].tolist()) == [2, 3, 4]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_features_are_not_copied_and_live_as_long_as_the_dataset(dtype):
    x = np.arange(10, dtype=dtype).reshape(5, 2)
    address, alive = x.ctypes.data, weakref.ref(x)
    data = small(x=x)
    del x
    gc.collect()
    assert alive() is not None
    view = data.x()
    assert (view.ctypes.data, view.dtype, view.tolist()) == (address, dtype, np.arange(10).reshape(5, 2).tolist())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    del data
    gc.collect()
    assert view[4, 1] == 9
    del view
    gc.collect()
    assert alive() is None


def test_an_adjacency_is_not_copied():
    indptr, indices = np.array([0, 2, 2, 3]), np.array([1, 2, 0], np.int32)
    data = kiln.Dataset.from_arrays(csc=(indptr, indices))
    assert [array.ctypes.data for array in data.csc()] == [indptr.ctypes.data, indices.ctypes.data]
    assert data.edge_index().tolist() == [[1, 2, 0], [0, 0, 2]]


def test_a_matrix_of_scipy_has_its_entries_as_edges_and_weights():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.coo_matrix(([2.0, 3.0, 1.0], ([0, 1, 1], [1, 2, 0])), shape=(3, 3))
    data = kiln.Dataset.from_scipy(matrix, x=np.zeros((3, 1)))
    edges = sorted(zip(*data.edge_index().tolist(), data.edge_attributes()["edge_weight"].tolist()))
    assert edges == [(0, 1, 2.0), (1, 0, 1.0), (1, 2, 3.0)]
    assert kiln.Dataset.from_scipy(sparse.eye(3)).edge_attributes() == {}


def typed():
    edges = {("user", "rates", "item"): [[0, 1, 1], [2, 0, 1]], ("item", "to", "user"): [[2], [1]], ("user", "to", "user"): [[0], [1]]}
    return kiln.Dataset.from_arrays(
        edges, num_nodes={"user": 2}, x={"item": np.eye(3)}, y={"item": [0, 1, 1]}, train={"item": [True, False, True]},
        edge_weight={("user", "rates", "item"): [0.5, 1.5, 2.5]}, node_time={"user": [7, 8]},
    )


def test_types_and_relations_keep_their_names_and_arrays():
    data = typed()
    assert data.is_heterogeneous and data.target_type == "item"
    assert data.num_nodes_dict == {"user": 2, "item": 3}
    assert data.num_features_dict == {"user": 0, "item": 3}
    assert data.edge_types == [("user", "rates", "item"), ("item", "to", "user"), ("user", "to", "user")]
    assert data.edge_index("rates").tolist() == [[0, 1, 1], [2, 0, 1]]
    assert data.edge_index(("item", "to", "user")).tolist() == [[2], [1]]
    assert data.edge_attributes("rates")["edge_weight"].tolist() == [0.5, 1.5, 2.5]
    assert data.train.tolist() == [0, 2]
    assert data.node_time("user").tolist() == [7, 8]
    assert data.node_time("item") is None


@pytest.mark.parametrize("data", [small(edge_attr=np.arange(6)), typed()], ids=["one type", "types"])
def test_a_saved_set_opens_with_the_same_arrays(data, tmp_path):
    data.save(tmp_path / "set")
    opened = kiln.Dataset.open(tmp_path / "set")
    assert (opened.node_types, opened.edge_types) == (data.node_types, data.edge_types)
    assert opened.num_nodes_dict == data.num_nodes_dict
    assert opened.y().tolist() == data.y().tolist()
    assert opened.train.tolist() == data.train.tolist()
    for edge_type in data.edge_types:
        assert sorted(opened.edge_index(edge_type).T.tolist()) == sorted(data.edge_index(edge_type).T.tolist())


def test_targets_may_be_labels_and_numbers_with_missing_values():
    labels = small(y=np.array([[0, 1], [1, np.nan], [0, 0], [1, 1], [0, 1]]), task="multi_label")
    assert labels.y().tolist() == [[0, 1], [1, 255], [0, 0], [1, 1], [0, 1]]
    batch = next(iter(kiln.NeighborLoader(labels, [1], [1, 0], batch_size=2, output="numpy")))
    assert np.array_equal(batch.y[:2], [[1, np.nan], [0, 1]], equal_nan=True)
    numbers = small(y=np.array([0.5, 1.5, np.nan, 2.5, 3.5]), val=None)
    assert numbers.num_classes == 1
    assert np.array_equal(numbers.y(), [0.5, 1.5, np.nan, 2.5, 3.5], equal_nan=True)


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_targets_of_one_column_keep_their_shape(shape, dtype):
    data = small(y=np.zeros(shape, dtype))
    assert data.y().shape == shape
    (batch,) = kiln.NeighborLoader(data, [1], batch_size=5, output="numpy")
    assert batch.y.shape == shape


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 2)])
def test_features_of_edges_keep_their_shape(shape):
    data = small(edge_attr=np.zeros(shape))
    assert data.edge_attributes()["edge_attr"].shape == shape
    (batch,) = kiln.NeighborLoader(data, [-1], batch_size=5, output="numpy")
    assert batch.edge_attr.shape == shape


def test_names_of_nodes_and_of_the_set_are_saved(tmp_path):
    small(node_names=["a", "b", "c", "d", "e"], name="letters").save(tmp_path / "set")
    assert kiln.Dataset.open(tmp_path / "set").name in ("letters", "set")
    files = [path for path in (tmp_path / "set").rglob("*") if path.is_file()]
    assert any(b"a\nb\nc\nd\ne" in path.read_bytes() or b"abcde" in path.read_bytes() for path in files)


class Store(dict):
    """A store like PyG's: attributes are keys."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def test_a_data_like_object_has_the_arguments_of_arrays():
    data = Store(edge_index=np.stack([SRCS, DSTS]), x=np.zeros((5, 1)), y=np.zeros((5, 2)), num_nodes=5)
    dataset = kiln.Dataset.from_pyg(data, task="multi_label", name="pairs")
    assert dataset.y().dtype == np.uint8 and dataset.name == "pairs"


class Graph:
    """A graph like DGL's, with the attributes that a dataset reads."""

    ntypes = ["user", "item"]
    canonical_etypes = [("user", "rates", "item")]

    def __init__(self):
        columns = {"user": {}, "item": {"h": np.eye(2), "score": np.array([0.5, 1.5]), "train_mask": np.array([True, False])}}
        self.nodes = {name: Store(data=data) for name, data in columns.items()}
        self.edges_of = Store(data={"weight": np.array([1.0, 2.0, 3.0])})

    def num_nodes(self, node_type):
        return {"user": 3, "item": 2}[node_type]

    @property
    def edges(self):
        graph = self

        class Edges:
            def __call__(self, etype, order):
                return np.array([0, 1, 2]), np.array([1, 0, 1])

            def __getitem__(self, etype):
                return graph.edges_of

        return Edges()


def test_a_graph_like_that_of_dgl_has_its_columns():
    data = kiln.Dataset.from_dgl(Graph(), x="h", y="score", task="regression", target_type="item", name="ratings")
    assert data.num_nodes_dict == {"user": 3, "item": 2}
    assert data.x("item").tolist() == [[1, 0], [0, 1]]
    assert data.y().tolist() == [0.5, 1.5]
    assert data.train.tolist() == [0]
    assert data.edge_index("rates").tolist() == [[0, 1, 2], [1, 0, 1]]
    assert data.edge_attributes("rates")["edge_weight"].tolist() == [1, 2, 3]
