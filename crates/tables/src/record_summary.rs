//! What the record of an import adds to the summary of its set.

use std::path::Path;

use kiln_data::{ColumnSummary, DatasetSummary, TypeSummary};
use kiln_store::counted;
use kiln_store::paths::is_there;

use crate::record::{FILE, Import};
use crate::{FittedColumn, FittedNodeType, FittedTarget, FittedTransform};

/// The largest difference between a number and the one that a 32-bit feature has, in deviations.
const TOLERANCE: f64 = 1e-3;

impl Import {
    /// Adds to the summary of a set what the import that wrote it recorded: ranges in the units of the tables, and the shares of missing values.
    /// Returns notes: on dropped rows, on columns without an effect, on targets that are features, too, and on a record that cannot be
    /// read. A set without a record is left as it is.
    ///
    /// The statistics of an import with the transforms of an earlier one are those of the earlier tables. The ranges are then
    /// computed from the features, and shares that no feature column has stay unknown.
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// use kiln_tables::{Import, ImportOptions, import};
    /// let root = tempfile::tempdir()?;
    /// std::fs::write(root.path().join("users.csv"), "id,age\nanna,30\nben,\nclara,40\n")?;
    /// let spec = root.path().join("spec.yaml");
    /// let columns = "columns: [{column: age, transform: standardize}]";
    /// std::fs::write(&spec, format!("name: shop\nnodes: [{{name: user, files: [users.csv], key: id, {columns}}}]\n"))?;
    /// let set = root.path().join("set");
    /// import(spec, &set, &ImportOptions::default())?;
    /// let mut summary = Dataset::open(&set)?.summary();
    /// assert!(Import::describe_set(&set, &mut summary).is_empty());
    /// let age = &summary.types[0].columns[0];
    /// assert_eq!((age.range, age.missing_share), (Some([30.0, 40.0]), Some(1.0 / 3.0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe_set(set: impl AsRef<Path>, summary: &mut DatasetSummary) -> Vec<String> {
        let set = set.as_ref();
        match Self::open(set) {
            _ if !is_there(&set.join(FILE)) => Vec::new(),
            Ok(import) => import.describe(summary),
            Err(error) => vec![error.to_string()],
        }
    }

    fn describe(&self, summary: &mut DatasetSummary) -> Vec<String> {
        let mut notes = self.notes();
        for of_type in &mut summary.types {
            let Some(fitted) = self.node_type(&of_type.name) else { continue };
            let is_own = has_own_statistics(fitted, of_type);
            if !is_own {
                notes.push(format!(
                    "node type `{}`: the statistics are those of the earlier import whose transforms were used",
                    of_type.name
                ));
            }
            for column in &mut of_type.columns {
                let found = fitted.columns.iter().find(|fitted| fitted.column == column.name);
                found.into_iter().for_each(|fitted| describe_column(column, fitted, is_own));
            }
        }
        notes
    }

    fn notes(&self) -> Vec<String> {
        let dropped = self.dropped().iter().map(|dropped| {
            let n_rows = counted(dropped.n_rows, "row");
            format!("dropped from {}: {n_rows}, {}", dropped.table, dropped.kind.name())
        });
        let types = self.spec().nodes.iter().filter_map(|spec| self.node_type(&spec.name));
        let of_columns = types.flat_map(|node_type| {
            let targets = target_columns(node_type);
            let notes = node_type.columns.iter().filter_map(move |column| {
                let what = if column.n_rows > 0 && column.n_missing == column.n_rows {
                    "no row has a value"
                } else if targets.contains(&column.column) {
                    "it is a feature and a target, so the features have the answer"
                } else if is_constant(column) {
                    "all values are equal, so the feature is 0"
                } else {
                    return None;
                };
                Some(format!("node type `{}`, column {:?}: {what}", node_type.name, column.column))
            });
            notes.collect::<Vec<_>>()
        });
        dropped.chain(of_columns).collect()
    }
}

fn target_columns(node_type: &FittedNodeType) -> Vec<String> {
    match &node_type.target {
        Some(FittedTarget::Class { column, .. } | FittedTarget::MultiLabel { column, .. }) => {
            vec![column.clone()]
        }
        Some(FittedTarget::Regression { columns }) => columns.clone(),
        None => Vec::new(),
    }
}

fn is_constant(column: &FittedColumn) -> bool {
    matches!(column.transform, FittedTransform::Standardize { .. })
        && column.numbers.is_some_and(|numbers| numbers.min == numbers.max)
}

/// Returns true if the statistics are those of the imported tables: of as many rows, with the range that the features have.
fn has_own_statistics(fitted: &FittedNodeType, of_type: &TypeSummary) -> bool {
    fitted.columns.iter().all(|column| {
        let found = of_type.columns.iter().find(|found| found.name == column.column);
        let range = found.and_then(|found| range_of_table(found, column));
        let is_same = match (range, column.numbers, &column.transform) {
            (Some([min, max]), Some(numbers), FittedTransform::Standardize { .. } | FittedTransform::Numeric)
                // Features of missing values are 0, which may be outside of the range.
                if column.n_missing == 0 =>
            {
                let largest = numbers.min.abs().max(numbers.max.abs());
                let tolerance = TOLERANCE * (numbers.std + TOLERANCE * largest);
                (min - numbers.min).abs() <= tolerance && (max - numbers.max).abs() <= tolerance
            }
            _ => true,
        };
        column.n_rows == of_type.n_nodes as u64 && is_same
    })
}

/// Returns the range of a column in the unit of the table.
fn range_of_table(column: &ColumnSummary, fitted: &FittedColumn) -> Option<[f64; 2]> {
    match fitted.transform {
        FittedTransform::Standardize { mean, std } => {
            column.range.map(|range| range.map(|value| value * std + mean))
        }
        _ => column.range,
    }
}

fn describe_column(column: &mut ColumnSummary, fitted: &FittedColumn, is_own: bool) {
    column.range = match fitted.numbers.filter(|_| is_own) {
        Some(numbers) => Some([numbers.min, numbers.max]),
        None => range_of_table(column, fitted),
    };
    if fitted.numbers.is_some() && fitted.transform.width() == 1 {
        column.meaning = match fitted.transform {
            FittedTransform::Standardize { .. } => "standardize".to_owned(),
            FittedTransform::Quantile { .. } => "quantile".to_owned(),
            _ => std::mem::take(&mut column.meaning),
        };
    }
    if is_own && fitted.n_rows > 0 {
        column.missing_share = Some(fitted.n_missing as f64 / fitted.n_rows as f64);
    }
}
