//! Edge lists in text files: two columns of ids and an optional column of weights, by the names of a header if there is one.

use std::path::{Path, PathBuf};

use kiln_store::SourceFiles;
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
    /// The file, which a conversion reads several times.
    sources: SourceFiles,
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
        let sources = SourceFiles::default();
        let mut table = TextTable::open_in(&sources, path)?;
        let mut of_table = Self {
            path: path.to_owned(),
            sources,
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
        let sources = SourceFiles::default();
        if let Some(row) = TextTable::open_in(&sources, path)?.next_row()?
            && row.n_fields() != 2
        {
            return Err(row.bad(row.n_fields(), PAIRS).into());
        }
        let columns = Columns::without_header(2);
        Ok(Self { path: path.to_owned(), sources, has_header: false, columns, number: Some(PAIRS) })
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
        let mut table = TextTable::open_in(&self.sources, &self.path)?;
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

    fn check_unchanged(&self) -> Result<()> {
        Ok(self.sources.check()?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use super::*;

    /// A conversion reads a list several times, whatever has its path by then.
    #[test]
    fn each_reading_has_the_edges_of_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("edges.csv");
        fs::write(&path, "0,1\n2,1\n").expect("a list");
        let table = EdgeTable::open(&path, &mut Vec::new()).expect("the list");
        let srcs = || {
            let mut srcs = Vec::new();
            table.for_each_chunk(9, &mut |chunk| {
                srcs.append(&mut chunk.srcs);
                Ok(())
            })?;
            Result::Ok(srcs)
        };
        assert_eq!(srcs().expect("edges"), [0, 2]);
        fs::write(folder.path().join("new"), "3,1\n4,1\n").expect("another list");
        fs::rename(folder.path().join("new"), &path).expect("a renamed list");
        assert_eq!(srcs().expect("edges"), [0, 2]);
        table.check_unchanged().expect("an unchanged list");

        let table = EdgeTable::open(&path, &mut Vec::new()).expect("the list");
        File::options()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"5,1\n"))
            .expect("a line");
        let error = table.check_unchanged().expect_err("a changed list").to_string();
        assert!(error.contains("edges.csv: the file has changed since it was opened"), "{error}");
    }
}
