//! What the values of a column are, for a comment.

use kiln_store::counted;

use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use crate::bad_rows::shortened;
use kiln_data::calendar::write_time;

/// The number of values that a comment has with their rows.
const MAX_SHOWN: usize = 8;

/// Returns a description of the values: range, number of different ones and share of missing ones.
pub(super) fn describe(table: &InputTable, column: &ColumnProfile) -> String {
    let mut parts = Vec::new();
    let kind = column.kind(table.has_decimal_commas);
    match kind {
        ValueKind::Nothing => parts.push("no value".to_owned()),
        ValueKind::Integer | ValueKind::Number => {
            let stats = column.stats();
            parts.extend(stats.map(|stats| range([shown_number(stats.min), shown_number(stats.max)])));
        }
        ValueKind::Time => parts.extend(column.times.map(|times| range(times.map(shown_time)))),
        ValueKind::List => parts.push("lists".to_owned()),
        ValueKind::Other => parts.push(match &column.other {
            Some(other) => format!("values of another kind, such as {other}"),
            None => "lists and other values".to_owned(),
        }),
        ValueKind::Bool | ValueKind::Text => {}
    }
    let is_listed = matches!(kind, ValueKind::Bool | ValueKind::Text);
    match &column.values {
        Some(values) if is_listed && values.len() <= MAX_SHOWN && !column.distinct.is_unique() => {
            parts.push(shown_values(values.iter().map(|(value, n_rows)| (value.as_str(), *n_rows))));
        }
        _ if matches!(kind, ValueKind::Nothing | ValueKind::List | ValueKind::Other) => {}
        _ => parts.push(n_distinct(column)),
    }
    let missing = missing_share(column.n_missing, table.profile.n_rows);
    parts.extend(missing.filter(|_| kind != ValueKind::Nothing));
    parts.join(", ")
}

fn range([first, last]: [String; 2]) -> String {
    if first == last { format!("{first} only") } else { format!("{first} to {last}") }
}

/// Returns the number of different values.
pub(super) fn n_distinct(column: &ColumnProfile) -> String {
    let n_values = column.n_distinct();
    match column.values.is_none() && column.distinct.is_sampled() {
        true => format!("about {n_values} different values by a sample of them"),
        false => counted(n_values, "different value"),
    }
}

/// Returns the share of the rows without a value; `None` if each has one.
pub(super) fn missing_share(n_missing: u64, n_rows: u64) -> Option<String> {
    (n_missing > 0).then(|| format!("{} missing", percent(n_missing, n_rows)))
}

/// Returns a share in percent. Only nothing is 0 %, and only all is 100 %.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    match part {
        0 => "0 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        _ if percent < 0.1 => "less than 0.1 %".to_owned(),
        _ if percent > 99.9 => "more than 99.9 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

/// Returns the most frequent values with the rows of each.
pub(super) fn shown_values<'a>(values: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut values: Vec<(&str, u64)> = values.collect();
    values.sort_by(|(a, n_a), (b, n_b)| n_b.cmp(n_a).then_with(|| a.cmp(b)));
    let shown = values.iter().take(MAX_SHOWN).map(|(value, n_rows)| format!("{} {n_rows}", plain(value)));
    let mut shown: Vec<String> = shown.collect();
    if MAX_SHOWN < values.len() {
        shown.push(format!("{} more", values.len() - MAX_SHOWN));
    }
    shown.join(", ")
}

/// Returns a value as it is, or in quotes if it has other characters than words.
fn plain(value: &str) -> String {
    let is_plain = !value.is_empty()
        && value.chars().count() < 30
        && value.chars().all(|c| c.is_alphanumeric() || "_-.:/+".contains(c));
    if is_plain { value.to_owned() } else { shortened(value) }
}

/// Returns a number with four significant digits, and integers as they are.
pub(super) fn shown_number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let rounded = format!("{value:.3e}");
    let rounded: f64 = rounded.parse().unwrap_or(value);
    match rounded.abs() {
        size if (1e-4..1e15).contains(&size) => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

pub(super) fn shown_time(micros: i64) -> String {
    let mut text = String::new();
    write_time(micros, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_shares_are_short_and_not_rounded_to_all_or_nothing() {
        for (value, expected) in [
            (16.0, "16"),
            (-0.123_456, "-0.1235"),
            (1e300, "1e300"),
            (1.5e-7, "1.5e-7"),
            (12_345.678, "12350"),
        ] {
            assert_eq!(shown_number(value), expected);
        }
        for (part, whole, expected) in [
            (0, 10, "0 %"),
            (10, 10, "100 %"),
            (1, 100_000, "less than 0.1 %"),
            (99_999, 100_000, "more than 99.9 %"),
            (1, 3, "33.3 %"),
        ] {
            assert_eq!(percent(part, whole), expected);
        }
    }
}
