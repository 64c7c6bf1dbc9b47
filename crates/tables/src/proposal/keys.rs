//! The keys of tables: which column numbers the rows of each.

use super::names::{is_end, is_like_key, is_measure, is_row_number, key_score, reference_score};
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;

/// The share of different values of a column with the name of a key below which it is none.
const MIN_UNIQUE: f64 = 0.9;

/// The share of the values of texts that must be keys of a table to refer to it without its name.
pub(super) const MIN_SHARE: f64 = 0.95;

/// Returns the column of each table that is a key by its values, and by its name or by other tables whose values are its keys.
pub(super) fn find_keys(tables: &[InputTable]) -> Vec<Option<usize>> {
    let mut keys: Vec<Option<usize>> = tables.iter().map(key_of_table).collect();
    for (position, table) in tables.iter().enumerate() {
        if keys[position].is_none()
            && table.declared.is_none()
            && references(table, position, tables, &keys).len() < 2
        {
            keys[position] = key_by_references(position, tables, &keys);
        }
    }
    keys
}

/// Returns the column that is declared as the key, or whose name is that of one.
fn key_of_table(table: &InputTable) -> Option<usize> {
    match &table.declared {
        Some(declared) => declared.key.as_ref().and_then(|name| table.column(name)),
        None => key_by_name(table),
    }
}

/// Returns the column whose name is that of a key: a unique one, or else one with few duplicate or missing values.
fn key_by_name(table: &InputTable) -> Option<usize> {
    let columns = table.profile.columns.iter().enumerate();
    let mut named: Vec<(u8, usize)> = columns
        .filter(|(_, column)| column.is_key)
        .map(|(position, column)| (key_score(&column.name, &table.words), position))
        .filter(|(score, _)| *score >= 3)
        .collect();
    // The best name is first; of equal ones, the first column.
    named.sort_by_key(|(score, position)| (u8::MAX - score, *position));
    let unique = named.iter().find(|(_, position)| table.profile.columns[*position].is_unique());
    let key = unique.or_else(|| {
        named.iter().find(|(_, position)| {
            let column = &table.profile.columns[*position];
            let n_values = column.n_values();
            MIN_UNIQUE * n_values as f64 <= column.n_distinct() as f64 && table.profile.n_rows <= 2 * n_values
        })
    });
    key.map(|(_, position)| *position)
}

/// Returns the unique column of which columns of other tables have values, or whose table they name.
fn key_by_references(position: usize, tables: &[InputTable], keys: &[Option<usize>]) -> Option<usize> {
    let table = &tables[position];
    let unique = table.profile.columns.iter().enumerate().filter(|(_, column)| {
        let is_of_other = is_like_key(&column.name) && key_score(&column.name, &table.words) == 0;
        column.is_unique() && column.n_distinct() > 0 && !is_of_other && !is_measure(&column.name)
    });
    let others = tables.iter().enumerate().filter(|(other, _)| *other != position);
    let referring: Vec<&ColumnProfile> = others
        .flat_map(|(other, table)| {
            let columns = table.profile.columns.iter().enumerate();
            let others = columns.filter(move |(column, _)| keys[other] != Some(*column));
            others.map(|(_, column)| column).filter(|column| !is_row_number(&column.name))
        })
        .collect();
    let mut best = None;
    for (column, key) in unique {
        let share = share_of(key, table, &referring);
        if share > 0.0 && best.is_none_or(|(_, most)| most < share) {
            best = Some((column, share));
        }
    }
    best.map(|(column, _)| column)
}

/// Returns the largest share of the values of a column that are keys, among the columns that name the table or have texts only.
fn share_of(key: &ColumnProfile, table: &InputTable, referring: &[&ColumnProfile]) -> f64 {
    let shares = referring.iter().filter_map(|column| {
        let share = column.overlap(key).0.share()?;
        let is_named = reference_score(&column.name, &table.words, &key.name) >= 3 && share > 0.0;
        let is_text = column.kind(false) == ValueKind::Text && column.n_distinct() > 1;
        (is_named || (is_text && MIN_SHARE <= share)).then_some(share)
    });
    shares.fold(0.0, f64::max)
}

/// A column whose values are keys of a table.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) column: usize,
    /// The table with the keys.
    pub(super) table: usize,
    /// Other tables of whose keys the values are, too.
    pub(super) others: Vec<usize>,
}

/// Returns the columns of a table that refer to keys, in their order.
pub(super) fn references(
    table: &InputTable,
    position: usize,
    tables: &[InputTable],
    keys: &[Option<usize>],
) -> Vec<Reference> {
    let columns = 0..table.profile.columns.len();
    columns.filter_map(|column| reference(table, position, column, tables, keys)).collect()
}

fn reference(
    table: &InputTable,
    position: usize,
    column: usize,
    tables: &[InputTable],
    keys: &[Option<usize>],
) -> Option<Reference> {
    let values = &table.profile.columns[column];
    if let Some(declared) = &table.declared {
        let name = declared.references.get(&values.name).filter(|_| values.is_key)?;
        let table = tables.iter().position(|other| other.name == *name)?;
        return keys[table].map(|_| Reference { column, table, others: Vec::new() });
    }
    if !values.is_key || is_row_number(&values.name) || (values.n_values() == 0 && table.profile.n_rows > 0) {
        return None;
    }
    let is_own_key = keys[position] == Some(column);
    let mut found: Vec<(u8, f64, usize)> = Vec::new();
    for (other, key) in keys.iter().enumerate() {
        let Some(key) = *key else { continue };
        if other == position && (is_own_key || values.is_unique()) {
            continue;
        }
        let keys_of_other = &tables[other].profile.columns[key];
        let score = reference_score(&values.name, &tables[other].words, &keys_of_other.name);
        let (overlap, _) = values.overlap(keys_of_other);
        // Keys of the same name are those of the other table only if that one is named by them.
        let is_named =
            score >= 3 && (!is_own_key || key_score(&keys_of_other.name, &tables[other].words) >= 3);
        let is_accepted = match overlap.share() {
            _ if is_own_key && !is_named => false,
            None => is_named,
            Some(_) if is_named => true,
            Some(share) if score >= 2 => share >= 0.5,
            Some(share) => share >= MIN_SHARE && is_reference_by_values(table, values),
        };
        if is_accepted {
            found.push((score, overlap.share().unwrap_or(0.0), other));
        }
    }
    let best = found.iter().copied().reduce(|best, next| {
        let is_better = (best.0, best.1) < (next.0, next.1);
        if is_better { next } else { best }
    })?;
    let others = found
        .iter()
        .filter(|(score, share, other)| *other != best.2 && *score == best.0 && *share >= MIN_SHARE);
    Some(Reference { column, table: best.2, others: others.map(|(_, _, other)| *other).collect() })
}

/// Returns true if a column refers to a table if its values are keys of it, although it does not name the table. Numbers are often
/// among the keys of a table by chance, so that the name must not be that of another type.
fn is_reference_by_values(table: &InputTable, values: &ColumnProfile) -> bool {
    match values.kind(table.has_decimal_commas) {
        ValueKind::Text => values.n_distinct() > 1,
        ValueKind::Integer => is_end(&values.name),
        _ => false,
    }
}
