//! Writes the files of a table and its bad rows, which node types and relations have.

use kiln_store::counted;

use super::tables::InputTable;
use super::yaml::{self, Lines};
use crate::bad_rows::BadRowKind;

/// Writes which table it is, with its notes.
pub(super) fn write_table(lines: &mut Lines, table: &InputTable) {
    lines.comment(2, &format!("{}: {}", table.label(), counted(table.profile.n_rows, "row")));
    for note in &table.notes {
        lines.comment(2, note);
    }
}

/// Writes the files of a table, and how they are read.
pub(super) fn write_files(lines: &mut Lines, table: &InputTable) {
    lines.push(4, &format!("files: {}", yaml::files(&table.files)), "");
    let csv = yaml::csv(&table.csv);
    csv.into_iter().for_each(|csv| lines.push(4, &format!("csv: {csv}"), ""));
    let missing = &table.profile.missing;
    if !missing.is_empty() {
        let texts = yaml::list(missing.iter().map(String::as_str));
        lines.push(4, &format!("missing: {texts}"), "in each column of the table");
    }
}

/// Returns the kinds of bad rows of any table, with their numbers.
pub(super) fn bad_rows(table: &InputTable) -> Vec<(BadRowKind, String)> {
    let n_rows = table.profile.n_malformed;
    let what = format!("{} with another number of fields or no text", counted(n_rows, "row"));
    (n_rows > 0).then_some((BadRowKind::WrongType, what)).into_iter().collect()
}

/// Writes the kinds of bad rows that are dropped.
pub(super) fn write_dropped(lines: &mut Lines, dropped: &[(BadRowKind, String)]) {
    if !dropped.is_empty() {
        let kinds: Vec<BadRowKind> = dropped.iter().map(|(kind, _)| *kind).collect();
        let what: Vec<&str> = dropped.iter().map(|(_, what)| what.as_str()).collect();
        lines.push(4, &format!("drop: {}", yaml::drop(&kinds)), &what.join(", "));
    }
}
