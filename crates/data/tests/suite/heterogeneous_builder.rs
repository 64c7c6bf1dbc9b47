//! Tests of heterogeneous sets: the builder, and checks of all values.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_data::{BuildError, Dataset, DatasetBuilder, Error};
use kiln_feature::{Labels, TargetKind};
use kiln_graph::{Csc, Error as GraphError, NodeId, NodeTypes, Relation, RelationEdges, Relations};
use kiln_store::Error as StoreError;

use crate::common::{notes_of_reading, overlap};
use crate::sets::{CITES, TYPES, WRITES, papers, papers_builder, sparse, split};

fn ids(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

#[test]
fn builder_converts_ids_of_types_to_node_ids() {
    let data = papers();
    let cites = data.graph.relation(1);
    assert_eq!((cites.name.as_str(), cites.src_type, cites.dst_type), ("cites", 1, 1));
    // Paper 0 is node 3.
    assert_eq!(ids(cites.graph.in_neighbors(NodeId(0))), [5, 6]);
    assert_eq!(ids(data.graph.relation(2).graph.in_neighbors(NodeId(2))), [8]);
    assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [0.5, 2.5, 1.0, 1.5, 2.0]);
    let targets = data.targets.as_ref().unwrap();
    assert_eq!((targets.node_type, data.target_nodes()), (1, 3..7));
    let split = targets.split.parts().map(|(_, nodes)| ids(nodes));
    assert_eq!(split, [vec![5], vec![3], vec![4]]);
    assert_eq!(data.dims(), [Some(500), Some(2), None]);
    assert_eq!((data.node_name(NodeId(2)), data.node_name(NodeId(3))), (Some("três"), None));
    assert_eq!((data.row_of(NodeId(5)), data.row_of(NodeId(9))), (Some(NodeId(2)), None));
    assert_eq!(notes_of_reading(&data.validate().unwrap()), []);
}

#[test]
fn display_is_one_line_with_the_sizes() {
    assert_eq!(
        papers().to_string(),
        "papers: 9 nodes of 3 types, 10 edges of 3 relations, 3 classes of paper; \
         1 / 1 / 1 nodes to train, validate, test"
    );
    let bare = Dataset::builder_with_types(NodeTypes::new(TYPES).unwrap()).build().unwrap();
    assert_eq!(bare.to_string(), "dataset: 9 nodes of 3 types, 0 edges of 0 relations");
    assert!(bare.targets.is_none() && bare.target_nodes().is_empty());
}

#[test]
fn builder_accepts_a_built_graph_and_target_values() {
    let graph = Relations::from_edges(NodeTypes::new(TYPES).unwrap(), &[WRITES]).unwrap();
    let builder = Dataset::builder_with_relations(&graph).relation(CITES);
    let data = builder.clone().nodes("venue").regression(vec![0.5, f32::NAN], 1).split(
        vec![0],
        Vec::<u32>::new(),
        Vec::<u32>::new(),
    );
    let data = data.build().unwrap();
    assert_eq!(data.graph.iter().map(|relation| &*relation.name).collect::<Vec<_>>(), ["writes", "cites"]);
    assert!(Arc::ptr_eq(&data.graph.relation(0).graph, &graph.relation(0).graph));
    let targets = data.targets.unwrap();
    assert_eq!((targets.values.kind(), ids(&targets.split.train)), (TargetKind::Regression, vec![7]));
    let labels = builder.nodes("author").multi_label(vec![1, 0, 255, 255, 0, 0], 2).split(
        vec![2],
        Vec::<u32>::new(),
        Vec::<u32>::new(),
    );
    assert_eq!(labels.build().unwrap().targets.unwrap().values.kind(), TargetKind::MultiLabel);
}

/// Checks that building fails with the expected message.
fn check_rejected(builder: DatasetBuilder<'_>, expected: &str) -> Error {
    let error = builder.build().unwrap_err();
    assert_eq!(error.to_string(), expected);
    error
}

#[test]
fn builder_rejects_inconsistent_parts() {
    let of_length = "node type `paper`: the number of feature rows is 3, expected 4, one per node";
    let error = check_rejected(papers_builder().nodes("paper").features(vec![0.5; 3], 1), of_length);
    let Error::InPart { source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::Build(BuildError::Length { expected: 4, got: 3, .. })));
    let unknown =
        "cannot use the graph: there is no node type `editor`, expected one of author, paper, venue";
    let error = check_rejected(papers_builder().nodes("editor").features(vec![0.5; 3], 1), unknown);
    assert!(matches!(error, Error::Graph(GraphError::Schema(_))));
    check_rejected(papers_builder().nodes("editor").node_names(["a"]), unknown);
    check_rejected(papers_builder().nodes("editor").labels(vec![0], 1), unknown);
    check_rejected(
        papers_builder().nodes("venue").labels(vec![0], 1),
        "node type `venue`: the number of labels is 1, expected 2, one per node",
    );
    check_rejected(
        papers_builder().split(vec![2], vec![4], Vec::<u32>::new()),
        "node type `paper`: the val split contains node 4 at position 0, expected a node id below 4",
    );
    check_rejected(
        papers_builder().split(vec![2], vec![0, 3], Vec::<u32>::new()),
        "node type `paper`: the val split contains node 3 at position 1, which has no label: remove it",
    );
    check_rejected(
        papers_builder().split(vec![2], Vec::<u32>::new(), vec![2]),
        "node type `paper`: node 2 is in both the train and the test split: remove it from one of them",
    );
    check_rejected(
        papers_builder().nodes("paper").labels(vec![1, 0, 3, -1], 3),
        "node type `paper`: cannot use the features or labels: node 2 has label 3, expected a class below 3",
    );
    check_rejected(
        papers_builder().nodes("venue").node_names(["a", "b", "c"]),
        "node type `venue`: papers: the number of node names is 3, expected 2: correct this file or the files it \
         must match",
    );
    let error = check_rejected(
        papers_builder().class_names(["a"]),
        "papers: the number of class names is 1, expected 3: correct this file or the files it must match",
    );
    assert!(matches!(error, Error::Store(StoreError::Inconsistent { .. })));
    let bare = || Dataset::builder_with_types(NodeTypes::new(TYPES).unwrap());
    check_rejected(
        bare().split(vec![0], Vec::<u32>::new(), Vec::<u32>::new()),
        "the dataset has no labels: call .labels(y, n_classes)",
    );
    check_rejected(
        bare().nodes("venue").labels(vec![0, 1], 2),
        "the dataset has no split: call .split(train, val, test)",
    );
    check_rejected(bare().class_names(["a"]), "the number of class names is 1, expected 0, one per class");
}

#[test]
fn builder_rejects_invalid_relations() {
    let error = papers_builder().relation(RelationEdges { name: "reads", dsts: &[0, 1, 4], ..CITES }).build();
    let Err(Error::Graph(GraphError::InRelation { name, source })) = error else { panic!("{error:?}") };
    assert!(name == "reads" && source.to_string().contains("node 4 of type `paper`, which has 4 nodes"));
    let again = papers_builder().relation(CITES).build();
    assert!(again.unwrap_err().to_string().contains("it occurs twice"));
    let types = Arc::new(NodeTypes::new([("node", 2)]).unwrap());
    let csc = Csc::new(vec![0, 1, 1].into(), vec![NodeId(1)].into()).unwrap();
    let graph = Arc::new(csc.with_edge_types(vec![0].into()).unwrap());
    let typed = Relation { name: "edge".into(), src_type: 0, dst_type: 0, graph };
    let graph = Relations::new(types, vec![typed]).unwrap();
    let error = Dataset::builder_with_relations(&graph).build().unwrap_err();
    assert!(
        matches!(error, Error::BadParameter { .. }) && error.to_string().contains("edge types"),
        "{error}"
    );
}

/// Checks that `validate` fails with the expected message after a change of the set.
fn check_invalid(change: impl FnOnce(&mut Dataset), expected: &str) {
    let mut data = papers();
    change(&mut data);
    assert_eq!(data.validate().unwrap_err().to_string(), expected);
}

/// Returns a graph whose first relation has other arrays.
fn with_writes(data: &Dataset, indptr: Vec<u64>, srcs: Vec<u32>, weights: Vec<f32>) -> Arc<Relations> {
    let mut relations: Vec<Relation> = data.graph.iter().cloned().collect();
    let graph = Csc::new(indptr.into(), srcs.into()).unwrap().with_weights(weights.into()).unwrap();
    relations[0].graph = Arc::new(graph);
    Arc::new(Relations::new(data.graph.types().clone(), relations).unwrap())
}

#[test]
fn validate_rejects_values_out_of_range() {
    let graph = |data: &mut Dataset, indptr: [u64; 5], srcs: [u32; 2], weights: [f32; 2]| {
        data.graph = with_writes(data, indptr.into(), srcs.into(), weights.into());
    };
    check_invalid(
        |data| graph(data, [0, 0, 1, 2, 2], [2, 3], [1.0, 1.0]),
        "cannot use the graph: relation `writes`: edge 1 comes from node 3, expected a node of type `author`, which are \
         0..3",
    );
    check_invalid(
        |data| graph(data, [0, 2, 1, 2, 2], [2, 1], [1.0, 1.0]),
        "cannot use the graph: relation `writes`: invalid indptr at node 1: 2 is followed by 1; it must start at 0 and never \
         decrease",
    );
    check_invalid(
        |data| graph(data, [0, 0, 1, 2, 2], [2, 1], [1.0, f32::NAN]),
        "relation `writes`: papers: the weight of edge 1 is NaN, expected finite numbers: replace NaN and infinite values \
         before saving",
    );
    check_invalid(
        |data| data.features[0] = Some(sparse(&[0.5, f32::INFINITY, 0.5])),
        "node type `author`: papers: value 1 is inf, expected finite numbers: replace NaN and infinite values before \
         saving",
    );
    check_invalid(
        |data| data.targets.as_mut().unwrap().values = Labels::new(vec![1, 3, 2, -1], 3).into(),
        "cannot use the features or labels: node 1 has label 3, expected a class below 3",
    );
    for (node, expected) in [
        (
            2,
            "papers: train split entry 1 is node 2, expected a node of the type with targets, which are 3..7",
        ),
        (
            7,
            "papers: train split entry 1 is node 7, expected a node of the type with targets, which are 3..7",
        ),
        (6, "papers: train split entry 1 is node 6, expected a node that has a label"),
    ] {
        check_invalid(|data| data.targets.as_mut().unwrap().split = split(&[5, node], &[], &[]), expected);
    }
}

#[test]
fn validate_rejects_parts_of_other_lengths() {
    let end = "correct this file or the files it must match";
    check_invalid(
        |data| data.features.truncate(2),
        &format!("papers: the number of features is 2, expected 3: {end}"),
    );
    check_invalid(
        |data| data.names.truncate(1),
        &format!("papers: the number of lists of node names is 1, expected 3: {end}"),
    );
    check_invalid(
        |data| data.features.swap(0, 1),
        &format!("node type `author`: papers: the number of feature rows is 4, expected 3: {end}"),
    );
    check_invalid(
        |data| data.targets.as_mut().unwrap().node_type = 2,
        &format!("papers: the number of labels is 4, expected 2: {end}"),
    );
    check_invalid(
        |data| data.targets.as_mut().unwrap().node_type = 3,
        "cannot use the graph: there is no node type `3`, expected one of author, paper, venue",
    );
}

#[test]
fn validate_reports_splits_that_overlap() {
    let data = papers().with_split(split(&[3, 4], &[5], &[4])).unwrap();
    assert_eq!(notes_of_reading(&data.validate().unwrap()), [overlap(["train", "test"])]);
}

#[test]
fn in_memory_keeps_the_set() {
    let data = papers();
    let copy = data.clone().in_memory();
    assert_eq!(copy.hash().unwrap(), data.hash().unwrap());
    assert_eq!(copy.names, data.names);
}
