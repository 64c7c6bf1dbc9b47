//! The builder's sort by destination, in two passes whose places for writing fit the caches.
//!
//! To put each edge at its destination's place at once is one miss of the cache and of the address translation
//! an edge, and threads meet at the counters of hubs. So edges first go to bins, which are ranges of
//! destinations, and then each bin is put in order by itself. 124 M edges of 2.4 M nodes, in no order, on 2
//! threads took 12.6 s of processor time by atomic counters and random places, and take 2.5 s.

use std::slice::{ChunksMut, IterMut};

use rayon::prelude::*;

use crate::coo::{Chunk, Edges};

/// Bins are made to hold about so many edges, so that the second pass stays in a core's second-level cache.
const EDGES_A_BIN: usize = 1 << 17;

/// The first pass writes to as many places at a time; more would miss the caches again.
const MAX_BINS: usize = 1 << 11;

/// What of a destination is not said by its bin has 16 bits.
const MAX_SHIFT: u32 = 16;

/// Chunks of the edge list a thread, so that a thread that is late leaves the others something to take over.
const CHUNKS_A_THREAD: usize = 4;

/// A chunk of fewer edges is not worth handing out.
const LEAST_EDGES_A_CHUNK: usize = 1 << 14;

/// What stands for an edge while edges are sorted: its source, or the code of its origin.
pub(crate) trait Entry: Copy + Default + Send + Sync + 'static {}

impl Entry for u32 {}
impl Entry for u64 {}

/// Where each destination's edges start, one entry more than nodes, and an entry for each edge, by destination:
/// what `entry(code, src)` gives, each destination's put in order by `order`, which gets memory to work in.
///
/// Besides the entries it takes 2 bytes an edge, and for each thread the entries of one bin.
pub(crate) fn sort_by_dst<E: Entry, M: Default>(
    edges: &Edges<'_>,
    entry: impl Fn(u64, u32) -> E + Sync,
    order: impl Fn(&mut [E], &mut M) + Sync,
) -> (Vec<u64>, Vec<E>) {
    let plan = Plan::new(edges);
    let counts: Vec<Vec<usize>> = plan.chunks().map(|chunk| plan.count(edges, chunk)).collect();
    let in_bin = |bin: usize| counts.iter().map(|counts| counts[bin]).sum();
    let bin_counts: Vec<usize> = (0..plan.n_bins).map(in_bin).collect();
    let n_edges = bin_counts.iter().sum();
    // The system gives these as zeros, or they are cleared at once: no pass over them of our own.
    let (mut entries, mut lows) = (vec![E::default(); n_edges], vec![0_u16; n_edges]);
    let places = split(&mut entries, &mut lows, &counts);
    plan.chunks().zip(places).for_each(|(chunk, mut places)| {
        edges.for_each_in(chunk, |code, src, dst| {
            places[plan.bin(dst)].put(entry(code, src), plan.low(dst));
        });
    });
    let mut indptr = vec![0; edges.n_nodes() + 1];
    let bins = bins(indptr[1..].chunks_mut(1 << plan.shift), &mut entries, &lows, &bin_counts);
    bins.into_par_iter().for_each_init(Default::default, |(unsorted, memory), bin| {
        bin.sort(unsorted, |segment| order(segment, memory));
    });
    (indptr, entries)
}

/// How the work is divided.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// So many bits of a destination are not said by its bin.
    shift: u32,
    n_bins: usize,
    n_chunks: usize,
}

impl Plan {
    fn new(edges: &Edges<'_>) -> Self {
        let (n_nodes, n_edges) = (edges.n_nodes(), edges.n_at_most());
        let n_wanted = (n_edges / EDGES_A_BIN).clamp(1, MAX_BINS);
        let is_enough = |shift: &u32| n_nodes.div_ceil(1 << shift) <= n_wanted;
        let shift = (0..MAX_SHIFT).find(is_enough).unwrap_or(MAX_SHIFT);
        let n_chunks = CHUNKS_A_THREAD * rayon::current_num_threads();
        let n_chunks = n_chunks.min(n_edges / LEAST_EDGES_A_CHUNK + 1);
        Self { shift, n_bins: n_nodes.div_ceil(1 << shift), n_chunks }
    }

    /// The parts of the edge list, in parallel.
    fn chunks(self) -> impl IndexedParallelIterator<Item = Chunk> {
        let n_chunks = self.n_chunks;
        (0..n_chunks).into_par_iter().map(move |index| Chunk { index, n_chunks })
    }

    #[inline(always)]
    fn bin(self, dst: u32) -> usize {
        (dst >> self.shift) as usize
    }

    /// What of a destination its bin does not say.
    #[inline(always)]
    fn low(self, dst: u32) -> u16 {
        (dst & ((1 << self.shift) - 1)) as u16
    }

    /// How many of a chunk's edges go to each bin.
    fn count(self, edges: &Edges<'_>, chunk: Chunk) -> Vec<usize> {
        let mut counts = vec![0; self.n_bins];
        edges.for_each_in(chunk, |_, _, dst| counts[self.bin(dst)] += 1);
        counts
    }
}

/// Where a chunk writes its edges of one bin.
struct Place<'a, E> {
    entries: IterMut<'a, E>,
    lows: IterMut<'a, u16>,
}

impl<E> Place<'_, E> {
    #[inline(always)]
    fn put(&mut self, entry: E, low: u16) {
        let (at, low_at) = (self.entries.next(), self.lows.next());
        *at.expect("a bin should have room for the edges that were counted") = entry;
        *low_at.expect("a bin should have room for the edges that were counted") = low;
    }
}

/// The places of each chunk, one a bin: bins stand one after the other, and in each the chunks'.
fn split<'a, E>(
    mut entries: &'a mut [E],
    mut lows: &'a mut [u16],
    counts: &[Vec<usize>],
) -> Vec<Vec<Place<'a, E>>> {
    let n_bins = counts[0].len();
    let mut places: Vec<Vec<Place<'a, E>>> = counts.iter().map(|_| Vec::with_capacity(n_bins)).collect();
    for bin in 0..n_bins {
        for (places, counts) in places.iter_mut().zip(counts) {
            let here = entries.split_off_mut(..counts[bin]).expect("the counts should add up");
            let lows = lows.split_off_mut(..counts[bin]).expect("the counts should add up");
            places.push(Place { entries: here.iter_mut(), lows: lows.iter_mut() });
        }
    }
    places
}

/// The edges into a range of destinations.
struct Bin<'a, E> {
    first_edge: u64,
    /// For each destination 0, to become where its edges end.
    ends: &'a mut [u64],
    entries: &'a mut [E],
    /// The destination of each entry, counted from the first of the range.
    lows: &'a [u16],
}

/// All bins; `ends` are the destinations of each.
fn bins<'a, E>(
    ends: ChunksMut<'a, u64>,
    mut entries: &'a mut [E],
    mut lows: &'a [u16],
    bin_counts: &[usize],
) -> Vec<Bin<'a, E>> {
    let mut first_edge = 0;
    let bin = |(ends, &n_edges): (&'a mut [u64], &usize)| {
        let entries = entries.split_off_mut(..n_edges).expect("the counts should add up");
        let lows = lows.split_off(..n_edges).expect("the counts should add up");
        let bin = Bin { first_edge, ends, entries, lows };
        first_edge += n_edges as u64;
        bin
    };
    ends.zip(bin_counts).map(bin).collect()
}

impl<E: Entry> Bin<'_, E> {
    /// A counting sort by destination, then an order of each destination's entries.
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
