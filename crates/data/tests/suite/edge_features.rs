//! Tests of the edge features of sets in memory: their order, the changes that refuse them, their hash and their checks.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use half::{bf16, f16};
use kiln_data::{
    BuildError, Dataset, DatasetBuilder, Error, LinkDirection, LinkSplit, LinkSplitConfig, LinkTargets,
};
use kiln_feature::{EdgeFeatures, FeatureArray, FeatureBuffer};
use kiln_graph::{Csc, CscBuilder, EdgeColumn, EdgeId, Links, NodeId};
use kiln_store::Error as StoreError;

use crate::common::numbers;

/// Returns the rows of all edges as 32-bit floats.
fn values(features: &EdgeFeatures) -> Vec<f32> {
    let edges: Vec<EdgeId> = (0..features.n_edges()).map(EdgeId).collect();
    let mut rows = FeatureBuffer::default();
    features.gather(&edges, &mut rows).unwrap();
    rows.into_f32()
}

fn of(data: &Dataset) -> Vec<f32> {
    values(&data.edge_features().unwrap().unwrap())
}

/// Returns the features of the edges of the graph that passes messages.
fn message_rows(split: &LinkSplit) -> EdgeFeatures {
    let columns = split.message().relation(0).graph.columns();
    EdgeFeatures::try_from(columns.get("features").unwrap()).unwrap()
}

/// Returns a random list of edges with loops and parallel edges, and a different weight for each.
fn random_list(seed: u64, n_nodes: usize, n_edges: usize) -> (Vec<u32>, Vec<u32>, Vec<f32>) {
    let mut number = numbers(seed);
    let mut ends = || (0..n_edges).map(|_| number(n_nodes) as u32).collect::<Vec<_>>();
    let (srcs, dsts) = (ends(), ends());
    (srcs, dsts, (0..n_edges).map(|edge| edge as f32).collect())
}

fn on(n_nodes: usize) -> DatasetBuilder<'static> {
    Dataset::builder(n_nodes).features(vec![0.0; n_nodes], 1)
}

/// Returns rows of two columns, of which the second is half of the first.
fn two_columns(first: &[f32]) -> Vec<f32> {
    first.iter().flat_map(|&value| [value, value / 2.0]).collect()
}

#[test]
fn rows_of_an_edge_list_follow_their_edges() {
    for seed in 0..40 {
        let n_nodes = 1 + seed as usize % 12;
        let (srcs, dsts, weights) = random_list(seed, n_nodes, 10 * (seed as usize % 9));
        let list =
            || on(n_nodes).edges(&srcs, &dsts).edge_weights(&weights).edge_features(two_columns(&weights), 2);
        for data in [list().build().unwrap(), list().symmetrize().build().unwrap()] {
            assert_eq!(of(&data), two_columns(data.csc().unwrap().weights().unwrap()));
            assert_eq!(data.validate().unwrap(), []);
        }
        // The graph is the one that is built without edge features.
        let plain = on(n_nodes).edges(&srcs, &dsts).symmetrize().build().unwrap().graph;
        let with_rows = list().symmetrize().build().unwrap().graph;
        assert_eq!(
            (plain.relation(0).graph.indptr(), plain.relation(0).graph.indices()),
            (with_rows.relation(0).graph.indptr(), with_rows.relation(0).graph.indices())
        );
    }
}

#[test]
fn rows_keep_their_element_type() {
    let (srcs, dsts) = ([2, 0], [1, 1]);
    let list = |rows: FeatureArray| on(3).edges(&srcs, &dsts).edge_features(rows, 1).build().unwrap();
    let of_f16 = list([0.5, 1.5].map(f16::from_f32).to_vec().into());
    assert!(matches!(of_f16.edge_features().unwrap().unwrap().rows(), FeatureArray::F16(_)));
    let of_bf16 = list([0.5, 1.5].map(bf16::from_f32).to_vec().into());
    assert!(matches!(of_bf16.edge_features().unwrap().unwrap().rows(), FeatureArray::BF16(_)));
    assert_eq!([of(&of_f16), of(&of_bf16)], [[1.5, 0.5], [1.5, 0.5]]);
}

/// Returns a graph of three nodes whose neighbours descend, with a different weight per edge.
fn unsorted() -> Csc {
    let indices: Vec<NodeId> = [2, 2, 0, 1, 0].map(NodeId).to_vec();
    let graph = Csc::new(vec![0, 1, 3, 5].into(), indices.into());
    graph.unwrap().with_weights(vec![0.0, 1.0, 2.0, 3.0, 4.0].into()).unwrap()
}

#[test]
fn rows_of_a_graph_are_not_moved() {
    let rows = vec![4.0, 3.0, 2.0, 1.0, 0.0];
    let data = on(3).graph(unsorted()).edge_features(rows.clone(), 1).build().unwrap();
    assert_eq!(of(&data), rows);
    // A reverse edge has the row of its edge: the weight of each edge is 4 less its row.
    for data in [
        on(3).graph(unsorted()).symmetrize().edge_features(rows, 1).build().unwrap(),
        data.symmetrize().unwrap(),
    ] {
        let weights = data.csc().unwrap().weights().unwrap();
        assert_eq!(of(&data), weights.iter().map(|weight| 4.0 - weight).collect::<Vec<_>>());
    }
}

#[test]
fn rejects_other_numbers_of_rows() {
    let length = |got| BuildError::Length { what: "edge feature rows", per: "edge", expected: 5, got };
    let (srcs, dsts) = ([0, 0, 0, 0, 0], [1, 1, 1, 1, 1]);
    for builder in [on(3).graph(unsorted()), on(3).edges(&srcs, &dsts), on(3).graph(unsorted()).symmetrize()]
    {
        for n_rows in [0, 4, 6] {
            let error = builder.clone().edge_features(vec![0.0; 2 * n_rows], 2).build().unwrap_err();
            assert!(matches!(&error, Error::Build(error) if *error == length(n_rows)), "{error}");
        }
    }
    let error = on(3).graph(unsorted()).edge_features(vec![0.0; 9], 2).build().unwrap_err();
    assert!(matches!(error, Error::Feature(kiln_feature::Error::PartialRow { n_values: 9, dim: 2 })));
}

#[test]
fn added_self_loops_have_features_and_no_rows_of_other_columns() {
    let data = || on(3).graph(unsorted()).edge_features(vec![0.0; 5], 1).name("roads").build().unwrap();
    let amounts = EdgeColumn::new(vec![0.0_f32; 5], 1).unwrap();
    let error =
        data().with_edge_column(0, "amount", amounts).unwrap().add_self_loops().unwrap_err().to_string();
    let expected =
        "roads: the added self loops would have no row in the edge column `amount`: add the loops and their";
    assert!(error.starts_with(expected), "{error}");
    assert!(data().without_edge_rows().unwrap().add_self_loops().is_ok());
    let means = on(3).edges(&[0, 1], &[2, 2]).edge_features(vec![1.0, 4.0], 1).build().unwrap();
    assert_eq!(of(&means.add_self_loops().unwrap()), [0.0, 0.0, 1.0, 4.0, 2.5]);
    // A graph with all loops does not change, so its rows stay.
    let complete = on(2).edges(&[0, 1], &[0, 1]).edge_features(vec![1.0, 2.0], 1).build().unwrap();
    assert_eq!(of(&complete.add_self_loops().unwrap()), [1.0, 2.0]);
    // Changes of node features keep the rows.
    assert_eq!(of(&data().standardize().unwrap().row_normalize().unwrap().in_memory()), [0.0; 5]);
}

#[test]
fn validate_finds_bad_rows() {
    let data = |rows: FeatureArray| {
        let rows = EdgeFeatures::new(rows, 2).unwrap().to_column();
        let data = on(3).graph(unsorted()).name("roads").build().unwrap();
        data.with_edge_column(0, "features", rows).unwrap()
    };
    let mut rows = vec![0.0_f32; 10];
    assert!(data(rows.clone().into()).validate().is_ok());
    rows[7] = f32::NAN;
    let halves: Vec<f16> = rows.iter().map(|&value| f16::from_f32(value)).collect();
    let short: Vec<bf16> = rows.iter().map(|&value| bf16::from_f32(value)).collect();
    for rows in [FeatureArray::from(rows), halves.into(), short.into()] {
        let error = data(rows).validate().unwrap_err();
        let Error::Store(StoreError::BadValue { what, position, found, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!((*what, *position, found.as_str()), ("a feature of edge", 3, "NaN"));
    }
}

/// The hash was computed by an independent program from the documented bytes.
#[test]
fn hash_covers_the_rows_if_there_are_any() {
    let plain = Dataset::builder(2).edges(&[0, 1], &[1, 0]).features(vec![1.0, 2.0], 1).build().unwrap();
    let with = |rows: FeatureArray, dim| {
        let rows = EdgeFeatures::new(rows, dim).unwrap().to_column();
        plain.clone().with_edge_column(0, "features", rows).unwrap().hash().unwrap()
    };
    let rows = vec![0.5_f32, 1.0, 1.5, 2.0];
    assert_eq!(plain.hash().unwrap(), "e82ab2fbef86c8a0f54c8c3d551e9e6d0c51cb4ab50434fb1c86875370e0865d");
    assert_eq!(
        with(rows.clone().into(), 2),
        "cc400fa8445cf614bb3d6727ecbe0ff0f96297f0fe4f1ad2f206429128aaf2eb"
    );
    let halves: Vec<f16> = rows.iter().map(|&value| f16::from_f32(value)).collect();
    let mut changed = rows.clone();
    changed[3] = 2.5;
    let mut all = vec![
        plain.hash().unwrap(),
        with(rows.clone().into(), 2),
        with(rows[..2].to_vec().into(), 1),
        with(halves.into(), 2),
        with(changed.into(), 2),
    ];
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5);
}

#[test]
fn splits_of_links_keep_the_rows_of_the_message_graph() {
    let (srcs, dsts, weights) = random_list(3, 30, 300);
    let list = || on(30).edges(&srcs, &dsts).edge_weights(&weights).edge_features(two_columns(&weights), 2);
    let directed = LinkSplitConfig {
        direction: Some(LinkDirection::Directed),
        disjoint_train: 0.5,
        ..Default::default()
    };
    for (data, config) in [
        (list().build().unwrap(), directed),
        (list().symmetrize().build().unwrap(), LinkSplitConfig::default()),
    ] {
        let split = LinkSplit::of_dataset(&data, &config, 5).unwrap();
        assert!(split.message().n_edges() < data.graph.n_edges());
        let weights = split.message().relation(0).graph.weights().unwrap();
        assert_eq!(values(&message_rows(&split)), two_columns(weights));
        // The rows do not change the split.
        let plain = LinkSplit::of_dataset(&data.without_edge_rows().unwrap(), &config, 5).unwrap();
        assert!(plain.message().relation(0).graph.columns().rows().is_empty());
        assert_eq!(plain.targets(), split.targets());
        assert_eq!(plain.message().relation(0).graph.indices(), split.message().relation(0).graph.indices());
    }
}

#[test]
fn given_links_keep_the_rows_of_sorted_and_unsorted_graphs() {
    let links = Links::new(vec![NodeId(0)], vec![NodeId(1)]).unwrap();
    let none = Links::new(Vec::<NodeId>::new(), Vec::<NodeId>::new()).unwrap();
    let links = Some(Arc::new(LinkTargets::of_parts(&links, &none, &none).unwrap()));
    let rows = two_columns(unsorted().weights().unwrap());
    let data = on(3).graph(unsorted()).edge_features(rows, 2).build().unwrap();
    let sorted = CscBuilder::new(3).weights(&[0.0, 1.0, 2.0]).build(&[0, 1, 2], &[1, 2, 0]).unwrap();
    let rows = two_columns(sorted.weights().unwrap());
    let of_sorted = on(3).graph(sorted).edge_features(rows, 2).build().unwrap();
    for data in [data, of_sorted] {
        let data = Dataset { links: links.clone().map(Into::into), ..data };
        let split = LinkSplit::of_dataset(&data, &LinkSplitConfig::default(), 0).unwrap();
        assert!(split.message().relation(0).graph.has_sorted_neighbors());
        assert_eq!(
            values(&message_rows(&split)),
            two_columns(split.message().relation(0).graph.weights().unwrap())
        );
    }
}

#[test]
fn a_column_that_is_given_twice_is_an_error() {
    let ends = [0, 1];
    let rows = || EdgeColumn::new(vec![1.0_f32, 2.0], 1).unwrap();
    let on_edges = || on(2).edges(&ends, &ends);
    for builder in [
        on_edges().edge_column("time", rows()).edge_column("time", rows()),
        on_edges().edge_features(vec![1.0, 2.0], 1).edge_column("features", rows()),
        on_edges().edge_weights(&[1.0, 2.0]).edge_column("weights", rows()),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains("is given twice"), "{error}");
    }
    for (name, expected) in [("Time", "small letters"), ("types", "one u8 per edge"), ("", "small letters")] {
        let error = on_edges().edge_column(name, rows()).build().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
