use std::sync::Arc;

use kiln_data::{BuildError, Dataset, DatasetBuilder, Error, LinkSplit, LinkSplitConfig, Note, Split};
use kiln_feature::{
    DenseFeatures, FeatureArray, FeatureStore, Labels, PreparationStep, TargetValues, Targets,
};
use kiln_graph::{Csc, CscBuilder, GraphId, NodeId};

const SRCS: [u32; 4] = [0, 1, 2, 3];
const DSTS: [u32; 4] = [1, 2, 3, 0];

/// Returns a builder with all parts of a ring of four nodes.
fn ring() -> DatasetBuilder<'static> {
    Dataset::builder(4)
        .edges(&SRCS, &DSTS)
        .features(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2)
        .labels(vec![0, 1, 0, 1], 2)
        .split(vec![0, 1], vec![2], vec![3])
}

fn build_error(builder: DatasetBuilder<'_>) -> BuildError {
    match builder.build().expect_err("the builder should reject these calls") {
        Error::Build(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn builds_a_dataset_from_vectors() {
    let data =
        ring().name("ring").class_names(["even", "odd"]).node_names(["a", "b", "c", "d"]).build().unwrap();
    assert_eq!(data.csc().unwrap().in_neighbors(NodeId(0)), [NodeId(3)]);
    assert_eq!(data.node_features().unwrap().row(NodeId(2)).unwrap(), [2.0, 2.5]);
    assert_eq!(data.labels().get(NodeId(3)), Some(1));
    assert_eq!(data.split().parts().map(|(_, nodes)| nodes.len()), [2, 1, 1]);
    assert_eq!((data.name.as_str(), data.class_names()[1].as_str()), ("ring", "odd"));
    assert_eq!(data.names[0].get(NodeId(1)), Some("b"));
    assert_eq!(data.validate().unwrap(), []);
}

#[test]
fn symmetrizes_edge_lists_and_graphs_alike() {
    // The list contains both 0 -> 1 and its reverse, so symmetrizing must not add a second copy of either.
    let (srcs, dsts) = ([0, 1, 2, 3, 1], [1, 2, 3, 0, 0]);
    let weights = [0.5, 1.0, 2.0, 4.0, 8.0];
    let types = [0, 1, 2, 3, 4];
    let of_list = ring().edges(&srcs, &dsts).edge_weights(&weights).edge_types(&types).symmetrize();
    let of_list = of_list.build().unwrap().graph;
    let graph = CscBuilder::new(4).weights(&weights).edge_types(&types).build(&srcs, &dsts).unwrap();
    let of_graph = ring().graph(graph.clone()).symmetrize().build().unwrap().graph;
    let of_set = ring().graph(graph).build().unwrap().symmetrize().unwrap().graph;
    let arrays = |graph: &Csc| (graph.indptr().to_vec(), graph.indices().to_vec());
    assert_eq!(of_list.n_edges(), 8);
    assert_eq!(arrays(&of_list.relation(0).graph), arrays(&of_set.relation(0).graph));
    assert_eq!(arrays(&of_graph.relation(0).graph), arrays(&of_set.relation(0).graph));
    assert_eq!(of_graph.relation(0).graph.weights(), of_set.relation(0).graph.weights());
    assert_eq!(of_graph.relation(0).graph.edge_types(), of_set.relation(0).graph.edge_types());
}

#[test]
fn added_self_loops_are_recorded_once_and_their_type_is_named() {
    let typed = || ring().edges(&SRCS, &DSTS).edge_types(&[0, 1, 1, 0]);
    let named = typed().edge_type_names(["a", "b"]).build().unwrap().add_self_loops().unwrap();
    assert_eq!(named.csc().unwrap().edge_types().unwrap(), [2, 0, 0, 2, 1, 2, 1, 2]);
    assert_eq!(
        (named.edge_type_names.as_slice(), named.n_edge_types()),
        (&["a", "b", "self loop"].map(str::to_owned)[..], Some(3))
    );
    assert_eq!(named.validate().unwrap(), []);
    let twice = named.clone().add_self_loops().unwrap();
    assert_eq!((twice.graph.n_edges(), &twice.edge_type_names), (8, &named.edge_type_names));
    assert_eq!(twice.preparation.steps, [PreparationStep::SelfLoops]);
    // Unused types with names keep them.
    let unused = typed().edge_type_names(["a", "b", "c", "d"]).build().unwrap().add_self_loops().unwrap();
    assert_eq!(unused.csc().unwrap().edge_types().unwrap()[0], 4);
    let names = ["a", "b", "c", "d", "self loop"].map(str::to_owned);
    assert_eq!((unused.edge_type_names.as_slice(), unused.n_edge_types()), (&names[..], Some(5)));
    let plain = ring().build().unwrap().symmetrize().unwrap().add_self_loops().unwrap();
    assert_eq!((plain.graph.n_edges(), plain.n_edge_types()), (12, None));
    assert!(plain.preparation.symmetrizes() && plain.preparation.adds_self_loops());
}

#[test]
fn shares_graph_and_features_without_a_copy() {
    let graph = Arc::new(CscBuilder::new(4).build(&SRCS, &DSTS).unwrap());
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(vec![1.0; 4], 1).unwrap());
    let data = ring().graph(graph.clone()).feature_store(features.clone()).build().unwrap();
    assert!(
        Arc::ptr_eq(data.csc().unwrap(), &graph) && Arc::ptr_eq(data.node_features().unwrap(), &features)
    );
}

#[test]
fn error_for_a_missing_part_names_the_builder_call() {
    let edges = || Dataset::builder(4).edges(&SRCS, &DSTS);
    let features = || edges().features(vec![0.0; 4], 1);
    let missing = [
        (Dataset::builder(4), "edges", ".edges(&srcs, &dsts)"),
        (edges(), "features", ".features(x, dim)"),
        (features().split(vec![0], Vec::<u32>::new(), Vec::<u32>::new()), "labels", ".labels(y, n_classes)"),
        (features().labels(vec![0; 4], 1), "split", ".split(train, val, test)"),
    ];
    for (builder, what, call) in missing {
        assert_eq!(build_error(builder), BuildError::Missing { what, call });
    }
    let message = ring().features(Vec::<f32>::new(), 2).build().unwrap_err().to_string();
    assert_eq!(message, "the number of feature rows is 0, expected 4, one per node");
}

#[test]
fn without_labels_and_split_no_node_has_a_label() {
    let data = Dataset::builder(4).edges(&SRCS, &DSTS).features(vec![0.0; 4], 1).build().unwrap();
    assert_eq!((data.labels().as_slice(), data.labels().n_classes()), (&[-1; 4][..], 0));
    assert!(data.split().parts().iter().all(|(_, nodes)| nodes.is_empty()));
    assert_eq!(data.validate().unwrap(), []);
    let split =
        LinkSplit::random(&data.graph, &LinkSplitConfig { test: 0.25, ..Default::default() }, 1).unwrap();
    let links = Some(Arc::new(split.targets().clone()));
    let data = Dataset { graph: split.message().clone(), links: links.map(Into::into), ..data };
    let folder = tempfile::tempdir().unwrap();
    let stored = folder.path().join("set");
    kiln_data::format::write(&data, &stored).unwrap();
    assert_eq!(kiln_data::open(stored).unwrap().hash().unwrap(), data.hash().unwrap());
}

#[test]
fn rejects_arrays_of_the_wrong_length() {
    let length = |what, per, expected, got| BuildError::Length { what, per, expected, got };
    let wrong = [
        (ring().features(vec![0.0; 6], 2), length("feature rows", "node", 4, 3)),
        (ring().features(vec![0.0; 10], 2), length("feature rows", "node", 4, 5)),
        (ring().labels(vec![0, 1, 0], 2), length("labels", "node", 4, 3)),
        (ring().node_names(["a"]), length("node names", "node", 4, 1)),
        (ring().class_names(["a"]), length("class names", "class", 2, 1)),
        (ring().edge_types(&[0, 1, 2, 3]).edge_type_names(["a"]), length("edge type names", "type", 4, 1)),
    ];
    for (builder, expected) in wrong {
        assert_eq!(build_error(builder), expected);
    }
    let graph = CscBuilder::new(3).build(&[0], &[1]).unwrap();
    assert_eq!(build_error(ring().graph(graph)), length("nodes of the graph", "node of the dataset", 4, 3));
    let error = ring().features(vec![0.0; 7], 2).build().unwrap_err();
    assert!(
        matches!(error, Error::Feature(kiln_feature::Error::PartialRow { n_values: 7, dim: 2 })),
        "{error}"
    );
    let error = ring().features(vec![0.0; 4], 0).build().unwrap_err();
    assert!(matches!(error, Error::Feature(kiln_feature::Error::ZeroDim)), "{error}");
}

#[test]
fn rejects_invalid_edges() {
    let error = ring().edges(&[0, 1], &[1]).build().unwrap_err();
    let expected = kiln_graph::Error::LengthMismatch { what: "dsts", expected: 2, got: 1 };
    assert_eq!(error.to_string(), format!("cannot use the graph: {expected}"));
    let error = ring().edges(&[0, 4], &[1, 2]).build().unwrap_err();
    assert!(
        matches!(error, Error::Graph(kiln_graph::Error::NodeOutOfRange { edge: 1, node: 4, n_nodes: 4 })),
        "{error}"
    );
    let error = ring().edge_weights(&[1.0]).build().unwrap_err();
    assert!(
        matches!(error, Error::Graph(kiln_graph::Error::LengthMismatch { what: "weights", .. })),
        "{error}"
    );
    let graph = CscBuilder::new(4).build(&SRCS, &DSTS).unwrap();
    let error = build_error(ring().graph(graph).edge_weights(&[1.0; 4]));
    assert_eq!(error, BuildError::EdgeDataOfGraph { what: "edge weights" });
}

#[test]
fn rejects_labels_out_of_range_and_zero_classes() {
    let error = ring().labels(vec![0, 1, 2, 1], 2).build().unwrap_err();
    let is_expected = |error: &Error| {
        let Error::Feature(kiln_feature::Error::Targets(kiln_feature::TargetsError::LabelOutOfRange {
            id,
            label,
            n_classes,
            ..
        })) = error
        else {
            return false;
        };
        (*id, *label, *n_classes) == (2, 2, 2)
    };
    assert!(is_expected(&error), "{error}");
    assert_eq!(build_error(ring().labels(vec![-1; 4], 0)), BuildError::NoClasses);
}

#[test]
fn rejects_invalid_splits() {
    let error = build_error(ring().split(vec![0], vec![1, 4], vec![2]));
    assert_eq!(error, BuildError::SplitOutOfRange { part: "val", position: 1, node: 4, n_nodes: 4 });
    let error = build_error(ring().labels(vec![0, 1, -1, 1], 2));
    assert_eq!(error, BuildError::Unlabelled { part: "val", position: 0, node: 2 });
    let error = build_error(ring().split(vec![0, 1], vec![2], vec![3, 1]));
    assert_eq!(error, BuildError::SplitsOverlap { node: 1, first: "train", second: "test" });
    // Repeating a node within the training split is allowed.
    assert!(ring().split(vec![0, 0, 1], vec![2], vec![3]).build().is_ok());
}

#[test]
fn accepts_f16_and_bf16_features() {
    let rows = vec![half::f16::from_f32(0.5); 8];
    let data = ring().features(rows, 2).build().unwrap();
    assert_eq!(data.node_features().unwrap().row(NodeId(3)).unwrap(), [0.5, 0.5]);
    let rows: FeatureArray = vec![half::bf16::from_f32(0.25); 4].into();
    assert_eq!(
        ring().features(rows, 1).build().unwrap().node_features().unwrap().row(NodeId(0)).unwrap(),
        [0.25]
    );
}

/// A class without a training node cannot be predicted, and nearly all test nodes have class 0.
#[test]
fn populations_of_the_split_that_make_an_accuracy_meaningless_have_notes() {
    let mut labels = vec![0; 60];
    labels[3] = 1;
    labels[25] = 2;
    let data = Dataset::builder(60)
        .edges(&[0], &[1])
        .features(vec![0.0; 60], 1)
        .labels(labels, 3)
        .split((0..20).collect::<Vec<u32>>(), (20..40).collect::<Vec<u32>>(), (40..60).collect::<Vec<u32>>())
        .build()
        .unwrap();
    let notes = data.check_split().unwrap();
    assert_eq!(
        notes,
        [
            Note::UntrainedClasses { item: "node", part: "val", n_items: 1, n_all: 20, classes: vec![2] },
            Note::LargestClass { item: "node", part: "val", class: 0, n_items: 19, n_all: 20 },
            Note::LargestClass { item: "node", part: "test", class: 0, n_items: 20, n_all: 20 },
        ]
    );
    assert!(notes[0].to_string().starts_with("the val split has 1 node (5.0 %) of classes"), "{}", notes[0]);
}

/// An id that a part repeats counts as often as it occurs. Parts of few items have notes, too, except on their largest class.
#[test]
fn repeated_items_and_classes_of_few_items_have_notes() {
    let split = Split {
        train: [5, 5, 6, 5].map(GraphId).to_vec().into(),
        val: [7].map(GraphId).to_vec().into(),
        test: [6].map(GraphId).to_vec().into(),
    };
    let notes = split.notes(&Labels::<GraphId>::new(vec![0, 0, 1], 2).into(), 5);
    assert_eq!(
        notes,
        [
            Note::SplitsOverlap { item: "graph", parts: ["train", "test"], n_items: 1 },
            Note::RepeatedItems { item: "graph", part: "train", n_repeated: 2, n_all: 4 },
            Note::UntrainedClasses { item: "graph", part: "val", n_items: 1, n_all: 1, classes: vec![1] },
        ]
    );
    assert_eq!(
        notes[1].to_string(),
        "the train split lists 2 graph ids again (50.0 %): each counts as often as it occurs; remove the repetitions"
    );
    let values = TargetValues::regression(vec![0.5; 8], 1).unwrap();
    assert_eq!(split.notes(&Targets::from(values), 0), notes[..2]);
}
