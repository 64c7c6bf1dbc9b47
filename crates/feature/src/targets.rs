use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use kiln_graph::{ItemId, NodeId, SharedArray};

use crate::{Error, Labels, Result, TargetKind, TargetsError};

/// The values that a model learns to predict for the nodes of a graph or the graphs of a set. Clones share the arrays.
#[derive(Debug, Clone)]
pub enum Targets<I = NodeId> {
    /// One class per item.
    Classes(Arc<Labels<I>>),
    /// Several labels, or one or several numbers, per item.
    Values(Arc<TargetValues<I>>),
}

/// Target values `[n, k]` of nodes, or of the graphs of a set: several labels per item, or regression targets. Any of
/// them may be missing. Clones share the array.
///
/// | kind | element | value | missing |
/// |---|---|---|---|
/// | labels | `u8` | 1 if the item has the label, else 0 | [`TargetValues::MISSING`] |
/// | numbers | `f32` | finite | NaN |
///
/// Values of a mapped file are checked when they are read.
#[derive(Debug, Clone)]
pub struct TargetValues<I = NodeId> {
    values: Values,
    n_columns: usize,
    items: PhantomData<I>,
}

#[derive(Debug, Clone)]
enum Values {
    Labels(SharedArray<u8>),
    Numbers(SharedArray<f32>),
}

impl<I: ItemId> Targets<I> {
    /// Returns the kind of the targets.
    pub fn kind(&self) -> TargetKind {
        match self {
            Self::Classes(_) => TargetKind::Classes,
            Self::Values(values) => values.kind(),
        }
    }

    /// Returns the number of items, with or without targets.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes(labels) => labels.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of outputs of a model for these targets: the number of classes or of columns.
    pub fn n_outputs(&self) -> usize {
        match self {
            Self::Classes(labels) => labels.n_classes(),
            Self::Values(values) => values.n_columns(),
        }
    }

    /// Returns true if the item exists and has a class or at least one value.
    pub fn has_any(&self, item: I) -> bool {
        match self {
            Self::Classes(labels) => labels.get(item).is_some(),
            Self::Values(values) => values.has_any(item),
        }
    }

    /// Reads and checks all classes or values.
    ///
    /// # Errors
    /// Returns the errors of [`Labels::validate`] and [`TargetValues::validate`].
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Classes(labels) => labels.validate(),
            Self::Values(values) => values.validate(),
        }
    }

    /// Overwrites `classes` with the classes of `items`, or `values` with their target values, and clears the other.
    ///
    /// # Errors
    /// Returns the errors of [`Labels::gather`] and [`TargetValues::gather`].
    pub fn gather(&self, items: &[I], classes: &mut Vec<i32>, values: &mut Vec<f32>) -> Result<()> {
        classes.clear();
        values.clear();
        match self {
            Self::Classes(labels) => labels.gather(items, classes),
            Self::Values(targets) => targets.gather(items, values),
        }
    }
}

impl<I: ItemId> TargetValues<I> {
    /// The value of a missing label.
    pub const MISSING: u8 = u8::MAX;

    /// Creates targets of `n_labels` labels per item from `[n, n_labels]` values, row-major. Runs in constant time.
    ///
    /// # Errors
    /// Returns [`Error::ZeroDim`] or [`Error::TooManyColumns`] if the number of labels is not in `1..=MAX_DIM`, and
    /// [`Error::PartialRow`] if the values are not a whole number of rows.
    pub fn multi_label(values: impl Into<SharedArray<u8>>, n_labels: usize) -> Result<Self> {
        let values = values.into();
        let n_values = values.len();
        Self::new(Values::Labels(values), n_values, n_labels)
    }

    /// Creates regression targets from `[n, n_columns]` values, row-major. Runs in constant time.
    ///
    /// # Errors
    /// Returns the errors of [`TargetValues::multi_label`].
    pub fn regression(values: impl Into<SharedArray<f32>>, n_columns: usize) -> Result<Self> {
        let values = values.into();
        let n_values = values.len();
        Self::new(Values::Numbers(values), n_values, n_columns)
    }

    fn new(values: Values, n_values: usize, n_columns: usize) -> Result<Self> {
        match n_columns {
            0 => Err(Error::ZeroDim),
            dim if dim > crate::MAX_DIM => Err(Error::TooManyColumns { dim, max: crate::MAX_DIM }),
            dim if !n_values.is_multiple_of(dim) => Err(Error::PartialRow { n_values, dim }),
            _ => Ok(Self { values, n_columns, items: PhantomData }),
        }
    }

    /// Returns the kind of the targets.
    pub fn kind(&self) -> TargetKind {
        match self.values {
            Values::Labels(_) => TargetKind::MultiLabel,
            Values::Numbers(_) => TargetKind::Regression,
        }
    }

    /// Returns the number of columns: of labels, or of numbers per item.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Returns the number of items, with or without values.
    pub fn len(&self) -> usize {
        let n_values = match &self.values {
            Values::Labels(values) => values.len(),
            Values::Numbers(values) => values.len(),
        };
        n_values / self.n_columns
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the labels of all items, `[n, n_columns]`; `None` for numbers.
    pub fn as_labels(&self) -> Option<&[u8]> {
        match &self.values {
            Values::Labels(values) => Some(values),
            Values::Numbers(_) => None,
        }
    }

    /// Returns the numbers of all items, `[n, n_columns]`; `None` for labels.
    pub fn as_numbers(&self) -> Option<&[f32]> {
        match &self.values {
            Values::Labels(_) => None,
            Values::Numbers(values) => Some(values),
        }
    }

    /// Returns true if the item exists and has at least one value that is not missing.
    pub fn has_any(&self, item: I) -> bool {
        let start = item.get() as usize * self.n_columns;
        let range = start..start + self.n_columns;
        match &self.values {
            Values::Labels(values) => {
                values.get(range).is_some_and(|row| row.iter().any(|&label| label != Self::MISSING))
            }
            Values::Numbers(values) => {
                values.get(range).is_some_and(|row| row.iter().any(|number| !number.is_nan()))
            }
        }
    }

    /// Reads and checks all values.
    ///
    /// # Errors
    /// Returns [`TargetsError::BadTarget`] for the first label that is not 0, 1 or missing, or number that is infinite.
    pub fn validate(&self) -> Result<()> {
        let position = match &self.values {
            Values::Labels(values) => values.iter().position(|&label| !is_label(label)),
            Values::Numbers(values) => values.iter().position(|number| number.is_infinite()),
        };
        position.map_or(Ok(()), |position| Err(self.bad(position)))
    }

    /// Overwrites `out` with the values of `items`, `[items.len(), n_columns]`, in their order. Labels become 1 and 0;
    /// missing values are NaN. Items may repeat.
    ///
    /// # Errors
    /// Returns [`TargetsError::NoSuchItem`], [`TargetsError::Untargeted`] or [`TargetsError::BadTarget`] for the first item
    /// whose id is out of range, that has no value, or that has an invalid value. The content of `out` is then unspecified.
    pub fn gather(&self, items: &[I], out: &mut Vec<f32>) -> Result<()> {
        out.clear();
        out.reserve(items.len() * self.n_columns);
        for &item in items {
            let id = item.get();
            let start = item.get() as usize * self.n_columns;
            let range = start..start + self.n_columns;
            if self.len() <= item.get() as usize {
                return Err(TargetsError::NoSuchItem { item: I::NAME, id, n_labels: self.len() }.into());
            }
            let first = out.len();
            match &self.values {
                Values::Labels(values) => {
                    let row = &values[range];
                    if let Some(at) = row.iter().position(|&label| !is_label(label)) {
                        return Err(self.bad(start + at));
                    }
                    out.extend(
                        row.iter()
                            .map(|&label| if label == Self::MISSING { f32::NAN } else { f32::from(label) }),
                    );
                }
                Values::Numbers(values) => out.extend_from_slice(&values[range]),
            }
            let row = &out[first..];
            if let Some(at) = row.iter().position(|value| value.is_infinite()) {
                return Err(self.bad(start + at));
            }
            if row.iter().all(|value| value.is_nan()) {
                return Err(TargetsError::Untargeted { item: I::NAME, id }.into());
            }
        }
        Ok(())
    }

    fn bad(&self, position: usize) -> Error {
        let id = (position / self.n_columns) as u32;
        let column = position % self.n_columns;
        let (value, expected, path) = match &self.values {
            Values::Labels(values) => (values[position].to_string(), "0, 1 or 255 (missing)", values.path()),
            Values::Numbers(values) => {
                (values[position].to_string(), "a finite number or NaN", values.path())
            }
        };
        let error = Error::Targets(TargetsError::BadTarget { item: I::NAME, id, column, value, expected });
        error.in_file(path.map(Path::new))
    }
}

fn is_label(label: u8) -> bool {
    label <= 1 || label == u8::MAX
}

impl<I> From<Arc<Labels<I>>> for Targets<I> {
    fn from(labels: Arc<Labels<I>>) -> Self {
        Self::Classes(labels)
    }
}

impl<I> From<Labels<I>> for Targets<I> {
    fn from(labels: Labels<I>) -> Self {
        Self::Classes(Arc::new(labels))
    }
}

impl<I> From<TargetValues<I>> for Targets<I> {
    fn from(values: TargetValues<I>) -> Self {
        Self::Values(Arc::new(values))
    }
}
