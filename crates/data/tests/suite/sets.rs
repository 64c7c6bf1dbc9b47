//! Small sets of both layouts, with all optional arrays, and folders with them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::{Dataset, DatasetBuilder, DatasetTargets, Layout, NodeNames, Split, format};
use kiln_feature::{DenseFeatures, FeatureStore, Labels, SparseFeatures};
use kiln_graph::{CscBuilder, NodeId, NodeTypes, RelationEdges, SharedArray};
use tempfile::TempDir;

/// Returns a plain set with the edges 0 -> 1, 0 -> 2, 1 -> 2, 3 -> 2, with weights and types. Node 3 has no class.
pub(crate) fn small(features: impl FeatureStore + 'static) -> Dataset {
    let builder = CscBuilder::new(4).weights(&[0.5, 1.0, 1.5, 2.0]).edge_types(&[0, 1, 0, 1]);
    Dataset {
        name: "small".into(),
        graph: builder.build(&[0, 0, 1, 3], &[1, 2, 2, 2]).unwrap().into(),
        feature_columns: vec![Vec::new()],
        features: vec![Some(Arc::new(features))],
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new(vec![1, 0, 2, -1], 3).into(),
            split: split(&[0], &[1], &[2]),
            class_names: ["a", "b", "c"].map(String::from).to_vec(),
        }),
        names: vec![Arc::new(NodeNames::new(["zero", "", "zwei", "três"]))],
        edge_type_names: ["near", "far"].map(String::from).to_vec(),
        preparation: Default::default(),
        layout: Layout::Plain,
        links: None,
        tasks: Vec::new(),
        first_new: None,
        times: Default::default(),
        notes: Vec::new(),
    }
}

/// Returns dense features of four nodes.
pub(crate) fn rows() -> DenseFeatures {
    DenseFeatures::from_f32(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2).unwrap()
}

/// Returns sparse features of four nodes.
pub(crate) fn sparse_rows() -> SparseFeatures {
    let columns: SharedArray<u32> = vec![1, 0, 99, 0].into();
    SparseFeatures::new(vec![0, 1, 3, 3, 4].into(), columns, vec![0.5, 1.0, 1.5, 3.0].into(), 500).unwrap()
}

pub(crate) const TYPES: [(&str, usize); 3] = [("author", 3), ("paper", 4), ("venue", 2)];

pub(crate) const WRITES: RelationEdges<'static> = RelationEdges {
    name: "writes",
    src_type: "author",
    dst_type: "paper",
    srcs: &[0, 0, 1, 2, 2],
    dsts: &[0, 1, 1, 3, 0],
    weights: Some(&[0.5, 1.0, 1.5, 2.0, 2.5]),
    columns: None,
};

pub(crate) const CITES: RelationEdges<'static> = RelationEdges {
    name: "cites",
    src_type: "paper",
    dst_type: "paper",
    srcs: &[3, 2, 0],
    dsts: &[0, 0, 2],
    weights: None,
    columns: None,
};

pub(crate) const PUBLISHES: RelationEdges<'static> = RelationEdges {
    name: "publishes",
    src_type: "venue",
    dst_type: "paper",
    srcs: &[1, 0],
    dsts: &[2, 3],
    weights: None,
    columns: None,
};

/// Returns a builder of authors with sparse features, papers with dense features and classes, and venues without features.
pub(crate) fn papers_builder() -> DatasetBuilder<'static> {
    papers_with([WRITES, CITES, PUBLISHES])
}

/// Returns the builder of papers with other relations.
pub(crate) fn papers_with(relations: [RelationEdges<'static>; 3]) -> DatasetBuilder<'static> {
    let builder = Dataset::builder_with_types(NodeTypes::new(TYPES).unwrap()).name("papers");
    relations
        .into_iter()
        .fold(builder, DatasetBuilder::relation)
        .nodes("author")
        .feature_store(sparse(&[0.5, 1.0, 1.5]))
        .nodes("paper")
        .features(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2)
        .nodes("paper")
        .labels(vec![1, 0, 2, -1], 3)
        .split(vec![2], vec![0], vec![1])
        .class_names(["a", "b", "c"])
        .nodes("author")
        .node_names(["Ada", "", "três"])
}

/// Returns the set of papers, whose files have numbers.
pub(crate) fn papers() -> Dataset {
    papers_builder().build().unwrap()
}

/// Returns sparse features of three authors.
pub(crate) fn sparse(values: &[f32]) -> Arc<dyn FeatureStore> {
    let columns: Vec<u32> = vec![1, 0, 99];
    Arc::new(
        SparseFeatures::new(vec![0, 1, 3, 3].into(), columns.into(), values.to_vec().into(), 500).unwrap(),
    )
}

pub(crate) fn split(train: &[u32], val: &[u32], test: &[u32]) -> Split {
    let part = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect();
    Split { train: part(train), val: part(val), test: part(test) }
}

/// Returns edges without weights from nodes of one type to nodes of one type.
pub(crate) fn relation<'a>(
    name: &'a str,
    [src_type, dst_type]: [&'a str; 2],
    srcs: &'a [u32],
    dsts: &'a [u32],
) -> RelationEdges<'a> {
    RelationEdges::new(name, src_type, dst_type, srcs, dsts)
}

/// Writes a set to a new folder.
pub(crate) fn written(data: &Dataset) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(data, &folder).unwrap();
    (root, folder)
}

/// Replaces the first occurrence of a text in the manifest.
pub(crate) fn edit(folder: &Path, from: &str, to: &str) {
    let path = folder.join("kiln.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "the manifest should contain {from}: {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}
