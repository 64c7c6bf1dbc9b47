//! Each transform against values that were computed by hand.

use std::f64::consts::TAU;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, BooleanArray, Date32Array, StringArray, TimestampMillisecondArray};
use kiln_tables::{Import, hash_bytes};
use parquet::file::properties::WriterProperties;

use crate::helpers::{Tables, features};

/// Imports one column and returns its features. Keys are the numbers of the rows.
fn of_column(values: &[&str], transform: &str) -> Vec<f32> {
    let tables = Tables::new();
    let rows: String = values.iter().enumerate().map(|(row, value)| format!("{row},{value}\n")).collect();
    tables.put("t.csv", &format!("id,x\n{rows}"));
    features(&tables.import(&spec("t.csv", transform)), 0)
}

fn spec(file: &str, transform: &str) -> String {
    format!(
        "
name: t
nodes:
  - {{name: t, files: [{file}], key: id, missing: [NA], columns: [{{column: x, transform: {transform}}}]}}
"
    )
}

/// Imports one column of a Parquet file and returns its features.
fn of_array(array: ArrayRef, transform: &str) -> Vec<f32> {
    let tables = Tables::new();
    let ids: StringArray = (0..array.len()).map(|row| Some(row.to_string())).collect();
    tables.put_parquet("t.parquet", &[("id", Arc::new(ids)), ("x", array)], WriterProperties::default());
    features(&tables.import(&spec("t.parquet", transform)), 0)
}

#[test]
fn numeric_keeps_values_and_marks_missing_ones() {
    assert_eq!(of_column(&["1.5", "-2", "1e3"], "numeric"), [1.5, -2.0, 1000.0]);
    assert_eq!(
        of_column(&["1.5", "", "NA", "nan", "0"], "numeric"),
        [1.5, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    );
    let flags = BooleanArray::from(vec![Some(true), None, Some(false)]);
    assert_eq!(of_array(Arc::new(flags), "numeric"), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn standardize_uses_the_deviation_of_the_population() {
    // The mean is 5, and the squared differences 9, 1, 1, 1, 0, 0, 4, 16 have the mean 4.
    let values = ["2", "4", "4", "4", "5", "5", "7", "9"];
    assert_eq!(of_column(&values, "standardize"), [-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0]);
    assert_eq!(of_column(&["1", "", "3"], "standardize"), [-1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(of_column(&["7", "7"], "standardize"), [0.0, 0.0]);
    assert_eq!(of_column(&["", ""], "standardize"), [0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn quantile_is_the_rank() {
    assert_eq!(of_column(&["30", "10", "20", "20", "90"], "quantile"), [0.75, 0.0, 0.375, 0.375, 1.0]);
    assert_eq!(of_column(&["1", "", "2"], "quantile"), [0.0, 0.0, 0.5, 1.0, 1.0, 0.0]);
}

#[test]
fn one_hot_has_the_most_frequent_categories() {
    let values = ["b", "a", "c", "c", "", "b", "d"];
    let expected = [
        [1., 0., 0., 0.], // b, which is before c among equally frequent ones
        [0., 0., 1., 0.], // a is one of the others
        [0., 1., 0., 0.],
        [0., 1., 0., 0.],
        [0., 0., 0., 1.],
        [1., 0., 0., 0.],
        [0., 0., 1., 0.],
    ];
    assert_eq!(of_column(&values, "{one_hot: {max_categories: 2}}"), expected.as_flattened());
    assert_eq!(of_column(&["x", "y", "x"], "{one_hot: {max_categories: 2}}"), [1., 0., 0., 1., 1., 0.]);
}

#[test]
fn ordinal_is_the_position_of_the_category() {
    let values = ["b", "a", "c", "c", "c", "b", "d"];
    assert_eq!(of_column(&values, "{ordinal: {max_categories: 2}}"), [1., 2., 0., 0., 0., 1., 2.]);
}

#[test]
fn hash_marks_the_column_of_the_text() {
    let found = of_column(&["a", "b", ""], "{hash: {columns: 8}}");
    // The upper bits of a hash select the column, and the ninth column is that of missing values.
    let column = |text: &str| (hash_bytes(text.as_bytes()) >> 61) as usize;
    let mut expected = [0.0; 27];
    expected[column("a")] = 1.0;
    expected[9 + column("b")] = 1.0;
    expected[26] = 1.0;
    assert_eq!(found, expected);
}

#[test]
fn multi_hot_marks_each_item() {
    let transform = "{multi_hot: {max_categories: 2, separator: ';'}}";
    let found = of_column(&["a;b", "b; b", "", "c;b;a"], transform);
    // b occurs in three lists and a in two; c is one of the others.
    assert_eq!(found, [1., 1., 0., 0., 1., 0., 0., 0., 0., 0., 0., 1., 1., 1., 1., 0.]);
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("x"), Some("y")]);
    lists.append_value([Some("y"), None]);
    lists.append_value(Vec::<Option<&str>>::new());
    lists.append_null();
    let found = of_array(Arc::new(lists.finish()), "{multi_hot: {max_categories: 9}}");
    assert_eq!(found, [1., 1., 0., 1., 0., 0., 0., 0., 0., 0., 0., 1.]);
}

#[test]
fn time_has_sine_and_cosine_of_each_part() {
    let parts = "[hour, day_of_week, day_of_month, month, day_of_year]";
    // 2024-02-29 is a Thursday and the 60th day of the year.
    let angles = [18.0 / 24.0, 3.0 / 7.0, 28.0 / 31.0, 1.0 / 12.0, 59.0 / 366.0];
    let expected: Vec<f32> =
        angles.iter().flat_map(|part| [(TAU * part).sin() as f32, (TAU * part).cos() as f32]).collect();
    let transform = format!("{{time: {{parts: {parts}}}}}");
    assert_eq!(of_column(&["2024-02-29T18:59:59.5Z"], &transform), expected);
    assert_eq!(of_column(&["2024-02-29 20:30:00+02:00"], &transform), expected);
    assert_eq!(of_column(&["1709233199"], &transform), expected);
    let millis = TimestampMillisecondArray::from(vec![1_709_233_199_500]);
    assert_eq!(of_array(Arc::new(millis), &transform), expected);
    let transform = "{time: {parts: [month], unit: milliseconds}}";
    assert_eq!(of_column(&["1709233199500", ""], transform)[..3], [expected[6], expected[7], 0.0]);
    let days = Date32Array::from(vec![19_782]);
    assert_eq!(of_array(Arc::new(days), "{time: {parts: [day_of_month]}}"), expected[4..6]);
}

#[test]
fn time_keeps_the_trend_between_years() {
    let transform = "{time: {parts: [month, trend]}}";
    let found = of_column(&["2022-07-01", "2024-07-01", ""], transform);
    // The month is the same; the missing value has zeros and its own column.
    assert_eq!(found[..2], found[4..6]);
    assert_eq!([found[2], found[6], found[10], found[11]], [-1.0, 1.0, 0.0, 1.0]);
    let equal = of_column(&["2022-07-01", "2022-07-01"], "{time: {parts: [trend]}}");
    assert_eq!(equal, [0.0, 0.0]);
}

#[test]
fn text_counts_hashed_words() {
    let found = of_column(&["Red red-wine", ""], "{text: {columns: 64}}");
    let column = |word: &str| (hash_bytes(word.as_bytes()) >> 58) as usize;
    assert_ne!(column("red"), column("wine"));
    let mut expected = vec![0.0; 130];
    expected[column("red")] = (2.0 / 5.0_f64.sqrt()) as f32;
    expected[column("wine")] = (1.0 / 5.0_f64.sqrt()) as f32;
    expected[129] = 1.0;
    assert_eq!(found, expected);
}

#[test]
fn vector_keeps_the_items() {
    let transform = "{vector: {columns: 2, separator: ' '}}";
    assert_eq!(of_column(&["1 2.5", "", "-3 0"], transform), [1., 2.5, 0., 0., 0., 1., -3., 0., 0.]);
    let mut lists = ListBuilder::new(Float32Builder::new());
    lists.append_value([Some(1.0), Some(0.5)]);
    lists.append_value([Some(2.0), Some(4.0)]);
    assert_eq!(of_array(Arc::new(lists.finish()), "{vector: {columns: 2}}"), [1.0, 0.5, 2.0, 4.0]);
}

#[test]
fn values_that_a_transform_cannot_read_are_named() {
    for (value, transform, expected) in [
        ("1e39", "numeric", "\"1e39\", expected a finite number"),
        ("a", "{multi_hot: {max_categories: 2}}", "\"a\", expected a list, or a `separator`"),
        ("soon", "{time: {parts: [hour]}}", "\"soon\", expected a timestamp"),
        ("1 2 3", "{vector: {columns: 2, separator: ' '}}", "expected a list of as many numbers"),
        ("1", "{vector: {columns: 2, separator: ' '}}", "expected a list of as many numbers"),
    ] {
        let tables = Tables::new();
        tables.put("t.csv", &format!("id,x\n1,{value}\n"));
        let error = tables.error_of(&spec("t.csv", transform));
        assert!(error.contains("t.csv, row 1, column \"x\": ") && error.contains(expected), "{error}");
    }
}

#[test]
fn feature_columns_have_names() {
    let tables = Tables::new();
    tables.put("t.csv", "id,x\n1,a\n2,b\n3,b\n4,\n");
    tables.import(&spec("t.csv", "{one_hot: {max_categories: 1}}"));
    let import = Import::open(tables.path("set")).unwrap();
    assert_eq!(import.node_type("t").unwrap().columns[0].feature_names(), ["x=b", "x=other", "x=missing"]);
}
