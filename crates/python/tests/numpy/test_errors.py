"""Wrong arguments are exceptions that name the argument; none of them panics or ends the process."""

import re

import numpy as np
import pytest

import kiln

EDGES = np.array([[0, 1, 2], [1, 2, 0]])
X = np.zeros((3, 2), np.float32)
Y = np.array([0, 1, 0])
RELATION = ("user", "rates", "item")


def make(**arrays):
    return kiln.Dataset.from_arrays(**{"edge_index": EDGES, "x": X, "y": Y, **arrays})


def load(**arguments):
    return list(kiln.NeighborLoader(make(), **{"num_neighbors": [2], "output": "numpy", **arguments}))


def link(**arguments):
    return list(kiln.LinkNeighborLoader(make(), **{"num_neighbors": [2], "output": "numpy", **arguments}))


CASES = [
    (lambda: kiln.Dataset(None), TypeError, "Dataset.open"),
    (lambda: kiln.Dataset.open("no such set"), kiln.DataError, "no such set"),
    (lambda: kiln.Dataset.open(3), TypeError, "str"),
    (lambda: kiln.Dataset.from_arrays(), TypeError, "edge_index or csc"),
    (lambda: make(edges=EDGES), TypeError, "edges"),
    (lambda: make(edge_index=EDGES[0]), ValueError, "shape (3,)"),
    (lambda: make(edge_index=EDGES + 0.5), TypeError, "float64"),
    (lambda: make(edge_index=-EDGES), ValueError, "entry 1 is -1"),
    (lambda: make(edge_index=[[0], [7]]), kiln.DataError, "7"),
    (lambda: make(edge_index=[[2**33], [0]]), ValueError, "8589934592"),
    (lambda: make(edge_index=([0, 1], [1])), kiln.DataError, "dsts has 1 entries, expected 2"),
    (lambda: make(x=[1.0, 2.0, 3.0]), ValueError, "expected (n, dim)"),
    (lambda: make(x=[["a", "b"]] * 3), TypeError, "expected numbers"),
    (lambda: make(x=X[:2]), ValueError, "expected 2, one per node"),
    (lambda: make(x={"node": X}), TypeError, "x"),
    (lambda: make(y=Y[:2]), ValueError, "expected 3, one per node"),
    (lambda: make(y=Y, num_classes=1), ValueError, "num_classes is 1"),
    (lambda: make(y=[0.5, 1.0, 2.0], task="classes"), ValueError, "whole numbers"),
    (lambda: make(y=[[0, 2]] * 3, task="multi_label"), kiln.DataError, "0, 1 or 255"),
    (lambda: make(task="links"), ValueError, "task is 'links'"),
    (lambda: make(y=None, train=[0]), ValueError, "train: there are no targets"),
    (lambda: make(train=[3]), kiln.DataError, "3"),
    (lambda: make(train=[True, False]), ValueError, "mask of shape (2,)"),
    (lambda: make(num_nodes=-1), ValueError, "num_nodes"),
    (lambda: make(num_nodes="3"), TypeError, "num_nodes"),
    (lambda: make(edge_weight=[1.0]), ValueError, "edge_weight: got 1 rows"),
    (lambda: make(edge_time=[0.5, 1.0, 2.0]), ValueError, "does not fit int64"),
    (lambda: make(edge_time=[0, 1, float("nan")]), ValueError, "does not fit int64"),
    (lambda: make(edge_type=[0, 1, 300]), ValueError, "does not fit uint8"),
    (lambda: make(edge_index={"rates": EDGES}, x=None, y=None), TypeError, "rates"),
    (lambda: make(edge_index={RELATION: EDGES}, x={"shop": X}, y={"user": Y, "item": Y}), ValueError, "one node type"),
    (lambda: kiln.Dataset.from_arrays(csc=([0, 2, 1], [0])), kiln.DataError, "indptr"),
    (lambda: kiln.Dataset.from_arrays(csc=([0, 1], [5])), kiln.DataError, "5"),
    (lambda: kiln.Dataset.from_pyg(EDGES), TypeError, "Data or HeteroData"),
    (lambda: kiln.Dataset.from_dgl(EDGES), TypeError, "DGLGraph"),
    (lambda: kiln.Dataset.from_scipy(EDGES), TypeError, "sparse matrix"),
    (lambda: make().x("user"), ValueError, "no node type 'user'"),
    (lambda: make().edge_index("rates"), ValueError, "rates"),
    (lambda: make().save("/"), kiln.DataError, "/"),
    (lambda: make(x=None).save("set"), kiln.DataError, "features"),
    (lambda: load(num_neighbors=3), TypeError, "num_neighbors"),
    (lambda: load(num_neighbors=[]), ValueError, "at least one hop"),
    (lambda: load(num_neighbors=[-2]), ValueError, "-2"),
    (lambda: load(num_neighbors=[1.5]), TypeError, "1.5"),
    (lambda: load(num_neighbors={RELATION: [1]}), ValueError, "unknown"),
    (lambda: load(batch_size=0), ValueError, "batch_size"),
    (lambda: load(batch_size="8"), TypeError, "batch_size"),
    (lambda: load(input_nodes=[3]), ValueError, "node 3"),
    (lambda: load(input_nodes=[-1]), ValueError, "-1"),
    (lambda: load(input_nodes="train"), TypeError, "input_nodes"),
    (lambda: load(shuffle="yes"), TypeError, "shuffle"),
    (lambda: load(seed=-1), ValueError, "seed"),
    (lambda: load(num_workers=5000), kiln.LoaderError, "5000"),
    (lambda: load(rank=2, world_size=2), ValueError, "rank 2"),
    (lambda: load(uneven="ignore"), ValueError, "ignore"),
    (lambda: load(phase="fit"), ValueError, "fit"),
    (lambda: load(phase="test", shuffle=True), ValueError, "shuffle"),
    (lambda: load(disjoint=True), ValueError, "disjoint"),
    (lambda: load(subgraph_type="induced"), ValueError, "induced"),
    (lambda: load(output="tf"), ValueError, "output"),
    (lambda: load(transform=3), TypeError, "transform"),
    (lambda: load(pin_memory=True), TypeError, "pin_memory"),
    (lambda: kiln.NeighborLoader(EDGES, [2]), TypeError, "Data or HeteroData"),
    (lambda: kiln.NeighborLoader(make(), [2], output="numpy").load_state_dict({}), ValueError, "state_dict"),
    (lambda: kiln.NeighborLoader(make(), [2**31], replace=True, output="numpy"), ValueError, "num_neighbors"),
    (lambda: kiln.LinkNeighborLoader(make(), [1], neg_sampling="binary", neg_sampling_ratio=10**13), ValueError, "neg_sampling_ratio"),
    (lambda: kiln.NeighborLoader(make(), [2], output="numpy").set_epoch(-1), ValueError, "epoch"),
    (lambda: link(edge_label_index=[[0], [3]]), ValueError, "node 3"),
    (lambda: link(edge_label=[1, 2]), ValueError, "expected 3"),
    (lambda: link(edge_label=[1, 2, 3], neg_sampling="binary"), ValueError, "edge_label"),
    (lambda: link(neg_sampling="all"), ValueError, "all"),
    (lambda: link(neg_sampling="binary", neg_sampling_ratio=0.5), TypeError, "neg_sampling_ratio"),
    (lambda: link(exclude="all"), ValueError, "exclude"),
    (lambda: link(output="dgl"), (ValueError, ImportError), "dgl"),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_wrong_arguments_are_exceptions(case):
    call, expected, message = CASES[case]
    with pytest.raises(expected, match=re.escape(message)):
        call()


def test_the_exceptions_have_one_base():
    assert all(issubclass(error, kiln.KilnError) for error in (kiln.DataError, kiln.LoaderError, kiln.ForkError))


def test_values_that_are_changed_after_the_check_are_errors():
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0], np.uint32)
    loader = kiln.NeighborLoader(kiln.Dataset.from_arrays(csc=(indptr, indices)), [1], output="numpy")
    indices[0] = 9
    with pytest.raises(kiln.LoaderError, match="9"):
        list(loader)
