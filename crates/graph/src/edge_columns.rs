//! Named arrays with one row per edge.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::{ColumnError, Result, SharedArray};

/// The values of an [`EdgeColumn`], row-major, owned or in a mapped file. Clones share the array.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ColumnValues {
    /// Small whole numbers, such as types.
    U8(SharedArray<u8>),
    /// Times.
    I64(SharedArray<i64>),
    /// 32-bit IEEE 754 floats.
    F32(SharedArray<f32>),
    /// 16-bit IEEE 754 floats.
    F16(SharedArray<f16>),
    /// The upper halves of 32-bit floats (bfloat16).
    BF16(SharedArray<bf16>),
}

/// Implements the conversions from arrays of each element type. They do not copy the values.
macro_rules! column_from {
    ($($element:ty => $variant:ident),*) => {$(
        impl From<SharedArray<$element>> for ColumnValues {
            fn from(values: SharedArray<$element>) -> Self {
                Self::$variant(values)
            }
        }

        impl From<Vec<$element>> for ColumnValues {
            fn from(values: Vec<$element>) -> Self {
                Self::$variant(values.into())
            }
        }
    )*};
}

column_from!(u8 => U8, i64 => I64, f32 => F32, f16 => F16, bf16 => BF16);

/// Calls a generic expression with the array of any element type.
macro_rules! with_values {
    ($values:expr, $array:ident => $result:expr) => {
        match $values {
            ColumnValues::U8($array) => $result,
            ColumnValues::I64($array) => $result,
            ColumnValues::F32($array) => $result,
            ColumnValues::F16($array) => $result,
            ColumnValues::BF16($array) => $result,
        }
    };
}

/// Returns the values of all columns of one element type, or `None` from the function at one of another type.
macro_rules! concat_values {
    ($columns:expr, $variant:ident) => {{
        let mut all = Vec::with_capacity($columns.iter().map(|column| column.n_rows() * column.width).sum());
        for column in $columns {
            let ColumnValues::$variant(values) = &column.values else { return None };
            all.extend_from_slice(values);
        }
        all.into()
    }};
}

/// One row of values per edge, `[n_edges, width]`, in CSC order: row `e` belongs to the edge with the id `e`.
///
/// ```
/// use kiln_graph::{CscBuilder, EdgeColumn};
/// let amounts = EdgeColumn::new(vec![7.5_f32, 0.5], 1)?;
/// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?.with_column("amount", amounts)?;
/// assert_eq!(graph.columns().get("amount").unwrap().n_rows(), 2);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct EdgeColumn {
    values: ColumnValues,
    width: usize,
}

impl EdgeColumn {
    /// Creates a column from its values, row-major, with `width` values per edge.
    ///
    /// # Errors
    /// Returns [`ColumnError::Width`] if the width is 0 or does not divide the number of values.
    pub fn new(values: impl Into<ColumnValues>, width: usize) -> Result<Self> {
        let values = values.into();
        let n_values = with_values!(&values, array => array.len());
        match n_values.checked_rem(width) {
            Some(0) => Ok(Self { values, width }),
            _ => Err(ColumnError::Width { width, n_values }.into()),
        }
    }

    /// Returns the values, row-major.
    pub fn values(&self) -> &ColumnValues {
        &self.values
    }

    /// Returns the number of values per edge, at least 1.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows, one per edge.
    pub fn n_rows(&self) -> usize {
        with_values!(&self.values, array => array.len()) / self.width
    }

    /// Returns the short name of the element type: `u8`, `i64`, `f32`, `f16` or `bf16`.
    pub fn element_type(&self) -> &'static str {
        match self.values {
            ColumnValues::U8(_) => "u8",
            ColumnValues::I64(_) => "i64",
            ColumnValues::F32(_) => "f32",
            ColumnValues::F16(_) => "f16",
            ColumnValues::BF16(_) => "bf16",
        }
    }

    /// Returns the size of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        match self.values {
            ColumnValues::U8(_) => self.width,
            ColumnValues::F16(_) | ColumnValues::BF16(_) => 2 * self.width,
            ColumnValues::F32(_) => 4 * self.width,
            ColumnValues::I64(_) => 8 * self.width,
        }
    }

    /// Returns the values as bytes, in the byte order of this machine.
    pub fn as_bytes(&self) -> &[u8] {
        with_values!(&self.values, array => bytemuck::cast_slice(array))
    }

    /// Returns the position of the first value that is infinite or NaN, row-major; `None` if all are finite.
    pub fn first_not_finite(&self) -> Option<usize> {
        match &self.values {
            ColumnValues::U8(_) | ColumnValues::I64(_) => None,
            ColumnValues::F32(values) => values.iter().position(|value| !value.is_finite()),
            ColumnValues::F16(values) => values.iter().position(|value| !value.is_finite()),
            ColumnValues::BF16(values) => values.iter().position(|value| !value.is_finite()),
        }
    }

    /// Returns the value at a position, row-major, as a 32-bit float, to which a time is rounded.
    ///
    /// # Panics
    /// Panics if there is no value at the position.
    pub fn value(&self, position: usize) -> f32 {
        match &self.values {
            ColumnValues::U8(values) => values[position].into(),
            ColumnValues::I64(values) => values[position] as f32,
            ColumnValues::F32(values) => values[position],
            ColumnValues::F16(values) => values[position].into(),
            ColumnValues::BF16(values) => values[position].into(),
        }
    }

    /// Returns a column in memory whose row `i` is the row `rows[i]` of this one.
    ///
    /// # Errors
    /// Returns [`ColumnError::NoRow`] for the first row that does not exist, and [`ColumnError::OutOfMemory`] if the
    /// rows do not fit in memory.
    pub fn select(&self, rows: impl ExactSizeIterator<Item = u64>) -> Result<Self> {
        let width = self.width;
        let values = match &self.values {
            ColumnValues::U8(values) => selected(values, width, rows)?.into(),
            ColumnValues::I64(values) => selected(values, width, rows)?.into(),
            ColumnValues::F32(values) => selected(values, width, rows)?.into(),
            ColumnValues::F16(values) => selected(values, width, rows)?.into(),
            ColumnValues::BF16(values) => selected(values, width, rows)?.into(),
        };
        Ok(Self { values, width })
    }

    /// Returns a column in memory with the rows of several ones, in their order; `None` if there are none, or if their widths or
    /// element types differ.
    ///
    /// ```
    /// use kiln_graph::EdgeColumn;
    /// let [one, other] = [vec![1.0_f32], vec![2.0, 3.0]].map(|values| EdgeColumn::new(values, 1).unwrap());
    /// assert_eq!(EdgeColumn::concat(&[&one, &other]).unwrap().n_rows(), 3);
    /// ```
    pub fn concat(columns: &[&Self]) -> Option<Self> {
        let first = columns.first()?;
        if columns.iter().any(|column| column.width != first.width) {
            return None;
        }
        let values = match &first.values {
            ColumnValues::U8(_) => concat_values!(columns, U8),
            ColumnValues::I64(_) => concat_values!(columns, I64),
            ColumnValues::F32(_) => concat_values!(columns, F32),
            ColumnValues::F16(_) => concat_values!(columns, F16),
            ColumnValues::BF16(_) => concat_values!(columns, BF16),
        };
        Some(Self { values, width: first.width })
    }

    /// Returns the column with its values in memory: mapped values are copied, owned ones are shared.
    #[must_use]
    pub fn in_memory(&self) -> Self {
        Self { values: with_values!(&self.values, array => array.in_memory().into()), width: self.width }
    }

    /// Returns the memory of the values in bytes; 0 if they are mapped.
    pub fn owned_bytes(&self) -> usize {
        with_values!(&self.values, array => array.owned_bytes())
    }
}

fn selected<T: Pod>(values: &[T], width: usize, rows: impl ExactSizeIterator<Item = u64>) -> Result<Vec<T>> {
    let n_selected = rows.len();
    let mut out = Vec::new();
    let has_room = n_selected.checked_mul(width).map(|n_values| out.try_reserve_exact(n_values));
    if !matches!(has_room, Some(Ok(()))) {
        return Err(ColumnError::OutOfMemory { n_rows: n_selected, width }.into());
    }
    let n_rows = (values.len() / width) as u64;
    for row in rows {
        if n_rows <= row {
            return Err(ColumnError::NoRow { row, n_rows }.into());
        }
        out.extend_from_slice(&values[row as usize * width..][..width]);
    }
    Ok(out)
}

/// The columns of the edges of one graph, by name. A name has up to 64 small letters, digits and underscores.
///
/// | name | element | width | read by |
/// |---|---|---|---|
/// | [`EdgeColumns::WEIGHTS`] | `f32` | 1 | samplers and weighted sums |
/// | [`EdgeColumns::TYPES`] | `u8` | 1 | layers with a weight per relation |
/// | [`EdgeColumns::TIMES`] | `i64` | 1 | splits by time, and cuts of messages |
/// | [`EdgeColumns::FEATURES`] | `f32`, `f16` or `bf16` | any | layers with edge features |
/// | any other | `f32`, `f16` or `bf16` | any | a program's own rules, models and losses |
///
/// Weights come first, then types, then the others in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct EdgeColumns {
    columns: Vec<(String, EdgeColumn)>,
}

impl EdgeColumns {
    /// The name of the weights.
    pub const WEIGHTS: &'static str = "weights";
    /// The name of the types.
    pub const TYPES: &'static str = "types";
    /// The name of the features.
    pub const FEATURES: &'static str = "features";
    /// The name of the times.
    pub const TIMES: &'static str = "times";
    /// The name of the ages of edges in the blocks of items with times. No column of a graph can have it ([`EdgeColumns::is_name`]).
    pub const AGES: &'static str = "edge ages";
    /// The maximum length of a name.
    const LONGEST_NAME: usize = 64;

    /// Returns true for a name that a column may have.
    pub fn is_name(name: &str) -> bool {
        (1..=Self::LONGEST_NAME).contains(&name.len())
            && name.chars().all(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    }

    /// Returns the columns with one more, or with another one under its name.
    ///
    /// # Errors
    /// Returns [`ColumnError::Name`] for a name that is not allowed, and [`ColumnError::Values`] for weights that are not
    /// one `f32` per edge, types that are not one `u8`, times that are not one `i64`, and other columns of whole numbers.
    pub fn with(mut self, name: impl Into<String>, column: EdgeColumn) -> Result<Self> {
        let name = name.into();
        if !Self::is_name(&name) {
            return Err(ColumnError::Name { name }.into());
        }
        check_values(&name, &column)?;
        match self.columns.binary_search_by(|(other, _)| order(other).cmp(&order(&name))) {
            Ok(at) => self.columns[at].1 = column,
            Err(at) => self.columns.insert(at, (name, column)),
        }
        Ok(self)
    }

    /// Returns the columns without the one of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.columns.retain(|(other, _)| other != name);
        self
    }

    /// Returns the column of a name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&EdgeColumn> {
        self.columns.iter().find(|(other, _)| other == name).map(|(_, column)| column)
    }

    /// Returns the names and columns.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &EdgeColumn)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// Returns the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// Returns true if there are no columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the columns that no sampler reads: all but weights and types.
    #[must_use]
    pub fn rows(&self) -> Self {
        self.clone().without(Self::WEIGHTS).without(Self::TYPES)
    }

    /// Returns columns of the same names. `change` returns columns with the same element type and width.
    pub(crate) fn map(&self, change: impl Fn(&EdgeColumn) -> EdgeColumn) -> Self {
        let columns = self.columns.iter().map(|(name, column)| (name.clone(), change(column)));
        Self { columns: columns.collect() }
    }

    /// Returns the columns whose row `i` is the row `rows[i]` of these.
    ///
    /// # Errors
    /// Returns the errors of [`EdgeColumn::select`].
    pub fn select(&self, rows: impl ExactSizeIterator<Item = u64> + Clone) -> Result<Self> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for (name, column) in &self.columns {
            columns.push((name.clone(), column.select(rows.clone())?));
        }
        Ok(Self { columns })
    }
}

/// Returns the key by which columns are ordered.
fn order(name: &str) -> (u8, &str) {
    match name {
        EdgeColumns::WEIGHTS => (0, name),
        EdgeColumns::TYPES => (1, name),
        _ => (2, name),
    }
}

fn check_values(name: &str, column: &EdgeColumn) -> Result<()> {
    let expected = match (name, &column.values, column.width) {
        (EdgeColumns::WEIGHTS, ColumnValues::F32(_), 1)
        | (EdgeColumns::TYPES, ColumnValues::U8(_), 1)
        | (EdgeColumns::TIMES, ColumnValues::I64(_), 1) => return Ok(()),
        (EdgeColumns::WEIGHTS, ..) => "one f32 per edge",
        (EdgeColumns::TYPES, ..) => "one u8 per edge",
        (EdgeColumns::TIMES, ..) => "one i64 per edge",
        (_, ColumnValues::U8(_) | ColumnValues::I64(_), _) => "f32, f16 or bf16",
        _ => return Ok(()),
    };
    let got = format!("{} of {}", column.width, column.element_type());
    Err(ColumnError::Values { name: name.to_owned(), expected, got }.into())
}
