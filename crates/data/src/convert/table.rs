//! Edge lists in text: two columns of ids, and perhaps one of weights.

use std::path::{Path, PathBuf};

use super::source::{CHUNK_EDGES, EdgeChunk, EdgeData, EdgeSource};
use crate::text::Table;
use crate::{Note, Result};

const COLUMNS: &str = "a source, a destination and perhaps a weight, separated by commas";

/// An edge list in a file of comma-separated values, plain or compressed.
#[derive(Debug)]
pub(super) struct EdgeTable {
    path: PathBuf,
    has_header: bool,
    has_weights: bool,
}

impl EdgeTable {
    /// Reads the first line: a line of names is a header, and its fields tell how many columns there are.
    pub(super) fn open(path: &Path, notes: &mut Vec<Note>) -> Result<Self> {
        let mut table = Table::open(path)?;
        let (mut has_header, mut has_weights) = (false, false);
        if let Some(row) = table.next_row()? {
            if !(2..=3).contains(&row.n_fields()) {
                return Err(row.bad(0, COLUMNS));
            }
            let is_name = |field: usize| row.parse::<f64>(field, COLUMNS).is_err();
            has_header = is_name(0) && is_name(1);
            has_weights = row.n_fields() == 3;
        }
        if has_header {
            let said = format!("the first line of {} holds names, and was skipped", path.display());
            notes.push(Note::Other(said));
        }
        Ok(Self { path: path.to_owned(), has_header, has_weights })
    }
}

impl EdgeSource for EdgeTable {
    fn edge_data(&self) -> EdgeData {
        EdgeData { weights: self.has_weights, edge_types: false }
    }

    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()> {
        let mut table = Table::open(&self.path)?;
        let mut chunk = EdgeChunk::default();
        let expected = format!("a node, 0 to {n_nodes} - 1");
        if self.has_header {
            table.next_row()?;
        }
        while let Some(row) = table.next_row()? {
            for (field, ids) in [&mut chunk.srcs, &mut chunk.dsts].into_iter().enumerate() {
                let id: u32 = row.parse(field, &expected)?;
                if id as usize >= n_nodes {
                    return Err(row.bad(field, &expected));
                }
                ids.push(id);
            }
            if self.has_weights {
                chunk.weights.push(row.parse(2, "a weight")?);
            }
            if chunk.len() == CHUNK_EDGES {
                visit(&mut chunk)?;
                chunk.clear();
            }
        }
        if chunk.is_empty() { Ok(()) } else { visit(&mut chunk) }
    }
}
