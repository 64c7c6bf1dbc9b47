//! Tests of the kiln format of heterogeneous sets: sets round-trip, and damaged folders are rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use half::bf16;
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, Error, Note, Split, format, synthetic};
use kiln_feature::{FeatureArray, FeatureBuffer, TargetKind};
use kiln_graph::{NodeId, NodeTypes};
use kiln_store::Error as StoreError;

use crate::common::{contents, contents_names};
use crate::typed::{changed_sets, papers};

const FILES: [&str; 18] = [
    "features.1.npy",
    "features_data.0.npy",
    "features_indices.0.npy",
    "features_indptr.0.npy",
    "indices.0.npy",
    "indices.1.npy",
    "indices.2.npy",
    "indptr.0.npy",
    "indptr.1.npy",
    "indptr.2.npy",
    "kiln.json",
    "labels.npy",
    "names_ends.0.npy",
    "names_text.0.npy",
    "test.npy",
    "train.npy",
    "val.npy",
    "weights.0.npy",
];

/// Writes a set to a new folder.
pub(crate) fn written(data: &Dataset) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(data, &folder).unwrap();
    (root, folder)
}

pub(crate) fn set() -> (tempfile::TempDir, PathBuf) {
    written(&papers().build().unwrap())
}

#[test]
fn a_written_set_opens_with_the_same_content() {
    let data = papers().build().unwrap();
    let (_root, folder) = written(&data);
    let mut names = contents_names(&folder);
    names.sort();
    assert_eq!(names, FILES);
    let opened = Dataset::open(&folder).unwrap();
    assert_eq!(opened.hash().unwrap(), data.hash().unwrap());
    assert_eq!((&opened.name, &opened.names), (&data.name, &data.names));
    assert_eq!(opened.graph.types(), data.graph.types());
    let (targets, expected) = (opened.targets.as_ref().unwrap(), data.targets.as_ref().unwrap());
    assert_eq!((&targets.split, &targets.class_names), (&expected.split, &expected.class_names));
    assert_eq!(opened.to_string(), data.to_string());
    assert!(opened.graph.iter().all(|relation| relation.graph.owned_bytes() == 0), "not mapped");
    assert_eq!(opened.clone().in_memory().hash().unwrap(), data.hash().unwrap());
    let verified = format::verify(&folder).unwrap();
    assert_eq!((verified.n_nodes, verified.n_edges, verified.n_hashed), (9, 10, 17));
    assert_eq!(verified.notes, []);
}

#[test]
fn the_same_set_has_the_same_bytes() {
    let (_root, folder) = set();
    let again = folder.with_file_name("again");
    format::write(&format::open(&folder).unwrap(), &again).unwrap();
    assert_eq!(contents(&folder), contents(&again));
}

#[test]
fn every_kind_of_set_round_trips() {
    for (change, data) in changed_sets() {
        let (_root, folder) = written(&data);
        let opened = format::open(&folder).unwrap();
        assert_eq!(opened.hash().unwrap(), data.hash().unwrap(), "{change}");
        let kind = |data: &Dataset| data.targets.as_ref().map(|targets| targets.values.kind());
        assert_eq!(kind(&opened), kind(&data), "{change}");
    }
}

#[test]
fn bf16_features_and_several_labels_round_trip() {
    let rows: Vec<bf16> = [0.5, 1.0, -2.0].map(bf16::from_f32).into();
    let builder = Dataset::builder_with_types(NodeTypes::new([("a", 0), ("b", 3), ("c", 1)]).unwrap());
    let builder = builder.nodes("b").features(FeatureArray::BF16(rows.clone().into()), 1);
    let data = builder.nodes("b").multi_label(vec![1, 0, 255, 255, 0, 0], 2).split(
        vec![0],
        vec![2],
        Vec::<u32>::new(),
    );
    let (_root, folder) = written(&data.build().unwrap());
    format::verify(&folder).unwrap();
    let opened = format::open(&folder).unwrap();
    let mut buffer = FeatureBuffer::default();
    let features = opened.features[1].as_ref().unwrap();
    features.gather(&[0, 1, 2].map(NodeId), &mut buffer).unwrap();
    assert!(matches!(buffer, FeatureBuffer::BF16(values) if values == rows));
    assert_eq!(opened.targets.unwrap().values.kind(), TargetKind::MultiLabel);
}

#[test]
fn manifest_hash_changes_with_every_change_of_the_data() {
    let sets = changed_sets();
    let mut hashes = HashSet::new();
    for (change, data) in &sets {
        let (_root, folder) = written(data);
        assert!(hashes.insert(format::hash(&folder).unwrap()), "{change} should change the hash");
    }
    let mut data = papers().build().unwrap();
    data.name = "other".into();
    data.names[0] = Arc::default();
    data.targets.as_mut().unwrap().class_names.clear();
    let (_root, folder) = written(&data);
    assert!(hashes.contains(&format::hash(&folder).unwrap()), "names of nodes and classes should not count");
}

#[test]
fn both_layouts_are_opened_verified_and_hashed_by_the_same_functions() {
    let (_root, typed) = set();
    let ring = typed.with_file_name("ring");
    format::write(&synthetic::ring(6).unwrap(), &ring).unwrap();
    for (folder, is_heterogeneous) in [(&typed, true), (&ring, false)] {
        let data = kiln_data::open(folder).unwrap();
        assert_eq!(data.is_heterogeneous(), is_heterogeneous);
        let hash = data.hash().unwrap();
        for again in [Dataset::open(folder).unwrap(), format::open(folder).unwrap()] {
            assert_eq!((again.is_heterogeneous(), again.hash().unwrap()), (is_heterogeneous, hash.clone()));
        }
        assert_eq!(format::verify(folder).unwrap().n_edges, data.graph.n_edges());
        // The hash of a folder is that of its files.
        assert!(!format::hash(folder).unwrap().is_empty());
    }
}

#[test]
fn what_needs_one_node_type_names_the_function_for_several() {
    let (_root, folder) = set();
    let out = folder.with_file_name("out");
    for (error, expected) in [
        (
            format::open_graph(&folder).map(drop),
            "a heterogeneous set (open it with format::open), expected a homogeneous set",
        ),
        (convert(&folder, &out, &ConvertOptions::default()).map(drop), "a heterogeneous set"),
    ] {
        let error = error.unwrap_err();
        let Error::WrongKind { path, .. } = &error else { panic!("{error}") };
        assert!(
            path.starts_with(folder.parent().unwrap()) && error.to_string().contains(expected),
            "{error}"
        );
    }
    let data = Dataset::open(&folder).unwrap();
    let several = "the adjacency as one matrix";
    assert!(matches!(data.csc().unwrap_err(), Error::SeveralTypes { what, .. } if what == several));
    assert!(matches!(data.node_features().unwrap_err(), Error::SeveralTypes { .. }));
}

#[test]
fn write_overwrites_nothing_and_leaves_nothing_after_an_error() {
    let (root, folder) = set();
    let data = papers().build().unwrap();
    let before = contents(&folder);
    let error = format::write(&data, &folder).unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::NotEmpty { .. })), "{error}");
    assert_eq!(contents(&folder), before);
    let mut short = data.clone();
    short.features.swap(0, 1);
    assert!(matches!(format::write(&short, root.path().join("short")), Err(Error::InPart { .. })));
    let types = NodeTypes::new((0..513).map(|number| (number.to_string(), 1))).unwrap();
    let many = Dataset::builder_with_types(types).build().unwrap();
    let error = format::write(&many, root.path().join("many")).unwrap_err().to_string();
    assert!(error.contains("node_types is 513 types, expected at most 512 types"), "{error}");
    assert_eq!(contents_names(root.path()), ["set"]);
}

#[test]
fn verify_reports_splits_that_overlap() {
    let mut data = papers().build().unwrap();
    let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
    let split = Split { train: nodes(&[3, 4]), val: nodes(&[4]), test: nodes(&[5]) };
    data.targets.as_mut().unwrap().split = split;
    let (_root, folder) = written(&data);
    let notes = format::verify(&folder).unwrap().notes;
    assert_eq!(notes, [Note::SplitsOverlap { parts: ["train", "val"], n_nodes: 1 }]);
}
