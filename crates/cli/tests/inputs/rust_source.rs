use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The crates without inputs of the program: fixtures of tests, and libraries whose callers read files.
const WITHOUT_INPUTS: [&str; 1] = ["testkit"];

/// A source file of the workspace, as tokens. Items and statements of tests are left out.
pub(super) struct RustSource {
    /// The path from the root of the workspace, with `/` between its parts.
    pub(super) path: String,
    pub(super) tokens: Vec<TokenTree>,
}

impl RustSource {
    /// Parses the text of a file.
    pub(super) fn parse(path: &str, text: &str) -> Self {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), tokens: without_tests(tokens) }
    }

    /// Returns the name of the crate, such as `kiln-data`.
    pub(super) fn crate_name(&self) -> String {
        match self.path.split('/').nth(1) {
            Some("kiln") => "kiln".to_owned(),
            folder => format!("kiln-{}", folder.unwrap_or_default()),
        }
    }
}

/// Returns the root of the workspace.
pub(super) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads all source files of the crates that the program consists of.
pub(super) fn read_sources() -> Vec<RustSource> {
    let mut sources = Vec::new();
    for folder in folders_in(&workspace().join("crates")) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        if WITHOUT_INPUTS.contains(&&*name) {
            continue;
        }
        visit_files(&folder.join("src"), &format!("crates/{name}/src"), &mut |path, text| {
            // Without either, a file has no input.
            if text.contains('"') || text.contains("Deserialize") {
                sources.push(RustSource::parse(path, text));
            }
        });
    }
    sources
}

/// Returns the folders in a folder, by name.
pub(super) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Calls `visit` with the path and the text of each file of Rust in a folder, if it exists, and in its subfolders.
pub(super) fn visit_files(folder: &Path, name: &str, visit: &mut dyn FnMut(&str, &str)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = format!("{name}/{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            visit_files(&path, &name, visit);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            visit(&name, &text);
        }
    }
}

/// Returns the group of an attribute that begins at a position: `[derive(Debug)]` of `#[derive(Debug)]` and `#![…]`. The
/// second value is the number of its tokens.
pub(super) fn attribute_at(tokens: &[TokenTree], position: usize) -> Option<(&Group, usize)> {
    let is_mark = |at: usize, mark: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark);
    if !is_mark(position, '#') {
        return None;
    }
    let n_marks = 1 + usize::from(is_mark(position + 1, '!'));
    match tokens.get(position + n_marks) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some((group, n_marks + 1))
        }
        _ => None,
    }
}

/// Returns tokens without the items that have the attribute `#[cfg(test)]`, at any depth.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::with_capacity(tokens.len());
    let mut position = 0;
    while position < tokens.len() {
        if let Some((attribute, n_tokens)) = attribute_at(&tokens, position)
            && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
        {
            position = end_of_item(&tokens, position + n_tokens);
            continue;
        }
        kept.push(match &tokens[position] {
            TokenTree::Group(group) => TokenTree::Group(Group::new(
                group.delimiter(),
                without_tests(group.stream()).into_iter().collect(),
            )),
            token => token.clone(),
        });
        position += 1;
    }
    kept
}

/// Returns the position behind the item that begins at a position: behind its braces or its semicolon.
fn end_of_item(tokens: &[TokenTree], start: usize) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens[start..].iter().position(is_end).map_or(tokens.len(), |position| start + position + 1)
}
