//! The edges of a relation, from the rows of its ends.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kiln_data::convert::{ColumnFormat, EdgeChunk, EdgeSource};
use kiln_graph::EdgeColumns;
use kiln_store::array_folder::ElementType;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::bad_rows::{BadRowKind, BadRowLog, MAX_EXAMPLES};
use crate::held_out_edges::HeldOutEdges;
use crate::join::{DANGLING, EndRows, MISSING, WRONG};
use crate::key::key_of;
use crate::known_edges::{CHUNK_EDGES, KnownEdges};
use crate::row_ids::RowIds;
use crate::spec::{KeyType, RelationSpec};
use crate::spill::{SPILL_BUFFER, SpillFile, SpillReader};
use crate::spilled_features::{FeatureReader, SpilledFeatures};
use crate::table::{Table, TableSource};
use crate::times::TimeReader;
use crate::transform::{check, number};
use crate::{BadRow, Error, Result};

/// The rows of a relation.
#[derive(Debug)]
pub(crate) struct RelationRows {
    /// The rows of the sources and of the destinations.
    pub(crate) ends: [EndRows; 2],
    /// The columns of numbers of the edges.
    pub(crate) columns: Vec<SpilledColumn>,
    /// The features of the edges; `None` if the spec names no columns for them.
    pub(crate) features: Option<SpilledFeatures>,
    /// The times of the edges, [`BAD_TIME`] for a bad one; `None` for edges without times.
    pub(crate) times: Option<SpillFile>,
}

/// The position in [`BadEdge`] of the column of times, which is behind all others.
const TIME_COLUMN: usize = usize::MAX;

/// The time of a row without one.
const BAD_TIME: i64 = i64::MAX;

/// A column of the edges: a number per row (`f32`), NaN if it is bad.
#[derive(Debug)]
pub(crate) struct SpilledColumn {
    format: ColumnFormat,
    file: SpillFile,
}

/// A row of a relation.
pub(crate) struct EdgeRow<'a> {
    pub(crate) rows: [u32; 2],
    /// The values in the columns of numbers.
    values: &'a [f32],
    /// The number of the first bad column of the features.
    bad_feature: Option<usize>,
    /// The features, as bytes.
    features: &'a [u8],
    /// The time; `None` for edges without times.
    pub(crate) time: Option<i64>,
}

/// A reader of the rows of a relation.
pub(crate) struct RowReader {
    ends: [SpillReader; 2],
    columns: Vec<SpillReader>,
    features: Option<FeatureReader>,
    times: Option<SpillReader>,
    /// The values of the last row.
    values: Vec<f32>,
}

impl RelationRows {
    pub(crate) fn n_rows(&self) -> u64 {
        self.ends[0].n_rows
    }

    /// Returns the columns of the edges in the set, in the order of their values in chunks of edges.
    pub(crate) fn formats(&self) -> impl Iterator<Item = ColumnFormat> {
        let features = self.features.as_ref().and_then(SpilledFeatures::format);
        let times = self.times.iter().map(|_| ColumnFormat::times());
        self.columns.iter().map(|column| column.format.clone()).chain(features).chain(times)
    }

    /// Returns the number of feature columns; `None` for edges without features.
    pub(crate) fn dim_of_features(&self) -> Option<usize> {
        let mut formats = self.formats();
        formats.find(|format| format.name == EdgeColumns::FEATURES).map(|format| format.width)
    }

    /// Sets `out` to the features of an edge: a column of numbers of this name, or those of the spec's columns.
    pub(crate) fn features_of(&self, row: &EdgeRow<'_>, out: &mut Vec<f32>) {
        out.clear();
        let number = self.columns.iter().position(|column| column.format.name == EdgeColumns::FEATURES);
        out.extend(number.map(|number| row.values[number]));
        let (values, _) = row.features.as_chunks();
        out.extend(values.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    }

    pub(crate) fn read(&self) -> Result<RowReader> {
        let [src, dst] =
            self.ends.each_ref().map(|end: &EndRows| end.file.read_from(4 * end.start, SPILL_BUFFER));
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            columns.push(column.file.read(SPILL_BUFFER)?);
        }
        let features = self.features.as_ref().map(SpilledFeatures::read).transpose()?;
        let times = self.times.as_ref().map(|times| times.read(SPILL_BUFFER)).transpose()?;
        Ok(RowReader { ends: [src?, dst?], columns, features, times, values: Vec::new() })
    }

    /// Counts the bad rows. A row counts once: a wrong type before a missing key before a dangling key.
    pub(crate) fn bad_rows(
        &self,
        spec: &RelationSpec,
        source: &Arc<TableSource>,
        key_types: [KeyType; 2],
    ) -> Result<BadRowLog> {
        let mut found: [(u64, Vec<BadEdge>); 4] = Default::default();
        let mut reader = self.read()?;
        let name = format_args!("{}: checking rows", source.label);
        let progress = Progress::start(name, ProgressUnit::Rows, self.n_rows());
        let mut counter = progress.counter();
        for row in 0..self.n_rows() {
            counter.add(1);
            if let Some((kind, column)) = reader.next()?.problem() {
                let (n_rows, first) = &mut found[kind as usize];
                *n_rows += 1;
                if first.len() < MAX_EXAMPLES {
                    first.push(BadEdge { row, column });
                }
            }
        }
        let mut log = BadRowLog::default();
        for (kind, (n_rows, first)) in BadRowKind::ALL.into_iter().zip(found) {
            if n_rows > 0 {
                log.add_counted(kind, n_rows, examples(spec, source, key_types, &first)?);
            }
        }
        Ok(log)
    }
}

/// A row of a relation that is bad.
struct BadEdge {
    row: u64,
    /// The first bad column: 0 for that of the sources, 1 for that of the destinations, then those of numbers and features, and
    /// that of the times.
    column: usize,
}

impl RowReader {
    pub(crate) fn next(&mut self) -> Result<EdgeRow<'_>> {
        let [src, dst] = &mut self.ends;
        let rows = [src.read_u32()?, dst.read_u32()?];
        self.values.clear();
        for column in &mut self.columns {
            self.values.push(f32::from_bits(column.read_u32()?));
        }
        let bad_feature = self.features.as_mut().map(FeatureReader::next).transpose()?.flatten();
        let features = self.features.as_ref().map_or(&[][..], FeatureReader::values);
        let time = match &mut self.times {
            Some(times) => {
                let [low, high] = [times.read_u32()?, times.read_u32()?];
                Some((u64::from(high) << 32 | u64::from(low)) as i64)
            }
            None => None,
        };
        Ok(EdgeRow { rows, values: &self.values, bad_feature, features, time })
    }
}

impl EdgeRow<'_> {
    /// Returns the kind of a bad row and the position of the column in [`BadEdge`].
    pub(crate) fn problem(&self) -> Option<(BadRowKind, usize)> {
        let of_ends = |mark: u32| self.rows.iter().position(|row| *row == mark);
        let of_values = self.values.iter().position(|value| value.is_nan()).map(|column| column + 2);
        let of_features = self.bad_feature.map(|column| column + 2 + self.values.len());
        let of_time = (self.time == Some(BAD_TIME)).then_some(TIME_COLUMN);
        if let Some(column) = of_ends(WRONG).or(of_values).or(of_features).or(of_time) {
            return Some((BadRowKind::WrongType, column));
        }
        match (of_ends(MISSING), of_ends(DANGLING)) {
            (Some(column), _) => Some((BadRowKind::MissingKey, column)),
            (None, dangling) => dangling.map(|column| (BadRowKind::Dangling, column)),
        }
    }
}

/// Returns bad rows as examples, with the first column of each that is bad.
fn examples(
    spec: &RelationSpec,
    source: &Arc<TableSource>,
    key_types: [KeyType; 2],
    rows: &[BadEdge],
) -> Result<Vec<BadRow>> {
    let ends = [("source", &spec.src), ("destination", &spec.dst)];
    let mut columns: Vec<String> = ends.iter().map(|(_, end)| end.column.clone()).collect();
    columns.extend(spec.columns_of_edges().into_iter().map(|(_, column)| column.to_owned()));
    let n_numbers = columns.len();
    columns.extend(spec.columns.iter().map(|column| column.column.clone()));
    let n_columns = columns.len();
    let time = spec.time_column();
    columns.extend(time.iter().map(|time| time.column.clone()));
    let times = time.as_ref().map(TimeReader::new);
    let mut names = columns.clone();
    names.sort_unstable();
    names.dedup();
    let mut examples = Vec::new();
    let mut n_rows = 0;
    let table = Table { source: source.clone(), columns: names.clone() };
    table.for_each_batch("finding bad rows", &mut |batch| {
        for row in 0..batch.n_rows {
            let Some(bad) = rows.get(examples.len()).filter(|bad| bad.row == n_rows + row as u64) else {
                continue;
            };
            if let Some(malformed) = batch.malformed(row) {
                examples.push(batch.bad_row(row, "(row)", &malformed.expected, malformed.found.clone()));
                continue;
            }
            let position = if bad.column == TIME_COLUMN { n_columns } else { bad.column };
            let column = &columns[position];
            // The names ascend.
            let cell = batch.cell(names.partition_point(|name| name < column), row);
            let expected = match (ends.get(position), times.filter(|_| position == n_columns)) {
                (None, Some(times)) => times.read(&cell).err().unwrap_or("a time").to_owned(),
                (None, None) if n_numbers <= position => {
                    let transform = &spec.columns[position - n_numbers].transform;
                    check(transform, &cell).err().unwrap_or("a value of the column's transform").to_owned()
                }
                (None, None) => number(&cell).err().unwrap_or("a finite number").to_owned(),
                (Some((end, of)), _) => {
                    let of = &of.node_type;
                    let mut buffer = String::new();
                    match key_of(&cell, key_types[position], &mut buffer) {
                        Ok(_) => format!("a key of node type `{of}` (the {end})"),
                        Err(expected) => format!("{expected} (the {end}, of node type `{of}`)"),
                    }
                }
            };
            examples.push(batch.bad_row(row, column, &expected, cell.shown()));
        }
        n_rows += batch.n_rows as u64;
        let is_done = rows.len() <= examples.len();
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(examples)
}

/// Writes the columns of numbers of the edges of the relation at a position, in one reading of its table.
pub(crate) fn spill_columns(
    spec: &RelationSpec,
    source: &Arc<TableSource>,
    out: &Path,
    relation: usize,
) -> Result<Vec<SpilledColumn>> {
    let edge_columns = spec.columns_of_edges();
    if edge_columns.is_empty() {
        return Ok(Vec::new());
    }
    let mut names: Vec<String> = edge_columns.iter().map(|(_, column)| (*column).to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    let mut outputs = Vec::with_capacity(edge_columns.len());
    for (position, (name, column)) in edge_columns.into_iter().enumerate() {
        let format = match name {
            EdgeColumns::WEIGHTS => ColumnFormat::weights(),
            _ => ColumnFormat { name: name.to_owned(), element: ElementType::F32, width: 1 },
        };
        let file = SpillFile::create(out, &format!("relation-{relation}-column-{position}"), SPILL_BUFFER)?;
        // The names ascend.
        outputs.push((format, names.partition_point(|other| other.as_str() < column), file));
    }
    let table = Table { source: source.clone(), columns: names };
    table.for_each_batch("reading edge columns", &mut |batch| {
        for row in 0..batch.n_rows {
            for (_, column, file) in &mut outputs {
                let value = match batch.malformed(row) {
                    None => number(&batch.cell(*column, row)).ok().flatten(),
                    Some(_) => None,
                };
                let value = value.map(|value| value as f32).filter(|value| value.is_finite());
                file.write_u32(value.unwrap_or(f32::NAN).to_bits())?;
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut columns = Vec::with_capacity(outputs.len());
    for (format, _, file) in outputs {
        columns.push(SpilledColumn { format, file: file.finish()? });
    }
    Ok(columns)
}

/// Writes the times of the edges of the relation at a position, in one reading of its table; `None` for edges without times.
pub(crate) fn spill_times(
    spec: &RelationSpec,
    source: &Arc<TableSource>,
    out: &Path,
    relation: usize,
) -> Result<Option<SpillFile>> {
    let Some(time) = &spec.time_column() else { return Ok(None) };
    let reader = TimeReader::new(time);
    let mut file = SpillFile::create(out, &format!("relation-{relation}-times"), SPILL_BUFFER)?;
    let table = Table { source: source.clone(), columns: vec![time.column.clone()] };
    table.for_each_batch("reading times of edges", &mut |batch| {
        for row in 0..batch.n_rows {
            let time = match batch.malformed(row) {
                None => reader.read(&batch.cell(0, row)).ok().flatten().unwrap_or(BAD_TIME),
                Some(_) => BAD_TIME,
            };
            file.write_u32(time as u64 as u32)?;
            file.write_u32((time as u64 >> 32) as u32)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Some(file.finish()?))
}

/// The edges of a relation, or of its reverse. Bad rows are skipped.
pub(crate) struct RelationEdgeList<'a> {
    pub(crate) rows: &'a RelationRows,
    /// The ids of the sources and of the destinations of the rows.
    pub(crate) ids: [&'a RowIds; 2],
    pub(crate) is_reversed: bool,
    /// The edges of the set to which rows are appended, which come first.
    pub(crate) known: Option<KnownEdges<'a>>,
    /// The edges that are not in the graph; `None` for a relation without a target.
    pub(crate) held_out: Option<&'a HeldOutEdges>,
}

impl RelationEdgeList<'_> {
    fn read_chunk(
        &self,
        reader: &mut RowReader,
        statuses: &mut Option<SpillReader>,
        n_rows: u64,
        chunk: &mut EdgeChunk,
    ) -> Result<()> {
        chunk.srcs.clear();
        chunk.dsts.clear();
        chunk.columns.iter_mut().for_each(Vec::clear);
        for _ in 0..n_rows {
            let row = reader.next()?;
            let [src, dst] = [self.ids[0].id_of(row.rows[0]), self.ids[1].id_of(row.rows[1])];
            let is_held_out = match (self.held_out, &mut *statuses) {
                (Some(held_out), Some(statuses)) => {
                    held_out.contains(statuses, src.unwrap_or(u32::MAX), dst.unwrap_or(u32::MAX))?
                }
                _ => false,
            };
            if row.problem().is_some() || is_held_out {
                continue;
            }
            let (Some(src), Some(dst)) = (src, dst) else { continue };
            let (src, dst) = if self.is_reversed { (dst, src) } else { (src, dst) };
            chunk.srcs.push(src);
            chunk.dsts.push(dst);
            let mut columns = chunk.columns.iter_mut();
            for (value, column) in row.values.iter().zip(columns.by_ref()) {
                column.extend(value.to_le_bytes());
            }
            if let Some(column) = columns.next().filter(|_| !row.features.is_empty()) {
                column.extend_from_slice(row.features);
            }
            if let (Some(time), Some(column)) = (row.time, chunk.columns.last_mut()) {
                column.extend(time.to_le_bytes());
            }
        }
        Ok(())
    }
}

impl EdgeSource for RelationEdgeList<'_> {
    fn columns(&self) -> Vec<ColumnFormat> {
        self.rows.formats().collect()
    }

    fn for_each_chunk(
        &self,
        _: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> kiln_data::Result<()>,
    ) -> kiln_data::Result<()> {
        self.known.as_ref().map_or(Ok(()), |known| known.for_each_chunk(visit))?;
        let mut reader = self.rows.read().map_err(data_error)?;
        let statuses = self.held_out.map(HeldOutEdges::statuses).transpose();
        let mut statuses = statuses.map_err(data_error)?;
        let mut chunk = EdgeChunk::of_columns(self.rows.formats().count());
        let mut n_left = self.rows.n_rows();
        while n_left > 0 {
            let n_rows = n_left.min(CHUNK_EDGES as u64);
            self.read_chunk(&mut reader, &mut statuses, n_rows, &mut chunk).map_err(data_error)?;
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
