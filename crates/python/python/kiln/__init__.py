"""kiln: fast neighbour sampling for graph neural networks, for users of NumPy, PyTorch, PyG and DGL.

`Dataset` holds a graph with features, targets and a split. `NeighborLoader` and `LinkNeighborLoader` sample minibatches of it in
threads of Rust. The names of arguments and of a batch's attributes are those of PyG.
"""

from ._dataset import Dataset
from ._kiln import DataError, ForkError, KilnError, LoaderError, __version__
from ._loader import Batch, LinkNeighborLoader, NeighborLoader

__all__ = [
    "Batch",
    "DataError",
    "Dataset",
    "ForkError",
    "KilnError",
    "LinkNeighborLoader",
    "LoaderError",
    "NeighborLoader",
    "__version__",
]
