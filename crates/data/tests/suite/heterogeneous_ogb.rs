//! Tests of the reader of OGB folders with several node types, of text and of archives, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::{Dataset, Error, Note, format, ogb};
use kiln_graph::NodeId;
use tempfile::TempDir;

use crate::common::notes_of_reading;
use crate::heterogeneous_ogb_archives::folder_of_archives;
use crate::ogb::gz;

/// The text files of a folder with the layout of `ogbn_mag`: three authors, four papers and one institution. Paper 3 has no
/// label. Neither types nor relations are in the order of their names.
const FILES: [(&str, &str); 15] = [
    ("raw/num-node-dict.csv.gz", "paper,author,institution\n4,3,1\n"),
    (
        "raw/triplet-type-list.csv.gz",
        "author,writes,paper\npaper,cites,paper\nauthor,affiliated_with,institution\n",
    ),
    ("raw/relations/author___writes___paper/edge.csv.gz", "0,2\n2,1\n2,1\n"),
    ("raw/relations/author___writes___paper/num-edge-list.csv.gz", "3\n"),
    ("raw/relations/author___writes___paper/edge_reltype.csv.gz", "2\n2\n2\n"),
    ("raw/relations/paper___cites___paper/edge.csv.gz", "3,0\n1,0\n0,2\n"),
    ("raw/relations/paper___cites___paper/num-edge-list.csv.gz", "3\n"),
    ("raw/relations/author___affiliated_with___institution/edge.csv.gz", "1,0\n"),
    ("raw/relations/author___affiliated_with___institution/num-edge-list.csv.gz", "1\n"),
    ("raw/node-feat/paper/node-feat.csv.gz", "0,0.5\n1,1.5\n2,2.5\n3,3.5\n"),
    ("raw/node-feat/paper/node_year.csv.gz", "2010\n2011\n2012\n2013\n"),
    ("raw/nodetype-has-label.csv.gz", "paper,author,institution\nTrue,False,False\n"),
    ("raw/node-label/paper/node-label.csv.gz", "1\n4\n0\nnan\n"),
    ("split/time/nodetype-has-split.csv.gz", "paper,author,institution\nTrue,False,False\n"),
    ("split/time/paper/train.csv.gz", "1\n"),
];

/// Writes the folder.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        gz(folder.path(), name, text);
    }
    gz(folder.path(), "split/time/paper/valid.csv.gz", "0\n");
    gz(folder.path(), "split/time/paper/test.csv.gz", "2\n");
    folder
}

fn ids(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

fn names(data: &Dataset) -> Vec<&str> {
    data.graph.iter().map(|relation| relation.name.as_str()).collect()
}

#[test]
fn reads_text_files_in_the_order_of_the_names() {
    let folder = folder();
    let data = Dataset::open(folder.path()).unwrap();
    let (_, sizes) =
        data.to_string().split_once(": ").map(|(name, sizes)| (name.len(), sizes.to_owned())).unwrap();
    assert_eq!(
        sizes,
        "8 nodes of 3 types, 7 edges of 3 relations, 5 classes of paper; 1 / 1 / 1 nodes to train, validate, test"
    );
    // As in OGB's library, which sorts the types and the triplets.
    assert_eq!(data.graph.types().names(), ["author", "institution", "paper"]);
    assert_eq!(data.graph.types().offsets(), [0, 3, 4, 8]);
    assert_eq!(names(&data), ["affiliated_with", "writes", "cites"]);
    let neighbors = |relation: usize, row| ids(data.graph.relation(relation).graph.in_neighbors(NodeId(row)));
    assert_eq!((neighbors(0, 0), neighbors(1, 1), neighbors(1, 2)), (vec![1], vec![2, 2], vec![0]));
    // Paper 0 is node 4.
    assert_eq!((neighbors(2, 0), neighbors(2, 2)), (vec![5, 7], vec![4]));
    assert_eq!(data.dims(), [None, None, Some(2)]);
    assert_eq!(data.features[2].as_ref().unwrap().row(NodeId(3)).unwrap(), [3.0, 3.5]);
    let targets = data.targets.as_ref().unwrap();
    assert_eq!(targets.split.parts().map(|(_, nodes)| ids(nodes)), [vec![5], vec![4], vec![6]]);
    let mut labels = Vec::new();
    targets.values.gather(&[0, 1, 2].map(NodeId), &mut labels, &mut Vec::new()).unwrap();
    assert_eq!(labels, [1, 4, 0]);
    assert!(!targets.values.has_any(NodeId(3)));
    assert_eq!(notes_of_reading(&data.validate().unwrap()), []);
    let copied = "4 lines of text were copied to memory";
    assert!(data.notes.iter().any(|note| note.to_string().contains(copied)), "{:?}", data.notes);
}

#[test]
fn archives_and_uncompressed_text_give_the_same_set() {
    let (text, archives) = (folder(), folder_of_archives());
    let data = ogb::open_heterogeneous(text.path()).unwrap();
    let hash = data.hash().unwrap();
    assert_eq!(ogb::open_heterogeneous(archives.path()).unwrap().hash().unwrap(), hash);
    for (name, content) in FILES {
        fs::remove_file(text.path().join(name)).unwrap();
        fs::write(text.path().join(name.trim_end_matches(".gz")), content).unwrap();
    }
    assert!(kiln_data::is_heterogeneous(text.path()).unwrap());
    assert_eq!(ogb::open_heterogeneous(text.path()).unwrap().hash().unwrap(), hash);
}

#[test]
fn an_ogb_folder_is_written_in_the_kiln_format() {
    for folder in [folder(), folder_of_archives()] {
        assert!(kiln_data::is_heterogeneous(folder.path()).unwrap());
        let (data, out) = (ogb::open_heterogeneous(folder.path()).unwrap(), folder.path().join("kiln"));
        format::write(&data, &out).unwrap();
        format::verify(&out).unwrap();
        assert_eq!(format::open(&out).unwrap().hash().unwrap(), data.hash().unwrap());
    }
}

#[test]
fn relations_of_one_name_have_the_names_of_their_types() {
    let folder = folder();
    let at = folder.path();
    gz(
        at,
        "raw/triplet-type-list.csv.gz",
        "author,writes,paper\npaper,cites,paper\nauthor,cites,institution\n",
    );
    gz(at, "raw/relations/author___cites___institution/edge.csv.gz", "1,0\n");
    gz(at, "raw/relations/author___cites___institution/num-edge-list.csv.gz", "1\n");
    gz(at, "raw/relations/author___cites___institution/edge-feat.csv.gz", "0.5\n");
    let data = ogb::open_heterogeneous(at).unwrap();
    assert_eq!(names(&data), ["author:cites:institution", "writes", "paper:cites:paper"]);
    let notes = data.notes.iter().map(Note::to_string).collect::<Vec<_>>();
    assert!(notes.iter().any(|note| note.ends_with("edge-feat.csv.gz are not read")), "{notes:?}");
}

#[test]
fn folders_without_labels_have_no_targets() {
    let folder = folder();
    let at = folder.path();
    fs::remove_file(at.join("raw/nodetype-has-label.csv.gz")).unwrap();
    fs::remove_dir_all(at.join("raw/node-label")).unwrap();
    fs::remove_dir_all(at.join("split")).unwrap();
    let data = ogb::open_heterogeneous(at).unwrap();
    assert!(data.targets.is_none());
    let note = data.notes.last().unwrap().to_string();
    assert!(note.ends_with("raw has labels: the set has no targets"), "{note}");
}

#[test]
fn every_reader_opens_several_types_and_the_typed_reader_needs_them() {
    for folder in [folder(), folder_of_archives()] {
        let expected = ogb::open_heterogeneous(folder.path()).unwrap().hash().unwrap();
        for data in [ogb::open(folder.path()), Dataset::open(folder.path()), kiln_data::open(folder.path())] {
            assert_eq!(data.unwrap().hash().unwrap(), expected);
        }
    }
    let (_parent, homogeneous) = crate::ogb::folder("ogbn_arxiv");
    assert!(!kiln_data::is_heterogeneous(&homogeneous).unwrap());
    assert!(!Dataset::open(&homogeneous).unwrap().is_heterogeneous());
    let error = ogb::open_heterogeneous(&homogeneous).unwrap_err();
    let expected = "is an OGB folder with one node type (open it with Dataset::open or ogb::open), expected a heterogeneous set";
    assert!(matches!(error, Error::WrongKind { .. }) && error.to_string().contains(expected), "{error}");
}
