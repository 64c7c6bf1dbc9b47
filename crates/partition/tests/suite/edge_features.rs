//! The features of the edges of a partition.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::Dataset;
use kiln_feature::{EdgeFeatures, FeatureBuffer};
use kiln_graph::{EdgeId, NodeId};
use kiln_partition::{Error, Part, PartitionRow};

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
    let rows = |features: &EdgeFeatures, ids: &[EdgeId]| {
        let mut rows = FeatureBuffer::empty(features.dtype());
        features.gather(ids, &mut rows).unwrap();
        (features.dim(), rows)
    };
    let of_part = part.relations[0].graph.columns().get("features").unwrap();
    let of_part = EdgeFeatures::try_from(of_part).unwrap();
    assert_eq!(of_part.n_edges(), part.n_edges());
    assert_eq!(rows(&of_part, &positions), rows(&data.edge_features().unwrap().unwrap(), &ids));
}
