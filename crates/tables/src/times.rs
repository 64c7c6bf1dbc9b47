//! The times of rows, and the borders of splits by quantiles.

use std::ops::ControlFlow;
use std::sync::Arc;

use kiln_data::calendar::parse_time_at;
use kiln_data::{TimeKind, TimeSplit};

use crate::spec::{
    ImportSpec, NodeTypeSpec, RelationSpec, SplitSpec, TargetSpec, TimeBorder, TimeSpec, TimeSplitSpec,
    TimeUnit, offset_of,
};
use crate::spec_tables::SpecTables;
use crate::table::{Cell, Table, TableSource};
use crate::transform::micros;
use crate::{Error, Result};

const INTEGER: &str = "an integer, because `unit` is integer";
const ZONED: &str = "a text or an integer: a timestamp of the file is in UTC already, so remove `zone`";

/// The reader of a column of times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeReader {
    unit: TimeUnit,
    /// The offset of texts without one, in minutes east of UTC; `None` without a zone.
    offset_minutes: Option<i64>,
}

impl TimeReader {
    pub(crate) fn new(spec: &TimeSpec) -> Self {
        Self { unit: spec.unit, offset_minutes: spec.zone.as_ref().and_then(|zone| offset_of(Some(zone))) }
    }

    /// Returns the time in a cell: microseconds since 1970, or an integer as it is; `None` if it is missing. The error is the
    /// expected value.
    pub(crate) fn read(self, cell: &Cell<'_>) -> std::result::Result<Option<i64>, &'static str> {
        if self.unit == TimeUnit::Integer {
            return match cell.value() {
                Cell::Missing => Ok(None),
                Cell::Int(value) => i64::try_from(value).map(Some).map_err(|_| INTEGER),
                // Integers with missing values become floating-point numbers in pandas.
                Cell::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Ok(Some(value as i64)),
                Cell::Float(value) if value.is_nan() => Ok(None),
                _ => Err(INTEGER),
            };
        }
        match (self.offset_minutes, cell) {
            (Some(offset), Cell::Text(text)) if parse_time_at(text, offset).is_some() => {
                Ok(parse_time_at(text, offset))
            }
            (Some(_), Cell::Time(_)) => Err(ZONED),
            _ => micros(cell, self.unit),
        }
    }
}

impl NodeTypeSpec {
    /// Returns the column of the times of the nodes: that of the type, or that of its split.
    pub(crate) fn time_column(&self) -> Option<TimeSpec> {
        match (&self.time, &self.split) {
            (Some(time), _) => Some(time.clone()),
            (None, Some(SplitSpec::Time(split))) => Some(split.time()),
            (None, _) => None,
        }
    }
}

impl RelationSpec {
    /// Returns the column of the times of the edges: that of the relation, or that of its split.
    pub(crate) fn time_column(&self) -> Option<TimeSpec> {
        match (&self.time, &self.split) {
            (Some(time), _) => Some(time.clone()),
            (None, Some(SplitSpec::Time(split))) => Some(split.time()),
            (None, _) => None,
        }
    }
}

impl ImportSpec {
    /// Returns the split by time of the node type or the relation with targets.
    pub(crate) fn time_split(&self) -> Option<TimeSplit> {
        let of_nodes = self.nodes.iter().filter_map(|node_type| node_type.split.as_ref());
        let of_edges = self.relations.iter().filter_map(|relation| relation.split.as_ref());
        of_nodes.chain(of_edges).find_map(|split| match split {
            SplitSpec::Time(split) => split.split(),
            _ => None,
        })
    }

    /// Returns the meaning of the times of all types and relations, which the check of the spec compares.
    pub(crate) fn time_kind(&self) -> Option<TimeKind> {
        let of_nodes = self.nodes.iter().filter_map(NodeTypeSpec::time_column).map(|time| time.unit);
        let of_edges = self.relations.iter().filter_map(RelationSpec::time_column).map(|time| time.unit);
        let of_tasks = self.tasks.iter().map(|task| task.time.unit);
        of_nodes.chain(of_edges).chain(of_tasks).map(TimeUnit::kind).next()
    }
}

/// Returns a spec whose splits by quantiles have the times of their borders: the quantiles of the times of the rows with a target.
pub(crate) fn with_borders(mut spec: ImportSpec, tables: &SpecTables) -> Result<ImportSpec> {
    for (node_type, source) in spec.nodes.iter_mut().zip(&tables.nodes) {
        if let (Some(SplitSpec::Time(split)), Some(source)) = (&mut node_type.split, source) {
            set_borders(split, node_type.target.as_ref(), source)?;
        }
    }
    for (relation, source) in spec.relations.iter_mut().zip(&tables.relations) {
        if let Some(SplitSpec::Time(split)) = &mut relation.split {
            set_borders(split, relation.target.as_ref(), source)?;
        }
    }
    for (task, parts) in spec.tasks.iter_mut().zip(&tables.tasks) {
        if let (Some(SplitSpec::Time(split)), [(None, source)]) = (&mut task.split, &parts[..]) {
            set_borders(split, Some(&task.target), source)?;
        }
    }
    Ok(spec)
}

/// Returns a spec whose splits by quantiles have the borders of an earlier import, of whose set its rows are new ones.
pub(crate) fn with_borders_of(mut spec: ImportSpec, earlier: &ImportSpec) -> ImportSpec {
    for node_type in &mut spec.nodes {
        let other = earlier.nodes.iter().find(|other| other.name == node_type.name);
        copy_borders(node_type.split.as_mut(), other.and_then(|other| other.split.as_ref()));
    }
    for relation in &mut spec.relations {
        let other = earlier.relations.iter().find(|other| other.name == relation.name);
        copy_borders(relation.split.as_mut(), other.and_then(|other| other.split.as_ref()));
    }
    for task in &mut spec.tasks {
        let other = earlier.tasks.iter().find(|other| other.name == task.name);
        copy_borders(task.split.as_mut(), other.and_then(|other| other.split.as_ref()));
    }
    spec
}

/// Returns the first time of rows that the statistics of features must not know: the earliest border of the validation of a split by
/// time, or the first time in the files of the validation or the test of a task table. `None` without such a split.
pub(crate) fn first_evaluated_time(spec: &ImportSpec, tables: &SpecTables) -> Result<Option<i64>> {
    let mut first = spec.time_split().map(|split| split.val);
    for (task, parts) in spec.tasks.iter().zip(&tables.tasks) {
        if let Some(SplitSpec::Time(split)) = &task.split {
            first = first.into_iter().chain(split.split().map(|split| split.val)).min();
        }
        for (part, source) in parts {
            // Random parts are of all times.
            let split = match (part, &task.split) {
                (Some(1 | 2), _) => None,
                (
                    None,
                    Some(
                        split
                        @ (SplitSpec::Column { .. } | SplitSpec::Masks { .. } | SplitSpec::Steps { .. }),
                    ),
                ) => Some(split),
                _ => continue,
            };
            let of_split = split.map_or_else(Vec::new, SplitSpec::columns);
            let of_split: Vec<String> = of_split.into_iter().map(str::to_owned).collect();
            let reader = TimeReader::new(&task.time);
            let columns = [vec![task.time.column.clone()], of_split].concat();
            let table = Table { source: source.clone(), columns };
            table.for_each_batch("reading times", &mut |batch| {
                for row in 0..batch.n_rows {
                    let cells: Vec<Cell<'_>> =
                        (1..table.columns.len()).map(|column| batch.cell(column, row)).collect();
                    let is_evaluated =
                        split.is_none_or(|split| matches!(split.part_of(&cells, ""), Ok(Some(1 | 2))));
                    // Other rows are bad, which the import reports.
                    let time = reader.read(&batch.cell(0, row)).ok().flatten().filter(|_| is_evaluated);
                    first = first.into_iter().chain(time).min();
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
    }
    Ok(first)
}

fn copy_borders(split: Option<&mut SplitSpec>, earlier: Option<&SplitSpec>) {
    let (Some(SplitSpec::Time(split)), Some(SplitSpec::Time(earlier))) = (split, earlier) else { return };
    if split.quantiles.take().is_some() {
        split.train.clone_from(&earlier.train);
        split.val.clone_from(&earlier.val);
        split.test.clone_from(&earlier.test);
    }
}

/// Sets the times of the borders of a split by quantiles.
fn set_borders(
    split: &mut TimeSplitSpec,
    target: Option<&TargetSpec>,
    source: &Arc<TableSource>,
) -> Result<()> {
    let Some(quantiles) = split.quantiles.take() else { return Ok(()) };
    let target = target.map_or_else(Vec::new, TargetSpec::columns);
    let target: Vec<String> = target.into_iter().map(str::to_owned).collect();
    let reader = TimeReader::new(&split.time());
    let table = Table { source: source.clone(), columns: [vec![split.column.clone()], target].concat() };
    let mut times: Vec<i64> = Vec::new();
    table.for_each_batch("reading times", &mut |batch| {
        for row in 0..batch.n_rows {
            let has_target = (1..table.columns.len()).any(|column| !batch.cell(column, row).is_missing());
            // Other rows are bad, which the import reports.
            let time = reader.read(&batch.cell(0, row)).ok().flatten();
            times.extend(time.filter(|_| has_target));
        }
        source.sources.limit().check_values(&source.label, 8 * times.len() as u64)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let TimeSplit { val, test, .. } = TimeSplit::from_quantiles(&times, quantiles.val, quantiles.test)
        .map_err(|error| Error::Data(error.into()))?;
    let border = |time: i64| match split.unit {
        TimeUnit::Integer => TimeBorder::Integer(time),
        unit => {
            let text = unit.kind().text(time).to_string();
            // A date alone would be midnight of the zone.
            TimeBorder::Text(if text.contains('T') { text } else { text + "T00:00:00Z" })
        }
    };
    (split.val, split.test) = (Some(border(val)), Some(border(test)));
    split.train = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dates_with_units_and_zones() {
        let reader = |unit: TimeUnit, zone: Option<&str>| {
            TimeReader::new(&TimeSpec { column: "at".into(), unit, zone: zone.map(str::to_owned) })
        };
        let hour = 3_600_000_000;
        let seconds = reader(TimeUnit::Seconds, None);
        let berlin = reader(TimeUnit::Seconds, Some("+01:00"));
        let integer = reader(TimeUnit::Integer, None);
        for (reader, cell, expected) in [
            (seconds, Cell::Text("1970-01-01T02:00"), Ok(Some(2 * hour))),
            (seconds, Cell::Text("1969-12-31T23:00:00Z"), Ok(Some(-hour))),
            (seconds, Cell::Int(-3600), Ok(Some(-hour))),
            (reader(TimeUnit::Milliseconds, None), Cell::Int(3_600_000), Ok(Some(hour))),
            (reader(TimeUnit::Nanoseconds, None), Cell::Int(-1), Ok(Some(-1))),
            (seconds, Cell::Missing, Ok(None)),
            (seconds, Cell::Time(7), Ok(Some(7))),
            (berlin, Cell::Text("1970-01-01T02:00"), Ok(Some(hour))),
            (berlin, Cell::Text("1970-01-01"), Ok(Some(-hour))),
            // A text with an offset keeps it: that of daylight saving time, for example.
            (berlin, Cell::Text("1970-07-01T02:00+02:00"), Ok(Some(181 * 24 * hour))),
            (berlin, Cell::Time(7), Err(())),
            (seconds, Cell::Text("soon"), Err(())),
            (seconds, Cell::Int(i128::MAX), Err(())),
            (integer, Cell::Int(-5), Ok(Some(-5))),
            (integer, Cell::Float(35.0), Ok(Some(35))),
            (integer, Cell::Text("35"), Ok(Some(35))),
            (integer, Cell::Missing, Ok(None)),
            (integer, Cell::Float(0.5), Err(())),
            (integer, Cell::Text("2026-03-01"), Err(())),
            (integer, Cell::Int(i128::MAX), Err(())),
        ] {
            assert_eq!(reader.read(&cell).map_err(drop), expected, "{reader:?} {cell:?}");
        }
    }
}
