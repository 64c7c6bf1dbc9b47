//! The builder's sort by destination: a cache-friendly bucket sort in two passes.
//!
//! A direct scatter of edges to their destinations costs a cache miss and a TLB miss per edge, and threads contend for
//! the counters of hubs. Therefore the first pass distributes the edges to bins, which are ranges of destinations, and
//! the second pass sorts each bin independently.

use std::slice::{ChunksMut, IterMut};

use rayon::prelude::*;

use crate::coo::{Chunk, Edges};

/// The target number of edges per bin. The second pass then works within a core's L2 cache.
const EDGES_A_BIN: usize = 1 << 17;

/// The maximum number of bins. The first pass writes to all bins at once; with more bins, the write positions would not
/// fit in the caches.
const MAX_BINS: usize = 1 << 11;

/// The maximum number of bits of a destination's position within its bin, which is stored as a `u16` for each entry.
const MAX_SHIFT: u32 = 16;

/// The number of chunks of the edge list per thread. Several chunks balance the load between threads.
const CHUNKS_A_THREAD: usize = 4;

/// The minimum number of edges per chunk, to amortise the cost of scheduling it.
const LEAST_EDGES_A_CHUNK: usize = 1 << 14;

/// The representation of an edge in the sort: its source, or the code of its origin.
pub(crate) trait Entry: Copy + Default + Send + Sync + 'static {}

impl Entry for u32 {}
impl Entry for u64 {}

/// Sorts edges by destination. Returns `indptr` (the number of nodes plus 1) and one entry per edge, `entry(code,
/// src)`. The entries of each destination are sorted by `order`, which also gets a reusable work buffer of its thread.
///
/// Besides the result it needs 2 bytes per edge, and per thread a copy of the entries of one bin.
pub(crate) fn sort_by_dst<E: Entry, M: Default>(
    edges: &Edges<'_>,
    entry: impl Fn(u64, u32) -> E + Sync,
    order: impl Fn(&mut [E], &mut M) + Sync,
) -> (Vec<u64>, Vec<E>) {
    let plan = Plan::new(edges);
    let counts: Vec<Vec<usize>> = plan.chunks().map(|chunk| plan.count(edges, chunk)).collect();
    let bin_counts: Vec<usize> =
        (0..plan.n_bins).map(|bin: usize| counts.iter().map(|counts| counts[bin]).sum()).collect();
    let n_edges = bin_counts.iter().sum();
    // The allocator usually provides zeroed memory without writing it, so this costs no pass over the arrays.
    let mut entries = vec![E::default(); n_edges];
    let mut lows = vec![0_u16; n_edges];
    let ranges = split(&mut entries, &mut lows, &counts);
    plan.chunks().zip(ranges).for_each(|(chunk, mut ranges)| {
        edges.for_each_in(chunk, |code, src, dst| {
            ranges[plan.bin(dst)].put(entry(code, src), plan.low(dst));
        });
    });
    let mut indptr = vec![0; edges.n_nodes() + 1];
    let bins = bins(indptr[1..].chunks_mut(1 << plan.shift), &mut entries, &lows, &bin_counts);
    bins.into_par_iter().for_each_init(Default::default, |(unsorted, memory), bin| {
        bin.sort(unsorted, |segment| order(segment, memory));
    });
    (indptr, entries)
}

/// The division of the work into bins and chunks.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// The number of low bits of a destination that are its position within its bin; the higher bits are the index of
    /// the bin.
    shift: u32,
    n_bins: usize,
    n_chunks: usize,
}

impl Plan {
    fn new(edges: &Edges<'_>) -> Self {
        let n_nodes = edges.n_nodes();
        let n_edges = edges.n_at_most();
        let n_wanted = (n_edges / EDGES_A_BIN).clamp(1, MAX_BINS);
        let shift =
            (0..MAX_SHIFT).find(|shift: &u32| n_nodes.div_ceil(1 << shift) <= n_wanted).unwrap_or(MAX_SHIFT);
        let n_chunks = CHUNKS_A_THREAD * rayon::current_num_threads();
        let n_chunks = n_chunks.min(n_edges / LEAST_EDGES_A_CHUNK + 1);
        Self { shift, n_bins: n_nodes.div_ceil(1 << shift), n_chunks }
    }

    /// Returns the chunks of the edge list as a parallel iterator.
    fn chunks(self) -> impl IndexedParallelIterator<Item = Chunk> {
        let n_chunks = self.n_chunks;
        (0..n_chunks).into_par_iter().map(move |index| Chunk { index, n_chunks })
    }

    #[inline(always)]
    fn bin(self, dst: u32) -> usize {
        (dst >> self.shift) as usize
    }

    /// Returns the low bits of a destination, which are its position within its bin.
    #[inline(always)]
    fn low(self, dst: u32) -> u16 {
        (dst & ((1 << self.shift) - 1)) as u16
    }

    /// Counts a chunk's edges in each bin.
    fn count(self, edges: &Edges<'_>, chunk: Chunk) -> Vec<usize> {
        let mut counts = vec![0; self.n_bins];
        edges.for_each_in(chunk, |_, _, dst| counts[self.bin(dst)] += 1);
        counts
    }
}

/// The output range of one chunk in one bin.
struct OutputRange<'a, E> {
    entries: IterMut<'a, E>,
    lows: IterMut<'a, u16>,
}

impl<E> OutputRange<'_, E> {
    #[inline(always)]
    fn put(&mut self, entry: E, low: u16) {
        let at = self.entries.next();
        let low_at = self.lows.next();
        *at.expect("a bin should have room for the edges that were counted") = entry;
        *low_at.expect("a bin should have room for the edges that were counted") = low;
    }
}

/// Splits the output into ranges, `[chunk][bin]`. In memory the bins are consecutive, and so are the chunks within each
/// bin.
fn split<'a, E>(
    mut entries: &'a mut [E],
    mut lows: &'a mut [u16],
    counts: &[Vec<usize>],
) -> Vec<Vec<OutputRange<'a, E>>> {
    let n_bins = counts[0].len();
    let mut ranges: Vec<Vec<OutputRange<'a, E>>> =
        counts.iter().map(|_| Vec::with_capacity(n_bins)).collect();
    for bin in 0..n_bins {
        for (ranges, counts) in ranges.iter_mut().zip(counts) {
            let here = entries
                .split_off_mut(..counts[bin])
                .expect("the counts should add up to the number of edges");
            let lows =
                lows.split_off_mut(..counts[bin]).expect("the counts should add up to the number of edges");
            ranges.push(OutputRange { entries: here.iter_mut(), lows: lows.iter_mut() });
        }
    }
    ranges
}

/// The edges of one bin, which the second pass sorts.
struct Bin<'a, E> {
    first_edge: u64,
    /// The end of each destination's edges; contains zeros before the sort.
    ends: &'a mut [u64],
    entries: &'a mut [E],
    /// The destination of each entry, relative to the first destination of the bin.
    lows: &'a [u16],
}

/// Splits the arrays into bins; `ends` yields each bin's slice of `indptr`.
fn bins<'a, E>(
    ends: ChunksMut<'a, u64>,
    mut entries: &'a mut [E],
    mut lows: &'a [u16],
    bin_counts: &[usize],
) -> Vec<Bin<'a, E>> {
    let mut first_edge = 0;
    ends.zip(bin_counts)
        .map(|(ends, &n_edges): (&'a mut [u64], &usize)| {
            let entries =
                entries.split_off_mut(..n_edges).expect("the counts should add up to the number of edges");
            let lows = lows.split_off(..n_edges).expect("the counts should add up to the number of edges");
            let bin = Bin { first_edge, ends, entries, lows };
            first_edge += n_edges as u64;
            bin
        })
        .collect()
}

impl<E: Entry> Bin<'_, E> {
    /// Sorts the bin by destination (counting sort), then calls `order` for each destination's entries.
    fn sort(self, unsorted: &mut Vec<E>, mut order: impl FnMut(&mut [E])) {
        let Self { first_edge, ends, entries, lows } = self;
        for &low in lows {
            ends[usize::from(low)] += 1;
        }
        let mut n_before = 0;
        for end in &mut *ends {
            n_before += std::mem::replace(end, n_before);
        }
        unsorted.clear();
        unsorted.reserve_exact(entries.len());
        unsorted.extend_from_slice(entries);
        for (&entry, &low) in unsorted.iter().zip(lows) {
            let end = &mut ends[usize::from(low)];
            entries[*end as usize] = entry;
            *end += 1;
        }
        let mut start = 0;
        for end in ends {
            order(&mut entries[start..*end as usize]);
            start = *end as usize;
            *end += first_edge;
        }
    }
}
