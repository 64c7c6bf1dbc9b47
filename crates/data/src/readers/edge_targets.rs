//! The edges with targets of a set, which are listed as pairs of nodes.

use kiln_feature::EdgeFeatures;
use kiln_graph::{Csc, EdgeColumns, LinkId};

use crate::{Dataset, DatasetLinks, Error, LinkSplit, LinkSplitError, LinkTargets, Note, Result};

/// Returns a set with an edge task on a relation of its graph: the edges have their rows of the edge features, and those for
/// validation and test leave the graph with their reverses ([`LinkSplit::hold_out`]).
///
/// If the graph has several edges of a pair, the rows of the pair in the task are these edges, in the order of both.
///
/// # Errors
/// Returns [`LinkSplitError::NotAnEdge`] if the graph has fewer edges of a pair than the task, and the errors of
/// [`LinkSplit::hold_out`].
pub(crate) fn add_edge_task(mut data: Dataset, relation: usize, targets: LinkTargets) -> Result<Dataset> {
    let graph = data.graph.clone();
    let name = graph.relation(relation).name.clone();
    let edges = graph.whole_graph(relation)?;
    let starts = graph.schema().node_ranges(relation).map(|nodes| nodes.start);
    let found = find_edges(&edges, &targets, starts).map_err(|error| Error::InPart {
        part: format!("the labels of edges of the relation `{name:.60}`"),
        source: Box::new(error.into()),
    });
    let FoundEdges { edges: ids, n_with_others } = found?;
    let targets = match edges.columns().get(EdgeColumns::FEATURES) {
        Some(column) => {
            if n_with_others != 0 {
                data.notes.push(Note::Other(format!(
                    "{n_with_others} pairs of nodes with labels have more edges in the relation `{name:.60}` than rows of \
                     labels: the first edges of a pair have the labels, in the order of the edges"
                )));
            }
            let rows = column.select(ids.iter().copied())?;
            targets.with_features(EdgeFeatures::try_from(&rows)?)?
        }
        None => targets,
    };
    let reverse = LinkSplit::find_reverse(&graph, &name)?;
    if let Some(reverse) = reverse {
        let [relation, reverse] = [&name, reverse].map(ToString::to_string);
        data.notes.push(Note::ReverseRelation { relation, reverse });
    }
    let links = DatasetLinks::new(graph.schema(), &name, reverse, targets)?;
    LinkSplit::hold_out(&graph, links)?.into_dataset(data)
}

/// The edges of the rows of an edge task.
struct FoundEdges {
    /// The edge of each row.
    edges: Vec<u64>,
    /// The number of pairs with more edges than rows.
    n_with_others: usize,
}

/// Finds the edge of each row in a graph whose neighbours ascend. The ids of the types of the relation begin at `starts`.
fn find_edges(
    graph: &Csc,
    targets: &LinkTargets,
    starts: [u32; 2],
) -> std::result::Result<FoundEdges, LinkSplitError> {
    let links = targets.links();
    let mut order: Vec<LinkId> = (0..links.len() as u32).map(LinkId).collect();
    order.sort_by_key(|link| links.pair(*link));
    let mut edges = vec![0; links.len()];
    let mut n_with_others = 0;
    let mut missing: Option<(LinkId, usize)> = None;
    for rows in order.chunk_by(|a, b| links.pair(*a) == links.pair(*b)) {
        let (src, dst) = links.pair(rows[0]);
        let neighbors = graph.in_neighbors(dst);
        let before = neighbors.partition_point(|other| *other < src);
        let n_edges = neighbors.partition_point(|other| *other <= src) - before;
        let first = graph.first_edge(dst).0 + before as u64;
        for (row, edge) in rows.iter().zip(first..) {
            edges[row.index()] = edge;
        }
        n_with_others += usize::from(rows.len() < n_edges);
        // The first row without an edge, in the order of the task.
        let without = rows.get(n_edges).map(|row| (*row, n_edges));
        missing = missing.into_iter().chain(without).min_by_key(|(row, _)| *row);
    }
    let Some((row, n_edges)) = missing else { return Ok(FoundEdges { edges, n_with_others }) };
    let (src, dst) = links.pair(row);
    let (part, position) = part_of(targets, row);
    Err(LinkSplitError::NotAnEdge { part, position, src: src.0 - starts[0], dst: dst.0 - starts[1], n_edges })
}

/// Returns the part of the split that a row is in, and its position there. The parts are consecutive.
fn part_of(targets: &LinkTargets, row: LinkId) -> (&'static str, usize) {
    let mut position = row.index();
    let [train, val, test] = targets.split().parts();
    for (part, rows) in [train, val] {
        if position < rows.len() {
            return (part, position);
        }
        position -= rows.len();
    }
    (test.0, position)
}
