//! The columns of an edge list in a text file, by the names of its header.

use kiln_store::text::TextRow;

use crate::Result;

/// The names of a column of sources, as [`normalized`] returns them, without [`ENDINGS`].
const SRC_NAMES: [&str; 4] = ["src", "source", "from", "u"];

/// The names of a column of destinations.
const DST_NAMES: [&str; 6] = ["dst", "target", "destination", "dest", "to", "v"];

/// Ends of names that say what a column has, not which end of an edge: `dst_node_id`, `to_idx`.
const ENDINGS: [&str; 5] = ["ids", "id", "idx", "index", "node"];

/// The names of a column of weights.
const WEIGHT_NAMES: [&str; 3] = ["weight", "weights", "w"];

/// The expected name of a column that is none of the above.
const KNOWN: &str = "a column of sources, destinations or weights (src, dst, weight): rename or remove this column, or \
    import the table with its columns (kiln data import)";

/// The expected columns of a header that names one end of the edges, or an end twice.
const BOTH_ENDS: &str = "one column of sources and one of destinations, such as src and dst";

/// The expected columns of a header with several columns of weights.
const ONE_WEIGHT: &str = "at most one column of weights: remove the other, or rename it";

/// The maximum number of columns of a header. The limit bounds the memory for the names.
const MAX_COLUMNS: usize = 1000;

/// The maximum number of characters of a column's name that is kept, which notes contain.
const MAX_NAME: usize = 60;

/// The positions of the columns of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// The position of the sources.
    pub(super) src: usize,
    /// The position of the destinations.
    pub(super) dst: usize,
    /// The position of the weights; `None` without weights.
    pub(super) weight: Option<usize>,
}

/// The role of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Src,
    Dst,
    Weight,
}

impl Role {
    fn of(name: &str) -> Option<Self> {
        let name = normalized(name);
        let roles =
            [(&SRC_NAMES[..], Self::Src), (&DST_NAMES[..], Self::Dst), (&WEIGHT_NAMES[..], Self::Weight)];
        let of_name =
            |name: &str| roles.iter().find(|(names, _)| names.contains(&name)).map(|(_, role)| *role);
        let mut rest = &*name;
        loop {
            if let Some(role) = of_name(rest) {
                return Some(role);
            }
            // `uid` is no column of sources.
            rest =
                ENDINGS.iter().find_map(|ending| rest.strip_suffix(ending)).filter(|rest| 2 <= rest.len())?;
        }
    }
}

impl Columns {
    /// Returns the columns of a table of `n_fields` columns without a header: source, destination and possibly weight.
    pub(super) fn without_header(n_fields: usize) -> Self {
        Self { src: 0, dst: 1, weight: (n_fields == 3).then_some(2) }
    }

    /// Returns the columns that a header names. If it names neither end, they are the first two columns besides the
    /// weight.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::BadLine`] for a further column, and if a role has two columns or one end has none.
    pub(super) fn of_header(row: &TextRow<'_>, names: &[String]) -> Result<Self> {
        let roles: Vec<Option<Role>> = names.iter().map(|name| Role::of(name)).collect();
        let position = |role: Role| roles.iter().position(|of_column| *of_column == Some(role));
        let mut others = (0..names.len()).filter(|&column| roles[column].is_none());
        let ends = match (position(Role::Src), position(Role::Dst)) {
            (None, None) => [others.next(), others.next()],
            ends => ends.into(),
        };
        let [Some(src), Some(dst)] = ends else {
            // A column whose name is not known may be the missing end.
            return Err(row.bad(others.next().unwrap_or(0), BOTH_ENDS).into());
        };
        let columns = Self { src, dst, weight: position(Role::Weight) };
        let is_read = |column: usize| [Some(src), Some(dst), columns.weight].contains(&Some(column));
        match (0..names.len()).find(|&column| !is_read(column)) {
            None => Ok(columns),
            Some(column) if roles[column] == Some(Role::Weight) => Err(row.bad(column, ONE_WEIGHT).into()),
            Some(column) if roles[column].is_some() => Err(row.bad(column, BOTH_ENDS).into()),
            Some(column) => Err(row.bad(column, KNOWN).into()),
        }
    }
}

/// Returns the names of the columns if a line is a header: if its first two fields are names, or if one has the known
/// name of a column and none is a number. Any other line with a field that is not a number is a malformed edge, which must
/// cause an error and must not be skipped.
pub(super) fn names_of(row: &TextRow<'_>) -> Option<Vec<String>> {
    if !(2..=MAX_COLUMNS).contains(&row.n_fields()) {
        return None;
    }
    let name = |field| row.parse::<String>(field, "").map(|text| bare(&text)).unwrap_or_default();
    let names: Vec<String> = (0..row.n_fields()).map(name).collect();
    let has_known = names.iter().any(|name| Role::of(name).is_some());
    let has_number = names.iter().any(|name| name.parse::<f64>().is_ok());
    (names[..2].iter().all(|name| is_name(name)) || has_known && !has_number).then_some(names)
}

/// Returns the beginning of a field without double quotes, and without the characters that spreadsheets and
/// `numpy.savetxt` write before the first column name.
fn bare(text: &str) -> String {
    let text = text.trim_start_matches(['\u{feff}', '#', ' ']);
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text).trim_matches(['#', ' ']).chars().take(MAX_NAME).collect()
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name.parse::<f64>().is_err()
}

/// Returns the letters and digits of a name in lower case.
fn normalized(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
