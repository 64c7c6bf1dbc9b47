//! The features of the edges of a partition.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::Dataset;
use kiln_feature::{EdgeFeatures, FeatureBuffer};
use kiln_graph::{EdgeId, NodeId};
use kiln_partition::{Error, Method, Part, PartitionBook, PartitionMeta, write_parts};
use kiln_testkit::CooGraph;

use crate::common::{Stored, set};

/// Checks the features of the edges into nodes of a partition, in the order of `own`.
pub(crate) fn check_edge_features(part: &Part, data: &Dataset, own: &[NodeId]) {
    let ids_into = |node: &NodeId| {
        let first = data.graph.first_edge(*node).0;
        (first..first + data.graph.in_degree(*node)).map(EdgeId)
    };
    let ids: Vec<EdgeId> = own.iter().flat_map(ids_into).collect();
    let positions: Vec<EdgeId> = (0..ids.len() as u64).map(EdgeId).collect();
    assert_eq!(part.edge_positions(&ids).unwrap(), positions);
    let backwards = |edges: &[EdgeId]| edges.iter().rev().copied().collect::<Vec<_>>();
    assert_eq!(part.edge_positions(&backwards(&ids)).unwrap(), backwards(&positions));
    for edge in (0..=data.graph.n_edges()).map(EdgeId).filter(|edge| !ids.contains(edge)) {
        let error = part.edge_positions(&[edge]).unwrap_err();
        assert!(matches!(error, Error::UnknownEdge { edge: of, .. } if of == edge), "{error}");
    }
    let rows = |features: &Option<EdgeFeatures>, ids: &[EdgeId]| {
        let features = features.as_ref().unwrap();
        let mut rows = FeatureBuffer::empty(features.dtype());
        features.gather(ids, &mut rows).unwrap();
        (features.dim(), rows)
    };
    assert_eq!(part.edge_features.as_ref().unwrap().n_edges(), part.graph.n_edges());
    assert_eq!(rows(&part.edge_features, &positions), rows(&data.edge_features, &ids));
}

#[test]
fn edge_features_of_another_graph_are_refused() {
    let coo = CooGraph { n_nodes: 4, srcs: vec![0, 1, 2], dsts: vec![1, 2, 3] };
    let edge_features = Some(EdgeFeatures::new(vec![0.0; 4], 1).unwrap());
    let data = Dataset { edge_features, ..set(&coo, Stored::F32) };
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("parts");
    let book = PartitionBook::from_parts(&[0, 0, 0, 1], 2).unwrap();
    let meta = PartitionMeta { hash: String::new(), method: Method::Random, n_cut_edges: 1 };
    let error = write_parts(&data, &book, &meta, None, &out).unwrap_err();
    assert!(matches!(error, Error::BadParameter { what: "the number of edge feature rows", .. }), "{error}");
    assert!(error.to_string().contains("is 4, expected 3, the number of edges"), "{error}");
    assert!(!out.exists());
}
