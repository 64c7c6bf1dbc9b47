//! Tests of the notes about files, arrays and keys that the readers do not know.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, GraphDataset, Note, format, ogb};
use kiln_store::npy;
use zip::CompressionMethod;

use crate::link_formats::npy_folder;
use crate::ogb::{archive, gz};
use crate::targets::put_graphs;
use crate::{graphbolt, heterogeneous_ogb, heterogeneous_ogb_archives, tu};

/// Returns the notes about unread files, arrays and keys, without the paths of the folders.
fn unread(notes: &[Note]) -> Vec<String> {
    let texts = notes.iter().map(Note::to_string).filter(|text| text.starts_with("these "));
    let list = texts.map(|text| text.rsplit(": ").next().unwrap().replace(" (docs/formats.md)", ""));
    list.collect()
}

fn opened(folder: &Path) -> Vec<String> {
    unread(&Dataset::open(folder).unwrap().notes)
}

#[test]
fn arrays_and_tables_of_other_names_are_noted() {
    let folder = npy_folder();
    let at = folder.path();
    assert_eq!(opened(at), [""; 0]);
    fs::write(at.join("README.txt"), "about").unwrap();
    fs::write(at.join("weight.npy"), npy::write(&[1.0_f32], &[1])).unwrap();
    fs::write(at.join("nodes.csv"), "1\n").unwrap();
    let expected = ["nodes.csv, weight.npy"];
    assert_eq!(opened(at), expected);
    let root = tempfile::tempdir().unwrap();
    let converted = convert(at, root.path().join("out"), &ConvertOptions::default()).unwrap();
    assert_eq!(unread(&converted.notes), expected);
    for number in 0..12 {
        fs::write(at.join(format!("a{number:02}.csv")), "1\n").unwrap();
    }
    let first: Vec<String> = (0..10).map(|number| format!("a{number:02}.csv")).collect();
    assert_eq!(opened(at), [format!("{} and 4 more", first.join(", "))]);
}

#[test]
fn arrays_that_the_manifest_does_not_list_are_noted() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    convert(npy_folder().path(), &set, &ConvertOptions::default()).unwrap();
    assert_eq!(opened(&set), [""; 0]);
    fs::write(set.join("weight.npy"), npy::write(&[1.0_f32], &[1])).unwrap();
    assert_eq!(opened(&set), ["weight.npy"]);
    assert_eq!(unread(&format::verify(&set).unwrap().notes), ["weight.npy"]);
}

#[test]
fn ogb_files_and_arrays_of_other_names_are_noted() {
    let (_parent, at) = crate::ogb::folder("ogbn_arxiv");
    gz(&at, "raw/edge_weight.csv.gz", "1\n1\n1\n1\n");
    assert_eq!(opened(&at), ["edge_weight.csv.gz, node_year.csv.gz"]);
    let archives = crate::ogb::folder_of_archives(CompressionMethod::Stored);
    assert_eq!(opened(archives.path()), ["node_year"]);
    gz(archives.path(), "raw/node-feat.csv.gz", "1\n1\n1\n1\n");
    assert_eq!(opened(archives.path()), ["node_year", "node-feat.csv.gz"]);
}

#[test]
fn edge_features_of_ogb_archives_are_noted() {
    let folder = heterogeneous_ogb_archives::folder_of_archives();
    let values = npy::write(&[1.0_f32], &[1, 1]);
    archive(
        &folder.path().join("raw/edge_feat_dict.npz"),
        CompressionMethod::Stored,
        &[("author___affiliated_with___institution.npy", values.clone())],
    );
    let notes = Dataset::open(folder.path()).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.to_string().contains("edge_feat_dict.npz are not read")),
        "{notes:?}"
    );
    let folder = tempfile::tempdir().unwrap();
    let members = [&crate::ogb::members()[..], &[("edge_feat.npy", values)]].concat();
    crate::ogb::put_archives(folder.path(), CompressionMethod::Stored, &members);
    let notes = Dataset::open(folder.path()).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.to_string().contains("the edge features in edge_feat of")),
        "{notes:?}"
    );
}

#[test]
fn ogb_files_of_several_types_are_noted() {
    let folder = heterogeneous_ogb::folder();
    assert_eq!(opened(folder.path()), ["node_year.csv.gz", "edge_reltype.csv.gz"]);
    gz(folder.path(), "raw/node_year/paper/node_year.csv.gz", "1\n");
    gz(folder.path(), "raw/nodetype-has-feat.csv.gz", "paper\nTrue\n");
    let expected = ["node_year.csv.gz", "edge_reltype.csv.gz", "node_year, nodetype-has-feat.csv.gz"];
    assert_eq!(opened(folder.path()), expected);
    let folder = heterogeneous_ogb_archives::folder_of_archives();
    assert_eq!(opened(folder.path()), ["node_year.npz"]);
}

#[test]
fn files_of_sets_of_graphs_are_noted() {
    let root = tempfile::tempdir().unwrap();
    for name in ["ogbg_molsome", "ogbg_ppa"] {
        let at = root.path().join(name);
        put_graphs(&at, "1\n0\n1\n");
        fs::write(at.join("raw/graph_year.csv"), "1\n1\n1\n").unwrap();
        let notes = GraphDataset::open(&at).unwrap().notes;
        assert_eq!(unread(&notes), ["graph_year.csv"]);
        assert!(notes.iter().any(|note| matches!(note, Note::ReverseEdgesAdded { .. })), "{name}: {notes:?}");
    }
    let at = root.path().join("ogbg_ppa");
    fs::write(at.join("raw/graph-label.npz"), "").unwrap();
    let error = ogb::open_graphs(&at).unwrap_err().to_string();
    assert!(error.contains("graph-label.npz: a set of graphs in archives is not supported"), "{error}");

    let folder = tu::folder();
    tu::put(folder.path(), "node_names", "a\nb\nc\nd\ne\n");
    fs::write(folder.path().join("README.txt"), "about").unwrap();
    assert_eq!(unread(&kiln_data::tu::read(folder.path()).unwrap().notes), ["X_Y_node_names.txt"]);
}

#[test]
fn keys_of_graphbolt_that_have_no_meaning_are_noted() {
    let text = graphbolt::METADATA
        .replace("  num_classes: 5", "  num_clases: 5")
        .replace("    path: edges/edges.npy", "    path: edges/edges.npy\n    weight: edges/weight.npy")
        .replace("dataset_name: small", "dataset_name: small\nversion: {major: 1}");
    let notes = graphbolt::open_as(&text).unwrap().notes;
    assert_eq!(unread(&notes), ["graph.edges[0].weight, tasks[0].num_clases, version"]);
}

/// A partition is no set, and neither is a folder of partitions.
#[test]
fn folders_of_partitions_are_named() {
    for file in ["part.json", "part0/part.json"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
        let error = Dataset::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it has partitions: give their folder to --parts"), "{error}");
    }
}
