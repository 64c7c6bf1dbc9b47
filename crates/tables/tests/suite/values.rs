//! One text per value: a table of odd values has the same features, classes and keys from CSV, JSON lines and Parquet, as
//! `fixtures/values/make.py` computes them with pandas.

use std::fs;
use std::path::Path;

use kiln_data::Dataset;
use kiln_tables::Import;
use serde_json::Value;

use crate::helpers::{Tables, features, keys};

const FORMATS: [&str; 3] = ["csv", "jsonl", "parquet"];

/// The largest difference to the expected feature: the statistics and angles of numpy are rounded in another order.
const TOLERANCE: f32 = 1e-6;

/// Returns the tables of the fixture, and its expected values.
fn fixture() -> (Tables, Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/values");
    let tables = Tables::new();
    for format in FORMATS {
        let name = format!("table.{format}");
        fs::copy(folder.join(&name), tables.path(&name)).unwrap();
    }
    let expected = fs::read(folder.join("expected.json")).unwrap();
    (tables, serde_json::from_slice(&expected).unwrap())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Returns the transforms of a column in a spec.
fn columns(column: &str, transforms: &[&str]) -> String {
    let of = |transform: &&str| {
        let options = match *transform {
            "one_hot" | "ordinal" => "{max_categories: 4}",
            "multi_hot" => "{max_categories: 4, separator: ';'}",
            "hash" | "text" => "{columns: 8}",
            "time" => "{parts: [hour, day_of_week, month]}",
            plain => return format!("{{column: {column}, transform: {plain}}}"),
        };
        format!("{{column: {column}, transform: {{{transform}: {options}}}}}")
    };
    transforms.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn import(tables: &Tables, format: &str, more: &str) -> (Dataset, Import) {
    let spec = format!("{{name: t, nodes: [{{name: t, files: [table.{format}], key: id, {more}}}]}}");
    tables.import_with(&spec, format, &Default::default()).unwrap();
    let set = tables.path(format);
    let found = (Dataset::open(&set).unwrap(), Import::open(&set).unwrap());
    fs::remove_dir_all(set).unwrap();
    found
}

#[test]
fn odd_values_have_the_features_of_pandas_in_every_format() {
    let (tables, expected) = fixture();
    let plan: Vec<String> = expected["plan"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| columns(of[0].as_str().unwrap(), &texts(&of[1])))
        .collect();
    let spec = format!("columns: [{}]", plan.join(", "));
    let rows = expected["features"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    let rows: Vec<f32> = rows.map(|value| value.as_f64().unwrap() as f32).collect();
    let mut first: Option<Vec<u32>> = None;
    for format in FORMATS {
        let (data, import) = import(&tables, format, &spec);
        assert_eq!(keys(&data, 0), texts(&expected["keys"]), "{format}");
        let columns = &import.node_type("t").unwrap().columns;
        let names: Vec<String> = columns.iter().flat_map(|column| column.feature_names()).collect();
        assert_eq!(names, texts(&expected["names"]), "{format}");
        let found = features(&data, 0);
        assert_eq!(found.len(), rows.len());
        for (position, (found, expected)) in found.iter().zip(&rows).enumerate() {
            let name = &names[position % names.len()];
            let row = position / names.len();
            let difference = (found - expected).abs() / expected.abs().max(1.0);
            assert!(difference <= TOLERANCE, "{format}, row {row}, {name}: {found}, expected {expected}");
        }
        let bits: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
        assert!(
            first.get_or_insert_with(|| bits.clone()) == &bits,
            "{format}: the bits should be those of CSV"
        );
    }
}

#[test]
fn odd_values_have_the_classes_of_pandas_in_every_format() {
    let (tables, expected) = fixture();
    for (column, classes) in expected["classes"].as_object().unwrap() {
        for format in FORMATS {
            let (data, _) = import(&tables, format, &format!("target: {{class: {{column: {column}}}}}"));
            assert_eq!(data.targets.unwrap().class_names, texts(classes), "{format}, {column}");
        }
    }
}
