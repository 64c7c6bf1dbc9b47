//! Rows of a table by the value of a column: one table for several node types and relations.

use kiln_tables::{ImportOptions, plan};

use crate::helpers::{FORMATS, Tables, edges, features, keys, pairs};

const NODES: [&[&str]; 6] = [
    &["u1", "user", "1", "30"],
    &["i1", "item", "2", "4.5"],
    &["u2", "user", "1.0", ""],
    &["x1", "admin", "1", "1"],
    &["i2", "item", "3", "7"],
    &["x2", "", "1", "1"],
];
const EDGES: [&[&str]; 7] = [
    &["u1", "i1", "buys", "1"],
    &["u2", "i1", "views", "2"],
    &["u1", "i2", "True", "3"],
    &["u2", "i2", "returns", "4"],
    &["u2", "i2", "buys", "5"],
    &["u1", "i1", "returns", "6"],
    &["u1", "i1", "", "7"],
];

fn spec(format: &str, user: &str, likes: &str) -> String {
    format!(
        "
name: t
nodes:
  - {{name: user, files: [nodes.{format}], where: {user}, key: id, columns: [{{column: x, transform: numeric}}]}}
  - {{name: item, files: [nodes.{format}], where: {{type: [item]}}, key: id, columns: [{{column: x, transform: numeric}}]}}
relations:
  - name: buys
    files: [edges.{format}]
    where: {{kind: [buys, views]}}
    src: {{type: user, column: a}}
    dst: {{type: item, column: b}}
    weight: w
  - {{name: likes, files: [edges.{format}], where: {likes}, src: {{type: user, column: a}}, dst: {{type: item, column: b}}}}
"
    )
}

fn put(tables: &Tables, format: &str) {
    tables.put_table(&format!("nodes.{format}"), &["id", "type", "level", "x"], &NODES);
    tables.put_table(&format!("edges.{format}"), &["a", "b", "kind", "w"], &EDGES);
}

#[test]
fn one_table_has_several_types_and_relations() {
    for format in FORMATS {
        let tables = Tables::new();
        put(&tables, format);
        // The values are compared as those of categories: `1` is `1.0`, and `true` is `True`.
        let spec = spec(format, "{type: [user, admin], level: [1]}", "{kind: [\"true\", bought]}");
        let report = tables.import_with(&spec, "set", &ImportOptions::default()).unwrap();
        assert_eq!(
            report.notes,
            [
                "relation `buys`, relation `likes`: 3 rows taken by none of them by its `where`: \
                 2 with kind=\"returns\", 1 with kind=missing",
                "relation `likes`: no row is taken for \"kind\" of \"bought\"",
                "node type `user`, node type `item`: 1 row taken by none of them by its `where`: \
                 1 with level=\"1\" type=missing",
            ],
            "{format}"
        );
        let data = kiln_data::Dataset::open(tables.path("set")).unwrap();
        assert_eq!(keys(&data, 0), ["u1", "u2", "x1"], "{format}");
        assert_eq!(keys(&data, 1), ["i1", "i2"], "{format}");
        assert_eq!(features(&data, 0), [30.0, 0.0, 0.0, 1.0, 1.0, 0.0], "{format}");
        assert_eq!(features(&data, 1), [4.5, 7.0], "{format}");
        assert_eq!(edges(&data, 0), pairs(&[("u1", "i1"), ("u2", "i1"), ("u2", "i2")]), "{format}");
        assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [1.0, 2.0, 5.0], "{format}");
        assert_eq!(edges(&data, 1), pairs(&[("u1", "i2")]), "{format}");
    }
}

#[test]
fn bad_rows_have_the_positions_of_their_file() {
    for format in FORMATS {
        let tables = Tables::new();
        put(&tables, format);
        // The dangling row is the third of the file and the first of the relation.
        let spec = spec(format, "{type: [user], x: [30]}", "{kind: [views]}");
        let error = tables.error_of(&spec);
        let expected =
            format!("edges.{format}, row 2, column \"a\": \"u2\", expected a key of node type `user`");
        assert!(error.contains(&expected), "{error}");
        let error = tables.error_of(&spec.replace("column: x", "column: id"));
        let expected = format!("nodes.{format}, row 1, column \"id\": \"u1\", expected a finite number");
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains(&format!("nodes.{format}, row 5, column \"id\": \"i2\"")), "{error}");
        let error = tables.error_of(&spec.replace("where: {kind: [views]}", "where: {knd: [views]}"));
        assert!(error.contains("no column is named \"knd\""), "{error}");
    }
}

/// A table of which another part of the spec takes all rows has no rows that are not taken.
#[test]
fn rows_that_another_table_takes_are_not_noted() {
    for format in FORMATS {
        let tables = Tables::new();
        put(&tables, format);
        let spec = format!(
            "
name: t
nodes:
  - {{name: node, files: [nodes.{format}], key: id}}
  - {{name: user, files: [nodes.{format}], where: {{type: [user]}}, key: id}}
"
        );
        let report = tables.import_with(&spec, "set", &ImportOptions::default()).unwrap();
        assert_eq!(report.notes, Vec::<String>::new());
        assert_eq!(report.node_types, [("node".to_owned(), 6), ("user".to_owned(), 2)]);
        std::fs::write(tables.path("spec.yaml"), &spec).unwrap();
        let planned = plan(tables.path("spec.yaml")).unwrap();
        let is_stated = ["parquet", "arrow"].contains(&format);
        assert_eq!(planned.node_types[0].n_rows, is_stated.then_some(6), "{format}");
        assert_eq!(planned.node_types[1].n_rows, None, "{format}");
    }
}

/// The keys of a type without a table are those of the rows that its relations take.
#[test]
fn nodes_of_relations_are_those_of_the_taken_rows() {
    for format in FORMATS {
        let tables = Tables::new();
        put(&tables, format);
        let spec = format!(
            "
name: t
nodes: [{{name: user, from: relations}}, {{name: item, from: relations}}]
relations:
  - {{name: views, files: [edges.{format}], where: {{kind: [views]}}, src: {{type: user, column: a}}, dst: {{type: item, column: b}}}}
  - {{name: ends, files: [edges.{format}], where: {{kind: [returns]}}, src: {{type: user, column: a}}, dst: {{type: item, column: b}}}}
"
        );
        for n_threads in [1, 3] {
            let options = ImportOptions { n_threads: Some(n_threads), ..ImportOptions::default() };
            let out = format!("set{n_threads}");
            tables.import_with(&spec, &out, &options).unwrap();
            let data = kiln_data::Dataset::open(tables.path(&out)).unwrap();
            // In the order of their first occurrence, relation by relation.
            assert_eq!(keys(&data, 0), ["u2", "u1"], "{format}");
            assert_eq!(keys(&data, 1), ["i1", "i2"], "{format}");
        }
    }
}
