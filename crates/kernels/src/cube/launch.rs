//! What kernels need to be launched: their arguments' memory, the width of their vectors, and their types.

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

use crate::counts::count_read;
use crate::device::error::{DeviceError, UploadError};

/// A matrix whose rows lie in line, each so many values after the one before.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    tensor: CubeTensor,
    /// Values from the start of a row to the start of the next.
    pub(super) stride: usize,
}

impl Rows {
    /// Copies the tensor if its columns are not one after the other.
    pub(super) fn of(tensor: CubeTensor) -> Self {
        let in_line = tensor.meta.strides()[1] == 1 && !tensor.meta.is_tiled();
        let tensor = if in_line { tensor } else { into_contiguous(tensor) };
        let stride = tensor.meta.strides()[0];
        Self { tensor, stride }
    }

    /// New rows on the device of a tensor, one after the other, not yet written.
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

    /// The values as vectors of so many, the gaps between rows included.
    pub(super) fn buffer(&self, vector_size: usize) -> BufferArg {
        let n_values = match self.n_rows() {
            0 => 0,
            n_rows => (n_rows - 1) * self.stride + self.width(),
        };
        argument(&self.tensor, n_values, vector_size)
    }

    /// The largest vector that the device reads at once and whose places divide rows at these columns.
    pub(super) fn vector_size(&self, columns: &[usize]) -> usize {
        vector_size(&self.tensor, &[&[self.stride], columns].concat())
    }
}

/// A tensor on a device that CubeCL has a runtime for, to find its client by; `None` of other devices.
pub(crate) fn anchor(device: &Device) -> Option<CubeTensor> {
    let anchor = Tensor::<1, Int>::empty([1], (&device.clone().inner(), DType::U32));
    anchor.try_into_primitive::<CubeBackend>().ok()
}

/// An array as a tensor of indices.
pub(crate) fn int_tensor(array: CubeTensor) -> Tensor<1, Int> {
    Tensor::from_primitive::<CubeBackend>(array)
}

/// An array as a tensor of floats.
pub(crate) fn float_tensor(array: CubeTensor) -> Tensor<1> {
    Tensor::from_primitive::<CubeBackend>(array)
}

/// A new tensor on the device of another, its values one after the other, not yet written.
pub(super) fn new_tensor(like: &CubeTensor, shape: Shape, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, dtype)
}

/// The largest vector that the device reads at once from this tensor's memory and that divides all of these.
pub(super) fn vector_size(tensor: &CubeTensor, divided: &[usize]) -> usize {
    let n_bytes = tensor.dtype.size();
    // A view of a part of a larger tensor may start anywhere.
    let first = tensor.handle.offset_start.unwrap_or(0) as usize / n_bytes;
    let fits = |size: &usize| {
        first.is_multiple_of(*size) && divided.iter().all(|values| values.is_multiple_of(*size))
    };
    tensor.client.io_optimized_vector_sizes(n_bytes).filter(fits).max().unwrap_or(1)
}

/// More units than any cube has.
const MANY_UNITS: usize = 1 << 20;

/// How many cubes of how many units run for so many units on the device of a tensor, a few more perhaps. Cubes are of one
/// size, which a compiled kernel is made for, however many units there are.
pub(super) fn units(tensor: &CubeTensor, n_units: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&tensor.client, MANY_UNITS);
    (calculate_cube_count_elemwise(&tensor.client, n_units, dim), dim)
}

/// Launches a kernel of so many units on the device of a tensor.
macro_rules! launch_units {
    ($kernel:ident, $like:expr, $n_units:expr, $($argument:expr),+) => {{
        let like: &CubeTensor = $like;
        let (count, dim) = launch::units(like, $n_units);
        $kernel::launch(&like.client, count, dim, $($argument),+)
    }};
}

pub(super) use launch_units;

/// The numbers that places in all of these need. A unit for each value needs no more.
pub(super) fn address(tensors: &[&CubeTensor]) -> AddressType {
    // Of a view with gaps the places count, of a row that stands for many the values.
    let n_places = |tensor: &&CubeTensor| {
        tensor.meta.num_elements().max(tensor.handle.size() as usize / tensor.dtype.size())
    };
    AddressType::from_len(tensors.iter().map(n_places).max().unwrap_or(0))
}

/// A tensor whose values are one after the other, as an argument.
pub(super) fn buffer(tensor: &CubeTensor) -> BufferArg {
    vectors(tensor, 1)
}

/// The same as vectors of so many.
pub(super) fn vectors(tensor: &CubeTensor, vector_size: usize) -> BufferArg {
    argument(tensor, tensor.meta.num_elements(), vector_size)
}

/// The first values of a tensor's memory as a kernel's argument of vectors. Every argument is made here.
///
/// The handle is trimmed to the declared length. Inside a kernel, `len()` of a slice is the size of the handle divided by
/// the size of an element (CubeCL 0.11), whatever length the launcher declares; and a handle can be longer than its
/// tensor: on CUDA, CubeCL rounds an upload up to a multiple of 512 bytes. A kernel that stops at `len()` would read
/// uninitialized memory behind the values and write past the end of its output.
#[allow(clippy::disallowed_methods, reason = "the only place that makes an argument")]
fn argument(tensor: &CubeTensor, n_values: usize, vector_size: usize) -> BufferArg {
    let n_vectors = n_values / vector_size;
    let n_bytes = (n_vectors * vector_size * tensor.dtype.size()) as u64;
    let handle = bytes_of(&tensor.handle, 0, n_bytes);
    // SAFETY: `bytes_of` asserts that the tensor's memory has as many bytes.
    unsafe { BufferArg::from_raw_parts(handle, n_vectors) }
}

/// The element type as kernels call it.
///
/// # Panics
/// For types that no kernel has.
pub(super) fn element(tensor: &CubeTensor) -> ElemType {
    match tensor.dtype {
        DType::F32 => f32::elem_type_native(),
        DType::F16 => half::f16::elem_type_native(),
        DType::BF16 => half::bf16::elem_type_native(),
        other => panic!("no kernel has the element type {other:?}"),
    }
}

/// Number of values of an array.
pub(super) fn length(array: &CubeTensor) -> usize {
    array.meta.num_elements()
}

/// A new array of indices on the device of a tensor, not yet written.
pub(super) fn new_array(like: &CubeTensor, n_values: usize) -> CubeTensor {
    new_tensor(like, Shape::new([n_values]), DType::I32)
}

/// The first values of an array, where they are.
pub(super) fn prefix(array: &CubeTensor, n_values: usize) -> CubeTensor {
    values_from(array, 0, n_values)
}

/// So many values of an array from a place on, where they are.
pub(super) fn values_from(array: &CubeTensor, start: usize, n_values: usize) -> CubeTensor {
    let n_bytes = array.dtype.size() as u64;
    let handle = bytes_of(&array.handle, start as u64 * n_bytes, n_values as u64 * n_bytes);
    let (client, device) = (array.client.clone(), array.device.clone());
    CubeTensor::new_contiguous(client, device, Shape::new([n_values]), handle, array.dtype)
}

/// A part of a device's memory.
///
/// # Panics
/// When the part does not lie within the memory.
fn bytes_of(handle: &Handle, start: u64, n_bytes: u64) -> Handle {
    let n_held = handle.size_in_used();
    assert!(start + n_bytes <= n_held, "bytes {start}..{} of memory of {n_held} bytes", start + n_bytes);
    handle.clone().offset_start(start).offset_end(n_held - start - n_bytes)
}

/// Copies numbers to the device of a tensor, as an index tensor.
pub(super) fn upload(like: &CubeTensor, values: &[u32]) -> CubeTensor {
    upload_as(like, values, DType::I32)
}

/// Copies numbers to the device of a tensor, as an array of that element type, which is theirs.
pub(crate) fn upload_as<T: Pod>(like: &CubeTensor, values: &[T], dtype: DType) -> CubeTensor {
    let handle = like.client.create_from_slice(bytemuck::cast_slice(values));
    let shape = Shape::new([values.len()]);
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// Bytes that are copied at once.
pub(super) const PIECE_BYTES: usize = 64 << 20;

/// The same for an array of any size, piece by piece; of what is mapped, no more than a piece is copied in memory.
///
/// # Errors
/// [`UploadError::TooLarge`] and [`UploadError::Device`].
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

/// Copies bytes that come in pieces to a new tensor, which they fill.
///
/// # Errors
/// [`UploadError::TooLarge`], [`UploadError::Device`], and what a piece says.
///
/// # Panics
/// When the pieces do not fill the tensor.
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
    let mut n_done = 0;
    for piece in pieces {
        let piece = piece?;
        let (n_piece, end) = (piece.len() as u64, n_done + piece.len() as u64);
        assert!(end <= n_bytes, "{what}: pieces of {end} bytes for {n_bytes}");
        let place = bytes_of(&tensor.handle, n_done, n_piece);
        like.client.write(&place, piece);
        // Waits for the copy: pieces that have not been sent would pile up.
        wait(&tensor)?;
        n_done = end;
    }
    assert_eq!(n_done, n_bytes, "{what}: bytes of all pieces");
    Ok(tensor)
}

/// Waits until the device has written a tensor.
///
/// # Errors
/// [`DeviceError::Failed`] where it could not, for want of memory say.
pub(crate) fn wait(tensor: &CubeTensor) -> Result<(), DeviceError> {
    let waited = cubecl::future::block_on(tensor.client.sync_buffers([&tensor.handle]));
    waited.map_err(|error| DeviceError::Failed { reason: error.to_string() })
}

/// Reads arrays of 32-bit numbers back, all at once, which waits for all that was launched before.
///
/// # Panics
/// When the device fails: kernels' failures surface here.
pub(super) fn read<const N: usize>(arrays: [&CubeTensor; N]) -> [Vec<u32>; N] {
    let bytes = read_bytes(&arrays);
    std::array::from_fn(|idx| values(&bytes[idx], arrays[idx]))
}

/// The same for arrays of any numbers, of which there is one at least; see [`values`].
///
/// # Panics
/// As [`read`].
pub(super) fn read_bytes(arrays: &[&CubeTensor]) -> Vec<Bytes> {
    count_read(arrays.iter().map(|array| n_bytes(array) as u64).sum());
    let handles = arrays.iter().map(|array| array.handle.clone()).collect();
    arrays[0].client.read(handles).expect("a device should give back what it holds")
}

/// The values of an array whose bytes were read; there may be more bytes, as memory is given out in steps.
pub(super) fn values<T: Pod>(bytes: &Bytes, array: &CubeTensor) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&bytes[..n_bytes(array)])
}

fn n_bytes(array: &CubeTensor) -> usize {
    array.dtype.size() * length(array)
}

/// The last value of each array, read as by [`read`].
pub(super) fn read_last<const N: usize>(arrays: [&CubeTensor; N]) -> [u32; N] {
    let last = arrays.map(|array| values_from(array, length(array) - 1, 1));
    read(last.each_ref()).map(|values| values[0])
}
