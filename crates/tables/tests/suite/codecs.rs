//! Codecs of Parquet files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::StringArray;
use kiln_tables::{Error, ImportOptions, TableFileError};
use parquet::basic::{BrotliLevel, Compression, GzipLevel};
use parquet::file::properties::WriterProperties;

use crate::helpers::{Tables, keys};

const SPEC: &str = "{name: t, nodes: [{name: t, files: [t.parquet], key: id}]}";

/// Writes a table whose pages are long enough to be compressed.
fn put(tables: &Tables, codec: Compression) {
    let ids: StringArray = (0..2000).map(|row| Some(format!("key {row}"))).collect();
    let properties = WriterProperties::builder().set_compression(codec).set_dictionary_enabled(false).build();
    tables.put_parquet("t.parquet", &[("id", Arc::new(ids))], properties);
}

#[test]
fn built_in_codecs_are_read() {
    let mut sizes = Vec::new();
    let codecs = [
        (Compression::UNCOMPRESSED, true),
        (Compression::SNAPPY, true),
        (Compression::GZIP(GzipLevel::default()), true),
        (Compression::LZ4, true),
        (Compression::LZ4_RAW, true),
        (Compression::BROTLI(BrotliLevel::default()), cfg!(feature = "brotli")),
    ];
    for (codec, _) in codecs.into_iter().filter(|(_, is_built_in)| *is_built_in) {
        let tables = Tables::new();
        put(&tables, codec);
        sizes.push(fs::metadata(tables.path("t.parquet")).unwrap().len());
        let data = tables.import(SPEC);
        assert_eq!((keys(&data, 0).len(), &*keys(&data, 0)[1999]), (2000, "key 1999"), "{codec}");
    }
    assert!(sizes[1..].iter().all(|size| *size < sizes[0]), "the files should be compressed: {sizes:?}");
}

/// Replaces the number of snappy in the metadata, at the end of the file, by another codec, because its writer is not built
/// in.
#[cfg(not(feature = "brotli"))]
#[test]
fn a_codec_that_is_not_built_in_is_named() {
    let tables = Tables::new();
    let codecs = [(Compression::BROTLI(BrotliLevel::default()), "BROTLI", "brotli")];
    for (codec, name, feature) in codecs {
        let path = tables.path("t.parquet");
        write_with_codec(&tables, codec);
        let error = tables.import_with(SPEC, "set", &ImportOptions::default()).unwrap_err();
        let Error::TableFile(TableFileError::Codec { path: of, column, codec, feature: found }) = &error
        else {
            panic!("{error}")
        };
        assert!(*of == path && column == "id" && codec.starts_with(name) && *found == feature, "{error}");
        assert!(error.to_string().contains(&format!("build it with the feature `{feature}`")), "{error}");
    }
}

/// Writes a table, and then its metadata with another codec.
#[cfg(not(feature = "brotli"))]
fn write_with_codec(tables: &Tables, codec: Compression) {
    use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
    put(tables, Compression::UNCOMPRESSED);
    let path = tables.path("t.parquet");
    let mut bytes = fs::read(&path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&fs::File::open(&path).unwrap()).unwrap();
    let mut builder = metadata.into_builder();
    let mut groups = Vec::new();
    for group in builder.take_row_groups() {
        let mut group = group.into_builder();
        let columns = group.take_columns().into_iter();
        let columns =
            columns.map(|column| column.into_builder().set_compression(codec).build().unwrap()).collect();
        groups.push(group.set_column_metadata(columns).build().unwrap());
    }
    let metadata = builder.set_row_groups(groups).build();
    let n_metadata = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap());
    bytes.truncate(bytes.len() - 8 - n_metadata as usize);
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &metadata).finish().unwrap();
    bytes.extend(footer);
    fs::write(&path, bytes).unwrap();
}

/// Files of Polars and pyarrow, whose columns are in zstd and LZ4.
#[test]
fn damaged_files_of_other_programs_are_errors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs");
    check_damaged("t.parquet", &fs::read(folder.join("table.polars.parquet")).unwrap());
    check_damaged("t.arrow", &fs::read(folder.join("table.polars-zstd.arrow")).unwrap());
    check_damaged("t.feather", &fs::read(folder.join("table.pyarrow-lz4.feather")).unwrap());
    check_damaged("t.arrow", &fs::read(folder.join("table.pyarrow-stream.arrow")).unwrap());
}

#[test]
fn damaged_files_are_errors() {
    let tables = Tables::new();
    put(&tables, Compression::SNAPPY);
    check_damaged("t.parquet", &fs::read(tables.path("t.parquet")).unwrap());
}

/// Imports a file with a bit that is not as it was, or without its end.
fn check_damaged(name: &str, bytes: &[u8]) {
    let tables = Tables::new();
    let path = tables.path(name);
    let spec = SPEC.replace("t.parquet", name);
    let (mut n_errors, mut n_read) = (0, 0);
    for position in 0..400 {
        let mut damaged = bytes.to_vec();
        let at = position * 7919 % bytes.len();
        damaged[at] ^= 1 << (position % 8);
        fs::write(&path, damaged).unwrap();
        let out = format!("set{position}");
        match tables.import_with(&spec, &out, &ImportOptions::default()) {
            Ok(_) => n_read += 1,
            Err(error) => {
                n_errors += 1;
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }
    for length in (0..bytes.len()).step_by(bytes.len() / 50) {
        fs::write(&path, &bytes[..length]).unwrap();
        match tables.import_with(&spec, &format!("cut{length}"), &ImportOptions::default()) {
            // A stream may end after any message.
            Ok(_) => assert!(bytes.starts_with(&[0xff; 4]), "{name}: {length} bytes of {}", bytes.len()),
            Err(Error::TableFile(TableFileError::Parquet { .. } | TableFileError::Arrow { .. })) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(10 < n_errors && 20 < n_read, "{name}: {n_errors} errors, {n_read} sets");
}

/// The library builds a schema by recursion. A footer of a few kilobytes with thousands of groups must not end the process.
#[test]
fn a_parquet_schema_of_many_nested_groups_is_an_error() {
    let tables = Tables::new();
    // Version 1, and a list of elements, each with a name and one child, except the last.
    let mut metadata = vec![0x15, 2, 0x19, 0xfc, 0xb9, 0x17];
    for _ in 0..3_000 {
        metadata.extend([0x48, 1, b'g', 0x15, 2, 0]);
    }
    metadata.extend([0x15, 12, 0x25, 2, 0x18, 1, b'a', 0, 0x16, 0, 0x19, 0x0c, 0]);
    let length = (metadata.len() as u32).to_le_bytes();
    let bytes = [b"PAR1".to_vec(), metadata, length.to_vec(), b"PAR1".to_vec()].concat();
    std::fs::write(tables.path("deep.parquet"), bytes).unwrap();
    let spec = "
name: deep
nodes: [{name: node, files: [deep.parquet], key: g, columns: []}]
relations: []
";
    let error = tables.error_of(spec);
    assert!(
        error.contains("deep.parquet: cannot read the Parquet file: its schema has 3000 nested groups"),
        "{error}"
    );
}
