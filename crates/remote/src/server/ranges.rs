use std::ops::Range;

use kiln_partition::PartitionRow;
use kiln_sample::{Dsts, Fanout, Frontier, HopRequest, Rule, Scratch};

use crate::Result;
use crate::edges::Edges;
use crate::server::respond::ResponseSender;
use crate::wire::encoding::{SampledRange, chunks};

/// The number of rows that are sampled between two checks that the client is still connected.
const GROUP: usize = 256;

/// The memory of a sampled edge in bytes: 17 for source, id, weight and type in the sampler, 4 for its selection, and 26
/// in the response, which is twice the 13 for source, position, weight and type, because growing arrays have spare
/// capacity.
const EDGE_BYTES: usize = 17 + 4 + 2 * 13;

/// The memory of a row without its edges in bytes: 4 for the end of its edges in the sampler, and 12 for the number of
/// edges and the first id in the response.
const ROW_BYTES: usize = 4 + 12;

/// The rows of a request to sample.
#[derive(Debug)]
pub(crate) struct SampledRows {
    pub(crate) rows: Vec<PartitionRow>,
    /// The time of each row; `None` if rows have none.
    pub(crate) times: Option<Vec<i64>>,
}

/// The times of a group of rows.
struct GroupTimes {
    distinct: Vec<i64>,
    /// The position of each row's time among the distinct ones.
    index: Vec<u32>,
}

impl GroupTimes {
    fn of(times: &[i64]) -> Self {
        let mut distinct = times.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let index = times.iter().map(|time| distinct.partition_point(|other| other < time) as u32);
        Self { index: index.collect(), distinct }
    }
}

/// Samples edges of rows and sends them in ranges of rows. A range takes at most `response_bytes` of memory, unless it
/// is a single row that takes more. If a custom rule selects more edges than the fanout, the range ends early. Returns
/// early when the client disconnects.
///
/// # Errors
/// Returns the errors of sampling.
pub(crate) fn send_samples(
    edges: &Edges,
    rows: &SampledRows,
    rule: &Rule,
    request: &HopRequest,
    response_bytes: usize,
    response: &ResponseSender,
) -> Result<()> {
    let SampledRows { rows, times } = rows;
    let (mut scratch, mut picked) = (Scratch::default(), Frontier::default());
    for range in ranges(edges, rows, rule, request.fanout, response_bytes)? {
        let mut sampled = SampledRange::default();
        for start in range.clone().step_by(GROUP) {
            if !response.is_open() {
                return Ok(());
            }
            let positions = start..range.end.min(start + GROUP);
            let times = times.as_ref().map(|times| GroupTimes::of(&times[positions.clone()]));
            let group = &rows[positions];
            let nodes = PartitionRow::local_nodes(group);
            let dsts = match &times {
                Some(times) => Dsts::with_times(nodes, &times.distinct, &times.index),
                None => nodes.into(),
            };
            edges.sample(group, dsts.times(), rule, request, &mut scratch, &mut picked)?;
            sampled.push(edges, group, &picked);
            if response_bytes <= sampled.n_bytes() && !send(std::mem::take(&mut sampled), response) {
                return Ok(());
            }
        }
        if !send(sampled, response) {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the memory of a row with `n_edges` sampled edges, in bytes.
pub(crate) fn row_bytes(n_edges: usize) -> usize {
    ROW_BYTES.saturating_add(n_edges.saturating_mul(EDGE_BYTES))
}

/// Sends a range, unless it has no rows. Returns false if the client no longer reads the response.
fn send(sampled: SampledRange, response: &ResponseSender) -> bool {
    sampled.n_bytes() == 0 || chunks(sampled.into_arrays()).all(|chunk| response.send(chunk))
}

/// Divides rows into ranges that take at most `most_bytes` each when they are sampled. A single row that takes more is
/// a range of its own.
fn ranges(
    edges: &Edges,
    rows: &[PartitionRow],
    rule: &Rule,
    fanout: Fanout,
    most_bytes: usize,
) -> Result<Vec<Range<usize>>> {
    // Most requests fit in one range regardless of the degrees.
    if let Fanout::UpTo(fanout) = fanout
        && row_bytes(fanout as usize).saturating_mul(rows.len()) <= most_bytes
    {
        return Ok(std::iter::once(0..rows.len()).filter(|range| !range.is_empty()).collect());
    }
    let (mut ranges, mut start, mut n_bytes) = (Vec::new(), 0, 0_usize);
    for (at, edges) in edges.ranges(rows)?.into_iter().enumerate() {
        let n_edges = match fanout {
            Fanout::All => edges.len(),
            Fanout::UpTo(_) if edges.is_empty() => 0,
            Fanout::UpTo(fanout) if matches!(rule, Rule::UniformWithReplacement) => fanout as usize,
            Fanout::UpTo(fanout) => edges.len().min(fanout as usize),
        };
        n_bytes = n_bytes.saturating_add(row_bytes(n_edges));
        if most_bytes < n_bytes && start < at {
            ranges.push(start..at);
            (start, n_bytes) = (at, row_bytes(n_edges));
        }
    }
    if start < rows.len() {
        ranges.push(start..rows.len());
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleRegistry;
    use crate::local_part::LocalPart;
    use crate::local_part::testing::only_part;

    #[test]
    fn ranges_stay_within_the_memory_limit() {
        // All nodes of a ring have the same degree.
        let part = only_part(&kiln_data::synthetic::ring(60).unwrap());
        let held = LocalPart::new(part, RuleRegistry::default());
        let edges = held.edges(0).unwrap();
        let rows: Vec<PartitionRow> = (0..10).map(PartitionRow).collect();
        let degree = edges.ranges(&rows[..1]).unwrap()[0].len();
        let row_bytes = row_bytes(degree);
        let of = |fanout, most_bytes| ranges(edges, &rows, &Rule::Uniform, fanout, most_bytes).unwrap();
        assert_eq!(of(Fanout::All, 10 * row_bytes), std::slice::from_ref(&(0..10)));
        assert_eq!(of(Fanout::All, 10 * row_bytes - 1), [0..9, 9..10]);
        assert_eq!(of(Fanout::All, 4 * row_bytes), [0..4, 4..8, 8..10]);
        // A row that takes more than the limit is sent alone.
        assert_eq!(of(Fanout::All, 1).len(), 10);
        // A fanout above the degree counts as the degree.
        assert_eq!(of(Fanout::UpTo(1 << 30), 10 * row_bytes), std::slice::from_ref(&(0..10)));
        let rule = Rule::UniformWithReplacement;
        let drawn = ranges(edges, &rows, &rule, Fanout::UpTo(8), 5 * super::row_bytes(8));
        assert_eq!(drawn.unwrap(), [0..5, 5..10]);
        assert!(ranges(edges, &[], &Rule::Uniform, Fanout::All, 1).unwrap().is_empty());
    }
}
