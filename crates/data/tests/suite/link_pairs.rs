//! Files of pairs of nodes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::read_pairs;
use kiln_graph::Links;

use crate::common::put;

fn pairs(links: &Links) -> Vec<(u32, u32)> {
    links.srcs().iter().zip(links.dsts().iter()).map(|(src, dst)| (src.0, dst.0)).collect()
}

#[test]
fn reads_pairs_of_arrays_and_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "rows.npy", &[0_i64, 4, 2, 1, 2, 1], &[3, 2]);
    put(at, "columns.npy", &[0_u32, 2, 2, 4, 1, 1], &[2, 3]);
    fs::write(at.join("plain.csv"), "0,4\n2,1\n2,1").unwrap();
    fs::write(at.join("named.csv"), "source,destination\n0,4\n2,1\n2,1\n").unwrap();
    for name in ["rows.npy", "columns.npy", "plain.csv", "named.csv"] {
        let links = read_pairs(at.join(name), 5, &mut Vec::new()).unwrap();
        assert_eq!(pairs(&links), [(0, 4), (2, 1), (2, 1)], "{name}");
    }
    fs::write(at.join("empty.csv"), "").unwrap();
    assert!(read_pairs(at.join("empty.csv"), 5, &mut Vec::new()).unwrap().is_empty());
}

#[test]
fn rejects_pairs_with_other_columns_and_unknown_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "large.npy", &[0_i64, 5, 1, 2, 3, 4], &[3, 2]);
    put(at, "cube.npy", &[0_i64, 1, 2], &[3, 1]);
    for (name, text) in [
        ("weights.csv", "0,1,0.5\n"),
        ("one.csv", "0\n1\n"),
        ("large.csv", "0,1\n0,5\n"),
        ("word.csv", "0,1\n0,node\n"),
    ] {
        fs::write(at.join(name), text).unwrap();
    }
    for (name, expected) in [
        ("large.npy", "expected a node id below 5"),
        ("cube.npy", "(n, 2) or (2, n)"),
        ("weights.csv", "a third column"),
        ("one.csv", "a source, a destination"),
        ("large.csv", "line 2: \"5\", expected a node id below 5"),
        ("word.csv", "line 2: \"node\", expected a node id below 5"),
    ] {
        let error = read_pairs(at.join(name), 5, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
}
