//! The tables of a spec, and the rows that no part of the spec takes.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use kiln_store::counted;

use crate::Result;
use crate::bad_rows::shortened;
use crate::spec::ImportSpec;
use crate::table::{SourceFiles, Table, TableSource, value_text};

/// The maximum number of different values that are counted.
const MAX_COUNTED: usize = 1 << 12;

/// The number of different values in a note, the most frequent ones.
const MAX_SHOWN: usize = 10;

/// The tables of a spec.
#[derive(Debug)]
pub(crate) struct SpecTables {
    /// The table of each node type; `None` for a type from relations.
    pub(crate) nodes: Vec<Option<Arc<TableSource>>>,
    pub(crate) relations: Vec<Arc<TableSource>>,
    /// The files of each task table, with the part of the split that their rows have; `None` for the split of the spec.
    pub(crate) tasks: Vec<Vec<(Option<usize>, Arc<TableSource>)>>,
}

impl SpecTables {
    /// Finds the files of all tables, and opens them.
    pub(crate) fn find(spec: &ImportSpec, sources: &SourceFiles) -> Result<Self> {
        let nodes = spec.nodes.iter().map(|spec| match spec.from {
            None => TableSource::find_nodes(spec, sources).map(Some),
            Some(_) => Ok(None),
        });
        let nodes = nodes.collect::<Result<_>>()?;
        let relations = spec.relations.iter().map(|spec| TableSource::find_relation(spec, sources));
        let tasks = spec.tasks.iter().map(|spec| TableSource::find_task(spec, sources));
        let relations = relations.collect::<Result<_>>()?;
        let tables = Self { nodes, relations, tasks: tasks.collect::<Result<_>>()? };
        tables.all().try_for_each(|table| table.open_all())?;
        Ok(tables)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<TableSource>> {
        let of_tasks = self.tasks.iter().flatten().map(|(_, source)| source);
        self.nodes.iter().flatten().chain(&self.relations).chain(of_tasks)
    }

    /// Returns what of the files is not read or is missing.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.all().flat_map(|table| table.notes.clone()).collect()
    }

    /// Reads the files of which no table takes all rows, and returns notes: on the rows that no table takes, by their values, and on
    /// values of the spec that no row has.
    pub(crate) fn untaken_rows(&self) -> Result<Vec<String>> {
        let mut by_files: BTreeMap<(Vec<PathBuf>, String), Vec<&Arc<TableSource>>> = BTreeMap::new();
        for table in self.all() {
            let files = table.files.iter().map(|file| file.path.clone()).collect();
            by_files.entry((files, format!("{:?}", table.csv))).or_default().push(table);
        }
        let mut notes = Vec::new();
        for tables in by_files.values() {
            if tables.iter().all(|table| table.filter.is_some()) {
                notes.extend(untaken_of_files(tables)?);
            }
            for table in tables {
                for (column, texts) in table.filter.iter().flat_map(|filter| filter.unused()) {
                    let texts: Vec<String> = texts.into_iter().map(|text| format!("{text:?}")).collect();
                    notes.push(format!(
                        "{}: no row is taken for {column:?} of {}",
                        table.label,
                        texts.join(", ")
                    ));
                }
            }
        }
        Ok(notes)
    }
}

/// Counts the rows of some files that none of the tables takes.
fn untaken_of_files(tables: &[&Arc<TableSource>]) -> Result<Option<String>> {
    let mut columns: Vec<String> = Vec::new();
    let filters = tables.iter().filter_map(|table| table.filter.as_ref());
    columns.extend(filters.clone().flat_map(|filter| filter.columns()).map(str::to_owned));
    columns.sort_unstable();
    columns.dedup();
    let positions: Vec<Vec<usize>> = filters
        .clone()
        .map(|filter| {
            filter.columns().map(|name| columns.partition_point(|column| column.as_str() < name)).collect()
        })
        .collect();
    let Some(merged) = TableSource::merged(tables) else { return Ok(None) };
    let table = Table { source: Arc::new(merged), columns: columns.clone() };
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut n_rows = 0;
    let mut buffer = String::new();
    table.for_each_batch("counting rows that are not taken", &mut |batch| {
        for row in (0..batch.n_rows).filter(|row| batch.malformed(*row).is_none()) {
            if filters.clone().zip(&positions).any(|(filter, positions)| filter.takes(batch, row, positions))
            {
                continue;
            }
            n_rows += 1;
            let values = columns.iter().enumerate().map(|(position, column)| {
                let cell = batch.cell(position, row);
                let text = value_text(&cell, &mut buffer).map_or("missing".to_owned(), shortened);
                format!("{column}={text}")
            });
            let values = values.collect::<Vec<_>>().join(" ");
            if counts.len() < MAX_COUNTED || counts.contains_key(&values) {
                *counts.entry(values).or_default() += 1;
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by(|(a, n_a), (b, n_b)| n_b.cmp(n_a).then_with(|| a.cmp(b)));
    let shown = counts.iter().take(MAX_SHOWN).map(|(values, n_rows)| format!("{n_rows} with {values}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if MAX_SHOWN < counts.len() { ", and others" } else { "" };
    let labels: Vec<&str> = tables.iter().map(|table| table.label.as_str()).collect();
    let note = format!(
        "{}: {} by its `where`: {shown}{more}",
        labels.join(", "),
        match labels.len() {
            1 => format!("{} not taken", counted(n_rows, "row")),
            _ => format!("{} taken by none of them", counted(n_rows, "row")),
        }
    );
    Ok((n_rows > 0).then_some(note))
}
