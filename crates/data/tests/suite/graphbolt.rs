//! Tests of the reader of GraphBolt folders, including invalid ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{Dataset, Error, Note, graphbolt, open};
use kiln_graph::NodeId;
use kiln_store::{Error as StoreError, npy, npy::Element};
use tempfile::TempDir;

use crate::common::{notes_of_reading, overlap};

pub(crate) const METADATA: &str = "\
dataset_name: small
graph:
  nodes:
  - num: 4
  edges:
  - format: numpy
    path: edges/edges.npy
feature_data:
- domain: node
  type: null
  name: feat
  format: numpy
  in_memory: false
  path: data/feat.npy
tasks:
- name: node_classification
  num_classes: 5
  train_set:
  - type: null
    data:
    - {name: seeds, format: numpy, in_memory: true, path: set/train_seeds.npy}
    - {name: labels, format: numpy, path: set/train_labels.npy}
  validation_set:
  - data:
    - {name: seeds, format: numpy, path: set/val_seeds.npy}
    - {name: labels, format: numpy, path: set/val_labels.npy}
  test_set:
  - data:
    - {name: seeds, format: numpy, path: set/test_seeds.npy}
    - {name: labels, format: numpy, path: set/test_labels.npy}
";

fn put<T: Element>(folder: &Path, name: &str, values: &[T], shape: &[usize]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, npy::write(values, shape)).unwrap();
}

/// Writes a folder with the edges 0 -> 1, 2 -> 1, 2 -> 1, 3 -> 0. Node 3 is in no set.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("metadata.yaml"), METADATA).unwrap();
    put(at, "edges/edges.npy", &[0_i64, 2, 2, 3, 1, 1, 1, 0], &[2, 4]);
    put(at, "data/feat.npy", &[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]);
    put(at, "set/train_seeds.npy", &[1_i32], &[1]);
    put(at, "set/train_labels.npy", &[4_i64], &[1]);
    put(at, "set/val_seeds.npy", &[0_i32], &[1]);
    put(at, "set/val_labels.npy", &[1.0_f32], &[1, 1]);
    put(at, "set/test_seeds.npy", &[2_i32], &[1]);
    put(at, "set/test_labels.npy", &[0_u8], &[1]);
    folder
}

pub(crate) fn check(data: &Dataset) {
    assert_eq!(data.csc().unwrap().indptr(), [0, 1, 4, 4, 4]);
    assert_eq!(data.csc().unwrap().indices(), [3, 0, 2, 2].map(NodeId));
    assert_eq!((data.node_features().unwrap().dim(), data.labels().n_classes()), (2, 5));
    assert_eq!(data.node_features().unwrap().row(NodeId(3)).unwrap(), [3.0, 3.5]);
    assert_eq!(data.labels().as_slice(), [1, 4, 0, -1]);
    assert_eq!(data.split().parts().map(|(_, nodes)| nodes[0].0), [1, 0, 2]);
    assert_eq!(notes_of_reading(&data.validate().unwrap()), []);
}

/// Returns the metadata with one part replaced.
fn edited(from: &str, to: &str) -> String {
    assert!(METADATA.contains(from), "{from}");
    METADATA.replacen(from, to, 1)
}

#[test]
fn opens_a_folder_without_notes() {
    let folder = folder();
    let data = open(folder.path()).unwrap();
    check(&data);
    assert_eq!((&*data.name, notes_of_reading(&data.notes)), ("small", vec![]));
}

#[test]
fn reads_text_edges_without_a_header() {
    let folder = folder();
    fs::write(folder.path().join("edges/edges.csv"), "0,1\n2,1\n2,1\n3,0\n").unwrap();
    let text =
        edited("- format: numpy\n    path: edges/edges.npy", "- format: csv\n    path: edges/edges.csv");
    fs::write(folder.path().join("metadata.yaml"), text).unwrap();
    check(&graphbolt::open(folder.path()).unwrap());
    fs::write(folder.path().join("edges/edges.csv"), "src,dst\n0,1\n").unwrap();
    let error = graphbolt::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("edges.csv, line 1: \"src\", expected the two nodes of an edge, without"),
        "{error}"
    );
}

#[test]
fn reads_column_major_edges() {
    let folder = folder();
    let path = folder.path().join("edges/edges.npy");
    let transposed = |pairs: &[i64]| {
        let bytes = npy::write(pairs, &[2, 4]);
        let at = bytes.windows(5).position(|word| word == b"False").unwrap();
        fs::write(&path, [&bytes[..at], &b"True "[..], &bytes[at + 5..]].concat()).unwrap();
    };
    transposed(&[0, 1, 2, 1, 2, 1, 3, 0]);
    check(&graphbolt::open(folder.path()).unwrap());
    transposed(&[0, 1, 2, 1, 2, 9, 3, 0]);
    let error = graphbolt::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the destination of edge 2 is 9, expected a node"), "{error}");
}

/// Opens the folder with other metadata and the unchanged arrays.
pub(crate) fn open_as(metadata: &str) -> kiln_data::Result<Dataset> {
    let folder = folder();
    fs::write(folder.path().join("metadata.yaml"), metadata).unwrap();
    graphbolt::open(folder.path())
}

#[test]
fn accepts_variants_of_metadata() {
    for text in [
        edited("name: seeds", "name: seed_nodes"),
        edited("  num_classes: 5\n", ""),
        edited("num: 4", "num: \"4\""),
        edited("- num: 4", "- {num: 4, type: paper}").replace("type: null", "type: paper"),
        edited("- num: 4", "- {num: 4, type: paper}")
            .replace("- format", "- type: paper:cites:paper\n    format"),
        edited("name: feat", "name: other"),
        edited("name: node_classification", "name: topics"),
        edited("format: numpy\n    path", "format: &f numpy\n    path")
            .replace("name: feat\n  format: numpy", "name: feat\n  format: *f"),
        format!("---\n# what is where\n{METADATA}...\n"),
        METADATA.replace('\n', "\r\n"),
    ] {
        check(&open_as(&text).unwrap());
    }
}

#[test]
fn notes_entries_that_are_not_read() {
    let of = |domain, name| format!("- {{domain: {domain}, name: {name}, format: numpy, path: none.npy}}\n");
    let others = of("edge", "weight") + &of("node", "year") + &of("edge", "kind");
    let text = METADATA.replace("tasks:", &format!("{others}tasks:"));
    let data = open_as(&text).unwrap();
    check(&data);
    let expected = [
        "the edge feature weight (feature_data[1] in metadata.yaml) is not used",
        "the node feature year (feature_data[2] in metadata.yaml) is not used",
        "the edge feature kind (feature_data[3] in metadata.yaml) is not used",
    ];
    assert_eq!(notes_of_reading(&data.notes), expected.map(|text| Note::Other(text.into())));
    let without_test = &METADATA[..METADATA.find("  test_set").unwrap()];
    let data = open_as(without_test).unwrap();
    assert!(data.split().test.is_empty());
    assert_eq!(data.notes[0].to_string(), "metadata.yaml has no test_set: that part of the split is empty");
}

#[test]
fn follows_absolute_and_parent_paths() {
    let (folder, other) = (folder(), tempfile::tempdir().unwrap());
    let moved = other.path().join("feat.npy");
    fs::rename(folder.path().join("data/feat.npy"), &moved).unwrap();
    let name = other.path().file_name().unwrap().to_str().unwrap();
    for path in [moved.to_str().unwrap().to_owned(), format!("../{name}/feat.npy")] {
        fs::write(folder.path().join("metadata.yaml"), edited("data/feat.npy", &path)).unwrap();
        check(&graphbolt::open(folder.path()).unwrap());
    }
}

#[test]
fn rejects_invalid_metadata_with_its_entry() {
    let of_links = "tasks:\n- {name: links, train_set: [{data: [{name: labels}]}]}\n";
    let two_tasks = "tasks:\n- name: a\n  train_set: &s [{data: [{name: labels}, {name: seeds}]}]\n- {name: b, train_set: *s}\n";
    let head = &METADATA[..METADATA.find("tasks:").unwrap()];
    for (text, expected) in [
        ("", "the document is missing, expected a mapping"),
        ("- a\n", "the document is a list of 1, expected a mapping"),
        ("graph: 3\n", "graph is \"3\", expected a mapping"),
        ("tasks: []\n", "graph is missing, expected a mapping with `nodes` and `edges`"),
        (&edited("- num: 4", "- number: 4"), "graph.nodes[0].num is missing, expected the number of nodes"),
        (&edited("num: 4", "num: -4"), "graph.nodes[0].num is \"-4\", expected a non-negative integer"),
        (
            &edited("num: 4", "num: 4294967295"),
            "the number of nodes is 4294967295, expected below 4294967295",
        ),
        (&edited("num: 4", "num: 4294967294"), "the number of feature rows is 4, expected 4294967294"),
        (
            &edited("num: 4", "num: 4\n  - num: 3"),
            "graph.nodes[0].type is missing, expected the name of a node type",
        ),
        (
            &edited("edges:\n  - format", "edges:\n  - path: x\n  - format"),
            "graph.edges is a list of 2, expected edge types with different names",
        ),
        (
            &edited("- num: 4", "- {num: 4, type: paper}").replace("type: null", "type: author"),
            "feature_data[0].type is \"author\", expected paper",
        ),
        (
            &edited("- num: 4", "- {num: 4, type: paper}")
                .replace("- format", "- type: a:b:paper\n    format"),
            "graph.edges[0].type is \"a:b:paper\", expected paper",
        ),
        (&edited("- num: 4", "[]"), "metadata.yaml, line "),
        (&edited("  - num: 4", "    []"), "graph.nodes is a list of 0, expected a list of one"),
        (
            &edited("  - format: numpy\n", "  - format: parquet\n"),
            "graph.edges[0].format is \"parquet\", expected numpy or csv",
        ),
        (
            &edited("    path: edges/edges.npy\n", ""),
            "graph.edges[0].path is missing, expected the name of a file",
        ),
        (
            &edited("name: feat\n  format: numpy", "name: feat\n  format: torch"),
            "feat.npy: a torch file, which only Python can read, is not supported: save it with numpy.save",
        ),
        (
            &edited("name: feat\n  format: numpy", "name: feat\n  format: csv"),
            "feature_data[0].format is \"csv\", expected numpy",
        ),
        (
            &edited("name: feat\n", "name: a\n").replace("tasks:", "- {domain: node, name: b}\ntasks:"),
            "feature_data is a, b, expected node features called feat",
        ),
        (
            &edited("domain: node", "domain: edge"),
            "a graph without node features is not supported: add an entry",
        ),
        (head, "tasks is missing, expected one called node_classification"),
        (&format!("{head}{of_links}"), "tasks is links, expected one called node_classification"),
        (&format!("{head}{two_tasks}"), "tasks is a, b, expected one called node_classification"),
        (
            &edited("num_classes: 5", "num_classes: many"),
            "tasks[0].num_classes is \"many\", expected a non-negative integer",
        ),
        (
            &edited("num_classes: 5", "num_classes: 2000000000"),
            "the number of classes is 2000000000, expected at most",
        ),
        (
            &edited("num_classes: 5", "num_classes: 4"),
            "train_labels.npy: the label of row 0 is 4, expected below num_classes, 4",
        ),
        (
            &edited("name: seeds", "name: indices"),
            "tasks[0].train_set[0].data is a list of 2, expected an entry called seeds or seed_nodes",
        ),
        (
            &edited("train_set:\n  - type: null", "train_set:\n  - {}\n  - type: null"),
            "a set over several node types (tasks[0].train_set) is not supported",
        ),
        (
            &edited("path: set/train_seeds.npy", "path: [a]"),
            "train_set[0].data[0].path is a list of 1, expected text",
        ),
    ] {
        let said = open_as(text).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}\n    expected {expected}");
    }
}

#[test]
fn rejects_binary_and_oversized_metadata() {
    let folder = folder();
    let path = folder.path().join("metadata.yaml");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    let error = graphbolt::open(folder.path()).unwrap_err();
    assert!(matches!(&error, Error::Store(StoreError::Io { path: at, .. }) if *at == path), "{error}");
    fs::write(&path, " ".repeat((1 << 20) + 1)).unwrap();
    let error = graphbolt::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the file size is over the limit, expected at most 1048576 bytes"), "{error}");
}

/// Returns the error message after one array was replaced.
fn refusal<T: Element>(name: &str, values: &[T], shape: &[usize]) -> String {
    let folder = folder();
    put(folder.path(), name, values, shape);
    graphbolt::open(folder.path()).unwrap_err().to_string()
}

#[test]
fn rejects_invalid_arrays_with_their_position() {
    for (said, expected) in [
        (
            refusal("edges/edges.npy", &[0_i64; 8], &[4, 2]),
            "an edge list of shape [4, 2] is not supported: save it as (2",
        ),
        (
            refusal("edges/edges.npy", &[0_i64, 1, 4, 1], &[2, 2]),
            "the destination of edge 0 is 4, expected a node id below 4",
        ),
        (
            refusal("edges/edges.npy", &[0_i32, -1, 0, 1], &[2, 2]),
            "the source of edge 1 is -1, expected a node",
        ),
        (refusal("edges/edges.npy", &[0.0_f64; 2], &[2, 1]), "the elements are <f8, expected <i4, <u4"),
        (
            refusal("data/feat.npy", &[0.0_f32; 3], &[3]),
            "feat.npy: the number of feature rows is 3, expected 4",
        ),
        (refusal("data/feat.npy", &[0_u8; 4], &[4, 1]), "the elements are |u1, expected <f4 or <f2"),
        (refusal("data/feat.npy", &[0.0_f32; 8], &[4, 2, 1]), "[4, 2, 1], expected (n, dim)"),
        (refusal::<f32>("data/feat.npy", &[], &[4, 0]), "the number of columns is 0, expected 1 to 16777216"),
        (
            refusal("set/train_seeds.npy", &[4_i32], &[1]),
            "train_seeds.npy: entry 0 is 4, expected a node id below 4",
        ),
        (refusal("set/train_seeds.npy", &[-1_i32], &[1]), "train_seeds.npy: entry 0 is -1, expected a node"),
        (refusal("set/train_seeds.npy", &[0_i64, 1], &[1, 2]), "train_seeds.npy: the shape is [1, 2]"),
        (
            refusal("set/train_seeds.npy", &[1_i32, 3], &[2]),
            "train_labels.npy: the number of labels is 1, expected 2",
        ),
        (
            refusal("set/train_labels.npy", &[5_i32], &[1]),
            "the label of row 0 is 5, expected below num_classes, 5",
        ),
        (
            refusal("set/train_labels.npy", &[-1_i32], &[1]),
            "the label of row 0 is -1, expected a class: every",
        ),
        (
            refusal("set/train_labels.npy", &[f32::NAN], &[1]),
            "the label of row 0 is -1, expected a class: every",
        ),
        (
            refusal("set/train_labels.npy", &[1.5_f32], &[1]),
            "the label of row 0 is 1.5, expected a class, a whole",
        ),
        (
            refusal("set/train_labels.npy", &[1_u64 << 40], &[1]),
            "the label of row 0 is 1099511627776, expected",
        ),
        (
            refusal("set/train_labels.npy", &[0_i32, 1], &[1, 2]),
            "a set with 2 labels per node is not supported",
        ),
        (
            refusal("set/test_seeds.npy", &[1_i32], &[1]),
            "test_labels.npy: the label of row 0 is 0, expected 4, the class of node 1 in",
        ),
    ] {
        assert!(said.contains(expected), "{said}\n    expected {expected}");
    }
}

#[test]
fn notes_overlapping_sets() {
    let folder = folder();
    put(folder.path(), "set/test_seeds.npy", &[2_i32, 1], &[2]);
    put(folder.path(), "set/test_labels.npy", &[0_i32, 4], &[2]);
    let notes = graphbolt::open(folder.path()).unwrap().notes;
    assert_eq!(notes_of_reading(&notes), [overlap(["train", "test"])]);
}

#[test]
fn preprocessed_set_error_states_what_to_open() {
    let folder = folder();
    let at = folder.path();
    let preprocessed = "graph_topology: {type: FusedCSCSamplingGraph, path: preprocessed/graph.pt}\n";
    fs::create_dir(at.join("preprocessed")).unwrap();
    fs::write(at.join("preprocessed/metadata.yaml"), preprocessed).unwrap();
    check(&graphbolt::open(at).unwrap());
    let check = |path: &Path| {
        let error = open(path).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("open the folder with the raw files"), "{error}");
    };
    check(&at.join("preprocessed"));
    fs::remove_file(at.join("metadata.yaml")).unwrap();
    check(at);
}

#[test]
fn missing_file_error_names_the_file() {
    for name in ["edges/edges.npy", "data/feat.npy", "set/val_labels.npy", "set/test_seeds.npy"] {
        let folder = folder();
        let path = folder.path().join(name);
        fs::remove_file(&path).unwrap();
        let error = graphbolt::open(folder.path()).unwrap_err();
        assert!(matches!(&error, Error::Store(StoreError::Io { path: at, .. }) if *at == path), "{error}");
    }
    let error = graphbolt::open(tempfile::tempdir().unwrap()).unwrap_err().to_string();
    assert!(error.contains("has no metadata.yaml (the list of the set's files)"), "{error}");
}
