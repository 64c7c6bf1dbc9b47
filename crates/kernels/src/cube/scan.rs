//! Running sums of counts: where the entries of each of many lists begin, when the lists stand one after the other.
//!
//! ```text
//! out[i] = values[0] + ... + values[i - 1]    for i in 0..=n
//! ```
//!
//! * *Contract.* `out` has one entry more than `values` and is overwritten. A sum that passes `u32` stays at its largest
//!   number, so that nobody takes a sum that wrapped around for a small one.
//! * *Who computes what.* A unit adds up a chunk of [`CHUNK`] values, the chunks' sums are summed in the same way, and a
//!   unit writes the sums of its chunk from where the chunk begins. No shared memory, no planes, no waiting: it runs
//!   alike on all devices.
//! * *Cost.* Two launches for each level, `log(n) / log(CHUNK)` levels less one; 12 bytes a value.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};

/// Values that one unit adds up.
const CHUNK: u32 = 64;

#[cube]
fn capped_sum(a: u32, b: u32) -> u32 {
    let sum = a + b;
    select(sum < a, u32::MAX, sum)
}

/// The sum of each chunk.
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

/// The running sums, from those of the chunks; where there is only one chunk, these are not read.
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

/// `[n] -> [n + 1]`: the sum of all values before each, and of all.
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
