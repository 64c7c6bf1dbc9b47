//! The builder's sort by destination, in two passes whose places for writing fit the caches.
//!
//! To put each edge at its destination's place at once is one miss of the cache and of the address translation
//! an edge, and threads meet at the counters of hubs. So edges first go to bins, which are ranges of
//! destinations, and then each bin is put in order by itself. On 124 M edges and 2.4 M nodes in no order, 2
//! threads, FIGURES.

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
    let n_edges = edges.n_at_most();
    let shift = shift_of(edges.n_nodes(), n_edges);
    let n_bins = edges.n_nodes().div_ceil(1 << shift);
    let n_chunks = (CHUNKS_A_THREAD * rayon::current_num_threads()).min(n_edges / LEAST_EDGES_A_CHUNK + 1);
    let counts: Vec<Vec<usize>> = (0..n_chunks)
        .into_par_iter()
        .map(|index| {
            let mut counts = vec![0; n_bins];
            edges.for_each_in(Chunk { index, n_chunks }, |_, _, dst| counts[(dst >> shift) as usize] += 1);
            counts
        })
        .collect();
    let bin_counts: Vec<usize> =
        (0..n_bins).map(|bin| counts.iter().map(|counts| counts[bin]).sum()).collect();
    let n_edges = bin_counts.iter().sum();
    // The system gives these as zeros, or they are cleared at once: no pass over them of our own.
    let (mut entries, mut lows) = (vec![E::default(); n_edges], vec![0_u16; n_edges]);
    let places = split(&mut entries, &mut lows, &counts);
    places.into_par_iter().enumerate().for_each(|(index, mut places)| {
        edges.for_each_in(Chunk { index, n_chunks }, |code, src, dst| {
            places[(dst >> shift) as usize].put(entry(code, src), (dst & ((1 << shift) - 1)) as u16);
        });
    });
    let mut indptr = vec![0; edges.n_nodes() + 1];
    let mut bins = Vec::with_capacity(n_bins);
    let (mut entries_left, mut lows_left, mut first_edge) = (&mut entries[..], &lows[..], 0);
    for (ends, n_bin) in indptr[1..].chunks_mut(1 << shift).zip(bin_counts) {
        let entries = entries_left.split_off_mut(..n_bin).expect("bins should hold all edges");
        let lows = lows_left.split_off(..n_bin).expect("bins should hold all edges");
        bins.push(Bin { first_edge, ends, entries, lows });
        first_edge += n_bin as u64;
    }
    bins.into_par_iter().for_each_init(Default::default, |(unsorted, memory), bin| {
        bin.sort(unsorted, |segment| order(segment, memory));
    });
    (indptr, entries)
}

/// So many bits of a destination are not said by its bin.
fn shift_of(n_nodes: usize, n_edges: usize) -> u32 {
    let n_bins = (n_edges / EDGES_A_BIN).clamp(1, MAX_BINS);
    (0..MAX_SHIFT).find(|shift| n_nodes.div_ceil(1 << shift) <= n_bins).unwrap_or(MAX_SHIFT)
}

/// Where a chunk writes its edges of one bin.
struct Place<'a, E> {
    entries: std::slice::IterMut<'a, E>,
    lows: std::slice::IterMut<'a, u16>,
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
