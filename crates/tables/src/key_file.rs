//! The keys of a node type in a temporary file.

use std::path::Path;

use kiln_data::NodeNames;
use kiln_graph::NodeId;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::Result;
use crate::spill::{KeyRecord, SPILL_BUFFER, SpillFile, SpillWriter};

/// The keys of a node type, one record per row.
#[derive(Debug)]
pub(crate) struct KeyFile {
    pub(crate) file: SpillFile,
    pub(crate) n_rows: u32,
    pub(crate) n_keys: u64,
    pub(crate) text_bytes: u64,
    /// The number of the first rows, which are the nodes of the set to which rows are appended.
    pub(crate) n_known: u32,
}

/// The writer of a [`KeyFile`].
#[derive(Debug)]
pub(crate) struct KeyWriter {
    file: SpillWriter,
    /// The number of rows so far.
    pub(crate) n_rows: u64,
    n_keys: u64,
    text_bytes: u64,
    n_known: u32,
}

impl KeyWriter {
    /// Creates a file that begins with the names of the known nodes. `table` names the node type in a stage of progress.
    pub(crate) fn create(folder: &Path, name: &str, table: &str, known: Option<&NodeNames>) -> Result<Self> {
        let file = SpillFile::create(folder, name, SPILL_BUFFER)?;
        let n_known = known.map_or(0, NodeNames::len) as u32;
        let mut keys = Self { file, n_rows: 0, n_keys: 0, text_bytes: 0, n_known };
        let Some(known) = known else { return Ok(keys) };
        let stage = format_args!("{table}: copying keys of the set");
        let progress = Progress::start(stage, ProgressUnit::Nodes, u64::from(n_known));
        let mut counter = progress.counter();
        for node in (0..n_known).map(NodeId) {
            // The names were verified.
            let name = known.get(node).unwrap_or_default();
            keys.write(KeyRecord::Key(name.as_bytes()))?;
            counter.add(1);
        }
        Ok(keys)
    }

    /// Writes the record of the next row.
    pub(crate) fn write(&mut self, record: KeyRecord<'_>) -> Result<()> {
        if let KeyRecord::Key(key) = record {
            self.n_keys += 1;
            self.text_bytes += key.len() as u64;
        }
        self.n_rows += 1;
        self.file.write_key(record)
    }

    /// Finishes the file, which has at most [`MAX_ROWS`](crate::join::MAX_ROWS) rows.
    pub(crate) fn finish(self) -> Result<KeyFile> {
        let Self { file, n_rows, n_keys, text_bytes, n_known } = self;
        Ok(KeyFile { file: file.finish()?, n_rows: n_rows as u32, n_keys, text_bytes, n_known })
    }
}
