use std::path::PathBuf;

/// An error in the record of an earlier import, or in its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EarlierImportError {
    /// A set was not made by an import.
    #[error("{set}: the set has no import.json, expected a set that `import` wrote")]
    NoImport {
        /// The path of the set.
        set: PathBuf,
    },
    /// The record of an import is invalid.
    #[error("{path}: {message}: import the tables again")]
    Record {
        /// The path of the record.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// The columns of a spec differ from those of the import whose transforms it should use.
    #[error(
        "node type `{node_type}`: {what}: use the spec of the earlier import, which is in its import.json"
    )]
    OtherTransforms {
        /// The name of the node type.
        node_type: String,
        /// The part that differs, with the value in the earlier import.
        what: String,
    },
}
