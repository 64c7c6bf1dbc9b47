//! Targets of a node type: classes, numbers or several labels.

use std::collections::HashMap;

use kiln_store::array_folder::{ArrayWriter, ElementType};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::spec::TargetSpec;
use crate::table::{Cell, TableBatch};
use crate::transform::{Counter, ascending, for_each_item, number, position_by_name};

/// The value of a label that is not known.
const UNKNOWN: u8 = u8::MAX;

/// The classes or labels of an earlier import, of which those of a table must be.
#[derive(Debug)]
pub(crate) struct KnownClasses {
    positions: HashMap<String, usize>,
    /// The expected value.
    expected: &'static str,
}

impl KnownClasses {
    pub(crate) fn new(target: &FittedTarget) -> Self {
        Self { positions: position_by_name(target.names()), expected: "a class of the earlier import" }
    }

    /// Returns the classes as those of a set to which rows are appended.
    pub(crate) fn name_set(self) -> Self {
        Self { expected: "a class of the set (for a new class, import all tables again)", ..self }
    }

    fn check(&self, name: &str) -> Result<(), &'static str> {
        if self.positions.contains_key(name) { Ok(()) } else { Err(self.expected) }
    }
}

/// The targets of a node type with their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FittedTarget {
    /// A class per node.
    Class {
        /// The column of the classes.
        column: String,
        /// The classes, by number.
        classes: Vec<String>,
    },
    /// Numbers to predict.
    Regression {
        /// The columns of the numbers.
        columns: Vec<String>,
    },
    /// Several labels per node.
    MultiLabel {
        /// The column of the lists of labels.
        column: String,
        /// The text between labels.
        separator: Option<String>,
        /// The labels, by number.
        labels: Vec<String>,
    },
}

impl FittedTarget {
    /// Returns the names of the classes, labels or columns.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Class { classes, .. } => classes,
            Self::Regression { columns } => columns,
            Self::MultiLabel { labels, .. } => labels,
        }
    }

    /// Returns true if these are targets of a spec: of the same kind and columns.
    pub(crate) fn is_of(&self, spec: &TargetSpec) -> bool {
        match (self, spec) {
            (Self::Class { column, .. }, TargetSpec::Class { column: of }) => column == of,
            (Self::Regression { columns }, TargetSpec::Regression { columns: of }) => columns == of,
            (
                Self::MultiLabel { column, separator, .. },
                TargetSpec::MultiLabel { column: of, separator: text },
            ) => column == of && separator == text,
            _ => false,
        }
    }

    pub(crate) fn element_type(&self) -> ElementType {
        match self {
            Self::Class { .. } => ElementType::I32,
            Self::Regression { .. } => ElementType::F32,
            Self::MultiLabel { .. } => ElementType::U8,
        }
    }
}

impl TargetSpec {
    /// Returns the columns of the targets.
    pub(crate) fn columns(&self) -> Vec<&str> {
        match self {
            Self::Class { column } | Self::MultiLabel { column, .. } => vec![column],
            Self::Regression { columns } => columns.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the position, among the columns of the targets, of the first value of a wrong type, and the expected value.
    pub(crate) fn check(
        &self,
        batch: &TableBatch,
        row: usize,
        columns: &[usize],
        known: Option<&KnownClasses>,
    ) -> Result<(), (usize, &'static str)> {
        let mut buffer = String::new();
        for (position, column) in columns.iter().enumerate() {
            let cell = batch.cell(*column, row);
            let checked = match self {
                Self::Class { .. } => cell.text(&mut buffer).and_then(|class| check_known(class, known)),
                Self::Regression { .. } => number(&cell).map(drop),
                Self::MultiLabel { separator, .. } => for_each_item(&cell, separator.as_deref(), |item| {
                    check_known(item.text(&mut buffer)?, known)
                })
                .map(drop),
            };
            checked.map_err(|expected| (position, expected))?;
        }
        Ok(())
    }
}

/// Checks that a class or label, if there is one, is one of the known ones.
fn check_known(name: Option<&str>, known: Option<&KnownClasses>) -> Result<(), &'static str> {
    match (name, known) {
        (Some(name), Some(known)) => known.check(name),
        _ => Ok(()),
    }
}

/// The names of the targets that occurred so far.
#[derive(Debug)]
pub(crate) struct TargetAccumulator<'a> {
    spec: &'a TargetSpec,
    name: String,
    counter: Counter,
    /// True if any row has a target.
    has_targets: bool,
    /// True if any target is a text.
    has_text: bool,
    buffer: String,
}

impl<'a> TargetAccumulator<'a> {
    pub(crate) fn new(spec: &'a TargetSpec, table: &str) -> Self {
        let name = format!("{table}, column {:?}", spec.columns().join(", "));
        Self {
            spec,
            name,
            counter: Counter::default(),
            has_targets: false,
            has_text: false,
            buffer: String::new(),
        }
    }

    /// Returns the memory of the different values in bytes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.counter.heap_bytes()
    }

    /// Adds the targets of a row, which must have passed [`TargetSpec::check`].
    pub(crate) fn add(&mut self, batch: &TableBatch, row: usize, columns: &[usize]) -> Result<()> {
        let Some(column) = columns.first() else { return Ok(()) };
        let cell = batch.cell(*column, row);
        match self.spec {
            TargetSpec::Regression { .. } => {
                self.has_targets = self.has_targets
                    || columns
                        .iter()
                        .any(|column: &usize| matches!(number(&batch.cell(*column, row)), Ok(Some(_))));
                Ok(())
            }
            TargetSpec::Class { .. } => match cell.text(&mut self.buffer) {
                Ok(Some(class)) => {
                    self.has_targets = true;
                    self.counter.add(class, &cell, &self.name)
                }
                _ => Ok(()),
            },
            TargetSpec::MultiLabel { separator, .. } => {
                self.has_text |= matches!(cell, Cell::Text(_));
                let mut counted = Ok(());
                let _ = for_each_item(&cell, separator.as_deref(), |item| {
                    if let (Some(label), Ok(())) = (item.text(&mut self.buffer)?, &counted) {
                        // Without any label, the targets would have no columns.
                        self.has_targets = true;
                        counted = self.counter.add(label, item, &self.name);
                    }
                    Ok(())
                });
                counted
            }
        }
    }

    /// Returns what of the target has no effect or merges texts.
    pub(crate) fn notes(&self) -> Vec<String> {
        let is_unused = matches!(self.spec, TargetSpec::MultiLabel { separator: Some(_), .. })
            && self.has_targets
            && !self.has_text;
        let unused = is_unused.then(|| "no value is a text, so `separator` has no effect".to_owned());
        let notes = unused.into_iter().chain(self.counter.note());
        notes.map(|note| format!("{}: {note}", self.name)).collect()
    }

    /// Returns true if any of the added rows has a target.
    pub(crate) fn has_targets(&self) -> bool {
        self.has_targets
    }

    pub(crate) fn finish(self) -> FittedTarget {
        let names = ascending(self.counter.into_values());
        match self.spec.clone() {
            TargetSpec::Class { column } => FittedTarget::Class { column, classes: names },
            TargetSpec::Regression { columns } => FittedTarget::Regression { columns },
            TargetSpec::MultiLabel { column, separator } => {
                FittedTarget::MultiLabel { column, separator, labels: names }
            }
        }
    }
}

/// The target of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum EncodedTarget<'a> {
    /// A class; -1 for none.
    Class(i32),
    /// A number per column; NaN if it is missing.
    Numbers(&'a [f32]),
    /// 1 or 0 per label; [`UNKNOWN`] for all labels if they are missing.
    Labels(&'a [u8]),
}

impl EncodedTarget<'_> {
    /// Returns true if any value is there.
    pub(crate) fn has_any(&self) -> bool {
        match self {
            Self::Class(class) => 0 <= *class,
            Self::Numbers(values) => values.iter().any(|value| !value.is_nan()),
            Self::Labels(labels) => labels.first() != Some(&UNKNOWN),
        }
    }

    /// Appends the target to an array.
    pub(crate) fn push(&self, array: &mut ArrayWriter) -> Result<()> {
        match self {
            Self::Class(class) => array.push(&[*class])?,
            Self::Numbers(values) => array.push(values)?,
            Self::Labels(labels) => array.push(labels)?,
        }
        Ok(())
    }
}

/// Computes the targets of rows.
#[derive(Debug)]
pub(crate) struct TargetEncoder {
    fitted: FittedTarget,
    positions: HashMap<String, usize>,
    /// The values of the current row.
    labels: Vec<u8>,
    numbers: Vec<f32>,
    buffer: String,
}

impl TargetEncoder {
    pub(crate) fn new(fitted: &FittedTarget) -> Self {
        let labels = vec![UNKNOWN; fitted.names().len()];
        let numbers = vec![f32::NAN; fitted.names().len()];
        let positions = position_by_name(fitted.names());
        Self { fitted: fitted.clone(), positions, labels, numbers, buffer: String::new() }
    }

    /// Returns the target of a row, which must have passed [`TargetSpec::check`]; a missing one if the table has no columns of
    /// targets.
    pub(crate) fn encode(&mut self, batch: &TableBatch, row: usize, columns: &[usize]) -> EncodedTarget<'_> {
        match &self.fitted {
            FittedTarget::Class { .. } => {
                let cell = columns.first().map_or(Cell::Missing, |column| batch.cell(*column, row));
                let class = cell.text(&mut self.buffer).ok().flatten();
                let class = class.and_then(|class| self.positions.get(class)).map(|class| *class as i32);
                EncodedTarget::Class(class.unwrap_or(-1))
            }
            FittedTarget::Regression { .. } => {
                self.numbers.fill(f32::NAN);
                for (to, column) in self.numbers.iter_mut().zip(columns) {
                    let value = number(&batch.cell(*column, row)).ok().flatten();
                    *to = value.map_or(f32::NAN, |value| value as f32);
                }
                EncodedTarget::Numbers(&self.numbers)
            }
            FittedTarget::MultiLabel { separator, .. } => {
                self.labels.fill(0);
                let labels = &mut self.labels;
                let positions = &self.positions;
                let buffer = &mut self.buffer;
                let cell = columns.first().map_or(Cell::Missing, |column| batch.cell(*column, row));
                let found = for_each_item(&cell, separator.as_deref(), |item| {
                    let label = item.text(buffer)?.and_then(|label| positions.get(label));
                    label.into_iter().for_each(|label| labels[*label] = 1);
                    Ok(())
                });
                if found != Ok(true) {
                    self.labels.fill(UNKNOWN);
                }
                EncodedTarget::Labels(&self.labels)
            }
        }
    }
}
