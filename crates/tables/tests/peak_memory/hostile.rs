//! Inputs that would take many times their size in memory: an import of each stays within its limit, or names it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, Float64Array, ListArray, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use kiln_tables::{Error, ImportOptions, import};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::{RUNNING, peak_bytes};

const MIB: usize = 1 << 20;

/// A file with the columns `id` and `x`.
struct Input {
    name: &'static str,
    path: PathBuf,
    /// True if the import must be an error; false if it must succeed.
    fails: bool,
}

fn text(name: &'static str, file: &str, root: &Path, content: &[u8], fails: bool) -> Input {
    let path = root.join(file);
    match file.rsplit('.').next() {
        Some("gz") => {
            let mut writer = GzEncoder::new(File::create(&path).unwrap(), Level::fast());
            writer.write_all(content).unwrap();
            writer.finish().unwrap();
        }
        Some("zst") => fs::write(&path, compress_to_vec(content, CompressionLevel::Fastest)).unwrap(),
        _ => fs::write(&path, content).unwrap(),
    }
    Input { name, path, fails }
}

/// A text in a frame of zstd, whose header has a window and whose block is not compressed.
fn window(name: &'static str, root: &Path, window: u8, content: &[u8], fails: bool) -> Input {
    let path = root.join(format!("window-{window}.csv.zst"));
    let block = (content.len() as u32) << 3 | 1;
    let header = [&[0x28, 0xb5, 0x2f, 0xfd, 0, window][..], &block.to_le_bytes()[..3]].concat();
    fs::write(&path, [&header, content].concat()).unwrap();
    Input { name, path, fails }
}

fn texts(root: &Path) -> Vec<Input> {
    let rows = |row: &str, n_rows: usize| {
        let mut text = String::from("id,x\n");
        for id in 0..n_rows {
            writeln!(text, "{id},{row}").unwrap();
        }
        text.into_bytes()
    };
    let keys_of = |key: &str, n_rows: usize| {
        let rows: String = (0..n_rows).map(|id| format!("{id}{key},1\n")).collect();
        format!("id,x\n{rows}").into_bytes()
    };
    let long = "x".repeat(15 * MIB);
    let commas = ",".repeat(15 * MIB);
    let quoted = format!("\"{}\"", ",\"\"".repeat(4 * MIB));
    let objects =
        |value: &str| format!("{{\"id\": 1, \"x\": 1}}\n{{\"id\": 2, \"x\": {value}}}\n").into_bytes();
    let array = |item: &str, n: usize| format!("[{}]", vec![item; n].join(","));
    let keys: String = (0..1_000_000).map(|key| format!("\"{key}\":0,")).collect();
    vec![
        text("a header of empty fields", "header.csv", root, format!("id,x{commas}\n").as_bytes(), true),
        text("a row of empty fields", "fields.csv", root, format!("id,x\n1,2{commas}\n").as_bytes(), true),
        text("a text", "text.csv", root, &rows(&long, 1), true),
        text("two texts", "texts.csv", root, &rows(&long[..8 * MIB], 2), true),
        text("a compressed text", "text.csv.gz", root, &rows(&long, 1), true),
        text(
            "compressed empty fields",
            "fields.csv.gz",
            root,
            format!("id,x\n1,2{commas}\n").as_bytes(),
            true,
        ),
        text("a quoted text of commas and quotes", "quoted.csv", root, &rows(&quoted, 1), true),
        text("an open quote", "open.csv", root, format!("id,x\n1,\"{long}").as_bytes(), true),
        text(
            "a line break in a quoted text",
            "lines.csv",
            root,
            &rows(&format!("\"{}\"", "\n".repeat(8 * MIB)), 1),
            true,
        ),
        text("texts of 200 KiB", "large.csv", root, &rows(&long[..200 << 10], 80), false),
        text("texts of 200 KiB, compressed", "large.csv.gz", root, &rows(&long[..200 << 10], 300), false),
        text(
            "a header of empty fields with semicolons",
            "semicolons.csv",
            root,
            format!("id;x{}\n", ";".repeat(15 * MIB)).as_bytes(),
            true,
        ),
        text(
            "a row of empty fields with tabs",
            "tabs.tsv",
            root,
            format!("id\tx\n1\t2{}\n", "\t".repeat(15 * MIB)).as_bytes(),
            true,
        ),
        text(
            "a header of quotes",
            "quotes.csv",
            root,
            format!("id,x,\"{}", "\"\"".repeat(8 * MIB)).as_bytes(),
            true,
        ),
        text("a text in zstd", "text.csv.zst", root, &rows(&long, 1), true),
        text("texts of 200 KiB in zstd", "large.csv.zst", root, &rows(&long[..200 << 10], 300), false),
        window("a window of 128 MiB", root, 0x88, &rows("1", 1000), true),
        window("a window of 3.5 TiB", root, 0xff, &rows("1", 1000), true),
        window("a window of 4 MiB", root, 0x60, &rows("1", 1000), false),
        text("keys of 900 KiB", "keys.csv", root, &keys_of(&long[..900 << 10], 60), false),
        text("many short rows", "short.csv", root, &rows("1", 1_000_000), false),
        text("an array of numbers", "array.jsonl", root, &objects(&array("0", 7 * MIB)), true),
        text("an array of arrays", "arrays.jsonl", root, &objects(&array("[]", 5 * MIB)), true),
        text("an array of texts", "letters.jsonl", root, &objects(&array("\"\"", 5 * MIB)), true),
        text("an object of many keys", "keys.jsonl", root, &objects(&format!("{{{keys}\"k\":0}}")), true),
        text("a long text", "text.jsonl", root, &objects(&format!("\"{long}\"")), true),
        text(
            "an escaped text",
            "escaped.jsonl",
            root,
            &objects(&format!("\"{}\"", "\\n".repeat(7 * MIB))),
            true,
        ),
        text(
            "a long key",
            "key.jsonl",
            root,
            format!("{{\"id\": 1, \"x\": 1, \"{long}\": 1}}\n").as_bytes(),
            true,
        ),
        text(
            "spaces",
            "spaces.jsonl",
            root,
            format!("{{\"id\": 1, {} \"x\": 1}}\n", " ".repeat(9 * MIB)).as_bytes(),
            true,
        ),
        text("a compressed array", "array.jsonl.gz", root, &objects(&array("0", 7 * MIB)), true),
        text(
            "empty lines",
            "empty.jsonl",
            root,
            format!("{}{{\"id\": 1, \"x\": 1}}\n", "\n".repeat(9 * MIB)).as_bytes(),
            false,
        ),
    ]
}

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None)
}

/// Writes a Parquet file of texts.
fn parquet(
    name: &'static str,
    file: &str,
    root: &Path,
    texts: &[&str],
    properties: WriterProperties,
    fails: bool,
) -> Input {
    let path = root.join(file);
    let batch = |texts: &[&str]| {
        let ids: ArrayRef = Arc::new((0..texts.len()).map(|row| row as f64).collect::<Float64Array>());
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        RecordBatch::try_from_iter([("id", ids), ("x", texts)]).unwrap()
    };
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch(&[]).schema(), Some(properties)).unwrap();
    texts.chunks(256).for_each(|texts| writer.write(&batch(texts)).unwrap());
    writer.close().unwrap();
    Input { name, path, fails }
}

fn parquets(root: &Path) -> Vec<Input> {
    let long = "x".repeat(40 * MIB);
    let repeated = vec![&long[..MIB / 16]; 8_500];
    let mut skewed = vec!["1"; 400_000];
    skewed[..300].fill(&long[..MIB / 4]);
    let short: Vec<String> = (0..200_000).map(|row| row.to_string()).collect();
    let short: Vec<&str> = short.iter().map(String::as_str).collect();
    let plain = || properties().set_dictionary_enabled(false);
    let snappy = |builder: WriterPropertiesBuilder| builder.set_compression(Compression::SNAPPY).build();
    let gzip = |builder: WriterPropertiesBuilder| {
        builder.set_compression(Compression::GZIP(Default::default())).build()
    };
    vec![
        parquet(
            "a long text of a dictionary",
            "repeated.parquet",
            root,
            &repeated,
            snappy(properties()),
            false,
        ),
        parquet("a text", "text.parquet", root, &[&long], snappy(plain()), true),
        parquet("a text in a dictionary", "dictionary.parquet", root, &[&long], snappy(properties()), true),
        parquet("a text by gzip", "gzip.parquet", root, &[&long], gzip(plain()), true),
        parquet("long texts among short ones", "skewed.parquet", root, &skewed, snappy(plain()), false),
        parquet(
            "prefixes of the text before",
            "delta.parquet",
            root,
            &repeated,
            snappy(plain().set_column_encoding("x".into(), Encoding::DELTA_BYTE_ARRAY)),
            false,
        ),
        parquet(
            "lengths before the texts",
            "lengths.parquet",
            root,
            &skewed,
            snappy(plain().set_column_encoding("x".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)),
            false,
        ),
        parquet("many short rows", "short.parquet", root, &short, gzip(properties()), false),
        columns(
            "lists of a long text of a dictionary",
            "list.parquet",
            root,
            Arc::new(lists(&long[..MIB / 8], 100, 40)),
            snappy(properties()),
            false,
        ),
        columns(
            "long values of a fixed length",
            "fixed.parquet",
            root,
            Arc::new(
                FixedSizeBinaryArray::try_from_iter(vec![&long.as_bytes()[..MIB / 4]; 600].into_iter())
                    .unwrap(),
            ),
            snappy(properties()),
            false,
        ),
        bomb(root),
    ]
}

/// Lists of the same text, which the writer takes once: the values are positions in a dictionary.
fn lists(text: &str, n_rows: usize, n_values: usize) -> ListArray {
    let mut lists = ListBuilder::new(StringDictionaryBuilder::<Int32Type>::new());
    for _ in 0..n_rows {
        lists.values().append_n(text, n_values).unwrap();
        lists.append(true);
    }
    lists.finish()
}

/// Writes a Parquet file of a column at once.
fn columns(
    name: &'static str,
    file: &str,
    root: &Path,
    column: ArrayRef,
    properties: WriterProperties,
    fails: bool,
) -> Input {
    let path = root.join(file);
    let ids: ArrayRef = Arc::new((0..column.len()).map(|row| row as f64).collect::<Float64Array>());
    let batch = RecordBatch::try_from_iter([("id", ids), ("x", column)]).unwrap();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    Input { name, path, fails }
}

/// A page of Parquet that is a thousand times as large as its header states.
fn bomb(root: &Path) -> Input {
    let mut state = 1_u32;
    let noise: String = (0..400_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (state >> 24) as u8 % 26)
        })
        .collect();
    let properties =
        properties().set_dictionary_enabled(false).set_compression(Compression::GZIP(Default::default()));
    let input = parquet(
        "a page larger than its header states",
        "bomb.parquet",
        root,
        &[&noise],
        properties.build(),
        true,
    );
    let mut bytes = fs::read(&input.path).unwrap();
    // The second page is that of the texts.
    let pages: Vec<usize> =
        bytes.windows(3).enumerate().filter(|(_, at)| at == b"\x1f\x8b\x08").map(|(at, _)| at).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Level::best());
    let zeros = vec![0; MIB];
    (0..150).for_each(|_| encoder.write_all(&zeros).unwrap());
    let bomb = encoder.finish().unwrap();
    let at = *pages.last().unwrap();
    assert!(pages.len() == 2 && at + bomb.len() < bytes.len() - 1000);
    bytes[at..at + bomb.len()].copy_from_slice(&bomb);
    fs::write(&input.path, bytes).unwrap();
    input
}

/// An Arrow file with a column of texts in batches of `n_batch_rows`.
fn arrow(
    name: &'static str,
    file: &str,
    root: &Path,
    n_rows: usize,
    n_batch_rows: usize,
    fails: bool,
) -> Input {
    let path = root.join(file);
    let batch = |rows: std::ops::Range<usize>| {
        let ids: ArrayRef = Arc::new(rows.clone().map(|row| Some(row.to_string())).collect::<StringArray>());
        let texts: ArrayRef = Arc::new(rows.map(|row| Some(format!("{row:06144}"))).collect::<StringArray>());
        RecordBatch::try_from_iter([("id", ids), ("x", texts)]).unwrap()
    };
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &batch(0..0).schema()).unwrap();
    for start in (0..n_rows).step_by(n_batch_rows) {
        writer.write(&batch(start..n_rows.min(start + n_batch_rows))).unwrap();
    }
    writer.finish().unwrap();
    Input { name, path, fails }
}

fn arrows(root: &Path) -> Vec<Input> {
    vec![
        arrow("a record batch of 48 MiB", "one.arrow", root, 8192, 8192, true),
        arrow("record batches of 1 MiB", "small.arrow", root, 8192, 171, false),
        arrow("record batches of 6 MiB", "large.arrow", root, 8192, 1024, false),
    ]
}

#[test]
fn hostile_inputs_take_the_limit_or_name_it() {
    let _running = RUNNING.lock();
    let root = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let inputs = texts(root.path()).into_iter().chain(parquets(root.path())).chain(arrows(root.path()));
    for input in inputs {
        let limits: &[u64] = if input.fails { &[32, 64] } else { &[32] };
        for &mebibytes in limits {
            let columns = "{column: x, transform: {hash: {columns: 4}}}";
            let file = input.path.file_name().unwrap().to_str().unwrap();
            let spec = format!(
                "{{name: t, nodes: [{{name: t, files: [{file}], key: id, columns: [{columns}], drop: [wrong_type, duplicate]}}]}}"
            );
            fs::write(root.path().join("spec.yaml"), spec).unwrap();
            let options = ImportOptions {
                memory_bytes: mebibytes << 20,
                n_threads: Some(2),
                ..ImportOptions::default()
            };
            let out = root.path().join("set");
            let mut outcome = None;
            let peak = peak_bytes(|| outcome = Some(import(root.path().join("spec.yaml"), &out, &options)));
            let outcome = outcome.unwrap();
            let said = match &outcome {
                Ok(_) => "imported".to_owned(),
                Err(error) => error.to_string(),
            };
            println!("{}: {mebibytes} MiB, {} MiB at the peak: {}", input.name, peak / MIB, said);
            if (mebibytes as usize) << 20 < peak {
                failures.push(format!("{}: {} of {mebibytes} MiB", input.name, peak / MIB));
            }
            if mebibytes == 32 && outcome.is_err() != input.fails {
                failures.push(format!("{}: {said}", input.name));
            }
            if let Err(error) = outcome {
                let is_named = matches!(&error, Error::Memory { what, .. } if what.contains(file));
                if !is_named && !matches!(error, Error::TableFile(_) | Error::TooLarge { .. }) {
                    failures.push(format!("{}: {error}", input.name));
                }
            } else {
                fs::remove_dir_all(out).unwrap();
            }
        }
        fs::remove_file(input.path).unwrap();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
