//! The import of tables: keys, rows and edges within a memory limit.

use std::ops::ControlFlow;
use std::path::Path;

use kiln_data::convert::ConvertOptions;
use kiln_data::format::{RelationTypes, SetWriter};
use kiln_feature::MAX_DIM;
use kiln_graph::NodeTypes;
use kiln_store::Error as StoreError;
use kiln_store::array_folder::FolderWriter;

use crate::earlier::check_earlier;
use crate::edges::{RelationEdgeList, RelationRows, spill_columns};
use crate::hash::KeyHash;
use crate::join::{Duplicated, EndColumn, EndRows, Join, KeyFile, MAX_ROWS};
use crate::key::{RowKey, map_keys};
use crate::node_table::{Fitted, NodeTable};
use crate::node_writer::{write_names, write_node_type};
use crate::options::{ImportOptions, ImportReport};
use crate::record::{FILE, Import};
use crate::row_ids::{DroppedRows, RowIds};
use crate::spec::{EndSpec, ImportSpec, KeyType, RelationSpec};
use crate::spec_tables::SpecTables;
use crate::spill::{KeyRecord, SPILL_BUFFER, SpillFile};
use crate::table::{ReadLimit, SourceFiles, Table, TableSource, table_of};
use crate::{BadRowKind, BadRows, ColumnDrift, DriftKind, Error, FittedColumn, FittedNodeType, Result};

/// The memory of batches of rows, of pages and of buffers in bytes.
const FIXED_BYTES: u64 = 16 << 20;

/// The part of [`FIXED_BYTES`] for pages and long rows. Tables that need more take it from the rest of the memory.
const READING_BYTES: u64 = 8 << 20;

/// Imports the tables of a spec to a new folder: a heterogeneous set in the kiln format, with the spec, the statistics and
/// the keys. The folder appears when it is complete, and an error removes all files.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] within [`Error::Store`] if the output exists and is not an empty folder,
/// [`crate::SpecError::SpecSyntax`] or [`crate::SpecError::Spec`] for an invalid spec, [`crate::SpecError::Files`] for an
/// entry that matches no table, [`crate::SpecError::Column`] for a column that a table does not have, [`Error::BadRows`] if tables have bad rows that the spec does not drop,
/// [`crate::TableFileError`] for files that cannot be read,
/// [`Error::Memory`] if the limit is too small, [`Error::DiskFull`], and other errors of reading and writing.
pub fn import(
    spec: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: &ImportOptions,
) -> Result<ImportReport> {
    let spec = spec.as_ref();
    let out = out.as_ref();
    let limit = ReadLimit::new(options.memory_bytes);
    let sources = SourceFiles::new(spec.parent().unwrap_or(Path::new("")), limit);
    let imported = in_pool(options.n_threads, || import_spec(spec, &sources, out, options));
    // A table that changes while it is read may cause any other error.
    imported.map_err(|error| match sources.check() {
        Err(changed @ Error::Store(StoreError::Changed { .. })) => changed,
        _ => error,
    })
}

/// Runs a function in a pool of threads.
fn in_pool<T: Send>(n_threads: Option<usize>, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let Some(n_threads) = n_threads else { return run() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
    pool.map_err(|error| Error::Threads { n_threads, message: error.to_string() })?.install(run)
}

fn import_spec(
    path: &Path,
    sources: &SourceFiles,
    out: &Path,
    options: &ImportOptions,
) -> Result<ImportReport> {
    let spec = ImportSpec::read(path)?;
    let tables = SpecTables::find(&spec, sources)?;
    let set = FolderWriter::create(out)?;
    let temporary = set.folder().to_owned();
    let mut notes = tables.notes();
    if let Some(earlier) = &options.transforms_of {
        notes.extend(check_earlier(&spec, earlier.spec())?);
    }
    let mut importer = Importer {
        spec: &spec,
        sources,
        tables,
        temporary: &temporary,
        options,
        found: Vec::new(),
        notes,
        drift: Vec::new(),
        reading: (0, String::new()),
    };
    importer.reading = importer.find_reading_bytes()?;
    let (types, relations) = importer.resolve()?;
    if importer.found.iter().any(|rows| !rows.is_dropped) {
        return Err(Error::BadRows(importer.found));
    }
    if let Some(imported) = types.iter().find(|imported| imported.lacks_targets) {
        return Err(Error::NoTargets { table: table_of(&imported.fitted.name) });
    }
    importer.check_dims(&types)?;
    let untaken = importer.tables.untaken_rows()?;
    importer.notes.extend(untaken);
    importer.write(set, types, relations)
}

/// A node type whose rows have ids.
struct ImportedType<'a> {
    /// The table; `None` for a type from relations.
    table: Option<NodeTable<'a>>,
    keys: KeyFile,
    ids: RowIds,
    fitted: FittedNodeType,
    /// True if the spec has a target that no row has.
    lacks_targets: bool,
}

impl ImportedType<'_> {
    fn heap_bytes(&self) -> u64 {
        self.ids.heap_bytes() + self.fitted.heap_bytes()
    }
}

struct Importer<'a> {
    spec: &'a ImportSpec,
    sources: &'a SourceFiles,
    tables: SpecTables,
    temporary: &'a Path,
    options: &'a ImportOptions,
    found: Vec<BadRows>,
    notes: Vec<String>,
    drift: Vec<ColumnDrift>,
    /// The memory for reading the table that takes most, besides [`FIXED_BYTES`], and the table.
    reading: (u64, String),
}

/// The end of a relation.
struct End<'a> {
    relation: usize,
    /// 0 for the source and 1 for the destination.
    side: usize,
    spec: &'a EndSpec,
}

impl<'a> Importer<'a> {
    /// Checks the number of feature columns of each type, and that a row fits in memory.
    fn check_dims(&self, types: &[ImportedType<'_>]) -> Result<()> {
        let used_bytes: u64 = types.iter().map(ImportedType::heap_bytes).sum();
        for imported in types {
            let dim: usize = imported.fitted.columns.iter().map(FittedColumn::width).sum();
            if MAX_DIM < dim {
                let table = table_of(&imported.fitted.name);
                let what = format!("{dim} feature columns");
                return Err(Error::TooLarge { table, what, max: MAX_DIM as u64 });
            }
            self.room(used_bytes + 4 * dim as u64)?;
        }
        Ok(())
    }

    fn earlier(&self, name: &str) -> Option<&'a FittedNodeType> {
        self.options.transforms_of.as_ref().and_then(|earlier| earlier.node_type(name))
    }

    /// Returns the memory that is left, after `used_bytes` and the buffers.
    fn room(&self, used_bytes: u64) -> Result<u64> {
        let budget_bytes = self.options.memory_bytes;
        let (reading_bytes, table) = &self.reading;
        let fixed_bytes = FIXED_BYTES + reading_bytes;
        let needed_bytes = fixed_bytes + used_bytes + (1 << 20);
        if budget_bytes < needed_bytes {
            let what = match reading_bytes {
                0 => "the buffers and the ids of the rows".to_owned(),
                _ => format!("the buffers, reading {table}, and the ids of the rows"),
            };
            return Err(Error::Memory { what, needed_bytes, budget_bytes });
        }
        Ok(budget_bytes - fixed_bytes - used_bytes)
    }

    /// Converts the error of a limit that is a part of that of the import.
    fn name_whole_limit(&self, error: Error) -> Error {
        let whole_bytes = self.options.memory_bytes;
        match error {
            Error::Memory { what, needed_bytes, budget_bytes } => {
                let needed_bytes = needed_bytes.saturating_add(whole_bytes.saturating_sub(budget_bytes));
                Error::Memory { what, needed_bytes, budget_bytes: whole_bytes }
            }
            other => other,
        }
    }

    /// Returns the memory for reading the table that takes most, besides [`READING_BYTES`].
    fn find_reading_bytes(&self) -> Result<(u64, String)> {
        let mut most = (0, String::new());
        for source in self.tables.all() {
            let table = Table { source: source.clone(), columns: source.columns().to_vec() };
            let n_bytes = table.reading_bytes()?.saturating_sub(READING_BYTES);
            if most.0 < n_bytes {
                most = (n_bytes, source.label.clone());
            }
        }
        Ok(most)
    }

    /// Finds the ids of all rows and the rows of all relations, and collects the bad rows.
    fn resolve(&mut self) -> Result<(Vec<ImportedType<'a>>, Vec<RelationRows>)> {
        let mut types: Vec<ImportedType<'a>> = Vec::new();
        let mut ends: Vec<[Option<EndRows>; 2]> = vec![[None, None]; self.spec.relations.len()];
        for position in 0..self.spec.nodes.len() {
            let used_bytes = types.iter().map(ImportedType::heap_bytes).sum();
            let (imported, rows) = self.resolve_type(position, used_bytes)?;
            for (end, rows) in self.ends_of(position).iter().zip(rows) {
                ends[end.relation][end.side] = Some(rows);
            }
            types.push(imported);
        }
        let mut relations = Vec::new();
        for (position, (spec, ends)) in self.spec.relations.iter().zip(ends).enumerate() {
            let [Some(src), Some(dst)] = ends else {
                unreachable!("the spec should name the types of all ends")
            };
            let source = &self.tables.relations[position];
            let columns = spill_columns(spec, source, self.temporary, position)?;
            if src.n_rows != dst.n_rows {
                let table = source.label.clone();
                let what = "a table that changed during the import".to_owned();
                return Err(Error::TooLarge { table, what, max: src.n_rows.min(dst.n_rows) });
            }
            let rows = RelationRows { ends: [src, dst], columns };
            let key_types = [&spec.src, &spec.dst].map(|end| self.key_type_of(&end.node_type));
            let log = rows.bad_rows(spec, source, key_types)?;
            let mut found = log.finish(&source.label, &spec.drop);
            self.explain_dangling(spec, &mut found);
            self.found.extend(found);
            if self.options.transforms_of.is_none() {
                self.notes.extend(unused_texts(source));
            }
            relations.push(rows);
        }
        Ok((types, relations))
    }

    /// Adds what is unlike the values of an earlier import. Numbers out of range say more than their scale.
    fn add_drift(&mut self, found: Vec<ColumnDrift>) {
        let out_of_range: Vec<&ColumnDrift> = found
            .iter()
            .filter(|drift| drift.is_notable() && matches!(drift.kind, DriftKind::Range { .. }))
            .collect();
        self.drift.retain(|drift| {
            let mut of_column = out_of_range.iter().filter(|other| other.column == drift.column);
            !matches!(drift.kind, DriftKind::Scale { .. })
                || of_column.all(|other| other.node_type != drift.node_type)
        });
        self.drift.extend(found);
    }

    fn key_type_of(&self, node_type: &str) -> KeyType {
        let spec = self.spec.nodes.iter().find(|spec| spec.name == node_type);
        spec.map_or_else(KeyType::default, |spec| spec.key_type)
    }

    /// Says of the dangling rows of a relation that bad rows of its node types are no nodes.
    fn explain_dangling(&self, spec: &RelationSpec, found: &mut [BadRows]) {
        let ends = [&spec.src, &spec.dst].map(|end| table_of(&end.node_type));
        let bad =
            self.found.iter().filter(|rows| ends.contains(&rows.table) && rows.kind == BadRowKind::WrongType);
        let bad: Vec<String> = bad
            .map(|rows| match rows.n_rows {
                1 => format!("1 bad row of {} is no node", rows.table),
                n_rows => format!("{n_rows} bad rows of {} are no nodes", rows.table),
            })
            .collect();
        for rows in found.iter_mut().filter(|rows| rows.kind == BadRowKind::Dangling && !bad.is_empty()) {
            rows.because = format!(" ({})", bad.join(", "));
        }
    }

    fn ends_of(&self, node_type: usize) -> Vec<End<'a>> {
        let name = &self.spec.nodes[node_type].name;
        let ends = self.spec.relations.iter().enumerate().flat_map(|(relation, spec)| {
            [&spec.src, &spec.dst].into_iter().enumerate().map(move |(side, spec)| End {
                relation,
                side,
                spec,
            })
        });
        ends.filter(|end| end.spec.node_type == *name).collect()
    }

    fn column_of(&self, end: &End<'_>, node_type: usize) -> EndColumn {
        let source = self.tables.relations[end.relation].clone();
        EndColumn {
            table: Table { source, columns: vec![end.spec.column.clone()] },
            key_type: self.spec.nodes[node_type].key_type,
            name: format!("relation-{}-{}", end.relation, end.side),
        }
    }

    /// Finds the ids of a type's rows, and its rows in the relations.
    fn resolve_type(&mut self, position: usize, used_bytes: u64) -> Result<(ImportedType<'a>, Vec<EndRows>)> {
        let spec = &self.spec.nodes[position];
        let columns: Vec<EndColumn> =
            self.ends_of(position).iter().map(|end| self.column_of(end, position)).collect();
        let Some(source) = &self.tables.nodes[position] else {
            return self.type_from_relations(position, &columns, used_bytes);
        };
        let earlier = self.earlier(&spec.name);
        let table = NodeTable::new(spec, source, earlier);
        let mut scan = table.scan(self.temporary, earlier)?;
        let (duplicates, rows) =
            self.join(&table.label, &scan.keys, &mut scan.dropped, used_bytes, |join| {
                if columns.is_empty() {
                    join.find_first_rows().map(|_| Vec::new())
                } else {
                    join.find_rows(&columns)
                }
            })?;
        if duplicates.n_rows > 0 {
            let examples = table.duplicates(&duplicates.first)?;
            scan.log.add_counted(BadRowKind::Duplicate, duplicates.n_rows, examples);
        }
        self.found.extend(scan.log.finish(&table.label, &spec.drop));
        let ids = RowIds::new(scan.keys.n_rows, scan.dropped);
        let Fitted { node_type: fitted, lacks_targets, notes } = match (scan.fitted, earlier) {
            // The first reading counted duplicate rows, too.
            (Some(_), _) if duplicates.n_rows > 0 => table.fit(&|row| !ids.is_dropped(row))?,
            (Some(fitted), _) => fitted,
            (None, Some(earlier)) => {
                let target = earlier.target.clone().filter(|_| spec.target.is_some());
                let node_type = FittedNodeType { target, ..earlier.clone() };
                // New rows need no targets.
                Fitted { node_type, lacks_targets: false, notes: Vec::new() }
            }
            (None, None) => unreachable!("statistics should be computed without an earlier import"),
        };
        self.notes.extend(notes);
        self.drift.extend(scan.drift);
        let keys = scan.keys;
        Ok((ImportedType { table: Some(table), keys, ids, fitted, lacks_targets }, rows))
    }

    /// Runs a join, and returns the duplicate rows and the result.
    fn join<T>(
        &self,
        table: &str,
        keys: &KeyFile,
        dropped: &mut DroppedRows,
        used_bytes: u64,
        run: impl FnOnce(&mut Join<'_>) -> Result<T>,
    ) -> Result<(Duplicated, T)> {
        // A bit per row, of which twice as many are allocated while the list grows.
        let used_bytes = used_bytes + u64::from(keys.n_rows) / 4;
        let mut join = Join {
            folder: self.temporary,
            table,
            keys,
            room_bytes: self.room(used_bytes)?,
            used_bytes: used_bytes + FIXED_BYTES + self.reading.0,
            dropped,
            duplicates: Duplicated::default(),
            hash: KeyHash::default(),
        };
        let result = run(&mut join)?;
        Ok((join.duplicates, result))
    }

    /// Makes a node of each key of the relations: its rows are those of all ends, one after the other.
    fn type_from_relations(
        &self,
        position: usize,
        columns: &[EndColumn],
        used_bytes: u64,
    ) -> Result<(ImportedType<'a>, Vec<EndRows>)> {
        let spec = &self.spec.nodes[position];
        let label = table_of(&spec.name);
        let mut keys = SpillFile::create(self.temporary, &format!("keys-of-type-{position}"), SPILL_BUFFER)?;
        let mut dropped = DroppedRows::default();
        let mut n_rows = 0_u64;
        let mut n_keys = 0;
        let mut text_bytes = 0;
        let mut starts = vec![0_u64];
        for column in columns {
            column.table.for_each_batch(&mut |batch| {
                if MAX_ROWS < n_rows + batch.n_rows as u64 {
                    let what = "too many rows in its relations".to_owned();
                    return Err(Error::TooLarge { table: label.clone(), what, max: MAX_ROWS });
                }
                let found = map_keys(batch, 0, column.key_type, |key| match key {
                    RowKey::Key(key) => Ok(key.to_vec()),
                    RowKey::Missing => Err(KeyRecord::Missing),
                    RowKey::Wrong => Err(KeyRecord::Wrong),
                });
                for key in found {
                    match &key {
                        Ok(key) => {
                            n_keys += 1;
                            text_bytes += key.len() as u64;
                            keys.write_key(KeyRecord::Key(key))?;
                        }
                        Err(record) => {
                            dropped.insert(n_rows as u32);
                            keys.write_key(*record)?;
                        }
                    }
                    n_rows += 1;
                }
                Ok(ControlFlow::Continue(()))
            })?;
            starts.push(n_rows);
        }
        let keys = KeyFile { file: keys.finish()?, n_rows: n_rows as u32, n_keys, text_bytes };
        let (_, first) = self.join(&label, &keys, &mut dropped, used_bytes, |join| join.find_first_rows())?;
        let rows = starts
            .iter()
            .zip(&starts[1..])
            .map(|(start, end): (&u64, &u64)| EndRows {
                file: first.file.clone(),
                start: *start,
                n_rows: end - start,
            })
            .collect();
        let ids = RowIds::new(keys.n_rows, dropped);
        let fitted = FittedNodeType { name: spec.name.clone(), columns: Vec::new(), target: None };
        Ok((ImportedType { table: None, keys, ids, fitted, lacks_targets: false }, rows))
    }

    fn write(
        mut self,
        set: FolderWriter,
        types: Vec<ImportedType<'a>>,
        relations: Vec<RelationRows>,
    ) -> Result<ImportReport> {
        let names = types.iter().map(|imported| (imported.fitted.name.as_str(), imported.ids.n_ids()));
        let node_types = NodeTypes::new(names)?;
        let mut set = SetWriter::new(set, &self.spec.name, &node_types);
        let mut ids = Vec::new();
        let mut fitted = Vec::new();
        let mut counts = Vec::new();
        let mut split = None;
        for (position, imported) in types.into_iter().enumerate() {
            let first = node_types.range(position).start;
            let label = table_of(&imported.fitted.name);
            if let Some(table) = &imported.table {
                let written =
                    write_node_type(&mut set, position, first, table, &imported.ids, &imported.fitted)?;
                split = split.or(written.split);
                if self.options.transforms_of.is_some() {
                    self.add_drift(written.drift);
                } else {
                    self.notes.extend(unused_texts(&table.table.source));
                }
            }
            write_names(&mut set, position, &label, &imported.keys, &imported.ids)?;
            counts.push((imported.fitted.name.clone(), imported.ids.n_ids() as u64));
            ids.push(imported.ids);
            fitted.push(imported.fitted);
        }
        let of_ids: u64 = ids.iter().map(RowIds::heap_bytes).sum();
        let of_values: u64 = fitted.iter().map(FittedNodeType::heap_bytes).sum();
        let used_bytes = of_ids + of_values;
        let options = ConvertOptions { memory_bytes: self.room(used_bytes)?, ..ConvertOptions::default() };
        let mut n_edges = Vec::new();
        for (spec, rows) in self.spec.relations.iter().zip(relations) {
            for (name, is_reversed) in
                [(Some(&spec.name), false), (spec.reverse.as_ref(), true)].into_iter().filter_map(named)
            {
                let [src, dst] = [&spec.src, &spec.dst].map(|end| node_types.require(&end.node_type));
                let src = src?;
                let dst = dst?;
                let source = RelationEdgeList { rows: &rows, ids: [&ids[src], &ids[dst]], is_reversed };
                let (src_type, dst_type) = if is_reversed { (dst, src) } else { (src, dst) };
                let written =
                    set.write_relation(RelationTypes { name, src_type, dst_type }, &source, &options);
                let written = written.map_err(|error| self.name_whole_limit(error.into()))?;
                n_edges.push((name.to_owned(), written.n_edges as u64));
            }
        }
        let record = Import::new(self.spec.clone(), fitted, &self.found);
        set.attach(FILE, &record.to_json())?;
        self.sources.check()?;
        set.commit()?;
        let Self { found: dropped, notes, drift, .. } = self;
        Ok(ImportReport { node_types: counts, relations: n_edges, split, dropped, notes, drift })
    }
}

fn named((name, is_reversed): (Option<&String>, bool)) -> Option<(&str, bool)> {
    name.map(|name| (name.as_str(), is_reversed))
}

/// Returns a note on the texts of `missing` that no value of a table has.
fn unused_texts(source: &TableSource) -> Option<String> {
    let unused: Vec<String> = source.missing.unused().map(|text| format!("{text:?}")).collect();
    let texts = unused.join(", ");
    let table = &source.label;
    (!unused.is_empty())
        .then(|| format!("{table}: no value is missing by its text: `missing: [{texts}]` has no effect"))
}
