//! Tests of the reader of OGB folders with several node types in archives.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{Error, ogb};
use kiln_store::{npy, npy::Element};
use tempfile::TempDir;
use zip::CompressionMethod;

use crate::heterogeneous_ogb::folder;
use crate::ogb::archive;

fn member<T: Element>(name: &str, values: &[T], shape: &[usize]) -> (String, Vec<u8>) {
    (format!("{name}.npy"), npy::write(values, shape))
}

/// Writes an archive of the folder.
fn put(at: &Path, name: &str, members: &[(String, Vec<u8>)]) {
    let members: Vec<(&str, Vec<u8>)> =
        members.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    archive(&at.join("raw").join(name), CompressionMethod::Deflated, &members);
}

/// Writes the same set as [`folder`], with archives instead of text files in `raw`.
pub(crate) fn folder_of_archives() -> TempDir {
    let (folder, text) = (tempfile::tempdir().unwrap(), folder());
    let at = folder.path();
    fs::create_dir_all(at.join("raw")).unwrap();
    fs::rename(text.path().join("split"), at.join("split")).unwrap();
    let counts = |counts: &[(&str, i64)]| -> Vec<_> {
        counts.iter().map(|(name, count)| member(name, &[*count], &[1])).collect()
    };
    put(at, "num_nodes_dict.npz", &counts(&[("paper", 4), ("author", 3), ("institution", 1)]));
    let [writes, cites, affiliated] =
        ["author___writes___paper", "paper___cites___paper", "author___affiliated_with___institution"];
    put(at, "num_edges_dict.npz", &counts(&[(writes, 3), (cites, 3), (affiliated, 1)]));
    let edges = [
        member(writes, &[0_i64, 2, 2, 2, 1, 1], &[2, 3]),
        member(cites, &[3_i64, 1, 0, 0, 0, 2], &[2, 3]),
        member(affiliated, &[1_i64, 0], &[2, 1]),
    ];
    put(at, "edge_index_dict.npz", &edges);
    put(at, "node_feat_dict.npz", &[member("paper", &[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2])]);
    put(at, "node_year.npz", &[member("paper", &[2010_i64, 2011, 2012, 2013], &[4, 1])]);
    put(at, "node-label.npz", &[member("paper", &[1.0_f32, 4.0, 0.0, f32::NAN], &[4, 1])]);
    folder
}

/// Checks that opening the folder of archives fails with an error of the expected message after one was replaced.
fn check_archive(name: &str, members: &[(String, Vec<u8>)], expected: &str) {
    let folder = folder_of_archives();
    put(folder.path(), name, members);
    let error = ogb::open_heterogeneous(folder.path()).unwrap_err();
    let said = error.to_string();
    let is_typed = matches!(error, Error::Store(_) | Error::Unsupported { .. });
    assert!(is_typed && said.contains(name) && said.contains(expected), "{said}\n    expected {expected}");
}

#[test]
fn rejects_invalid_archives_of_types() {
    let count = |name: &str, n: i64| member(name, &[n], &[1]);
    let [writes, cites] = ["author___writes___paper", "paper___cites___paper"];
    check_archive("num_nodes_dict.npz", &[], "the list of node types is 0 types");
    check_archive(
        "num_nodes_dict.npz",
        &[count("a/b", 1)],
        "the name of an array is a/b, expected a name of",
    );
    check_archive(
        "num_nodes_dict.npz",
        &[count("paper", -1)],
        "paper.npy: entry 0 is -1, expected a number of nodes",
    );
    check_archive(
        "num_nodes_dict.npz",
        &[member("paper", &[4_i64, 4], &[2])],
        "the number of graphs is 2, expected 1",
    );
    check_archive("num_edges_dict.npz", &[count("writes", 3)], "expected SOURCE___RELATION___DESTINATION");
    check_archive("num_edges_dict.npz", &[count("venue___has___paper", 3)], "the type `venue`");
    check_archive("edge_index_dict.npz", &[], "has no author___affiliated_with___institution.npy");
    let edges = [member(writes, &[0_i64; 6], &[2, 3]), member(cites, &[0_i64, 4], &[2, 1])];
    let affiliated = member("author___affiliated_with___institution", &[1_i64, 0], &[2, 1]);
    let [writes, cites] = edges;
    check_archive(
        "edge_index_dict.npz",
        &[affiliated, writes, cites],
        "the number of edges is 1, expected 3",
    );
    check_archive(
        "node_feat_dict.npz",
        &[member("venue", &[0.0_f32], &[1, 1])],
        "expected the name of a node type",
    );
    check_archive(
        "node_feat_dict.npz",
        &[member("paper", &[0.0_f32; 3], &[3, 1])],
        "the number of feature rows is 3",
    );
    check_archive(
        "node-label.npz",
        &[member("paper", &[0_i64; 3], &[3, 1])],
        "the number of labels is 3, expected 4",
    );
    let two = [member("paper", &[0_i64; 4], &[4, 1]), member("author", &[0_i64; 3], &[3, 1])];
    check_archive("node-label.npz", &two, "labels of 2 node types is not supported");
}
