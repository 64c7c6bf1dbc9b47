//! Tests of the hashes of sets: the hashed bytes, and which changes of a set change its hash.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use half::{bf16, f16};
use kiln_data::{
    Dataset, DatasetTargets, Error, GraphDataset, HashedPart, Layout, LinkTargets, NodeNames, Note, format,
    mutag, recorded_hash, synthetic,
};
use kiln_feature::{DenseFeatures, FeatureArray, Labels, SparseFeatures};
use kiln_graph::{Csc, ItemId, LinkId, LinkNegatives, Links, NodeId};
use kiln_store::Error as StoreError;

use crate::sets::split;

const INDPTR: [u64; 4] = [0, 1, 3, 4];
const INDICES: [u32; 4] = [1, 0, 2, 1];

fn graph(indptr: &[u64], indices: &[u32]) -> Csc {
    let indices: Vec<NodeId> = indices.iter().copied().map(NodeId).collect();
    Csc::new(indptr.to_vec().into(), indices.into()).unwrap()
}

fn labels<I: ItemId>(classes: &[i32], n_classes: usize) -> Labels<I> {
    Labels::new(classes.to_vec(), n_classes)
}

fn dense(values: &[f32], dim: usize) -> Arc<DenseFeatures> {
    Arc::new(DenseFeatures::from_f32(values.to_vec(), dim).unwrap())
}

fn sparse(indptr: &[u64], columns: &[u32], values: &[f32], dim: usize) -> Arc<SparseFeatures> {
    let (indptr, columns, values) = (indptr.to_vec(), columns.to_vec(), values.to_vec());
    Arc::new(SparseFeatures::new(indptr.into(), columns.into(), values.into(), dim).unwrap())
}

/// Returns a path of three nodes, one of which has no label.
fn path() -> Dataset {
    Dataset {
        name: "path".into(),
        graph: graph(&INDPTR, &INDICES).into(),
        feature_columns: vec![Vec::new()],
        features: vec![Some(dense(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2))],
        targets: Some(DatasetTargets {
            node_type: 0,
            values: labels(&[0, -1, 1], 2).into(),
            split: split(&[0], &[2], &[]),
            class_names: Vec::new(),
        }),
        names: vec![Arc::default()],
        edge_type_names: Vec::new(),
        preparation: Default::default(),
        layout: Layout::Plain,
        links: None,
        tasks: Vec::new(),
        first_new: None,
        times: Default::default(),
        notes: Vec::new(),
    }
}

/// Returns the path with weights, edge types and sparse features.
fn sparse_path() -> Dataset {
    let graph = graph(&INDPTR, &INDICES).with_weights(vec![0.5, 1.0, 2.0, 4.0].into()).unwrap();
    let graph = graph.with_edge_types(vec![0, 1, 0, 2].into()).unwrap();
    Dataset {
        graph: graph.into(),
        features: vec![Some(sparse(&[0, 1, 1, 2], &[6, 0], &[1.0, 3.0], 9))],
        ..path()
    }
}

/// Fails if the hashed bytes change, because checkpoints contain hashes. The values were computed by an independent
/// program.
#[test]
fn hash_covers_the_documented_bytes() {
    let expected = "c1356a40ae7fa28eb2f251664c302a420c1f9ca43292d216cb4b32647f53f4d7";
    assert_eq!(path().hash().unwrap(), expected);
    let expected = "6dbe47f023b6b0ae3b2aef2af487d93e7a2457ce80967451c8968cdf21a35ab7";
    assert_eq!(sparse_path().hash().unwrap(), expected);
    let graphs = GraphDataset::new("set", graph(&INDPTR, &INDICES), vec![0, 3, 3], labels(&[1, 0], 2));
    let expected = "6235a82b11207ad902c9d7d3a4ef5cb524fa0754a362abaa88e55a57e8b73f06";
    assert_eq!(graphs.unwrap().hash().unwrap(), expected);
}

/// Fails if the hashed bytes of the optional arrays of a set of graphs change. The values were computed by an
/// independent program.
#[test]
fn graph_set_hash_includes_features_and_node_labels() {
    let plain =
        GraphDataset::new("set", graph(&INDPTR, &INDICES), vec![0, 3, 3], labels(&[1, 0], 2)).unwrap();
    let values = [1.0, 2.0, 3.0, -4.0, 5.0, 6.0];
    let halves =
        DenseFeatures::new(FeatureArray::BF16(values.map(bf16::from_f32).to_vec().into()), 2).unwrap();
    let with_features = |features| plain.clone().with_features(features).unwrap();
    let with_labels = |set: GraphDataset| set.with_node_labels(labels(&[0, -1, 1], 2)).unwrap();
    let halves = with_features(Arc::new(halves));
    let cases = [
        (
            with_features(dense(&values, 2)),
            "4f2015024268ee74dc79786909c48490250e2dd774e49b747a691a2a01d8759f",
        ),
        (halves.clone(), "e7b6c4f7a1db9a4c1433d035e97e0de9fb3143942fbab3ffd05c75d901195473"),
        (with_labels(plain.clone()), "34bf2af2005c84eaa53fff9b7ab1193011e713b27b1fe7a89b30b8db804a2d65"),
        (with_labels(halves), "7f00bc847714c9791891d73de474d6c7e312882e9212f3cd24cfc3def590676b"),
    ];
    for (set, expected) in cases {
        assert_eq!(set.hash().unwrap(), expected, "{set:?}");
    }
}

/// Fails if the hashed bytes of a manifest change. The value was computed from the files that `docs/formats.md`
/// specifies.
#[test]
fn manifest_hash_covers_the_documented_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("path");
    format::write(&self::path(), &path).unwrap();
    let expected = "873aac106a06652aeeac0198f54e1775e4810b02f5351fd281f38b17fe6b9a6f";
    assert_eq!(format::hash(&path).unwrap(), expected);
    assert_eq!(recorded_hash(&path).unwrap().as_deref(), Some(expected));
    // The hash of an edge list is that of its values.
    let list = folder.path().join("list");
    fs::create_dir(&list).unwrap();
    fs::write(list.join("edges.csv"), "0,1\n1,2\n").unwrap();
    assert_eq!(recorded_hash(&list).unwrap(), None);
}

fn with_labels(labels: Labels) -> Dataset {
    let targets = path().targets.map(|targets| DatasetTargets { values: labels.into(), ..targets });
    Dataset { targets, ..path() }
}

fn with_graph(graph: Csc) -> Dataset {
    Dataset { graph: graph.into(), ..path() }
}

/// Returns the path with two links of training, one of each other part, and fixed negatives of the test.
fn with_links(pair: (u32, u32), val_negatives: Option<LinkNegatives>, negatives: &[u32]) -> Dataset {
    let links = |pairs: &[(u32, u32)]| {
        let (srcs, dsts): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        Links::new(srcs, dsts).unwrap()
    };
    let targets = LinkTargets::of_parts(&links(&[(0, 1), (1, 2)]), &links(&[(2, 1)]), &links(&[pair]));
    let test = LinkNegatives::of_dsts(vec![LinkId(3)], negatives.len(), negatives.to_vec()).unwrap();
    let targets = targets.unwrap().with_negatives(val_negatives, Some(test)).unwrap();
    Dataset { links: Some(Arc::new(targets).into()), ..path() }
}

/// Checks that all hashes differ.
fn check_differ(hashes: Vec<String>) {
    let distinct: HashSet<&String> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len(), "{hashes:#?}");
}

#[test]
fn every_change_of_a_set_changes_its_hash() {
    let halves = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32).to_vec();
    let halves = Arc::new(DenseFeatures::new(FeatureArray::F16(halves.into()), 2).unwrap());
    let weights = |weights: [f32; 4]| graph(&INDPTR, &INDICES).with_weights(weights.to_vec().into()).unwrap();
    let types = |types: [u8; 4]| graph(&INDPTR, &INDICES).with_edge_types(types.to_vec().into()).unwrap();
    let sets = [
        path(),
        with_graph(graph(&[0, 1, 2, 4], &INDICES)),
        with_graph(graph(&INDPTR, &[1, 0, 2, 0])),
        with_graph(weights([1.0; 4])),
        with_graph(weights([1.0, 1.0, 1.0, 2.0])),
        with_graph(types([0; 4])),
        with_graph(types([0, 0, 0, 1])),
        Dataset { features: vec![Some(dense(&[1.0, 2.0, 3.0, 4.0, 5.0, 7.0], 2))], ..path() },
        Dataset { features: vec![Some(dense(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1))], ..path() },
        Dataset { features: vec![Some(halves)], ..path() },
        Dataset { features: vec![Some(sparse(&[0, 1, 1, 2], &[6, 0], &[1.0, 3.0], 9))], ..path() },
        Dataset { features: vec![Some(sparse(&[0, 1, 1, 2], &[6, 1], &[1.0, 3.0], 9))], ..path() },
        Dataset { features: vec![Some(sparse(&[0, 1, 2, 2], &[6, 0], &[1.0, 3.0], 9))], ..path() },
        Dataset { features: vec![Some(sparse(&[0, 1, 1, 2], &[6, 0], &[1.0, 4.0], 9))], ..path() },
        Dataset { features: vec![Some(sparse(&[0, 1, 1, 2], &[6, 0], &[1.0, 3.0], 8))], ..path() },
        with_labels(labels(&[0, -1, 0], 2)),
        with_labels(labels(&[0, -1, 1], 3)),
        path().with_split(split(&[2], &[2], &[])).unwrap(),
        path().with_split(split(&[2], &[0], &[])).unwrap(),
        path().with_split(split(&[0], &[], &[2])).unwrap(),
        path().with_split(split(&[0, 2], &[], &[])).unwrap(),
        with_links((2, 0), None, &[1]),
        with_links((0, 2), None, &[1]),
        with_links((0, 2), None, &[2]),
        with_links((0, 2), None, &[1, 2]),
        with_links((0, 2), Some(LinkNegatives::of_dsts(vec![LinkId(2)], 1, vec![0_u32]).unwrap()), &[1]),
    ];
    check_differ(sets.iter().map(|set| set.hash().unwrap()).collect());
}

#[test]
fn names_and_notes_do_not_change_the_hash() {
    let class_names = vec!["a".into(), "b".into()];
    let named = Dataset {
        name: "other".into(),
        names: vec![Arc::new(NodeNames::new(["a", "b", "c"]))],
        targets: path().targets.map(|targets| DatasetTargets { class_names, ..targets }),
        edge_type_names: vec!["c".into()],
        notes: vec![Note::Other("read from afar".into())],
        ..path()
    };
    assert_eq!(named.hash().unwrap(), path().hash().unwrap());
}

#[test]
fn mapped_and_in_memory_sets_have_equal_hashes() {
    let folder = tempfile::tempdir().unwrap();
    // The ring has more feature rows than the hash reads at a time.
    for (name, owned) in [("sparse", sparse_path()), ("ring", synthetic::ring(100_000).unwrap())] {
        let path = folder.path().join(name);
        format::write(&owned, &path).unwrap();
        let mapped = format::open(&path).unwrap();
        assert_eq!(mapped.csc().unwrap().owned_bytes(), 0);
        assert_eq!(mapped.hash().unwrap(), owned.hash().unwrap(), "{name}");
    }
}

#[test]
fn every_change_of_a_graph_set_changes_its_hash() {
    let new = |indices: &[u32], offsets: &[u32], classes: &[i32], n_classes| {
        GraphDataset::new("set", graph(&INDPTR, indices), offsets.to_vec(), labels(classes, n_classes))
            .unwrap()
    };
    let base = || new(&INDICES, &[0, 3, 3], &[1, 0], 2);
    let sets = [
        base(),
        new(&[1, 0, 2, 0], &[0, 3, 3], &[1, 0], 2),
        new(&INDICES, &[0, 0, 3], &[1, 0], 2),
        new(&INDICES, &[0, 3, 3], &[1, 1], 2),
        new(&INDICES, &[0, 3, 3], &[1, 0], 3),
        base().with_node_labels(labels(&[0, 1, 0], 2)).unwrap(),
        base().with_node_labels(labels(&[0, 1, 1], 2)).unwrap(),
        base().with_features(dense(&[0.0; 3], 1)).unwrap(),
        base().with_features(dense(&[0.0, 0.0, 1.0], 1)).unwrap(),
    ];
    check_differ(sets.iter().map(|set| set.hash().unwrap()).collect());
    let mut renamed = base();
    renamed.name = "other".into();
    renamed.class_names = vec!["x".into(), "y".into()];
    assert_eq!(renamed.hash().unwrap(), base().hash().unwrap());
    assert_eq!(mutag().unwrap().hash().unwrap(), mutag().unwrap().hash().unwrap());
}

#[test]
fn hash_fails_if_rows_cannot_be_read() {
    // Sparse features are hashed as stored, without reading rows; rows of other features are gathered.
    #[derive(Debug)]
    struct Broken;
    impl kiln_feature::FeatureStore for Broken {
        fn dim(&self) -> usize {
            1
        }
        fn n_rows(&self) -> usize {
            3
        }
        fn dtype(&self) -> kiln_feature::FeatureDType {
            kiln_feature::FeatureDType::F32
        }
        fn gather(&self, ids: &[NodeId], _: &mut kiln_feature::FeatureBuffer) -> kiln_feature::Result<()> {
            Err(kiln_feature::Error::NodeOutOfRange { node: ids[0], n_rows: 0 })
        }
    }
    let error = Dataset { features: vec![Some(Arc::new(Broken))], ..path() }.hash().unwrap_err();
    assert!(matches!(error, Error::Feature(_)), "{error}");
}

/// A sample has the same arrays as all values, and reads each page of a small array.
#[test]
fn a_sample_changes_with_each_size_and_each_sampled_value() {
    let sample = |set: &Dataset| set.hash_of(HashedPart::Sample).unwrap();
    let large = synthetic::ring(100_000).unwrap();
    assert_eq!(sample(&large), sample(&large.clone()));
    check_differ(vec![sample(&path()), path().hash().unwrap(), sample(&sparse_path()), sample(&large)]);
    let small = path().with_split(split(&[0], &[1], &[])).unwrap();
    let shorter = path().with_split(split(&[0], &[], &[])).unwrap();
    check_differ(vec![sample(&path()), sample(&small), sample(&shorter)]);
    // Of the nodes of the training split, a sample reads the first, the last, and few between.
    let with = |position: usize| {
        let mut nodes: Vec<u32> = (0..90_000).collect();
        nodes[position] = 99_999;
        large.clone().with_split(split(&nodes, &[], &[])).unwrap()
    };
    let positions: Vec<usize> = vec![0, 1023, 1024, 89_999];
    let sets: Vec<Dataset> = positions.iter().map(|&position| with(position)).collect();
    check_differ(sets.iter().map(|set| set.hash().unwrap()).collect());
    let found: HashSet<String> = sets.iter().map(sample).collect();
    assert_eq!(found.len(), 4, "the first two pages of 88 should be sampled, and the last");
    let between = [with(1024 * 3), with(1024 * 3 + 1)];
    assert_eq!(sample(&between[0]), sample(&between[1]), "the fourth page should not be sampled");
    check_differ(between.iter().map(|set| set.hash().unwrap()).collect());
}

#[test]
fn a_hash_with_checks_is_that_without_and_ends_with_the_error_of_a_check() {
    let set = synthetic::ring(1_000_000).unwrap();
    let mut n_checks = 0;
    let hash = set.hash_of(HashedPart::All(&mut || {
        n_checks += 1;
        Ok(())
    }));
    assert_eq!(hash.unwrap(), set.hash().unwrap());
    assert!(3 < n_checks, "{n_checks}");
    let mut n_left = 2;
    let cancelled = set.hash_of(HashedPart::All(&mut || {
        n_left -= 1;
        if n_left == 0 { Err(Error::HashCancelled) } else { Ok(()) }
    }));
    assert!(matches!(cancelled, Err(Error::HashCancelled)) && n_left == 0);
}

#[test]
fn manifest_hash_depends_on_values_but_not_on_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut n_written = 0;
    let mut hash = |set: &Dataset| {
        n_written += 1;
        let path = folder.path().join(n_written.to_string());
        format::write(set, &path).unwrap();
        format::hash(&path).unwrap()
    };
    let class_names = vec!["a".into(), "b".into()];
    let named = Dataset {
        name: "other".into(),
        names: vec![Arc::new(NodeNames::new(["a", "b", "c"]))],
        targets: path().targets.map(|targets| DatasetTargets { class_names, ..targets }),
        ..path()
    };
    assert_eq!(hash(&path()), hash(&named));
    check_differ(vec![
        hash(&path()),
        hash(&sparse_path()),
        hash(&with_graph(graph(&INDPTR, &[1, 0, 2, 0]))),
        hash(&Dataset { features: vec![Some(dense(&[1.0, 2.0, 3.0, 4.0, 5.0, 7.0], 2))], ..path() }),
        hash(&with_labels(labels(&[0, -1, 0], 2))),
        hash(&with_labels(labels(&[0, -1, 1], 3))),
        hash(&path().with_split(split(&[2], &[0], &[])).unwrap()),
        path().hash().unwrap(),
    ]);
    assert!(matches!(format::hash(folder.path()), Err(Error::Store(StoreError::Missing { .. }))));
}

#[test]
fn manifest_hash_does_not_read_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("ring");
    format::write(&synthetic::ring(6).unwrap(), &ring).unwrap();
    let before = format::hash(&ring).unwrap();
    std::fs::write(ring.join("features.npy"), b"other bytes").unwrap();
    assert_eq!(format::hash(&ring).unwrap(), before);
    assert!(format::verify(&ring).is_err());
}
