//! Rows at random places, copied one after the other.

use bytemuck::Pod;

use crate::prefetch::prefetch_range_far;

/// How far ahead of the copy rows are asked for, in bytes: 64 rows of 100 floats. Half of it and twice as much
/// take the same time.
const AHEAD_BYTES: usize = 24 << 10;

/// Copies of at least this many bytes are streamed. What is smaller stays in the caches for whoever reads it
/// next: at 8 MB streaming took 1.4 times as long, at 16 MB as long as ordinary writes, at 64 MB 0.8 times.
const LEAST_STREAMED_BYTES: usize = 32 << 20;

/// Writes row `ids[i]` of `rows`, which has `dim` elements, to the elements `i * dim..` of `out`. `out` is
/// overwritten and keeps its allocation where that is large enough; no element is cleared before it is written.
///
/// Two things make it nearly as fast as reading alone and writing alone, one after the other. 605,000 rows of 400
/// bytes out of 1 GB, in huge pages, took one core 54 ms by a plain loop and take 39 ms; 58 and 52 ms in pages of
/// 4 KiB:
///
/// * Rows are asked for far ahead, into the second-level cache. The first level has too few places for lines on
///   their way: reading alone took 35 ms with requests to it, and 24 ms with these.
/// * Large outputs pass by the caches. To write a line there it is first read, which a line that is written as a
///   whole does not need: 51 ms with ordinary writes.
///
/// ```
/// let mut out = Vec::new();
/// kiln_mem::copy_rows(&[0, 1, 10, 11, 20, 21], 2, &[2, 0], &mut out);
/// assert_eq!(out, [20, 21, 0, 1]);
/// ```
///
/// # Panics
/// When `rows` has no such row. What `out` holds then is unspecified.
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

/// Calls `visit` with each row, and asks for later ones.
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
