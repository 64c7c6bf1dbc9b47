//! Tests of the detection of a data set's format from the names of its files.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{DatasetFormat, Error, detect_format, open};
use kiln_store::{Error as StoreError, npy};
use tempfile::TempDir;

/// Creates a folder that contains empty files with these names.
fn folder(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), names);
    folder
}

fn put(folder: &Path, names: &[&str]) {
    for name in names {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
}

#[test]
fn detects_formats_by_file_names() {
    for (names, kind) in [
        (&["kiln.json", "indptr.npy"][..], DatasetFormat::Kiln),
        (&["metadata.yaml", "edges.csv"], DatasetFormat::GraphBolt),
        (&["preprocessed/metadata.yaml"], DatasetFormat::GraphBolt),
        (&["raw/edge.csv.gz", "split/time/train.csv.gz"], DatasetFormat::Ogb),
        (&["raw/data.npz"], DatasetFormat::Ogb),
        (&["raw/triplet-type-list.csv.gz"], DatasetFormat::Ogb),
        (&["MUTAG_A.txt", "MUTAG_graph_indicator.txt"], DatasetFormat::Tu),
        (&["MUTAG_A.txt.gz"], DatasetFormat::Tu),
        (&["MUTAG_A.txt", "edges.csv"], DatasetFormat::Tu),
        (&["indptr.npy", "notes_A.txt"], DatasetFormat::Npy),
        (&["indptr.npy"], DatasetFormat::Npy),
        (&["edges.npy"], DatasetFormat::Npy),
        (&["edges.csv"], DatasetFormat::Npy),
        (&["edges.csv.gz"], DatasetFormat::Npy),
        (&["src.npy", "dst.npy"], DatasetFormat::Npy),
    ] {
        assert_eq!(detect_format(folder(names).path()).unwrap(), kind, "{names:?}");
    }
}

#[test]
fn detects_gin_files_by_their_first_lines() {
    let folder = folder(&[]);
    let path = folder.path().join("MUTAG.txt");
    let detect_format = |text: &str| {
        fs::write(&path, text).unwrap();
        detect_format(&path).ok()
    };
    assert_eq!(detect_format("188\n23 0\n2 2 1 13\n"), Some(DatasetFormat::Gin));
    assert_eq!(detect_format("188\r\n23 -1\r\n"), Some(DatasetFormat::Gin));
    for text in ["", "188\n", "188\n23 a\n", "a\n23 0\n", "188 2\n23 0\n", "\n\n\n", "\u{0}\u{1}\n1 2"] {
        assert_eq!(detect_format(text), None, "{text:?}");
    }
}

/// Returns the error message for a path that is not a data set.
fn refusal(path: &Path) -> String {
    let error = detect_format(path).unwrap_err();
    assert!(matches!(&error, Error::Unrecognised { .. }), "{error}");
    assert!(matches!(open(path).unwrap_err(), Error::Unrecognised { .. }));
    error.to_string()
}

#[test]
fn unrecognised_path_error_lists_the_known_formats() {
    let folder = folder(&["notes.txt"]);
    let said = refusal(folder.path());
    assert!(
        said.contains("is not a data set of a known format: looked for kiln.json (kiln), metadata.yaml"),
        "{said}"
    );
    assert!(said.ends_with("a text file that starts with numbers (GIN)"), "{said}");
    refusal(&folder.path().join("notes.txt"));
    let error = detect_format(folder.path().join("absent")).unwrap_err();
    assert!(
        matches!(&error, Error::Store(StoreError::Io { path, .. }) if path.ends_with("absent")),
        "{error}"
    );
}

#[test]
fn unrecognised_path_error_names_data_sets_nearby() {
    let at = folder(&["ogbn_arxiv/raw/edge.csv.gz", "other/notes.txt"]);
    let said = refusal(at.path());
    assert!(said.ends_with("but its subfolder ogbn_arxiv is an OGB folder: open that"), "{said}");
    for inside in ["ogbn_arxiv/raw", "ogbn_arxiv/raw/edge.csv.gz"] {
        let said = refusal(&at.path().join(inside));
        assert!(
            said.contains("but it is inside ") && said.ends_with("is an OGB folder: open that"),
            "{said}"
        );
    }
    put(at.path(), &["MUTAG/MUTAG_A.txt"]);
    let said = refusal(at.path());
    assert!(said.ends_with("open one: MUTAG (a TU folder), ogbn_arxiv (an OGB folder)"), "{said}");
}

#[test]
fn open_rejects_graph_classification_sets() {
    let error = open(folder(&["MUTAG_A.txt"]).path()).unwrap_err();
    assert!(matches!(&error, Error::WrongKind { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.ends_with("is a TU folder (graph classification), expected a node classification set"),
        "{said}"
    );
}

#[test]
fn opens_a_folder_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).unwrap();
    put("indptr.npy", npy::write(&[0_i64, 0, 1], &[3]));
    put("indices.npy", npy::write(&[0_i32], &[1]));
    put("features.npy", npy::write(&[0.5_f32, 1.5], &[2, 1]));
    put("labels.npy", npy::write(&[0_i32, 1], &[2]));
    for (part, node) in [("train.npy", 0), ("val.npy", 1), ("test.npy", 1)] {
        put(part, npy::write(&[node], &[1]));
    }
    assert_eq!(open(folder.path()).unwrap().labels().n_classes(), 2);
}
