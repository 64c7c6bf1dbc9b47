//! Rows that the host sends to a device: they are written to pinned memory, from which the device copies.
//!
//! A device copies asynchronously from pinned (page-locked) memory only. If rows are in other memory, CubeCL's runner
//! thread, which also launches all kernels, first copies up to 100 MB of them to pinned memory; while it copies larger
//! arrays, the driver does the same. Therefore the calling thread writes rows to CubeCL's pinned memory itself. Runtimes
//! other than CUDA have no pinned memory; there, rows are sent from ordinary memory.

use std::mem::MaybeUninit;

use burn::tensor::{Bytes, DType, Device, FloatDType, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::bytes::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use half::bf16;
use half::slice::HalfFloatSliceExt;
use kiln_feature::{FeatureBuffer, FeatureDType};

use crate::counts::count_upload;
use crate::device::row_source::RowSource;

/// The memory of bytes that were not allocated yet. CubeCL replaces such bytes by pinned memory of the same size:
/// `Client::staging` allocates pinned memory for bytes, copies them there, and replaces them. This type has nothing to
/// copy, and every access to its memory is an error.
struct Unallocated;

impl Unallocated {
    fn error() -> AccessError {
        AccessError::Read("the memory is not allocated".to_owned())
    }
}

impl AllocationController for Unallocated {
    fn alloc_align(&self) -> usize {
        1
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        Err(Self::error())
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        Err(Self::error())
    }

    fn capacity(&self) -> usize {
        0
    }

    unsafe fn copy_into(&self, _: &mut [u8]) {}
}

/// Returns pinned memory of `n_bytes` bytes with unspecified contents, or `None` if the runtime of a tensor has no pinned
/// memory or cannot allocate it. The memory returns to its pool when a device has copied it, or when it is dropped.
fn pinned(like: &CubeTensor, n_bytes: usize) -> Option<Bytes> {
    if n_bytes == 0 {
        return None;
    }
    // SAFETY: bytes promise that their memory is initialised. No byte of this memory can be read, because each access
    // is an error. Until they are replaced, nothing but `staging` has access to the bytes.
    let mut bytes = unsafe { Bytes::from_controller(Box::new(Unallocated), n_bytes) };
    like.client.staging(std::iter::once(&mut bytes), false);
    // If the runtime cannot pin memory, it returns ordinary memory or leaves the bytes as they are.
    is_pinned(&bytes).then_some(bytes)
}

/// Returns the element type in which rows are sent to the device of a tensor: their own type, or f32 if the device does
/// not support it.
pub(crate) fn sent_type(like: &CubeTensor, row_type: FeatureDType) -> FeatureDType {
    let device = Device::new(like.device.clone());
    if device.supports_dtype(dtype(row_type)) { row_type } else { FeatureDType::F32 }
}

/// Returns the element type of a tensor of rows.
pub(super) fn dtype(row_type: FeatureDType) -> DType {
    match row_type {
        FeatureDType::F16 => DType::F16,
        FeatureDType::BF16 => DType::BF16,
        _ => DType::F32,
    }
}

/// Gathers rows for the device of a tensor, in the type `sent`: f32, bf16 or their own type. If they are sent as stored, the
/// source writes them to pinned memory, without a copy in between.
///
/// # Errors
/// Returns the errors of the source.
pub(crate) fn gather<S: RowSource>(
    like: &CubeTensor,
    source: &S,
    ids: &[S::Id],
    sent: FeatureDType,
) -> kiln_feature::Result<Bytes> {
    let stored = source.dtype();
    let n_values = ids.len() * source.dim();
    if stored == sent
        && let Some(mut bytes) = pinned(like, n_values * stored.bytes())
    {
        source.gather_bytes(ids, &mut bytes)?;
        return Ok(counted(bytes));
    }
    let mut rows = FeatureBuffer::empty(stored);
    source.gather(ids, &mut rows)?;
    Ok(counted(bytes_of(rows, sent)))
}

/// Same as [`gather`], for rows that were gathered before. They are copied to pinned memory.
pub(crate) fn stage(like: &CubeTensor, rows: FeatureBuffer) -> Bytes {
    let sent = sent_type(like, rows.dtype());
    if rows.dtype() == sent
        && let Some(mut bytes) = pinned(like, rows.n_bytes())
    {
        bytes.copy_from_slice(rows.as_bytes());
        return counted(bytes);
    }
    counted(bytes_of(rows, sent))
}

/// Counts rows that are about to be sent.
fn counted(rows: Bytes) -> Bytes {
    count_upload(rows.len() as u64, is_pinned(&rows));
    rows
}

/// Sends rows of `dim` columns to the device of a tensor, `[n, dim]`. Does not wait for the copy.
pub(super) fn upload(like: &CubeTensor, rows: Bytes, dim: usize, row_type: FeatureDType) -> CubeTensor {
    let n_rows = rows.len() / (dim * row_type.bytes());
    let handle = like.client.create(rows);
    let client = like.client.clone();
    let device = like.device.clone();
    CubeTensor::new_contiguous(client, device, Shape::new([n_rows, dim]), handle, dtype(row_type))
}

/// Sends rows that were stored as `stored`, in the type [`sent_type`], to the device of a tensor, which widens them to
/// f32, `[n, dim]`.
pub(crate) fn widened(like: &CubeTensor, rows: Bytes, dim: usize, stored: FeatureDType) -> Tensor<2> {
    let rows = upload(like, rows, dim, sent_type(like, stored));
    let rows: Tensor<2> = Tensor::from_primitive::<CubeBackend>(rows);
    // If the rows are f32, this launches nothing.
    rows.cast(FloatDType::F32)
}

/// Returns true if a device can copy bytes asynchronously.
fn is_pinned(bytes: &Bytes) -> bool {
    bytes.property() == AllocationProperty::Pinned
}

/// Returns the bytes of the rows in the element type `row_type`, which must be f32, bf16 or the rows' own type. The rows are
/// copied only if they are converted.
fn bytes_of(rows: FeatureBuffer, row_type: FeatureDType) -> Bytes {
    match rows {
        FeatureBuffer::F16(values) if row_type == FeatureDType::F16 => Bytes::from_elems(values),
        FeatureBuffer::BF16(values) if row_type == FeatureDType::BF16 => Bytes::from_elems(values),
        rows if row_type == FeatureDType::BF16 => {
            let values = rows.into_f32();
            let mut rounded = vec![bf16::ZERO; values.len()];
            rounded.convert_from_f32_slice(&values);
            Bytes::from_elems(rounded)
        }
        rows => Bytes::from_elems(rows.into_f32()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the promise that these bytes cannot be read makes it sound to create them without memory.
    #[test]
    fn unallocated_bytes_cannot_be_accessed() {
        // SAFETY: the bytes are only accessed by calls that return an error.
        let mut bytes = unsafe { Bytes::from_controller(Box::new(Unallocated), 4) };
        assert_eq!((bytes.len(), bytes.capacity()), (4, 0));
        assert!(bytes.read(Default::default()).is_err());
        assert!(bytes.write(Default::default()).is_err());
        let mut target = Bytes::from_elems(vec![1_u8, 2, 3, 4]);
        bytes.copy_into(&mut target);
        assert_eq!(&target[..], [1, 2, 3, 4], "there is nothing to copy");
    }
}
