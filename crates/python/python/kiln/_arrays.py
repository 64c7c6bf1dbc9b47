"""Arrays of other libraries as contiguous arrays of NumPy, without a copy where their type fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def is_bfloat16(values: Any) -> bool:
    """Returns true for a tensor of PyTorch's bfloat16, which NumPy does not have."""
    return str(getattr(values, "dtype", "")) == "torch.bfloat16"


def to_numpy(values: Any, what: str) -> Array:
    """Returns the values of an array, a tensor or a list as an array of NumPy. Those of bfloat16 are their bits as uint16."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        if is_bfloat16(values):
            import torch

            return np.asarray(tensor.contiguous().view(torch.int16).numpy()).view(np.uint16)
        return np.asarray(tensor.numpy())
    array = np.asarray(values)
    if array.dtype == object:
        raise TypeError(f"{what}: got {type(values).__name__}, expected an array of numbers")
    return array


def ids(values: Any, what: str) -> Array:
    """Returns ids as a contiguous array of integers with one dimension."""
    array = to_numpy(values, what)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what}: got an array of {array.dtype}, expected integers")
    if array.ndim != 1:
        raise ValueError(f"{what}: got an array of shape {array.shape}, expected one dimension")
    if array.dtype.itemsize < 4:
        array = array.astype(np.int64)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def ids_or_mask(values: Any, n: int, what: str) -> Array:
    """Returns the ids of a list, or the positions at which a mask of `n` entries is true."""
    array = to_numpy(values, what)
    if array.dtype != np.bool_:
        return ids(array, what)
    if array.shape != (n,):
        raise ValueError(f"{what}: got a mask of shape {array.shape}, expected ({n},)")
    return np.flatnonzero(array)


def edge_pair(values: Any, what: str) -> tuple[Array, Array]:
    """Returns the sources and the destinations of `[2, n_edges]` or of a pair of arrays."""
    if isinstance(values, (tuple, list)) and len(values) == 2:
        srcs, dsts = values
    else:
        array = to_numpy(values, what)
        if array.ndim != 2 or array.shape[0] != 2:
            raise ValueError(f"{what}: got an array of shape {array.shape}, expected (2, n_edges)")
        srcs, dsts = array[0], array[1]
    return ids(srcs, f"{what}[0]"), ids(dsts, f"{what}[1]")


def rows(values: Any, what: str) -> tuple[Array, bool]:
    """Returns rows `[n, dim]` of float32 or float16, and whether they are the bits of bfloat16 as uint16."""
    array = to_numpy(values, what)
    bfloat16 = is_bfloat16(values)
    if array.ndim != 2:
        raise ValueError(f"{what}: got an array of shape {array.shape}, expected (n, dim)")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what}: got an array of {array.dtype}, expected numbers")
    if not bfloat16 and array.dtype not in (np.float32, np.float16):
        array = array.astype(np.float32)
    return np.ascontiguousarray(array), bfloat16


def contiguous(values: Any, dtype: npt.DTypeLike, what: str) -> Array:
    """Returns numbers with one dimension as a contiguous array of a type, if each of them is a value of the type."""
    array = to_numpy(values, what)
    if array.ndim != 1:
        raise ValueError(f"{what}: got an array of shape {array.shape}, expected one dimension")
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype, copy=False)
    if np.issubdtype(dtype, np.integer) and not np.array_equal(converted, array):
        raise ValueError(f"{what}: a value does not fit {np.dtype(dtype)}")
    return np.ascontiguousarray(converted)
