//! The import of tables: keys, rows and edges within a memory limit.

mod from_relations;
mod tasks;
mod write;

use std::path::Path;

use kiln_store::Error as StoreError;
use kiln_store::array_folder::FolderWriter;
use kiln_store::progress::ProgressScope;

use crate::appended_spec::read_appended;
use crate::earlier::check_earlier;
use crate::edge_features::{FittedRows, Spilled, read_edge_features};
use crate::edge_items::EdgeItems;
use crate::edges::{RelationRows, spill_columns, spill_times};
use crate::feature_columns::check_width;
use crate::hash::KeyHash;
use crate::join::{Duplicated, EndColumn, EndRows, Join};
use crate::key_file::KeyFile;
use crate::known_rows::KnownRows;
use crate::known_set::KnownSet;
use crate::node_table::{Fitted, NodeTable};
use crate::options::{ImportOptions, ImportReport};
use crate::row_ids::{RowIds, RowSet};
use crate::spec::{EndSpec, ImportSpec, KeyType};
use crate::spec_tables::SpecTables;
use crate::table::{ReadLimit, SourceFiles, Table, table_of};
use crate::task_rows::TaskRows;
use crate::times::{first_evaluated_time, with_borders, with_borders_of};
use crate::{
    BadRowKind, BadRows, ColumnDrift, DriftKind, EarlierImportError, Error, FittedNodeType, Import, Result,
};

/// The memory of batches of rows, of pages and of buffers in bytes.
const FIXED_BYTES: u64 = 16 << 20;

/// The part of [`FIXED_BYTES`] for pages and long rows. Tables that need more take it from the rest of the memory.
const READING_BYTES: u64 = 8 << 20;

/// Imports the tables of a spec to a new folder: a heterogeneous set in the kiln format, with the spec, the statistics and
/// the keys. The folder appears when it is complete, and an error removes all files. With [`ImportOptions::append_to`], the set
/// also has the nodes and edges of an earlier one.
///
/// ```
/// use kiln_data::Dataset;
/// use kiln_tables::{ImportOptions, import};
/// let root = tempfile::tempdir()?;
/// let put = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
/// put("people.csv", "id,age\nanna,30\nben,40\n")?;
/// put("knows.csv", "a,b\nanna,ben\n")?;
/// let spec = "name: people
/// nodes: [{name: person, files: [people.csv], key: id, columns: [{column: age, transform: standardize}]}]
/// relations: [{name: knows, files: [knows.csv], src: {type: person, column: a}, dst: {type: person, column: b}}]
/// ";
/// put("spec.yaml", spec)?;
/// let [spec, set, more] = ["spec.yaml", "set", "more"].map(|name| root.path().join(name));
/// import(&spec, &set, &ImportOptions::default())?;
/// // Carl is new, and knows a node of the set.
/// put("people.csv", "id,age\ncarl,50\n")?;
/// put("knows.csv", "a,b\ncarl,ben\n")?;
/// import(&spec, &more, &ImportOptions { append_to: Some(set), ..ImportOptions::default() })?;
/// let data = Dataset::open(&more)?;
/// assert_eq!((data.graph.n_edges(), data.new_rows(0)), (2, Some(2..3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] within [`Error::Store`] if the output exists and is not an empty folder,
/// [`crate::SpecError::SpecSyntax`] or [`crate::SpecError::Spec`] for an invalid spec, [`crate::SpecError::Files`] for an
/// entry that matches no table, [`crate::SpecError::Column`] for a column that a table does not have, [`Error::BadRows`] if tables have bad rows that the spec does not drop,
/// [`crate::TableFileError`] for files that cannot be read, [`EarlierImportError`] for an earlier import that the spec does not fit
/// or to whose set rows cannot be appended,
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
    let pool = pool.map_err(|error| Error::Threads { n_threads, message: error.to_string() })?;
    let scope = ProgressScope::current();
    pool.install(|| scope.run(run))
}

fn import_spec(
    path: &Path,
    sources: &SourceFiles,
    out: &Path,
    options: &ImportOptions,
) -> Result<ImportReport> {
    let known = known_set(options)?;
    let (spec, of_earlier) = match (&known, &options.transforms_of) {
        (Some(known), _) => read_appended(path, known.import().spec())?,
        (None, Some(earlier)) => {
            let spec = ImportSpec::read(path)?;
            let notes = check_earlier(&spec, earlier.spec())?;
            (spec, notes)
        }
        (None, None) => (ImportSpec::read(path)?, Vec::new()),
    };
    let tables = SpecTables::find(&spec, sources)?;
    let earlier = known.as_ref().map(KnownSet::import).or(options.transforms_of.as_deref());
    let spec = match earlier {
        Some(earlier) => with_borders_of(spec, earlier.spec()),
        None => spec,
    };
    let spec = with_borders(spec, &tables)?;
    let fitted_before = first_evaluated_time(&spec, &tables)?;
    let set = FolderWriter::create(out)?;
    let temporary = set.folder().to_owned();
    let mut notes = tables.notes();
    notes.extend(of_earlier);
    // Without it, damaged values would get valid hashes.
    known.as_ref().map_or(Ok(()), KnownSet::verify)?;
    let mut importer = Importer {
        spec: &spec,
        sources,
        tables,
        temporary: &temporary,
        options,
        known: known.as_ref(),
        fitted_before,
        found: Vec::new(),
        notes,
        drift: Vec::new(),
        reading: (0, String::new()),
    };
    importer.reading = importer.find_reading_bytes()?;
    let (types, relations, tasks) = importer.resolve()?;
    let items = relations.iter().find_map(|relation| relation.items.as_ref());
    if importer.found.iter().any(|rows| !rows.is_dropped) {
        return Err(Error::BadRows(importer.found));
    }
    if let Some(imported) = types.iter().find(|imported| imported.lacks_targets) {
        return Err(Error::NoTargets { table: table_of(&imported.fitted.name) });
    }
    // New rows need no targets.
    if items.is_some_and(|items| items.lacks_targets) && !importer.has_earlier() {
        return Err(Error::NoTargets { table: items.map_or_else(String::new, EdgeItems::label) });
    }
    if let Some(task) = tasks.iter().find(|task| task.lacks_targets && !importer.has_earlier()) {
        return Err(Error::NoTargets { table: task.label() });
    }
    importer.check_dims(&types)?;
    let untaken = importer.tables.untaken_rows()?;
    importer.notes.extend(untaken);
    importer.write(set, types, relations, tasks)
}

/// Opens the set to which the rows are appended.
fn known_set(options: &ImportOptions) -> Result<Option<KnownSet>> {
    if options.append_to.is_some() && options.transforms_of.is_some() {
        return Err(Error::EarlierImport(EarlierImportError::TwoImports));
    }
    options.append_to.as_deref().map(KnownSet::open).transpose()
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
    /// The number of rows with the features and the target of a known node, and of those with another part of the split.
    n_known_rows: u64,
    n_other_parts: u64,
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
    /// The set to which the rows are appended.
    known: Option<&'a KnownSet>,
    /// The first time of rows that are not in the statistics of features; `None` for those of all rows.
    fitted_before: Option<i64>,
    found: Vec<BadRows>,
    notes: Vec<String>,
    drift: Vec<ColumnDrift>,
    /// The memory for reading the table that takes most, besides [`FIXED_BYTES`], and the table.
    reading: (u64, String),
}

/// A relation whose rows are known.
struct ImportedRelation<'a> {
    rows: RelationRows,
    /// The targets of its edges; `None` for a relation without a target.
    items: Option<EdgeItems<'a>>,
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
            let dim = check_width(table_of(&imported.fitted.name), &imported.fitted.columns)?;
            self.room(used_bytes + 4 * dim as u64)?;
        }
        Ok(())
    }

    /// Returns true if the statistics are those of an earlier import.
    fn has_earlier(&self) -> bool {
        self.known.is_some() || self.options.transforms_of.is_some()
    }

    /// Returns the import whose statistics are used.
    fn earlier_import(&self) -> Option<&'a Import> {
        match self.known {
            Some(known) => Some(known.import()),
            None => self.options.transforms_of.as_deref(),
        }
    }

    fn earlier(&self, name: &str) -> Option<&'a FittedNodeType> {
        self.earlier_import().and_then(|earlier| earlier.node_type(name))
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
    #[allow(clippy::type_complexity, reason = "the parts of the set, in their order")]
    fn resolve(&mut self) -> Result<(Vec<ImportedType<'a>>, Vec<ImportedRelation<'a>>, Vec<TaskRows<'a>>)> {
        let mut types: Vec<ImportedType<'a>> = Vec::new();
        let mut ends: Vec<[Option<EndRows>; 2]> = vec![[None, None]; self.spec.relations.len()];
        let mut of_tasks: Vec<Vec<EndRows>> = vec![Vec::new(); self.spec.tasks.len()];
        for position in 0..self.spec.nodes.len() {
            let used_bytes = types.iter().map(ImportedType::heap_bytes).sum();
            let (imported, rows) = self.resolve_type(position, used_bytes)?;
            let mut rows = rows.into_iter();
            for (end, rows) in self.ends_of(position).iter().zip(&mut rows) {
                ends[end.relation][end.side] = Some(rows);
            }
            // Those of the ends come first.
            for (task, rows) in self.tasks_of(position).into_iter().zip(rows) {
                of_tasks[task].push(rows);
            }
            types.push(imported);
        }
        let mut relations = Vec::new();
        for (position, (spec, ends)) in self.spec.relations.iter().zip(ends).enumerate() {
            let [Some(src), Some(dst)] = ends else {
                unreachable!("the spec should name the types of all ends")
            };
            let source = self.tables.relations[position].clone();
            let columns = spill_columns(spec, &source, self.temporary, position)?;
            if src.n_rows != dst.n_rows {
                let table = source.label.clone();
                let what = "a table that changed during the import".to_owned();
                return Err(Error::TooLarge { table, what, max: src.n_rows.min(dst.n_rows) });
            }
            let times = spill_times(spec, &source, self.temporary, position)?;
            let mut rows = RelationRows { ends: [src, dst], columns, features: None, times };
            self.read_features(position, &types, &mut rows)?;
            let key_types = [&spec.src, &spec.dst].map(|end| self.key_type_of(&end.node_type));
            let mut log = rows.bad_rows(spec, &source, key_types)?;
            let items = EdgeItems::scan(spec, &source, &rows, key_types, self.temporary, &mut log)?;
            let mut found = log.finish(&source.label, &spec.drop);
            self.explain_missing_nodes(&[&spec.src, &spec.dst], &mut found);
            self.found.extend(found);
            if !self.has_earlier() {
                self.notes.extend(source.note_on_unused_texts());
            }
            self.notes.extend(items.iter().flat_map(|items| items.notes.iter().cloned()));
            relations.push(ImportedRelation { rows, items });
        }
        let tasks = self.scan_tasks(of_tasks)?;
        Ok((types, relations, tasks))
    }

    /// Reads the features of the edges of the relation at a position, if its spec names columns for them.
    fn read_features(
        &mut self,
        position: usize,
        types: &[ImportedType<'_>],
        rows: &mut RelationRows,
    ) -> Result<()> {
        let spec = &self.spec.relations[position];
        if spec.columns.is_empty() {
            return Ok(());
        }
        let earlier = self.earlier_import().and_then(|earlier| earlier.relation(&spec.name));
        let place = Spilled { folder: self.temporary, relation: position };
        let srcs = types.iter().find(|of| of.fitted.name == spec.src.node_type);
        let fitted = FittedRows::new(earlier, self.fitted_before, srcs.and_then(|of| of.table.as_ref()));
        let read = read_edge_features(spec, &self.tables.relations[position], rows, fitted, place)?;
        self.notes.extend(read.notes);
        self.drift.extend(read.drift);
        rows.features = Some(read.features);
        Ok(())
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
                || of_column.all(|other| other.table != drift.table)
        });
        self.drift.extend(found);
    }

    fn key_type_of(&self, node_type: &str) -> KeyType {
        let spec = self.spec.nodes.iter().find(|spec| spec.name == node_type);
        spec.map_or_else(KeyType::default, |spec| spec.key_type)
    }

    /// Adds to the dangling rows of a table that bad rows of its node types do not become nodes.
    fn explain_missing_nodes(&self, ends: &[&EndSpec], found: &mut [BadRows]) {
        let ends: Vec<String> = ends.iter().map(|end| table_of(&end.node_type)).collect();
        let bad =
            self.found.iter().filter(|rows| ends.contains(&rows.table) && rows.kind == BadRowKind::WrongType);
        let bad: Vec<String> = bad
            .map(|rows| match rows.n_rows {
                1 => format!("1 bad row of {} does not become a node", rows.table),
                n_rows => format!("{n_rows} bad rows of {} do not become nodes", rows.table),
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
        let mut columns: Vec<EndColumn> =
            self.ends_of(position).iter().map(|end| self.column_of(end, position)).collect();
        columns.extend(self.columns_of_tasks(position));
        let Some(source) = &self.tables.nodes[position] else {
            return self.type_from_relations(position, &columns, used_bytes);
        };
        let earlier = self.earlier(&spec.name);
        let known = self.known.map(|known| known.nodes(position));
        let mut table = NodeTable::new(spec, source, earlier).with_known_nodes(known);
        table.fitted_before = self.fitted_before;
        if table.time.is_none() && table.known_nodes.is_some_and(|known| known.times.is_some()) {
            let what = "its nodes have times, and `time` is missing".to_owned();
            return Err(Error::EarlierImport(EarlierImportError::OtherTable { table: table.label, what }));
        }
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
        let ids = RowIds::new(scan.keys.n_rows, scan.dropped);
        self.check_known_ids(&ids, table.n_known(), &table.label)?;
        let known_rows =
            self.compare_known_rows(&table, earlier, &scan.keys, used_bytes + ids.heap_bytes())?;
        let KnownRows { n_same: n_known_rows, n_other_parts, n_differing, n_new_targets, differing } =
            known_rows;
        scan.log.extend(differing);
        let mut found = scan.log.finish(&table.label, &spec.drop);
        for rows in found.iter_mut().filter(|rows| rows.kind == BadRowKind::Duplicate && n_differing > 0) {
            rows.because = format!(", or that of a node of the set with other values ({n_differing})");
            if n_new_targets > 0 {
                rows.because +=
                    &format!(" or with a target that it does not have in the set ({n_new_targets})");
            }
        }
        self.found.extend(found);
        let Fitted { node_type: fitted, lacks_targets, notes } = match (scan.fitted, earlier) {
            // The first reading counted duplicate rows, too.
            (Some(_), _) if duplicates.n_rows > 0 => table.fit(&|row| !ids.is_dropped(row))?,
            (Some(fitted), _) => fitted,
            (None, Some(earlier)) => {
                let has_target = spec.target.is_some() || table.known_nodes.is_some();
                let target = earlier.target.clone().filter(|_| has_target);
                let node_type = FittedNodeType { target, ..earlier.clone() };
                // New rows need no targets.
                Fitted { node_type, lacks_targets: false, notes: Vec::new() }
            }
            (None, None) => unreachable!("statistics should be computed without an earlier import"),
        };
        self.notes.extend(notes);
        self.drift.extend(scan.drift);
        let keys = scan.keys;
        Ok((
            ImportedType {
                table: Some(table),
                keys,
                ids,
                fitted,
                lacks_targets,
                n_known_rows,
                n_other_parts,
            },
            rows,
        ))
    }

    /// Checks that no known node has the name of another one, by which its id would be another one.
    fn check_known_ids(&self, ids: &RowIds, n_known: u32, label: &str) -> Result<()> {
        let (Some(known), Some(last)) = (self.known, n_known.checked_sub(1)) else { return Ok(()) };
        match ids.id_of(last) == Some(last) {
            true => Ok(()),
            false => Err(known.changed(format!("{label} has two nodes of one name"))),
        }
    }

    /// Compares the rows of a table that have the key of a known node with the node.
    fn compare_known_rows(
        &self,
        table: &NodeTable<'_>,
        fitted: Option<&FittedNodeType>,
        keys: &KeyFile,
        used_bytes: u64,
    ) -> Result<KnownRows> {
        let (Some(nodes), Some(fitted)) = (&table.known_nodes, fitted) else {
            return Ok(KnownRows::default());
        };
        if keys.n_rows == keys.n_known || keys.n_known == 0 {
            return Ok(KnownRows::default());
        }
        let mut dropped = RowSet::default();
        let (_, first) =
            self.join(&table.label, keys, &mut dropped, used_bytes, |join| join.find_first_rows())?;
        KnownRows::compare(table, nodes, fitted, &first)
    }

    /// Runs a join, and returns the duplicate rows and the result.
    fn join<T>(
        &self,
        table: &str,
        keys: &KeyFile,
        dropped: &mut RowSet,
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
}
