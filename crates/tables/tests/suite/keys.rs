//! Keys of any type become ids, and relations become edges.

use std::sync::{Arc, Mutex};

use arrow_array::{Float32Array, Int16Array, Int64Array, StringArray, UInt64Array};
use kiln_data::{Dataset, format};
use kiln_graph::NodeId;
use kiln_store::progress::{ProgressReporter, ProgressScope, ProgressStage};
use kiln_tables::{Error, ImportOptions};
use parquet::file::properties::WriterProperties;

use crate::helpers::{Tables, edges, files, keys, pairs};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const SHOP: &str = "
name: shop
nodes:
  - {name: user, files: [users.csv, more.jsonl.gz], key: id}
  - {name: item, from: relations}
relations:
  - name: buys
    files: [buys.csv.gz]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    weight: n
    reverse: bought by
  - name: knows
    files: [knows.csv]
    src: {type: user, column: a}
    dst: {type: user, column: b}
";

fn shop() -> Tables {
    let tables = Tables::new();
    tables
        .put("users.csv", "id,name\nu3,\"Anna, \"\"A\"\"\"\nu1,Ben\n")
        .put("more.jsonl.gz", "{\"id\": \"u2\"}\n\n{\"name\": null, \"id\": \"ü\"}\n")
        .put("buys.csv.gz", "n,user,item\n2,u1,pen\n0.5,u3,book\n1,ü,pen\n4,u1,ink\n")
        .put("knows.csv", "a,b\nu1,u2\nu1,u2\nu2,u2\n");
    tables
}

#[test]
fn ids_follow_the_rows_and_first_occurrences() {
    let data = shop().import(SHOP);
    assert_eq!(data.to_string(), "shop: 7 nodes of 2 types, 11 edges of 3 relations");
    assert_eq!(keys(&data, 0), ["u3", "u1", "u2", "ü"]);
    assert_eq!(keys(&data, 1), ["pen", "book", "ink"]);
    assert_eq!(edges(&data, 0), pairs(&[("u1", "pen"), ("ü", "pen"), ("u3", "book"), ("u1", "ink")]));
    let reverse = [("book", "u3"), ("pen", "u1"), ("ink", "u1"), ("pen", "ü")];
    assert_eq!(edges(&data, 1), pairs(&reverse));
    assert_eq!(edges(&data, 2), pairs(&[("u1", "u2"), ("u1", "u2"), ("u2", "u2")]));
    let weights = |relation: usize| data.graph.relation(relation).graph.weights().map(<[f32]>::to_vec);
    assert_eq!(weights(0), Some(vec![2.0, 1.0, 0.5, 4.0]));
    assert_eq!(weights(1), Some(vec![0.5, 2.0, 4.0, 1.0]));
    assert_eq!(weights(2), None);
    let names: Vec<&str> = data.graph.iter().map(|relation| relation.name.as_str()).collect();
    assert_eq!(names, ["buys", "bought by", "knows"]);
}

#[test]
fn types_from_relations_have_ids_of_their_own() {
    let tables = Tables::new();
    tables.put("r.csv", "a,b\nx,y\ny,y\nx,z\n");
    let data = tables.import(
        "
name: pairs
nodes: [{name: left, from: relations}, {name: right, from: relations}]
relations:
  - {name: r, files: [r.csv], src: {type: left, column: a}, dst: {type: right, column: b}}
  - {name: s, files: [r.csv], src: {type: right, column: b}, dst: {type: right, column: a}}
",
    );
    assert_eq!((keys(&data, 0), keys(&data, 1)), (names(&["x", "y"]), names(&["y", "z", "x"])));
    assert_eq!(edges(&data, 0), pairs(&[("x", "y"), ("y", "y"), ("x", "z")]));
    assert_eq!(edges(&data, 1), pairs(&[("y", "y"), ("y", "x"), ("z", "x")]));
}

#[test]
fn a_set_has_no_temporary_files() {
    let tables = shop();
    tables.import(SHOP);
    for (name, _) in files(&tables.path("set")) {
        assert!(name.ends_with(".npy") || ["kiln.json", "import.json"].contains(&&*name), "{name}");
    }
}

#[test]
fn integer_keys_of_any_width_match_text() {
    let tables = Tables::new();
    let properties = WriterProperties::default;
    let ids = Arc::new(UInt64Array::from(vec![7, u64::MAX, 8]));
    tables
        .put_parquet(
            "users.parquet",
            &[("other", Arc::new(Int64Array::from(vec![1, 2, 3]))), ("id", ids)],
            properties(),
        )
        .put_parquet(
            "a.parquet",
            &[
                ("b", Arc::new(Int16Array::from(vec![8, 7]))),
                ("w", Arc::new(Float32Array::from(vec![0.25, 0.75]))),
                ("a", Arc::new(StringArray::from(vec!["007", "18446744073709551615"]))),
            ],
            properties(),
        )
        .put("b.csv", "w,a,b\n1,8,8\n");
    let data = tables.import(
        "
name: users
nodes: [{name: user, files: [users.parquet], key: id, key_type: integer}]
relations:
  - {name: r, files: [a.parquet, b.csv], src: {type: user, column: a}, dst: {type: user, column: b}, weight: w}
",
    );
    assert_eq!(keys(&data, 0), ["7", "18446744073709551615", "8"]);
    let largest = "18446744073709551615";
    assert_eq!(edges(&data, 0), pairs(&[(largest, "7"), ("7", "8"), ("8", "8")]));
    assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [0.75, 0.25, 1.0]);
}

/// Returns tables of keys that need several partitions in 24 MiB, and their spec.
fn large() -> (Tables, String) {
    let tables = Tables::new();
    let key = |row: usize| format!("key-{:08}-{}", row * 7919 % 1_000_003, "x".repeat(60));
    let n = 120_000;
    let users: String = (0..n).map(|row| key(row) + "\n").collect();
    tables.put("users.csv", &format!("id\n{users}"));
    let rows: String =
        (0..n).map(|row| format!("{},{}\n", key(row * 31 % n), key(row % 1000 + 5 * n))).collect();
    tables.put("edges.csv", &format!("a,b\n{rows},x\n"));
    let spec = "
name: large
nodes:
  - {name: user, files: [users.csv], key: id}
  - {name: tag, from: relations}
relations:
  - name: has
    files: [edges.csv]
    src: {type: user, column: a}
    dst: {type: tag, column: b}
    drop: [missing_key]
";
    (tables, spec.to_owned())
}

#[test]
fn bytes_do_not_depend_on_the_memory_limit() {
    let (tables, spec) = large();
    for (name, mebibytes) in [("whole", 1024), ("parts", 20)] {
        let options = ImportOptions { memory_bytes: mebibytes << 20, ..ImportOptions::default() };
        tables.import_with(&spec, name, &options).unwrap();
    }
    assert!(files(&tables.path("whole")) == files(&tables.path("parts")), "the sets should be equal");
    format::verify(tables.path("parts")).unwrap();
    let data = Dataset::open(tables.path("parts")).unwrap();
    // The row without a source adds the tag `x`, but no edge.
    assert_eq!((data.graph.n_edges(), data.names[1].len()), (120_000, 1001));
    assert_eq!(data.names[1].get(NodeId(1000)), Some("x"));
}

#[test]
fn a_memory_limit_that_is_too_small_names_a_sufficient_one() {
    let (tables, spec) = large();
    let options = ImportOptions { memory_bytes: 1 << 20, ..ImportOptions::default() };
    let error = tables.import_with(&spec, "small", &options).unwrap_err();
    let Error::Memory { needed_bytes, .. } = error else { panic!("{error}") };
    let options = ImportOptions { memory_bytes: needed_bytes + (4 << 20), ..options };
    tables.import_with(&spec, "small", &options).unwrap();
}

#[test]
fn a_late_memory_error_names_the_limit_of_the_import() {
    let tables = Tables::new();
    // The edges into one node are sorted in memory, after all rows were read.
    let rows = "u,u\n".repeat(1_000_000);
    tables.put("users.csv", "id\nu\n").put("knows.csv", &format!("a,b\n{rows}"));
    let spec = "
name: hub
nodes: [{name: user, files: [users.csv], key: id}]
relations:
  - {name: knows, files: [knows.csv], src: {type: user, column: a}, dst: {type: user, column: b}}
";
    let options = ImportOptions { memory_bytes: 20 << 20, ..ImportOptions::default() };
    let error = tables.import_with(spec, "small", &options).unwrap_err();
    let Error::Memory { what, needed_bytes, budget_bytes } = error else { panic!("{error}") };
    assert!(what.contains("1000000 edges into node 0"), "{what}");
    assert_eq!(budget_bytes, 20 << 20);
    let options = ImportOptions { memory_bytes: needed_bytes, ..options };
    tables.import_with(spec, "small", &options).unwrap();
}

#[test]
fn an_output_that_is_not_empty_is_kept() {
    let tables = shop();
    std::fs::create_dir(tables.path("set")).unwrap();
    tables.put("set/file", "kept");
    let error = tables.import_with(SHOP, "set", &ImportOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Store(kiln_store::Error::NotEmpty { .. })), "{error}");
    assert_eq!(files(&tables.path("set")), [("file".to_owned(), b"kept".to_vec())]);
}

#[test]
fn types_from_relations_take_memory_for_different_keys_only() {
    let tables = Tables::new();
    // An index of all rows of the frequent key would take 8 MiB.
    let n_rows = 300_000;
    let key = |row: usize| if row.is_multiple_of(10) { row % 1000 } else { 1 };
    let rows: String = (0..n_rows).map(|row| format!("u,a-long-name-{:03}\n", key(row))).collect();
    tables.put("users.csv", "id\nu\n").put("tags.csv", &format!("user,tag\n{rows}"));
    let spec = "
name: tags
nodes:
  - {name: user, files: [users.csv], key: id}
  - {name: tag, from: relations}
relations:
  - {name: has, files: [tags.csv], src: {type: user, column: user}, dst: {type: tag, column: tag}}
";
    for (name, mebibytes) in [("whole", 1024), ("parts", 20)] {
        let options = ImportOptions { memory_bytes: mebibytes << 20, ..ImportOptions::default() };
        let report = tables.import_with(spec, name, &options).unwrap();
        assert_eq!((report.node_types[1].1, report.relations[0].1), (101, n_rows as u64));
    }
    assert!(files(&tables.path("whole")) == files(&tables.path("parts")), "the sets should be equal");
}

/// A reporter that records the finished stages.
#[derive(Default)]
struct Finished(Mutex<Vec<String>>);

impl ProgressReporter for Finished {
    fn started(&self, _: &Arc<ProgressStage>) {}

    fn finished(&self, stage: &Arc<ProgressStage>) {
        let line = format!("{}: {}/{:?} {}", stage.name(), stage.done(), stage.total(), stage.unit().name());
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn an_append_reports_how_many_keys_of_the_set_are_copied() {
    let tables = shop();
    let copied = |out: &str, options: &ImportOptions| {
        let finished = Arc::new(Finished::default());
        ProgressScope::new(finished.clone()).run(|| tables.import_with(SHOP, out, options)).unwrap();
        let lines = finished.0.lock().unwrap();
        lines.iter().filter(|line| line.contains("copying")).cloned().collect::<Vec<_>>()
    };
    assert!(copied("set", &ImportOptions::default()).is_empty());
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    assert_eq!(
        copied("more", &options),
        [
            "node type `user`: copying keys of the set: 4/Some(4) nodes",
            "node type `item`: copying keys of the set: 3/Some(3) nodes",
        ]
    );
}
