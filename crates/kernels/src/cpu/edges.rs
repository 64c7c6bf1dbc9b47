//! Loops over the edges of a block with one output row per edge.

use std::ops::Range;

use kiln_mem::vector;
use rayon::prelude::*;

use crate::cpu::cost;
use crate::cpu::rows::Segments;

/// The number of edges per task.
const EDGES_PER_TASK: usize = 4096;

/// A loop that computes the output row of one edge.
pub(super) trait EdgeRow: Sync {
    /// Writes the row of the edge at a position, which belongs to segment `row`. Implementations must be
    /// `#[inline(always)]` (see [`vector::VectorTask`]).
    fn write(&self, row: usize, position: usize, out: &mut [f32]);
}

/// Computes `width` values for each edge, on rayon's threads if that is faster. `edge_ns` is the time of an edge.
pub(super) fn fill_edges(
    segments: Segments<'_>,
    width: usize,
    edge_ns: f64,
    edges: &impl EdgeRow,
) -> Vec<f32> {
    let n_edges = segments.items.len();
    let mut out = vec![0.0; n_edges * width];
    if out.is_empty() {
        return out;
    }
    if !cost::is_parallel(n_edges as f64 * edge_ns, EDGES_PER_TASK as f64 * edge_ns) {
        vector::run(EdgeTask { segments, first: 0, width, out: &mut out, edges });
        return out;
    }
    out.par_chunks_mut(EDGES_PER_TASK * width).enumerate().for_each(|(task, out)| {
        vector::run(EdgeTask { segments, first: task * EDGES_PER_TASK, width, out, edges });
    });
    out
}

struct EdgeTask<'a, E> {
    segments: Segments<'a>,
    first: usize,
    width: usize,
    out: &'a mut [f32],
    edges: &'a E,
}

impl<E: EdgeRow> vector::VectorTask for EdgeTask<'_, E> {
    #[inline(always)]
    fn run(self) {
        let Self { segments, first, width, out, edges } = self;
        let mut row = segments.indptr.partition_point(|&start| start as usize <= first) - 1;
        for (position, out) in (first..).zip(out.chunks_exact_mut(width)) {
            while segments.indptr[row + 1] as usize <= position {
                row += 1;
            }
            edges.write(row, position, out);
        }
    }
}

/// A loop that computes the output rows of all edges of a segment together.
pub(super) trait SegmentRows: Sync {
    /// Writes the rows of the edges of segment `row`, which begin at position `first`.
    fn write(&self, row: usize, first: usize, out: &mut [f32]);
}

/// Computes `width` values for each edge, segment by segment, on rayon's threads if that is faster. `value_ns` is the
/// time of a value.
pub(super) fn fill_segments(
    segments: Segments<'_>,
    width: usize,
    value_ns: f64,
    rows: &impl SegmentRows,
) -> Vec<f32> {
    let mut out = vec![0.0; segments.items.len() * width];
    if out.is_empty() {
        return out;
    }
    let n_rows = segments.indptr.len() - 1;
    let n_values = out.len();
    let mut tasks = Vec::new();
    let mut rest = out.as_mut_slice();
    let mut start = 0;
    while start < n_rows {
        let limit = segments.indptr[start] as usize + EDGES_PER_TASK;
        let n_within = segments.indptr[start + 1..].partition_point(|&end| end as usize <= limit);
        let end = start + n_within.max(1);
        let n_edges = (segments.indptr[end] - segments.indptr[start]) as usize;
        let (of_task, after) = rest.split_at_mut(n_edges * width);
        tasks.push((start..end, of_task));
        (rest, start) = (after, end);
    }
    let longest = tasks.iter().map(|(_, out)| out.len()).max().unwrap_or(0);
    let is_parallel = cost::is_parallel(n_values as f64 * value_ns, longest as f64 * value_ns);
    let run = |(of_task, mut out): (Range<usize>, &mut [f32])| {
        for row in of_task {
            let edges = segments.of(row);
            let (of_row, after) = std::mem::take(&mut out).split_at_mut(edges.len() * width);
            rows.write(row, edges.start, of_row);
            out = after;
        }
    };
    match is_parallel {
        true => tasks.into_par_iter().for_each(run),
        false => tasks.into_iter().for_each(run),
    }
    out
}
