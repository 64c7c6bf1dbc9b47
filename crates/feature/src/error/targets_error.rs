/// An error in labels or target values, or in a request for them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetsError {
    /// A label is not below the number of classes.
    #[error("{item} {id} has label {label}, expected a class below {n_classes}")]
    LabelOutOfRange {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
        /// The label of the item.
        label: i32,
        /// The number of classes.
        n_classes: usize,
    },
    /// A batch or a split contains an unlabelled item.
    #[error("{item} {id} has no label: remove it from the split")]
    Unlabelled {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
    },
    /// A batch or a split contains an item whose target values are all missing.
    #[error("{item} {id} has no target value: remove it from the split")]
    Untargeted {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
    },
    /// A target value is not a label or not a finite number.
    #[error("{item} {id} has the target {value} in column {column}, expected {expected}")]
    BadTarget {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
        /// The column of the value, from 0.
        column: usize,
        /// The value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// The id of a requested item is not below the number of labels.
    #[error("{item} {id} has no label: expected an id below {n_labels}")]
    NoSuchItem {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id that is out of range.
        id: u32,
        /// The number of labels.
        n_labels: usize,
    },
}
