//! Writes the features, targets, split and names of a node type.

use std::ops::ControlFlow;

use kiln_data::format::{SetWriter, TargetWriters};
use kiln_feature::Targets;
use kiln_store::array_folder::ElementType;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::feature_columns::RowEncoder;
use crate::key::key_of;
use crate::key_file::KeyFile;
use crate::known_nodes::KnownNodes;
use crate::node_table::NodeTable;
use crate::row_ids::RowIds;
use crate::spill::{KeyRecord, SPILL_BUFFER};
use crate::table::Cell;
use crate::target::TargetEncoder;
use crate::transform::FittedColumn;
use crate::{ColumnDrift, Error, FittedNodeType, ImportedSplit, Result};

/// What [`write_node_type`] has written.
#[derive(Debug, Default)]
pub(crate) struct WrittenRows {
    /// The split, if there is one.
    pub(crate) split: Option<ImportedSplit>,
    /// What is unlike the values of the statistics.
    pub(crate) drift: Vec<ColumnDrift>,
}

/// Writes the features, the targets and the split of the known nodes and of the nodes of a table. `first` is the first node of the type.
pub(crate) fn write_node_type(
    set: &mut SetWriter,
    node_type: usize,
    first: u32,
    table: &NodeTable<'_>,
    ids: &RowIds,
    fitted: &FittedNodeType,
) -> Result<WrittenRows> {
    let encoder = RowEncoder::new(&fitted.columns);
    if encoder.dim == 0 && fitted.target.is_none() && table.time.is_none() {
        return Ok(WrittenRows::default());
    }
    set.describe_features(
        node_type,
        fitted.columns.iter().flat_map(FittedColumn::feature_columns).collect(),
    )?;
    let features = (encoder.dim > 0).then(|| set.feature_rows(node_type, ElementType::F32, encoder.dim));
    let mut features = features.transpose()?;
    let targets = fitted.target.as_ref().map(|target| -> Result<_> {
        let writers = set.targets(target.element_type(), target.names().len())?;
        Ok((TargetEncoder::new(target), writers))
    });
    let mut targets = targets.transpose()?;
    let mut times = match writes_times(table) {
        true => Some(set.node_times(node_type)?),
        false => None,
    };
    let mut n_in_part = [0_u64; 3];
    if let Some(known) = &table.known_nodes {
        features.as_mut().map_or(Ok(()), |features| features.push(known.features))?;
        if let Some((_, writers)) = &mut targets {
            n_in_part = write_known_targets(known, first, writers)?;
        }
        if let (Some(times), Some(of_known)) = (&mut times, known.times) {
            times.push(of_known)?;
        }
    }
    let has_split = table.spec.split.is_some() || n_in_part != [0; 3];
    let mut n_rows = table.n_known();
    let mut buffer = String::new();
    table.table.for_each_batch("writing features and targets", &mut |batch| {
        let is_kept =
            |row: &usize| n_rows + (*row as u32) < ids.n_rows() && !ids.is_dropped(n_rows + *row as u32);
        let rows: Vec<usize> = (0..batch.n_rows).filter(is_kept).collect();
        if let Some(features) = &mut features {
            encoder
                .encode(batch, table.features.positions(), &rows, |_, values| Ok(features.push(values)?))?;
        }
        if let Some(times) = &mut times {
            let of_rows: Vec<i64> = rows.iter().filter_map(|row| table.time_of(batch, *row)).collect();
            times.push(&of_rows)?;
        }
        if let Some((target, writers)) = &mut targets {
            for &row in &rows {
                let target = target.encode(batch, row, &table.target);
                target.push(&mut writers.values)?;
                let Some(split) = table.spec.split.as_ref().filter(|_| target.has_any()) else { continue };
                let cells: Vec<Cell<'_>> =
                    table.split.iter().map(|column| batch.cell(*column, row)).collect();
                let key = key_of(&batch.cell(table.key, row), table.spec.key_type, &mut buffer);
                let part = split.part_of(&cells, key.ok().flatten().unwrap_or_default());
                if let (Ok(Some(part)), Some(id)) = (part, ids.id_of(n_rows + row as u32)) {
                    writers.split[part].push(&[first + id])?;
                    n_in_part[part] += 1;
                }
            }
        }
        n_rows += batch.n_rows as u32;
        Ok(ControlFlow::Continue(()))
    })?;
    if let Some(times) = times {
        set.add(times)?;
    }
    if let Some(features) = features {
        set.add_features(node_type, features, encoder.dim)?;
    }
    let drift = encoder.drift(&table.label, ids.n_ids() as u64 - u64::from(table.n_known()));
    let (Some((_, writers)), Some(target)) = (targets, &fitted.target) else {
        return Ok(WrittenRows { split: None, drift });
    };
    set.add_targets(node_type, writers, target.names().len(), target.names())?;
    let [n_train, n_val, n_test] = n_in_part;
    let split = ImportedSplit { name: fitted.name.clone(), n_train, n_val, n_test };
    Ok(WrittenRows { split: has_split.then_some(split), drift })
}

/// Returns true for a type with times. A set of an earlier version has none of its known nodes, so that it gets none.
fn writes_times(table: &NodeTable<'_>) -> bool {
    table.time.is_some() && table.known_nodes.as_ref().is_none_or(|known| known.times.is_some())
}

/// Writes the targets and the split of the nodes that the set has already, and returns the size of each part.
fn write_known_targets(known: &KnownNodes<'_>, first: u32, writers: &mut TargetWriters) -> Result<[u64; 3]> {
    let Some(targets) = known.targets else { return Ok([0; 3]) };
    match &targets.values {
        Targets::Classes(classes) => writers.values.push(classes.as_slice())?,
        Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
            (Some(labels), _) => writers.values.push(labels)?,
            (None, numbers) => writers.values.push(numbers.unwrap_or_default())?,
        },
    }
    let mut sizes = [0; 3];
    for ((size, writer), (_, nodes)) in sizes.iter_mut().zip(&mut writers.split).zip(targets.split.parts()) {
        for node in nodes.iter() {
            writer.push(&[first + (node.0 - known.first)])?;
        }
        *size = nodes.len() as u64;
    }
    Ok(sizes)
}

/// Writes the keys of the nodes of a type as their names.
pub(crate) fn write_names(
    set: &mut SetWriter,
    node_type: usize,
    label: &str,
    keys: &KeyFile,
    ids: &RowIds,
) -> Result<()> {
    let [mut text, mut ends] = set.names(node_type)?;
    let mut records = keys.file.read(SPILL_BUFFER)?;
    let mut end = 0_u64;
    let name = format_args!("{label}: writing keys");
    let progress = Progress::start(name, ProgressUnit::Rows, u64::from(keys.n_rows));
    let mut counter = progress.counter();
    for row in 0..keys.n_rows {
        counter.add(1);
        let record = records.read_key()?;
        let (KeyRecord::Key(key), false) = (record, ids.is_dropped(row)) else { continue };
        end += key.len() as u64;
        let Ok(end) = u32::try_from(end) else {
            let table = label.to_owned();
            let what = format!("{end} bytes of keys");
            let max = u32::MAX.into();
            return Err(Error::TooLarge { table, what, max });
        };
        text.push(key)?;
        ends.push(&[end])?;
    }
    set.add(text)?;
    Ok(set.add(ends)?)
}
