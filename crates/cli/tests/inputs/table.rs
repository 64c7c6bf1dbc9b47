use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Input;
use super::rust_source::{folders_in, visit_files, workspace};

/// A line of the table.
#[derive(Debug, Clone)]
pub(super) struct InputLine {
    pub(super) input: Input,
    /// The test that shows the effect or the message; `None` for a name that is no input.
    pub(super) test: Option<InputTest>,
}

/// The test of an input.
#[derive(Debug, Clone)]
pub(super) struct InputTest {
    /// The name of the function.
    pub(super) name: String,
    /// The text by which the test's file names the input.
    pub(super) text: String,
}

/// The table of inputs: a heading ``## `section` `` for each section, and a row for each input with its name, its effect and
/// the name of its test. The test's file, or an expected text that it compares, contains the name of the input, or another text
/// that the row adds: `` `test` as `text` ``. Rows of two cells are names that are no inputs.
#[derive(Debug)]
pub(super) struct InputTable {
    pub(super) lines: Vec<InputLine>,
}

impl InputTable {
    /// Parses a table; the error names its first invalid line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut section = String::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = quoted(heading).first().copied().unwrap_or_default().to_owned();
            } else if line.starts_with("| `") {
                lines.push(
                    parse_row(&section, line)
                        .ok_or_else(|| format!("expected | `input` | effect | `test` |: {line}"))?,
                );
            }
        }
        Ok(Self { lines })
    }
}

fn parse_row(section: &str, line: &str) -> Option<InputLine> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let [name] = quoted(cells.first()?)[..] else { return None };
    let input = Input::new(section, name);
    if cells.get(1)?.is_empty() {
        return None;
    }
    let test = match cells[2..] {
        [] => None,
        [test] => match quoted(test)[..] {
            [test] => Some(InputTest { name: test.to_owned(), text: text_of(name).to_owned() }),
            [test, text] => Some(InputTest { name: test.to_owned(), text: text.to_owned() }),
            _ => return None,
        },
        _ => return None,
    };
    Some(InputLine { input, test })
}

/// Returns the text by which a file names an input: of the field of a variant, that of the field.
fn text_of(name: &str) -> &str {
    let is_variant = |start: &str| start.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    match name.split_once('.') {
        Some((variant, field)) if is_variant(variant) && is_variant(field) && !is_extension(field) => field,
        _ => name,
    }
}

fn is_extension(text: &str) -> bool {
    ["npy", "npz", "csv", "json", "jsonl", "yaml", "txt", "safetensors", "parquet", "pt", "pem"]
        .contains(&text)
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The files of the workspace by the functions in them.
pub(super) struct TestIndex {
    files: Vec<String>,
    /// The positions of the files with a function of a name.
    by_function: BTreeMap<String, Vec<usize>>,
}

impl TestIndex {
    /// Reads all sources and tests of the crates, except the module of this registry.
    pub(super) fn read() -> Self {
        let mut index = Self { files: Vec::new(), by_function: BTreeMap::new() };
        for folder in folders_in(&workspace().join("crates")) {
            for part in ["src", "tests"] {
                let part = folder.join(part);
                visit_files(&part, &part.display().to_string(), &mut |path, text| index.add(path, text));
            }
        }
        index
    }

    /// Returns the index of a file with a text.
    pub(super) fn of(text: &str) -> Self {
        let mut index = Self { files: Vec::new(), by_function: BTreeMap::new() };
        index.add("", text);
        index
    }

    fn add(&mut self, path: &str, text: &str) {
        let file = self.files.len();
        for rest in text.split("fn ").skip(1) {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(0);
            if rest[end..].starts_with('(') {
                self.by_function.entry(rest[..end].to_owned()).or_default().push(file);
            }
        }
        let golden =
            if text.contains("check_golden(") { golden_texts(Path::new(path)) } else { String::new() };
        self.files.push(format!("{text}{golden}"));
    }

    /// Returns what is wrong with the test of a line.
    pub(super) fn problem(&self, line: &InputLine) -> Option<String> {
        let Input { section, name } = &line.input;
        let test = line.test.as_ref()?;
        let Some(files) = self.by_function.get(&test.name) else {
            return Some(format!("`{name}` of `{section}`: no test is named {}", test.name));
        };
        let is_named = files.iter().any(|file| contains_word(&self.files[*file], &test.text));
        (!is_named).then(|| {
            format!("`{name}` of `{section}`: the file of {} does not contain {:?}", test.name, test.text)
        })
    }
}

/// Returns the expected texts in the folders `golden` of a test: beside its file, and in the folder of its submodules.
fn golden_texts(path: &Path) -> String {
    let mut texts = String::new();
    for folder in [path.with_file_name("golden"), path.with_extension("").join("golden")] {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            texts.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
        }
    }
    texts
}

/// Returns true if a text contains a word that is not part of a longer one.
fn contains_word(text: &str, word: &str) -> bool {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let behind = text[start + word.len()..].chars().next();
        !before.is_some_and(is_of_word) && !behind.is_some_and(is_of_word)
    })
}
