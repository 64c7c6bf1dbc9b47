//! Each kind of bad row is an error with its place, or is dropped and counted.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array};
use kiln_tables::{BadRowKind, Error, ImportOptions, SpecError};
use parquet::file::properties::WriterProperties;

use crate::helpers::{Tables, edges, features, keys, pairs};

/// Returns a spec of users with an age and of friends, with the kinds that are dropped.
fn spec(users: &str, drop: &str) -> String {
    let without = |kind: &str| drop.split(", ").filter(|other| *other != kind).collect::<Vec<_>>().join(", ");
    let (of_users, of_friends) = (without("dangling"), without("duplicate"));
    format!(
        "
name: users
nodes:
  - name: user
    files: [{users}]
    key: id
    columns: [{{column: age, transform: numeric}}]
    drop: [{of_users}]
relations:
  - name: knows
    files: [knows.csv]
    src: {{type: user, column: a}}
    dst: {{type: user, column: b}}
    weight: w
    drop: [{of_friends}]
"
    )
}

/// Imports users and friends with bad rows of one kind: the error must contain `expected`, and dropping them must give the
/// users `kept`.
fn check(users: &str, knows: &str, kind: BadRowKind, expected: &[&str], kept: &[&str]) {
    let tables = Tables::new();
    tables.put("users.csv", users).put("knows.csv", knows);
    let error = tables.error_of(&spec("users.csv", ""));
    for expected in expected {
        assert!(error.contains(expected), "{error}\n    expected {expected}");
    }
    assert!(error.contains(&format!("or add `drop: [{}]`", kind.name())), "{error}");
    let report =
        tables.import_with(&spec("users.csv", kind.name()), "set", &ImportOptions::default()).unwrap();
    assert!(report.dropped.iter().all(|rows| rows.kind == kind && rows.is_dropped), "{:?}", report.dropped);
    let data = kiln_data::Dataset::open(tables.path("set")).unwrap();
    assert_eq!(keys(&data, 0), kept);
}

#[test]
fn duplicate_keys() {
    let expected = [
        "node type `user`: 2 rows have the key of an earlier row",
        "\n  users.csv, row 3, column \"id\": \"a\", expected a key that no earlier row has",
        "\n  users.csv, row 5, column \"id\": \"b\"",
    ];
    let users = "id,age\na,1\nb,2\na,3\nc,4\nb,5\n";
    check(users, "a,b,w\na,c,1\n", BadRowKind::Duplicate, &expected, &["a", "b", "c"]);
}

#[test]
fn missing_keys_of_nodes() {
    let expected =
        ["node type `user`: 1 row has no key", "users.csv, row 2, column \"id\": missing, expected a key"];
    check("id,age\na,1\n,2\nc,3\n", "a,b,w\na,c,1\n", BadRowKind::MissingKey, &expected, &["a", "c"]);
}

#[test]
fn values_of_a_wrong_type() {
    let expected = [
        "node type `user`: 2 rows have a value of the wrong type",
        "users.csv, row 1, column \"age\": \"old\", expected a finite number in the range of f32",
        "users.csv, row 3, column \"age\": \"inf\"",
    ];
    check("id,age\na,old\nb,2\nc,inf\n", "a,b,w\nb,b,1\n", BadRowKind::WrongType, &expected, &["b"]);
}

#[test]
fn rows_with_another_number_of_fields() {
    let expected = [
        "node type `user`: 2 rows have a value of the wrong type",
        "users.csv, row 2, column \"(row)\": 1 field, expected 2 fields",
        "users.csv, row 3, column \"(row)\": 3 fields",
    ];
    check("id,age\na,1\nb\nc,3,4\n", "a,b,w\na,a,1\n", BadRowKind::WrongType, &expected, &["a"]);
}

#[test]
fn dangling_keys() {
    let expected = [
        "relation `knows`: 2 rows have a key that its node type does not have",
        "\n  knows.csv, row 2, column \"b\": \"z\", expected a key of node type `user` (the destination)",
        "\n  knows.csv, row 3, column \"a\": \"y\", expected a key of node type `user` (the source)",
    ];
    let knows = "a,b,w\na,b,1\na,z,1\ny,a,1\n";
    check("id,age\na,1\nb,2\n", knows, BadRowKind::Dangling, &expected, &["a", "b"]);
}

#[test]
fn a_bad_row_of_a_node_table_explains_its_dangling_edges() {
    let tables = Tables::new();
    tables.put("users.csv", "id,age\na,1\nb,old\n").put("knows.csv", "a,b,w\na,b,1\na,a,1\n");
    let error = tables.error_of(&spec("users.csv", ""));
    let expected = "relation `knows`: 1 row has a key that its node type does not have (1 bad row of node type `user` does \
                    not become a node): correct";
    assert!(error.contains(expected), "{error}");
    let report = tables.import_with(&spec("users.csv", "wrong_type, dangling"), "set", &Default::default());
    let report = report.unwrap().to_string();
    assert!(report.contains("dropped from relation `knows`: 1 row, dangling (1 bad row of"), "{report}");
}

#[test]
fn missing_keys_of_relations() {
    let expected = [
        "relation `knows`: 1 row has no key",
        "knows.csv, row 1, column \"a\": missing, expected a key of node type `user` (the source)",
    ];
    check("id,age\na,1\n", "a,b,w\n,a,1\na,a,1\n", BadRowKind::MissingKey, &expected, &["a"]);
}

#[test]
fn weights_of_a_wrong_type() {
    let expected = [
        "relation `knows`: 3 rows have a value of the wrong type",
        "knows.csv, row 1, column \"w\": \"x\", expected a finite number",
        "knows.csv, row 3, column \"w\": missing, expected a finite number",
        "knows.csv, row 4, column \"(row)\": 1 field, expected 3 fields",
    ];
    check("id,age\na,1\n", "a,b,w\na,a,x\na,a,1\na,a,\na\n", BadRowKind::WrongType, &expected, &["a"]);
}

#[test]
fn lines_that_are_no_json_objects() {
    let tables = Tables::new();
    tables
        .put(
            "users.jsonl",
            "{\"id\": \"a\", \"age\": 1}\n[1]\n{\"id\": \"b\"\n{\"id\": \"c\", \"age\": 2} x\n",
        )
        .put("knows.csv", "a,b,w\n");
    let error = tables.error_of(&spec("users.jsonl", ""));
    assert!(error.contains("3 rows have a value of the wrong type"), "{error}");
    assert!(
        error.contains("users.jsonl, row 2, column \"(row)\": \"[1]\", expected a JSON object"),
        "{error}"
    );
    let report =
        tables.import_with(&spec("users.jsonl", "wrong_type"), "set", &ImportOptions::default()).unwrap();
    assert_eq!((report.dropped[0].n_rows, report.node_types[0].1), (3, 1));
}

#[test]
fn floating_point_keys_are_integers_or_errors_that_name_the_type() {
    let ids = [Some(1000.0), Some(7.0), None, Some(f64::NAN), Some(-3.0)];
    let ages: ArrayRef = Arc::new(Float64Array::from(vec![1.0; 5]));
    let csv = "id,age\n1000.0,1\n7.0,1\n,1\nnan,1\n-3.0,1\n";
    let json = csv.lines().skip(1).map(|line| {
        let id = line.split(',').next().unwrap().replace("nan", "");
        format!("{{\"id\": {}, \"age\": 1}}\n", if id.is_empty() { "null" } else { &id })
    });
    let tables = Tables::new();
    tables.put("knows.csv", "a,b,w\n1000,7.0,1\n-3,1000.0,1\n");
    tables.put("users.csv", csv).put("users.jsonl", &json.collect::<String>());
    let columns = [("id", Arc::new(Float64Array::from(ids.to_vec())) as ArrayRef), ("age", ages)];
    tables.put_parquet("users.parquet", &columns, WriterProperties::default());
    for file in ["users.csv", "users.jsonl", "users.parquet"] {
        let error = tables.error_of(&spec(file, ""));
        assert!(
            error.contains("node type `user`: 2 rows have no key") && !error.contains("wrong"),
            "{error}"
        );
        tables
            .import_with(&spec(file, "missing_key"), file.split_once('.').unwrap().1, &Default::default())
            .unwrap();
        let data = kiln_data::Dataset::open(tables.path(file.split_once('.').unwrap().1)).unwrap();
        assert_eq!(keys(&data, 0), ["1000", "7", "-3"], "{file}");
        assert_eq!(edges(&data, 0), pairs(&[("-3", "1000"), ("1000", "7")]), "{file}");
    }
    tables.put(
        "users.jsonl",
        "{\"id\": 1.5, \"age\": 1}\n{\"id\": true, \"age\": 1}\n{\"id\": 1e300, \"age\": 1}\n",
    );
    let error = tables.error_of(&spec("users.jsonl", ""));
    for (row, found) in
        [(1, "1.5, a floating-point number"), (2, "true, a boolean"), (3, "1e300, a floating-point number")]
    {
        let expected = format!(
            "row {row}, column \"id\": {found}, expected a text, an integer, or a floating-point number that is"
        );
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn ten_rows_of_each_kind_are_shown() {
    let tables = Tables::new();
    let users: String = (0..30).map(|row| format!("a,{row}\n,1\n")).collect();
    let knows = format!("a,b,w\n{}", "z,a,1\n".repeat(40));
    tables.put("users.csv", &format!("id,age\n{users}")).put("knows.csv", &knows);
    let error = tables.error_of(&spec("users.csv", ""));
    for (n_rows, of) in [(29, "have the key of"), (30, "have no key"), (40, "have a key that")] {
        assert!(error.contains(&format!("{n_rows} rows {of}")), "{error}");
    }
    assert_eq!(error.lines().count(), 1 + 3 * 11);
    assert!(error.contains("row 19, column \"id\"") && !error.contains("row 22, column \"id\""), "{error}");
}

#[test]
fn dropped_rows_leave_ids_and_statistics() {
    let tables = Tables::new();
    // The mean of the ages of the kept rows is 3, and their deviation is 1.
    tables
        .put("users.csv", "id,age\na,2\nx,bad\na,100\nb,4\n,7\n")
        .put("knows.csv", "a,b,w\nb,a,1\nx,a,2\na,b,3\nb,,4\n");
    let all = "duplicate, dangling, wrong_type, missing_key";
    let data = tables.import(&spec("users.csv", all).replace("numeric", "standardize"));
    assert_eq!(keys(&data, 0), ["a", "b"]);
    assert_eq!(features(&data, 0), [-1.0, 1.0]);
    assert_eq!(edges(&data, 0), pairs(&[("b", "a"), ("a", "b")]));
    assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [1.0, 3.0]);
}

#[test]
fn columns_that_do_not_exist_are_named() {
    let tables = Tables::new();
    tables.put("knows.csv", "a,b,w\n");
    for (name, text, expected) in [
        ("users.csv", "id,Age\n", "users.csv: no column is named \"age\", expected one of: id, Age"),
        ("users.csv", "id,age,age\n", "users.csv: 2 columns are named \"age\""),
        ("users.jsonl", "{\"id\": 1}\n{\"id\": 2}\n", "users.jsonl: no column is named \"age\""),
    ] {
        tables.put(name, text);
        let error = tables.import_with(&spec(name, ""), "set", &ImportOptions::default()).unwrap_err();
        assert!(
            matches!(error, Error::Spec(SpecError::Column { .. })) && error.to_string().ends_with(expected)
                || error.to_string().contains(expected),
            "{error}"
        );
    }
}

#[test]
fn an_open_quote_is_an_error_with_its_row() {
    let tables = Tables::new();
    tables.put("knows.csv", "a,b,w\n");
    for (text, expected) in [
        ("id,age\n1,\"a\n2,b\n3,c\n", "users.csv: row 1 has a quote that is never closed"),
        ("id,age\n1,2\n\"2,3", "users.csv: row 2 has a quote"),
        ("id,age\r\n1,2\r\n2,\"\"\"3\r\n", "users.csv: row 2 has a quote"),
        ("id,\"age\n1,2\n", "users.csv: the header has a quote"),
        // The record of the parser's end mark is no row of the file.
        ("id,age\n1,\"x\nx", "users.csv: row 1 has a quote"),
    ] {
        tables.put("users.csv", text);
        let error = tables.error_of(&spec("users.csv", "wrong_type"));
        assert!(error.contains(expected), "{error}");
    }
    for (text, kept) in [
        ("id,age\na,\"1\"\n\"b\",\"2\"", &["a", "b"][..]),
        ("\u{feff}id,age\r\n\"a\n\"\"\",1\r\nx,2\r\n", &["a\n\"", "x"]),
        ("id,age\na,1\n\n\nx,2\n\n", &["a", "x"]),
        ("id,age\na,1\r", &["a"]),
        ("id,age", &[]),
    ] {
        tables.put("users.csv", text);
        let out = format!("set {}", text.len());
        tables.import_with(&spec("users.csv", ""), &out, &ImportOptions::default()).unwrap();
        let data = kiln_data::Dataset::open(tables.path(&out)).unwrap();
        assert_eq!(keys(&data, 0), kept, "{text:?}");
    }
}

#[test]
fn content_of_another_kind_is_named() {
    let utf16: Vec<u8> = "\u{feff}id,age\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let tables = Tables::new();
    tables.put("zipped.csv.gz", "id,age\n").put("knows.csv", "a,b,w\n");
    let gzip = std::fs::read(tables.path("zipped.csv.gz")).unwrap();
    for (name, bytes, expected) in [
        ("users.csv", &b""[..], "the file is empty, expected a header with the names of the columns"),
        ("users.csv", b"\n\n", "the file is empty, expected a header"),
        ("users.csv", &utf16, "the file is text in UTF-16, expected UTF-8: convert it"),
        ("users.jsonl", &utf16, "the file is text in UTF-16"),
        ("users.csv", &gzip, "the file is compressed by gzip, expected text, or a name that ends in .gz"),
        (
            "users.csv",
            b"PAR1\x15",
            "the file is a Parquet file, expected text, or a name that ends in .parquet",
        ),
        ("users.csv.gz", b"id,age\n", "the file is not compressed by gzip, expected gzip"),
        ("users.csv.gz", b"", "the file is not compressed by gzip"),
        (
            "users.jsonl",
            b"{\"id\": 1, \"age\": NaN}\n",
            "expected a JSON object, in which NaN and infinity are null",
        ),
        ("users.jsonl", b"[{\"id\": 1, \"age\": 2}]\n", "row 1, column \"(row)\": \"[{"),
    ] {
        std::fs::write(tables.path(name), bytes).unwrap();
        let error = tables.error_of(&spec(name, ""));
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
    for (name, text) in
        [("users.csv", "\u{feff}\"id\",age\na,1\n"), ("users.jsonl", "\u{feff}{\"id\": \"a\", \"age\": 1}\n")]
    {
        tables.put(name, text);
        let out = format!("set of {name}");
        tables.import_with(&spec(name, ""), &out, &ImportOptions::default()).unwrap();
        assert_eq!(keys(&kiln_data::Dataset::open(tables.path(&out)).unwrap(), 0), ["a"]);
    }
}

#[test]
fn columns_of_json_lines_are_checked_over_all_files() {
    let tables = Tables::new();
    let typo = "{\"id\": \"a\", \"agee\": 1}\n";
    tables.put("knows.csv", "a,b,w\n").put("empty.jsonl", "").put("users.jsonl", typo);
    // The last file has no rows.
    let error = tables.error_of(&spec("users.jsonl, empty.jsonl", ""));
    assert!(error.contains("empty.jsonl: no column is named \"age\""), "{error}");
    // The first file has the path of the last one, which alone has the column's key after the other files.
    tables.put("more.jsonl", "{\"id\": \"b\", \"age\": 2}\n").put("users.jsonl", "{\"id\": \"a\"}\n");
    let spec = spec("users.jsonl, more.jsonl, users.jsonl", "duplicate");
    let report = tables.import_with(&spec, "set", &ImportOptions::default()).unwrap();
    assert_eq!(report.node_types[0].1, 2);
}

#[test]
fn an_endless_row_is_an_error() {
    let tables = Tables::new();
    tables.put("knows.csv", "a,b,w\n");
    for (name, text) in [("users.csv.gz", "id,age\n\""), ("users.jsonl.gz", "{\"id\": \"")] {
        tables.put(name, &format!("{text}{}", "x".repeat(20 << 20)));
        let error = tables.error_of(&spec(name, ""));
        assert!(error.contains("a row of more than 16777216 bytes"), "{error}");
    }
}
