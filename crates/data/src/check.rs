//! Checks of all values of a set. The checks read each array once, so opening a mapped set does not run them.

mod parts;
mod place;

use std::path::Path;

use kiln_feature::{FeatureBuffer, FeatureStore, TargetKind, Targets};
use kiln_graph::{Csc, Error as GraphError, NodeId};
use kiln_store::Error as StoreError;
use kiln_store::progress::{Progress, ProgressUnit};

use self::place::stored_id;
use crate::arrays::{FINITE, RowsOf, column_value};
use crate::graph_folder::{NEGATIVES, column_file};
use crate::layout::Layout;
use crate::link_split::check_link_types;
use crate::mask::{is_mask, mask_as_ids};
use crate::{Dataset, DatasetLinks, Error, LinkTargets, NodeNames, Note, Result, Split};

pub(crate) use self::place::Place;

/// The maximum number of feature values that are gathered at a time. A row with more values is gathered alone.
pub(crate) const VALUES_AT_ONCE: usize = 1 << 16;

/// Checks all values of a set whose parts have the right lengths, and returns notes about its split. `place` is a folder, or
/// the set in memory, whose messages have the names of the set and of the part.
pub(crate) fn check_set(data: &Dataset, place: Place<'_>) -> Result<Vec<Note>> {
    let progress = Progress::start("checking edges", ProgressUnit::Edges, data.graph.n_edges());
    check_relations(data, place)?;
    progress.advance(data.graph.n_edges());
    drop(progress);
    check_rows(data, place)?;
    for (node_type, names) in data.names.iter().enumerate() {
        check_names(names, numbered(data, place, node_type))
            .map_err(|error| name_type(data, place, node_type, error))?;
    }
    let mut notes = Vec::new();
    if let Some(targets) = &data.targets {
        targets.values.validate().map_err(|error| place.located(error.into()))?;
        check_split_from(data.target_nodes().start, place, &targets.split, &targets.values, &mut notes)?;
    }
    for table in &data.tasks {
        notes.extend(table.check(data, place)?);
    }
    if let Some(DatasetLinks { relation, targets, .. }) = &data.links {
        check_links(targets, data.graph.n_nodes(), place)?;
        check_link_types(data.graph.schema(), *relation, targets).map_err(|error| place.located(error))?;
    }
    Ok(notes)
}

/// Checks the offsets, the nodes, the weights and the edge types of all relations.
fn check_relations(data: &Dataset, place: Place<'_>) -> Result<()> {
    if let Layout::Plain = data.layout {
        return check_graph(data.csc()?, &data.edge_type_names, place);
    }
    data.graph.validate().map_err(|error| match error {
        GraphError::InRelation { name, source } if !is_named(data, place) => {
            numbered(data, place, data.graph.position(&name).unwrap_or(0)).located(Error::Graph(*source))
        }
        other => other.into(),
    })?;
    check_columns(data, place)
}

/// Checks that the features of all types are finite, and the offsets and columns of sparse ones.
pub(crate) fn check_rows(data: &Dataset, place: Place<'_>) -> Result<()> {
    for (node_type, features) in data.features.iter().enumerate() {
        if let Some(features) = features {
            check_features(&**features, numbered(data, place, node_type))
                .map_err(|error| name_type(data, place, node_type, error))?;
        }
    }
    Ok(())
}

/// Checks the columns of the edges of all relations.
pub(crate) fn check_columns(data: &Dataset, place: Place<'_>) -> Result<()> {
    if let Layout::Plain = data.layout {
        return check_edge_data(data.csc()?, &data.edge_type_names, place);
    }
    for (position, relation) in data.graph.iter().enumerate() {
        let in_relation = |error| match is_named(data, place) {
            true => Error::InPart { part: format!("relation `{}`", relation.name), source: Box::new(error) },
            false => error,
        };
        check_edge_data(&relation.graph, &[], numbered(data, place, position)).map_err(in_relation)?;
    }
    Ok(())
}

/// Returns an error of a node type, with the name of the type if no file name tells it.
pub(crate) fn name_type(data: &Dataset, place: Place<'_>, node_type: usize, error: Error) -> Error {
    match is_named(data, place) {
        true => error.in_type(&data.graph.types().names()[node_type]),
        false => error,
    }
}

/// Returns true if messages name the node type or the relation, because they name no file of it.
fn is_named(data: &Dataset, place: Place<'_>) -> bool {
    data.is_heterogeneous() && matches!(place, Place::Set(_))
}

/// Returns the place of the node type or the relation at a position.
fn numbered<'a>(data: &Dataset, place: Place<'a>, position: usize) -> Place<'a> {
    match place {
        Place::Folder(folder) => Place::relation(folder, data.layout, position),
        _ => place,
    }
}

/// Checks that the nodes of a split exist and have a target, and adds the notes of [`Split::notes`].
pub(crate) fn check_split(
    place: Place<'_>,
    split: &Split,
    targets: &Targets,
    notes: &mut Vec<Note>,
) -> Result<()> {
    check_split_from(0, place, split, targets, notes)
}

/// Checks a split as [`check_split`] does, for targets of the nodes from `first` on.
pub(crate) fn check_split_from(
    first: u32,
    place: Place<'_>,
    split: &Split,
    targets: &Targets,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let nodes_with_row = first as usize..first as usize + targets.len();
    for (name, nodes) in split.parts() {
        let what = match name {
            "train" => "train split entry",
            "val" => "val split entry",
            _ => "test split entry",
        };
        if is_mask(targets.len(), nodes.iter().map(|node| node.0.wrapping_sub(first))) {
            let path = nodes.path().map_or_else(|| place.part(name), Path::to_owned);
            let (expected, found) = (mask_as_ids(targets.len()), format!("node {}", nodes[0].0));
            return Err(StoreError::BadValue { path, what, position: 0, expected, found }.into());
        }
        let is_bad = |node: &NodeId| {
            node.0.checked_sub(first).map(NodeId).is_none_or(|row| match targets {
                Targets::Classes(labels) => labels.as_slice().get(row.index()).is_none_or(|&class| class < 0),
                Targets::Values(values) => !values.has_any(row),
            })
        };
        if let Some(position) = nodes.iter().position(is_bad) {
            let node = nodes[position];
            let expected = match (nodes_with_row.contains(&node.index()), targets.kind()) {
                (true, TargetKind::Classes) => "a node that has a label".into(),
                (true, _) => "a node that has a target value".into(),
                (false, _) if first == 0 => format!("a node id below {}", targets.len()),
                (false, _) => format!("a node of the type with targets, which are {nodes_with_row:?}"),
            };
            let path = nodes.path().map_or_else(|| place.part(name), Path::to_owned);
            // An id that was read from a file may be a negative number that was mapped as an unsigned one. `stored_id`
            // restores it for the message.
            let is_stored = !matches!(place, Place::Set(_)) || nodes.path().is_some();
            let id = if is_stored { stored_id(node.0) } else { node.0.to_string() };
            let found = format!("node {id}");
            return Err(
                StoreError::BadValue { path, what, position: position as u64, expected, found }.into()
            );
        }
    }
    notes.extend(split.notes(targets, first));
    Ok(())
}

/// Checks a graph's offsets, node ids and weights, and its edge types if they have names.
pub(crate) fn check_graph(graph: &Csc, edge_type_names: &[String], place: Place<'_>) -> Result<()> {
    graph.validate().map_err(|error| place.located(error.into()))?;
    check_edge_data(graph, edge_type_names, place)
}

/// Checks that the values of all columns are finite, and that all edge types have names if any edge type has a name.
pub(crate) fn check_edge_data(graph: &Csc, edge_type_names: &[String], place: Place<'_>) -> Result<()> {
    let progress = Progress::start("checking edge columns", ProgressUnit::Edges, graph.n_edges());
    for (name, column) in graph.columns().iter() {
        if let Some(position) = column.first_not_finite() {
            let edge = (position / column.width()) as u64;
            return Err(not_finite(
                &column_file(name),
                column_value(name),
                edge,
                column.value(position),
                place,
            ));
        }
    }
    progress.advance(graph.n_edges());
    let n_types = edge_type_names.len();
    let types = graph.edge_types().unwrap_or_default();
    if n_types > 0
        && let Some(edge) = types.iter().position(|&ty| usize::from(ty) >= n_types)
    {
        let expected = format!("a type below {n_types}, the number of types that have names");
        return Err(place.bad("edge_types.npy", "the type of edge", edge as u64, expected, types[edge]));
    }
    Ok(())
}

/// Checks that the nodes of links and of their negatives exist, and the split of the links.
pub(crate) fn check_links(targets: &LinkTargets, n_nodes: usize, place: Place<'_>) -> Result<()> {
    let links = targets.links();
    let mut arrays = vec![
        ("link_srcs.npy", "the source of link", links.srcs()),
        ("link_dsts.npy", "the destination of link", links.dsts()),
    ];
    for ([dsts_file, srcs_file], negatives) in
        NEGATIVES.into_iter().zip([targets.val_negatives(), targets.test_negatives()])
    {
        if let Some(negatives) = negatives {
            arrays.push((dsts_file, "the destination of negative", negatives.dsts()));
            arrays.extend(negatives.srcs().map(|srcs| (srcs_file, "the source of negative", srcs)));
        }
    }
    for (file, what, nodes) in arrays {
        if let Some(position) = nodes.iter().position(|node| n_nodes <= node.index()) {
            let expected = format!("a node id below {n_nodes}");
            return Err(place.bad(file, what, position as u64, expected, stored_id(nodes[position].0)));
        }
    }
    targets.check(n_nodes).map_err(|error| place.located(error))
}

fn check_values(values: &[f32], file: &str, what: &'static str, place: Place<'_>) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(position) => Err(not_finite(file, what, position as u64, values[position], place)),
        None => Ok(()),
    }
}

fn not_finite(file: &str, what: &'static str, position: u64, found: f32, place: Place<'_>) -> Error {
    place.bad(file, what, position, FINITE, found)
}

pub(crate) fn check_features(features: &dyn FeatureStore, place: Place<'_>) -> Result<()> {
    if let Some(sparse) = features.as_sparse() {
        sparse.validate().map_err(|error| place.located(error.into()))?;
        return check_values(sparse.values(), "features_data.npy", "value", place);
    }
    let dim = features.dim();
    for_each_rows("checking features", features, |first_row, rows| {
        check_chunk(rows, dim, |row| first_row + row, place)
    })
}

/// Checks that rows of `dim` columns are finite. `node_of` is the node of each row.
pub(crate) fn check_chunk(
    rows: &FeatureBuffer,
    dim: usize,
    node_of: impl Fn(usize) -> usize,
    place: Place<'_>,
) -> Result<()> {
    let found = match rows {
        FeatureBuffer::F32(values) => first_not_finite(values, |value| *value),
        FeatureBuffer::F16(values) => first_not_finite(values, |value| value.to_f32()),
        FeatureBuffer::BF16(values) => first_not_finite(values, |value| value.to_f32()),
        // `push_rows` and `into_f32` refuse an element type that this version does not know.
        _ => None,
    };
    match found {
        Some((position, value)) => {
            let node = node_of(position / dim) as u64;
            Err(not_finite("features.npy", RowsOf::Nodes.value(), node, value, place))
        }
        None => Ok(()),
    }
}

fn first_not_finite<T>(values: &[T], to_f32: impl Fn(&T) -> f32) -> Option<(usize, f32)> {
    values.iter().map(to_f32).enumerate().find(|(_, value)| !value.is_finite())
}

/// Calls `visit` with each chunk of rows, in order, and with the index of the chunk's first row, as a stage of progress.
pub(crate) fn for_each_rows(
    stage: &str,
    features: &dyn FeatureStore,
    mut visit: impl FnMut(usize, &mut FeatureBuffer) -> Result<()>,
) -> Result<()> {
    let (n_rows, n_at_once) = (features.n_rows(), (VALUES_AT_ONCE / features.dim()).max(1));
    let mut rows = FeatureBuffer::empty(features.dtype());
    let progress = Progress::start(stage, ProgressUnit::Rows, n_rows as u64);
    for first_row in (0..n_rows).step_by(n_at_once) {
        let end = n_rows.min(first_row + n_at_once);
        let nodes: Vec<NodeId> = (first_row as u32..end as u32).map(NodeId).collect();
        features.gather(&nodes, &mut rows)?;
        visit(first_row, &mut rows)?;
        progress.advance(nodes.len() as u64);
    }
    Ok(())
}

pub(crate) fn check_names(names: &NodeNames, place: Place<'_>) -> Result<()> {
    let (mut start, n_bytes, n_names) = (0, names.text().len() as u64, names.len());
    let text = place.name("names_text.npy");
    for (node, &end) in names.ends().iter().enumerate() {
        if names.get(NodeId(node as u32)).is_none() {
            let expected = format!("the end of UTF-8 text from byte {start} of {text}, at most {n_bytes}");
            return Err(place.bad("names_ends.npy", "the name of node", node as u64, expected, end));
        }
        start = end;
    }
    if u64::from(start) != n_bytes {
        let expected = format!("{n_bytes}, the length of {text}");
        return Err(place.bad(
            "names_ends.npy",
            "the end of name",
            (n_names as u64).saturating_sub(1),
            expected,
            start,
        ));
    }
    Ok(())
}
