//! The same values in Parquet, Arrow, CSV and JSON lines have the same features and targets.

use std::sync::Arc;

use arrow_array::types::{Decimal256Type, Float16Type, Int8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array, Decimal64Array,
    Decimal128Array, Decimal256Array, DictionaryArray, DurationNanosecondArray, FixedSizeBinaryArray,
    Float16Array, Float32Array, Float64Array, Int8Array, Int16Array, LargeBinaryArray, LargeStringArray,
    NullArray, StringArray, StringViewArray, Time32MillisecondArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt32Array,
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

/// Returns the category of the only value of an array, or the error of its import.
fn category_of(array: ArrayRef) -> String {
    let tables = Tables::new();
    let ids: StringArray = [Some("a")].into_iter().collect();
    tables.put_parquet("t.parquet", &[("id", Arc::new(ids)), ("x", array)], WriterProperties::default());
    let spec = spec("t.parquet", "{one_hot: {max_categories: 9}}", "");
    if let Err(error) = tables.import_with(&spec, "set", &Default::default()) {
        return error.to_string();
    }
    let import = Import::open(tables.path("set")).unwrap();
    import.node_type("t").unwrap().columns[0].feature_names().concat()
}

#[test]
fn types_of_parquet_have_the_text_of_their_value() {
    /// 2024-01-31T12:30:15Z.
    const SECONDS: i64 = 1_706_704_215;
    type Half = <Float16Type as arrow_array::ArrowPrimitiveType>::Native;
    type Wide = <Decimal256Type as arrow_array::ArrowPrimitiveType>::Native;
    let wide =
        |value: Wide, scale| Decimal256Array::from(vec![value]).with_precision_and_scale(60, scale).unwrap();
    let words: DictionaryArray<Int8Type> = [Some("word")].into_iter().collect();
    let arrays: [(ArrayRef, &str); 31] = [
        (Arc::new(Int8Array::from(vec![-5])), "-5"),
        (Arc::new(Int16Array::from(vec![-5])), "-5"),
        (Arc::new(UInt8Array::from(vec![200])), "200"),
        (Arc::new(UInt32Array::from(vec![u32::MAX])), "4294967295"),
        (Arc::new(Float16Array::from(vec![Half::from_f32(1.5)])), "1.5"),
        (Arc::new(Float16Array::from(vec![Half::from_f32(2.0)])), "2"),
        (Arc::new(BooleanArray::from(vec![false])), "false"),
        (Arc::new(Decimal64Array::from(vec![250]).with_precision_and_scale(10, 2).unwrap()), "2.5"),
        (Arc::new(Decimal128Array::from(vec![-10]).with_precision_and_scale(10, 2).unwrap()), "-0.1"),
        (
            Arc::new(Decimal128Array::from(vec![i128::MAX]).with_precision_and_scale(38, 0).unwrap()),
            "170141183460469231731687303715884105727",
        ),
        (Arc::new(wide(Wide::from_i128(250), 2)), "2.5"),
        (Arc::new(wide(Wide::from_i128(700), 2)), "7"),
        (Arc::new(LargeStringArray::from(vec!["True"])), "true"),
        (Arc::new(StringViewArray::from(vec!["word"])), "word"),
        (Arc::new(BinaryArray::from(vec![&b"word"[..]])), "word"),
        (Arc::new(LargeBinaryArray::from(vec![&b"word"[..]])), "word"),
        (Arc::new(BinaryViewArray::from(vec![&b"word"[..]])), "word"),
        (Arc::new(words), "word"),
        (Arc::new(Date32Array::from(vec![-1])), "1969-12-31"),
        (Arc::new(Date64Array::from(vec![86_400_000])), "1970-01-02"),
        (Arc::new(TimestampSecondArray::from(vec![SECONDS])), "2024-01-31T12:30:15Z"),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![1_000_000 * SECONDS]).with_timezone("+01:00")),
            "2024-01-31T12:30:15Z",
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![1_000_000_000 * SECONDS + 500_000_000])),
            "2024-01-31T12:30:15.5Z",
        ),
        (Arc::new(Float64Array::from(vec![f64::INFINITY])), "inf"),
        (
            Arc::new(wide(Wide::MAX / Wide::from_i128(1 << 60), 0)),
            "a decimal number of more than 128 bits, expected a text",
        ),
        (
            Arc::new(Float64Array::from(vec![1e300])),
            "1e300, a floating-point number, expected a text or a number below 2^64",
        ),
        (
            Arc::new(Time32MillisecondArray::from(vec![1])),
            "a time of day, expected a text, a number, a boolean or a time",
        ),
        (Arc::new(Time64MicrosecondArray::from(vec![1])), "a time of day, expected"),
        (Arc::new(DurationNanosecondArray::from(vec![1])), "a duration, expected"),
        (
            Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab"].into_iter()).unwrap()),
            "a value of the type FixedSizeBinary(2), expected",
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX])),
            "a timestamp, 9223372036854775807 microseconds",
        ),
    ];
    for (array, expected) in arrays {
        let found = category_of(array.clone());
        let is_right =
            found == format!("x={expected}") || found.contains(&format!("column \"x\": {expected}"));
        assert!(is_right, "{}: {found}, expected {expected}", array.data_type());
    }
}

#[test]
fn values_without_a_feature_are_errors_in_every_format() {
    let categories = "{one_hot: {max_categories: 9}}";
    let items = "{multi_hot: {max_categories: 9, separator: ','}}";
    let time = "{time: {parts: [hour]}}";
    let cases: [(&str, &str, &str, ArrayRef, &str); 9] = [
        ("numeric", "1e+300", "1e+300", Arc::new(Float64Array::from(vec![1e300])), "a finite number"),
        ("numeric", "inf", "\"inf\"", Arc::new(Float64Array::from(vec![f64::INFINITY])), "a finite number"),
        ("numeric", "2024-01-31", "\"2024-01-31\"", Arc::new(Date32Array::from(vec![1])), "a finite number"),
        ("numeric", "0x10", "\"0x10\"", Arc::new(StringArray::from(vec!["0x10"])), "a finite number"),
        ("numeric", "1_000", "\"1_000\"", Arc::new(StringArray::from(vec!["1_000"])), "a finite number"),
        (categories, "1e+20", "1e+20", Arc::new(Float64Array::from(vec![1e20])), "a number below 2^64"),
        (
            items,
            "\"['a', 'b']\"",
            "\"['a', 'b']\"",
            Arc::new(StringArray::from(vec!["['a', 'b']"])),
            "not the text of a list",
        ),
        (time, "True", "true", Arc::new(BooleanArray::from(vec![true])), "a timestamp"),
        (time, "0.5", "0.5", Arc::new(Float64Array::from(vec![0.5])), "a timestamp"),
    ];
    for (transform, csv, json, array, expected) in cases {
        let tables = Tables::new();
        let ids: StringArray = [Some("a")].into_iter().collect();
        tables
            .put("t.csv", &format!("id,x\na,{csv}\n"))
            .put("t.jsonl", &format!("{{\"id\": \"a\", \"x\": {json}}}\n"));
        tables.put_parquet("t.parquet", &[("id", Arc::new(ids)), ("x", array)], WriterProperties::default());
        for file in ["t.csv", "t.jsonl", "t.parquet"] {
            let error = tables.error_of(&spec(file, transform, ""));
            let has_place = error.contains(&format!("{file}, row 1, column \"x\": "));
            assert!(has_place && error.contains(expected), "{file}, {transform}: {error}");
        }
    }
}

#[test]
fn numbers_are_read_from_texts_that_only_look_like_one() {
    let texts = [" 1", "+2", ".5", "007", "1e2", "True", "false", "-0.0"];
    let tables = Tables::new();
    let rows = texts.iter().enumerate().map(|(row, text)| format!("{row},{text}\n"));
    let data = tables
        .put("t.csv", &format!("id,x\n{}", rows.collect::<String>()))
        .import(&spec("t.csv", "numeric", ""));
    let found: Vec<u32> = features(&data, 0).iter().map(|value| value.to_bits()).collect();
    assert_eq!(found, [1.0_f32, 2.0, 0.5, 7.0, 100.0, 1.0, 0.0, 0.0].map(f32::to_bits));
}
