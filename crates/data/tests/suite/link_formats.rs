//! Links and fixed negatives of folders: `.npy` files and OGB.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use kiln_data::{Error, LinkSplit, LinkTargets, Note, open};
use kiln_graph::{LinkId, NodeId};
use kiln_store::npy;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::common::put;

pub(crate) type Pairs = Vec<(u32, u32)>;

pub(crate) fn pairs(srcs: &[NodeId], dsts: &[NodeId]) -> Pairs {
    srcs.iter().zip(dsts).map(|(src, dst)| (src.0, dst.0)).collect()
}

/// Returns the links of each part.
pub(crate) fn links(targets: &LinkTargets) -> [Pairs; 3] {
    let all = pairs(targets.links().srcs(), targets.links().dsts());
    targets.split().parts().map(|(_, ids)| ids.iter().map(|link| all[link.index()]).collect())
}

/// Returns the negatives of each link of the test, with the source of the link if they have none.
pub(crate) fn test_negatives(targets: &LinkTargets) -> Vec<Pairs> {
    let negatives = targets.test_negatives().unwrap();
    let row = |(row, link): (usize, &LinkId)| {
        let link_src = [targets.links().pair(*link).0];
        let dsts = negatives.dsts_of(row);
        let srcs = negatives.srcs_of(row).map_or_else(|| link_src.repeat(dsts.len()), <[_]>::to_vec);
        pairs(&srcs, dsts)
    };
    negatives.links().iter().enumerate().map(row).collect()
}

/// Writes the edges 0 -> 1, 2 -> 1, 3 -> 0 of five nodes with features.
pub(crate) fn put_graph(at: &Path) {
    put(at, "edges.npy", &[0_i64, 2, 3, 1, 1, 0], &[2, 3]);
    put(at, "features.npy", &[0.0_f32, 1.0, 2.0, 3.0, 4.0], &[5, 1]);
}

/// Writes a folder of `.npy` files without labels.
pub(crate) fn npy_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put_graph(at);
    put(at, "train_edges.npy", &[0_i64, 1, 2, 1, 3, 0], &[3, 2]);
    put(at, "val_edges.npy", &[1_u32, 2, 4, 0, 3, 3], &[2, 3]);
    put(at, "test_edges.npy", &[4_i32, 1, 2, 3], &[2, 2]);
    put(at, "test_negatives.npy", &[0_u32, 2, 4, 1, 4, 0], &[2, 3]);
    folder
}

fn check_npy(targets: &LinkTargets) {
    let expected = [vec![(0, 1), (2, 1), (3, 0)], vec![(1, 0), (2, 3), (4, 3)], vec![(4, 1), (2, 3)]];
    assert_eq!(links(targets), expected);
    assert!(targets.val_negatives().is_none());
    assert_eq!(test_negatives(targets), [vec![(4, 0), (4, 2), (4, 4)], vec![(2, 1), (2, 4), (2, 0)]]);
    targets.check(5).unwrap();
}

#[test]
fn reads_links_of_a_folder_of_arrays_without_labels() {
    let folder = npy_folder();
    let data = open(folder.path()).unwrap();
    check_npy(&data.links.as_ref().unwrap().targets);
    assert_eq!((data.graph.n_nodes(), data.labels().n_classes(), data.split().train.len()), (5, 0, 0));
    assert!(data.to_string().ends_with("; 3 / 3 / 2 links"), "{data}");
    assert!(
        data.notes
            .iter()
            .any(|note| note.to_string().contains("has the shape [2, 2]: each row is read as a"))
    );
    assert_eq!(data.validate().unwrap(), []);
    let split = LinkSplit::of_dataset(&data, &Default::default(), 0).unwrap();
    assert_eq!(split.message().n_edges(), 3);
    assert_eq!(split.targets(), &*data.links.as_ref().unwrap().targets);
    assert_eq!(split.find_leaks().unwrap(), [Note::LinksInGraph { part: "val", n_links: 0, n_reversed: 1 }]);
    // With pairs of negatives.
    put(folder.path(), "test_negative_srcs.npy", &[3_i64, 3, 3, 1, 1, 1], &[2, 3]);
    let data = open(folder.path()).unwrap();
    assert_eq!(
        test_negatives(&data.links.as_ref().unwrap().targets),
        [vec![(3, 0), (3, 2), (3, 4)], vec![(1, 1), (1, 4), (1, 0)]]
    );
}

#[test]
fn notes_list_files_of_links_and_negatives_that_are_not_read() {
    let folder = npy_folder();
    let ignored = || -> Vec<String> {
        let notes = open(folder.path()).unwrap().notes;
        let notes = notes.iter().map(|note| note.to_string().replace(folder.path().to_str().unwrap(), ""));
        notes.filter(|note| note.contains("ignored")).collect()
    };
    assert_eq!(ignored(), [""; 0]);
    put(folder.path(), "val_negative_srcs.npy", &[0_u32; 3], &[3, 1]);
    assert_eq!(ignored(), ["/val_negative_srcs.npy is ignored: the folder has no val_negatives.npy"]);
    fs::remove_file(folder.path().join("val_negative_srcs.npy")).unwrap();
    for (name, ids) in [("link_srcs", &[0_u32, 2][..]), ("link_dsts", &[1, 1])] {
        put(folder.path(), &format!("{name}.npy"), ids, &[2]);
    }
    for (name, ids) in [("train", &[0_u32][..]), ("val", &[]), ("test", &[1])] {
        put(folder.path(), &format!("{name}_links.npy"), ids, &[ids.len()]);
    }
    put(folder.path(), "test_negatives.npy", &[0_u32, 4], &[1, 2]);
    let of = |part: &str| format!("/{part}_edges.npy is ignored: /link_srcs.npy is read instead");
    assert_eq!(ignored(), ["train", "val", "test"].map(of));
    for name in ["link_srcs", "link_dsts", "train_links", "val_links", "test_links"] {
        fs::remove_file(folder.path().join(format!("{name}.npy"))).unwrap();
    }
    for part in ["train", "val", "test"] {
        fs::remove_file(folder.path().join(format!("{part}_edges.npy"))).unwrap();
        put(folder.path(), &format!("{part}.npy"), &[0_u32], &[1]);
    }
    put(folder.path(), "labels.npy", &[0_i32, 1, 0, 1, 0], &[5]);
    assert_eq!(ignored(), ["/test_negatives.npy is ignored: the folder has no links"]);
}

#[test]
fn reads_links_beside_labels() {
    let folder = npy_folder();
    for (name, node) in [("train", 0_u32), ("val", 1), ("test", 2)] {
        put(folder.path(), &format!("{name}.npy"), &[node], &[1]);
    }
    // A split of nodes without labels is an error, not ignored.
    let error = open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("labels.npy"), "{error}");
    put(folder.path(), "labels.npy", &[0_i32, 1, 0, 1, 0], &[5]);
    let data = open(folder.path()).unwrap();
    check_npy(&data.links.as_ref().unwrap().targets);
    assert_eq!((data.labels().n_classes(), data.split().train.len()), (2, 1));
}

#[test]
fn rejects_invalid_arrays_of_links() {
    let check = |write: &dyn Fn(&Path), expected: &str| {
        let folder = npy_folder();
        write(folder.path());
        let error = open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        &|at| put(at, "val_edges.npy", &[0_i64, 1, 0, 5], &[2, 2]),
        "val_edges.npy: the destination of link 1 is 5, expected a node id below 5",
    );
    check(
        &|at| put(at, "val_edges.npy", &[-1_i64, 1, 0, 4, 0, 0], &[3, 2]),
        "val_edges.npy: the source of link 0 is -1",
    );
    check(
        &|at| put(at, "val_edges.npy", &[0_i64; 9], &[3, 3]),
        "the shape is [3, 3], expected (n, 2) or (2, n)",
    );
    check(&|at| put(at, "val_edges.npy", &[0.0_f32; 4], &[2, 2]), "val_edges.npy");
    check(&|at| fs::remove_file(at.join("test_edges.npy")).unwrap(), "has no test_edges.npy");
    check(
        &|at| put(at, "test_negatives.npy", &[0_u32; 3], &[1, 3]),
        "test_negatives.npy: the number of links is 1, expected 2",
    );
    check(
        &|at| put(at, "test_negatives.npy", &[0_i32, 0, 0, -7], &[2, 2]),
        "test_negatives.npy: the destination of negative 3 is -7, expected a node id below 5",
    );
    check(
        &|at| put(at, "test_negative_srcs.npy", &[0_u32; 4], &[2, 2]),
        "test_negative_srcs.npy: the number of negatives is 4, expected 6",
    );
    check(
        &|at| put(at, "test_negatives.npy", &[0_u32; 8], &[2, 2, 2]),
        "expected (n_links, n_negatives), at",
    );
    check(&|at| put::<u32>(at, "test_negatives.npy", &[], &[2, 0]), "the shape is [2, 0]");
    check(&|at| put(at, "link_dsts.npy", &[0_u32; 8], &[8]), "has no link_srcs.npy");
    check(&|at| fs::write(at.join("train_edges.npy"), b"damaged").unwrap(), "train_edges.npy");
}

fn zip(path: &Path, members: &[(&str, Vec<u8>)]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in members {
        zip.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Writes the graph of [`put_graph`] in OGB's layout, and returns the folder of the split.
fn put_ogb(at: &Path) -> PathBuf {
    fs::create_dir_all(at.join("raw")).unwrap();
    for (name, text) in [
        ("edge.csv", "0,1\n2,1\n3,0\n"),
        ("num-node-list.csv", "5\n"),
        ("num-edge-list.csv", "3\n"),
        ("node-feat.csv", "0\n1\n2\n3\n4\n"),
    ] {
        fs::write(at.join("raw").join(name), text).unwrap();
    }
    let split = at.join("split/time");
    fs::create_dir_all(&split).unwrap();
    split
}

fn ids(values: &[i64], shape: &[usize]) -> Vec<u8> {
    npy::write(values, shape)
}

#[test]
fn reads_ogb_sets_with_negatives_of_each_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ogbl_citation2");
    let split = put_ogb(&at);
    let part = |srcs: &[i64], dsts: &[i64]| {
        vec![("source_node", ids(srcs, &[srcs.len()])), ("target_node", ids(dsts, &[dsts.len()]))]
    };
    zip(&split.join("train.npz"), &part(&[0, 2, 3], &[1, 1, 0]));
    zip(&split.join("valid.npz"), &part(&[1], &[3]));
    let mut test = part(&[2, 4], &[4, 0]);
    test.push(("target_node_neg", ids(&[0, 1, 3, 1, 2, 3], &[2, 3])));
    zip(&split.join("test.npz"), &test);
    let data = open(&at).unwrap();
    let targets = data.links.as_ref().unwrap();
    assert_eq!(links(&targets.targets), [vec![(0, 1), (2, 1), (3, 0)], vec![(1, 3)], vec![(2, 4), (4, 0)]]);
    assert_eq!(
        test_negatives(&targets.targets),
        [vec![(2, 0), (2, 1), (2, 3)], vec![(4, 1), (4, 2), (4, 3)]]
    );
    assert_eq!((data.graph.n_edges(), data.labels().n_classes(), data.split().train.len()), (3, 0, 0));
    assert_eq!(data.notes.iter().filter(|note| !matches!(note, Note::Converted { .. })).count(), 0);
    test[2].1 = ids(&[0, 1, 3, 1, 2, 5], &[2, 3]);
    zip(&split.join("test.npz"), &test);
    let error = open(&at).unwrap_err().to_string();
    assert!(error.contains("test.npz/target_node_neg.npy: the destination of negative 5 is 5"), "{error}");
    zip(&split.join("test.npz"), &part(&[2, 4], &[4]));
    let error = open(&at).unwrap_err().to_string();
    assert!(error.contains("target_node.npy: the number of entries is 1, expected 2"), "{error}");
}

#[test]
fn reads_ogb_sets_with_pooled_negatives() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ogbl_collab");
    let split = put_ogb(&at);
    zip(
        &split.join("train.npz"),
        &[("edge", ids(&[0, 1, 2, 1, 3, 0], &[3, 2])), ("weight", ids(&[1; 3], &[3]))],
    );
    zip(&split.join("valid.npz"), &[("edge", ids(&[1, 3, 0, 4], &[2, 2]))]);
    let test = |edge: &[i64], negatives: &[i64]| {
        let shape = |values: &[i64]| [values.len() / 2, 2];
        let members = [("edge", ids(edge, &shape(edge))), ("edge_neg", ids(negatives, &shape(negatives)))];
        zip(&split.join("test.npz"), &members);
    };
    test(&[0, 2, 0, 3, 1, 4], &[4, 4, 3, 1, 2, 2, 0, 0, 3, 4]);
    let data = open(&at).unwrap();
    let negatives = test_negatives(&data.links.as_ref().unwrap().targets);
    assert_eq!(negatives, [vec![(4, 4), (3, 1)], vec![(2, 2), (0, 0)], vec![(3, 4), (4, 4)]]);
    // OGB's library adds the reverse of each edge of this set.
    assert_eq!(data.graph.n_edges(), 6);
    let note = data.notes.iter().find(|note| note.to_string().contains("negatives")).unwrap().to_string();
    assert!(note.contains("the 5 negatives in "), "{note}");
    assert!(note.ends_with("were dealt to 3 links, 2 each: 1 negatives are repeated"), "{note}");
    test(&[0, 2, 0, 3, 1, 4], &[4, 4, 3, 1, 2, 2]);
    let data = open(&at).unwrap();
    assert_eq!(test_negatives(&data.links.as_ref().unwrap().targets), [[(4, 4)], [(3, 1)], [(2, 2)]]);
    assert!(!data.notes.iter().any(|note| note.to_string().contains("repeated")));
    zip(&split.join("test.npz"), &[("head", ids(&[0], &[1]))]);
    let error = open(&at).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("triplets")), "{error}");
    zip(&split.join("test.npz"), &[("other", ids(&[0], &[1]))]);
    assert!(open(&at).unwrap_err().to_string().contains("has no edge.npy"));
}

#[test]
fn pickled_ogb_splits_are_an_error_with_the_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ogbl_ppa");
    let split = put_ogb(&at);
    for name in ["train.pt", "valid.pt", "test.pt"] {
        fs::write(split.join(name), b"PK").unwrap();
    }
    let error = open(&at).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { path, .. } if path.ends_with("train.pt")), "{error}");
    assert!(error.to_string().contains("python -c \"import numpy, torch; [numpy.savez("), "{error}");
    // The number of nodes is compared with the features before anything is allocated.
    fs::write(at.join("raw/num-node-list.csv"), "4000000000\n").unwrap();
    let error = open(&at).unwrap_err().to_string();
    assert!(error.contains("node-feat.csv: the largest possible number of lines is 5"), "{error}");
}
