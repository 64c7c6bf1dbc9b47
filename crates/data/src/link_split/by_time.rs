//! Links of the edges of a relation, divided by the times of the edges.

use kiln_graph::{Csc, Links, NodeId};

use super::random::{EdgeKeys, LinkSplitConfig, nodes_of};
use super::{LinkDirection, LinkTargets};
use crate::error::LinkSplitError;
use crate::times::range_of;
use crate::{Result, TimeKind, TimeSplit};

/// Returns the links of each part: the distinct pairs of nodes with an edge whose time is in the part.
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
        edges.distinct_of(
            config.edge_type,
            |edge| split.part_of(times[edge]) == Some(part),
            |src, dst| direction.pair_key(src, dst),
        )
    });
    let n_links = parts.each_ref().map(Vec::len);
    if n_links == [0; 3] && graph.n_edges() == 0 {
        return Err(LinkSplitError::NoLinks { edge_type: config.edge_type }.into());
    }
    split.check_parts(n_links, range_of(times), kind)?;
    let [train, val, test] = parts.map(|keys| {
        let (srcs, dsts): (Vec<NodeId>, Vec<NodeId>) = keys.into_iter().map(nodes_of).unzip();
        Links::new(srcs, dsts)
    });
    LinkTargets::of_parts(&train?, &val?, &test?)
}
