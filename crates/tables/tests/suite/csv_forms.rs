//! CSV files as programs write them: separators, quotes, row names, decimal commas, and no header.

use std::fs;

use crate::helpers::{Tables, edges, features, keys, pairs};

/// A node table and an edge table with the same form.
fn spec(csv: &str) -> String {
    format!(
        "
name: t
nodes:
  - {{name: user, files: [users.csv]{csv}, key: id, columns: [{{column: x, transform: numeric}}]}}
relations:
  - {{name: knows, files: [knows.csv]{csv}, src: {{type: user, column: id}}, dst: {{type: user, column: x}}, weight: w}}
"
    )
}

const USERS: [[&str; 3]; 4] = [["id", "x", "note"], ["a", "1.5", ""], ["b", "-2", "p q"], ["c", "", "r"]];
const KNOWS: [[&str; 3]; 3] = [["id", "x", "w"], ["a", "b", "0.5"], ["c", "a", "2"]];

fn text(rows: &[[&str; 3]], separator: char, end: &str) -> String {
    rows.iter().map(|row| row.join(&separator.to_string()) + end).collect()
}

/// Imports the tables, and checks that they have the values of [`USERS`] and [`KNOWS`].
fn check(users: &str, knows: &str, csv: &str) {
    let tables = Tables::new();
    let data = tables.put("users.csv", users).put("knows.csv", knows).import(&spec(csv));
    assert_eq!(keys(&data, 0), ["a", "b", "c"], "{users}");
    assert_eq!(features(&data, 0), [1.5, 0.0, -2.0, 0.0, 0.0, 1.0], "{users}");
    assert_eq!(edges(&data, 0), pairs(&[("c", "a"), ("a", "b")]), "{knows}");
    assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [2.0, 0.5], "{knows}");
}

#[test]
fn separators_are_detected_from_the_header() {
    for separator in [',', ';', '\t'] {
        for end in ["\n", "\r\n", "\r"] {
            let [users, knows] = [&USERS[..], &KNOWS].map(|rows| text(rows, separator, end));
            check(&users, &knows, "");
            check(&format!("\u{feff}{users}"), &format!("\u{feff}{knows}"), "");
            check(&format!("sep={separator}{end}{users}"), &format!("sep={separator}{end}{knows}"), "");
            check(&users, &knows, &format!(", csv: {{separator: {separator:?}}}"));
        }
    }
    let [users, knows] = [&USERS[..], &KNOWS].map(|rows| text(rows, '|', "\n"));
    check(&users, &knows, ", csv: {separator: '|'}");
    let [users, knows] = [&USERS[..], &KNOWS].map(|rows| text(rows, '\t', "\n"));
    check(&users, &knows, ", csv: {separator: tab}");
    check(&users, &knows, ", csv: {separator: \"\\t\"}");
}

#[test]
fn an_ambiguous_header_names_the_key_to_set() {
    let tables = Tables::new();
    let header = "id;x,y;note\n";
    tables.put("users.csv", &format!("{header}a;1;p\n")).put("knows.csv", &text(&KNOWS, ',', "\n"));
    assert_eq!(
        tables.error_of(&spec("")),
        "users.csv: the header has ',' and ';', and is no list of the import's columns with one of them: set the separator in \
         the spec, such as `csv: {separator: ';'}`"
    );
    let tables = Tables::new();
    let [users, knows] = [&USERS[..], &KNOWS].map(|rows| text(rows, '|', "\n"));
    let error = tables.put("users.csv", &users).put("knows.csv", &knows).error_of(&spec(""));
    assert_eq!(
        error,
        "users.csv: no column is named \"id\", expected one of: id|x|note (the fields may have another separator: set \
         `csv: {separator: '|'}` in the spec)"
    );
}

#[test]
fn files_without_a_header_have_the_names_of_the_spec() {
    for separator in [',', ';', '\t'] {
        let users = text(&USERS[1..], separator, "\n");
        let knows = text(&KNOWS[1..], separator, "\n");
        check(&users, &knows, ", csv: {names: [id, x, w]}");
    }
    let tables = Tables::new();
    let [users, knows] = [&USERS[..], &KNOWS].map(|rows| text(rows, ',', "\n"));
    tables.put("users.csv", &users).put("knows.csv", &knows);
    assert_eq!(
        tables.error_of(&spec(", csv: {names: [id, x, note]}")),
        "users.csv: the file is a table with a header, expected rows only: remove `names` of `csv` from the spec"
    );
    tables.put("users.csv", "1;2,5\n");
    let error = tables.error_of(&spec(", csv: {names: [id, x]}"));
    assert!(error.starts_with("users.csv: the first row has ',' and ';'"), "{error}");
    let error = tables.error_of(&spec(", csv: {names: [id, w], separator: ';'}"));
    assert_eq!(error, "users.csv: no column is named \"x\", expected one of: id, w");
    let error = tables.error_of(&spec(", csv: {names: [id, x, w], separator: ';'}"));
    assert!(error.contains("users.csv, row 1, column \"(row)\": 2 fields, expected 3 fields"), "{error}");
}

/// The text of `write.csv(users, row.names = ...)` and of `write.table(users, sep = "\t")` of R 4.
#[test]
fn row_names_of_r_are_a_column() {
    let csv =
        ["\"\",\"x\",\"note\"", "\"a\",1.5,NA", "\"b\",-2,\"p \"\"q\"\"\"", "\"c\",NA,\"r\""].join("\n");
    let table =
        ["\"x\"\t\"note\"", "\"a\"\t1.5\tNA", "\"b\"\t-2\t\"p \\\"q\\\"\tz\"", "\"c\"\tNA\t\"r\""].join("\n");
    for (users, form) in [(csv, ""), (table, ", csv: {escape: '\\'}")] {
        let tables = Tables::new();
        let spec = format!(
            "{{name: t, nodes: [{{name: user, files: [u.csv]{form}, key: row.names, missing: [NA],
              columns: [{{column: x, transform: numeric}}, {{column: note, transform: {{one_hot: {{max_categories: 9}}}}}}]}}]}}"
        );
        let data = tables.put("u.csv", &users).import(&spec);
        assert_eq!(keys(&data, 0), ["a", "b", "c"]);
        let names = kiln_tables::Import::open(tables.path("set")).unwrap();
        let notes = names.node_type("user").unwrap().columns[1].feature_names().join(" ");
        let quoted = if form.is_empty() { "note=p \"q\" note=r" } else { "note=p \"q\"\tz note=r" };
        assert!(notes.starts_with(quoted), "{notes}");
        assert_eq!(features(&data, 0)[..2], [1.5, 0.0]);
    }
    // A spec with the empty name finds it, too.
    let tables = Tables::new();
    tables.put("u.csv", ",x\na,1\n");
    assert_eq!(keys(&tables.import("{name: t, nodes: [{name: u, files: [u.csv], key: ''}]}"), 0), ["a"]);
}

/// Excel of a German system writes semicolons and decimal commas.
#[test]
fn a_decimal_comma_is_read_if_the_spec_has_it() {
    let users = "id;x;note\r\na;1,5;\r\nb;-2;p q\r\nc;;r\r\n";
    let knows = "id;x;w\r\na;b;0,5\r\nc;a;2,0\r\n";
    check(users, knows, ", csv: {decimal: ','}");
    let quoted = "id,x,note\na,\"1,5\",\nb,-2,p q\nc,,r\n";
    check(quoted, knows, ", csv: {decimal: ','}");
    // The same in a table with exponents and texts.
    let tables = Tables::new();
    let spec = "{name: t, nodes: [{name: u, files: [u.csv], key: id, csv: {decimal: ','},
                 columns: [{column: x, transform: {one_hot: {max_categories: 9}}}]}]}";
    tables.put("u.csv", "id;x\na;1,50\nb;1,5e+00\nc;1,2,3\nd;31.12.2024\ne;a,b\n").import(spec);
    let import = kiln_tables::Import::open(tables.path("set")).unwrap();
    let names = import.node_type("u").unwrap().columns[0].feature_names();
    assert_eq!(names, ["x=1.5", "x=1,2,3", "x=31.12.2024", "x=a,b"]);
    let tables = Tables::new();
    let error = tables.put("users.csv", users).put("knows.csv", knows).error_of(&self::spec(""));
    assert!(
        error.contains("users.csv, row 1, column \"x\": \"1,5\", expected")
            && error.contains("`csv: {decimal: ','}`"),
        "{error}"
    );
    assert!(error.contains("knows.csv, row 1, column \"w\": \"0,5\", expected a finite number in the range of f32 with a point"), "{error}");
}

#[test]
fn a_form_of_csv_without_csv_files_is_noted() {
    let tables = Tables::new();
    tables.put("t.jsonl", "{\"id\": 1}\n");
    let spec = "{name: t, nodes: [{name: u, files: [t.jsonl], key: id, csv: {separator: ';'}}]}";
    let report = tables.import_with(spec, "set", &Default::default()).unwrap();
    assert_eq!(report.notes, ["node type `u`: no file is CSV, so `csv` has no effect"]);
}

#[test]
fn a_file_without_a_line_is_an_error() {
    let tables = Tables::new();
    fs::write(tables.path("users.csv"), "").unwrap();
    tables.put("knows.csv", &text(&KNOWS, ',', "\n"));
    assert_eq!(
        tables.error_of(&spec("")),
        "users.csv: the file is empty, expected a header with the names of the columns, or `names` of `csv` in the spec"
    );
}
