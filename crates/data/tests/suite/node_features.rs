//! Tests of the generated node features of graph sets.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::path::Path;

use kiln_data::{Error, GraphDataset, gin, mutag};
use kiln_feature::{FeatureBuffer, FeatureStore, Labels};
use kiln_graph::{CscBuilder, NodeId};

/// Returns three graphs: the path 0 - 1 - 2, the pair 3, 4 with two edges each way and a loop, and an isolated node.
fn data() -> GraphDataset {
    let graph = CscBuilder::new(6).build(&[0, 1, 1, 2, 3, 3, 4, 4, 4], &[1, 0, 2, 1, 4, 4, 3, 3, 4]).unwrap();
    GraphDataset::new("set", graph, vec![0, 3, 5, 6], Labels::new(vec![0, 1, 0], 2)).unwrap()
}

fn rows(features: &dyn FeatureStore) -> Vec<Vec<f32>> {
    (0..features.n_rows() as u32).map(|node| features.row(NodeId(node)).unwrap()).collect()
}

#[test]
fn one_hot_degrees_have_ascending_columns() {
    let features = data().one_hot_degrees().unwrap();
    // The nodes have 1, 2, 1, 2, 3 and 0 in-neighbours.
    let expected = [1, 2, 1, 2, 3, 0].map(|column| {
        let mut row = vec![0.0; 4];
        row[column] = 1.0;
        row
    });
    assert_eq!(rows(&*features), expected);
}

#[test]
fn degrees_that_do_not_occur_have_no_column() {
    let graph = CscBuilder::new(4).build(&[1, 2, 3], &[0, 0, 0]).unwrap();
    let data = GraphDataset::new("star", graph, vec![0, 4], Labels::new(vec![0], 1)).unwrap();
    let features = data.one_hot_degrees().unwrap();
    assert_eq!(rows(&*features), [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]);
}

#[test]
fn one_hot_labels_of_unlabelled_nodes_are_zero() {
    let data = data().with_node_labels(Labels::new(vec![2, 0, -1, 0, 2, 0], 3)).unwrap();
    let features = data.one_hot_node_labels().unwrap();
    let (first, third, none) = ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0; 3]);
    assert_eq!(rows(&*features), [third, first, none, first, third, first]);
}

#[test]
fn constant_features_are_ones() {
    assert_eq!(rows(&*data().constant_features()), [[1.0]; 6]);
}

#[test]
fn rejects_features_without_columns() {
    let error = data().one_hot_node_labels().unwrap_err();
    assert!(matches!(error, Error::BadParameter { .. }));
    let expected = "the number of classes of the node labels is 0, expected at least 1: without node labels";
    assert!(error.to_string().starts_with(expected), "{error}");
    let empty = CscBuilder::new(0).build(&[], &[]).unwrap();
    let empty = GraphDataset::new("empty", empty, vec![0, 0], Labels::new(vec![0], 1)).unwrap();
    let error = empty.one_hot_degrees().unwrap_err();
    assert_eq!(error.to_string(), "the number of nodes of the set is 0, expected at least 1");
    assert_eq!(empty.constant_features().n_rows(), 0);
}

#[test]
fn rejects_more_columns_than_the_maximum() {
    let graph = CscBuilder::new(1).build(&[], &[]).unwrap();
    let data = GraphDataset::new("wide", graph, vec![0, 1], Labels::new(vec![0], 1)).unwrap();
    let classes = |n_classes| Labels::new(vec![0], n_classes);
    let widest = data.clone().with_node_labels(classes(kiln_feature::MAX_DIM)).unwrap();
    assert_eq!(widest.one_hot_node_labels().unwrap().dim(), kiln_feature::MAX_DIM);
    let wider = data.with_node_labels(classes(kiln_feature::MAX_DIM + 1)).unwrap();
    assert!(matches!(wider.one_hot_node_labels(), Err(Error::Feature(_))));
}

#[test]
fn mutag_has_a_column_per_kind_of_atom() {
    let data = mutag().unwrap();
    let features = data.one_hot_node_labels().unwrap();
    assert_eq!((features.n_rows(), features.dim()), (3371, 7));
    for (node, &label) in data.node_labels().unwrap().as_slice().iter().enumerate() {
        let row = features.row(NodeId(node as u32)).unwrap();
        assert_eq!((row[label as usize], row.iter().sum::<f32>()), (1.0, 1.0));
    }
    let data = data.with_features(features).unwrap();
    assert_eq!(data.features().unwrap().dim(), 7);
}

/// Reads a file outside of the repository. If it does not exist, the test reports that it was skipped.
#[test]
fn imdb_binary_has_the_65_degrees_of_the_gin_paper() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/imdb-binary/IMDBBINARY.txt");
    if !path.exists() {
        // Writing to stdout directly bypasses the capture of the test harness.
        let skip = format!("kiln-skip: other: degrees of IMDB-BINARY: {} does not exist", path.display());
        writeln!(std::io::stdout(), "{skip}").unwrap();
        return;
    }
    let data = gin::read(path).unwrap();
    assert_eq!((data.n_graphs(), data.graph().n_nodes()), (1000, 19773));
    let features = data.one_hot_degrees().unwrap();
    assert_eq!((features.n_rows(), features.dim()), (19773, 65));
    let nodes: Vec<NodeId> = (0..19773).map(NodeId).collect();
    let mut rows = FeatureBuffer::default();
    features.gather(&nodes, &mut rows).unwrap();
    let rows = rows.into_f32();
    assert!(rows.chunks_exact(65).all(|row| row.iter().sum::<f32>() == 1.0));
    // The degree of every column occurs in the set.
    assert!((0..65).all(|column| rows.chunks_exact(65).any(|row| row[column] == 1.0)));
}
