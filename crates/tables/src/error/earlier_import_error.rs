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
    #[error("{table}: {what}: use the spec of the earlier import, which is in its import.json")]
    OtherTransforms {
        /// The table: ``node type `user` `` or ``relation `buys` ``.
        table: String,
        /// The part that differs, with the value in the earlier import.
        what: String,
    },
    /// Rows should be appended to a partition.
    #[error(
        "{set}: this is a partitioned set, expected a whole one: append to the set that was partitioned, and partition the \
         result"
    )]
    Partitioned {
        /// The path of the set.
        set: PathBuf,
    },
    /// Rows should be appended to a set with a split of links.
    #[error(
        "{set}: the set has a split of links, expected none: append to the set of which `split-links` made it, and split the \
         result"
    )]
    HasLinks {
        /// The path of the set.
        set: PathBuf,
    },
    /// Rows should be appended to a set with task tables.
    #[error(
        "{set}: the set has task tables, to which no rows can be appended: import all tables again, with \
         `transforms_of` (--transforms-of) for the same features"
    )]
    HasTaskTables {
        /// The path of the set.
        set: PathBuf,
    },
    /// The set to which rows should be appended was changed after its import.
    #[error("{set}: {what}, unlike its import.json: append to the set that the import wrote")]
    Changed {
        /// The path of the set.
        set: PathBuf,
        /// The part that differs, with the value of the import.
        what: String,
    },
    /// The set to which rows should be appended has no node type or relation of a name.
    #[error(
        "{table}: the set to append to has no such part, expected one of: {known}{similar}: import all tables again for \
         another type or relation"
    )]
    NoSuchTable {
        /// The part of the spec: ``node type `user` `` or ``relation `buys` ``.
        table: String,
        /// The names of the set's parts.
        known: String,
        /// The suggestion of a similar name; may be empty.
        similar: String,
    },
    /// A node type or relation of the spec differs from that of the set to which rows should be appended.
    #[error("{table}: {what}: use the spec of the set, which is in its import.json")]
    OtherTable {
        /// The part of the spec: ``node type `user` `` or ``relation `buys` ``.
        table: String,
        /// The part that differs, with the value in the set.
        what: String,
    },
    /// Both a set to append to and an import whose transforms are used are given.
    #[error(
        "rows that are appended use the statistics of their set: remove the import whose transforms should be used"
    )]
    TwoImports,
}
