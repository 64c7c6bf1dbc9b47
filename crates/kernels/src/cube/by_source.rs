//! The transposed block, built on the device by a stable sort of the edges by source.
//!
//! * *Contract.* The arrays are identical to those of [`kiln_graph::TransposedBlock`]: the edges of each source are in
//!   block order.
//! * *Work distribution.* A radix sort with [`BITS`] bits per pass, least significant digit first. One unit counts the
//!   digits of a chunk of [`CHUNK`] edges in a private array, running sums give the start of each digit of each chunk,
//!   and one unit per chunk moves its edges there in order. Edges with equal digits therefore keep their order,
//!   without atomics.
//!   Finally, one unit per edge finds its destination, and one per source its first edge, by binary search.
//! * *Cost.* `ceil(log2(n_src) / BITS)` passes of about 24 bytes per edge.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};
use crate::cube::scan::running_sums;
use crate::cube::segment_sum::segment_of;

/// The number of bits of a digit.
const BITS: u32 = 4;

/// The number of different digits.
const N_DIGITS: u32 = 1 << BITS;

/// The number of edges that one unit counts and moves.
const CHUNK: u32 = 64;

/// The arrays of a [`kiln_graph::TransposedBlock`] on the device.
#[derive(Debug)]
pub(crate) struct Transposed {
    pub(super) indptr: CubeTensor,
    pub(super) dsts: CubeTensor,
    pub(super) edges: CubeTensor,
}

/// Counts each digit in each chunk; `counts` is `[N_DIGITS, n_chunks]`.
#[cube(launch)]
fn digit_counts(keys: &[u32], counts: &mut [u32], n_chunks: u32, shift: u32) {
    let chunk = ABSOLUTE_POS as u32;
    if chunk >= n_chunks {
        terminate!();
    }
    let mut of_digit = Array::<u32>::new(comptime!(N_DIGITS as usize));
    for digit in 0..N_DIGITS {
        of_digit[digit as usize] = 0u32;
    }
    let start = chunk * CHUNK;
    for place in start..min(start + CHUNK, keys.len() as u32) {
        let digit = (keys[place as usize] >> shift) & (N_DIGITS - 1);
        of_digit[digit as usize] += 1;
    }
    for digit in 0..N_DIGITS {
        counts[(digit * n_chunks + chunk) as usize] = of_digit[digit as usize];
    }
}

/// Moves the keys of each chunk, and their edges, to the starts of their digits. If `is_first` is true, `edges` is not
/// read, and the edge of a key is the position of the key.
#[cube(launch)]
fn move_by_digit(
    keys: &[u32],
    edges: &[u32],
    starts: &[u32],
    moved_keys: &mut [u32],
    moved_edges: &mut [u32],
    n_chunks: u32,
    shift: u32,
    #[comptime] is_first: bool,
) {
    let chunk = ABSOLUTE_POS as u32;
    if chunk >= n_chunks {
        terminate!();
    }
    let mut next = Array::<u32>::new(comptime!(N_DIGITS as usize));
    for digit in 0..N_DIGITS {
        next[digit as usize] = starts[(digit * n_chunks + chunk) as usize];
    }
    let start = chunk * CHUNK;
    for place in start..min(start + CHUNK, keys.len() as u32) {
        let key = keys[place as usize];
        let digit = ((key >> shift) & (N_DIGITS - 1)) as usize;
        let goal = next[digit];
        next[digit] = goal + 1;
        moved_keys[goal as usize] = key;
        if comptime!(is_first) {
            moved_edges[goal as usize] = place;
        } else {
            moved_edges[goal as usize] = edges[place as usize];
        }
    }
}

#[cube(launch)]
fn destinations(indptr: &[u32], edges: &[u32], dsts: &mut [u32]) {
    if ABSOLUTE_POS >= dsts.len() {
        terminate!();
    }
    dsts[ABSOLUTE_POS] = segment_of(indptr, edges[ABSOLUTE_POS]) as u32;
}

/// Sets `starts[i]` to the number of sorted keys below `i`, by binary search.
#[cube(launch)]
fn first_places(sorted: &[u32], starts: &mut [u32]) {
    if ABSOLUTE_POS >= starts.len() {
        terminate!();
    }
    let mut low = 0u32;
    let mut high = sorted.len() as u32;
    while low < high {
        let middle = (low + high) / 2;
        if sorted[middle as usize] < ABSOLUTE_POS as u32 {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    starts[ABSOLUTE_POS] = low;
}

impl Transposed {
    /// Copies a transposed block to the device of a tensor.
    pub(crate) fn upload(like: &CubeTensor, list: &kiln_graph::TransposedBlock) -> Self {
        let upload = |values: &[u32]| launch::upload(like, values);
        Self { indptr: upload(list.indptr()), dsts: upload(list.dsts()), edges: upload(list.edges()) }
    }

    /// The number of bytes of the arrays.
    pub(crate) fn n_bytes(&self) -> usize {
        4 * [&self.indptr, &self.dsts, &self.edges].map(launch::length).iter().sum::<usize>()
    }

    /// Reads the arrays back to the host: `indptr`, `dsts` and `edges`.
    pub(crate) fn read(&self) -> [Vec<u32>; 3] {
        // The arrays are read one by one, because an empty one has no memory that could be read with the others.
        [&self.indptr, &self.dsts, &self.edges].map(|array| launch::read([array]).concat())
    }

    /// Builds the transposed block of a block with `indptr`, `indices` and `n_src` sources.
    pub(crate) fn list(indptr: &CubeTensor, indices: &CubeTensor, n_src: usize) -> Self {
        let n_edges = launch::length(indices);
        if n_edges == 0 {
            let none = || launch::upload(indptr, &[]);
            return Self { indptr: launch::upload(indptr, &vec![0; n_src + 1]), dsts: none(), edges: none() };
        }
        let n_chunks = n_edges.div_ceil(CHUNK as usize);
        let n_bits = usize::BITS - (n_src - 1).leading_zeros();
        // At least one pass is needed, because the first one writes the edges' positions.
        let n_passes = n_bits.div_ceil(BITS).max(1);
        let (mut keys, mut edges) = (indices.clone(), indices.clone());
        for pass in 0..n_passes {
            let (shift, is_first) = (pass * BITS, pass == 0);
            let counts = launch::new_array(indptr, N_DIGITS as usize * n_chunks);
            let [from, to] = [&keys, &counts].map(launch::buffer);
            launch_units!(digit_counts, indptr, n_chunks, from, to, n_chunks as u32, shift);
            let starts = running_sums(&counts);
            let moved = [(); 2].map(|()| launch::new_array(indptr, n_edges));
            launch_units!(
                move_by_digit,
                indptr,
                n_chunks,
                launch::buffer(&keys),
                launch::buffer(&edges),
                launch::buffer(&starts),
                launch::buffer(&moved[0]),
                launch::buffer(&moved[1]),
                n_chunks as u32,
                shift,
                is_first
            );
            [keys, edges] = moved;
        }
        let dsts = launch::new_array(indptr, n_edges);
        let [from, through, to] = [indptr, &edges, &dsts].map(launch::buffer);
        launch_units!(destinations, indptr, n_edges, from, through, to);
        let starts = launch::new_array(indptr, n_src + 1);
        launch_units!(first_places, indptr, n_src + 1, launch::buffer(&keys), launch::buffer(&starts));
        Self { indptr: starts, dsts, edges }
    }
}
