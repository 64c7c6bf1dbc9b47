//! The stored order of the edges of each relation by time: written from the finished arrays of a set, compared with the manifest
//! when it is opened, and verified.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kiln_graph::{Csc, EdgeColumns, NodeTypes, Relation, Relations, TimeScale};
use kiln_store::Hasher;
use kiln_store::array_folder::{
    ArrayFolder, ElementType, Entries, FolderWriter, Known, bad_key, missing_entry,
};
use kiln_store::progress::{Progress, ProgressUnit};
use serde::{Deserialize, Serialize};

use super::contents::TimesEntry;
use super::location::path_in;
use crate::check::Place;
use crate::graph_folder::{NODE_TIMES, column_file, read_csc};
use crate::layout::Layout;
use crate::times::{MessageTimes, range_of};
use crate::{Dataset, DatasetTimes, Result, StoredOrders, TimeError};

/// The file of the order of a relation's edges by time.
const EDGES_BY_TIME: &str = "edges_by_time.npy";

/// The number of edges that are ordered at once: 28 MB with their times and keys. More are, if they are those of one node.
const EDGES_AT_ONCE: u64 = 1 << 20;

/// The orders that a manifest lists, by the name of the file.
pub(crate) type OrderEntries = BTreeMap<String, OrderEntry>;

/// What a manifest states about the order of a relation's edges by time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderEntry {
    /// The first time ([`TimeScale::first`]).
    first: i64,
    /// The number of lower bits of times that are left out ([`TimeScale::shift`]).
    shift: u32,
    /// The hash of the arrays from which the order was made ([`inputs_hash`]).
    of: String,
}

/// The relations of a set, by their positions.
#[derive(Debug, Clone)]
pub(super) struct RelationEnds {
    /// The node types of the set.
    pub(super) types: Arc<NodeTypes>,
    /// The name of each relation, and the positions of the types of its sources and destinations.
    pub(super) relations: Vec<(String, [usize; 2])>,
}

impl RelationEnds {
    /// Returns the only relation of a graph with one type of nodes.
    pub(super) fn homogeneous(n_nodes: usize) -> Result<Self> {
        let types = Arc::new(NodeTypes::new([("node", n_nodes)])?);
        Ok(Self { types, relations: vec![("edge".to_owned(), [0, 0])] })
    }
}

/// Returns the name of the file of the order of the relation at a position.
fn file_of(layout: Layout, position: usize) -> String {
    layout.file(EDGES_BY_TIME, position).into_owned()
}

/// Returns the files of orders that a manifest lists, for the check of its entries.
pub(super) fn known_files(
    path: &Path,
    entries: &Entries,
    orders: &OrderEntries,
    layout: Layout,
    n_edges: &[usize],
) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for (position, n_edges) in n_edges.iter().enumerate() {
        let name = file_of(layout, position);
        match (entries.contains_key(&name), orders.get(&name)) {
            (false, None) => continue,
            (true, None) => {
                let expected = "an entry, because the file is listed";
                return Err(bad_key(path, &format!("orders.{name}"), expected, "none").into());
            }
            (false, Some(_)) => return Err(missing_entry(path, &name).into()),
            (true, Some(order)) if u64::BITS <= order.shift => {
                let expected = format!("a number below {}", u64::BITS);
                return Err(bad_key(path, &format!("orders.{name}.shift"), expected, order.shift).into());
            }
            (true, Some(_)) => {}
        }
        let shape = Some(vec![*n_edges]);
        known.push(Known { name: name.into(), types: &[ElementType::U32], shape, is_needed: false });
    }
    match orders.keys().find(|name| known.iter().all(|known| known.name != **name)) {
        None => Ok(known),
        Some(name) => {
            let expected = format!("the names of orders of relations, such as {}", file_of(layout, 0));
            Err(bad_key(path, "orders", expected, name).into())
        }
    }
}

/// Returns true for the name of an order, which is not hashed with the data, because it is made from them.
pub(super) fn is_order(name: &str) -> bool {
    name.starts_with("edges_by_time.")
}

/// Orders the edges of each relation that has times, or whose sources have, and writes the orders. The other arrays of the set are
/// finished.
pub(super) fn write(set: &mut FolderWriter, layout: Layout, ends: &RelationEnds) -> Result<OrderEntries> {
    let mut orders = OrderEntries::new();
    let needed = inputs_of_all(set.entries(), layout, ends);
    if needed.is_empty() {
        return Ok(orders);
    }
    let arrays = ArrayFolder::open(&path_in(set.folder()), &needed)?;
    let (graph, times) = read(&arrays, layout, ends)?;
    for position in 0..graph.n_relations() {
        let Some(times) = MessageTimes::new(&graph, position, &times) else { continue };
        let scale = scale_of(&times)?;
        let mut order = set.vector(file_of(layout, position), ElementType::U32)?;
        for_each_part(&times, scale, |_, part| Ok(order.push(part)?))?;
        set.add(order)?;
        let of = inputs_hash(set.entries(), layout, ends, position);
        orders.insert(file_of(layout, position), OrderEntry { first: scale.first, shift: scale.shift, of });
    }
    Ok(orders)
}

/// Returns the graph and the times of nodes in the arrays of a set, of which only those that determine orders are open. Relations
/// without times have no edges.
fn read(arrays: &ArrayFolder, layout: Layout, ends: &RelationEnds) -> Result<(Relations, DatasetTimes)> {
    let mut relations = Vec::with_capacity(ends.relations.len());
    for (position, (name, [src_type, dst_type])) in ends.relations.iter().enumerate() {
        let graph = match arrays.array(&layout.file("indptr.npy", position)) {
            Some(_) => read_csc(arrays, layout, position)?,
            None => {
                let n_rows = ends.types.range(*dst_type).len();
                Csc::new(vec![0; n_rows + 1].into(), Vec::<u32>::new().into())?
            }
        };
        let graph = Arc::new(graph);
        relations.push(Relation { name: name.clone(), src_type: *src_type, dst_type: *dst_type, graph });
    }
    let mut nodes = Vec::new();
    for node_type in 0..ends.types.n_types() {
        nodes.push(arrays.optional(&layout.file(NODE_TIMES, node_type))?);
    }
    Ok((Relations::new(Arc::clone(&ends.types), relations)?, TimesEntry::default().with_nodes(nodes)))
}

/// Returns the entries of the files that determine the order of a relation; empty if its edges are always known.
fn inputs(entries: &Entries, layout: Layout, ends: &RelationEnds, position: usize) -> Entries {
    let (_, [src_type, _]) = ends.relations[position];
    let of_edges = layout.file(column_file(EdgeColumns::TIMES), position);
    let of_nodes = layout.file(NODE_TIMES, src_type);
    if ![&of_edges, &of_nodes].iter().any(|name| entries.contains_key(&***name)) {
        return Entries::new();
    }
    let [indptr, indices] = ["indptr.npy", "indices.npy"].map(|name| layout.file(name, position));
    let names = [indptr, indices, of_edges, of_nodes].into_iter();
    names.filter_map(|name| Some((name.to_string(), entries.get(&*name)?.clone()))).collect()
}

fn inputs_of_all(entries: &Entries, layout: Layout, ends: &RelationEnds) -> Entries {
    (0..ends.relations.len()).flat_map(|position| inputs(entries, layout, ends, position)).collect()
}

/// Returns the hash of what the order of a relation was made from: the ranges of its nodes, and the hashes of its files.
fn inputs_hash(entries: &Entries, layout: Layout, ends: &RelationEnds, position: usize) -> String {
    let mut hasher = Hasher::default();
    let (_, [src_type, dst_type]) = ends.relations[position];
    let [srcs, dsts] = [src_type, dst_type].map(|node_type| ends.types.range(node_type));
    hasher.update(format!("edges by time 1\nsrcs {srcs:?}\ndsts {dsts:?}\n"));
    for (name, entry) in inputs(entries, layout, ends, position) {
        hasher.update(format!("{name} {}\n", entry.sha256));
    }
    hasher.finish()
}

/// Returns the orders of an opened set.
///
/// # Errors
/// Returns [`TimeError::StaleOrder`] for an order that was made from other arrays.
pub(super) fn open(
    arrays: &ArrayFolder,
    entries: &OrderEntries,
    layout: Layout,
    graph: &Relations,
    times: &DatasetTimes,
) -> Result<StoredOrders> {
    if entries.is_empty() {
        return Ok(StoredOrders::default());
    }
    let relations =
        graph.iter().map(|relation| (relation.name.clone(), [relation.src_type, relation.dst_type]));
    let ends = RelationEnds { types: Arc::clone(graph.types()), relations: relations.collect() };
    let mut orders = Vec::with_capacity(graph.n_relations());
    for position in 0..graph.n_relations() {
        let name = file_of(layout, position);
        let Some(entry) = entries.get(&name) else {
            orders.push(None);
            continue;
        };
        if entry.of != inputs_hash(arrays.entries(), layout, &ends, position) {
            return Err(TimeError::StaleOrder { path: arrays.folder().join(name) }.into());
        }
        let scale = TimeScale { first: entry.first, shift: entry.shift };
        orders.push(Some((arrays.values(&name)?, scale)));
    }
    Ok(StoredOrders::new(orders, graph, times))
}

/// Checks that each stored order of a set is the one of its edges, which are valid.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] for the first entry that differs.
pub(super) fn verify(data: &Dataset, folder: &Path) -> Result<()> {
    for position in 0..data.graph.n_relations() {
        let Some((order, stored)) = data.times.orders.get(&data.graph, position, &data.times) else {
            continue;
        };
        let Some(times) = MessageTimes::new(&data.graph, position, &data.times) else { continue };
        let place = Place::relation(folder, data.layout, position);
        let scale = scale_of(&times)?;
        if scale != stored {
            let expected = format!("the scale of the times, {scale:?}");
            return Err(place.bad(EDGES_BY_TIME, "the scale of entry", 0, expected, format!("{stored:?}")));
        }
        for_each_part(&times, scale, |first, expected| {
            let found = &order[first..first + expected.len()];
            match found.iter().zip(expected).position(|(found, expected)| found != expected) {
                None => Ok(()),
                Some(at) => {
                    let expected =
                        format!("{}, by the times of the edges: write the set again", expected[at]);
                    let position = (first + at) as u64;
                    Err(place.bad(EDGES_BY_TIME, "entry", position, expected, found[at]))
                }
            }
        })?;
    }
    Ok(())
}

/// Returns the scale of the times of all edges of a relation.
fn scale_of(times: &MessageTimes<'_>) -> Result<TimeScale> {
    if let (Some(of_edges), None) = (times.of_edges, times.of_srcs) {
        return Ok(TimeScale::of(of_edges));
    }
    let mut range: Option<[i64; 2]> = None;
    for rows in parts(times.indptr(), EDGES_AT_ONCE) {
        let Some([first, last]) = range_of(&times.row_times(rows)) else { continue };
        let [earliest, latest] = range.unwrap_or([first, last]);
        range = Some([earliest.min(first), latest.max(last)]);
    }
    let [first, last] = range.unwrap_or([0, 0]);
    Ok(TimeScale::between(first, last))
}

/// Calls `visit` with the order of the edges of consecutive destinations, and the position of the first edge, part by part.
fn for_each_part(
    times: &MessageTimes<'_>,
    scale: TimeScale,
    mut visit: impl FnMut(usize, &[u32]) -> Result<()>,
) -> Result<()> {
    let indptr = times.indptr();
    let n_edges = indptr.last().copied().unwrap_or(0);
    let progress = Progress::start("ordering edges by time", ProgressUnit::Edges, Some(n_edges));
    let mut order = Vec::new();
    for rows in parts(indptr, EDGES_AT_ONCE) {
        let offsets = &indptr[rows.start..=rows.end];
        let of_edges = times.row_times(rows);
        order.resize(of_edges.len(), 0);
        scale.order_edges(offsets, &of_edges, &mut order);
        visit(offsets[0] as usize, &order)?;
        progress.advance(order.len() as u64);
    }
    Ok(())
}

/// Divides the destinations of these offsets, which ascend, into parts of at most `n_at_once` edges, or of one destination.
fn parts(indptr: &[u64], n_at_once: u64) -> impl Iterator<Item = Range<usize>> {
    let n_rows = indptr.len().saturating_sub(1);
    let mut start = 0;
    std::iter::from_fn(move || {
        if n_rows <= start {
            return None;
        }
        let limit = indptr[start].saturating_add(n_at_once);
        let n_within = indptr[start + 1..].partition_point(|offset| *offset <= limit);
        let rows = start..start + n_within.max(1);
        start = rows.end;
        Some(rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_few_edges_or_one_destination() {
        let cases: [(&[u64], &[[usize; 2]]); 4] = [
            (&[0, 1, 3, 4, 9, 9, 10], &[[0, 2], [2, 3], [3, 4], [4, 6]]),
            (&[0, 7], &[[0, 1]]),
            (&[0, 0, 0], &[[0, 2]]),
            (&[0], &[]),
        ];
        for (indptr, expected) in cases {
            let divided: Vec<[usize; 2]> = parts(indptr, 3).map(|rows| [rows.start, rows.end]).collect();
            assert_eq!(divided, expected);
        }
    }
}
