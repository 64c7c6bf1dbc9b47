//! Tests of the kiln format of both layouts: sets round-trip, a folder is written atomically, and inconsistent sets are
//! rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use half::{bf16, f16};
use kiln_data::NotHomogeneousError;
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::synthetic::{self, SbmConfig};
use kiln_data::{Dataset, DatasetTargets, Error, NodeNames, debian_packages, format};
use kiln_feature::{
    DenseFeatures, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, Labels, TargetKind,
};
use kiln_graph::{CscBuilder, NodeId, NodeTypes};
use kiln_store::{Error as StoreError, npy};

use crate::common::{contents, contents_names, notes_of_reading, overlap};
use crate::heterogeneous_hash::changed_sets;
use crate::sets::{papers, rows, small, sparse_rows, split, written};

const ALL_FILES: [&str; 8] = [
    "features.npy",
    "indices.npy",
    "indptr.npy",
    "kiln.json",
    "labels.npy",
    "test.npy",
    "train.npy",
    "val.npy",
];

const NUMBERED_FILES: [&str; 18] = [
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

/// Returns the features of all nodes of a type.
fn all_rows(features: &dyn FeatureStore) -> FeatureBuffer {
    let nodes: Vec<NodeId> = (0..features.n_rows() as u32).map(NodeId).collect();
    let mut rows = FeatureBuffer::default();
    features.gather(&nodes, &mut rows).unwrap();
    rows
}

fn check_equal(got: &Dataset, expected: &Dataset) {
    assert_eq!(got.to_string(), expected.to_string());
    assert_eq!((&got.name, got.layout), (&expected.name, expected.layout));
    assert_eq!(got.graph.schema(), expected.graph.schema());
    for (got, expected) in got.graph.iter().zip(expected.graph.iter()) {
        let (got, expected) = (&got.graph, &expected.graph);
        assert_eq!((got.indptr(), got.indices()), (expected.indptr(), expected.indices()));
        assert_eq!((got.weights(), got.edge_types()), (expected.weights(), expected.edge_types()));
    }
    assert_eq!(got.dims(), expected.dims());
    for (got, expected) in got.features.iter().zip(&expected.features) {
        let [got, expected] = [got, expected].map(|of_type| of_type.as_ref().map(|store| all_rows(&**store)));
        assert!(got == expected, "the features should be equal");
    }
    assert_eq!(got.targets.is_some(), expected.targets.is_some());
    if let (Some(got), Some(expected)) = (&got.targets, &expected.targets) {
        assert_eq!((got.node_type, got.values.kind()), (expected.node_type, expected.values.kind()));
        assert_eq!(got.values.n_outputs(), expected.values.n_outputs());
        assert_eq!(got.split, expected.split);
        // A folder without names has the numbers of the classes.
        let n_names = if expected.class_names.is_empty() { 0 } else { got.class_names.len() };
        assert_eq!(got.class_names[..n_names], expected.class_names);
    }
    assert_eq!(got.labels().as_slice(), expected.labels().as_slice());
    assert!(got.names == expected.names, "the node names should be equal");
    assert_eq!(got.edge_type_names, expected.edge_type_names);
    assert_eq!(got.hash().unwrap(), expected.hash().unwrap());
}

/// Writes, opens and verifies a set, and checks that writing the opened set produces the same files.
fn check_round_trip(data: &Dataset) {
    let (_root, folder) = written(data);
    let read = format::open(&folder).unwrap();
    check_equal(&read, data);
    assert!(read.graph.iter().all(|relation| relation.graph.owned_bytes() == 0), "not mapped");
    let verified = format::verify(&folder).unwrap();
    assert_eq!((verified.n_nodes, verified.n_edges), (data.graph.n_nodes(), data.graph.n_edges()));
    assert_eq!(verified.n_hashed, contents(&folder).len() - 1);
    assert_eq!(notes_of_reading(&verified.notes), []);
    let (_root, again) = written(&read);
    assert!(
        contents(&again) == contents(&folder),
        "writing {} again should produce the same files",
        data.name
    );
}

#[test]
fn built_in_set_round_trips() {
    check_round_trip(&debian_packages().unwrap());
}

#[test]
fn synthetic_sets_round_trip() {
    check_round_trip(&synthetic::ring(10).unwrap());
    let config =
        SbmConfig { n_nodes: 500, n_classes: 4, degree: 6, homophily: 0.8, dim: 9, noise: 0.5, seed: 1 };
    check_round_trip(&synthetic::sbm(config).unwrap());
}

#[test]
fn features_of_each_type_round_trip() {
    check_round_trip(&small(rows()));
    let halves: Vec<f16> = [0.5, 1.0, -2.0, 3.0].map(f16::from_f32).to_vec();
    check_round_trip(&small(DenseFeatures::new(FeatureArray::F16(halves.into()), 1).unwrap()));
    let brain: Vec<bf16> = [0.5, 1.0, -2.0, 1e30].map(bf16::from_f32).to_vec();
    let data = small(DenseFeatures::new(FeatureArray::BF16(brain.into()), 1).unwrap());
    check_round_trip(&data);
    let (_root, folder) = written(&data);
    assert_eq!(format::open(&folder).unwrap().node_features().unwrap().dtype(), FeatureDType::BF16);
    check_round_trip(&small(sparse_rows()));
    let (_root, folder) = written(&small(sparse_rows()));
    let read = format::open(&folder).unwrap();
    let read = read.node_features().unwrap().as_sparse().unwrap();
    assert_eq!(
        (read.indptr(), read.columns(), read.dim()),
        (sparse_rows().indptr(), sparse_rows().columns(), 500)
    );
}

#[test]
fn heterogeneous_sets_round_trip() {
    for (change, data) in changed_sets() {
        println!("the set has {change}");
        // The nodes of a relation whose type of sources is changed are of the type before, which opening does not notice.
        if change == "another type of sources" {
            let (_root, folder) = written(&data);
            check_equal(&format::open(&folder).unwrap(), &data);
            assert!(format::verify(&folder).is_err());
            continue;
        }
        check_round_trip(&data);
    }
    let (_root, folder) = written(&papers());
    assert_eq!(contents_names(&folder), NUMBERED_FILES);
    let verified = format::verify(&folder).unwrap();
    assert_eq!((verified.n_nodes, verified.n_edges, verified.n_hashed), (9, 10, 17));
}

#[test]
fn heterogeneous_bf16_features_and_several_labels_round_trip() {
    let rows: Vec<bf16> = [0.5, 1.0, -2.0].map(bf16::from_f32).into();
    let types = NodeTypes::new([("a", 0), ("b", 3), ("c", 1)]).unwrap();
    let data = Dataset::builder_with_types(types)
        .nodes("b")
        .features(FeatureArray::BF16(rows.clone().into()), 1)
        .multi_label(vec![1, 0, 255, 255, 0, 0], 2)
        .split(vec![0], vec![2], Vec::<u32>::new())
        .build()
        .unwrap();
    check_round_trip(&data);
    let (_root, folder) = written(&data);
    let opened = format::open(&folder).unwrap();
    let of_b = all_rows(&**opened.features[1].as_ref().unwrap());
    assert!(matches!(of_b, FeatureBuffer::BF16(values) if values == rows));
    assert_eq!(opened.targets.unwrap().values.kind(), TargetKind::MultiLabel);
}

#[test]
fn kiln_folder_opens_as_plain_arrays() {
    let (_root, folder) = written(&small(rows()));
    let data = kiln_data::npy::open(&folder).unwrap();
    // A folder without the manifest has no names.
    let notes = notes_of_reading(&data.notes);
    let note = notes[0].to_string();
    assert!(note.contains("not read: names_ends.npy, names_text.npy") && notes.len() == 1, "{note}");
    assert_eq!(data.csc().unwrap().weights(), small(rows()).csc().unwrap().weights());
    assert!(all_rows(&**data.node_features().unwrap()) == all_rows(&rows()));
    let file = fs::read(folder.join("features.npy")).unwrap();
    assert_eq!(file, npy::write(&[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]));
}

#[test]
fn rejects_output_folder_that_is_not_empty() {
    for data in [small(rows()), papers()] {
        let (root, folder) = written(&data);
        let before = contents(&folder);
        for target in [folder.clone(), folder.join("kiln.json"), root.path().to_owned()] {
            for data in [&synthetic::ring(5).unwrap(), &data] {
                let error = format::write(data, &target).unwrap_err();
                assert!(matches!(&error, Error::Store(StoreError::NotEmpty { .. })), "{error}");
            }
        }
        assert!(contents(&folder) == before);
        assert_eq!(contents_names(root.path()), ["set"]);
    }
}

#[test]
fn writes_to_empty_folders_and_creates_missing_parents() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    for folder in ["empty", "a/b/c", "a/b/d/"] {
        format::write(&synthetic::ring(5).unwrap(), root.path().join(folder)).unwrap();
        assert_eq!(contents_names(&root.path().join(folder)), ALL_FILES);
    }
    assert_eq!(contents_names(&root.path().join("a/b")), ["c", "d"]);
}

/// A feature store that fails after 100,000 rows, and checks the output folder before that.
#[derive(Debug)]
struct Breaking {
    target: PathBuf,
}

impl FeatureStore for Breaking {
    fn dim(&self) -> usize {
        1
    }

    fn n_rows(&self) -> usize {
        200_000
    }

    fn dtype(&self) -> FeatureDType {
        FeatureDType::F32
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        if ids.iter().any(|node| node.0 >= 100_000) {
            // At this point the target does not exist, and the unfinished folder does not open. A process that is
            // killed here leaves this state.
            assert!(!self.target.exists());
            let unfinished = contents_names(self.target.parent().unwrap()).swap_remove(0);
            assert!(unfinished.starts_with("set.unfinished-"), "{unfinished}");
            let unfinished = self.target.with_file_name(unfinished);
            assert!(unfinished.join("features.npy").exists());
            assert!(matches!(format::open(unfinished), Err(Error::Store(StoreError::Missing { .. }))));
            return Err(kiln_feature::Error::ZeroDim);
        }
        *out = FeatureBuffer::F32(vec![0.0; ids.len()]);
        Ok(())
    }
}

#[test]
fn failed_write_leaves_no_files() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set");
    let data = Dataset {
        graph: CscBuilder::new(200_000).build(&[], &[]).unwrap().into(),
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new(vec![0; 200_000], 1).into(),
            split: synthetic::ring(5).unwrap().split().clone(),
            class_names: vec!["all".into()],
        }),
        features: vec![Some(Arc::new(Breaking { target: target.clone() }))],
        ..synthetic::ring(5).unwrap()
    };
    let error = format::write(&data, &target).unwrap_err();
    assert!(matches!(error, Error::Feature(kiln_feature::Error::ZeroDim)), "{error}");
    assert_eq!(contents_names(root.path()), [""; 0]);
}

#[test]
fn keeps_unfinished_folders_of_other_processes() {
    let root = tempfile::tempdir().unwrap();
    let left: Vec<String> = (0..3).map(|n| format!("set.unfinished-{}-{n}", std::process::id())).collect();
    for name in &left {
        fs::create_dir(root.path().join(name)).unwrap();
        fs::write(root.path().join(name).join("indptr.npy"), "half").unwrap();
    }
    format::write(&small(rows()), root.path().join("set")).unwrap();
    check_equal(&format::open(root.path().join("set")).unwrap(), &small(rows()));
    assert_eq!(contents_names(root.path()), [&["set".to_owned()], &left[..]].concat());
}

#[test]
fn rejects_inconsistent_sets() {
    let root = tempfile::tempdir().unwrap();
    let check = |data: Dataset, expected: &str| {
        let error = format::write(&data, root.path().join("set")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(contents_names(root.path()), [""; 0]);
        error
    };
    let three_rows = DenseFeatures::from_f32(vec![0.0; 3], 1).unwrap();
    check(small(three_rows), "the number of feature rows is 3, expected 4");
    let mut short = papers();
    short.features.swap(0, 1);
    let error = check(short, "the number of feature rows is 4, expected 3");
    assert!(matches!(error, Error::InPart { .. }), "{error}");
    let mut long = small(rows());
    long.targets.as_mut().unwrap().values = Labels::new(vec![0; 5], 3).into();
    check(long, "the number of labels is 5, expected 4");
    let names = vec![Arc::new(NodeNames::new(["one"]))];
    check(Dataset { names, ..small(rows()) }, "the number of node names is 1, expected 4");
    let mut named = small(rows());
    named.targets.as_mut().unwrap().class_names = vec!["a".to_owned()];
    check(named, "class_names is 1 names, expected 3 names or none");
    let types = NodeTypes::new((0..513).map(|number| (number.to_string(), 1))).unwrap();
    let many = Dataset::builder_with_types(types).build().unwrap();
    check(many, "node_types is 513 types, expected at most 512 types");
}

#[test]
fn in_memory_copy_equals_the_mapped_set_and_outlives_its_files() {
    // The plain graph has 5 offsets, and 4 edges with weights and types. The relations of the other have 5 offsets each, and
    // 10 edges, 5 of them with weights.
    let of_small = 5 * 8 + 4 * (4 + 4 + 1);
    let of_papers = 3 * 5 * 8 + 10 * 4 + 5 * 4;
    for (data, n_bytes) in
        [(small(rows()), of_small), (small(sparse_rows()), of_small), (papers(), of_papers)]
    {
        let (root, folder) = written(&data);
        let mapped = format::open(&folder).unwrap();
        let owned_bytes = |data: &Dataset| -> u64 {
            data.graph.iter().map(|relation| relation.graph.owned_bytes() as u64).sum()
        };
        assert_eq!(owned_bytes(&mapped), 0);
        let in_memory = mapped.in_memory();
        assert_eq!(owned_bytes(&in_memory), n_bytes);
        assert!(in_memory.graph.iter().all(|relation| relation.graph.indices_path().is_none()));
        drop(root);
        assert_eq!(in_memory.hash().unwrap(), data.hash().unwrap());
        assert_eq!(in_memory.names, data.names);
    }
}

#[test]
fn both_layouts_are_opened_verified_and_hashed_by_the_same_functions() {
    for (data, is_heterogeneous) in [(papers(), true), (synthetic::ring(6).unwrap(), false)] {
        let (_root, folder) = written(&data);
        let hash = data.hash().unwrap();
        for opened in [kiln_data::open(&folder), Dataset::open(&folder), format::open(&folder)] {
            let opened = opened.unwrap();
            assert_eq!((opened.is_heterogeneous(), opened.hash().unwrap()), (is_heterogeneous, hash.clone()));
        }
        assert_eq!(format::verify(&folder).unwrap().n_edges, data.graph.n_edges());
        // The hash of a folder is that of its files.
        assert!(!format::hash(&folder).unwrap().is_empty());
    }
}

#[test]
fn what_needs_one_node_type_names_the_function_for_several() {
    let (_root, folder) = written(&papers());
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
    assert!(
        matches!(data.csc().unwrap_err(), Error::NotHomogeneous(NotHomogeneousError::SeveralTypes { what, .. }) if what == several)
    );
    assert!(matches!(data.node_features().unwrap_err(), Error::NotHomogeneous(_)));
}

#[test]
fn verify_reports_splits_that_overlap() {
    let splits = [(small(rows()), split(&[0, 1], &[1], &[2])), (papers(), split(&[3, 4], &[4], &[5]))];
    for (data, split) in splits {
        let (_root, folder) = written(&data.with_split(split).unwrap());
        let notes = notes_of_reading(&format::verify(&folder).unwrap().notes);
        assert_eq!(notes, [overlap(["train", "val"])]);
    }
}
