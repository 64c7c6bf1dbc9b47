//! The record of an import in its set: the spec, and the statistics of each table.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kiln_data::format;
use kiln_feature::MAX_DIM;
use serde::{Deserialize, Serialize};

use crate::bad_rows::{BadRowKind, BadRowLog};
use crate::feature_columns::{RowEncoder, width_of};
use crate::key::key_of;
use crate::node_table::NodeTable;
use crate::spec::{ColumnSpec, ImportSpec, NodeTypeSpec, TimePart};
use crate::table::{ReadLimit, SourceFiles, TableSource, table_of};
use crate::task_rows::FittedTask;
use crate::transform::{FittedColumn, FittedTransform};
use crate::{BadRows, EarlierImportError, Error, FittedNodeType, FittedRelation, Result};

/// The file of the record.
pub(crate) const FILE: &str = "import.json";

/// The version of the record. Before version 2, the text of a value depended on the format of its table.
const VERSION: u32 = 2;

/// An import that was done: its spec, and the transforms of its columns with their statistics. It transforms new rows as the
/// imported ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    format: u32,
    spec: ImportSpec,
    node_types: Vec<FittedNodeType>,
    /// The relations whose edges have features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    relations: Vec<FittedRelation>,
    /// The targets of the task tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<FittedTask>,
    /// The rows that were dropped.
    dropped: Vec<DroppedCount>,
    /// The imports that have appended rows to the set, in their order; absent without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    appended: Vec<AppendedTables>,
}

/// The tables that an import has appended to a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendedTables {
    /// The spec of the new rows. Node types and relations without a table of new rows have no files.
    pub spec: ImportSpec,
    /// The rows that were dropped.
    pub dropped: Vec<DroppedCount>,
}

/// The number of dropped rows of one kind in one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroppedCount {
    /// The table: ``node type `user` `` or ``relation `buys` ``.
    pub table: String,
    /// The kind of the rows.
    pub kind: BadRowKind,
    /// The number of rows.
    pub n_rows: u64,
}

/// Some transformed rows.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformedRows {
    /// The key of each row.
    pub keys: Vec<String>,
    /// The features of each row, `[n_rows, dim]`, row-major.
    pub features: Vec<f32>,
    /// The number of feature columns.
    pub dim: usize,
}

impl Import {
    pub(crate) fn new(
        spec: ImportSpec,
        node_types: Vec<FittedNodeType>,
        relations: Vec<FittedRelation>,
        tasks: Vec<FittedTask>,
        dropped: &[BadRows],
    ) -> Self {
        let dropped = count_dropped(dropped);
        Self { format: VERSION, spec, node_types, relations, tasks, dropped, appended: Vec::new() }
    }

    /// Returns the record of the set after rows were appended.
    pub(crate) fn append(&self, spec: ImportSpec, dropped: &[BadRows]) -> Self {
        let mut record = self.clone();
        record.appended.push(AppendedTables { spec, dropped: count_dropped(dropped) });
        record
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a record should serialise to JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the record of the import that wrote a set, after its hash was compared with the set's manifest.
    ///
    /// # Errors
    /// Returns [`EarlierImportError::NoImport`] if the set has no record, [`EarlierImportError::Record`] if the record
    /// is invalid, and the errors of [`format::attachment`].
    pub fn open(set: impl AsRef<Path>) -> Result<Self> {
        let set = set.as_ref();
        let bytes = format::attachment(set, FILE)?
            .ok_or_else(|| Error::EarlierImport(EarlierImportError::NoImport { set: set.to_owned() }))?;
        Self::parse(&set.join(FILE), &bytes)
    }

    /// Parses a record and checks that its statistics fit its spec. `path` is its path, for the errors.
    ///
    /// # Errors
    /// Returns [`EarlierImportError::Record`] if the record is invalid, and [`crate::SpecError::Spec`] if its spec is.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |message: String| {
            Error::EarlierImport(EarlierImportError::Record { path: path.to_owned(), message })
        };
        let record: Self = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if record.format != VERSION {
            return Err(bad(format!("its format is {}, expected {VERSION}", record.format)));
        }
        record.spec.check(path)?;
        record.check().map_err(|what| bad(format!("{what} does not fit its spec")))?;
        Ok(record)
    }

    /// Returns the spec.
    pub fn spec(&self) -> &ImportSpec {
        &self.spec
    }

    /// Returns the numbers of dropped rows.
    pub fn dropped(&self) -> &[DroppedCount] {
        &self.dropped
    }

    /// Returns the imports that have appended rows to the set, in their order.
    pub fn appended(&self) -> &[AppendedTables] {
        &self.appended
    }

    /// Returns the transforms of a node type; `None` if there is no such type.
    pub fn node_type(&self, name: &str) -> Option<&FittedNodeType> {
        self.node_types.iter().find(|node_type| node_type.name == name)
    }

    /// Returns the transforms of the edges of a relation; `None` if there is no such relation, or its edges have no features.
    pub fn relation(&self, name: &str) -> Option<&FittedRelation> {
        self.relations.iter().find(|relation| relation.name == name)
    }

    /// Returns the targets of a task table; `None` if there is no such table.
    pub fn task(&self, name: &str) -> Option<&FittedTask> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// Reads new rows of a node type's table, which need no target and no split, and calls `visit` with their keys and
    /// features, in the order of the files and rows; if the spec has a `where`, only those of the rows that it takes. The features are those that the import would have computed with its
    /// statistics. Memory is that of a batch of rows. Keys that occur twice are not rejected.
    ///
    /// # Errors
    /// Returns [`EarlierImportError::OtherTransforms`] for the name of a node type without a table, [`Error::BadRows`]
    /// with the bad rows of a batch that the spec does not drop, the error of `visit`, and the errors of reading.
    pub fn transform(
        &self,
        node_type: &str,
        files: &[PathBuf],
        visit: &mut dyn FnMut(TransformedRows) -> Result<()>,
    ) -> Result<Vec<BadRows>> {
        let spec = self.spec.nodes.iter().find(|spec| spec.name == node_type && spec.from.is_none());
        let (Some(spec), Some(fitted)) = (spec, self.node_type(node_type)) else {
            let what = "the earlier import has no table of such a type".to_owned();
            return Err(Error::EarlierImport(EarlierImportError::OtherTransforms {
                table: table_of(node_type),
                what,
            }));
        };
        let spec =
            NodeTypeSpec { files: files.to_vec(), time: None, target: None, split: None, ..spec.clone() };
        let source = TableSource::find_nodes(&spec, &SourceFiles::new("", ReadLimit::NONE))?;
        let table = NodeTable::new(&spec, &source, None);
        let encoder = RowEncoder::new(&fitted.columns);
        let mut all = BadRowLog::default();
        let mut buffer = String::new();
        table.table.for_each_batch("computing features", &mut |batch| {
            let mut log = BadRowLog::default();
            let kept = table.check_batch(batch, &mut log);
            let found = log.finish(&table.label, &spec.drop);
            if found.iter().any(|rows| !rows.is_dropped) {
                return Err(Error::BadRows(found));
            }
            for rows in found {
                all.add_counted(rows.kind, rows.n_rows, rows.examples);
            }
            let rows: Vec<usize> = (0..batch.n_rows).filter(|row| kept[*row]).collect();
            encoder.encode(batch, table.features.positions(), &rows, |rows, values| {
                let keys = rows
                    .iter()
                    .map(|row: &usize| {
                        let key = key_of(&batch.cell(table.key, *row), spec.key_type, &mut buffer);
                        key.ok().flatten().unwrap_or_default().to_owned()
                    })
                    .collect();
                visit(TransformedRows { keys, features: values.to_vec(), dim: encoder.dim })
            })?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all.finish(&table.label, &spec.drop))
    }

    /// Checks that there are transforms for each node type and column of the spec; the error names the part.
    fn check(&self) -> Result<(), String> {
        if self.node_types.len() != self.spec.nodes.len() {
            return Err("the number of node types".into());
        }
        for (fitted, spec) in self.node_types.iter().zip(&self.spec.nodes) {
            let at = |what: String| format!("{what} of node type {:?}", spec.name);
            if fitted.name != spec.name {
                return Err(at("the name".into()));
            }
            check_columns(&fitted.columns, &spec.columns).map_err(at)?;
            let is_target = match (&fitted.target, &spec.target) {
                (None, None) => true,
                (Some(fitted), Some(spec)) => !fitted.names().is_empty() && fitted.is_of(spec),
                _ => false,
            };
            if !is_target {
                return Err(at("the target".into()));
            }
        }
        let with_columns: Vec<_> =
            self.spec.relations.iter().filter(|spec| !spec.columns.is_empty()).collect();
        if self.relations.len() != with_columns.len() {
            return Err("the number of relations whose edges have features".into());
        }
        for (fitted, spec) in self.relations.iter().zip(with_columns) {
            let at = |what: String| format!("{what} of relation {:?}", spec.name);
            if fitted.name != spec.name {
                return Err(at("the name".into()));
            }
            check_columns(&fitted.columns, &spec.columns).map_err(at)?;
        }
        if self.tasks.len() != self.spec.tasks.len() {
            return Err("the number of task tables".into());
        }
        for (fitted, spec) in self.tasks.iter().zip(&self.spec.tasks) {
            let has_names = !fitted.target.names().is_empty();
            if fitted.name != spec.name || !has_names || !fitted.target.is_of(&spec.target) {
                return Err(format!("the target of task table {:?}", spec.name));
            }
        }
        Ok(())
    }
}

/// Checks that there are transforms for the columns of a table, and that their statistics are numbers; the error names the part.
fn check_columns(fitted: &[FittedColumn], spec: &[ColumnSpec]) -> Result<(), String> {
    if fitted.len() != spec.len() {
        return Err("the number of columns".into());
    }
    for (column, wanted) in fitted.iter().zip(spec) {
        if column.column != wanted.column || !is_fit(&column.transform, &wanted.transform) {
            return Err(format!("column {:?}", column.column));
        }
    }
    let mut stats = fitted.iter().filter_map(|column| column.numbers);
    if !stats.all(|of| [of.min, of.max, of.mean, of.std].iter().all(|value| value.is_finite())) {
        return Err("the statistics of numbers".into());
    }
    if MAX_DIM < width_of(fitted) {
        return Err("the number of feature columns".into());
    }
    Ok(())
}

fn count_dropped(dropped: &[BadRows]) -> Vec<DroppedCount> {
    let mut counts = Vec::with_capacity(dropped.len());
    for BadRows { table, kind, n_rows, .. } in dropped {
        counts.push(DroppedCount { table: table.clone(), kind: *kind, n_rows: *n_rows });
    }
    counts
}

/// Returns true if a transform with statistics belongs to one of a spec.
fn is_fit(fitted: &FittedTransform, spec: &crate::ColumnTransform) -> bool {
    use crate::ColumnTransform as Spec;
    match (fitted, spec) {
        (FittedTransform::Numeric, Spec::Numeric) => true,
        (FittedTransform::Standardize { mean, std }, Spec::Standardize) => {
            mean.is_finite() && std.is_finite()
        }
        (FittedTransform::Quantile { quantiles }, Spec::Quantile) => {
            quantiles.iter().all(|value| value.is_finite()) && quantiles.is_sorted()
        }
        (FittedTransform::OneHot { categories, .. }, Spec::OneHot { max_categories })
        | (FittedTransform::Ordinal { categories }, Spec::Ordinal { max_categories }) => {
            categories.len() <= *max_categories
        }
        (
            FittedTransform::MultiHot { categories, separator, .. },
            Spec::MultiHot { max_categories, separator: text },
        ) => categories.len() <= *max_categories && separator == text,
        (FittedTransform::Hash { columns }, Spec::Hash { columns: wanted }) => columns == wanted,
        (FittedTransform::Time { parts, unit, trend }, Spec::Time { parts: wanted, unit: of }) => {
            let has_trend = parts.contains(&TimePart::Trend);
            let is_finite = trend.is_none_or(|of| of.mean.is_finite() && of.std.is_finite());
            parts == wanted && unit == of && trend.is_some() == has_trend && is_finite
        }
        (
            FittedTransform::Text { columns, unit, min_n, max_n },
            Spec::Text { columns: wanted, unit: of, min_n: min, max_n: max },
        ) => (columns, unit, min_n, max_n) == (wanted, of, min, max),
        (
            FittedTransform::Vector { columns, separator },
            Spec::Vector { columns: wanted, separator: text },
        ) => columns == wanted && separator == text,
        _ => false,
    }
}
