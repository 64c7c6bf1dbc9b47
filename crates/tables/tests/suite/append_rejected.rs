//! Rows that cannot be appended, and sets to which none can be: each is an error that says what to do, and leaves no file.

use std::fs;
use std::sync::Arc;

use kiln_data::{Dataset, LinkSplit, LinkSplitConfig, format};
use kiln_tables::{EarlierImportError, Error, Import, ImportOptions};

use crate::helpers::{Tables, files};

const SPEC: &str = "
name: shop
nodes:
  - name: user
    files: [users.csv]
    key: id
    columns: [{column: age, transform: standardize}]
    target: {class: {column: class}}
  - {name: item, from: relations}
relations:
  - name: buys
    files: [buys.csv]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    weight: w
    reverse: bought by
";

/// A set, and tables of new rows.
fn shop() -> Tables {
    let tables = Tables::new();
    tables
        .put("users.csv", "id,age,class\na,1,p\nb,2,q\n")
        .put("buys.csv", "user,item,w\na,x,1\nb,y,2\na,y,3\n");
    tables.import(SPEC);
    tables.put("users.csv", "id,age,class\nc,5,p\n").put("buys.csv", "user,item,w\nc,x,1\na,z,2\n");
    tables
}

/// Appends the tables to a set, which fails, and returns the error. No file is left.
fn error_of(tables: &Tables, spec: &str, set: &str) -> Error {
    let options = ImportOptions { append_to: Some(tables.path(set)), ..ImportOptions::default() };
    let before = files_of_root(tables);
    let error = tables.import_with(spec, "failed", &options).unwrap_err();
    fs::remove_file(tables.path("failed.yaml")).unwrap();
    assert_eq!(files_of_root(tables), before, "{error}");
    error
}

fn files_of_root(tables: &Tables) -> Vec<String> {
    let entries = fs::read_dir(tables.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn spec_of_new_rows_must_fit_the_set() {
    let tables = shop();
    for (old, new, expected) in [
        (
            "name: user",
            "name: usr",
            "node type `usr`: the set to append to has no such part, expected one of: user, item (did you mean `user`?)",
        ),
        ("name: buys", "name: bought", "relation `bought`: the set to append to has no such part"),
        (
            "standardize",
            "numeric",
            "the transform of column \"age\" is \"numeric\", expected \"standardize\"",
        ),
        ("column: age,", "column: size,", "columns[0] is \"size\", expected \"age\""),
        ("class: {column: class}", "class: {column: kind}", "its target is"),
        ("key: id\n", "key: id\n    key_type: integer\n", "its key_type is \"integer\", expected \"text\""),
        ("name: item, from: relations", "name: item, files: [users.csv], key: id", "its `from` is null"),
        ("weight: w\n", "edge_columns: [{column: w}]\n", "relation `buys`: `weight` is null, expected \"w\""),
        ("    reverse: bought by\n", "", "`reverse` is null, expected \"bought by\""),
        (
            "src: {type: user, column: user}",
            "src: {type: item, column: item}",
            "`src` is \"item\", expected \"user\"",
        ),
        ("files: [users.csv]", "files: [none.csv]", "none.csv"),
        ("column: user}", "column: usr}", "no column is named \"usr\""),
    ] {
        assert!(SPEC.contains(old), "{old}");
        let error = error_of(&tables, &SPEC.replacen(old, new, 1), "set");
        assert!(error.to_string().contains(expected), "{error}");
    }
    // A class that the set does not have, and an edge of an unknown user.
    tables.put("users.csv", "id,age,class\nc,5,r\n");
    let error = error_of(&tables, SPEC, "set").to_string();
    assert!(
        error.contains("expected a class of the set (for a new class, import all tables again)"),
        "{error}"
    );
    tables.put("users.csv", "id,age,class\nd,5,p\n");
    let error = error_of(&tables, SPEC, "set").to_string();
    assert!(error.contains("a key that its node type does not have"), "{error}");
    let transforms_of = Some(Arc::new(Import::open(tables.path("set")).unwrap()));
    let options =
        ImportOptions { transforms_of, append_to: Some(tables.path("set")), ..ImportOptions::default() };
    let error = tables.import_with(SPEC, "failed", &options).unwrap_err();
    assert!(matches!(error, Error::EarlierImport(EarlierImportError::TwoImports)), "{error}");
}

#[test]
fn sets_without_the_parts_of_an_import_are_rejected() {
    let tables = shop();
    let data = Dataset::open(tables.path("set")).unwrap();
    format::write(&data, tables.path("written")).unwrap();
    let error = error_of(&tables, SPEC, "written");
    assert!(matches!(error, Error::EarlierImport(EarlierImportError::NoImport { .. })), "{error}");
    for folder in ["parts", "parts/part0"] {
        fs::create_dir(tables.path(folder)).unwrap();
    }
    tables.put("parts/part0/part.json", "{}");
    for set in ["parts", "parts/part0"] {
        let error = error_of(&tables, SPEC, set);
        assert!(matches!(error, Error::EarlierImport(EarlierImportError::Partitioned { .. })), "{error}");
    }
    assert!(error_of(&tables, SPEC, "none").to_string().contains("none"), "the error should name the folder");

    let config = LinkSplitConfig { val: 0.3, test: 0.3, ..LinkSplitConfig::default() };
    let split = LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &config, 0).unwrap();
    let links = Some(split.dataset_links().clone());
    let split = Dataset { graph: split.message().clone(), links, ..data.clone() };
    format::write_with_attachments(&split, tables.path("links"), tables.path("set")).unwrap();
    let error = error_of(&tables, SPEC, "links");
    assert!(matches!(error, Error::EarlierImport(EarlierImportError::HasLinks { .. })), "{error}");

    // The record belongs to a set of other parts.
    let without_features =
        Dataset { features: vec![None; 2], feature_columns: vec![vec![]; 2], ..data.clone() };
    let without_targets = Dataset { targets: None, ..data.clone() };
    let without_names = Dataset { names: vec![Arc::default(); 2], ..data.clone() };
    let without_weights = data.clone().without_edge_rows().unwrap();
    let graph = &without_weights.graph;
    let relations = graph.iter().take(1).cloned().collect();
    let graph = Arc::new(kiln_graph::Relations::new(graph.types().clone(), relations).unwrap());
    let without_reverse = Dataset { graph, ..data.clone() };
    for (name, changed, expected) in [
        ("features", without_features, "node type `user` has other feature columns"),
        ("targets", without_targets, "node type `user` has other targets"),
        ("names", without_names, "node type `user` has nodes without names"),
        ("reverse", without_reverse, "its relations are buys, expected buys, bought by"),
    ] {
        format::write_with_attachments(&changed, tables.path(name), tables.path("set")).unwrap();
        let error = error_of(&tables, SPEC, name);
        assert!(matches!(error, Error::EarlierImport(EarlierImportError::Changed { .. })), "{name}: {error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn damaged_sets_are_rejected() {
    for name in files(&shop().path("set")).into_iter().map(|(name, _)| name) {
        let tables = shop();
        let path = tables.path("set").join(&name);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        // The last byte of an array is one of a value, and that of a JSON file is a line feed.
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = error_of(&tables, SPEC, "set").to_string();
        // The number of edges in the offsets is compared with the file that it must match.
        let matching = name.replace("indptr", "indices");
        assert!(error.contains(&name) || error.contains(&matching), "{name}: {error}");
    }
}

#[test]
fn first_new_rows_of_a_manifest_must_fit_its_types() {
    let tables = shop();
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    tables.import_with(SPEC, "more", &options).unwrap();
    assert_eq!(Dataset::open(tables.path("more")).unwrap().first_new, Some(vec![2, 2]));
    let manifest = tables.path("more/kiln.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (found, expected) in [
        (serde_json::json!([2]), "first_new is 1, expected 2 numbers, one per node type"),
        (serde_json::json!([2, 4]), "first_new[1] is 4, expected at most 3"),
        (serde_json::json!("all"), "kiln.json"),
    ] {
        value["first_new"] = found;
        fs::write(&manifest, value.to_string()).unwrap();
        let error = Dataset::open(tables.path("more")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
