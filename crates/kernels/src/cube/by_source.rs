//! The transposed block, built on the device without a sort.
//!
//! * *Contract.* The arrays are identical to those of [`kiln_graph::TransposedBlock`]: the edges of each source are in
//!   block order.
//! * *Work distribution.* One unit per edge in each launch. First, each edge adds 1 to the count of its source; the
//!   count before is the edge's *arrival number*. Running sums of the counts give the start of each list, and each edge
//!   is put at its arrival number in the list of its source. The order of such a list depends on the order of the units,
//!   so at last one unit per edge counts the smaller edges in the list: the edge's final position.
//! * *Hubs.* In a list of more than `piece = max(1024, n_edges / 1024)` edges, an edge counts differently: a table has
//!   the number of edges of each long list in each piece of the block's edges, and the unit adds the entries of the
//!   pieces before its own to the edges of the same source in its own piece. No unit reads more than about
//!   `2 piece` numbers, and the table has at most 1024 rows of 1024 entries.
//! * *Determinism.* Only integers are counted, and the final positions do not depend on the arrival numbers.
//! * *Cost.* 44 bytes per edge, and 4 bytes per edge of a list for each of its edges, from the caches.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};
use crate::cube::scan::running_sums;
use crate::cube::segments::segment_of;

/// The number of edges up to which one unit counts the edges of a whole list in every block; also the largest number of
/// pieces.
const PIECE: usize = 1024;

/// The arrays of a [`kiln_graph::TransposedBlock`] on the device.
#[derive(Debug)]
pub(crate) struct Transposed {
    pub(super) indptr: CubeTensor,
    pub(super) dsts: CubeTensor,
    pub(super) edges: CubeTensor,
    /// An upper bound on the number of edges of a source.
    pub(super) longest: usize,
}

/// The number of edges of each source, and the arrival number of each edge: the number of edges of the same source that
/// were counted before it. The arrival numbers depend on the order of the units.
#[derive(Debug, Clone)]
pub(crate) struct SourceCounts {
    pub(super) counts: CubeTensor,
    pub(super) arrivals: CubeTensor,
    /// The largest count, or an upper bound on it.
    pub(super) longest: usize,
}

#[cube(launch, address_type = "dynamic")]
fn clear(counts: &mut [u32]) {
    if ABSOLUTE_POS < counts.len() {
        counts[ABSOLUTE_POS] = 0u32;
    }
}

#[cube(launch, address_type = "dynamic")]
fn count_sources(indices: &[u32], counts: &[Atomic<u32>], arrivals: &mut [u32]) {
    if ABSOLUTE_POS >= indices.len() {
        terminate!();
    }
    arrivals[ABSOLUTE_POS] = counts[indices[ABSOLUTE_POS] as usize].fetch_add(1u32);
}

/// Puts each edge into the list of its source, at its arrival number.
#[cube(launch, address_type = "dynamic")]
fn place_by_arrival(indices: &[u32], starts: &[u32], arrivals: &[u32], arrived: &mut [u32]) {
    if ABSOLUTE_POS >= indices.len() {
        terminate!();
    }
    let start = starts[indices[ABSOLUTE_POS] as usize];
    arrived[(start + arrivals[ABSOLUTE_POS]) as usize] = ABSOLUTE_POS as u32;
}

/// The row of a long list in the table. A list of more than `piece` edges contains a position that is a multiple of
/// `piece`, which no other list contains.
#[cube]
fn row_of_list(start: u32, piece: u32) -> u32 {
    start.div_ceil(piece)
}

/// Counts the edges of each long list in each piece; `table` is `[n_pieces, n_pieces]`, list by piece.
#[cube(launch, address_type = "dynamic")]
fn count_in_pieces(indices: &[u32], starts: &[u32], table: &[Atomic<u32>], piece: u32, n_pieces: u32) {
    if ABSOLUTE_POS >= indices.len() {
        terminate!();
    }
    let src = indices[ABSOLUTE_POS] as usize;
    if starts[src + 1] - starts[src] > piece {
        let row = row_of_list(starts[src], piece);
        table[(row * n_pieces + ABSOLUTE_POS as u32 / piece) as usize].fetch_add(1u32);
    }
}

/// Writes each edge and its destination at the edge's position in the order of the block. If `has_hubs` is false, no
/// list is long and `table` is not read.
#[cube(launch, address_type = "dynamic")]
fn place_in_order(
    indptr: &[u32],
    indices: &[u32],
    starts: &[u32],
    arrived: &[u32],
    table: &[u32],
    dsts: &mut [u32],
    edges: &mut [u32],
    piece: u32,
    n_pieces: u32,
    #[comptime] has_hubs: bool,
) {
    if ABSOLUTE_POS >= arrived.len() {
        terminate!();
    }
    let edge = arrived[ABSOLUTE_POS];
    let src = indices[edge as usize];
    let start = starts[src as usize];
    let end = starts[src as usize + 1];
    let mut n_before = 0u32;
    let mut is_long = false;
    if comptime!(has_hubs) {
        is_long = end - start > piece;
    }
    if is_long {
        let row = row_of_list(start, piece) * n_pieces;
        for at in row..row + edge / piece {
            n_before += table[at as usize];
        }
        for other in edge / piece * piece..edge {
            n_before += u32::cast_from(indices[other as usize] == src);
        }
    } else {
        for at in start..end {
            n_before += u32::cast_from(arrived[at as usize] < edge);
        }
    }
    let position = (start + n_before) as usize;
    edges[position] = edge;
    dsts[position] = segment_of(indptr, edge) as u32;
}

impl SourceCounts {
    /// Counts the edges of each of `n_src` sources. The host does not learn the largest count.
    pub(super) fn of(indices: &CubeTensor, n_src: usize) -> Self {
        let counts = zeros(indices, n_src);
        let n_edges = launch::length(indices);
        let arrivals = launch::new_array(indices, n_edges);
        let [from, to, numbers] = [indices, &counts, &arrivals].map(launch::buffer);
        launch_units!(count_sources, indices, n_edges, from, to, numbers);
        Self { counts, arrivals, longest: n_edges }
    }

    /// The number of bytes of the arrays' memory, which may be larger than the arrays.
    pub(crate) fn n_bytes(&self) -> usize {
        [&self.counts, &self.arrivals].map(|array| array.handle.size() as usize).iter().sum()
    }
}

fn zeros(like: &CubeTensor, n_values: usize) -> CubeTensor {
    let zeros = launch::new_array(like, n_values);
    launch_units!(clear, like, n_values, launch::buffer(&zeros));
    zeros
}

impl Transposed {
    /// Copies a transposed block to the device of a tensor.
    pub(crate) fn upload(like: &CubeTensor, list: &kiln_graph::TransposedBlock) -> Self {
        let longest = list.indptr().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0) as usize;
        let [indptr, dsts, edges] =
            [list.indptr(), list.dsts(), list.edges()].map(|values: &[u32]| launch::upload(like, values));
        Self { indptr, dsts, edges, longest }
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

    /// Builds the transposed block of a block with `indptr`, `indices` and `n_src` sources. `counts` are the counts of
    /// its sources, if they are known.
    pub(crate) fn list(
        indptr: &CubeTensor,
        indices: &CubeTensor,
        n_src: usize,
        counts: Option<&SourceCounts>,
    ) -> Self {
        let n_edges = launch::length(indices);
        if n_edges == 0 {
            let none = || launch::upload(indptr, &[]);
            let starts = launch::upload(indptr, &vec![0; n_src + 1]);
            return Self { indptr: starts, dsts: none(), edges: none(), longest: 0 };
        }
        let counts = counts.cloned().unwrap_or_else(|| SourceCounts::of(indices, n_src));
        let starts = running_sums(&counts.counts);
        let arrived = launch::new_array(indptr, n_edges);
        let [from, lists, numbers, to] = [indices, &starts, &counts.arrivals, &arrived].map(launch::buffer);
        launch_units!(place_by_arrival, indptr, n_edges, from, lists, numbers, to);
        let piece = PIECE.max(n_edges.div_ceil(PIECE));
        let n_pieces = n_edges.div_ceil(piece);
        let has_hubs = piece < counts.longest;
        let table = if has_hubs {
            let table = zeros(indptr, n_pieces * n_pieces);
            let [from, lists, to] = [indices, &starts, &table].map(launch::buffer);
            launch_units!(count_in_pieces, indptr, n_edges, from, lists, to, piece as u32, n_pieces as u32);
            table
        } else {
            arrived.clone()
        };
        let [dsts, edges] = [(); 2].map(|()| launch::new_array(indptr, n_edges));
        launch_units!(
            place_in_order,
            indptr,
            n_edges,
            launch::buffer(indptr),
            launch::buffer(indices),
            launch::buffer(&starts),
            launch::buffer(&arrived),
            launch::buffer(&table),
            launch::buffer(&dsts),
            launch::buffer(&edges),
            piece as u32,
            n_pieces as u32,
            has_hubs
        );
        Self { indptr: starts, dsts, edges, longest: counts.longest }
    }
}
