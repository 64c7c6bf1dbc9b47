//! Tests of the reader of OGB folders with several node types, of text and of archives, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::{Dataset, Error, Note, TypedDataset, ogb, typed};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use tempfile::TempDir;

use crate::ogb::gz;
use crate::typed_ogb_archives::folder_of_archives;

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

fn names(data: &TypedDataset) -> Vec<&str> {
    data.graph.iter().map(|relation| relation.name.as_str()).collect()
}

#[test]
fn reads_text_files_in_the_order_of_the_names() {
    let folder = folder();
    let data = TypedDataset::open(folder.path()).unwrap();
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
    assert_eq!(data.validate().unwrap(), []);
    assert_eq!(data.notes.len(), 1, "{:?}", data.notes);
    assert!(data.notes[0].to_string().contains("4 lines of text were copied to memory"));
}

#[test]
fn archives_and_uncompressed_text_give_the_same_set() {
    let (text, archives) = (folder(), folder_of_archives());
    let data = ogb::open_typed(text.path()).unwrap();
    let hash = data.hash().unwrap();
    assert_eq!(ogb::open_typed(archives.path()).unwrap().hash().unwrap(), hash);
    for (name, content) in FILES {
        fs::remove_file(text.path().join(name)).unwrap();
        fs::write(text.path().join(name.trim_end_matches(".gz")), content).unwrap();
    }
    assert!(typed::is_heterogeneous(text.path()).unwrap());
    assert_eq!(ogb::open_typed(text.path()).unwrap().hash().unwrap(), hash);
}

#[test]
fn an_ogb_folder_is_written_in_the_kiln_format() {
    for folder in [folder(), folder_of_archives()] {
        assert!(typed::is_heterogeneous(folder.path()).unwrap());
        let (data, out) = (ogb::open_typed(folder.path()).unwrap(), folder.path().join("kiln"));
        typed::write(&data, &out).unwrap();
        typed::verify(&out).unwrap();
        assert_eq!(typed::open(&out).unwrap().hash().unwrap(), data.hash().unwrap());
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
    let data = ogb::open_typed(at).unwrap();
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
    let data = ogb::open_typed(at).unwrap();
    assert!(data.targets.is_none());
    let note = data.notes.last().unwrap().to_string();
    assert!(note.ends_with("raw has labels: the set has no targets"), "{note}");
}

#[test]
fn other_readers_name_the_typed_one_and_the_typed_reader_names_them() {
    for folder in [folder(), folder_of_archives()] {
        for error in [ogb::open(folder.path()).unwrap_err(), Dataset::open(folder.path()).unwrap_err()] {
            let expected = "is not supported: open it with ogb::open_typed or TypedDataset::open";
            assert!(
                matches!(error, Error::Unsupported { .. }) && error.to_string().contains(expected),
                "{error}"
            );
        }
    }
    let (_parent, homogeneous) = crate::ogb::folder("ogbn_arxiv");
    assert!(!typed::is_heterogeneous(&homogeneous).unwrap());
    let error = TypedDataset::open(&homogeneous).unwrap_err();
    let expected = "is an OGB folder with one node type (open it with Dataset::open or ogb::open), expected a heterogeneous set";
    assert!(matches!(error, Error::WrongKind { .. }) && error.to_string().contains(expected), "{error}");
}

/// Checks that opening the folder fails with an error of the expected message after one file was replaced.
fn check_text(name: &str, text: &str, expected: &str) {
    let folder = folder();
    gz(folder.path(), name, text);
    let error = ogb::open_typed(folder.path()).unwrap_err();
    let is_typed = matches!(error, Error::Store(_) | Error::Unsupported { .. });
    let said = error.to_string();
    let folder = folder.path().to_string_lossy();
    assert!(
        is_typed && said.contains(&*folder) && said.contains(expected),
        "{said}\n    expected {expected}"
    );
}

#[test]
fn rejects_invalid_types_and_relations() {
    let types = "raw/num-node-dict.csv.gz";
    check_text(types, "", "num-node-dict.csv.gz, line 1: \"\", expected a line with the names of node types");
    check_text(
        types,
        "paper\n",
        "line 2: \"\", expected a second line with the number of nodes of each type",
    );
    check_text(types, "paper,author,institution\n4,x,1\n", "line 2: \"x\", expected the number of nodes");
    check_text(types, "paper,author,institution\n4,-3,1\n", "line 2: \"-3\", expected the number of nodes");
    check_text(types, "paper,author,institution\n4,3\n", "line 2: \"2 fields\", expected 3 fields");
    check_text(types, "paper,author\n4,3\n5,3\n", "line 3: \"5\", expected two lines: the set has one graph");
    check_text(types, "paper,author,author\n4,3,1\n", "invalid node type `author`: it occurs twice");
    check_text(types, "paper,../author\n4,3\n", "line 1: \"../author\", expected a name of 1 to 120 bytes");
    check_text(types, "paper,,author\n4,3,1\n", "line 1: \"\", expected a name of 1 to 120 bytes");
    check_text(types, "paper,author,institution\n4,4294967295,1\n", "the number of nodes is 4294967295");
    check_text(types, "paper,author,institution\n4,4294967294,1\n", "the list of node types is 3 types");
    check_text(
        types,
        "paper,author\n4,3\n",
        "the list of relations is the type `institution`, expected relations",
    );
    let header = (0..513).map(|i| format!("t{i}")).collect::<Vec<_>>().join(",");
    check_text(types, &header, "line 1: \"t512\", expected at most 512 node types");

    let triplets = "raw/triplet-type-list.csv.gz";
    check_text(triplets, "author,writes\n", "line 1: \"2 fields\", expected SOURCE,RELATION,DESTINATION");
    check_text(triplets, "author,writes,paper,x\n", "line 1: \"x\", expected SOURCE,RELATION,DESTINATION");
    check_text(triplets, "author,a/b,paper\n", "line 1: \"a/b\", expected a name of 1 to 120 bytes");
    check_text(
        triplets,
        "author,writes,paper\nauthor,writes,paper\n",
        "the list of relations is `author:writes:paper` twice, expected relations with different names",
    );
    let many = (0..257).map(|i| format!("author,r{i},paper\n")).collect::<String>();
    check_text(triplets, &many, "the list of relations is more, expected at most 256 relations");
    check_text(
        triplets,
        "author,reads,paper\n",
        "author___reads___paper has no edge.csv.gz or edge.csv (the edges of the relation)",
    );
}

#[test]
fn rejects_invalid_edges_and_features() {
    let writes = |name: &str| format!("raw/relations/author___writes___paper/{name}");
    check_text(
        &writes("edge.csv.gz"),
        "0,2\n2,4\n2,1\n",
        "edge.csv.gz, line 2: \"4\", expected a node id below 4",
    );
    check_text(
        &writes("edge.csv.gz"),
        "0,2\n3,1\n2,1\n",
        "edge.csv.gz: the source of edge 1 is 3, expected below 3, the number of nodes of type `author`",
    );
    check_text(&writes("edge.csv.gz"), "0,2\n2,x\n", "line 2: \"x\", expected");
    check_text(
        &writes("num-edge-list.csv.gz"),
        "4\n",
        "num-edge-list.csv.gz: the number of edges is 4, expected 3",
    );
    check_text(&writes("num-edge-list.csv.gz"), "3\n1\n", "line 2: \"1\", expected one line with a number");
    let features = "raw/node-feat/paper/node-feat.csv.gz";
    check_text(features, "0\n1\n2\n", "node-feat.csv.gz: the number of lines is 3, expected 4");
    check_text(features, "0\n1\n2\n3\n4\n", "line 5: \"4\", expected no more than 4 lines");
    check_text(features, "0\n1\nnan\n3\n", "line 3: \"nan\", expected a finite number");
    check_text(
        "raw/node-feat/author/node-feat.csv.gz",
        "0\n",
        "author/node-feat.csv.gz: the number of lines is 1",
    );
}

#[test]
fn rejects_invalid_labels_and_splits() {
    let labels = "raw/node-label/paper/node-label.csv.gz";
    check_text(labels, "1\n4\n0\n", "node-label.csv.gz: the number of lines is 3, expected 4");
    check_text(labels, "1\n4\n0.5\n0\n", "line 3: \"0.5\", expected a class");
    let has_label = "raw/nodetype-has-label.csv.gz";
    check_text(
        has_label,
        "paper,author\nTrue,True\n",
        "labels of 2 node types is not supported: keep the labels of one",
    );
    check_text(has_label, "paper,venue\nTrue,False\n", "line 1: \"venue\", expected the names of node types");
    check_text(
        has_label,
        "paper,author\nTrue,maybe\n",
        "line 2: \"maybe\", expected True or False for each node type",
    );
    check_text(has_label, "paper,paper\nTrue,True\n", "line 2: \"True\", expected True or False");
    check_text(has_label, "paper,author\nFalse,True\n", "node-label/author has no node-label.csv.gz");
    let has_split = "split/time/nodetype-has-split.csv.gz";
    let expected = "the node type with a split is author, expected `paper`, the type with labels";
    check_text(has_split, "paper,author\nFalse,True\n", expected);
    check_text(
        has_split,
        "paper,author\nFalse,False\n",
        "the node type with a split is none, expected `paper`",
    );
    check_text(
        "split/time/paper/test.csv.gz",
        "2\n4\n",
        "test.csv.gz, line 2: \"4\", expected a node id below 4",
    );
    check_text(
        "split/time/paper/test.csv.gz",
        "3\n",
        "split/time/paper: test split entry 0 is node 3, expected a node that has a label",
    );
    check_text(
        "split/random/paper/test.csv.gz",
        "2\n",
        "unique split scheme: choose one of random, time and remove the others from the folder",
    );
}

#[test]
fn missing_files_of_typed_sets_are_errors() {
    for (name, expected) in [
        (
            "raw/num-node-dict.csv.gz",
            "has no num-node-dict.csv.gz or num-node-dict.csv (the number of nodes of",
        ),
        ("raw/relations/paper___cites___paper/edge.csv.gz", "has no edge.csv.gz or edge.csv (the edges of"),
        ("raw/relations/paper___cites___paper/num-edge-list.csv.gz", "has no num-edge-list.csv.gz"),
        ("raw/nodetype-has-label.csv.gz", "has no nodetype-has-label.csv.gz or nodetype-has-label.csv"),
        ("raw/node-label/paper/node-label.csv.gz", "has no node-label.csv.gz"),
        ("split/time/nodetype-has-split.csv.gz", "has no nodetype-has-split.csv.gz"),
        ("split/time/paper/train.csv.gz", "has no train.csv.gz"),
    ] {
        let folder = folder();
        fs::remove_file(folder.path().join(name)).unwrap();
        let error = ogb::open_typed(folder.path()).unwrap_err();
        let is_missing = matches!(&error, Error::Store(StoreError::Missing { .. }));
        assert!(is_missing && error.to_string().contains(expected), "{error}");
    }
    let folder = folder();
    let scheme = folder.path().join("split/time");
    fs::rename(scheme.join("nodetype-has-split.csv.gz"), scheme.join("split_dict.pt")).unwrap();
    let error = ogb::open_typed(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("split_dict.pt: a pickled split, which only Python can read, is not supported"),
        "{error}"
    );
}

#[test]
fn a_number_of_nodes_that_no_file_of_ogb_confirms_is_limited() {
    let folder = folder();
    gz(folder.path(), "raw/num-node-dict.csv.gz", "paper,author,institution\n4,200000000,1\n");
    let error = ogb::open_typed(folder.path()).unwrap_err();
    // The authors, who have no in-edges, the institution twice, and the papers in their second relation.
    let is_limit = matches!(&error, Error::Memory { needed_bytes: 1_600_000_048, .. });
    assert!(is_limit && error.to_string().contains("num-node-dict.csv.gz"), "{error}");
    let most = folder_of_archives();
    assert!(ogb::open_typed_within(most.path(), 71).is_err());
    assert!(ogb::open_typed_within(most.path(), 72).is_ok());
}
