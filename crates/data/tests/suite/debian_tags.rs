//! Tests of the content of the embedded set `debian-tags`, and that damaged files are rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use kiln_data::{Dataset, Error, debian_packages, debian_tags, read_debian_tags};
use kiln_feature::{TargetKind, TargetValues};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use serde_json::Value;

use crate::debian::{gunzip, gzip, hex, node};

const N_NODES: usize = 63_437;
const N_TAGS: usize = 130;

fn folder(set: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(set)
}

fn manifest() -> Value {
    serde_json::from_slice(&fs::read(folder("debian-tags").join("manifest.json")).unwrap()).unwrap()
}

/// Returns the names of a package's tags.
fn tags_of<'a>(data: &'a Dataset, package: &str) -> Vec<&'a str> {
    let values = data.target_values().unwrap().as_labels().unwrap();
    let row = &values[node(data, package).index() * N_TAGS..][..N_TAGS];
    let named = data.class_names().iter().zip(row).filter(|(_, value)| **value == 1);
    named.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn tag_files_match_the_manifest() {
    let manifest = manifest();
    let hashes = manifest["sha256"].as_object().unwrap();
    assert_eq!(hashes.len(), 3);
    for (name, hash) in hashes {
        assert_eq!(*hash, hex(gunzip(&folder("debian-tags").join(name))), "{name}");
    }
}

#[test]
fn tagged_packages_have_a_value_for_every_tag_and_others_none() {
    let (data, manifest) = (debian_tags().unwrap(), manifest());
    let values = data.target_values().unwrap();
    assert_eq!((values.kind(), values.len(), values.n_columns()), (TargetKind::MultiLabel, N_NODES, N_TAGS));
    assert_eq!((&*data.name, data.class_names().len(), data.labels().len()), ("debian-tags", N_TAGS, 0));
    values.validate().unwrap();
    let (mut n_tagged, mut n_true) = (0, 0);
    for row in values.as_labels().unwrap().chunks_exact(N_TAGS) {
        let n_missing = row.iter().filter(|value| **value == TargetValues::<NodeId>::MISSING).count();
        assert!(n_missing == 0 || n_missing == N_TAGS, "{n_missing} targets of a package are missing");
        n_tagged += u64::from(n_missing == 0);
        n_true += row.iter().filter(|value| **value == 1).count() as u64;
    }
    let counts = &manifest["counts"];
    assert_eq!((counts["tagged_nodes"].as_u64(), n_tagged), (Some(n_tagged), 30_300));
    assert_eq!((counts["true_labels"].as_u64(), n_true), (Some(n_true), 97_684));
    assert_eq!(tags_of(&data, "libxml2"), ["role::shared-lib"]);
    let of_mutt = tags_of(&data, "mutt");
    assert_eq!((of_mutt.len(), &of_mutt[7..]), (9, &["use::editing", "works-with::mail"][..]));
}

#[test]
fn split_has_the_tagged_packages_of_the_split_by_section() {
    let (data, packages) = (debian_tags().unwrap(), debian_packages().unwrap());
    let values = data.target_values().unwrap();
    for ((part, nodes), (_, all)) in data.split().parts().into_iter().zip(packages.split().parts()) {
        let tagged: Vec<NodeId> = all.iter().copied().filter(|&node| values.has_any(node)).collect();
        assert_eq!(nodes[..], tagged, "{part}");
    }
    assert_eq!(data.split().parts().map(|(_, nodes)| nodes.len()), [18_101, 5_765, 6_147]);
    assert_eq!(data.csc().unwrap().indices(), packages.csc().unwrap().indices());
    assert_eq!(data.names, packages.names);
    assert_eq!(Dataset::open("debian-tags").unwrap().hash().unwrap(), data.hash().unwrap());
}

#[test]
fn every_tag_has_100_packages_and_occurs_in_each_part_of_the_split() {
    let data = debian_tags().unwrap();
    let values = data.target_values().unwrap().as_labels().unwrap();
    let count = |nodes: &[NodeId], tag: usize| {
        nodes.iter().filter(|node| values[node.index() * N_TAGS + tag] == 1).count()
    };
    let all: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    for (tag, name) in data.class_names().iter().enumerate() {
        assert!(100 <= count(&all, tag), "{name} has {} packages", count(&all, tag));
        for (part, nodes) in data.split().parts() {
            assert!(0 < count(nodes, tag), "no {part} package has {name}");
        }
    }
}

/// Copies the tags, changes the decompressed contents of one file, and returns the error of reading the copy.
fn read_with(file: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Error {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder("debian-tags")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = copy.path().join(file);
    let changed = match file.ends_with(".gz") {
        true => gzip(&change(gunzip(&path))),
        false => change(fs::read(&path).unwrap()),
    };
    fs::write(&path, changed).unwrap();
    read_debian_tags(folder("debian-packages"), copy.path()).unwrap_err()
}

/// Returns a change of an array of `u32` or `u16` that overwrites its last value.
fn last_bytes<const N: usize>(value: [u8; N]) -> impl Fn(Vec<u8>) -> Vec<u8> {
    move |mut bytes| {
        let end = bytes.len() - N;
        bytes[end..].copy_from_slice(&value);
        bytes
    }
}

#[test]
fn rejects_damaged_tag_files() {
    let missing = read_debian_tags(folder("debian-packages"), "no/such/folder").unwrap_err();
    assert!(matches!(missing, Error::Store(StoreError::Io { .. })), "{missing}");
    let no_json = read_with("manifest.json", |_| b"{".to_vec());
    assert!(matches!(no_json, Error::Store(StoreError::Manifest { .. })), "{no_json}");
    let format = read_with("manifest.json", |bytes| {
        String::from_utf8(bytes).unwrap().replacen("\"format\": 1", "\"format\": 2", 1).into_bytes()
    });
    assert!(format.to_string().contains("the set has format 2, expected 1"), "{format}");
    for (file, change, expected) in [
        ("nodes.npy.gz", N_NODES as u32, "nodes.npy.gz: an out-of-range node id is 63437, expected 63436"),
        ("indptr.npy.gz", 7, "indptr.npy.gz: the last entry is 7, expected 97684"),
    ] {
        let error = read_with(file, last_bytes(change.to_le_bytes())).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let tag = read_with("tags.npy.gz", last_bytes((N_TAGS as u16).to_le_bytes())).to_string();
    assert!(tag.starts_with("tags.npy.gz: an out-of-range tag id is 130, expected 129"), "{tag}");
    let shorter = read_with("indptr.npy.gz", |_| gunzip(&folder("debian-tags").join("nodes.npy.gz")));
    assert!(
        shorter.to_string().starts_with("indptr.npy.gz: the length is 30300, expected 30301"),
        "{shorter}"
    );
}
