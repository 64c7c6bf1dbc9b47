//! Edge lists in text files: two columns of ids and an optional column of weights, by the names of a header if there is one.

use std::path::{Path, PathBuf};

use kiln_store::text::TextTable;

use super::header::{Columns, names_of};
use super::source::{CHUNK_EDGES, ColumnFormat, EdgeChunk, EdgeSource};
use crate::{Note, Result};

/// The expected columns of a table that may have a header and weights.
const COLUMNS: &str = "a source, a destination and an optional weight, separated by commas";

/// The expected columns of a table of pairs.
const PAIRS: &str = "the two nodes of an edge, without a header";

/// The expected content of the column of weights.
const WEIGHT: &str = "a weight, a finite number of 32 bits";

/// An edge list in a file of comma-separated values, plain or compressed.
#[derive(Debug)]
pub(super) struct EdgeTable {
    path: PathBuf,
    has_header: bool,
    columns: Columns,
    /// The expected content in the error for a field that is not an integer. With `None`, the error contains the valid
    /// range of node ids, as for an integer out of range.
    number: Option<&'static str>,
}

impl EdgeTable {
    /// Opens a table and reads its first line, which determines the columns: those that a header names, or two or three
    /// columns without one.
    pub(super) fn open(path: &Path, notes: &mut Vec<Note>) -> Result<Self> {
        let mut table = TextTable::open(path)?;
        let mut of_table = Self {
            path: path.to_owned(),
            has_header: false,
            columns: Columns::without_header(2),
            number: None,
        };
        let Some(row) = table.next_row()? else { return Ok(of_table) };
        if let Some(names) = names_of(&row) {
            let columns = Columns::of_header(&row, &names)?;
            let weight = columns.weight.map(|column| format!(", with the weight `{}`", names[column]));
            notes.push(Note::Other(format!(
                "the first line of {} is a header: edges lead from `{}` to `{}`{}",
                path.display(),
                names[columns.src],
                names[columns.dst],
                weight.unwrap_or_default(),
            )));
            of_table.has_header = true;
            of_table.columns = columns;
        } else {
            if !(2..=3).contains(&row.n_fields()) {
                return Err(row.bad(0, COLUMNS).into());
            }
            of_table.columns = Columns::without_header(row.n_fields());
        }
        Ok(of_table)
    }

    /// Returns true if the edges have weights in a column that no header names.
    pub(super) fn has_unnamed_weights(&self) -> bool {
        !self.has_header && self.columns.weight.is_some()
    }

    /// Opens a table of two columns without a header.
    pub(super) fn of_pairs(path: &Path) -> Result<Self> {
        if let Some(row) = TextTable::open(path)?.next_row()?
            && row.n_fields() != 2
        {
            return Err(row.bad(row.n_fields(), PAIRS).into());
        }
        let columns = Columns::without_header(2);
        Ok(Self { path: path.to_owned(), has_header: false, columns, number: Some(PAIRS) })
    }
}

impl EdgeSource for EdgeTable {
    fn columns(&self) -> Vec<ColumnFormat> {
        self.columns.weight.iter().map(|_| ColumnFormat::weights()).collect()
    }

    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()> {
        let mut table = TextTable::open(&self.path)?;
        let mut chunk = EdgeChunk::of_columns(self.columns().len());
        let expected = format!("a node id below {n_nodes}");
        let Columns { src, dst, weight } = self.columns;
        if self.has_header {
            table.next_row()?;
        }
        while let Some(row) = table.next_row()? {
            for (field, ids) in [(src, &mut chunk.srcs), (dst, &mut chunk.dsts)] {
                match row.parse_unquoted::<u32>(field, &expected) {
                    Ok(id) if (id as usize) < n_nodes => ids.push(id),
                    _ => {
                        self.number.map_or(Ok(0), |number| row.parse_unquoted::<i64>(field, number))?;
                        return Err(row.bad(field, &expected).into());
                    }
                }
            }
            if let Some(field) = weight {
                let weight: f32 = row.parse_unquoted(field, WEIGHT)?;
                if !weight.is_finite() {
                    return Err(row.bad(field, WEIGHT).into());
                }
                chunk.columns[0].extend(weight.to_le_bytes());
            }
            if chunk.len() == CHUNK_EDGES {
                visit(&mut chunk)?;
                chunk.clear();
            }
        }
        if chunk.is_empty() { Ok(()) } else { visit(&mut chunk) }
    }
}
