use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::batch::{BATCH_BYTES, BATCH_ROWS, Malformed, TableBatch};
use super::cell::BatchColumn;
use super::files::TablePath;
use super::limit::ReadLimit;
use super::lines::{self, BUFFER_BYTES, Progress, RecordReader, row_error};
use super::missing::MissingTexts;
use super::source::SourceFiles;
use super::table_source::TableSource;
use crate::Result;
use crate::bad_rows::shortened;

/// The memory of a value in an array or of an entry of an object.
const FIELD_BYTES: u64 = 64;

/// A file with a JSON object in each line.
pub(super) struct JsonLinesFile {
    path: PathBuf,
    reader: BufReader<RecordReader>,
    progress: Rc<Progress>,
    columns: Vec<String>,
    missing: Arc<MissingTexts>,
    line: Vec<u8>,
    limit: ReadLimit,
    /// True for each column that occurred in an object or in the path.
    seen: Vec<bool>,
    /// The values of the columns in objects without them: those in the path, and else null.
    of_path: Vec<Value>,
}

impl JsonLinesFile {
    pub(super) fn open(table: &TableSource, file: &TablePath, columns: &[String]) -> Result<Self> {
        let TableSource { sources, missing, .. } = table;
        let (bytes, progress) = lines::open(&file.path, sources, FIELD_BYTES)?;
        let of_path: Vec<Option<&str>> =
            columns.iter().map(|column| table.path_value(file, column)).collect();
        Ok(Self {
            path: file.path.clone(),
            reader: BufReader::with_capacity(BUFFER_BYTES, bytes),
            progress,
            columns: columns.to_vec(),
            missing: missing.clone(),
            line: Vec::new(),
            limit: sources.limit(),
            seen: of_path.iter().map(Option::is_some).collect(),
            of_path: of_path.into_iter().map(|text| text.map_or(Value::Null, Value::from)).collect(),
        })
    }

    /// Returns the number of bytes of the file that were read, before decompression.
    pub(super) fn n_file_bytes(&self) -> u64 {
        self.progress.n_file_bytes()
    }

    pub(super) fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        let mut columns: Vec<Vec<Value>> = vec![Vec::new(); self.columns.len()];
        let mut n_rows = 0;
        let mut n_bytes = 0;
        let mut malformed = Vec::new();
        while n_rows < BATCH_ROWS && n_bytes < BATCH_BYTES {
            self.line.clear();
            let read = self.reader.read_until(b'\n', &mut self.line);
            let row = first_row + n_rows as u64 + 1;
            if read.map_err(|error| row_error(&self.path, Some(row), self.limit, error))? == 0 {
                break;
            }
            self.progress.end_record();
            let line = self.line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            n_bytes += line.len() + columns.len() * size_of::<Value>();
            columns.iter_mut().zip(&self.of_path).for_each(|(column, value)| column.push(value.clone()));
            let row = RowSeed { names: &self.columns, columns: &mut columns, seen: &mut self.seen };
            let mut parser = serde_json::Deserializer::from_slice(line);
            if row.deserialize(&mut parser).and_then(|()| parser.end()).is_err() {
                let has_nan = [&b"NaN"[..], b"Infinity"]
                    .iter()
                    .any(|text| line.windows(text.len()).any(|part| part == *text));
                let expected = if has_nan {
                    "a JSON object, in which NaN and infinity are null"
                } else {
                    "a JSON object"
                };
                let expected = expected.to_owned();
                let found = shortened(&String::from_utf8_lossy(&line[..line.len().min(80)]));
                malformed.push(Malformed { row: n_rows, expected, found });
            }
            n_bytes += columns.iter().filter_map(|column| column.last()).map(heap_bytes).sum::<usize>();
            n_rows += 1;
        }
        let columns = columns.into_iter().map(BatchColumn::Json).collect();
        let batch = TableBatch::new(&self.path, first_row, n_rows, columns, &self.missing);
        Ok((n_rows > 0).then(|| batch.with_malformed(malformed)))
    }

    /// Marks the columns that occurred in an object.
    pub(super) fn mark_columns(&self, seen: &mut [bool]) {
        seen.iter_mut().zip(&self.seen).for_each(|(seen, is_seen)| *seen |= is_seen);
    }
}

/// Returns the keys of the objects of a file in the order of their first occurrence, at most `max_names`. Rows that are no objects
/// are left out.
pub(super) fn names(path: &Path, sources: &SourceFiles, max_names: usize) -> Result<Vec<String>> {
    let (bytes, progress) = lines::open(path, sources, FIELD_BYTES)?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, bytes);
    let mut names = Vec::new();
    let mut line = Vec::new();
    let mut row = 0;
    loop {
        line.clear();
        row += 1;
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|error| row_error(path, Some(row), sources.limit(), error))? == 0 {
            return Ok(names);
        }
        progress.end_record();
        let mut parser = serde_json::Deserializer::from_slice(&line);
        // The reading of the rows reports those that are no objects.
        let _ = NamesSeed { names: &mut names, max_names }.deserialize(&mut parser);
    }
}

/// Adds the keys of an object to a list.
struct NamesSeed<'a> {
    names: &'a mut Vec<String>,
    max_names: usize,
}

impl<'de> DeserializeSeed<'de> for NamesSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NamesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            if self.names.len() < self.max_names && self.names.iter().all(|name| *name != key) {
                self.names.push(key.into_owned());
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Returns the number of bytes of the values in arrays and objects, which exceeds the length of their text.
fn heap_bytes(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(|value| size_of::<Value>() + heap_bytes(value)).sum(),
        Value::Object(values) => {
            let of_entry =
                |(_, value): (&String, &Value)| size_of::<String>() + size_of::<Value>() + heap_bytes(value);
            values.iter().map(of_entry).sum()
        }
        _ => 0,
    }
}

/// Reads the wanted values of an object into the last row of each column.
struct RowSeed<'a> {
    names: &'a [String],
    columns: &'a mut [Vec<Value>],
    seen: &'a mut [bool],
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.names.iter().position(|name| *name == key) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(position) => {
                    let value = map.next_value()?;
                    self.seen[position] = true;
                    if let Some(last) = self.columns[position].last_mut() {
                        *last = value;
                    }
                }
            }
        }
        Ok(())
    }
}
