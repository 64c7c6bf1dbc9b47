//! What kernels need to be launched: their arguments' memory, the width of their vectors, and their types.

use burn::tensor::{Bytes, DType, Shape};
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
        finish(&tensor)?;
        n_done = end;
    }
    assert_eq!(n_done, n_bytes, "{what}: bytes of all pieces");
    Ok(tensor)
}

/// Waits until the device has written a tensor.
///
/// # Errors
/// [`DeviceError::Failed`] where it could not, for want of memory say.
pub(super) fn finish(tensor: &CubeTensor) -> Result<(), DeviceError> {
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

#[cfg(all(test, feature = "cube-cpu"))]
mod tests {
    use burn::tensor::{Device, Int, Tensor, TensorData};
    use burn_cubecl::CubeBackend;

    use super::*;
    use crate::cube::by_source::Transposed;
    use crate::cube::scan::running_sums;
    use crate::cube::segment_sum::Segments;

    /// An array whose handle is longer than its values, as CUDA's are, with garbage behind them.
    fn padded(values: &[u32]) -> CubeTensor {
        let any = Tensor::<1, Int>::from_data(TensorData::from([0]), &Device::cpu());
        let any = any.try_into_primitive::<CubeBackend>().expect("the device should be CubeCL's");
        let garbage = (0..100).map(|place| [1, 0, 7][place % 3]);
        let longer: Vec<u32> = values.iter().copied().chain(garbage).collect();
        let CubeTensor { handle, .. } = upload(&any, &longer);
        let shape = Shape::new([values.len()]);
        CubeTensor::new_contiguous(any.client.clone(), any.device.clone(), shape, handle, DType::I32)
    }

    #[test]
    fn arguments_end_with_the_declared_length() {
        for n_values in [0, 1, 340] {
            let array = padded(&vec![3; n_values]);
            assert_eq!(array.handle.size_in_used(), 4 * (n_values as u64 + 100));
            let BufferArg::Handle { handle } = buffer(&array) else { panic!("an argument of its own") };
            assert_eq!(handle.handle.size_in_used(), 4 * n_values as u64);
        }
        let pairs = vectors(&padded(&[3; 6]), 2);
        let BufferArg::Handle { handle } = &pairs else { panic!("an argument of its own") };
        assert_eq!((handle.handle.size_in_used(), pairs.len()), (24, 3));
    }

    #[test]
    fn rows_with_gaps_end_with_the_last_row() {
        let CubeTensor { client, device, handle, .. } = padded(&[0; 20]);
        let wide = CubeTensor::new_contiguous(client, device, Shape::new([4, 5]), handle, DType::F32);
        let mut narrow = wide;
        narrow.meta.shape[1] = 2;
        let BufferArg::Handle { handle } = Rows::of(narrow).buffer(1) else {
            panic!("an argument of its own")
        };
        assert_eq!(handle.handle.size_in_used(), 4 * (3 * 5 + 2));
    }

    #[test]
    fn edges_by_source_ignore_memory_behind_the_arrays() {
        let n_src = 90;
        let indptr: Vec<u32> = (0..=70).map(|dst| dst * 3).collect();
        let indices: Vec<u32> = (0..210).map(|edge| edge * 37 % n_src).collect();
        let listed = Transposed::list(&padded(&indptr), &padded(&indices), n_src as usize).read();
        let mut edges: Vec<u32> = (0..210).collect();
        edges.sort_by_key(|edge| indices[*edge as usize]);
        let starts = |src: u32| indices.iter().filter(|idx| **idx < src).count() as u32;
        let expected =
            [(0..=n_src).map(starts).collect(), edges.iter().map(|edge| edge / 3).collect(), edges];
        assert_eq!(listed, expected);
    }

    #[test]
    fn running_sums_ignore_memory_behind_the_values() {
        let values: Vec<u32> = (0..131).collect();
        let [sums] = read([&running_sums(&padded(&values))]);
        let expected: Vec<u32> = (0..=131).map(|n| (0..n).sum()).collect();
        assert_eq!(sums, expected);
    }

    /// 600 positions, so that long segments are cut into chunks, which are searched for in `indptr`.
    #[test]
    fn segment_sums_ignore_memory_behind_the_arrays() {
        let (indptr, n_positions) = ([0, 550, 550, 600], 600);
        let rows: Vec<f32> = (0..40).map(|row| row as f32).collect();
        let items: Vec<u32> = (0..n_positions).map(|position| position % 40).collect();
        let array = padded(&indptr);
        let rows = upload_as(&array, &rows, DType::F32);
        let column = |tensor: CubeTensor| {
            let CubeTensor { client, device, handle, .. } = tensor;
            CubeTensor::new_contiguous(client, device, Shape::new([40, 1]), handle, DType::F32)
        };
        let segments = Segments {
            indptr: array,
            items: padded(&items),
            n_segments: 3,
            n_positions: n_positions as usize,
        };
        let sums = segments.sum_of(column(rows)).launch();
        let sums: Vec<f32> = values(&read_bytes(&[&sums])[0], &sums);
        let sum = |range: std::ops::Range<u32>| range.map(|position| (position % 40) as f32).sum::<f32>();
        assert_eq!(sums, [sum(0..550), 0.0, sum(550..600)]);
    }
}
