//! Tests of the kiln format: sets round-trip, a folder is written atomically, and inconsistent sets are rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use kiln_data::synthetic::{self, SbmConfig};
use kiln_data::{Dataset, DatasetTargets, Error, Layout, NodeNames, Split, debian_packages, format};
use kiln_feature::{
    DenseFeatures, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, Labels, SparseFeatures,
};
use kiln_graph::{CscBuilder, NodeId, SharedArray};
use kiln_store::{Error as StoreError, npy};

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

fn nodes(ids: &[u32]) -> SharedArray<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// Returns a set with the edges 0 -> 1, 0 -> 2, 1 -> 2, 3 -> 2, with weights and types. Node 3 has no class.
fn small(features: impl FeatureStore + 'static) -> Dataset {
    let builder = CscBuilder::new(4).weights(&[0.5, 1.0, 1.5, 2.0]).edge_types(&[0, 1, 0, 1]);
    Dataset {
        name: "small".into(),
        graph: builder.build(&[0, 0, 1, 3], &[1, 2, 2, 2]).unwrap().into(),
        features: vec![Some(Arc::new(features))],
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new(vec![1, 0, 2, -1], 3).into(),
            split: Split { train: nodes(&[0]), val: nodes(&[1]), test: nodes(&[2]) },
            class_names: ["a", "b", "c"].map(String::from).to_vec(),
        }),
        names: vec![Arc::new(NodeNames::new(["zero", "", "zwei", "três"]))],
        edge_features: None,
        edge_type_names: ["near", "far"].map(String::from).to_vec(),
        preparation: Default::default(),
        layout: Layout::Plain,
        links: None,
        notes: Vec::new(),
    }
}

fn rows() -> DenseFeatures {
    DenseFeatures::from_f32(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2).unwrap()
}

fn sparse() -> SparseFeatures {
    let columns: SharedArray<u32> = vec![1, 0, 99, 0].into();
    SparseFeatures::new(vec![0, 1, 3, 3, 4].into(), columns, vec![0.5, 1.0, 1.5, 3.0].into(), 500).unwrap()
}

/// Writes the set to a new folder.
fn written(data: &Dataset) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(data, &folder).unwrap();
    (root, folder)
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    entries.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn all_rows(data: &Dataset) -> FeatureBuffer {
    let nodes: Vec<NodeId> = (0..data.node_features().unwrap().n_rows() as u32).map(NodeId).collect();
    let mut rows = FeatureBuffer::default();
    data.node_features().unwrap().gather(&nodes, &mut rows).unwrap();
    rows
}

fn check_equal(got: &Dataset, expected: &Dataset) {
    assert_eq!(got.name, expected.name);
    assert_eq!(got.csc().unwrap().indptr(), expected.csc().unwrap().indptr());
    assert_eq!(got.csc().unwrap().indices(), expected.csc().unwrap().indices());
    assert_eq!(got.csc().unwrap().weights(), expected.csc().unwrap().weights());
    assert_eq!(got.csc().unwrap().edge_types(), expected.csc().unwrap().edge_types());
    assert_eq!(got.node_features().unwrap().dim(), expected.node_features().unwrap().dim());
    assert!(all_rows(got) == all_rows(expected), "the features should be equal");
    assert_eq!(got.labels().as_slice(), expected.labels().as_slice());
    assert_eq!(got.labels().n_classes(), expected.labels().n_classes());
    assert_eq!(got.split(), expected.split());
    assert!(got.names == expected.names, "the node names should be equal");
    assert_eq!(got.class_names(), expected.class_names());
    assert_eq!(got.edge_type_names, expected.edge_type_names);
}

/// Writes, opens and verifies a set, and checks that writing the opened set produces the same files.
fn check_round_trip(data: &Dataset) {
    let (_root, folder) = written(data);
    let read = format::open(&folder).unwrap();
    check_equal(&read, data);
    assert_eq!(read.csc().unwrap().owned_bytes(), 0);
    let verified = format::verify(&folder).unwrap();
    assert_eq!((verified.n_nodes, verified.n_edges), (data.graph.n_nodes(), data.graph.n_edges()));
    assert_eq!(verified.n_hashed, contents(&folder).len() - 1);
    assert_eq!(verified.notes, []);
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
    check_round_trip(&small(sparse()));
    let (_root, folder) = written(&small(sparse()));
    let read = format::open(&folder).unwrap();
    let read = read.node_features().unwrap().as_sparse().unwrap();
    assert_eq!((read.indptr(), read.columns(), read.dim()), (sparse().indptr(), sparse().columns(), 500));
}

#[test]
fn kiln_folder_opens_as_plain_arrays() {
    let (_root, folder) = written(&small(rows()));
    let data = kiln_data::npy::open(&folder).unwrap();
    assert_eq!(data.notes, []);
    assert_eq!(data.csc().unwrap().weights(), small(rows()).csc().unwrap().weights());
    assert!(all_rows(&data) == all_rows(&small(rows())));
    let file = fs::read(folder.join("features.npy")).unwrap();
    assert_eq!(file, npy::write(&[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]));
}

#[test]
fn rejects_output_folder_that_is_not_empty() {
    let (root, folder) = written(&small(rows()));
    let before = contents(&folder);
    for target in [folder.clone(), folder.join("kiln.json"), root.path().to_owned()] {
        let error = format::write(&synthetic::ring(5).unwrap(), &target).unwrap_err();
        assert!(matches!(&error, Error::Store(StoreError::NotEmpty { .. })), "{error}");
    }
    assert!(contents(&folder) == before);
    assert_eq!(names_in(root.path()), ["set"]);
}

#[test]
fn writes_to_empty_folders_and_creates_missing_parents() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    for folder in ["empty", "a/b/c", "a/b/d/"] {
        format::write(&synthetic::ring(5).unwrap(), root.path().join(folder)).unwrap();
        assert_eq!(names_in(&root.path().join(folder)), ALL_FILES);
    }
    assert_eq!(names_in(&root.path().join("a/b")), ["c", "d"]);
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
            let unfinished = names_in(self.target.parent().unwrap()).pop().unwrap();
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
    assert_eq!(names_in(root.path()), [""; 0]);
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
    assert_eq!(names_in(root.path()), [&["set".to_owned()], &left[..]].concat());
}

#[test]
fn rejects_inconsistent_sets() {
    let root = tempfile::tempdir().unwrap();
    let check = |data: Dataset, expected: &str| {
        let error = format::write(&data, root.path().join("set")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(names_in(root.path()), [""; 0]);
    };
    let three_rows = DenseFeatures::from_f32(vec![0.0; 3], 1).unwrap();
    check(small(three_rows), "the number of feature rows is 3, expected 4");
    let mut long = small(rows());
    long.targets.as_mut().unwrap().values = Labels::new(vec![0; 5], 3).into();
    check(long, "the number of labels is 5, expected 4");
    let names = vec![Arc::new(NodeNames::new(["one"]))];
    check(Dataset { names, ..small(rows()) }, "the number of node names is 1, expected 4");
    let mut named = small(rows());
    named.targets.as_mut().unwrap().class_names = vec!["a".to_owned()];
    check(named, "class_names is 1 names, expected 3 names or none");
}

#[test]
fn in_memory_copy_equals_the_mapped_set_and_outlives_its_files() {
    for data in [small(rows()), small(sparse())] {
        let (root, folder) = written(&data);
        let mapped = format::open(&folder).unwrap();
        assert_eq!(mapped.csc().unwrap().owned_bytes(), 0);
        let hash = mapped.hash().unwrap();
        let in_memory = mapped.in_memory();
        // The graph has 5 offsets, and 4 edges with weights and types.
        assert_eq!(in_memory.csc().unwrap().owned_bytes(), 5 * 8 + 4 * (4 + 4 + 1));
        assert!(in_memory.csc().unwrap().indices_path().is_none());
        drop(root);
        assert_eq!(in_memory.hash().unwrap(), hash);
    }
}
