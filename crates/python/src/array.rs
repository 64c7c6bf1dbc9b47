//! Arrays of NumPy as those of kiln, and back, without a copy.

use std::any::Any;
use std::sync::Arc;

use bytemuck::Pod;
use kiln::feature::{FeatureArray, FeatureBuffer};
use kiln::graph::{NodeId, SharedArray};
use numpy::ndarray::{ArrayView, Dim, IxDynImpl};
use numpy::{Element, IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The memory of an array of NumPy that views it, which lives as long as the view.
#[pyclass(frozen, module = "kiln._kiln")]
struct Memory {
    _owner: Box<dyn Any + Send + Sync>,
}

/// Returns the values of an array of NumPy without a copy. The array is kept alive by the result. `None` if the array has other
/// elements, or is not contiguous.
fn share<T: Element + Pod>(array: &Bound<'_, PyAny>) -> Option<SharedArray<T>> {
    let array = array.cast::<PyArrayDyn<T>>().ok()?;
    let values = array.data();
    if !array.is_c_contiguous() || !values.is_aligned() {
        return None;
    }
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(array.clone().into_any().unbind());
    // SAFETY: the array has this number of contiguous and aligned values, and its owner keeps it alive. The documentation of the
    // package asks users not to write to arrays of a dataset.
    Some(unsafe { SharedArray::foreign(values, array.len(), owner) })
}

/// Returns an array of NumPy with the values, without a copy. It cannot be written to.
pub(crate) fn view<'py, T: Element + Pod + Send + Sync>(
    py: Python<'py>,
    values: &SharedArray<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let shape: Dim<IxDynImpl> = Dim(shape);
    let elements = ArrayView::from_shape(shape, values)
        .map_err(|error| PyValueError::new_err(format!("the array has another shape: {error}")))?;
    let owner = Bound::new(py, Memory { _owner: Box::new(values.clone()) })?;
    // SAFETY: the view keeps `Memory` alive, which owns a clone of the values. They stay in place, and are not written to.
    let array = unsafe { PyArrayDyn::borrow_from_array(&elements, owner.into_any()) };
    let flags = PyDict::new(py);
    flags.set_item("write", false)?;
    array.call_method("setflags", (), Some(&flags))?;
    Ok(array.into_any())
}

/// Returns an array of NumPy that owns the values, without a copy.
pub(crate) fn owned<T: Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyArray1<T>> {
    values.into_pyarray(py)
}

/// Returns an array of NumPy that owns the values of rows, `[n, dim]`, without a copy. Values of bf16, which NumPy does not have,
/// are their bits as `uint16`.
pub(crate) fn owned_rows(py: Python<'_>, rows: FeatureBuffer, dim: usize) -> PyResult<Bound<'_, PyAny>> {
    match rows {
        FeatureBuffer::F32(values) => reshaped(owned(py, values), dim),
        FeatureBuffer::F16(values) => reshaped(owned(py, values), dim),
        FeatureBuffer::BF16(values) => reshaped(owned(py, bytemuck::cast_vec::<_, u16>(values)), dim),
        other => Err(PyTypeError::new_err(format!("rows of {} have no type in NumPy", other.dtype()))),
    }
}

/// Returns values in rows of `dim`, without a copy.
pub(crate) fn reshaped<'py, T: Element>(
    values: Bound<'py, PyArray1<T>>,
    dim: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let n_rows = values.len() / dim;
    shaped(values, [n_rows, dim])
}

/// Returns values as a matrix, without a copy.
pub(crate) fn shaped<'py, T: Element>(
    values: Bound<'py, PyArray1<T>>,
    shape: [usize; 2],
) -> PyResult<Bound<'py, PyAny>> {
    Ok(values.reshape(shape)?.into_any())
}

/// Returns a view of rows, `[n, dim]`; those of bf16 are their bits as `uint16`.
pub(crate) fn view_rows<'py>(
    py: Python<'py>,
    rows: &FeatureArray,
    dim: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = [rows.n_values() / dim, dim];
    match rows {
        FeatureArray::F32(values) => view(py, values, &shape),
        FeatureArray::F16(values) => view(py, values, &shape),
        FeatureArray::BF16(values) => view(py, &cast::<_, u16>(values.clone()), &shape),
        other => Err(PyTypeError::new_err(format!("rows of {} have no type in NumPy", other.dtype()))),
    }
}

/// Reads rows of float32, float16 or, as bits in `uint16`, bf16, without a copy.
pub(crate) fn rows(array: &Bound<'_, PyAny>, is_bf16: bool) -> PyResult<FeatureArray> {
    if is_bf16 {
        let bits: SharedArray<u16> =
            share(array).ok_or_else(|| wrong_elements(array, "contiguous uint16"))?;
        return Ok(FeatureArray::BF16(cast(bits)));
    }
    let of_f32 = share::<f32>(array).map(FeatureArray::F32);
    let rows = of_f32.or_else(|| share(array).map(FeatureArray::F16));
    rows.ok_or_else(|| wrong_elements(array, "contiguous float32 or float16"))
}

/// Reads numbers of one element type without a copy.
pub(crate) fn values<T: Element + Pod>(array: &Bound<'_, PyAny>, name: &str) -> PyResult<SharedArray<T>> {
    share(array).ok_or_else(|| wrong_elements(array, name))
}

/// Reads ids below 2^32: without a copy from `uint32` and `int32`, and otherwise from `int64` and `uint64`.
///
/// # Errors
/// Returns an exception for a negative or a larger id, and for other elements.
pub(crate) fn ids(array: &Bound<'_, PyAny>, what: &str) -> PyResult<SharedArray<u32>> {
    if let Some(ids) = share::<u32>(array) {
        return Ok(ids);
    }
    if let Some(ids) = share::<i32>(array) {
        return match ids.iter().position(|id| *id < 0) {
            Some(position) => Err(bad_id(what, position, ids[position])),
            // The bits of numbers that are not negative are the same.
            None => Ok(cast(ids)),
        };
    }
    if let Some(ids) = share::<i64>(array) {
        return narrow(&ids, what);
    }
    match share::<u64>(array) {
        Some(ids) => narrow(&ids, what),
        None => Err(wrong_elements(array, "contiguous int64, int32, uint64 or uint32")),
    }
}

/// Reads node ids ([`ids`]).
pub(crate) fn node_ids(array: &Bound<'_, PyAny>, what: &str) -> PyResult<SharedArray<NodeId>> {
    Ok(cast(ids(array, what)?))
}

/// Returns the same memory with elements of another type of the same size and alignment.
pub(crate) fn cast<T: Pod + Send + Sync, U: Pod>(values: SharedArray<T>) -> SharedArray<U> {
    let of_u: &[U] = bytemuck::cast_slice(&values);
    let first = of_u.as_ptr();
    let n_values = of_u.len();
    // SAFETY: `cast_slice` has checked size and alignment, and the array of `T` keeps the memory in place.
    unsafe { SharedArray::foreign(first, n_values, Arc::new(values)) }
}

fn narrow<T: Copy + std::fmt::Display + TryInto<u32>>(ids: &[T], what: &str) -> PyResult<SharedArray<u32>> {
    let mut narrowed = Vec::with_capacity(ids.len());
    for (position, id) in ids.iter().enumerate() {
        narrowed.push((*id).try_into().map_err(|_| bad_id(what, position, *id))?);
    }
    Ok(narrowed.into())
}

fn bad_id(what: &str, position: usize, id: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what}: entry {position} is {id}, expected an id from 0 to 4294967295"))
}

fn wrong_elements(array: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let got = match array.getattr("dtype") {
        Ok(dtype) => format!("an array of {dtype}"),
        Err(_) => format!("a {}", array.get_type()),
    };
    PyTypeError::new_err(format!("got {got}, expected an array of {expected}"))
}
