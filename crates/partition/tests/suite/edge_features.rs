//! The features of the edges of a partition.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::Dataset;
use kiln_feature::{EdgeFeatures, FeatureBuffer};
use kiln_graph::{EdgeId, NodeId};
use kiln_partition::{Error, Method, Part, PartitionBook, PartitionMeta, PartitionRow, write_parts};
use kiln_testkit::CooGraph;

use crate::common::{Stored, set};

/// Checks the features of the edges into nodes of a partition, in the order of `own`.
pub(crate) fn check_edge_features(part: &Part, data: &Dataset, own: &[NodeId]) {
    let ids_into = |node: &NodeId| {
        let first = data.csc().unwrap().first_edge(*node).0;
        (first..first + data.csc().unwrap().in_degree(*node)).map(EdgeId)
    };
    let ids: Vec<EdgeId> = own.iter().flat_map(ids_into).collect();
    let mut positions = Vec::new();
    for (row, node) in (0..).map(PartitionRow).zip(own) {
        let of_row: Vec<EdgeId> = ids_into(node).collect();
        for edge in (0..=data.graph.n_edges()).chain([u64::MAX]).map(EdgeId) {
            match part.edge_position(0, row, edge) {
                Ok(position) => positions.push(position),
                Err(Error::UnknownEdge { edge: of, row: at, .. }) => {
                    assert!((of, at) == (edge, row) && !of_row.contains(&edge));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(positions, (0..ids.len() as u64).map(EdgeId).collect::<Vec<_>>());
    assert!(part.edge_position(0, PartitionRow(own.len() as u32), EdgeId(0)).is_err());
    let rows = |features: &Option<EdgeFeatures>, ids: &[EdgeId]| {
        let features = features.as_ref().unwrap();
        let mut rows = FeatureBuffer::empty(features.dtype());
        features.gather(ids, &mut rows).unwrap();
        (features.dim(), rows)
    };
    assert_eq!(part.relations[0].edge_features.as_ref().unwrap().n_edges(), part.n_edges());
    assert_eq!(rows(&part.relations[0].edge_features, &positions), rows(&data.edge_features, &ids));
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
