//! Sets with several labels per item and with regression targets: the builder, the kiln format and the readers.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{BuildError, Dataset, Error, format, ogb, tu};
use kiln_feature::{TargetKind, TargetValues, Targets};
use kiln_graph::{ItemId, NodeId};
use kiln_store::npy::{self, Element};

const MISSING: u8 = TargetValues::<NodeId>::MISSING;

/// The labels of four nodes. Node 3 has none.
const LABELS: [u8; 8] = [1, 0, 0, MISSING, 1, 1, MISSING, MISSING];

/// The numbers of four nodes. Node 3 has none.
const NUMBERS: [f32; 8] = [0.5, -1.0, 2.0, f32::NAN, 0.0, 8.5, f32::NAN, f32::NAN];

fn ring(name: &str) -> kiln_data::DatasetBuilder<'static> {
    Dataset::builder(4)
        .name(name)
        .edges(&[0, 1, 2, 3], &[1, 2, 3, 0])
        .features(vec![0.0, 0.5, 1.0, 1.5], 1)
        .split(vec![0], vec![1], vec![2])
}

/// Returns the values of all items as text, in which missing ones are equal.
fn text<I: ItemId>(targets: &Targets<I>) -> String {
    let Targets::Values(values) = targets else { panic!("expected target values") };
    format!("{} x {}: {:?} {:?}", values.len(), values.n_columns(), values.as_labels(), values.as_numbers())
}

fn put<T: Element>(folder: &Path, name: &str, values: &[T], shape: &[usize]) {
    fs::write(folder.join(name), npy::write(values, shape)).unwrap();
}

#[test]
fn builder_takes_several_labels_and_numbers() {
    let labels = ring("labels").multi_label(LABELS.to_vec(), 2).class_names(["a", "b"]).build().unwrap();
    assert_eq!(
        (labels.targets.as_ref().unwrap().values.kind(), labels.targets.as_ref().unwrap().values.n_outputs()),
        (TargetKind::MultiLabel, 2)
    );
    assert!(labels.labels().is_empty() && labels.validate().unwrap().is_empty());
    let shown = "labels: 4 nodes, 4 edges, 1 features, 2 labels; 1 / 1 / 1 nodes to train, validate, test";
    assert_eq!(labels.to_string(), shown);
    let numbers = ring("numbers").regression(NUMBERS.to_vec(), 2).build().unwrap();
    assert_eq!(numbers.targets.as_ref().unwrap().values.kind(), TargetKind::Regression);
    // A hash covers the values and their kind.
    let other = ring("other").regression([&[0.75], &NUMBERS[1..]].concat(), 2).build().unwrap();
    let hashes = [&labels, &numbers, &other].map(|data| data.hash().unwrap());
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2], "{hashes:?}");
}

#[test]
fn builder_rejects_splits_with_nodes_without_any_target() {
    for builder in [ring("x").multi_label(LABELS.to_vec(), 2), ring("x").regression(NUMBERS.to_vec(), 2)] {
        let error = builder.clone().split(vec![0], vec![1], vec![3]).build().unwrap_err();
        let expected = BuildError::Unlabelled { part: "test", position: 0, node: 3 };
        assert!(matches!(&error, Error::Build(build) if *build == expected), "{error}");
    }
    let error = ring("x").multi_label(vec![2; 8], 2).build().unwrap_err();
    assert!(error.to_string().contains("node 0 has the target 2 in column 0"), "{error}");
    assert!(
        ring("x")
            .regression(NUMBERS.to_vec(), 4)
            .build()
            .unwrap_err()
            .to_string()
            .contains("is 2, expected 4")
    );
}

#[test]
fn kiln_format_keeps_target_values_and_verifies_them() {
    let root = tempfile::tempdir().unwrap();
    for (name, builder) in [
        ("labels", ring("set").multi_label(LABELS.to_vec(), 2).class_names(["a", "b"])),
        ("numbers", ring("set").regression(NUMBERS.to_vec(), 2)),
        ("column", ring("set").regression(vec![0.5, 1.0, 2.0, f32::NAN], 1)),
    ] {
        let (data, folder) = (builder.build().unwrap(), root.path().join(name));
        format::write(&data, &folder).unwrap();
        assert!(folder.join("targets.npy").exists() && !folder.join("labels.npy").exists());
        let opened = format::open(&folder).unwrap();
        assert_eq!(
            text(&opened.targets.as_ref().unwrap().values),
            text(&data.targets.as_ref().unwrap().values)
        );
        assert_eq!((opened.hash().unwrap(), &opened.split()), (data.hash().unwrap(), &data.split()));
        assert_eq!(opened.class_names().len(), data.targets.as_ref().unwrap().values.n_outputs());
        format::verify(&folder).unwrap();
        let copy = root.path().join(format!("copy-{name}"));
        convert(&folder, &copy, &ConvertOptions::default()).unwrap();
        assert_eq!(format::hash(&copy).unwrap(), format::hash(&folder).unwrap());
    }
    // A value that is no label is found although its hash is correct.
    let mut bad = ring("set").multi_label(vec![1; 4], 1).build().unwrap();
    bad.targets.as_mut().unwrap().values = TargetValues::multi_label(vec![0, 1, 0, 3], 1).unwrap().into();
    let folder = root.path().join("bad");
    format::write(&bad, &folder).unwrap();
    let error = format::verify(&folder).unwrap_err().to_string();
    assert!(
        error.contains("targets.npy: a target of node 3 is 3 in column 0, expected 0, 1 or 255"),
        "{error}"
    );
}

/// A set has `labels.npy` or `targets.npy`, with the shape that the manifest states.
#[test]
fn kiln_format_rejects_two_kinds_of_targets_and_other_shapes() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(&ring("set").multi_label(LABELS.to_vec(), 2).build().unwrap(), &folder).unwrap();
    let manifest = fs::read_to_string(folder.join("kiln.json")).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(manifest.contains(from), "{manifest}");
        fs::write(folder.join("kiln.json"), manifest.replace(from, to)).unwrap();
        format::open(&folder).unwrap_err().to_string()
    };
    let error = refused("\"n_classes\": 2", "\"n_classes\": 3");
    assert!(error.contains("targets.npy"), "{error}");
    let error = refused("\"targets.npy\"", "\"labels.npy\"");
    assert!(error.contains("labels.npy"), "{error}");
}

#[test]
fn npy_folders_have_several_labels_or_numbers_and_convert_alike() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("folder");
    fs::create_dir(&at).unwrap();
    put(&at, "indptr.npy", &[0_i64, 0, 1, 4, 4], &[5]);
    put(&at, "indices.npy", &[0_i32, 0, 1, 3], &[4]);
    put(&at, "features.npy", &[0.0_f32, 0.5, 1.0, 1.5], &[4, 1]);
    for (part, node) in [("train.npy", 0_i32), ("val.npy", 1), ("test.npy", 2)] {
        put(&at, part, &[node], &[1]);
    }
    let expected = [
        ring("x").multi_label(LABELS.to_vec(), 2).build().unwrap(),
        ring("x").regression(NUMBERS.to_vec(), 2).build().unwrap(),
    ];
    let expected = expected.map(|data| text(&data.targets.as_ref().unwrap().values));
    let mut n_cases = 0;
    let mut check = |expected: &str| {
        n_cases += 1;
        let data = kiln_data::open(&at).unwrap();
        assert_eq!(text(&data.targets.as_ref().unwrap().values), expected);
        let out = root.path().join(format!("out-{n_cases}"));
        convert(&at, &out, &ConvertOptions::default()).unwrap();
        assert_eq!(format::open(&out).unwrap().hash().unwrap(), data.hash().unwrap());
        format::verify(&out).unwrap();
    };
    let signed = LABELS.map(|label| if label == MISSING { -1 } else { i64::from(label) });
    put(&at, "labels.npy", &signed, &[4, 2]);
    check(&expected[0]);
    put(&at, "labels.npy", &LABELS, &[4, 2]);
    check(&expected[0]);
    put(&at, "labels.npy", &NUMBERS, &[4, 2]);
    check(&expected[1]);
    put(&at, "labels.npy", &NUMBERS.map(f64::from), &[4, 2]);
    check(&expected[1]);
    put(&at, "labels.npy", &[0.5_f32, 1.5, 2.5, f32::NAN], &[4, 1]);
    check(&text(
        &ring("x")
            .regression(vec![0.5, 1.5, 2.5, f32::NAN], 1)
            .build()
            .unwrap()
            .targets
            .as_ref()
            .unwrap()
            .values,
    ));

    let refused = |expected: &str| {
        let out = root.path().join("refused");
        for error in
            [kiln_data::open(&at).unwrap_err(), convert(&at, &out, &ConvertOptions::default()).unwrap_err()]
        {
            assert!(error.to_string().contains(expected), "{error}");
        }
    };
    put(&at, "labels.npy", &[0_i32, 1, 0, 2, 1, 1, 0, 0], &[4, 2]);
    refused("labels.npy: a label of row 1 is 2, expected 1, 0, or a negative number");
    put(&at, "labels.npy", &[0.0_f64, 1.0, 0.0, 1e300, 1.0, 1.0, 0.0, 0.0], &[4, 2]);
    refused("labels.npy: a target of row 1 is inf, expected finite numbers of 32 bits, or NaN");
    put(&at, "labels.npy", &[0.5_f32; 6], &[3, 2]);
    refused("the number of labels is 3, expected 4");
    put(&at, "labels.npy", &[f32::NAN; 4], &[4, 1]);
    refused("train.npy: train split entry 0 is node 0, expected a node that has a target value");
}

#[test]
fn ogb_folders_have_several_labels_or_numbers() {
    let (_parent, folder) = crate::ogb::folder("ogbn_some");
    let put = |text: &str| {
        for name in ["node-label.csv.gz", "node-label.csv"] {
            let _ = fs::remove_file(folder.join("raw").join(name));
        }
        fs::write(folder.join("raw/node-label.csv"), text).unwrap();
        ogb::open(&folder).unwrap()
    };
    let labels = put("1,0\n0,nan\n1,1\nnan,nan\n");
    assert_eq!(
        text(&labels.targets.as_ref().unwrap().values),
        text(&ring("x").multi_label(LABELS.to_vec(), 2).build().unwrap().targets.as_ref().unwrap().values)
    );
    let numbers = put("0.5,-1\n2,nan\n0,8.5\nnan,nan\n");
    assert_eq!(
        text(&numbers.targets.as_ref().unwrap().values),
        text(&ring("x").regression(NUMBERS.to_vec(), 2).build().unwrap().targets.as_ref().unwrap().values)
    );
    let out = folder.join("out");
    convert(&folder, &out, &ConvertOptions::default()).unwrap();
    assert_eq!(format::open(&out).unwrap().hash().unwrap(), numbers.hash().unwrap());
}

#[test]
fn tu_folders_have_several_labels_or_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let put = |what: &str, text: &str| fs::write(folder.path().join(format!("X_{what}.txt")), text).unwrap();
    put("A", "1, 2\n2, 1\n3, 4\n4, 3\n");
    put("graph_indicator", "1\n1\n2\n2\n");
    put("graph_labels", "1, 0, -1\n0, 1, 1\n");
    let data = tu::read(folder.path()).unwrap();
    assert_eq!(text(&data.targets()), format!("2 x 3: Some({:?}) None", [1, 0, MISSING, 0, 1, 1]));
    assert_eq!((data.labels().len(), data.class_names.len()), (0, 3));
    assert!(data.to_string().ends_with("3 labels"), "{data}");
    let of_labels = data.hash().unwrap();

    fs::remove_file(folder.path().join("X_graph_labels.txt")).unwrap();
    put("graph_attributes", "0.5, -2\nnan, 1e3\n");
    let data = tu::read(folder.path()).unwrap();
    assert_eq!(text(&data.targets()), "2 x 2: None Some([0.5, -2.0, NaN, 1000.0])");
    assert_ne!(data.hash().unwrap(), of_labels);
}

pub(crate) fn put_graphs(at: &Path, labels: &str) {
    for (name, text) in [
        ("raw/num-node-list.csv", "3\n2\n1\n"),
        ("raw/num-edge-list.csv", "2\n1\n0\n"),
        ("raw/edge.csv", "0,1\n1,2\n1,0\n"),
        ("raw/node-feat.csv", "5,0\n0,4\n0,5\n6,1\n2,2\n7,0\n"),
        ("raw/graph-label.csv", labels),
        ("split/scaffold/train.csv", "2\n0\n"),
        ("split/scaffold/valid.csv", "1\n"),
        ("split/scaffold/test.csv", ""),
    ] {
        fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
        fs::write(at.join(name), text).unwrap();
    }
}

#[test]
fn ogb_folders_of_graphs_have_labels_classes_or_numbers_and_a_split() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("ogbg_molsome");
    put_graphs(&at, "1,0\nnan,1\n0,nan\n");
    let (data, split) = ogb::open_graphs(&at).unwrap();
    assert_eq!(text(&data.targets()), format!("3 x 2: Some({:?}) None", [1, 0, MISSING, 1, 0, MISSING]));
    assert_eq!(data.node_offsets()[..], [0, 3, 5, 6]);
    // The reverse of each edge is added to sets of molecules.
    assert_eq!(data.graph().in_neighbors(NodeId(1)), [NodeId(0), NodeId(2)]);
    assert_eq!((data.graph().n_edges(), data.notes.len()), (6, 1));
    assert_eq!(data.graph().in_neighbors(NodeId(3)), [NodeId(4)]);
    assert_eq!(data.features().unwrap().row(NodeId(4)).unwrap(), [2.0, 2.0]);
    let parts = split.parts().map(|(_, graphs)| graphs.iter().map(|graph| graph.0).collect::<Vec<u32>>());
    assert_eq!(parts, [vec![2, 0], vec![1], vec![]]);
    assert_eq!(kiln_data::detect_format(&at).unwrap(), kiln_data::DatasetFormat::OgbGraphs);
    assert_eq!(kiln_data::GraphDataset::open(&at).unwrap().hash().unwrap(), data.hash().unwrap());

    let open = |labels: &str| {
        put_graphs(&at, labels);
        ogb::open_graphs(&at).unwrap().0.targets()
    };
    assert_eq!(open("1\n0\n1\n").kind(), TargetKind::MultiLabel);
    assert_eq!((open("1\n0\n4\n").kind(), open("1\n0\n4\n").n_outputs()), (TargetKind::Classes, 5));
    assert_eq!(open("-0.5\n0\n4\n").kind(), TargetKind::Regression);
}

#[test]
fn rejects_damaged_ogb_folders_of_graphs() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("ogbg_some");
    let refused = |file: &str, content: &str| {
        put_graphs(&at, "1\n0\n1\n");
        fs::write(at.join(file), content).unwrap();
        ogb::open_graphs(&at).unwrap_err().to_string()
    };
    for (file, content, expected) in [
        ("raw/edge.csv", "0,1\n1,3\n1,0\n", "line 2: \"3\", expected two nodes of the graph, below 3"),
        ("raw/edge.csv", "0,1\n1,2\n", "the number of edges is 2, expected 3"),
        ("raw/edge.csv", "0,1\n1,2\n1,0\n0,0\n", "line 4: \"0\", expected no more than 3 lines"),
        ("raw/edge.csv", "0,1,2\n1,2\n1,0\n", "line 1"),
        ("raw/num-node-list.csv", "3\n2\n4294967295\n", "line 3: \"4294967295\", expected a number"),
        ("raw/num-node-list.csv", "3\n2\n", "num-edge-list is 3, expected 2"),
        ("raw/node-feat.csv", "1\n2\n", "node-feat.csv: the number of lines is 2, expected 6"),
        ("raw/graph-label.csv", "1\n0\n", "graph-label.csv: the number of lines is 2, expected 3"),
        ("raw/graph-label.csv", "1\nnan\n0\n", "scaffold: evaluation split entry 0 is graph 1 in val"),
        ("split/scaffold/train.csv", "3\n", "train.csv, line 1: \"3\", expected a graph id below 3"),
    ] {
        let error = refused(file, content);
        assert!(error.contains(expected), "{error}\n    expected {expected}");
    }
    // Without features, a number of nodes that no line confirms is rejected before memory is allocated for it.
    put_graphs(&at, "1\n0\n1\n");
    fs::remove_file(at.join("raw/node-feat.csv")).unwrap();
    assert!(ogb::open_graphs(&at).unwrap().0.features().is_none());
    fs::write(at.join("raw/num-node-list.csv"), "3\n2\n4294967000\n").unwrap();
    let error = ogb::open_graphs(&at).unwrap_err().to_string();
    assert!(
        error.contains("the number of nodes without features and edges is 4294967005, expected 9"),
        "{error}"
    );
}

/// ogbn-proteins has edge features, several labels and no node features; OGB's library adds reverse edges.
#[test]
fn ogb_node_features_are_the_means_of_edge_features_if_there_are_no_others() {
    let (_parent, folder) = crate::ogb::folder("ogbn_proteins");
    let raw = folder.join("raw");
    fs::remove_file(raw.join("node-feat.csv.gz")).unwrap();
    fs::remove_file(raw.join("node-label.csv.gz")).unwrap();
    fs::write(raw.join("node-label.csv"), "1,0\n0,1\n1,1\n0,0\n").unwrap();
    // The edges are 0 -> 1, 2 -> 1, 1 -> 1 and 3 -> 0.
    fs::write(raw.join("edge-feat.csv"), "0.5,1\n0.25,0\n0.75,2\n1,1\n").unwrap();
    let data = ogb::open(&folder).unwrap();
    let row = |node| data.node_features().unwrap().row(NodeId(node)).unwrap();
    assert_eq!([row(0), row(1), row(2), row(3)], [[0.75, 1.0], [0.5, 1.0], [0.25, 0.0], [1.0, 1.0]]);
    assert_eq!(
        (data.targets.as_ref().unwrap().values.kind(), data.targets.as_ref().unwrap().values.n_outputs()),
        (TargetKind::MultiLabel, 2)
    );
    assert!(data.notes.iter().any(|note| note.to_string().starts_with("node features are the means")));
    let out = folder.join("out");
    convert(&folder, &out, &ConvertOptions::default()).unwrap();
    assert_eq!(format::open(&out).unwrap().hash().unwrap(), data.hash().unwrap());

    let refused = |text: &str| {
        fs::write(raw.join("edge-feat.csv"), text).unwrap();
        ogb::open(&folder).unwrap_err().to_string()
    };
    for (text, expected) in [
        ("0.5\n0.5\n0.5\n", "edge-feat.csv: the number of lines is 3, expected 4"),
        ("1\n1\n1\n1\n1\n", "line 5: \"1\", expected no more than 4 lines, one per edge"),
        ("1\n1\nnan\n1\n", "line 3: \"nan\", expected a finite number"),
    ] {
        let error = refused(text);
        assert!(error.contains(expected), "{error}");
    }
}
