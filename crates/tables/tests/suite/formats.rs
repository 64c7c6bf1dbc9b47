//! The same values in Parquet, CSV and JSON lines have the same features and targets.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, Float32Array, Float64Array, LargeStringArray, NullArray, StringArray,
};
use kiln_data::Dataset;
use kiln_feature::{TargetValues, Targets};
use kiln_tables::{FittedTransform, Import};
use parquet::file::properties::WriterProperties;

use crate::helpers::{Tables, features};

fn spec(file: &str, transform: &str, more: &str) -> String {
    format!(
        "{{name: t, nodes: [{{name: t, files: [{file}], key: id, columns: [{{column: x, transform: {transform}}}]{more}}}]}}"
    )
}

/// Imports a column of an array and returns the set with its features.
fn of_array(tables: &Tables, array: ArrayRef, transform: &str, more: &str) -> (Dataset, Vec<f32>) {
    let ids: StringArray = (0..array.len()).map(|row| Some(row.to_string())).collect();
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("x", array)];
    tables.put_parquet("t.parquet", &columns, WriterProperties::default());
    let data = tables.import(&spec("t.parquet", transform, more));
    let found = features(&data, 0);
    (data, found)
}

/// Returns the values of several labels.
fn labels(data: &Dataset) -> Vec<u8> {
    match &data.targets.as_ref().unwrap().values {
        Targets::Values(values) => TargetValues::as_labels(values).unwrap().to_vec(),
        Targets::Classes(_) => panic!("the targets should be values"),
    }
}

#[test]
fn an_empty_text_is_missing_in_every_format() {
    let values = ["3", "", "1", "4", ""];
    let csv: String = values.iter().enumerate().map(|(row, value)| format!("{row},{value}\n")).collect();
    let object = |(row, value): (usize, &&str)| format!("{{\"id\": {row}, \"x\": \"{value}\"}}\n");
    let json: String = values.iter().enumerate().map(object).collect();
    let target = ", target: {multi_label: {column: x, separator: ';'}}";
    for transform in [
        "numeric",
        "standardize",
        "quantile",
        "{one_hot: {max_categories: 2}}",
        "{ordinal: {max_categories: 2}}",
        "{hash: {columns: 4}}",
        "{multi_hot: {max_categories: 9, separator: ';'}}",
        "{time: {parts: [hour]}}",
        "{text: {columns: 4}}",
        "{vector: {columns: 1, separator: ';'}}",
    ] {
        let tables = Tables::new();
        tables.put("t.csv", &format!("id,x\n{csv}"));
        let data = tables.import(&spec("t.csv", transform, target));
        let (expected, wanted) = (features(&data, 0), labels(&data));
        let arrays: [ArrayRef; 3] = [
            Arc::new(StringArray::from(values.to_vec())),
            Arc::new(LargeStringArray::from(values.to_vec())),
            Arc::new(BinaryArray::from(values.map(str::as_bytes).to_vec())),
        ];
        for array in arrays {
            let (data, found) = of_array(&Tables::new(), array, transform, target);
            assert_eq!((found, labels(&data)), (expected.clone(), wanted.clone()), "{transform}");
        }
        let tables = Tables::new();
        let data = tables.put("t.jsonl", &json).import(&spec("t.jsonl", transform, target));
        assert_eq!((features(&data, 0), labels(&data)), (expected, wanted), "{transform}");
    }
}

#[test]
fn a_parquet_column_without_values_is_missing() {
    for transform in ["numeric", "{multi_hot: {max_categories: 2}}", "{vector: {columns: 2}}"] {
        let (data, found) = of_array(&Tables::new(), Arc::new(NullArray::new(3)), transform, "");
        let dim = data.dims()[0].unwrap();
        let indicators: Vec<f32> = found.chunks(dim).map(|row| row[dim - 1]).collect();
        assert_eq!(indicators, [1.0; 3], "{transform}");
        assert_eq!(found.iter().sum::<f32>(), 3.0, "{transform}");
    }
}

#[test]
fn categories_of_numbers_are_their_shortest_text() {
    let arrays: [ArrayRef; 2] = [
        Arc::new(Float32Array::from(vec![0.1, 1.0, 0.1, f32::NAN])),
        Arc::new(Float64Array::from(vec![0.1, 1.0, 0.1, f64::NAN])),
    ];
    for array in arrays {
        let tables = Tables::new();
        of_array(&tables, array, "{one_hot: {max_categories: 9}}", "");
        let import = Import::open(tables.path("set")).unwrap();
        let column = &import.node_type("t").unwrap().columns[0];
        let FittedTransform::OneHot { categories, .. } = &column.transform else { panic!() };
        assert_eq!((categories.as_slice(), column.n_missing), (&["0.1".to_owned(), "1".to_owned()][..], 1));
    }
}
