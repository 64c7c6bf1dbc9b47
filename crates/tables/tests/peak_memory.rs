//! Tests the heap usage of an import, which this binary's allocator counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kiln_tables::{Import, ImportOptions, import};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

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
    assert!(n_rows == n_users && peak < 16 << 20, "{n_rows} rows, {peak} bytes");
}
