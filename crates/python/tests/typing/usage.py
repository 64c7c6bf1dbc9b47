"""A program whose types `mypy --strict` checks: it is not run."""

from typing import Any

import numpy as np
import numpy.typing as npt

import kiln


def build() -> kiln.Dataset:
    edges: npt.NDArray[np.int64] = np.array([[0, 1], [1, 0]])
    data = kiln.Dataset.from_arrays(edges, x=np.zeros((2, 3), np.float32), y=[0, 1], train=[0], val=[1])
    data.save("set")
    return kiln.Dataset.open("set")


def train(data: kiln.Dataset) -> dict[str, Any]:
    loader = kiln.NeighborLoader(data, num_neighbors=[10, 5], input_nodes=data.train, batch_size=16, shuffle=True)
    loader.set_epoch(3)
    n_batches: int = len(loader)
    for batch in loader:
        print(batch.n_id, n_batches)
    fanouts = {edge_type: [3, 2] for edge_type in data.edge_types}
    links = kiln.LinkNeighborLoader(data, fanouts, neg_sampling="binary", neg_sampling_ratio=2, output="numpy")
    links.load_state_dict(links.state_dict())
    names: list[str] = data.class_names
    features: npt.NDArray[Any] | None = data.x()
    print(names, features)
    return loader.state_dict()


def fail() -> str:
    try:
        kiln.Dataset.open("nothing")
    except kiln.DataError as error:
        return str(error)
    except kiln.KilnError:
        raise
    return ""
