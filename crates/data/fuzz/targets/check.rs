//! Invariants of the results and errors of all readers.

use std::path::Path;

use kiln_data::{Dataset, Error, GraphDataset, Note};
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::{EdgeId, NodeId, gcn_norm};

/// The maximum number of feature columns of sets whose rows are gathered here. A larger number in a damaged file is
/// valid, but gathering a row would allocate that much memory.
const MAX_DIM: usize = 1 << 16;

/// Checks that the message of an error is short and contains a path in the folder.
pub(super) fn error(error: &Error, folder: &Path) {
    let text = error.to_string();
    // Metadata may refer to a file outside of the folder by an absolute path.
    let is_told = text.contains(&*folder.to_string_lossy()) || text.starts_with('/');
    assert!(is_told, "the message should contain a path: {text}");
    assert!(text.len() < 4096, "the message has {} bytes, expected fewer than 4096: {text:.300}", text.len());
    assert!(!format!("{error:?}").is_empty());
}

/// Checks that notes are not empty.
pub(super) fn notes(notes: &[Note], folder: &Path) {
    for note in notes {
        assert!(!note.to_string().is_empty(), "the notes on {} should have a text", folder.display());
    }
}

/// Checks that an opened set has one row and one label per node and names for its classes, and that reading its values
/// does not panic. Returns true if the set is valid.
pub(super) fn dataset(data: &Dataset) -> bool {
    let n_nodes = data.graph.n_nodes();
    assert_eq!(data.node_features().unwrap().n_rows(), n_nodes);
    let targets = &data.targets.as_ref().expect("a homogeneous set should have targets").values;
    assert_eq!(targets.len(), n_nodes);
    assert_eq!(data.class_names().len(), targets.n_outputs());
    assert!(!data.to_string().is_empty());
    assert!(!data.summary().to_string().is_empty());
    gather(&**data.node_features().unwrap(), n_nodes);
    if let Some(features) = data.edge_features().expect("the rows should have a supported width") {
        assert_eq!(features.n_edges(), data.graph.n_edges());
    }
    edge_columns(data);
    change(data);
    let split: Vec<NodeId> =
        data.split().parts().iter().flat_map(|(_, nodes)| nodes.iter().copied()).collect();
    let is_sound = match data.validate() {
        Ok(found) => {
            notes(&found, data.name.as_ref());
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    };
    let gathered = targets.gather(&split, &mut Vec::new(), &mut Vec::new());
    if is_sound {
        gathered.expect("the nodes of a valid split should have targets");
        for node in (0..n_nodes as u32).map(NodeId) {
            assert_eq!(
                data.csc().unwrap().in_neighbors(node).len() as u64,
                data.csc().unwrap().in_degree(node)
            );
        }
    }
    is_sound
}

/// Checks that the parts of an opened heterogeneous set have the lengths of their types, and that reading its values does
/// not panic. Returns true if the set is valid.
pub(super) fn typed(data: &Dataset) -> bool {
    let types = data.graph.types();
    assert_eq!((data.features.len(), data.names.len()), (types.n_types(), types.n_types()));
    for (node_type, (features, names)) in data.features.iter().zip(&data.names).enumerate() {
        let n_nodes = types.range(node_type).len();
        if let Some(features) = features {
            assert_eq!(features.n_rows(), n_nodes);
            gather(&**features, n_nodes);
        }
        assert!(names.is_empty() || names.len() == n_nodes);
    }
    assert!(!data.to_string().is_empty());
    assert!(!data.summary().to_string().is_empty());
    let validated = data.validate();
    if let Err(error) = &validated {
        assert!(!error.to_string().is_empty());
    }
    if let Some(targets) = &data.targets {
        let nodes = data.target_nodes();
        assert_eq!(
            (targets.values.len(), targets.class_names.len()),
            (nodes.len(), targets.values.n_outputs())
        );
        let split = targets.split.parts().into_iter().flat_map(|(_, nodes)| nodes.iter().copied());
        let rows: Option<Vec<NodeId>> = split.map(|node| data.row_of(node)).collect();
        let gathered =
            rows.map(|rows| targets.values.gather(&rows, &mut Vec::new(), &mut Vec::new()).is_ok());
        assert!(
            validated.is_err() || gathered == Some(true),
            "the nodes of a valid split should have targets"
        );
    }
    edge_columns(data);
    for relation in data.graph.iter().filter(|_| validated.is_ok()) {
        let (srcs, graph) = (types.range(relation.src_type), &relation.graph);
        for row in (0..graph.n_nodes() as u32).map(NodeId) {
            assert!(graph.in_neighbors(row).iter().all(|src| srcs.contains(&src.0)));
        }
    }
    validated.is_ok()
}

/// Checks that the columns of edges have one row per edge of their relation.
fn edge_columns(data: &Dataset) {
    for relation in data.graph.iter() {
        for (name, column) in relation.graph.columns().iter() {
            assert_eq!(column.n_rows() as u64, relation.graph.n_edges(), "the rows of the column {name}");
        }
    }
}

/// Applies the transformations that precede training. For a damaged set, they may fail with an error message.
fn change(data: &Dataset) {
    let normalised = gcn_norm(data.csc().unwrap()).map_err(|error| error.to_string());
    let mut changed = vec![normalised.map(drop)];
    if data.node_features().unwrap().dim() <= MAX_DIM {
        let sets = [data.clone().symmetrize(), data.clone().standardize(), data.clone().row_normalize()];
        changed.extend(sets.map(|set| set.map(drop).map_err(|error| error.to_string())));
    }
    assert!(
        changed.iter().all(|result| result.as_ref().is_err_and(|text| !text.is_empty()) || result.is_ok())
    );
}

/// Checks that two sets are equal except for their notes.
pub(super) fn same(a: &Dataset, b: &Dataset) {
    assert_eq!(a.name, b.name);
    assert_eq!(
        (a.csc().unwrap().indptr(), a.csc().unwrap().indices()),
        (b.csc().unwrap().indptr(), b.csc().unwrap().indices())
    );
    assert_eq!(
        (a.csc().unwrap().weights(), a.csc().unwrap().edge_types()),
        (b.csc().unwrap().weights(), b.csc().unwrap().edge_types())
    );
    assert_eq!(
        (a.labels().as_slice(), a.labels().n_classes()),
        (b.labels().as_slice(), b.labels().n_classes())
    );
    assert_eq!(values(a), values(b));
    assert_eq!((&a.split(), &a.names), (&b.split(), &b.names));
    assert_eq!(a.links, b.links);
    assert_eq!(edge_rows(a), edge_rows(b));
    assert_eq!((&a.class_names(), &a.edge_type_names), (&b.class_names(), &b.edge_type_names));
    assert_eq!(
        (a.node_features().unwrap().dim(), a.node_features().unwrap().n_rows()),
        (b.node_features().unwrap().dim(), b.node_features().unwrap().n_rows())
    );
    if a.node_features().unwrap().dim() <= MAX_DIM {
        for node in (0..a.node_features().unwrap().n_rows().min(8) as u32).map(NodeId) {
            let rows = [a, b]
                .map(|data| data.node_features().unwrap().row(node).expect("a valid row should be readable"));
            assert_eq!(rows[0], rows[1], "row {}", node.0);
        }
    }
}

/// Returns the number of columns and the rows of the edge features.
fn edge_rows(data: &Dataset) -> Option<(usize, FeatureBuffer)> {
    let features = data.edge_features().expect("the rows should have a supported width")?;
    let edges: Vec<EdgeId> = (0..features.n_edges()).map(EdgeId).collect();
    let mut rows = FeatureBuffer::default();
    features.gather(&edges, &mut rows).expect("the rows of all edges should be readable");
    Some((features.dim(), rows))
}

/// Returns the number of columns and the target values of a set, with the bits of numbers, because a missing one is NaN.
fn values(data: &Dataset) -> Option<(usize, &[u8], Vec<u32>)> {
    let values = data.target_values()?;
    let bits = values.as_numbers().unwrap_or_default().iter().map(|number| number.to_bits());
    Some((values.n_columns(), values.as_labels().unwrap_or_default(), bits.collect()))
}

/// Checks that a set of graphs is valid, since the readers of such sets must reject all invalid data.
pub(super) fn graphs(data: &GraphDataset) {
    assert!(!data.to_string().is_empty());
    data.graph().validate().expect("the edges of a set of graphs should be valid");
    let targets = data.targets();
    targets.validate().expect("the class of each graph should be below the number of classes");
    assert_eq!(data.class_names.len(), targets.n_outputs());
    assert_eq!(data.n_graphs(), targets.len());
    let mut n_nodes = 0;
    for graph in 0..data.n_graphs() {
        assert_eq!(data.nodes(graph).start, n_nodes);
        n_nodes = data.nodes(graph).end;
    }
    assert_eq!(n_nodes, data.graph().n_nodes());
    if let Some(types) = data.graph().edge_types() {
        assert!(types.iter().all(|&ty| usize::from(ty) < data.edge_type_names.len()));
    }
    if let Some(labels) = data.node_labels() {
        labels.validate().expect("each node label should be below the number of labels");
        assert_eq!((labels.len(), labels.n_classes()), (n_nodes, data.node_label_names.len()));
    }
    if let Some(features) = data.features() {
        assert_eq!(features.n_rows(), n_nodes);
        gather(&**features, n_nodes);
    }
}

/// Gathers the first and the last row, and one that does not exist.
fn gather(features: &dyn FeatureStore, n_rows: usize) {
    assert!(0 < features.dim());
    if features.dim() > MAX_DIM {
        return;
    }
    let mut rows = FeatureBuffer::empty(features.dtype());
    let ends = [NodeId(0), NodeId(n_rows.saturating_sub(1) as u32)];
    match features.gather(&ends, &mut rows) {
        Ok(()) => assert_eq!(rows.n_values(), 2 * features.dim()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let error = features
        .gather(&[NodeId(n_rows as u32)], &mut rows)
        .expect_err("gathering a missing row should fail");
    assert!(!error.to_string().is_empty());
}
