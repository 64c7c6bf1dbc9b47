//! Running (exclusive prefix) sums of counts: the offsets of many lists that are stored one after the other.
//!
//! ```text
//! out[i] = values[0] + ... + values[i - 1]    for i in 0..=n
//! ```
//!
//! * *Contract.* `out` has one entry more than `values` and is overwritten. Sums saturate at `u32::MAX`, so that an
//!   overflow cannot be mistaken for a small sum.
//! * *Work distribution.* One unit adds a chunk of [`CHUNK`] values, the sums of the chunks are summed recursively, and
//!   one unit per chunk writes the running sums within it. The kernels run in the same way on all devices, because they
//!   use no shared memory, plane operations or barriers.
//! * *Cost.* Two launches for each of `log(n) / log(CHUNK)` levels, except one for the last; 12 bytes per value.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};

/// The number of values that one unit adds.
const CHUNK: u32 = 64;

#[cube]
fn capped_sum(a: u32, b: u32) -> u32 {
    let sum = a + b;
    select(sum < a, u32::MAX, sum)
}

/// Computes the sum of each chunk.
#[cube(launch)]
fn chunk_sums(values: &[u32], sums: &mut [u32]) {
    let chunk = ABSOLUTE_POS;
    if chunk >= sums.len() {
        terminate!();
    }
    let start = chunk as u32 * CHUNK;
    let end = min(start + CHUNK, values.len() as u32);
    let mut sum = 0u32;
    for position in start..end {
        sum = capped_sum(sum, values[position as usize]);
    }
    sums[chunk] = sum;
}

/// Computes the running sums within each chunk. They start at the chunk's entry of `before_chunk`, or at 0 if
/// `is_one` is true because there is only one chunk.
#[cube(launch)]
fn sums_in_chunks(values: &[u32], before_chunk: &[u32], out: &mut [u32], #[comptime] is_one: bool) {
    let n_values = values.len() as u32;
    let start = ABSOLUTE_POS as u32 * CHUNK;
    if start >= n_values {
        terminate!();
    }
    let end = min(start + CHUNK, n_values);
    let mut sum = 0u32;
    if comptime!(!is_one) {
        sum = before_chunk[ABSOLUTE_POS];
    }
    for position in start..end {
        out[position as usize] = sum;
        sum = capped_sum(sum, values[position as usize]);
    }
    if end == n_values {
        out[n_values as usize] = sum;
    }
}

/// `[n] -> [n + 1]`: for each position, the sum of the values before it; the last entry is the sum of all values.
pub(super) fn running_sums(values: &CubeTensor) -> CubeTensor {
    let n_values = launch::length(values);
    if n_values == 0 {
        return launch::upload(values, &[0]);
    }
    let n_chunks = n_values.div_ceil(CHUNK as usize);
    let is_one = n_chunks == 1;
    let before_chunk = if is_one {
        values.clone()
    } else {
        let sums = launch::new_array(values, n_chunks);
        launch_units!(chunk_sums, values, n_chunks, launch::buffer(values), launch::buffer(&sums));
        running_sums(&sums)
    };
    let out = launch::new_array(values, n_values + 1);
    let [values_arg, before_arg, out_arg] = [values, &before_chunk, &out].map(launch::buffer);
    launch_units!(sums_in_chunks, values, n_chunks, values_arg, before_arg, out_arg, is_one);
    out
}
