//! The bytes of partitions of one plain and of one heterogeneous set, with caches.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_store::sha256;
use kiln_testkit::check_golden;

use crate::common::{Stored, six_nodes, typed_parts};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/golden").join(name)
}

/// Returns the manifests of all partitions, and the size and the hash of each other file.
fn listing(parts: &Path) -> String {
    let mut files = BTreeMap::new();
    for part in fs::read_dir(parts).unwrap() {
        let part = part.unwrap();
        for file in fs::read_dir(part.path()).unwrap() {
            let file = file.unwrap();
            let name = format!("{}/{}", part.file_name().display(), file.file_name().display());
            files.insert(name, fs::read(file.path()).unwrap());
        }
    }
    let mut text = String::new();
    for (name, bytes) in files {
        let line = match name.ends_with("part.json") {
            true => format!("{name}\n{}\n", String::from_utf8(bytes).unwrap()),
            false => format!("{name} {} {}\n", bytes.len(), sha256(&bytes)),
        };
        text.push_str(&line);
    }
    text
}

#[test]
fn partitions_of_both_layouts_are_frozen() {
    for (name, (_root, first)) in
        [("plain.txt", six_nodes(Stored::F16)), ("heterogeneous.txt", typed_parts())]
    {
        check_golden(golden(name), &listing(first.parent().unwrap()));
    }
}
