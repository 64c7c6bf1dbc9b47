//! Helpers to launch kernels: memory of their arguments, sizes of their vectors, and element types.

use std::cell::Cell;

use burn::tensor::{Bytes, DType, Device, Int, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use bytemuck::Pod;
use cubecl::calculate_cube_count_elemwise;
use cubecl::ir::ElemType;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::Strides;
use cubecl::zspace::metadata::Metadata;
use cubecl::{MemoryPoolKind, MemoryScope};

use crate::counts::count_read;
use crate::device::error::{DeviceError, UploadError};

/// A matrix whose columns are contiguous; there may be gaps between rows.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    tensor: CubeTensor,
    /// The number of values from the start of a row to the start of the next one.
    pub(super) stride: usize,
}

impl Rows {
    /// Returns the rows of a tensor. Copies the tensor if its columns are not contiguous.
    pub(super) fn of(tensor: CubeTensor) -> Self {
        let in_line = tensor.meta.strides()[1] == 1 && !tensor.meta.is_tiled();
        let tensor = if in_line { tensor } else { into_contiguous(tensor) };
        let stride = tensor.meta.strides()[0];
        Self { tensor, stride }
    }

    /// Creates uninitialised rows without gaps on the device of the tensor `like`.
    pub(super) fn new(like: &CubeTensor, n_rows: usize, width: usize, dtype: DType) -> Self {
        Self::of(new_tensor(like, Shape::new([n_rows, width]), dtype))
    }

    pub(super) fn tensor(&self) -> &CubeTensor {
        &self.tensor
    }

    pub(super) fn into_tensor(self) -> CubeTensor {
        self.tensor
    }

    pub(super) fn n_rows(&self) -> usize {
        self.tensor.meta.shape()[0]
    }

    pub(super) fn width(&self) -> usize {
        self.tensor.meta.shape()[1]
    }

    /// A view of `n` matrices of `n_rows` neighbouring rows each, `[n, n_rows, width]`. The first begins at row `first`.
    ///
    /// # Panics
    /// Panics if the rows exceed the tensor's memory.
    pub(super) fn parts(&self, first: usize, n: usize, n_rows: usize) -> CubeTensor {
        let CubeTensor { client, handle, device, dtype, .. } = &self.tensor;
        let n_bytes = dtype.size() as u64;
        let n_values = (n * n_rows).saturating_sub(1) * self.stride + self.width();
        let handle = bytes_of(handle, (first * self.stride) as u64 * n_bytes, n_values as u64 * n_bytes);
        let shape = Shape::new([n, n_rows, self.width()]);
        let strides = Strides::new(&[n_rows * self.stride, self.stride, 1]);
        CubeTensor::new(client.clone(), handle, Metadata::new(shape, strides), device.clone(), *dtype)
    }

    /// A view of `n` ranges of equally many neighbouring columns, `[n, n_rows, width / n]`.
    pub(super) fn column_parts(&self, n: usize) -> CubeTensor {
        let CubeTensor { client, handle, device, dtype, .. } = self.tensor.clone();
        let width = self.width() / n;
        let shape = Shape::new([n, self.n_rows(), width]);
        let strides = Strides::new(&[width, self.stride, 1]);
        CubeTensor::new(client, handle, Metadata::new(shape, strides), device, dtype)
    }

    /// The memory as a kernel argument of vectors, including the gaps between rows.
    pub(super) fn buffer(&self, vector_size: usize) -> BufferArg {
        let n_values = match self.n_rows() {
            0 => 0,
            n_rows => (n_rows - 1) * self.stride + self.width(),
        };
        argument(&self.tensor, n_values, vector_size)
    }

    /// The largest vector size that the device reads at once and that divides the stride and all of `columns`.
    pub(super) fn vector_size(&self, columns: &[usize]) -> usize {
        vector_size(&self.tensor, &[&[self.stride], columns].concat())
    }
}

/// A small tensor on a device, which provides its CubeCL client, or `None` if CubeCL has no runtime for the device.
pub(crate) fn anchor(device: &Device) -> Option<CubeTensor> {
    let anchor = Tensor::<1, Int>::empty([1], (&device.clone().inner(), DType::U32));
    anchor.try_into_primitive::<CubeBackend>().ok()
}

/// Converts an array to an integer tensor.
pub(crate) fn int_tensor(array: CubeTensor) -> Tensor<1, Int> {
    Tensor::from_primitive::<CubeBackend>(array)
}

/// Converts an array to a float tensor.
pub(crate) fn float_tensor(array: CubeTensor) -> Tensor<1> {
    Tensor::from_primitive::<CubeBackend>(array)
}

/// Creates a contiguous, uninitialised tensor on the device of the tensor `like`.
pub(super) fn new_tensor(like: &CubeTensor, shape: Shape, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, dtype)
}

/// The largest vector size that the device reads at once from this tensor's memory and that divides all of `divided`.
pub(super) fn vector_size(tensor: &CubeTensor, divided: &[usize]) -> usize {
    let n_bytes = tensor.dtype.size();
    // A view of a larger tensor may start at any value, so its offset must be a multiple of the size, too.
    let first = tensor.handle.offset_start.unwrap_or(0) as usize / n_bytes;
    tensor
        .client
        .io_optimized_vector_sizes(n_bytes)
        .filter(|size: &usize| {
            first.is_multiple_of(*size) && divided.iter().all(|values| values.is_multiple_of(*size))
        })
        .max()
        .unwrap_or(1)
}

/// A number of units that exceeds the size of any cube, so that CubeCL chooses the largest cube.
const MANY_UNITS: usize = 1 << 20;

/// The number and the size of the cubes that run at least `n_units` units on the device of a tensor. The cubes of a kernel
/// always have the same size, because it is compiled for each size.
pub(super) fn units(tensor: &CubeTensor, n_units: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&tensor.client, MANY_UNITS);
    (calculate_cube_count_elemwise(&tensor.client, n_units, dim), dim)
}

/// The number of units of a small cube.
const SMALL_CUBE: usize = 64;

/// Same as [`units`], but with small cubes, for units that read whole rows: the few rows of a batch's seeds are then
/// distributed over more multiprocessors. A multiprocessor holds many small cubes at once.
pub(super) fn long_units(tensor: &CubeTensor, n_units: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&tensor.client, SMALL_CUBE);
    (calculate_cube_count_elemwise(&tensor.client, n_units, dim), dim)
}

/// Launches a kernel with `$n_units` units on the device of a tensor.
macro_rules! launch_units {
    ($kernel:ident, $like:expr, $n_units:expr, $($argument:expr),+) => {
        launch::launch_cubes!(units, $kernel, $like, $n_units, $($argument),+)
    };
}

/// Same as [`launch_units!`], for [`long_units`].
macro_rules! launch_long_units {
    ($kernel:ident, $like:expr, $n_units:expr, $($argument:expr),+) => {
        launch::launch_cubes!(long_units, $kernel, $like, $n_units, $($argument),+)
    };
}

macro_rules! launch_cubes {
    ($cubes:ident, $kernel:ident, $like:expr, $n_units:expr, $($argument:expr),+) => {{
        let like: &CubeTensor = $like;
        let n_units: usize = $n_units;
        launch::launch_kernel!($kernel, like, n_units, launch::$cubes(like, n_units), $($argument),+)
    }};
}

/// Launches a kernel, perhaps of a type, with a number of units, the number and the size of the cubes, and arguments. The
/// arguments are evaluated first, so that [`take_address`] knows all of them.
macro_rules! launch_kernel {
    (@bind ($($launch:tt)*) [$($bound:ident)*] $next:expr $(, $rest:expr)*) => {{
        let argument = $next;
        launch::launch_kernel!(@bind ($($launch)*) [$($bound)* argument] $($rest),*)
    }};
    (@bind ($kernel:ident [$($of:ty)?] $like:ident $n_units:ident $cubes:ident) [$($bound:ident)*]) => {{
        let (count, dim) = $cubes;
        let address = launch::take_address($n_units);
        $kernel::launch $(::<$of>)? (&$like.client, count, dim, address, $($bound),*)
    }};
    ($kernel:ident $([$of:ty])?, $like:expr, $n_units:expr, $cubes:expr, $($argument:expr),+) => {{
        let like: &CubeTensor = $like;
        let n_units: usize = $n_units;
        let cubes: (CubeCount, CubeDim) = $cubes;
        launch::launch_kernel!(@bind ($kernel [$($of)?] like n_units cubes) [] $($argument),+)
    }};
}

pub(super) use launch_cubes;
pub(super) use launch_kernel;
pub(super) use launch_long_units;
pub(super) use launch_units;

thread_local! {
    /// The length of the longest array that the next launch of the thread can address.
    static LONGEST: Cell<usize> = const { Cell::new(0) };
}

/// Lets the next kernel that this thread launches address `n_values` values. Arrays that are arguments of the launch need no
/// call.
pub(super) fn reach(n_values: usize) {
    LONGEST.set(LONGEST.get().max(n_values));
}

/// Returns the integer type in which a kernel can address all values of its arguments, which were created since the launch
/// before, and number its units.
pub(super) fn take_address(n_units: usize) -> AddressType {
    AddressType::from_len(LONGEST.take().max(n_units))
}

/// Returns a contiguous tensor as a kernel argument.
pub(super) fn buffer(tensor: &CubeTensor) -> BufferArg {
    vectors(tensor, 1)
}

/// Same as [`buffer`], but as vectors of `vector_size` values.
pub(super) fn vectors(tensor: &CubeTensor, vector_size: usize) -> BufferArg {
    argument(tensor, tensor.meta.num_elements(), vector_size)
}

/// The first `n_values` values of a tensor's memory as a kernel argument of vectors. Only this function creates kernel
/// arguments.
///
/// The handle is trimmed to the declared length. Inside a kernel, `len()` of a slice is the size of the handle divided
/// by the size of an element (CubeCL 0.11), not the length that the launcher declares. A handle can be longer than its
/// tensor: on CUDA, CubeCL rounds an upload up to a multiple of 512 bytes. Without trimming, a kernel that stops at
/// `len()` would read uninitialised memory behind the values and write past the end of its output.
#[allow(clippy::disallowed_methods, reason = "the only place that creates an argument")]
fn argument(tensor: &CubeTensor, n_values: usize, vector_size: usize) -> BufferArg {
    reach(n_values);
    let n_vectors = n_values / vector_size;
    let n_bytes = (n_vectors * vector_size * tensor.dtype.size()) as u64;
    let handle = bytes_of(&tensor.handle, 0, n_bytes);
    // SAFETY: `bytes_of` asserts that the tensor's memory has at least this many bytes.
    unsafe { BufferArg::from_raw_parts(handle, n_vectors) }
}

/// The element type of a float tensor as a kernel parameter.
///
/// # Panics
/// Panics for types other than f32, f16 and bf16.
pub(super) fn element(tensor: &CubeTensor) -> ElemType {
    match tensor.dtype {
        DType::F32 => f32::elem_type_native(),
        DType::F16 => half::f16::elem_type_native(),
        DType::BF16 => half::bf16::elem_type_native(),
        other => panic!("no kernel supports the element type {other:?}"),
    }
}

/// The integer type of an array of ids as a kernel parameter: u32 for nodes, i64 for edges.
pub(super) fn id_type(ids: &CubeTensor) -> ElemType {
    match ids.dtype.size() {
        8 => i64::elem_type_native(),
        _ => u32::elem_type_native(),
    }
}

/// Returns the number of values of an array.
pub(super) fn length(array: &CubeTensor) -> usize {
    array.meta.num_elements()
}

/// Creates an uninitialised array of i32 on the device of the tensor `like`.
pub(super) fn new_array(like: &CubeTensor, n_values: usize) -> CubeTensor {
    new_tensor(like, Shape::new([n_values]), DType::I32)
}

/// A view of the first `n_values` values of an array.
pub(crate) fn prefix(array: &CubeTensor, n_values: usize) -> CubeTensor {
    values_from(array, 0, n_values)
}

/// A view of `n_values` values of an array, beginning at `start`.
pub(super) fn values_from(array: &CubeTensor, start: usize, n_values: usize) -> CubeTensor {
    let n_bytes = array.dtype.size() as u64;
    let handle = bytes_of(&array.handle, start as u64 * n_bytes, n_values as u64 * n_bytes);
    let client = array.client.clone();
    let device = array.device.clone();
    CubeTensor::new_contiguous(client, device, Shape::new([n_values]), handle, array.dtype)
}

/// Returns a sub-range of a buffer in a device's memory.
///
/// # Panics
/// Panics if the range exceeds the buffer.
fn bytes_of(handle: &Handle, start: u64, n_bytes: u64) -> Handle {
    let n_held = handle.size_in_used();
    assert!(
        start + n_bytes <= n_held,
        "range {start}..{} exceeds the buffer of {n_held} bytes",
        start + n_bytes
    );
    handle.clone().offset_start(start).offset_end(n_held - start - n_bytes)
}

/// Copies numbers to the device of a tensor, as an i32 array.
pub(super) fn upload(like: &CubeTensor, values: &[u32]) -> CubeTensor {
    upload_as(like, values, DType::I32)
}

/// Copies numbers to the device of a tensor, as an array of the element type `dtype`, which must have the layout of
/// `T`.
pub(crate) fn upload_as<T: Pod>(like: &CubeTensor, values: &[T], dtype: DType) -> CubeTensor {
    let handle = like.client.create_from_slice(bytemuck::cast_slice(values));
    let shape = Shape::new([values.len()]);
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// The number of bytes that are copied at once.
pub(super) const PIECE_BYTES: usize = 64 << 20;

/// Same as [`upload_as`], but copies a large array in pieces, so that at most one piece of a memory-mapped array is
/// held in the host's memory. `what` names the array in errors.
///
/// # Errors
/// Returns [`UploadError::TooLarge`] if the device cannot allocate the array, and [`UploadError::Device`] if it fails.
pub(super) fn upload_large<T: Pod>(
    like: &CubeTensor,
    what: &'static str,
    values: &[T],
    dtype: DType,
) -> Result<CubeTensor, UploadError> {
    let pieces = bytemuck::cast_slice::<T, u8>(values).chunks(PIECE_BYTES);
    let pieces = pieces.map(|piece| Ok(Bytes::from_bytes_vec(piece.to_vec())));
    upload_pieces(like, what, Shape::new([values.len()]), dtype, pieces)
}

/// Copies an iterator of pieces to a new tensor, which the pieces must fill. `what` names the tensor in errors.
///
/// # Errors
/// Returns [`UploadError::TooLarge`] if the device cannot allocate the tensor, [`UploadError::Device`] if it fails, and
/// the error of a piece.
///
/// # Panics
/// Panics if the pieces do not fill the tensor exactly.
pub(super) fn upload_pieces(
    like: &CubeTensor,
    what: &'static str,
    shape: Shape,
    dtype: DType,
    pieces: impl Iterator<Item = Result<Bytes, UploadError>>,
) -> Result<CubeTensor, UploadError> {
    let n_bytes = (shape.num_elements() * dtype.size()) as u64;
    let most = like.client.properties().memory.max_page_size;
    if most < n_bytes {
        return Err(UploadError::TooLarge { what, n_bytes, most });
    }
    let tensor = new_tensor(like, shape, dtype);
    fill(&tensor, what, pieces)?;
    Ok(tensor)
}

/// Copies an iterator of pieces to a tensor, which the pieces must fill. `what` names the tensor in errors.
///
/// # Errors
/// Returns [`UploadError::Device`] if the device fails, and the error of a piece.
///
/// # Panics
/// Panics if the pieces do not fill the tensor exactly.
pub(super) fn fill(
    tensor: &CubeTensor,
    what: &'static str,
    pieces: impl Iterator<Item = Result<Bytes, UploadError>>,
) -> Result<(), UploadError> {
    let n_bytes = (tensor.meta.num_elements() * tensor.dtype.size()) as u64;
    let mut n_done = 0;
    for piece in pieces {
        let piece = piece?;
        let n_piece = piece.len() as u64;
        let end = n_done + piece.len() as u64;
        assert!(end <= n_bytes, "the pieces of {what} have at least {end} bytes, expected {n_bytes}");
        let place = bytes_of(&tensor.handle, n_done, n_piece);
        tensor.client.write(&place, piece);
        // Without this wait, pieces that are not sent yet would accumulate in the host's memory.
        wait(tensor)?;
        n_done = end;
    }
    assert_eq!(n_done, n_bytes, "the pieces of {what} do not fill the tensor");
    Ok(())
}

/// Returns the size of the largest page in the pools of the device of a tensor.
pub(crate) fn largest_page_bytes(like: &CubeTensor) -> u64 {
    let report = like.client.memory_report(MemoryScope::Device);
    let pools = report.streams.into_iter().flat_map(|stream| stream.pools.dynamic);
    let page_bytes = pools.filter(|pool| 0 < pool.pages).map(|pool| match pool.kind {
        MemoryPoolKind::Sliced { page_size, .. } | MemoryPoolKind::Adaptive { page_size, .. } => page_size,
        MemoryPoolKind::Exclusive { .. } | MemoryPoolKind::Direct | MemoryPoolKind::Persistent => {
            pool.largest_alloc
        }
    });
    page_bytes.max().unwrap_or(0)
}

/// Waits until the device has written a tensor.
///
/// # Errors
/// Returns [`DeviceError::Failed`] if the device could not write it, for example because an allocation failed.
pub(crate) fn wait(tensor: &CubeTensor) -> Result<(), DeviceError> {
    let waited = cubecl::future::block_on(tensor.client.sync_buffers([&tensor.handle]));
    waited.map_err(|error| DeviceError::Failed { reason: error.to_string() })
}

/// Reads arrays of 32-bit numbers back in one transfer, after all kernels that were launched before.
///
/// # Panics
/// Panics if the device fails. Failures of earlier kernels surface here, too.
pub(super) fn read<const N: usize>(arrays: [&CubeTensor; N]) -> [Vec<u32>; N] {
    let bytes = read_bytes(&arrays);
    std::array::from_fn(|idx| values(&bytes[idx], arrays[idx]))
}

/// Same as [`read`], but for one or more arrays of any type, as bytes that [`values`] converts.
///
/// # Panics
/// Same as [`read`]. Also panics if there are no arrays.
pub(super) fn read_bytes(arrays: &[&CubeTensor]) -> Vec<Bytes> {
    count_read(arrays.iter().map(|array| n_bytes(array) as u64).sum());
    let handles = arrays.iter().map(|array| array.handle.clone()).collect();
    arrays[0].client.read(handles).expect("the device should return the data")
}

/// The values of an array whose bytes were read. Bytes behind the last value, which exist because the device rounds
/// allocations up, are ignored.
pub(super) fn values<T: Pod>(bytes: &Bytes, array: &CubeTensor) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&bytes[..n_bytes(array)])
}

fn n_bytes(array: &CubeTensor) -> usize {
    array.dtype.size() * length(array)
}

/// Reads the last value of an array.
pub(super) fn read_last(array: &CubeTensor) -> u32 {
    let [last] = read([&values_from(array, length(array) - 1, 1)]);
    last[0]
}
