//! Tests of the content of the embedded set `debian-packages`, and that damaged files are rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use kiln_data::{Dataset, Error, debian_packages, read_debian_packages};
use kiln_feature::FeatureBuffer;
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The SHA-256 of the features, row-major, as little-endian bytes. The features are computed by sums, products,
/// quotients and square roots in a fixed order, which IEEE 754 rounds identically on every machine.
const FEATURES_SHA256: &str = "8f7b83ed10ad74db708a39efdd659178cac14f631ed1ab4fd232ae19779b5f0f";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/debian-packages")
}

fn manifest() -> Value {
    serde_json::from_slice(&fs::read(folder().join("manifest.json")).unwrap()).unwrap()
}

pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn gunzip(path: &Path) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut plain).unwrap();
    plain
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn node(data: &Dataset, name: &str) -> NodeId {
    let nodes = (0..data.names[0].len() as u32).map(NodeId);
    nodes.into_iter().find(|&node| data.names[0].get(node) == Some(name)).unwrap()
}

#[test]
fn files_match_the_manifest_and_take_at_most_8_mb() {
    let manifest = manifest();
    let mut n_bytes = 0;
    let mut n_files = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        n_bytes += path.metadata().unwrap().len();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name != "manifest.json" {
            assert_eq!(manifest["sha256"][name], hex(gunzip(&path)), "{name}");
            n_files += 1;
        }
    }
    assert_eq!(n_files, manifest["sha256"].as_object().unwrap().len());
    assert!(n_bytes <= 8_000_000, "{n_bytes} bytes");
}

#[test]
fn node_and_edge_counts_match_the_manifest() {
    let data = debian_packages().unwrap();
    let manifest = manifest();
    let expected = |group: &str, what: &str| manifest[group][what].as_u64().unwrap();
    assert_eq!(data.name, "debian-packages");
    assert_eq!(data.graph.n_nodes(), 63_437);
    assert_eq!(data.graph.n_edges(), 2 * 323_446);
    assert_eq!(expected("counts", "nodes"), 63_437);
    assert_eq!(expected("counts", "arcs"), 323_446);
    assert_eq!(data.names[0].len(), data.graph.n_nodes());
    assert_eq!((data.node_features().unwrap().n_rows(), data.node_features().unwrap().dim()), (63_437, 128));
    assert_eq!(data.labels().len(), data.graph.n_nodes());
    assert_eq!(data.class_names().len(), 49);
    assert_eq!(data.labels().n_classes(), 49);
    assert_eq!(data.edge_type_names.len(), 10);
    assert_eq!(data.split().train.len() as u64, expected("split_counts", "train"));
    assert_eq!(data.split().val.len() as u64, expected("split_counts", "val"));
    assert_eq!(data.split().test.len() as u64, expected("split_counts", "test"));
}

#[test]
fn each_edge_has_a_reverse_with_its_type_plus_five() {
    let data = debian_packages().unwrap();
    data.graph.validate().unwrap();
    let graph = data.csc().unwrap();
    let types = graph.edge_types().unwrap();
    let mut forward = Vec::new();
    let mut reversed = Vec::new();
    for dst in (0..graph.n_nodes() as u32).map(NodeId) {
        let first = graph.first_edge(dst).index();
        for (edge, &src) in graph.in_neighbors(dst).iter().enumerate() {
            assert_ne!(src, dst, "node {} is its own neighbour", dst.0);
            match types[first + edge] {
                ty @ 0..5 => forward.push((src, dst, ty)),
                ty => reversed.push((dst, src, ty - 5)),
            }
        }
    }
    forward.sort_unstable();
    reversed.sort_unstable();
    assert_eq!(forward, reversed);
    let n_distinct = {
        forward.dedup();
        forward.len()
    };
    assert_eq!(n_distinct, 323_446);
}

#[test]
fn node_of_highest_degree_is_libc6() {
    let data = debian_packages().unwrap();
    let degree = |node: &NodeId| data.csc().unwrap().in_degree(*node);
    let hub = (0..data.graph.n_nodes() as u32).map(NodeId).max_by_key(degree).unwrap();
    assert_eq!(data.names[0].get(hub), Some("libc6"));
    assert_eq!(degree(&hub), manifest()["counts"]["max_degree"].as_u64().unwrap());
    assert_eq!(degree(&hub), 21_822);
    let hello = node(&data, "hello");
    assert_eq!(data.csc().unwrap().in_neighbors(hello).binary_search(&hub).map(|_| ()), Ok(()));
}

#[test]
fn node_names_are_in_ascending_order() {
    let data = debian_packages().unwrap();
    let names: Vec<&str> = (0..63_437).map(|node| data.names[0].get(NodeId(node)).unwrap()).collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(data.names[0].get(NodeId(63_437)), None);
}

#[test]
fn split_contains_each_labelled_node_once() {
    let data = debian_packages().unwrap();
    let parts = [&data.split().train, &data.split().val, &data.split().test];
    let mut in_split: Vec<NodeId> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    in_split.sort_unstable();
    let nodes = (0..data.graph.n_nodes() as u32).map(NodeId);
    let labelled: Vec<NodeId> = nodes.filter(|&node| data.labels().get(node).is_some()).collect();
    assert_eq!(in_split, labelled);
    for (part, expected) in parts.iter().zip([0.6, 0.2, 0.2]) {
        let share = part.len() as f64 / labelled.len() as f64;
        assert!((share - expected).abs() < 0.002, "the share of the part is {share}, expected {expected}");
        assert!(part.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn every_class_has_100_nodes_and_occurs_in_each_part_of_the_split() {
    let data = debian_packages().unwrap();
    let count = |nodes: &[NodeId]| {
        let mut counts = vec![0; 49];
        for &node in nodes {
            counts[data.labels().get(node).unwrap() as usize] += 1;
        }
        counts
    };
    let [train, val, test] =
        [&data.split().train, &data.split().val, &data.split().test].map(|part| count(part));
    for class in 0..49 {
        let n_nodes = train[class] + val[class] + test[class];
        assert!(
            n_nodes >= 100,
            "class {} has {n_nodes} nodes, expected at least 100",
            data.class_names()[class]
        );
        assert!(
            train[class].min(val[class]).min(test[class]) > 0,
            "class {} should occur in each part",
            data.class_names()[class]
        );
    }
    let label = data.labels().get(node(&data, "libc6")).unwrap();
    assert_eq!(data.class_names()[label as usize], "libs");
}

#[test]
fn features_have_their_golden_digest() {
    let data = debian_packages().unwrap();
    let all: Vec<NodeId> = (0..63_437).map(NodeId).collect();
    let mut rows = FeatureBuffer::default();
    data.node_features().unwrap().gather(&all, &mut rows).unwrap();
    let rows = rows.into_f32();
    let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(hex(bytes), FEATURES_SHA256);
    // A projection of a row of norm 1 has at most norm 1, apart from the rounding of the word vectors to 8 bits.
    let longest =
        rows.chunks_exact(128).map(|row| row.iter().map(|x| x * x).sum::<f32>()).fold(0.0, f32::max);
    assert!((0.9..1.02).contains(&longest), "{longest}");
}

#[test]
fn folder_reader_returns_the_built_in_set() {
    let built_in = debian_packages().unwrap();
    let read = read_debian_packages(folder()).unwrap();
    assert_eq!(read.csc().unwrap().indices(), built_in.csc().unwrap().indices());
    assert_eq!(read.split(), built_in.split());
    assert_eq!(read.names, built_in.names);
}

/// Copies the set, changes the decompressed contents of one file, and returns the error of reading the copy.
fn read_with(file: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Error {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = copy.path().join(file);
    if file.ends_with(".gz") {
        fs::write(&path, gzip(&change(gunzip(&path)))).unwrap();
    } else {
        let changed = change(fs::read(&path).unwrap());
        fs::write(&path, changed).unwrap();
    }
    read_debian_packages(copy.path()).unwrap_err()
}

/// Returns a change of a file that overwrites its last byte.
fn last_byte(byte: u8) -> impl Fn(Vec<u8>) -> Vec<u8> {
    move |mut bytes| {
        *bytes.last_mut().unwrap() = byte;
        bytes
    }
}

#[test]
fn rejects_damaged_files() {
    let missing = read_debian_packages("no/such/folder").unwrap_err();
    assert!(matches!(missing, Error::Store(StoreError::Io { .. })), "{missing}");
    let no_json = read_with("manifest.json", |_| b"{".to_vec());
    assert!(matches!(no_json, Error::Store(StoreError::Manifest { .. })), "{no_json}");
    let format = read_with("manifest.json", |bytes| {
        String::from_utf8(bytes).unwrap().replacen("\"format\": 1", "\"format\": 2", 1).into_bytes()
    });
    assert!(format.to_string().contains("the set has format 2, expected 1"), "{format}");
    let part = read_with("split.npy.gz", last_byte(3));
    let said = part.to_string();
    assert!(said.starts_with("split.npy.gz: a node's part is 3, expected 255: correct"), "{said}");
    let ty = read_with("edge_types.npy.gz", last_byte(9));
    let said = ty.to_string();
    assert!(said.starts_with("edge_types.npy.gz: the number of types is 10, expected 5: correct"), "{said}");
    let word = read_with("words.npy.gz", last_byte(255));
    assert!(word.to_string().starts_with("words.npy.gz: an out-of-range word id is 65"), "{word}");
    let label = read_with("labels.npy.gz", last_byte(49));
    assert!(
        matches!(
            label,
            Error::Feature(kiln_feature::Error::Targets(kiln_feature::TargetsError::LabelOutOfRange { .. }))
        ),
        "{label}"
    );
    let arc = read_with("dst.npy.gz", last_byte(1));
    assert!(matches!(arc, Error::Graph(kiln_graph::Error::NodeOutOfRange { .. })), "{arc}");
    let wrong_type = read_with("words.npy.gz", |_| gunzip(&folder().join("idf.npy.gz")));
    assert!(matches!(wrong_type, Error::Store(StoreError::Npy { .. })), "{wrong_type}");
    let name = read_with("names.txt.gz", |bytes| [bytes, b"more\n".to_vec()].concat());
    assert_eq!(
        name.to_string(),
        "labels.npy.gz: the number of nodes is 63437, expected 63438: correct this file or the files it must match"
    );
}
