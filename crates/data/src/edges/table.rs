//! Edge lists in text files: two columns of ids and an optional column of weights.

use std::path::{Path, PathBuf};

use kiln_store::text::TextTable;

use super::source::{CHUNK_EDGES, EdgeChunk, EdgeData, EdgeSource};
use crate::{Note, Result};

/// The expected columns of a table that may have a header and weights.
const COLUMNS: &str = "a source, a destination and an optional weight, separated by commas";

/// The expected columns of a table of pairs.
const PAIRS: &str = "the two nodes of an edge, without a header";

/// The expected content of the third column.
const WEIGHT: &str = "a weight, a finite number of 32 bits";

/// An edge list in a file of comma-separated values, plain or compressed.
#[derive(Debug)]
pub(super) struct EdgeTable {
    path: PathBuf,
    has_header: bool,
    has_weights: bool,
    /// The expected content in the error for a field that is not an integer. With `None`, the error contains the valid
    /// range of node ids, as for an integer out of range.
    number: Option<&'static str>,
}

impl EdgeTable {
    /// Opens a table and reads its first line, which determines the number of columns. The line is a header if its
    /// first two fields are column names.
    pub(super) fn open(path: &Path, notes: &mut Vec<Note>) -> Result<Self> {
        let mut table = TextTable::open(path)?;
        let (mut has_header, mut has_weights) = (false, false);
        if let Some(row) = table.next_row()? {
            if !(2..=3).contains(&row.n_fields()) {
                return Err(row.bad(0, COLUMNS).into());
            }
            let holds_name = |field| row.parse::<String>(field, COLUMNS).is_ok_and(|text| is_name(&text));
            has_header = holds_name(0) && holds_name(1);
            has_weights = row.n_fields() == 3;
        }
        if has_header {
            let said = format!("the first line of {} is a header and was skipped", path.display());
            notes.push(Note::Other(said));
        }
        Ok(Self { path: path.to_owned(), has_header, has_weights, number: None })
    }

    /// Opens a table of two columns without a header.
    pub(super) fn of_pairs(path: &Path) -> Result<Self> {
        if let Some(row) = TextTable::open(path)?.next_row()?
            && row.n_fields() != 2
        {
            return Err(row.bad(row.n_fields(), PAIRS).into());
        }
        Ok(Self { path: path.to_owned(), has_header: false, has_weights: false, number: Some(PAIRS) })
    }
}

/// Returns true if a field of the first line is a column name, possibly after the characters that spreadsheets and
/// `numpy.savetxt` write before it. Any other field that is not a number belongs to a malformed edge; the line must
/// cause an error and must not be skipped.
fn is_name(text: &str) -> bool {
    let name = text.trim_start_matches(['\u{feff}', '#', ' ']);
    name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name.parse::<f64>().is_err()
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
        let mut table = TextTable::open(&self.path)?;
        let mut chunk = EdgeChunk::default();
        let expected = format!("a node id below {n_nodes}");
        if self.has_header {
            table.next_row()?;
        }
        while let Some(row) = table.next_row()? {
            for (field, ids) in [&mut chunk.srcs, &mut chunk.dsts].into_iter().enumerate() {
                match row.parse::<u32>(field, &expected) {
                    Ok(id) if (id as usize) < n_nodes => ids.push(id),
                    _ => {
                        self.number.map_or(Ok(0), |number| row.parse::<i64>(field, number))?;
                        return Err(row.bad(field, &expected).into());
                    }
                }
            }
            if self.has_weights {
                let weight: f32 = row.parse(2, WEIGHT)?;
                if !weight.is_finite() {
                    return Err(row.bad(2, WEIGHT).into());
                }
                chunk.weights.push(weight);
            }
            if chunk.len() == CHUNK_EDGES {
                visit(&mut chunk)?;
                chunk.clear();
            }
        }
        if chunk.is_empty() { Ok(()) } else { visit(&mut chunk) }
    }
}
