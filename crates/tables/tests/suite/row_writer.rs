//! Rows that are written to Parquet files are read back, whatever their batches.

use std::fs::File;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use kiln_tables::{Error, OutputColumn, RowWriter, TableFileError};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::helpers::Tables;

#[test]
fn rows_are_read_back() {
    let tables = Tables::new();
    let path = tables.path("rows.parquet");
    let mut writer = RowWriter::create(&path).unwrap();
    for (ids, labels, names, values) in [
        (&[][..], &[][..], &[][..], &[][..]),
        (
            &[3_u32, 1][..],
            &[Some(7_u32), None][..],
            &["anna", "b, \"c\"\n"][..],
            &[0.5_f32, -0.0, 1e-30, 3.25][..],
        ),
        (&[2], &[None], &[""], &[f32::MAX, f32::MIN_POSITIVE]),
    ] {
        let columns = [
            ("item", OutputColumn::U32(ids)),
            ("label", OutputColumn::OptionalU32(labels)),
            ("name", OutputColumn::Text(names)),
            ("first", OutputColumn::F32(&values[..ids.len()])),
            ("scores", OutputColumn::F32Rows { values, width: 2 }),
        ];
        writer.write(&columns).unwrap();
    }
    writer.finish().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 3);
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let [batch] = &batches[..] else { panic!("expected one batch, got {}", batches.len()) };
    let fields: Vec<(String, bool)> =
        batch.schema().fields().iter().map(|field| (field.name().clone(), field.is_nullable())).collect();
    let expected = [("item", false), ("label", true), ("name", false), ("first", false), ("scores", false)];
    assert_eq!(fields, expected.map(|(name, is_nullable)| (name.to_owned(), is_nullable)));
    assert_eq!(batch.column(0).as_primitive::<UInt32Type>().values()[..], [3, 1, 2]);
    let labels = batch.column(1).as_primitive::<UInt32Type>();
    assert_eq!((labels.value(0), labels.is_null(1), labels.is_null(2)), (7, true, true));
    let names: Vec<_> = batch.column(2).as_string::<i32>().iter().flatten().collect();
    assert_eq!(names, ["anna", "b, \"c\"\n", ""]);
    let scores = batch.column(4).as_fixed_size_list();
    assert_eq!(scores.value_length(), 2);
    let values = scores.values().as_primitive::<Float32Type>().values();
    assert_eq!(values[..], [0.5, -0.0, 1e-30, 3.25, f32::MAX, f32::MIN_POSITIVE]);
}

#[test]
fn missing_numbers_and_texts_are_null() {
    let tables = Tables::new();
    let path = tables.path("rows.parquet");
    let mut writer = RowWriter::create(&path).unwrap();
    let columns = [
        ("score", OutputColumn::OptionalF32(&[None, Some(0.5)])),
        ("class", OutputColumn::OptionalText(&[Some(""), None])),
        ("rate", OutputColumn::OptionalF64(&[Some(0.1), None])),
    ];
    writer.write(&columns).unwrap();
    writer.finish().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let [batch] = &batches[..] else { panic!("expected one batch, got {}", batches.len()) };
    assert!(batch.schema().fields().iter().all(|field| field.is_nullable()));
    let scores: Vec<Option<f32>> = batch.column(0).as_primitive::<Float32Type>().iter().collect();
    assert_eq!(scores, [None, Some(0.5)]);
    let classes: Vec<Option<&str>> = batch.column(1).as_string::<i32>().iter().collect();
    assert_eq!(classes, [Some(""), None]);
    let rates: Vec<Option<f64>> = batch.column(2).as_primitive::<Float64Type>().iter().collect();
    assert_eq!(rates, [Some(0.1), None]);
}

#[test]
fn other_columns_and_existing_files_are_errors() {
    let tables = Tables::new();
    let path = tables.path("rows.parquet");
    let mut writer = RowWriter::create(&path).unwrap();
    assert!(matches!(RowWriter::create(&path), Err(Error::Store(_))));
    writer.write(&[("item", OutputColumn::U32(&[1]))]).unwrap();
    for others in [
        &[("item", OutputColumn::F32(&[1.0]))][..],
        &[("label", OutputColumn::U32(&[1]))],
        &[("item", OutputColumn::U32(&[1])), ("label", OutputColumn::U32(&[1]))],
        &[],
    ] {
        assert!(
            matches!(writer.write(others), Err(Error::TableFile(TableFileError::Written { .. }))),
            "{others:?}"
        );
    }
    let lengths = [("item", OutputColumn::U32(&[1, 2])), ("class", OutputColumn::U32(&[1]))];
    let error = RowWriter::create(tables.path("other.parquet")).unwrap().write(&lengths).unwrap_err();
    assert!(error.to_string().contains("other.parquet: cannot write the Parquet file"), "{error}");
}
