//! The parts of the builder: the edges that an edge list stands for, their scatter by destination, and
//! what is done to each destination's edges.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use crate::{Buf, SelfLoops};

/// The edges of the graph to build, each with the code of its origin: `2 * i` for entry `i` of the edge
/// list, `2 * i + 1` for its reverse, `2 * len + v` for the self loop added to node `v`.
pub(crate) struct Edges<'e> {
    n_nodes: usize,
    srcs: &'e [u32],
    dsts: &'e [u32],
    directions: Directions,
    keep_loops: bool,
    /// Nodes that get a self loop, ascending.
    added_loops: Vec<u32>,
}

/// Which edges an entry of the edge list stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directions {
    AsGiven,
    Both,
}

impl<'e> Edges<'e> {
    /// The edges of lists of equal lengths whose ids are below `n_nodes`.
    pub(crate) fn new(
        n_nodes: usize,
        srcs: &'e [u32],
        dsts: &'e [u32],
        directions: Directions,
        self_loops: SelfLoops,
    ) -> Self {
        let mut added_loops = Vec::new();
        if self_loops == SelfLoops::Add {
            let mut has_loop = vec![false; n_nodes];
            for (src, _) in srcs.iter().zip(dsts).filter(|(src, dst)| src == dst) {
                has_loop[*src as usize] = true;
            }
            added_loops.extend((0..n_nodes as u32).filter(|&node| !has_loop[node as usize]));
        }
        Self { n_nodes, srcs, dsts, directions, keep_loops: self_loops != SelfLoops::Remove, added_loops }
    }

    /// Calls `visit(code, src, dst)` for each edge, in no particular order.
    fn for_each(&self, visit: impl Fn(u64, u32, u32) + Sync) {
        (0..self.srcs.len()).into_par_iter().for_each(|position| {
            let (src, dst, code) = (self.srcs[position], self.dsts[position], 2 * position as u64);
            if src != dst {
                visit(code, src, dst);
                if self.directions == Directions::Both {
                    visit(code + 1, dst, src);
                }
            } else if self.keep_loops {
                visit(code, src, dst);
            }
        });
        let first_loop = 2 * self.srcs.len() as u64;
        self.added_loops.par_iter().for_each(|&node| visit(first_loop + u64::from(node), node, node));
    }

    /// The source of the edge with this code.
    pub(crate) fn src(&self, code: u64) -> u32 {
        let position = code as usize / 2;
        match self.srcs.get(position) {
            Some(&src) if code.is_multiple_of(2) => src,
            Some(_) => self.dsts[position],
            None => (code - 2 * self.srcs.len() as u64) as u32,
        }
    }

    /// Where each destination's edges start, and `value(code, src)` of each edge, by destination, in any
    /// order within one.
    pub(crate) fn scatter<S: Slot>(
        &self,
        value: impl Fn(u64, u32) -> u64 + Sync,
    ) -> (Vec<u64>, Vec<S::Value>) {
        let starts = self.count_into_starts();
        let slots: Vec<S> = zeroed(starts[self.n_nodes].load(Relaxed));
        self.for_each(|code, src, dst| {
            let slot = starts[dst as usize].fetch_add(1, Relaxed);
            slots[slot as usize].put(value(code, src));
        });
        // Each start has become the next one, so they are shifted back. The last entry, the count of
        // edges, then stands twice, and the one brought to the front gives way.
        let mut indptr: Vec<u64> = starts.into_iter().map(AtomicU64::into_inner).collect();
        indptr.rotate_right(1);
        indptr[0] = 0;
        (indptr, slots.into_iter().map(S::take).collect())
    }

    /// Where each destination's edges start; one entry more than nodes, the last being the edge count.
    fn count_into_starts(&self) -> Vec<AtomicU64> {
        let mut starts: Vec<AtomicU64> = zeroed(self.n_nodes as u64 + 1);
        self.for_each(|_, _, dst| {
            starts[dst as usize].fetch_add(1, Relaxed);
        });
        let mut n_before = 0;
        for start in &mut starts {
            let count = std::mem::replace(start.get_mut(), n_before);
            n_before += count;
        }
        starts
    }
}

/// A place that threads write to in the scatter.
pub(crate) trait Slot: Default + Send + Sync {
    /// What it holds: of the same size, so that the slots' memory serves for the values.
    type Value;

    fn put(&self, value: u64);

    fn take(self) -> Self::Value;
}

impl Slot for AtomicU32 {
    type Value = u32;

    fn put(&self, value: u64) {
        self.store(value as u32, Relaxed);
    }

    fn take(self) -> u32 {
        self.into_inner()
    }
}

impl Slot for AtomicU64 {
    type Value = u64;

    fn put(&self, value: u64) {
        self.store(value, Relaxed);
    }

    fn take(self) -> u64 {
        self.into_inner()
    }
}

/// Origin codes in CSC order, four bytes each where that is enough.
pub(crate) enum Codes {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Codes {
    pub(crate) fn map<T: Send>(&self, f: impl Fn(u64) -> T + Sync) -> Vec<T> {
        match self {
            Codes::Narrow(codes) => codes.par_iter().map(|&code| f(u64::from(code))).collect(),
            Codes::Wide(codes) => codes.par_iter().map(|&code| f(code)).collect(),
        }
    }
}

impl From<Codes> for Buf<u64> {
    fn from(codes: Codes) -> Self {
        match codes {
            Codes::Narrow(codes) => codes.into_iter().map(u64::from).collect::<Vec<_>>().into(),
            Codes::Wide(codes) => codes.into(),
        }
    }
}

fn zeroed<T: Default>(n: u64) -> Vec<T> {
    std::iter::repeat_with(T::default).take(n as usize).collect()
}

/// Calls `f` with each destination's part of `data`, in parallel, halving by edges so that hubs do not
/// unbalance the work.
pub(crate) fn for_each_segment<T: Send>(indptr: &[u64], data: &mut [T], f: &(impl Fn(&mut [T]) + Sync)) {
    const EDGES_IN_SEQUENCE: usize = 1 << 14;
    let n_nodes = indptr.len() - 1;
    if data.len() <= EDGES_IN_SEQUENCE || n_nodes == 1 {
        let mut rest = data;
        for pair in indptr.windows(2) {
            let (segment, tail) = rest.split_at_mut((pair[1] - pair[0]) as usize);
            if segment.len() > 1 {
                f(segment);
            }
            rest = tail;
        }
        return;
    }
    let middle_edge = indptr[0] + data.len() as u64 / 2;
    let middle = indptr.partition_point(|&start| start <= middle_edge).clamp(2, n_nodes) - 1;
    let (left, right) = data.split_at_mut((indptr[middle] - indptr[0]) as usize);
    rayon::join(
        || for_each_segment(&indptr[..=middle], left, f),
        || for_each_segment(&indptr[middle..], right, f),
    );
}

/// Keeps the first of each run of entries with the same source in each destination's part.
pub(crate) fn remove_duplicates<T: Copy, K: PartialEq>(
    indptr: &mut [u64],
    data: &mut Vec<T>,
    src: impl Fn(&T) -> K,
) {
    let mut n_kept = 0;
    let mut start = 0;
    for end in &mut indptr[1..] {
        let first_kept = n_kept;
        for position in start..*end as usize {
            let entry = data[position];
            if n_kept == first_kept || src(&data[n_kept - 1]) != src(&entry) {
                data[n_kept] = entry;
                n_kept += 1;
            }
        }
        start = *end as usize;
        *end = n_kept as u64;
    }
    data.truncate(n_kept);
    data.shrink_to_fit();
}
