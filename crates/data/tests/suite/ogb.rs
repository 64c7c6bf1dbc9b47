//! Tests of the reader of OGB folders of text and of archives, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use kiln_data::{Dataset, Error, Note, ogb};
use kiln_graph::NodeId;
use kiln_store::{Error as StoreError, npy, npy::Element};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::common::{by_columns, notes_of_reading, overlap};

pub(crate) fn gz(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    file.write_all(text.as_bytes()).unwrap();
    file.finish().unwrap();
}

/// Writes text files of a set with the edges 0 -> 1, 2 -> 1, 1 -> 1, 3 -> 0. Node 3 has no class.
fn put_text(at: &Path) {
    gz(at, "raw/edge.csv.gz", "0,1\n2,1\n1,1\n3,0\n");
    gz(at, "raw/num-node-list.csv.gz", "4\n");
    gz(at, "raw/num-edge-list.csv.gz", "4\n");
    gz(at, "raw/node-feat.csv.gz", "0.5,-1\n1.0,2e1\n0,0\n3,4\n");
    gz(at, "raw/node-label.csv.gz", "1.0\n0\n 2 \nnan\n");
    gz(at, "raw/node_year.csv.gz", "1999\n2000\n2001\n2002\n");
    put_split(at, "time");
}

fn put_split(at: &Path, scheme: &str) {
    for (name, node) in [("train", 0), ("valid", 1), ("test", 2)] {
        gz(at, &format!("split/{scheme}/{name}.csv.gz"), &format!("{node}\n"));
    }
}

/// Writes the set of [`put_text`] to a folder with this name inside a new folder.
pub(crate) fn folder(name: &str) -> (TempDir, std::path::PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join(name);
    put_text(&folder);
    (parent, folder)
}

pub(crate) fn archive(path: &Path, method: CompressionMethod, members: &[(&str, Vec<u8>)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method).large_file(true);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Returns the members of `data.npz` for the same set.
pub(crate) fn members() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("edge_index.npy", npy::write(&[0_i64, 2, 1, 3, 1, 1, 1, 0], &[2, 4])),
        ("node_feat.npy", npy::write(&[0.5_f32, -1.0, 1.0, 20.0, 0.0, 0.0, 3.0, 4.0], &[4, 2])),
        ("node_year.npy", npy::write(&[1999_i64, 2000, 2001, 2002], &[4, 1])),
        ("num_nodes_list.npy", npy::write(&[4_i64], &[1])),
        ("num_edges_list.npy", npy::write(&[4_i64], &[1])),
    ]
}

pub(crate) fn folder_of_archives(method: CompressionMethod) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    put_archives(folder.path(), method, &members());
    folder
}

/// Writes a folder whose `data.npz` has these members.
pub(crate) fn put_archives(at: &Path, method: CompressionMethod, members: &[(&str, Vec<u8>)]) {
    archive(&at.join("raw/data.npz"), method, members);
    let labels = npy::write(&[1.0_f32, 0.0, 2.0, f32::NAN], &[4, 1]);
    archive(&at.join("raw/node-label.npz"), method, &[("node_label.npy", labels)]);
    put_split(at, "time");
}

fn check(data: &Dataset) {
    assert_eq!(data.csc().unwrap().indptr(), [0, 1, 4, 4, 4]);
    assert_eq!(data.csc().unwrap().indices(), [3, 0, 1, 2].map(NodeId));
    assert_eq!((data.node_features().unwrap().dim(), data.labels().n_classes()), (2, 3));
    let rows = [[0.5, -1.0], [1.0, 20.0], [0.0, 0.0], [3.0, 4.0]];
    for (node, row) in rows.iter().enumerate() {
        assert_eq!(data.node_features().unwrap().row(NodeId(node as u32)).unwrap(), row);
    }
    assert_eq!(data.labels().as_slice(), [1, 0, 2, -1]);
    let split = data.split().parts().map(|(_, nodes)| nodes.to_vec());
    assert_eq!(split, [0, 1, 2].map(|node| vec![NodeId(node)]));
    assert_eq!(notes_of_reading(&data.validate().unwrap()), []);
}

#[test]
fn reads_text_files() {
    let (_parent, at) = folder("ogbn_arxiv");
    let data = ogb::open(&at).unwrap();
    check(&data);
    assert_eq!(data.name, "ogbn_arxiv");
    let copied = "node-feat.csv.gz: 4 lines of text were copied to memory";
    assert!(data.notes.iter().any(|note| note.to_string().contains(copied)), "{:?}", data.notes);
    assert_eq!(notes_of_reading(&data.notes).len(), 2, "{:?}", data.notes);
}

#[test]
fn reads_uncompressed_text_files() {
    let (_parent, at) = folder("ogbn_arxiv");
    fs::remove_file(at.join("raw/edge.csv.gz")).unwrap();
    fs::write(at.join("raw/edge.csv"), "0,1\r\n2,1\r\n1,1\r\n3,0").unwrap();
    check(&ogb::open(&at).unwrap());
}

#[test]
fn reads_archives() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        check(&ogb::open(folder_of_archives(method).path()).unwrap());
    }
}

#[test]
fn reads_column_major_edges_of_archives() {
    let folder = folder_of_archives(CompressionMethod::Deflated);
    let mut members = members();
    members[0].1 = by_columns(&[0_i64, 1, 2, 1, 1, 1, 3, 0], &[2, 4]);
    archive(&folder.path().join("raw/data.npz"), CompressionMethod::Deflated, &members);
    check(&ogb::open(folder.path()).unwrap());
    members[1].1 = by_columns(&[0.0_f32; 8], &[4, 2]);
    archive(&folder.path().join("raw/data.npz"), CompressionMethod::Deflated, &members);
    let error = ogb::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("data.npz/node_feat.npy: the array is in Fortran order"), "{error}");
}

#[test]
fn adds_reverse_edges_like_the_ogb_library() {
    let reversed = "ogbn_products ogbn-products products ogbn_products_pyg ogbn_products_dgl ogbn_proteins ogbl_ppa \
        ogbl_collab ogbl_ddi";
    let as_given = "ogbn_arxiv ogbn_arxiv_dgl ogbn_papers100M ogbn_mag ogbl_citation2 my_products";
    for name in reversed.split(' ').chain(as_given.split(' ')) {
        let is_reversed = reversed.split(' ').any(|other| other == name);
        let is_unknown = name == "my_products";
        let (_parent, at) = folder(name);
        let data = ogb::open(&at).unwrap();
        let is_noted = data.notes.iter().any(|note| matches!(note, Note::ReverseEdgesAdded { .. }));
        assert_eq!(is_noted, is_reversed, "{name}: {:?}", data.notes);
        let not_added = Note::ReverseEdgesNotAdded { name: name.into() };
        assert_eq!(data.notes.contains(&not_added), is_unknown, "{name}: {:?}", data.notes);
        let expected: &[u64] = if is_reversed { &[0, 2, 5, 6, 7] } else { &[0, 1, 4, 4, 4] };
        assert_eq!(data.csc().unwrap().indptr(), expected, "{name}");
    }
}

#[test]
fn selects_a_split_scheme_by_name() {
    let (_parent, at) = folder("arxiv");
    put_split(&at, "random");
    gz(&at, "split/random/test.csv.gz", "0\n");
    let error = ogb::open(&at).unwrap_err().to_string();
    assert!(error.contains("unique split scheme: choose one of random, time"), "{error}");
    check(&ogb::open_with_split(&at, "time").unwrap());
    let data = ogb::open_with_split(&at, "random").unwrap();
    assert_eq!(data.split().test, vec![NodeId(0)].into());
    let overlap = overlap(["train", "test"]);
    assert!(data.notes.contains(&overlap), "{:?}", data.notes);
    let error = ogb::open_with_split(&at, "public").unwrap_err().to_string();
    assert!(
        error.contains("split/public has no train.csv.gz or train.csv (the nodes of one part)"),
        "{error}"
    );
}

/// Returns the error message for the text set after one file was replaced.
fn refusal(name: &str, text: &str) -> String {
    let (_parent, at) = folder("arxiv");
    gz(&at, name, text);
    ogb::open(&at).unwrap_err().to_string()
}

#[test]
fn rejects_invalid_text_with_its_line() {
    for (said, expected) in [
        (
            refusal("raw/edge.csv.gz", "src,dst\n0,1\n"),
            "edge.csv.gz, line 1: \"src\", expected the two nodes",
        ),
        (refusal("raw/edge.csv.gz", "0,1\n2,4\n"), "line 2: \"4\", expected a node id below 4"),
        (refusal("raw/edge.csv.gz", "0,1\n-2,1\n"), "line 2: \"-2\", expected a node"),
        (refusal("raw/edge.csv.gz", "0,1\n2,1.5\n"), "line 2: \"1.5\", expected the two nodes"),
        (refusal("raw/edge.csv.gz", "0,1,2\n"), "line 1: \"3 fields\", expected the two nodes"),
        (refusal("raw/edge.csv.gz", "0,1\n2\n"), "line 2: \"1 fields\", expected 2 fields"),
        (refusal("raw/edge.csv.gz", "0,1\n"), "num-edge-list.csv.gz: the number of edges is 4, expected 1"),
        (refusal("raw/num-node-list.csv.gz", "4\n5\n"), "line 2: \"5\", expected one line with a number"),
        (refusal("raw/num-node-list.csv.gz", ""), "line 1: \"\", expected one line with a number"),
        (refusal("raw/num-node-list.csv.gz", "-1\n"), "line 1: \"-1\", expected one line"),
        (
            refusal("raw/num-node-list.csv.gz", "4294967295\n"),
            "the number of nodes is 4294967295, expected below",
        ),
        (
            refusal("raw/num-node-list.csv.gz", "4294967294\n"),
            "the number of lines is 4, expected 4294967294",
        ),
        (refusal("raw/num-node-list.csv.gz", "3\n"), "line 4: \"nan\", expected no more than 3 lines"),
        (refusal("raw/node-feat.csv.gz", "1,2\n3,inf\n"), "line 2: \"inf\", expected a finite number"),
        (refusal("raw/node-feat.csv.gz", "1,2\n3,nan\n"), "line 2: \"nan\", expected a finite number"),
        (refusal("raw/node-feat.csv.gz", "1,2\n3,\n"), "line 2: \"\", expected a finite number"),
        (refusal("raw/node-feat.csv.gz", "1\n2\n"), "node-feat.csv.gz: the number of lines is 2, expected 4"),
        (refusal("raw/node-feat.csv.gz", "1\n2\n3\n4\n5\n"), "line 5: \"5\", expected no more than 4 lines"),
        (refusal("raw/node-label.csv.gz", "0\n1\n1.5\n0\n"), "line 3: \"1.5\", expected a class"),
        (refusal("raw/node-label.csv.gz", "0\n1\nx\n0\n"), "line 3: \"x\", expected a class"),
        (refusal("raw/node-label.csv.gz", "0\n1\n1e10\n0\n"), "line 3: \"1e10\", expected a class"),
        (
            refusal("raw/node-label.csv.gz", "0\n1\n"),
            "node-label.csv.gz: the number of lines is 2, expected 4",
        ),
        (refusal("raw/node-label.csv.gz", "0,1\n1,x\n"), "line 2: \"x\", expected a number, or nan"),
        (
            refusal("split/time/train.csv.gz", "0\n4\n"),
            "train.csv.gz, line 2: \"4\", expected a node id below 4",
        ),
        (refusal("split/time/train.csv.gz", "0,1\n"), "line 1: \"2 fields\", expected a node"),
        (
            refusal("split/time/test.csv.gz", "0\n3\n"),
            "split/time: test split entry 1 is node 3, expected a node that has a label",
        ),
    ] {
        assert!(said.contains(expected), "{said}\n    expected {expected}");
    }
}

#[test]
fn missing_file_error_states_the_purpose_of_the_file() {
    for (name, expected) in [
        ("raw/edge.csv.gz", "has no edge.csv.gz or edge.csv (the edges, unless data.npz contains them"),
        ("raw/num-node-list.csv.gz", "has no num-node-list.csv.gz or num-node-list.csv (the number"),
        ("raw/num-edge-list.csv.gz", "has no num-edge-list.csv.gz"),
        ("raw/node-label.csv.gz", "has no node-label.csv.gz or node-label.csv (the class of each node"),
        ("split/time/valid.csv.gz", "has no valid.csv.gz or valid.csv (the nodes of one part)"),
    ] {
        let (_parent, at) = folder("arxiv");
        fs::remove_file(at.join(name)).unwrap();
        let error = ogb::open(&at).unwrap_err();
        assert!(
            matches!(&error, Error::Store(StoreError::Missing { .. }))
                && error.to_string().contains(expected),
            "{error}"
        );
    }
    let (_parent, at) = folder("arxiv");
    fs::remove_dir_all(at.join("split/time")).unwrap();
    let error = ogb::open(&at).unwrap_err().to_string();
    assert!(error.contains("split has no subfolder with train.csv.gz"), "{error}");
    fs::remove_dir(at.join("split")).unwrap();
    assert!(matches!(ogb::open(&at).unwrap_err(), Error::Store(StoreError::Io { .. })));
}

#[test]
fn rejects_unsupported_sets() {
    let (_parent, at) = folder("arxiv");
    let check = |expected: &str| {
        let error = ogb::open(&at).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    fs::rename(at.join("split/time/train.csv.gz"), at.join("split/time/split_dict.pt")).unwrap();
    check("split_dict.pt: a pickled split, which only Python can read, is not supported: save its parts");
    fs::remove_file(at.join("raw/node-feat.csv.gz")).unwrap();
    check("a graph without node features is not supported: add node-feat.csv.gz");
    gz(&at, "raw/graph-label.csv.gz", "1\n");
    check("is an OGB folder (graph classification), expected a node classification set");
    gz(&at, "raw/triplet-type-list.csv.gz", "a,b,c\n");
    check("raw has no num-node-dict.csv.gz or num-node-dict.csv (the number of nodes of each type)");
}

#[test]
fn notes_a_pickled_split_beside_text() {
    let (_parent, at) = folder("arxiv");
    fs::write(at.join("split/time/split_dict.pt"), "").unwrap();
    let notes = ogb::open(&at).unwrap().notes;
    assert!(notes[2].to_string().contains("split_dict.pt is ignored: the text files beside it"), "{notes:?}");
}

/// Returns the error message for the set of archives after one member was replaced or removed.
fn refusal_of_member(name: &'static str, bytes: Option<Vec<u8>>) -> String {
    let folder = folder_of_archives(CompressionMethod::Deflated);
    let mut members = members();
    members.retain(|(member, _)| *member != name);
    members.extend(bytes.map(|bytes| (name, bytes)));
    archive(&folder.path().join("raw/data.npz"), CompressionMethod::Deflated, &members);
    ogb::open(folder.path()).unwrap_err().to_string()
}

fn array<T: Element>(values: &[T], shape: &[usize]) -> Option<Vec<u8>> {
    Some(npy::write(values, shape))
}

#[test]
fn rejects_invalid_arrays_with_their_position() {
    let member = refusal_of_member;
    for (said, expected) in [
        (member("edge_index.npy", None), "data.npz has no edge_index.npy; it has node_feat.npy, "),
        (
            member("edge_index.npy", array(&[0_i64; 8], &[4, 2])),
            "an edge list of shape [4, 2] is not supported",
        ),
        (member("edge_index.npy", array(&[0_i64, 1, 2, 0], &[2, 2])), "the number of edges is 2, expected 4"),
        (
            member("edge_index.npy", array(&[0_i64, 1, 2, 4, 0, 0, 0, 0], &[2, 4])),
            "data.npz/edge_index.npy: the source of edge 3 is 4, expected a node id below 4",
        ),
        (
            member("edge_index.npy", array(&[0_i64, 1, 2, 3, 0, -1, 0, 0], &[2, 4])),
            "the destination of edge 1 is -1, expected a node",
        ),
        (
            member("edge_index.npy", array(&[0.0_f32; 8], &[2, 4])),
            "the elements are <f4, expected <i4, <u4, <i8 or <u8",
        ),
        (member("node_feat.npy", None), "a graph without node features is not supported: add node_feat"),
        (
            member("node_feat.npy", array(&[0.0_f32; 6], &[3, 2])),
            "the number of feature rows is 3, expected 4",
        ),
        (member("num_nodes_list.npy", array(&[4_i64, 4], &[2])), "the number of graphs is 2, expected 1"),
        (member("num_nodes_list.npy", array(&[-4_i64], &[1])), "entry 0 is -4, expected a number of nodes"),
        (member("num_nodes_list.npy", array(&[1_i64 << 40], &[1])), "the number of nodes is 1099511627776"),
        (member("num_nodes_list.npy", array(&[5_i64], &[1])), "the number of labels is 4, expected 5"),
        (member("num_edges_list.npy", array(&[5_i64], &[1])), "the number of edges is 4, expected 5"),
        (member("node_feat.npy", Some(b"no array".to_vec())), "data.npz/node_feat.npy: the file is not an"),
    ] {
        assert!(said.contains(expected), "{said}\n    expected {expected}");
    }
}

#[test]
fn rejects_damaged_archives_and_wrong_sizes() {
    let folder = folder_of_archives(CompressionMethod::Deflated);
    let path = folder.path().join("raw/data.npz");
    let refusal = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        ogb::open(folder.path()).unwrap_err().to_string()
    };
    let good = fs::read(&path).unwrap();
    for length in [0, 10, good.len() / 2, good.len() - 1] {
        assert!(refusal(&good[..length]).contains("data.npz: "));
    }
    // The header of the array states 2^62 bytes, but the member of the archive has only a few bytes.
    let mut huge = npy::write(&[0.0_f32; 2], &[1, 2]);
    let at = huge.windows(6).position(|word| word == b"(1, 2)").unwrap();
    huge.splice(at..at + 6 + 25, *b"(1152921504606846976, 1)       ");
    let said = refusal_of_member("node_feat.npy", Some(huge));
    assert!(said.contains("8 bytes of values for the shape [1152921504606846976, 1], expected"), "{said}");
    // The directory of the archive states 2^31 bytes for a member of a few hundred bytes.
    let name = b"node_feat.npy";
    let at = good.windows(name.len()).rposition(|word| word == name).unwrap() - 46 + 24;
    let mut lying = good.clone();
    lying[at..at + 4].copy_from_slice(&(1_u32 << 31).to_le_bytes());
    let said = refusal(&lying);
    assert!(said.contains("data.npz/node_feat.npy: "), "{said}");
    assert!(said.contains("compressed bytes cannot expand to 2147483648: damaged archive"), "{said}");
    // One value is changed, so the checksum of its member is wrong.
    let stored = folder_of_archives(CompressionMethod::Stored);
    let path = stored.path().join("raw/data.npz");
    let mut damaged = fs::read(&path).unwrap();
    let at = damaged.windows(4).position(|word| word == 20.0_f32.to_le_bytes()).unwrap();
    damaged[at] ^= 1;
    fs::write(&path, damaged).unwrap();
    let said = ogb::open(stored.path()).unwrap_err().to_string();
    assert!(said.contains("node_feat.npy: Invalid checksum"), "{said}");
}

#[test]
fn rejects_truncated_gzip_text() {
    let (_parent, at) = folder("arxiv");
    for name in ["raw/edge.csv.gz", "raw/node-feat.csv.gz", "split/time/train.csv.gz"] {
        let path = at.join(name);
        let good = fs::read(&path).unwrap();
        fs::write(&path, &good[..good.len() - 9]).unwrap();
        let error = ogb::open(&at).unwrap_err();
        assert!(matches!(&error, Error::Store(StoreError::Io { path: at, .. }) if *at == path), "{error}");
        fs::write(&path, good).unwrap();
    }
}

#[test]
fn rejects_features_that_do_not_fit_in_memory() {
    let (_parent, at) = folder("ogbn_arxiv");
    gz(&at, "raw/num-node-list.csv.gz", "4194304\n");
    gz(&at, "raw/node-label.csv.gz", &"0\n".repeat(1 << 22));
    gz(&at, "raw/node-feat.csv.gz", &format!("0{}\n", ",0".repeat((1 << 19) - 1)));
    let error = ogb::open(&at).unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::OutOfMemory { .. })), "{error}");
}
