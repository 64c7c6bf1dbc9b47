//! The edges of a relation, from the rows of its ends.

use std::ops::ControlFlow;
use std::path::Path;

use kiln_data::convert::{EdgeChunk, EdgeData, EdgeSource};

use crate::bad_rows::{BadRowKind, BadRowLog, MAX_EXAMPLES};
use crate::join::{DANGLING, EndRows, MISSING, WRONG};
use crate::row_ids::RowIds;
use crate::spec::RelationSpec;
use crate::spill::{SPILL_BUFFER, SpillFile, SpillReader};
use crate::table::Table;
use crate::transform::number;
use crate::{BadRow, Error, Result};

/// The number of edges of a chunk.
const CHUNK_EDGES: usize = 1 << 13;

/// The rows of a relation.
#[derive(Debug)]
pub(crate) struct RelationRows {
    /// The rows of the sources and of the destinations.
    pub(crate) ends: [EndRows; 2],
    /// The weight of each row (`f32`); NaN if it is bad.
    pub(crate) weights: Option<SpillFile>,
}

/// A row of a relation.
struct EdgeRow {
    rows: [u32; 2],
    weight: f32,
}

/// A reader of the rows of a relation.
struct RowReader {
    ends: [SpillReader; 2],
    weights: Option<SpillReader>,
}

impl RelationRows {
    pub(crate) fn n_rows(&self) -> u64 {
        self.ends[0].n_rows
    }

    fn read(&self) -> Result<RowReader> {
        let [src, dst] =
            self.ends.each_ref().map(|end: &EndRows| end.file.read_from(4 * end.start, SPILL_BUFFER));
        let weights = self.weights.as_ref().map(|weights| weights.read(SPILL_BUFFER)).transpose()?;
        Ok(RowReader { ends: [src?, dst?], weights })
    }

    /// Counts the bad rows. A row counts once: a wrong type before a missing key before a dangling key.
    pub(crate) fn bad_rows(&self, spec: &RelationSpec, folder: &Path) -> Result<BadRowLog> {
        let mut found: [(u64, Vec<u64>); 4] = Default::default();
        let mut reader = self.read()?;
        for row in 0..self.n_rows() {
            if let Some((kind, _)) = reader.next()?.problem() {
                let (n_rows, first) = &mut found[kind as usize];
                *n_rows += 1;
                if first.len() < MAX_EXAMPLES {
                    first.push(row);
                }
            }
        }
        let mut log = BadRowLog::default();
        for (kind, (n_rows, first)) in BadRowKind::ALL.into_iter().zip(found) {
            if n_rows > 0 {
                log.add_counted(kind, n_rows, examples(spec, folder, &first)?);
            }
        }
        Ok(log)
    }
}

impl RowReader {
    fn next(&mut self) -> Result<EdgeRow> {
        let [src, dst] = &mut self.ends;
        let rows = [src.read_u32()?, dst.read_u32()?];
        let weight =
            self.weights.as_mut().map(|weights| weights.read_u32().map(f32::from_bits)).transpose()?;
        Ok(EdgeRow { rows, weight: weight.unwrap_or(1.0) })
    }
}

impl EdgeRow {
    /// Returns the kind of a bad row, and the column: 0 for the source, 1 for the destination, and 2 for the weight.
    fn problem(&self) -> Option<(BadRowKind, usize)> {
        let has = |code: u32| self.rows.iter().position(|row| *row == code);
        let problem = |kind: BadRowKind| move |column: usize| (kind, column);
        let wrong = has(WRONG).or(self.weight.is_nan().then_some(2)).map(problem(BadRowKind::WrongType));
        wrong
            .or_else(|| has(MISSING).map(problem(BadRowKind::MissingKey)))
            .or_else(|| has(DANGLING).map(problem(BadRowKind::Dangling)))
    }
}

/// Returns the table of a relation with the given columns.
pub(crate) fn relation_table(spec: &RelationSpec, folder: &Path, columns: Vec<String>) -> Table {
    let files = spec.files.iter().map(|file| folder.join(file)).collect();
    Table { files, columns, missing: spec.missing.clone() }
}

/// Returns bad rows as examples, with the values of all columns that the spec names.
fn examples(spec: &RelationSpec, folder: &Path, rows: &[u64]) -> Result<Vec<BadRow>> {
    let mut columns = vec![spec.src.column.clone(), spec.dst.column.clone()];
    columns.extend(spec.weight.clone());
    columns.sort_unstable();
    columns.dedup();
    let table = relation_table(spec, folder, columns.clone());
    let mut examples = Vec::new();
    let mut n_rows = 0;
    let expected = format!("a key of `{}`, a key of `{}`", spec.src.node_type, spec.dst.node_type);
    let expected = if spec.weight.is_some() { format!("{expected} and a finite weight") } else { expected };
    table.for_each_batch(&mut |batch| {
        for row in 0..batch.n_rows {
            if rows.get(examples.len()) != Some(&(n_rows + row as u64)) {
                continue;
            }
            let found = match batch.malformed(row) {
                Some(malformed) => malformed.found.clone(),
                None => (0..columns.len())
                    .map(|column| batch.cell(column, row).shown())
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            examples.push(batch.bad_row(row, &columns.join(", "), &expected, found));
        }
        n_rows += batch.n_rows as u64;
        let is_done = rows.len() <= examples.len();
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(examples)
}

/// Writes the weights of a relation.
pub(crate) fn spill_weights(
    spec: &RelationSpec,
    folder: &Path,
    out: &Path,
    name: &str,
) -> Result<Option<SpillFile>> {
    let Some(column) = &spec.weight else { return Ok(None) };
    let mut weights = SpillFile::create(out, name, SPILL_BUFFER)?;
    relation_table(spec, folder, vec![column.clone()]).for_each_batch(&mut |batch| {
        for row in 0..batch.n_rows {
            let weight = match batch.malformed(row) {
                None => number(&batch.cell(0, row)).ok().flatten(),
                Some(_) => None,
            };
            weights.write_u32(weight.map_or(f32::NAN, |weight| weight as f32).to_bits())?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Some(weights.finish()?))
}

/// The edges of a relation, or of its reverse. Bad rows are skipped.
pub(crate) struct RelationEdgeList<'a> {
    pub(crate) rows: &'a RelationRows,
    /// The ids of the sources and of the destinations of the rows.
    pub(crate) ids: [&'a RowIds; 2],
    pub(crate) is_reversed: bool,
}

impl RelationEdgeList<'_> {
    fn read_chunk(&self, reader: &mut RowReader, n_rows: u64, chunk: &mut EdgeChunk) -> Result<()> {
        chunk.srcs.clear();
        chunk.dsts.clear();
        chunk.weights.clear();
        for _ in 0..n_rows {
            let row = reader.next()?;
            if row.problem().is_some() {
                continue;
            }
            let [src, dst] = [self.ids[0].id_of(row.rows[0]), self.ids[1].id_of(row.rows[1])];
            let (Some(src), Some(dst)) = (src, dst) else { continue };
            let (src, dst) = if self.is_reversed { (dst, src) } else { (src, dst) };
            chunk.srcs.push(src);
            chunk.dsts.push(dst);
            if self.rows.weights.is_some() {
                chunk.weights.push(row.weight);
            }
        }
        Ok(())
    }
}

impl EdgeSource for RelationEdgeList<'_> {
    fn edge_data(&self) -> EdgeData {
        EdgeData { weights: self.rows.weights.is_some(), edge_types: false }
    }

    fn for_each_chunk(
        &self,
        _: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> kiln_data::Result<()>,
    ) -> kiln_data::Result<()> {
        let mut reader = self.rows.read().map_err(data_error)?;
        let mut chunk = EdgeChunk::default();
        let mut n_left = self.rows.n_rows();
        while n_left > 0 {
            let n_rows = n_left.min(CHUNK_EDGES as u64);
            self.read_chunk(&mut reader, n_rows, &mut chunk).map_err(data_error)?;
            visit(&mut chunk)?;
            n_left -= n_rows;
        }
        Ok(())
    }
}

/// Returns an error from a temporary file as that of the crate that sorts edges.
fn data_error(error: Error) -> kiln_data::Error {
    match error {
        Error::Store(error) => error.into(),
        Error::Data(error) => error,
        other => kiln_store::Error::Io {
            path: "a temporary file".into(),
            source: std::io::Error::other(other.to_string()),
        }
        .into(),
    }
}
