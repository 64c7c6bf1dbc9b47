use std::collections::BTreeSet;

use proc_macro2::{Group, TokenTree};

use super::Input;
use super::rust_source::{RustSource, attribute_at};

/// The ends of names of files.
const EXTENSIONS: [&str; 17] = [
    ".npy",
    ".npz",
    ".csv",
    ".csv.gz",
    ".tsv",
    ".txt",
    ".txt.gz",
    ".json",
    ".jsonl",
    ".jsonl.gz",
    ".yaml",
    ".parquet",
    ".arrow",
    ".feather",
    ".pt",
    ".safetensors",
    ".pem",
];

/// The files whose literals are also names within files: keys, members of archives, columns of a header, parts of file names.
const WITH_NAMES: [&str; 2] = ["crates/data/src/readers", "crates/data/src/edges/header.rs"];

/// The macros whose literals are known when the program is built.
const OF_BUILD: [&str; 4] = ["env", "option_env", "include_str", "include_bytes"];

/// The section of environment variables.
const ENVIRONMENT: &str = "environment";

/// Adds the literals of a file that are names of files, of environment variables, or within files.
pub(super) fn add(source: &RustSource, inputs: &mut BTreeSet<Input>) {
    let mut literals = Vec::new();
    collect(&source.tokens, &mut literals);
    let section = section_of(source);
    let has_names = WITH_NAMES.iter().any(|path| source.path.starts_with(path));
    for literal in literals {
        if is_variable(&literal) {
            inputs.insert(Input::new(ENVIRONMENT, literal));
        } else if is_file_name(&literal) || has_names && is_name(&literal) {
            inputs.insert(Input::new(&section, literal));
        }
    }
}

/// Returns the section of the files and names of a source: the crate, and in the readers of data the reader.
fn section_of(source: &RustSource) -> String {
    let name = source.crate_name();
    let reader =
        source.path.strip_prefix("crates/data/src/readers/").and_then(|rest| rest.split(['/', '.']).next());
    match (reader, source.path.as_str()) {
        (Some(reader), _) => format!("{name} {reader}"),
        (None, "crates/data/src/edges/header.rs") => format!("{name} header"),
        (None, _) => name,
    }
}

fn collect(tokens: &[TokenTree], literals: &mut Vec<String>) {
    let mut position = 0;
    while position < tokens.len() {
        // Attributes contain the documentation, and names for serde and for clap.
        if let Some((_, n_tokens)) = attribute_at(tokens, position) {
            position += n_tokens;
            continue;
        }
        match &tokens[position] {
            TokenTree::Group(group) if !is_of_build(tokens, position) => collect_group(group, literals),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                literals.extend(
                    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).map(str::to_owned),
                );
            }
            _ => {}
        }
        position += 1;
    }
}

fn collect_group(group: &Group, literals: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    collect(&tokens, literals);
}

/// Returns true if a group has the arguments of a macro in [`OF_BUILD`].
fn is_of_build(tokens: &[TokenTree], position: usize) -> bool {
    let [.., TokenTree::Ident(name), TokenTree::Punct(mark)] = &tokens[..position] else { return false };
    mark.as_char() == '!' && OF_BUILD.iter().any(|of_build| name == of_build)
}

fn is_file_name(text: &str) -> bool {
    !text.contains(char::is_whitespace) && EXTENSIONS.iter().any(|end| text.ends_with(end))
}

/// Returns true for words in capitals with an underscore, as in `MASTER_ADDR`.
fn is_variable(text: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    text.contains('_')
        && !text.contains("__")
        && text.starts_with(|letter: char| letter.is_ascii_uppercase())
        && text.chars().all(is_of_name)
}

/// Returns true for a word in lower case, as a key or the name of a column is, with at most `_` and `-`.
fn is_name(text: &str) -> bool {
    let is_of_name =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ['_', '-'].contains(&letter);
    text.starts_with(|letter: char| letter.is_ascii_lowercase()) && text.chars().all(is_of_name)
}
