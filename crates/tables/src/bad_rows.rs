//! Bad rows of tables: each is an error with file and row, or is dropped and counted because the spec says so. No value is
//! repaired.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The number of examples of each kind of bad rows of a table.
pub(crate) const MAX_EXAMPLES: usize = 10;

/// The maximum number of characters of a value in a message.
const MAX_SHOWN: usize = 60;

/// The kinds of bad rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadRowKind {
    /// A row of a relation whose key has no row in the table of its node type.
    Dangling,
    /// A row of a node type whose key an earlier row has. The earlier row is kept.
    Duplicate,
    /// A row without a key.
    MissingKey,
    /// A row with a value of another type than its column should have, or with another number of fields than its table.
    WrongType,
}

/// The bad rows of one kind in one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRows {
    /// The table: ``node type `user` `` or ``relation `buys` ``.
    pub table: String,
    /// The kind of the rows.
    pub kind: BadRowKind,
    /// The number of such rows.
    pub n_rows: u64,
    /// The part of a sentence that says which of the rows are bad because of other bad rows; empty if none are.
    pub because: String,
    /// True if the spec drops them.
    pub is_dropped: bool,
    /// The first of them, at most ten.
    pub examples: Vec<BadRow>,
}

/// A bad row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The path of the file.
    pub path: PathBuf,
    /// The number of the row in the file, from 1; a header is not counted.
    pub row: u64,
    /// The name of the column.
    pub column: String,
    /// The expected value.
    pub expected: String,
    /// The value, shortened.
    pub found: String,
}

impl BadRowKind {
    pub(crate) const ALL: [Self; 4] = [Self::Dangling, Self::Duplicate, Self::MissingKey, Self::WrongType];

    /// Returns the word that a spec uses for this kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dangling => "dangling",
            Self::Duplicate => "duplicate",
            Self::MissingKey => "missing_key",
            Self::WrongType => "wrong_type",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Dangling => "a key that its node type does not have",
            Self::Duplicate => "the key of an earlier row",
            Self::MissingKey => "no key",
            Self::WrongType => "a value of the wrong type",
        }
    }
}

/// The bad rows of a table that were found so far.
#[derive(Debug, Default)]
pub(crate) struct BadRowLog {
    counts: [u64; 4],
    examples: [Vec<BadRow>; 4],
}

impl BadRowLog {
    /// Counts a row. `example` is called for the first rows of its kind only.
    pub(crate) fn add(&mut self, kind: BadRowKind, example: impl FnOnce() -> BadRow) {
        let position = kind as usize;
        self.counts[position] += 1;
        if self.examples[position].len() < MAX_EXAMPLES {
            self.examples[position].push(example());
        }
    }

    /// Counts rows, of which `examples` are the first. Examples after the first [`MAX_EXAMPLES`] are not kept.
    pub(crate) fn add_counted(&mut self, kind: BadRowKind, n_rows: u64, examples: Vec<BadRow>) {
        self.counts[kind as usize] += n_rows;
        let of_kind = &mut self.examples[kind as usize];
        of_kind.extend(examples.into_iter().take(MAX_EXAMPLES.saturating_sub(of_kind.len())));
    }

    /// Adds the rows of another log, which come later.
    pub(crate) fn extend(&mut self, other: Self) {
        for ((kind, n_rows), examples) in BadRowKind::ALL.into_iter().zip(other.counts).zip(other.examples) {
            self.add_counted(kind, n_rows, examples);
        }
    }

    /// Returns the kinds of which there are rows.
    pub(crate) fn finish(self, table: &str, dropped: &[BadRowKind]) -> Vec<BadRows> {
        let Self { counts, examples } = self;
        let found = BadRowKind::ALL.into_iter().zip(counts).zip(examples);
        let found = found.filter(|((_, n_rows), _)| *n_rows > 0);
        found
            .map(|((kind, n_rows), examples)| BadRows {
                table: table.to_owned(),
                kind,
                n_rows,
                because: String::new(),
                is_dropped: dropped.contains(&kind),
                examples,
            })
            .collect()
    }
}

/// Returns the message of [`Error::BadRows`](crate::Error::BadRows): one line for each kind, followed by its examples.
pub(crate) fn format_bad_rows(found: &[BadRows]) -> String {
    let mut text = String::from("the tables have bad rows:");
    for BadRows { table, kind, n_rows, because, examples, .. } in found.iter().filter(|rows| !rows.is_dropped)
    {
        let rows = if *n_rows == 1 { "row has" } else { "rows have" };
        let noun = kind.noun();
        let word = kind.name();
        let _ =
            write!(text, "\n{table}: {n_rows} {rows} {noun}{because}: correct them, or add `drop: [{word}]`");
        for BadRow { path, row, column, expected, found } in examples {
            let path = path.display();
            let _ = write!(text, "\n  {path}, row {row}, column {column:?}: {found}, expected {expected}");
        }
    }
    text
}

/// Returns a value for a message: quoted and shortened.
pub(crate) fn shortened(value: &str) -> String {
    let mut shown: String = value.chars().take(MAX_SHOWN).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
