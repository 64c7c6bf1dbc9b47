use std::fmt;

/// The kind of values that a model learns to predict for a node, a graph or a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum TargetKind {
    /// One class per item.
    Classes,
    /// Several labels per item, each of which is true, false or missing.
    MultiLabel,
    /// One or several numbers per item, each of which may be missing.
    Regression,
    /// No values: the items are links, which a model learns to score above their negatives.
    Links,
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classes => "class labels",
            Self::MultiLabel => "several labels per item",
            Self::Regression => "regression targets",
            Self::Links => "links",
        })
    }
}
