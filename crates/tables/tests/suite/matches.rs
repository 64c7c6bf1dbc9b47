//! The files that entries match: names of any bytes, hidden folders, and files with several names.

use std::fs;
use std::path::Path;
use std::process::Command;

use kiln_tables::ImportOptions;

use crate::helpers::{FORMATS, Tables, features, keys};

fn spec(files: &str) -> String {
    format!("{{name: t, nodes: [{{name: u, files: [{files}], key: id}}]}}")
}

/// Imports the nodes of some files, and returns their keys.
fn keys_of(tables: &Tables, files: &str) -> Vec<String> {
    let data = tables.import(&spec(files));
    fs::remove_dir_all(tables.path("set")).unwrap();
    keys(&data, 0)
}

fn put(tables: &Tables, name: &str, key: &str) {
    tables.put_table(name, &["id"], &[&[key]]);
}

#[cfg(unix)]
#[test]
fn names_that_are_not_utf_8_are_matched_as_others() {
    use std::os::unix::ffi::OsStrExt;
    let tables = Tables::new();
    put(&tables, "n/a.csv", "a");
    let name = std::ffi::OsStr::from_bytes(b"\xff.csv");
    fs::write(tables.path("n").join(name), "id\nb\n").unwrap();
    let folder = tables.path("n").join(std::ffi::OsStr::from_bytes(b"z\xe9"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("c.csv"), "id\nc\n").unwrap();
    for (files, expected) in [
        ("n", &["a", "c", "b"][..]),
        ("n/*", &["a", "c", "b"]),
        ("n/**/*.csv", &["a", "c", "b"]),
        ("n/*.csv", &["a", "b"]),
        ("n/a*", &["a"]),
    ] {
        assert_eq!(keys_of(&tables, files), expected, "{files}");
    }
}

#[test]
fn patterns_leave_out_hidden_folders() {
    let tables = Tables::new();
    for (name, key) in [
        ("n/a.csv", "a"),
        ("n/k/l/b.csv", "b"),
        ("n/_temporary/0/c.csv", "c"),
        ("n/k/.trash/d.csv", "d"),
        ("n/k/_e.csv", "e"),
    ] {
        put(&tables, name, key);
    }
    for (files, expected) in [
        ("n", &["a", "b"][..]),
        ("n/**", &["a", "b"]),
        ("n/**/*", &["a", "b"]),
        ("n/**/*.csv", &["a", "b"]),
        ("n/**/**/*.csv", &["a", "b"]),
        ("'**/*.csv'", &["a", "b"]),
        ("n/*/*/*.csv", &["b"]),
        ("n/*/", &["b"]),
        // Names that begin so are matched by such patterns.
        ("n/_temporary/**/*.csv", &["c"]),
        ("n/_*/*/*.csv", &["c"]),
        ("n/**/.trash/*.csv", &["d"]),
        ("n/**/_*.csv", &["e"]),
    ] {
        assert_eq!(keys_of(&tables, files), expected, "{files}");
    }
}

/// Lists and patterns overlap in the same way, however the paths of the spec and of the entries are written.
#[test]
fn an_overlap_does_not_depend_on_the_path_of_the_spec() {
    let tables = Tables::new();
    put(&tables, "a.csv", "a");
    put(&tables, "n/b.csv", "b");
    // The working folder is that of a process.
    if let Ok(path) = std::env::var("KILN_TEST_SPEC") {
        let error = kiln_tables::import(&path, "set", &ImportOptions::default()).unwrap_err();
        println!("error: {error}");
        return;
    }
    for (files, expected) in [
        ("a.csv, '*.csv'", "`*.csv` matches a.csv, which another entry has: remove one of them"),
        ("./a.csv, '*.csv'", "`*.csv` matches a.csv, which another entry has: remove one of them"),
        ("'n/../*.csv', './*.csv'", "`./*.csv` matches a.csv, which another entry has: remove one of them"),
        ("n, ./n/b.csv", "`./n/b.csv` matches n/b.csv, which another entry has: remove one of them"),
    ] {
        fs::write(tables.path("spec.yaml"), spec(files)).unwrap();
        let absolute = tables.path("spec.yaml");
        for path in [Path::new("spec.yaml"), Path::new("./spec.yaml"), Path::new("n/../spec.yaml"), &absolute]
        {
            let name = "matches::an_overlap_does_not_depend_on_the_path_of_the_spec";
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "--nocapture", name]).current_dir(tables.path(""));
            let output = command.env("KILN_TEST_SPEC", path).output().unwrap();
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let expected = format!("error: node type `u`: {expected}");
            assert!(output.contains(&expected), "{}: {files}: {output}", path.display());
        }
    }
    // A file may stand in the list twice.
    let error = tables.error_of(&spec("a.csv, ./a.csv"));
    assert!(error.contains("duplicate"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_link_is_the_file_that_it_names() {
    let tables = Tables::new();
    put(&tables, "n/a.csv", "a");
    std::os::unix::fs::symlink(tables.path("n/a.csv"), tables.path("n/latest.csv")).unwrap();
    let error = tables.error_of(&spec("n/*.csv"));
    assert_eq!(
        error,
        "node type `u`: `n/*.csv` matches n/a.csv and n/latest.csv, which are one file: name one of them"
    );
    assert_eq!(keys_of(&tables, "n/latest.csv"), ["a"]);
}

#[test]
fn a_column_of_the_files_that_is_in_their_path_too_is_noted() {
    for format in FORMATS {
        let tables = Tables::new();
        let spec = "{name: t, nodes: [{name: u, files: [n], key: id, columns: [{column: year, transform: numeric}]}]}";
        tables.put_table(&format!("n/year=2024/0.{format}"), &["id", "year"], &[&["a", "2023"]]);
        let report = tables.import_with(spec, "set", &ImportOptions::default()).unwrap();
        let note = format!(
            "node type `u`: the column \"year\" is in 1 file of 1 and in their path, such as n/year=2024/0.{format}: that of the \
             files is read"
        );
        // The objects of JSON lines have keys of their own.
        let expected: &[String] = if format.starts_with("jsonl") { &[] } else { &[note] };
        assert_eq!(report.notes, expected, "{format}");
        let data = kiln_data::Dataset::open(tables.path("set")).unwrap();
        assert_eq!(features(&data, 0), [2023.0], "{format}");
    }
}

/// Two relations share files, of which one lacks a column of the second one's rows.
#[test]
fn rows_by_value_of_files_without_a_column() {
    for format in FORMATS {
        let tables = Tables::new();
        tables.put_table("u.csv", &["id"], &[&["a"], &["b"]]);
        let row = &["a", "b", "x", "1"];
        let other = &["b", "a", "y", "2"];
        tables.put_table(&format!("1.{format}"), &["s", "d", "kind", "sub"], &[row, other]);
        tables.put_table(&format!("2.{format}"), &["s", "d", "kind"], &[&["a", "a", "x"], &["b", "b", "z"]]);
        let relation = |name: &str, rows: &str| {
            format!(
                "  - {{name: {name}, files: [1.{format}, 2.{format}], where: {rows}, src: {{type: u, column: s}}, dst: {{type: u, column: d}}}}\n"
            )
        };
        let spec = format!(
            "name: t\nnodes:\n  - {{name: u, files: [u.csv], key: id}}\nrelations:\n{}{}",
            relation("A", "{kind: [x]}"),
            relation("B", "{sub: ['2']}")
        );
        let report = tables.import_with(&spec, "set", &ImportOptions::default()).unwrap();
        let untaken = "relation `A`, relation `B`: 1 row taken by none of them by its `where`: 1 with kind=\"z\" sub=missing";
        assert_eq!(report.notes.last().map(String::as_str), Some(untaken), "{format}");
        let data = kiln_data::Dataset::open(tables.path("set")).unwrap();
        let n_edges = [0, 1].map(|relation| data.graph.relation(relation).graph.n_edges());
        assert_eq!(n_edges, [2, 1], "{format}");
    }
}
