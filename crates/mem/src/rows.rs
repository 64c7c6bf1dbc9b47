//! Copies of rows at random positions (gather).

use std::mem::MaybeUninit;

use bytemuck::Pod;

use crate::prefetch::prefetch_range_far;

/// The prefetch distance in bytes: 60 rows of 100 floats. The run time depends little on its value.
const AHEAD_BYTES: usize = 24 << 10;

/// The size in bytes from which the output is written with streaming stores. Smaller outputs stay in the caches, where
/// they are usually read next.
const LEAST_STREAMED_BYTES: usize = 32 << 20;

/// The id of a row: `u32`, as for nodes, or `u64`, as for edges.
pub trait RowId: Copy {
    /// Returns the id as an array index.
    fn index(self) -> usize;
}

impl RowId for u32 {
    #[inline]
    fn index(self) -> usize {
        self as usize
    }
}

impl RowId for u64 {
    /// Returns the id as an array index; an id above the address space becomes one that is out of range of every array.
    #[inline]
    fn index(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

/// Gathers rows: copies row `ids[i]` of `rows`, which has `dim` elements per row, to row `i` of `out`. `out` is
/// overwritten without being zeroed first, and keeps its allocation if it is large enough.
///
/// Two optimisations bring it close to the memory bandwidth:
///
/// * Rows are prefetched far ahead into the L2 cache, because the L1 cache supports too few outstanding misses.
/// * Large outputs bypass the caches (streaming stores). An ordinary store reads a cache line before it writes it,
///   which is wasted if the whole line is overwritten.
///
/// ```
/// let mut out = Vec::new();
/// kiln_mem::copy_rows(&[0, 1, 10, 11, 20, 21], 2, &[2_u32, 0], &mut out);
/// assert_eq!(out, [20, 21, 0, 1]);
/// ```
///
/// # Panics
/// Panics if an id is out of range. The contents of `out` are then unspecified.
pub fn copy_rows<T: Pod, I: RowId>(rows: &[T], dim: usize, ids: &[I], out: &mut Vec<T>) {
    let n_values = ids.len() * dim;
    out.clear();
    out.reserve(n_values);
    if is_streamed(n_values * size_of::<T>()) {
        let room = &mut out.spare_capacity_mut()[..n_values];
        // SAFETY: the slice has the memory of `room`, and any byte may be uninitialised in both.
        let room = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), size_of_val(room)) };
        stream_rows(rows, dim, ids, room);
        // SAFETY: `stream_rows` has initialised all bytes of these values, and `T` is valid for any bytes.
        unsafe { out.set_len(n_values) };
        return;
    }
    for_each_row(rows, dim, ids, |row| out.extend_from_slice(row));
}

/// Same as [`copy_rows`], but writes the bytes of the rows to memory that need not be a vector, for example memory from
/// which a device reads. `out` must have the size of the rows, and any alignment.
///
/// ```
/// let mut out = [0; 4];
/// kiln_mem::copy_rows_to(&[0_u8, 1, 10, 11, 20, 21], 2, &[2_u32, 0], &mut out);
/// assert_eq!(out, [20, 21, 0, 1]);
/// ```
///
/// # Panics
/// Panics if an id is out of range, or if `out` has another size than the rows. Its contents are then unspecified.
pub fn copy_rows_to<T: Pod, I: RowId>(rows: &[T], dim: usize, ids: &[I], out: &mut [u8]) {
    let n_bytes = ids.len() * dim * size_of::<T>();
    assert_eq!(out.len(), n_bytes, "the output should have the size of {} rows", ids.len());
    if is_streamed(n_bytes) {
        // SAFETY: the slice has the memory of `out`, and `stream_rows` writes initialised bytes only.
        let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), out.len()) };
        return stream_rows(rows, dim, ids, out);
    }
    let mut rest = out;
    for_each_row(rows, dim, ids, |row| {
        let row: &[u8] = bytemuck::cast_slice(row);
        rest.split_off_mut(..row.len())
            .expect("the output should have room for all rows")
            .copy_from_slice(row);
    });
}

/// Returns true if an output of this size is written with streaming stores.
fn is_streamed(n_bytes: usize) -> bool {
    cfg!(target_arch = "x86_64") && LEAST_STREAMED_BYTES <= n_bytes
}

/// Gathers rows by streaming stores. On return, all bytes of `out` are initialised.
///
/// # Panics
/// Panics if an id is out of range, or if `out` has another size than the rows.
#[cfg(target_arch = "x86_64")]
fn stream_rows<T: Pod, I: RowId>(rows: &[T], dim: usize, ids: &[I], out: &mut [MaybeUninit<u8>]) {
    let n_bytes = out.len();
    let mut writer = crate::stream::Writer::new(out);
    for_each_row(rows, dim, ids, |row| writer.write(bytemuck::cast_slice(row)));
    assert_eq!(writer.finish(), n_bytes, "the output should have the size of {} rows", ids.len());
}

#[cfg(not(target_arch = "x86_64"))]
fn stream_rows<T: Pod, I: RowId>(_: &[T], _: usize, _: &[I], _: &mut [MaybeUninit<u8>]) {
    unreachable!("outputs are streamed on x86-64 only");
}

/// Calls `visit` with each row, and prefetches later rows.
#[inline(always)]
fn for_each_row<T: Pod, I: RowId>(rows: &[T], dim: usize, ids: &[I], mut visit: impl FnMut(&[T])) {
    let n_ahead = (AHEAD_BYTES / (dim * size_of::<T>()).max(1)).clamp(1, 256);
    for (at, &id) in ids.iter().enumerate() {
        if let Some(&later) = ids.get(at + n_ahead) {
            prefetch_range_far(rows, later.index().saturating_mul(dim), dim);
        }
        let start = id.index().saturating_mul(dim);
        visit(&rows[start..start.saturating_add(dim)]);
    }
}
