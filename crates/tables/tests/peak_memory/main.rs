//! Tests the heap usage of an import, which this binary's allocator counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod hostile;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use kiln_tables::{Import, ImportOptions, import};
use parquet::arrow::ArrowWriter;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Held by the running test, because the allocator counts the whole process.
static RUNNING: Mutex<()> = Mutex::new(());

/// The memory limit, of which 16 MiB are for buffers.
const BUDGET: usize = 22 << 20;

/// Returns the peak heap usage of `run` in bytes, above the usage before it.
fn peak_bytes(run: impl FnOnce()) -> usize {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    run();
    HEAP.peak_usage() - before
}

/// Writes a table with a line per row.
fn put(path: &Path, header: &str, n_rows: usize, line: impl Fn(usize, &mut String)) -> usize {
    let mut text = format!("{header}\n");
    for row in 0..n_rows {
        line(row, &mut text);
        text.push('\n');
    }
    fs::write(path, &text).unwrap();
    text.len()
}

#[test]
fn heap_usage_stays_within_the_memory_limit() {
    let _running = RUNNING.lock();
    let root = tempfile::tempdir().unwrap();
    let (n_users, n_edges) = (200_000, 500_000);
    let user = |row: usize, text: &mut String| {
        write!(text, "user-with-a-long-name-{:040}", row * 7919 % n_users).unwrap()
    };
    let users = put(&root.path().join("users.csv"), "id,x", n_users, |row, text| {
        user(row, text);
        write!(text, ",{}", row % 100).unwrap();
    });
    // Bytes of text that do not fit in memory twice over.
    let edges = put(&root.path().join("edges.csv"), "a,b", n_edges, |row, text| {
        user(row * 31, text);
        text.push(',');
        user(row * 17 / 3, text);
    });
    assert!(2 * BUDGET < users + edges && BUDGET / 2 < users);
    let spec = "
name: large
nodes:
  - name: user
    files: [users.csv]
    key: id
    columns: [{column: x, transform: {text: {columns: 64}}}]
  - {name: tag, from: relations}
relations:
  - {name: knows, files: [edges.csv], src: {type: user, column: a}, dst: {type: user, column: b}, reverse: known}
  - {name: has, files: [edges.csv], src: {type: user, column: a}, dst: {type: tag, column: b}}
";
    fs::write(root.path().join("spec.yaml"), spec).unwrap();
    let out = root.path().join("set");
    let options =
        ImportOptions { memory_bytes: BUDGET as u64, n_threads: Some(2), ..ImportOptions::default() };
    let peak = peak_bytes(|| {
        let report = import(root.path().join("spec.yaml"), &out, &options).unwrap();
        assert_eq!(report.relations[2], ("has".to_owned(), n_edges as u64));
    });
    println!("import: {peak} bytes at the peak");
    assert!(peak <= BUDGET, "the peak heap usage is {peak} bytes, expected at most {BUDGET}");
    // The import should use most of the memory that the buffers leave, because this keeps the number of partitions low.
    assert!((BUDGET - (16 << 20)) / 2 < peak, "the peak heap usage is {peak} bytes");

    // Rows of which most are those of known nodes.
    put(&root.path().join("users.csv"), "id,x", 20_100, |row, text| {
        match row < 20_000 {
            true => user(row, text),
            false => write!(text, "new {row}").unwrap(),
        }
        write!(text, ",{}", row % 100).unwrap();
    });
    put(&root.path().join("edges.csv"), "a,b", 20_000, |row, text| {
        user(row * 31, text);
        text.push(',');
        user(row, text);
    });
    let options = ImportOptions { append_to: Some(out.clone()), ..options };
    let peak = peak_bytes(|| {
        let report = import(root.path().join("spec.yaml"), root.path().join("more"), &options).unwrap();
        let appended = report.appended.unwrap();
        assert_eq!((appended.new_nodes[0], appended.known_rows[0]), (100, 20_000));
        assert_eq!(appended.new_edges, [20_000; 3]);
    });
    println!("append: {peak} bytes at the peak");
    assert!(peak <= BUDGET, "the peak heap usage is {peak} bytes, expected at most {BUDGET}");

    let import = Import::open(&out).unwrap();
    let mut n_rows = 0;
    let peak = peak_bytes(|| {
        let files = [root.path().join("users.csv")];
        let count = &mut |rows: kiln_tables::TransformedRows| {
            n_rows += rows.keys.len();
            Ok(())
        };
        drop(import.transform("user", &files, count).unwrap());
    });
    println!("transform: {peak} bytes at the peak");
    assert!(n_rows == 20_100 && peak < 16 << 20, "{n_rows} rows, {peak} bytes");
}

/// Imports a table and checks the peak heap usage.
fn check_import(root: &Path, file: &str, columns: &str) {
    let spec = format!("{{name: t, nodes: [{{name: t, files: [{file}], key: id, columns: [{columns}]}}]}}");
    fs::write(root.join("spec.yaml"), spec).unwrap();
    let options =
        ImportOptions { memory_bytes: BUDGET as u64, n_threads: Some(2), ..ImportOptions::default() };
    let out = root.join(file.replace('.', "-"));
    let peak = peak_bytes(|| drop(import(root.join("spec.yaml"), &out, &options).unwrap()));
    println!("{file}: {peak} bytes at the peak");
    assert!(peak <= BUDGET, "{file}: the peak heap usage is {peak} bytes, expected at most {BUDGET}");
}

#[test]
fn heap_usage_stays_within_the_limit_for_wide_and_long_rows() {
    const COLUMNS: usize = 300;
    const ROWS: usize = 8192;
    let _running = RUNNING.lock();
    let root = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..COLUMNS).map(|column| format!("c{column}")).collect();
    let numeric = |name: &String| format!("{{column: {name}, transform: numeric}}");
    let columns = names.iter().map(numeric).collect::<Vec<_>>().join(", ");

    // Fields without text.
    let header = format!("id,{}", names.join(","));
    put(&root.path().join("wide.csv"), &header, ROWS, |row, text| {
        write!(text, "{row}{}", ",".repeat(COLUMNS)).unwrap();
    });
    check_import(root.path(), "wide.csv", &columns);

    // Objects without most of the keys.
    let keys = names.iter().map(|name| format!(", \"{name}\": 1")).collect::<String>();
    put(&root.path().join("wide.jsonl"), &format!("{{\"id\": \"first\"{keys}}}"), ROWS, |row, text| {
        write!(text, "{{\"id\": {row}}}").unwrap();
    });
    check_import(root.path(), "wide.jsonl", &columns);

    // Texts of which a batch of 8192 rows would take 48 MiB.
    let ids: ArrayRef = Arc::new((0..ROWS).map(|row| Some(row.to_string())).collect::<StringArray>());
    let texts: ArrayRef =
        Arc::new((0..ROWS).map(|row| Some(format!("{row:06144}"))).collect::<StringArray>());
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let file = fs::File::create(root.path().join("long.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    drop(batch);
    check_import(root.path(), "long.parquet", "{column: text, transform: {hash: {columns: 4}}}");
}
