//! Names of tables and columns: their words, and which of them name the same thing.

use std::path::Path;

use crate::table::TableFormat;

/// Words at the end of a column's name that mark it as a key.
const KEY_WORDS: [&str; 6] = ["id", "ids", "key", "uuid", "guid", "code"];

/// Names of columns that are ends of edges.
const END_WORDS: [&str; 22] = [
    "src", "dst", "source", "target", "from", "to", "head", "tail", "parent", "child", "sender", "receiver",
    "follower", "followee", "friend", "citing", "cited", "manager", "u", "v", "node", "neighbor",
];

/// Words of the source and of the destination in the names of two columns that are otherwise the same.
const ROLES: [[&str; 2]; 19] = [
    ["src", "dst"],
    ["src", "dest"],
    ["source", "target"],
    ["source", "destination"],
    ["source", "dest"],
    ["from", "to"],
    ["orig", "dest"],
    ["org", "dest"],
    ["ori", "dest"],
    ["origin", "destination"],
    ["origin", "dest"],
    ["originator", "beneficiary"],
    ["sender", "receiver"],
    ["sender", "recipient"],
    ["payer", "payee"],
    ["debtor", "creditor"],
    ["caller", "callee"],
    ["follower", "followee"],
    ["citing", "cited"],
];

/// Words of columns of keys that name no type.
const GENERAL_WORDS: [&str; 2] = ["name", "no"];

/// Names of columns that number the rows of a table.
const ROW_NUMBERS: [&str; 5] = ["row.names", "Unnamed: 0", "__index_level_0__", "index", "rowid"];

/// Words of tables' names that say nothing of the content.
const TABLE_WORDS: [&str; 5] = ["table", "tables", "nodes", "data", "df"];

/// Words of columns that are measured, and are no keys although they are integers.
const MEASURES: [&str; 18] = [
    "age",
    "count",
    "n",
    "num",
    "number",
    "rating",
    "stars",
    "score",
    "rank",
    "year",
    "month",
    "day",
    "time",
    "ts",
    "timestamp",
    "weight",
    "amount",
    "price",
];

/// Returns the words of a name in lower case: parts between characters that are no letters or digits, and before capitals.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() {
            words.push(String::new());
            was_lower = false;
            continue;
        }
        if c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the singular of an English word.
fn singular(word: &str) -> String {
    let irregular = [
        ("people", "person"),
        ("children", "child"),
        ("movies", "movie"),
        ("cookies", "cookie"),
        ("series", "series"),
        ("species", "species"),
        ("news", "news"),
        ("indices", "index"),
        ("vertices", "vertex"),
    ];
    if let Some((_, singular)) = irregular.into_iter().find(|(plural, _)| *plural == word) {
        return singular.to_owned();
    }
    let of = |end: &str, replacement: &str| word.strip_suffix(end).map(|rest| format!("{rest}{replacement}"));
    if word.len() < 4 || ["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        return word.to_owned();
    }
    let with_es = ["sses", "xes", "ches", "shes"].iter().find(|end| word.ends_with(*end));
    let singular = match with_es {
        Some(_) => of("es", ""),
        None => of("ies", "y").or_else(|| of("s", "")),
    };
    singular.unwrap_or_else(|| word.to_owned())
}

/// Returns the words of a table's name whose last one is singular.
pub(super) fn type_words(table: &str) -> Vec<String> {
    let all = words(table);
    let mut words = all.clone();
    words.retain(|word| !TABLE_WORDS.contains(&word.as_str()) && !word.chars().all(|c| c.is_ascii_digit()));
    if words.is_empty() {
        words = all;
    }
    if let Some(last) = words.last_mut() {
        *last = singular(last);
    }
    words
}

/// Returns the words of what a column of keys refers to: `user` of `user_id` and `userId2`; empty for `id`.
pub(super) fn subject(column: &str) -> Vec<String> {
    let mut words = words(column);
    for word in &mut words {
        *word = word.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    }
    words.retain(|word| !word.is_empty());
    while words.last().is_some_and(|word| KEY_WORDS.contains(&word.as_str())) {
        words.pop();
    }
    if let Some(last) = words.last_mut() {
        *last = singular(last);
    }
    words
}

/// Returns true if the name of a column is that of a key or of an end of edges.
pub(super) fn is_like_key(column: &str) -> bool {
    words(column).last().is_some_and(|word| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        KEY_WORDS.contains(&letters) || END_WORDS.contains(&letters)
    })
}

/// Returns true for a name such as `brand_id`, which refers to a key.
pub(super) fn is_id(column: &str) -> bool {
    words(column).last().is_some_and(|word| ["id", "uuid", "guid"].contains(&word.as_str()))
}

/// Returns true for the name of an end of edges, which names no type: one of the usual names, or a letter or two.
pub(super) fn is_end(column: &str) -> bool {
    let subject = subject(column);
    match &subject[..] {
        [] => true,
        [word] => {
            let is_general = word.len() < 3 || word == "column" || END_WORDS.contains(&word.as_str());
            is_general && !is_measure(column)
        }
        _ => false,
    }
}

/// Returns the words that the names of a source and a destination have in common, such as `account` of `from_account_id` and
/// `to_account_id`; `None` for names of no such pair.
pub(super) fn role_subject(src: &str, dst: &str) -> Option<Vec<String>> {
    let [srcs, dsts] = [src, dst].map(words);
    let mut differing = srcs.iter().zip(&dsts).filter(|(one, other)| one != other);
    let (Some((src, dst)), None) = (differing.next(), differing.next()) else { return None };
    let is_pair = srcs.len() == dsts.len() && ROLES.contains(&[src.as_str(), dst.as_str()]);
    let mut common: Vec<String> = srcs.iter().filter(|word| *word != src).cloned().collect();
    common.retain(|word| !KEY_WORDS.contains(&word.as_str()) && !GENERAL_WORDS.contains(&word.as_str()));
    is_pair.then_some(common)
}

/// Returns true for a name with the word of a source or a destination.
pub(super) fn has_role(column: &str) -> bool {
    words(column).iter().any(|word| ROLES.iter().flatten().any(|role| role == word))
}

/// Returns true for a column that numbers the rows.
pub(super) fn is_row_number(column: &str) -> bool {
    ROW_NUMBERS.contains(&column) || column.is_empty()
}

/// Returns true for the name of a quantity.
pub(super) fn is_measure(column: &str) -> bool {
    words(column).last().is_some_and(|word| MEASURES.contains(&word.as_str()))
}

/// Returns how well the name of a column fits as the key of its own table: 3 and more for a key of this name.
pub(super) fn key_score(column: &str, table: &[String]) -> u8 {
    let subject = subject(column);
    if is_row_number(column) {
        return 1;
    }
    match subject.is_empty() {
        true => 4,
        false if subject == table || table.last() == subject.last() && subject.len() == 1 => 3,
        false => 0,
    }
}

/// Returns how well the name of a column fits the keys of a table: 3 and more if it names them, 2 if it ends so, or else 0.
pub(super) fn reference_score(column: &str, table: &[String], key: &str) -> u8 {
    let of_column = subject(column);
    if of_column.is_empty() {
        return 0;
    }
    if of_column == table || (words(column) == words(key) && subject(key) == of_column) {
        return 4;
    }
    match (of_column.last() == table.last(), of_column.len()) {
        (true, 1) => 3,
        (true, _) => 2,
        (false, _) => 0,
    }
}

/// Returns the name of the table that an entry of files is: that of the file without its ends, or of the innermost folder without a
/// pattern and a value of Hive.
pub(super) fn table_name(entry: &Path) -> String {
    let text = entry.to_string_lossy();
    let mut components = text.split(['/', '\\']).rev();
    let name = components
        .find(|name| !name.contains(['*', '?', '[', '=']) && !["", ".", "..", "/"].contains(name))
        .unwrap_or("table");
    let stem = match TableFormat::of(Path::new(name)) {
        Some(_) => name.split('.').next().filter(|stem| !stem.is_empty()),
        None => None,
    };
    stem.unwrap_or(name).to_owned()
}

/// Returns a name that is not among others, with a number if necessary.
pub(super) fn unique_name(name: &str, used: &mut Vec<String>) -> String {
    let mut unique = name.to_owned();
    let mut number = 2;
    while used.contains(&unique) {
        unique = format!("{name}_{number}");
        number += 1;
    }
    used.push(unique.clone());
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words_and_refer_to_tables() {
        assert_eq!(words("userID_2 name"), ["user", "id", "2", "name"]);
        assert_eq!(subject("movieId"), ["movie"]);
        assert_eq!(subject("user1"), ["user"]);
        assert!(subject("ID").is_empty());
        for (table, expected) in [
            ("users", "user"),
            ("movies", "movie"),
            ("categories", "category"),
            ("user_classes", "user class"),
            ("addresses", "address"),
            ("nodes", "node"),
            ("nodes-paper", "paper"),
            ("status", "status"),
            ("users_2024", "user"),
        ] {
            assert_eq!(type_words(table).join(" "), expected, "{table}");
        }
        for (column, table, key, score) in [
            ("user_id", "users", "id", 4),
            ("seller_user_id", "users", "id", 2),
            ("uid", "users", "uid", 4),
            ("item", "users", "id", 0),
            ("id", "users", "id", 0),
            ("category", "product_categories", "code", 3),
        ] {
            assert_eq!(reference_score(column, &type_words(table), key), score, "{column} of {table}");
        }
        for (column, table, score) in
            [("id", "users", 4), ("user_id", "users", 3), ("item_id", "users", 0), ("index", "users", 1)]
        {
            assert_eq!(key_score(column, &type_words(table)), score, "{column} of {table}");
        }
    }

    #[test]
    fn sources_and_destinations_are_pairs_by_their_names() {
        for (src, dst, expected) in [
            ("src", "dst", Some("")),
            ("payer", "payee", Some("")),
            ("from_account_id", "to_account_id", Some("account")),
            ("Sender_account", "Receiver_account", Some("account")),
            ("nameOrig", "nameDest", Some("")),
            ("From Bank", "To Bank", Some("bank")),
            ("to", "from", None),
            ("user", "item", None),
            ("source_user", "target_item", None),
            ("from", "to_account", None),
        ] {
            let found = role_subject(src, dst).map(|words| words.join(" "));
            assert_eq!(found.as_deref(), expected, "{src} and {dst}");
        }
    }

    #[test]
    fn tables_are_named_by_files_folders_and_patterns() {
        for (entry, name) in [
            ("data/users.parquet", "users"),
            ("users.csv.gz", "users"),
            ("ratings/", "ratings"),
            ("ratings/year=*/*.parquet", "ratings"),
            ("*.csv", "table"),
        ] {
            assert_eq!(table_name(Path::new(entry)), name, "{entry}");
        }
    }
}
