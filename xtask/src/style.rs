//! Checks of style that count: what makes code harder to read, whose number in a folder may only fall, and the sizes of
//! error enums.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycles::tokens;
use crate::names::lines_outside_tests;
use crate::workspace::SourceFile;

/// What is counted, in the order of the numbers of [`ALLOWED`], with what to write instead.
const HABITS: [(&str, &str); 3] = [
    ("`let (a, b) = (x, y);` of unrelated values", "write one statement per value"),
    ("closures bound to a name that is used once", "write the closure where it is used, or a function"),
    ("functions whose names begin with a preposition", "begin the name with a verb or a noun"),
];

/// The occurrences of [`HABITS`] in each folder. The numbers may only fall.
const ALLOWED: &[(&str, [usize; 3])] = &[
    ("benches", [0, 9, 2]),
    ("crates/cli", [13, 6, 0]),
    ("crates/comm", [0, 6, 3]),
    ("crates/data", [83, 48, 27]),
    ("crates/feature", [0, 0, 2]),
    ("crates/graph", [0, 5, 9]),
    ("crates/kernels", [0, 6, 30]),
    ("crates/kiln", [16, 8, 8]),
    ("crates/loader", [0, 1, 1]),
    ("crates/nccl", [0, 0, 1]),
    ("crates/nn", [0, 4, 27]),
    ("crates/partition", [10, 8, 1]),
    ("crates/remote", [31, 16, 6]),
    ("crates/sample", [0, 1, 4]),
    ("crates/store", [0, 3, 1]),
    ("crates/tables", [0, 3, 1]),
    ("crates/train", [0, 17, 26]),
    ("examples", [1, 3, 0]),
    ("xtask", [0, 13, 5]),
];

/// Prepositions that are no convention of Rust for conversions and builders, as `from_`, `into_` and `with_` are.
const PREPOSITIONS: &[&str] = &[
    "above", "after", "at", "before", "below", "beside", "between", "beyond", "by", "for", "in", "of", "on",
    "over", "per", "since", "under", "until", "within",
];

/// Terms that begin with one of the [`PREPOSITIONS`].
const TERMS: &[&str] = &["for_each", "in_batch", "in_degree", "in_memory", "in_neighbors", "in_place"];

/// The largest number of variants of an error enum. A larger one is grouped by concern.
const MAX_VARIANTS: usize = 15;

/// The error enums above [`MAX_VARIANTS`]. The numbers may only fall.
const LARGE_ERRORS: &[(&str, usize)] = &[("crates/kiln Error", 43)];

/// Returns a message for each habit that occurs in a folder more often than allowed, or less often than the list states.
pub(crate) fn habits(files: &[SourceFile]) -> Vec<String> {
    let found = found_habits(files);
    let mut problems = Vec::new();
    for (habit_idx, (habit, advice)) in HABITS.iter().enumerate() {
        let places = |folder: &str| found.get(folder).map_or(&[][..], |places| &places[habit_idx]);
        let folders: BTreeSet<&str> = found.keys().copied().chain(ALLOWED.iter().map(|row| row.0)).collect();
        for folder in folders {
            let most = ALLOWED.iter().find(|row| row.0 == folder).map_or(0, |row| row.1[habit_idx]);
            let n_found = places(folder).len();
            if most < n_found {
                let places = places(folder).join(", ");
                problems.push(format!(
                    "{folder}: {habit}: {n_found}, at most {most} allowed: {advice}: {places}"
                ));
            } else if n_found < most {
                problems
                    .push(format!("{folder}: {habit}: {n_found}: lower the {most} in xtask/src/style.rs"));
            }
        }
    }
    problems
}

/// Returns a message for each error enum that has too many variants, or fewer than the list states.
pub(crate) fn large_errors(files: &[SourceFile]) -> Vec<String> {
    let mut large = found_errors(files);
    large.retain(|name, n_variants| {
        MAX_VARIANTS < *n_variants || LARGE_ERRORS.iter().any(|row| row.0 == name)
    });
    let mut problems = Vec::new();
    for (name, n_variants) in &large {
        let listed = LARGE_ERRORS.iter().find(|row| row.0 == name).map(|row| row.1);
        let most = listed.unwrap_or(MAX_VARIANTS);
        if most < *n_variants {
            problems.push(format!(
                "{name} has {n_variants} variants, at most {most} allowed: group them by concern"
            ));
        } else if *n_variants < most {
            problems.push(format!(
                "{name} has only {n_variants} variants: change its {most} in xtask/src/style.rs"
            ));
        }
    }
    let stale = LARGE_ERRORS.iter().filter(|row| !large.contains_key(row.0));
    problems.extend(stale.map(|row| format!("{} does not exist: remove it from xtask/src/style.rs", row.0)));
    problems
}

/// Returns the places of each habit by folder.
fn found_habits(files: &[SourceFile]) -> BTreeMap<&str, [Vec<String>; 3]> {
    let mut found = BTreeMap::<&str, [Vec<String>; 3]>::new();
    for (folder, SourceFile { path, text }) in sources(files) {
        let code = code_outside_tests(text);
        let tokens = tokens(&code);
        for at in 0..tokens.len() {
            let named =
                [unrelated_tuple(&tokens, at), closure_used_once(&tokens, at), preposition(&tokens, at)];
            for (habit_idx, name) in named.into_iter().enumerate() {
                let places = &mut found.entry(folder).or_default()[habit_idx];
                places.extend(name.map(|name| format!("{path} ({name})")));
            }
        }
    }
    found
}

/// Returns the number of variants of each enum whose name ends in `Error`, such as `crates/graph Error`.
fn found_errors(files: &[SourceFile]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (folder, SourceFile { text, .. }) in sources(files) {
        let code = code_outside_tests(text);
        let tokens = tokens(&code);
        for at in 0..tokens.len().saturating_sub(2) {
            if tokens[at] == "enum" && tokens[at + 1].ends_with("Error") && tokens[at + 2] == "{" {
                let variants = elements(&tokens[at + 3..closing(&tokens, at + 2)]);
                found.insert(format!("{folder} {}", tokens[at + 1]), variants.len());
            }
        }
    }
    found
}

/// Returns the Rust files with code that is not a test, each with its folder: a crate, the benches, the examples or the
/// task runner.
fn sources(files: &[SourceFile]) -> impl Iterator<Item = (&str, &SourceFile)> {
    files.iter().filter(|file| file.is_rust() && !file.is_generated()).filter_map(|file| {
        let parts: Vec<&str> = file.path.split('/').collect();
        let n_parts = match parts[..] {
            _ if parts.contains(&"tests") || file.path.ends_with("/tests.rs") => return None,
            ["crates", _, "src", ..] => 2,
            ["benches" | "examples", ..] | ["xtask", "src", ..] => 1,
            _ => return None,
        };
        let n_bytes = parts[..n_parts].join("/").len();
        Some((&file.path[..n_bytes], file))
    })
}

fn code_outside_tests(text: &str) -> String {
    lines_outside_tests(text).map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// Returns the bound names if a `let` at this position destructures a tuple of values, none of which is computed from
/// another variable of the same names, as in a swap.
fn unrelated_tuple(tokens: &[&str], at: usize) -> Option<String> {
    let pattern_end = closing_after(tokens, at, &["let", "("])?;
    let value_at = match closing_after(tokens, pattern_end + 1, &[":", "("]) {
        Some(type_end) => type_end + 1,
        None => pattern_end + 1,
    };
    let value_end = closing_after(tokens, value_at, &["=", "("])?;
    let names = elements(&tokens[at + 2..pattern_end]);
    let values = elements(&tokens[value_at + 2..value_end]);
    let is_related = (1..values.len()).any(|value_idx| {
        let earlier = names.iter().take(value_idx).flat_map(|names| names.iter());
        earlier.filter(|name| **name != "mut").any(|name| values[value_idx].contains(name))
    });
    let is_statement = tokens.get(value_end + 1) == Some(&";");
    (is_statement && !is_related).then(|| tokens[at + 2..pattern_end].join(" "))
}

/// Returns the name if a `let` at this position binds a closure to a name that the rest of the block contains once.
fn closure_used_once(tokens: &[&str], at: usize) -> Option<String> {
    let [name, rest @ ..] = tokens[at..].strip_prefix(&["let"])? else { return None };
    let closure = rest.strip_prefix(&["="])?;
    closure.strip_prefix(&["move"]).unwrap_or(closure).strip_prefix(&["|"])?;
    let mut depth = 0_usize;
    let mut n_uses = 0;
    for (token_idx, token) in rest.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            _ if token == name && rest[token_idx - 1] != "." => n_uses += 1,
            _ => {}
        }
    }
    (n_uses == 1).then(|| (*name).to_owned())
}

/// Returns the name if a function at this position has a name that begins with a preposition.
fn preposition(tokens: &[&str], at: usize) -> Option<String> {
    let name = tokens[at..].strip_prefix(&["fn"])?.first()?;
    let (first, _) = name.split_once('_')?;
    let is_term = TERMS.iter().any(|term| name.starts_with(term));
    (PREPOSITIONS.contains(&first) && !is_term).then(|| (*name).to_owned())
}

/// Returns the position of the bracket that closes the last one of `start`, which must stand at this position.
fn closing_after(tokens: &[&str], at: usize, start: &[&str]) -> Option<usize> {
    let is_there = tokens.get(at..)?.starts_with(start);
    is_there.then(|| closing(tokens, at + start.len() - 1))
}

fn closing(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0_usize;
    for (token_idx, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return token_idx;
        }
    }
    tokens.len()
}

/// Splits tokens at the commas that are in no bracket.
fn elements<'t, 'a>(tokens: &'t [&'a str]) -> Vec<&'t [&'a str]> {
    let mut depth = 0_usize;
    let mut parts: Vec<_> = tokens
        .split(|token| {
            match *token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            depth == 0 && *token == ","
        })
        .collect();
    if parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    /// Returns the numbers of the three habits in a function with this body.
    fn counts(body: &str) -> [usize; 3] {
        let files = [file("crates/a/src/lib.rs", &format!("fn f() {{ {body} }}"))];
        found_habits(&files)["crates/a"].each_ref().map(Vec::len)
    }

    #[test]
    fn a_tuple_binding_of_unrelated_values_is_found() {
        assert_eq!(counts("let (a, mut b) = (x.len(), f(y, z));"), [1, 0, 0]);
        assert_eq!(counts("let (a, b): (Vec<u8>, u8) = (vec![], 1);"), [1, 0, 0]);
        assert_eq!(counts("let (a, b) = (b, a); let (c, d) = pair; let (e, f) = (x, y).sorted();"), [0; 3]);
    }

    #[test]
    fn a_closure_with_one_use_is_found() {
        assert_eq!(counts("let f = |x| x + 1; xs.map(f)"), [0, 1, 0]);
        assert_eq!(counts("let f = move |x| { x }; if y { f(1) }"), [0, 1, 0]);
        assert_eq!(counts("let f = |x| x + 1; f(1) + f(2)"), [0; 3]);
        assert_eq!(counts("{ let f = |x| x; f(1) + f(2) } f(3); a.f()"), [0; 3]);
    }

    #[test]
    fn a_name_that_begins_with_a_preposition_is_found() {
        assert_eq!(counts("fn of_graph() {} fn by_row() {}"), [0, 0, 2]);
        assert_eq!(
            counts("fn in_degree() {} fn for_each_row() {} fn from_parts() {} fn office() {}"),
            [0; 3]
        );
    }

    #[test]
    fn tests_and_generated_code_have_no_limit() {
        let bad = "fn of_graph() {}\n";
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n    {bad}}}\n");
        let files = [
            file("crates/a/src/lib.rs", &in_tests),
            file("crates/a/src/proto/generated.rs", bad),
            file("crates/a/tests/suite/b.rs", bad),
        ];
        assert!(found_habits(&files).values().flatten().all(Vec::is_empty));
    }

    #[test]
    fn more_and_fewer_occurrences_than_listed_are_found() {
        let more = habits(&[file("crates/new/src/lib.rs", "fn of_graph() {}")]);
        assert!(
            more.iter().any(|problem| problem
                .starts_with("crates/new: functions whose names begin with a preposition: 1,")),
            "{more:?}"
        );
        let (folder, numbers) = ALLOWED.iter().find(|row| 0 < row.1[2]).expect("a folder should have some");
        let fewer = format!("{folder}: {}: 0: lower the {}", HABITS[2].0, numbers[2]);
        assert!(more.iter().any(|problem| problem.starts_with(&fewer)), "{more:?}");
    }

    #[test]
    fn an_error_enum_with_16_variants_is_found() {
        let error = |n: usize| {
            let variants = "#[error(\"a, b\")] V { a: u8, b: (u8, u8) }, ".repeat(n);
            large_errors(&[file("crates/a/src/lib.rs", &format!("pub enum AError {{ {variants} }}"))])
        };
        let expected = "crates/a AError has 16 variants, at most 15 allowed: group them by concern";
        assert!(error(16).contains(&expected.to_owned()), "{:?}", error(16));
        assert!(!error(15).iter().any(|problem| problem.starts_with("crates/a ")));
    }
}
