//! Copies of rows at random positions (gather).

use bytemuck::Pod;

use crate::prefetch::prefetch_range_far;

/// The prefetch distance in bytes: 60 rows of 100 floats. The run time depends little on its value.
const AHEAD_BYTES: usize = 24 << 10;

/// The size in bytes from which the output is written with streaming stores. Smaller outputs stay in the caches, where
/// they are usually read next.
const LEAST_STREAMED_BYTES: usize = 32 << 20;

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
/// kiln_mem::copy_rows(&[0, 1, 10, 11, 20, 21], 2, &[2, 0], &mut out);
/// assert_eq!(out, [20, 21, 0, 1]);
/// ```
///
/// # Panics
/// Panics if an id is out of range. The contents of `out` are then unspecified.
pub fn copy_rows<T: Pod>(rows: &[T], dim: usize, ids: &[u32], out: &mut Vec<T>) {
    out.clear();
    out.reserve(ids.len() * dim);
    #[cfg(target_arch = "x86_64")]
    if LEAST_STREAMED_BYTES <= ids.len() * dim * size_of::<T>() {
        let mut writer = crate::stream::Writer::new(out);
        for_each_row(rows, dim, ids, |row| writer.write(row));
        writer.finish();
        return;
    }
    for_each_row(rows, dim, ids, |row| out.extend_from_slice(row));
}

/// Calls `visit` with each row, and prefetches later rows.
#[inline(always)]
fn for_each_row<T: Pod>(rows: &[T], dim: usize, ids: &[u32], mut visit: impl FnMut(&[T])) {
    let n_ahead = (AHEAD_BYTES / (dim * size_of::<T>()).max(1)).clamp(1, 256);
    for (at, &id) in ids.iter().enumerate() {
        if let Some(&later) = ids.get(at + n_ahead) {
            prefetch_range_far(rows, later as usize * dim, dim);
        }
        let start = id as usize * dim;
        visit(&rows[start..start + dim]);
    }
}
