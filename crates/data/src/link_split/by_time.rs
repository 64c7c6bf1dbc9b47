//! Links of the edges of a relation, divided by the times of the edges.

use kiln_graph::Csc;

use super::part_links::{PartLinks, targets_of_parts};
use super::random::{EdgeKeys, LinkSplitConfig};
use super::{LinkDirection, LinkTargets};
use crate::error::LinkSplitError;
use crate::times::range_of;
use crate::{Result, TimeKind, TimeSplit};

/// Returns the links of each part: the distinct pairs of nodes with an edge whose time is in the part, with
/// [`LinkSplitConfig::with_times`] at each of these times.
pub(super) fn links_by_time(
    graph: &Csc,
    times: &[i64],
    split: &TimeSplit,
    kind: TimeKind,
    config: &LinkSplitConfig,
) -> Result<LinkTargets> {
    split.check()?;
    graph.validate()?;
    let edges = EdgeKeys { graph, dsts: graph.dsts() };
    let direction = match edges.direction(config)? {
        LinkDirection::Undirected => LinkDirection::Undirected,
        LinkDirection::Directed | LinkDirection::WithReverses => LinkDirection::Directed,
    };
    let parts = [0, 1, 2].map(|part| {
        let is_in_part = |edge: usize| split.part_of(times[edge]) == Some(part);
        let key = |src, dst| direction.pair_key(src, dst);
        match config.with_times {
            true => edges.distinct_at_times(config.edge_type, times, is_in_part, key),
            false => {
                let keys = edges.distinct_of(config.edge_type, is_in_part, key);
                PartLinks { keys, times: Vec::new() }
            }
        }
    });
    let n_links = parts.each_ref().map(|part| part.keys.len());
    if n_links == [0; 3] && graph.n_edges() == 0 {
        return Err(LinkSplitError::NoLinks { edge_type: config.edge_type }.into());
    }
    split.check_parts(n_links, range_of(times), kind)?;
    targets_of_parts(parts, config.with_times)
}
