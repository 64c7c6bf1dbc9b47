//! The bodies of the fuzz targets, which the fuzzer and `tests/corpus.rs` run: [`spec`] imports a spec with its tables, and
//! [`parquet`] and [`arrow`] a file with the columns `id`, `x`, `y` and `v`.
//!
//! An input of `spec` is a folder as text: a line `==> NAME <==` begins a file. The text before the first such line is the spec. The
//! invariants: nothing panics, every error has a message of a sensible length, a spec that is accepted is accepted again
//! after it was written as JSON, and a set that is written is valid and opens with its record.
#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

use std::fs;
use std::path::Path;

use kiln_data::format;
use kiln_tables::{Import, ImportOptions, ImportSpec, import, plan};

/// The memory limit of imports in bytes.
const MEMORY_BYTES: u64 = 24 << 20;

/// The maximum length of a message of an error, in bytes, without the rows that it lists.
const MAX_MESSAGE: usize = 20_000;

/// The spec of a file: its columns are read as a key, and as texts, numbers, categories and lists.
const ROWS_SPEC: &str = "
name: parquet
nodes:
  - name: row
    files: [rows.parquet]
    key: id
    columns:
      - {column: x, transform: {one_hot: {max_categories: 3}}}
      - {column: x, transform: {hash: {columns: 2}}}
      - {column: y, transform: standardize}
      - {column: v, transform: {vector: {columns: 2}}}
    drop: [missing_key, wrong_type, duplicate]
";

/// Imports a spec with its tables, and returns true if it is valid.
pub(crate) fn spec(input: &[u8]) -> bool {
    let root = tempfile::tempdir().unwrap();
    unpack(input, root.path());
    import_folder(root.path())
}

/// Imports a Parquet file, and returns true if it is valid.
pub(crate) fn parquet(input: &[u8]) -> bool {
    rows("rows.parquet", input)
}

/// Imports an Arrow file, and returns true if it is valid.
pub(crate) fn arrow(input: &[u8]) -> bool {
    rows("rows.arrow", input)
}

/// Imports a file of rows.
fn rows(name: &str, input: &[u8]) -> bool {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("spec.yaml"), ROWS_SPEC.replace("rows.parquet", name)).unwrap();
    fs::write(root.path().join(name), input).unwrap();
    import_folder(root.path())
}

fn import_folder(root: &Path) -> bool {
    let path = root.join("spec.yaml");
    let out = root.join("set");
    let bytes = fs::read(&path).unwrap();
    match ImportSpec::parse(&path, &bytes) {
        Err(error) => check_message(&error),
        Ok(spec) => {
            let json = serde_json::to_vec(&spec).unwrap();
            let again = ImportSpec::parse(&path, &json).expect("a spec should be accepted as JSON");
            assert!(again == spec, "a spec should be unchanged as JSON");
        }
    }
    if let Ok(plan) = plan(&path) {
        plan.errors.iter().for_each(check_message);
    }
    if let Err(error) = Import::parse(&path, &bytes) {
        check_message(&error);
    }
    let options = ImportOptions { memory_bytes: MEMORY_BYTES, ..ImportOptions::default() };
    match import(&path, &out, &options) {
        Err(error) => {
            check_message(&error);
            assert!(!out.exists(), "an error should leave no output");
            false
        }
        Ok(report) => {
            let verified = format::verify(&out).expect("a written set should be valid");
            assert_eq!(verified.n_nodes as u64, report.node_types.iter().map(|(_, n)| n).sum::<u64>());
            let import = Import::open(&out).expect("a written set should have its record");
            for node_type in &import.spec().nodes {
                let files: Vec<_> = node_type.files.iter().map(|file| root.join(file)).collect();
                if let Err(error) = import.transform(&node_type.name, &files, &mut |_| Ok(())) {
                    check_message(&error);
                    assert!(files.is_empty(), "imported rows should be transformed: {error}");
                }
            }
            true
        }
    }
}

fn check_message(error: &kiln_tables::Error) {
    let message = error.to_string();
    assert!(!message.is_empty() && message.len() < MAX_MESSAGE, "a message of {} bytes", message.len());
}

/// Writes the files of an input. Names that leave the folder are skipped.
fn unpack(input: &[u8], root: &Path) {
    let (mut name, mut start, mut position) = ("spec.yaml".to_owned(), 0, 0);
    let put = |name: &str, bytes: &[u8]| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !name.is_empty() && name.len() < 64 && name.bytes().all(is_plain) && !name.starts_with('.') {
            fs::write(root.join(name), bytes).unwrap();
        }
    };
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        let end = position + line.len();
        let header = std::str::from_utf8(line).ok().map(str::trim_end);
        if let Some(next) = header.and_then(|line| line.strip_prefix("==> ")?.strip_suffix(" <==")) {
            put(&name, &input[start..position]);
            (name, start) = (next.to_owned(), end);
        }
        position = end;
    }
    put(&name, &input[start..]);
    if !root.join("spec.yaml").exists() {
        fs::write(root.join("spec.yaml"), "").unwrap();
    }
}
