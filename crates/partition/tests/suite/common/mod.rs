//! Helpers for the tests of partitions on disk.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use kiln_data::{Dataset, DatasetTargets, Layout, NodeNames, Split};
use kiln_feature::{
    DenseFeatures, EdgeFeatures, FeatureArray, FeatureStore, Labels, SparseFeatures, TargetKind,
    TargetValues, Targets,
};
use kiln_graph::{CscBuilder, NodeId, NodeTypes, RelationEdges, SharedArray};
use kiln_partition::{
    CacheConfig, Method, Part, PartitionBooks, PartitionMeta, WriteReport, part_dir, write_parts,
};
use kiln_sample::Fanout;
use kiln_testkit::CooGraph;

/// The way in which a data set's features are stored: dense with this element type, or sparse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    F32,
    F16,
    BF16,
    Sparse,
}

/// A data set of these edges with weights, types and features: edge `e` has the features `[e, e / 4, -e]`. Node `v` has the
/// features `[v, v / 2]`, and every third node is a training node.
pub(crate) fn set(coo: &CooGraph, stored: Stored) -> Dataset {
    let weights: Vec<f32> = (0..coo.srcs.len()).map(|edge| edge as f32).collect();
    let types: Vec<u8> = (0..coo.srcs.len()).map(|edge| edge as u8 % 2).collect();
    let builder = CscBuilder::new(coo.n_nodes).weights(&weights).edge_types(&types);
    let graph = builder.build(&coo.srcs, &coo.dsts).unwrap();
    let rows = edge_features(graph.n_edges(), stored).to_column();
    let graph = graph.with_column("features", rows).unwrap();
    let every = |offset| (offset..coo.n_nodes as u32).step_by(3).map(NodeId).collect();
    Dataset {
        name: "small".into(),
        features: vec![Some(features(coo.n_nodes, stored))],
        feature_columns: vec![Vec::new()],
        targets: Some(DatasetTargets {
            node_type: 0,
            values: Labels::new((0..coo.n_nodes as i32).map(|node| node % 2).collect::<Vec<_>>(), 2).into(),
            split: Split { train: every(0), val: every(1), test: every(2) },
            class_names: vec!["even".into(), "odd".into()],
        }),
        layout: Layout::Plain,
        first_new: None,
        times: Default::default(),
        names: vec![Arc::new(NodeNames::default())],
        edge_type_names: vec!["near".into(), "far".into()],
        preparation: Default::default(),
        links: None,
        tasks: Vec::new(),
        notes: Vec::new(),
        graph: graph.into(),
    }
}

fn edge_features(n_edges: u64, stored: Stored) -> EdgeFeatures {
    let values = (0..n_edges).flat_map(|edge| [1.0, 0.25, -1.0].map(|factor| edge as f32 * factor));
    let rows = match stored {
        Stored::F32 | Stored::Sparse => FeatureArray::F32(values.collect()),
        Stored::F16 => FeatureArray::F16(values.map(f16::from_f32).collect()),
        Stored::BF16 => FeatureArray::BF16(values.map(bf16::from_f32).collect()),
    };
    EdgeFeatures::new(rows, 3).unwrap()
}

fn features(n_nodes: usize, stored: Stored) -> Arc<dyn FeatureStore> {
    let rows = || (0..n_nodes).flat_map(|node| [node as f32, node as f32 / 2.0]);
    let dense = |rows: FeatureArray| Arc::new(DenseFeatures::new(rows, 2).unwrap());
    match stored {
        Stored::F32 => dense(FeatureArray::F32(rows().collect())),
        Stored::F16 => dense(FeatureArray::F16(rows().map(f16::from_f32).collect())),
        Stored::BF16 => dense(FeatureArray::BF16(rows().map(bf16::from_f32).collect())),
        // The row of node 0 has no values.
        Stored::Sparse => {
            let indptr: SharedArray<u64> =
                (0..=n_nodes as u64).map(|node| 2 * node.saturating_sub(1)).collect();
            let n_values = *indptr.last().unwrap() as usize;
            let columns = (0..n_values as u32).map(|value| value % 2).collect();
            Arc::new(
                SparseFeatures::new(indptr, columns, rows().skip(2).take(n_values).collect(), 2).unwrap(),
            )
        }
    }
}

/// Writes the partitions of a data set, with node `v` in partition `parts[v]`.
pub(crate) fn write(
    data: &Dataset,
    parts: &[u16],
    n_parts: usize,
    cache: Option<&CacheConfig>,
    out: &Path,
) -> Vec<WriteReport> {
    let book = PartitionBooks::from_parts(data.graph.types().clone(), parts, n_parts).unwrap();
    let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 1 };
    write_parts(data, &book, &meta, cache, out).unwrap()
}

pub(crate) fn cache(ratio: f64) -> CacheConfig {
    CacheConfig { ratio, fanouts: vec![Fanout::UpTo(2), Fanout::All], batch_size: 3, seed: 5 }
}

/// Returns a graph of six nodes, of which the first and the fourth are in the first of 2 partitions.
fn graph_of_six_nodes() -> CooGraph {
    CooGraph { n_nodes: 6, srcs: vec![0, 1, 3, 4, 3, 4, 2], dsts: vec![1, 2, 2, 2, 3, 3, 5] }
}

/// Writes a graph of six nodes in 2 partitions with cached rows. Returns the temporary root folder and the folder of
/// the first partition.
pub(crate) fn six_nodes(stored: Stored) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("parts");
    write(&set(&graph_of_six_nodes(), stored), &[0, 1, 1, 0, 1, 1], 2, Some(&cache(1.0)), &out);
    (root, part_dir(out, 0))
}

/// Returns a heterogeneous set: 9 users without features, 7 items with f16 features and labels, and 4 shops with sparse
/// features. The relation `rates` has weights, and no edge of a relation leads to shops.
pub(crate) fn shop() -> Dataset {
    let types = NodeTypes::new([("user", 9), ("item", 7), ("shop", 4)]).unwrap();
    let ids = |n: u32, factor: u32| (0..30).map(|edge| (edge * factor + edge / 7) % n).collect::<Vec<_>>();
    let (users, items, shops) = (ids(9, 5), ids(7, 3), ids(4, 3));
    let weights: Vec<f32> = (0..30).map(|edge| edge as f32 / 4.0).collect();
    let of = |name, src_type, dst_type, srcs, dsts, weights| RelationEdges {
        name,
        src_type,
        dst_type,
        srcs,
        dsts,
        weights,
        columns: None,
    };
    let rows: Vec<f16> = (0..14).map(|value| f16::from_f32(value as f32)).collect();
    Dataset::builder_with_types(types)
        .name("shop")
        .relation(of("rates", "user", "item", &users, &items, Some(&weights)))
        .relation(of("rated by", "item", "user", &items, &users, None))
        .relation(of("sells", "shop", "item", &shops[..20], &items[..20], None))
        .nodes("item")
        .features(FeatureArray::F16(rows.into()), 2)
        .nodes("shop")
        .feature_store(features(4, Stored::Sparse))
        .nodes("item")
        .labels(vec![0, 1, 2, 0, 1, 2, -1], 3)
        .class_names(["a", "b", "c"])
        .split(vec![0, 1, 2], vec![3, 4], vec![5])
        .build()
        .unwrap()
}

/// Writes the partitions of a set, with node `v` in partition `owner(v)`.
pub(crate) fn write_typed(
    data: &Dataset,
    n_parts: usize,
    owner: impl Fn(u32) -> usize,
    cache: Option<&CacheConfig>,
    out: &Path,
) -> Vec<WriteReport> {
    let owners: Vec<u16> = (0..data.graph.n_nodes() as u32).map(|node| owner(node) as u16).collect();
    write(data, &owners, n_parts, cache, out)
}

/// Writes [`shop`] in 2 partitions, with even nodes in the first, and with cached rows. Returns the temporary root folder and the folder of the
/// first partition.
pub(crate) fn typed_parts() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("parts");
    write_typed(&shop(), 2, |node| node as usize % 2, Some(&cache(1.0)), &out);
    (root, part_dir(out, 0))
}

/// The layouts of sets and the kinds of their target values.
pub(crate) const VALUES: [(Layout, TargetKind); 4] = [
    (Layout::Plain, TargetKind::MultiLabel),
    (Layout::Plain, TargetKind::Regression),
    (Layout::Numbered, TargetKind::MultiLabel),
    (Layout::Numbered, TargetKind::Regression),
];

/// Returns the graph of [`six_nodes`] or [`shop`] with two target values per node, of which the second is missing for every
/// third node.
pub(crate) fn set_with_values(layout: Layout, kind: TargetKind) -> Dataset {
    let data = match layout {
        Layout::Plain => set(&graph_of_six_nodes(), Stored::F32),
        Layout::Numbered => shop(),
    };
    let targets = data.targets.as_ref().unwrap();
    let nodes = 0..targets.values.len() as u8;
    let values = match kind {
        TargetKind::MultiLabel => {
            let row = |node: u8| [node % 2, if node.is_multiple_of(3) { u8::MAX } else { 1 }];
            TargetValues::multi_label(nodes.flat_map(row).collect::<Vec<u8>>(), 2)
        }
        _ => {
            let row = |node: u8| {
                let number = f32::from(node) / 4.0;
                [number, if node.is_multiple_of(3) { f32::NAN } else { -number }]
            };
            TargetValues::regression(nodes.flat_map(row).collect::<Vec<f32>>(), 2)
        }
    };
    let targets = DatasetTargets::new(targets.node_type, values.unwrap().into(), targets.split.clone());
    Dataset { targets: Some(targets), ..data }
}

/// Writes [`set_with_values`] in 2 partitions, with even nodes in the first. Returns the temporary root folder and the folder of
/// the first partition.
pub(crate) fn parts_with_values(layout: Layout, kind: TargetKind) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("parts");
    write_typed(&set_with_values(layout, kind), 2, |node| node as usize % 2, None, &out);
    (root, part_dir(out, 0))
}

/// Returns the class labels of a partition.
pub(crate) fn labels(part: &Part) -> &Labels {
    match part.targets.as_ref().map(|targets| &targets.values) {
        Some(Targets::Classes(labels)) => labels,
        other => panic!("the targets are {other:?}"),
    }
}

/// Returns the files of a folder by their names.
pub(crate) fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}
