//! The values of feature columns, from one reading of the features.

use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureColumn, FeatureStore, SparseFeatures};
use kiln_graph::NodeId;

/// The maximum number of columns whose values are summarised one by one.
const MAX_COLUMNS: usize = 1 << 16;

/// The number of elements that are gathered at a time from a store that is no array.
const BLOCK: usize = 1 << 20;

/// The end of the name of a column that is 1 for missing values.
const MISSING: &str = "=missing";

/// A column of a table, or a column of features without a name of its own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// The name of the column; for columns without names, their positions.
    pub name: String,
    /// The number of feature columns, without the one for missing values.
    pub width: usize,
    /// What the features are, such as `one_hot: free, pro`; empty for columns without names.
    pub meaning: String,
    /// The smallest and the largest value of the features; `None` without any value.
    pub range: Option<[f64; 2]>,
    /// The share of the nodes without a value; `None` if the set does not record it.
    pub missing_share: Option<f64>,
}

/// The values of a feature column.
#[derive(Debug, Clone, Copy)]
struct Values {
    min: f32,
    max: f32,
    sum: f64,
    n_nan: u64,
}

impl Values {
    const EMPTY: Self = Self { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0.0, n_nan: 0 };

    fn add(&mut self, value: f32) {
        // The minimum and the maximum of a number and NaN are the number.
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        match value.is_nan() {
            true => self.n_nan += 1,
            false => self.sum += f64::from(value),
        }
    }

    fn merge(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum: self.sum + other.sum,
            n_nan: self.n_nan + other.n_nan,
        }
    }

    fn range(&self) -> Option<[f64; 2]> {
        (self.min <= self.max).then(|| [self.min.into(), self.max.into()])
    }
}

/// Summarises the columns of a node type. Columns without names are one entry.
pub(super) fn summarize_columns(
    features: &dyn FeatureStore,
    columns: &[FeatureColumn],
) -> Vec<ColumnSummary> {
    let dim = features.dim();
    // A store that cannot be read has no ranges.
    let values = read(features).unwrap_or_default();
    let values_of = |start: usize, width: usize| values.get(start..start + width).unwrap_or_default();
    if columns.is_empty() {
        let name = if dim == 1 { "column 0".to_owned() } else { format!("columns 0 to {}", dim - 1) };
        let all = if values.is_empty() { &values[..] } else { values_of(0, dim.min(values.len())) };
        return vec![summary_of(name, String::new(), dim, all, features.n_rows())];
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut start = 0;
    for column in columns {
        let is_in_last = groups.last_mut().is_some_and(|group| group.take(column, start));
        if !is_in_last {
            groups.push(Group::new(column, start));
        }
        start += column.width;
    }
    let summaries = groups.into_iter().map(|group| {
        let n_rows = features.n_rows();
        let of_group = values_of(group.start, group.width);
        let mut summary = summary_of(group.name().to_owned(), group.meaning(), group.width, of_group, n_rows);
        let missing = group.missing.and_then(|position| values_of(position, 1).first());
        if let Some(missing) = missing.filter(|_| n_rows > 0) {
            summary.missing_share = Some(missing.sum / n_rows as f64);
        }
        summary
    });
    summaries.collect()
}

fn summary_of(
    name: String,
    meaning: String,
    width: usize,
    values: &[Values],
    n_rows: usize,
) -> ColumnSummary {
    let all = values.iter().copied().fold(Values::EMPTY, Values::merge);
    let n_values = (width * n_rows) as f64;
    let missing_share = (all.n_nan > 0).then(|| all.n_nan as f64 / n_values);
    ColumnSummary { name, width, meaning, range: all.range(), missing_share }
}

/// Consecutive feature columns of one column of a table.
struct Group<'a> {
    first: &'a FeatureColumn,
    start: usize,
    width: usize,
    /// The columns after the first one.
    others: Vec<&'a FeatureColumn>,
    /// The position of the column for missing values.
    missing: Option<usize>,
}

impl<'a> Group<'a> {
    fn new(first: &'a FeatureColumn, start: usize) -> Self {
        Self { first, start, width: first.width, others: Vec::new(), missing: None }
    }

    /// The kind of the features: the first word of what they mean.
    fn kind(column: &FeatureColumn) -> &str {
        column.meaning.split([':', ',']).next().unwrap_or_default()
    }

    fn has_categories(&self) -> bool {
        ["one_hot", "multi_hot"].contains(&Self::kind(self.first)) && self.first.name.contains('=')
    }

    /// Returns the name of the column of the table.
    fn name(&self) -> &'a str {
        let name = self.first.name.as_str();
        match Self::kind(self.first) {
            _ if self.has_categories() => name.split('=').next().unwrap_or(name),
            "time" => name.rsplitn(3, '.').nth(2).unwrap_or(name),
            _ => name,
        }
    }

    /// Adds the next column, and returns true if it is one of the same column of the table.
    fn take(&mut self, column: &'a FeatureColumn, start: usize) -> bool {
        let suffix = column.name.strip_prefix(self.name()).unwrap_or_default();
        if self.missing.is_none() && suffix == MISSING && column.width == 1 {
            self.missing = Some(start);
            return true;
        }
        let is_same = self.missing.is_none() && Self::kind(column) == Self::kind(self.first);
        let is_time = Self::kind(self.first) == "time" && suffix.starts_with('.');
        let is_taken = is_same && ((self.has_categories() && suffix.starts_with('=')) || is_time);
        if is_taken {
            self.width += column.width;
            self.others.push(column);
        }
        is_taken
    }

    /// Returns what the features are, with the categories or parts.
    fn meaning(&self) -> String {
        let suffix = |column: &&'a FeatureColumn| {
            column.name.get(self.name().len() + 1..).unwrap_or_default().to_owned()
        };
        let columns = || [self.first].into_iter().chain(self.others.iter().copied());
        match Self::kind(self.first) {
            kind if self.has_categories() => {
                format!("{kind}: {}", columns().map(|column| suffix(&column)).collect::<Vec<_>>().join(", "))
            }
            "time" if !self.others.is_empty() => {
                let parts = columns().step_by(2).map(|column| suffix(&column));
                let parts = parts.map(|part| part.trim_end_matches(".sin").to_owned());
                format!("time: {}", parts.collect::<Vec<_>>().join(", "))
            }
            _ => self.first.meaning.clone(),
        }
    }
}

/// Reads all features once, and returns the values of each column; those of all together if there are many columns.
fn read(features: &dyn FeatureStore) -> kiln_feature::Result<Vec<Values>> {
    let dim = features.dim();
    let mut values = vec![Values::EMPTY; if dim <= MAX_COLUMNS { dim } else { 1 }];
    if let Some(dense) = features.as_dense() {
        read_dense(dense, &mut values);
    } else if let Some(sparse) = features.as_sparse() {
        read_sparse(sparse, dim, &mut values)?;
    } else {
        let n_rows = (BLOCK / dim).max(1);
        let mut buffer = FeatureBuffer::empty(features.dtype());
        for start in (0..features.n_rows()).step_by(n_rows) {
            let end = features.n_rows().min(start + n_rows);
            let rows: Vec<NodeId> = (start as u32..end as u32).map(NodeId).collect();
            features.gather(&rows, &mut buffer)?;
            add_rows(
                &mut values,
                std::mem::replace(&mut buffer, FeatureBuffer::empty(features.dtype())).into_f32(),
            );
        }
    }
    Ok(values)
}

fn add_rows(values: &mut [Values], rows: impl IntoIterator<Item = f32>) {
    let n_columns = values.len();
    let mut column = 0;
    for value in rows {
        values[column].add(value);
        column += 1;
        if column == n_columns {
            column = 0;
        }
    }
}

fn read_dense(dense: &DenseFeatures, values: &mut [Values]) {
    match dense.rows() {
        FeatureArray::F32(rows) => add_rows(values, rows.iter().copied()),
        FeatureArray::F16(rows) => add_rows(values, rows.iter().map(|value| value.to_f32())),
        FeatureArray::BF16(rows) => add_rows(values, rows.iter().map(|value| value.to_f32())),
        // A later element type has no ranges.
        _ => {}
    }
}

/// Reads the stored values of each row. Columns that a row does not store are 0 there.
fn read_sparse(sparse: &SparseFeatures, dim: usize, values: &mut [Values]) -> kiln_feature::Result<()> {
    let mut n_stored = vec![0_u64; values.len()];
    let mut row: Vec<(u32, f32)> = Vec::new();
    for node in 0..sparse.n_rows() as u32 {
        row.clear();
        for position in sparse.value_range(NodeId(node))? {
            row.push((sparse.columns()[position], sparse.values()[position]));
        }
        row.sort_unstable_by_key(|(column, _)| *column);
        for stored in row.chunk_by(|(one, _), (other, _)| one == other) {
            let column = if values.len() == dim { stored[0].0 as usize } else { 0 };
            if let Some(of_column) = values.get_mut(column) {
                of_column.add(stored.iter().map(|(_, value)| value).sum());
                n_stored[column] += 1;
            }
        }
    }
    let n_values = sparse.n_rows() as u64 * if values.len() == dim { 1 } else { dim as u64 };
    for (of_column, n_stored) in values.iter_mut().zip(n_stored) {
        if n_stored < n_values {
            of_column.add(0.0);
        }
    }
    Ok(())
}
