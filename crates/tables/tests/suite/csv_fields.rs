//! Fields of CSV files that must not become those of other columns or other numbers.

use kiln_tables::{Import, ImportOptions};

use crate::helpers::{Tables, features, keys};

const PRICES: &str = "{name: t, nodes: [{name: u, files: [u.csv], key: id, drop: [wrong_type],
    columns: [{column: price, transform: numeric}]}]}";

#[test]
fn rows_with_a_field_more_than_the_header_do_not_shift_the_columns() {
    let expected = "u.csv: the header has 2 fields and the first rows have 3, expected as many: put values with a separator in \
                    quotes, remove a separator at the ends of the rows, or, if the first field is a row name of R, read it as \
                    the column `row.names` or write the file without it (`row.names = FALSE`)";
    for text in ["id,price\n1,3,50\n2,4,20\n", "id,price\n1,5,\n2,6,\n3,7,\n", "id,price\n1,3,50\n"] {
        assert_eq!(Tables::new().put("u.csv", text).error_of(PRICES), expected, "{text}");
    }
    // One such row is a bad row.
    let tables = Tables::new();
    let data = tables.put("u.csv", "id,price\n1,3,50\n2,4\n").import(PRICES);
    assert_eq!(keys(&data, 0), ["2"]);
    assert_eq!(features(&data, 0), [4.0]);
    // The row names of R, if the spec reads them.
    let spec = PRICES.replace("key: id", "key: row.names");
    let tables = Tables::new();
    let data = tables.put("u.csv", "id,price\na,3,50\nb,4,20\n").import(&spec);
    assert_eq!(keys(&data, 0), ["a", "b"]);
    assert_eq!(features(&data, 0), [50.0, 20.0]);
}

#[test]
fn a_point_is_no_decimal_mark_beside_decimal_commas() {
    let spec = PRICES.replace("key: id", "key: id, csv: {decimal: ','}");
    let text = "id;price\na;1.234\nb;1,5\nc;1.234,5\nd; -2,25\ne;+.5\nf;7\n";
    for transform in ["numeric", "standardize", "{one_hot: {max_categories: 9}}", "{hash: {columns: 2}}"] {
        let spec = spec.replace("drop: [wrong_type],", "").replace("numeric", transform);
        let error = Tables::new().put("u.csv", text).error_of(&spec);
        let expected =
            "row 1, column \"price\": \"1.234\", which has a point instead of a decimal comma, expected";
        assert!(error.contains(expected), "{transform}: {error}");
    }
    let tables = Tables::new();
    let data = tables.put("u.csv", text).import(&spec);
    assert_eq!(keys(&data, 0), ["b", "d", "f"]);
    assert_eq!(features(&data, 0), [1.5, -2.25, 7.0]);
}

#[test]
fn decimal_commas_are_those_of_numbers_only() {
    let tables = Tables::new();
    let spec = "
name: t
nodes:
  - {name: u, files: [u.csv], csv: {decimal: ','}, key: id, columns: [
      {column: tags, transform: {multi_hot: {max_categories: 9, separator: ','}}},
      {column: place, transform: {vector: {columns: 2, separator: ','}}},
      {column: x, transform: numeric}]}
relations:
  - {name: r, files: [r.csv], csv: {decimal: ','}, src: {type: u, column: a}, dst: {type: u, column: b}, weight: w}
";
    tables.put("u.csv", "id;tags;place;x\n1,5;3,7;1,2;0,5\n1.5;3;3,4;1\n1000,0;7;5,6;2\n");
    let data = tables.put("r.csv", "a;b;w\n1,5;1.5;0,25\n1000;1,5;2\n").import(spec);
    // Keys are as they are written, but programs write integers of a column with missing values with a fraction.
    assert_eq!(keys(&data, 0), ["1,5", "1.5", "1000"]);
    let import = Import::open(tables.path("set")).unwrap();
    assert_eq!(import.node_type("u").unwrap().columns[0].feature_names(), ["tags=3", "tags=7"]);
    let expected = [[1., 1., 1., 2., 0.5], [1., 0., 3., 4., 1.], [0., 1., 5., 6., 2.]];
    assert_eq!(features(&data, 0), expected.concat());
    assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [2.0, 0.25]);
}

/// The header has commas and semicolons, and one of the columns is in the path or in another file.
#[test]
fn a_separator_is_found_without_the_columns_that_a_file_need_not_have() {
    let tables = Tables::new();
    let spec = "{name: t, nodes: [{name: u, files: ['*/*.?sv'], key: id, columns: [
        {column: year, transform: numeric}, {column: x, transform: numeric}]}]}";
    for (name, text) in [
        ("year=2023/a.csv", "id;price, net;x\na;1;2\n"),
        ("year=2024/b.csv", "id;price, net\nb;1\n"),
        ("year=2024/c.tsv", "id\tx\tp, q; r\nc\t3\t1\n"),
    ] {
        std::fs::create_dir_all(tables.path(name).parent().unwrap()).unwrap();
        tables.put(name, text);
    }
    let report = tables.import_with(spec, "set", &ImportOptions::default()).unwrap();
    let note = "node type `u`: 1 file of 3 without the column \"x\", such as year=2024/b.csv: its values are missing there";
    assert_eq!(report.notes, [note]);
    let data = kiln_data::Dataset::open(tables.path("set")).unwrap();
    assert_eq!(keys(&data, 0), ["a", "b", "c"]);
    assert_eq!(features(&data, 0), [[2023., 2., 0.], [2024., 0., 1.], [2024., 3., 0.]].concat());
}

/// Each field takes memory, also those of the first line, by which the separator is found.
#[test]
fn the_fields_of_the_header_count_for_each_separator() {
    for (separator, form) in [(",", ""), (";", ""), ("\t", ""), ("|", ", csv: {separator: '|'}")] {
        let spec = format!("{{name: t, nodes: [{{name: u, files: [u.csv], key: id{form}}}]}}");
        let tables = Tables::new();
        // 200 kB of text, and 3.2 MB for the fields, of which a record may have 1 MiB.
        tables.put("u.csv", &format!("id{}\n", separator.repeat(200_000)));
        let options = ImportOptions { memory_bytes: 32 << 20, ..ImportOptions::default() };
        let error = tables.import_with(&spec, "set", &options).unwrap_err();
        assert!(
            matches!(&error, kiln_tables::Error::Memory { what, .. } if what.contains("header")),
            "{separator:?}: {error}"
        );
        // A shorter header is read.
        tables.put("u.csv", &format!("id{}\na{}\n", separator.repeat(40_000), separator.repeat(40_000)));
        tables.import_with(&spec, "set", &options).unwrap();
    }
}
