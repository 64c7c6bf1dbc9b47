use std::path::PathBuf;

/// An error in times, in a split by time or in a cut of messages.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// A text is not a time.
    #[error("`{text}` is no time: expected {expected}")]
    NoTime {
        /// The text.
        text: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The borders of a split are not in order.
    #[error("the split by time has {got}, expected train before val, and val not after test")]
    Order {
        /// The borders.
        got: String,
    },
    /// The quantiles of a split are not in order.
    #[error("the split by time has the quantiles {val} and {test}, expected 0 < val <= test < 1")]
    Quantiles {
        /// The share of the items before the validation part.
        val: f64,
        /// The share of the items before the test part.
        test: f64,
    },
    /// A part of a split has no items.
    #[error(
        "no item of the split by time is in the {part} part, {range}; the times of the items are {times}: move the borders"
    )]
    EmptyPart {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The times of the part.
        range: String,
        /// The first and the last time of the items.
        times: String,
    },
    /// Links were split in a set whose nodes have another split by time.
    #[error(
        "the nodes of {name} have a split by time, which would cut the messages of links that are split in another way: split \
         the links by the same times, or those of the set before its nodes are split"
    )]
    TwoSplits {
        /// The name of the set.
        name: String,
    },
    /// A set was split by time after its features were standardized.
    #[error(
        "the features of {name} were standardized by the values of all nodes, also of those that are later than the training:          split the set by time first (kiln data split-links, for links), and then standardize it"
    )]
    Scaled {
        /// The name of the set.
        name: String,
    },
    /// The stored order of the edges by time was made from other edges or times.
    #[error(
        "{}: the order of the edges by time was made from other edges or times: write the set again, or remove this file and its \
         entries in kiln.json, so that each start orders the edges", path.display()
    )]
    StaleOrder {
        /// The file of the order.
        path: PathBuf,
    },
    /// The items of a split have no times.
    #[error("{items} have no times, which a split by time needs: add a column of times to them")]
    NoTimes {
        /// The items.
        items: String,
    },
}
