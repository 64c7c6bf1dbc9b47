//! The check of error messages: what the program `kiln` prints names flags and commands, and no Rust functions or types.

use std::collections::{BTreeMap, BTreeSet};

use crate::exceptions::beyond;
use crate::names::{is_of_a_crate, lines_outside_tests, public_type};
use crate::workspace::SourceFile;

/// The errors whose messages may name Rust functions and types, because only programs of a user's own can cause them:
/// `kiln` makes the call itself, or reports its flag before. The list may only shrink.
const LIBRARY_ONLY: &[&str] = &[
    "crates/data BuildError::EdgeDataOfGraph",
    "crates/data BuildError::NoClasses",
    "crates/data BuildError::NoNodeType",
    "crates/feature EdgeColumnError::OfSamplers",
    "crates/kiln Error::DataWithoutEdgeFeatures",
    "crates/kiln Error::FanoutsMismatch",
    "crates/kiln Error::HeterogeneousModel",
    "crates/kiln Error::HomogeneousModel",
    "crates/kiln Error::NeedsPartitionedGraph",
    "crates/kiln Error::NoEdgeFeatures",
    "crates/kiln Error::NoEdgeTypes",
    "crates/kiln Error::NoEdgeWeights",
    "crates/kiln Error::NoSelfLoops",
    "crates/kiln Error::OtherMetagraph",
    "crates/kiln LinkLoaderError::ObjectiveOfNodes",
    "crates/loader BatchError::NegativeOfOtherType",
    "crates/nn Error::UnknownInputWidth",
    "crates/nn Error::UnknownWidth",
    "crates/nn WeightsError::OtherEpsilon",
    "crates/remote ContentError::NotOfType",
    "crates/sample Error::NoEdgeTypes",
    "crates/sample Error::NoWeights",
    "crates/train EmbeddingError::Lists",
    "crates/train Error::NotLayerWise",
    "crates/train TrainerError::NestedTrainers",
    "crates/train TrainerError::OtherDevice",
    "crates/train TrainerError::OtherLoader",
    "crates/train TrainerError::UnknownEpochSteps",
];

/// Calls of Python that messages recommend for files that Python has written.
const PYTHON: [&str; 2] = ["array.astype(", "numpy.ascontiguousarray("];

/// The messages of the program that a test compares.
const GOLDEN: &str = "crates/cli/tests/golden/messages.txt";

/// Returns a message for each error of a crate, and each line of the program's recorded messages, that names a Rust function
/// or a type of the workspace.
pub(crate) fn rust_names(files: &[SourceFile]) -> Vec<String> {
    let types = type_names(files);
    let mut found = BTreeMap::new();
    for SourceFile { path, text } in files.iter().filter(|file| is_of_a_crate(&file.path)) {
        let folder = path.split('/').take(2).collect::<Vec<_>>().join("/");
        for error in errors(text) {
            if let Some(name) = rust_name(&error.text, &types) {
                let key = format!("{folder} {}", error.variant);
                let message = format!("{path}: the message of {} names `{name}`: {ADVICE}", error.variant);
                found.insert(key, message);
            }
        }
    }
    let mut problems = beyond(found, LIBRARY_ONLY, "LIBRARY_ONLY in xtask/src/messages.rs");
    for SourceFile { path, text } in files.iter().filter(|file| file.path == GOLDEN) {
        for (line_idx, line) in text.lines().enumerate() {
            if let Some(name) = rust_name(line, &types) {
                problems.push(format!("{path}:{}: the program prints `{name}`: {ADVICE}", line_idx + 1));
            }
        }
    }
    problems
}

const ADVICE: &str = "name a flag, a command, or what to change in the data";

/// Returns the public type names of the crates that consist of several words, such as `EdgeWeights`.
fn type_names(files: &[SourceFile]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for SourceFile { text, .. } in files.iter().filter(|file| is_of_a_crate(&file.path)) {
        names.extend(lines_outside_tests(text).filter_map(|(_, line)| public_type(line)));
    }
    names.retain(|name| name.chars().skip(1).any(char::is_uppercase));
    names
}

/// The message of a variant of an error enum, or of an error struct.
struct ErrorMessage {
    /// The enum and the variant, such as `Error::NoEdges`, or the struct.
    variant: String,
    /// The literal, without placeholders.
    text: String,
}

/// Returns the messages of the `#[error]` attributes of a file.
fn errors(text: &str) -> Vec<ErrorMessage> {
    let code: Vec<&str> = lines_outside_tests(text).map(|(_, line)| line).collect();
    let code = code.join("\n");
    let mut messages = Vec::new();
    let mut rest = &code[..];
    let mut of_enum = String::new();
    while let Some(start) = rest.find("#[error(") {
        if let Some(name) = rest[..start].rsplit_once("enum ").map(|(_, after)| identifier(after)) {
            of_enum = format!("{name}::");
        }
        let (literals, end) = attribute(&rest[start..]);
        rest = &rest[start + end..];
        let item = rest.lines().map(str::trim_start).find(|line| {
            line.starts_with(char::is_uppercase) || line.starts_with("pub ") || line.starts_with("pub(")
        });
        let variant = match item {
            Some(line) if line.starts_with("pub") => {
                let name = ["struct ", "enum "].iter().find_map(|item| line.split_once(item));
                name.map_or_else(String::new, |(_, after)| identifier(after).to_owned())
            }
            Some(line) => format!("{of_enum}{}", identifier(line)),
            None => String::new(),
        };
        messages.extend(literals.into_iter().map(|text| ErrorMessage { variant: variant.clone(), text }));
    }
    messages
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Returns the literals of an attribute at the start of a text, without placeholders, and its length.
fn attribute(text: &str) -> (Vec<String>, usize) {
    let mut literals = Vec::new();
    let mut literal = None::<String>;
    let mut in_placeholder = false;
    let mut is_escaped = false;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        match &mut literal {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if c == '\\' => is_escaped = true,
            Some(_) if c == '"' => literals.extend(literal.take()),
            Some(_) if c == '{' || c == '}' => in_placeholder = c == '{',
            Some(text) if !in_placeholder => text.push(c),
            Some(_) => {}
            None if c == '"' => literal = Some(String::new()),
            None if (previous, c) == (')', ']') => return (literals, at + 1),
            None => {}
        }
        previous = c;
    }
    (literals, text.len())
}

/// Returns the first function or type of Rust that a text names: a path, a call, or a name of `types`.
fn rust_name<'a>(text: &'a str, types: &BTreeSet<&str>) -> Option<&'a str> {
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    let words = text.split(|c: char| c.is_whitespace() || "`,;'\"".contains(c));
    for word in words.filter(|word| !PYTHON.iter().any(|call| word.starts_with(call))) {
        let is_path = word
            .split_once("::")
            .is_some_and(|(before, after)| before.ends_with(is_in_name) && after.starts_with(is_in_name));
        let is_call = word.split_once('(').is_some_and(|(before, _)| before.ends_with(is_in_name));
        if is_path || is_call {
            return Some(word);
        }
        if let Some(name) = word.split(|c: char| !is_in_name(c)).find(|name| types.contains(name)) {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn finds_functions_and_types_in_messages_and_recorded_texts() {
        let error = "pub enum Error {\n    #[error(\n        \"no weights of {what:?}: call \\\n         .weights({n}) on it\"\n    )]\n    \
                     NoWeights {\n    },\n    /// No.\n    #[error(\"use {name} or --edge-weights\")]\n    Good,\n    \
                     #[error(\"see EdgeWeights\")]\n    Bad,\n}\npub struct EdgeWeights;\n";
        let golden = "Error: open it with Dataset::open\nlisten at [::1]:80\n";
        let files =
            [file("crates/graph/src/error.rs", error), file("crates/cli/tests/golden/messages.txt", golden)];
        let problems = rust_names(&files);
        assert_eq!(problems.len() - LIBRARY_ONLY.len(), 3, "{problems:?}");
        for expected in
            ["Error::NoWeights names `.weights()`", "Error::Bad names `EdgeWeights`", "`Dataset::open`"]
        {
            assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
        }
    }

    #[test]
    fn prose_and_calls_of_python_are_no_names() {
        let types = BTreeSet::from(["EdgeWeights"]);
        for text in
            ["save array.astype('<f4')", "the sets (a, b) of GraphBolt", "give --master [::1]:80", "PyG's"]
        {
            assert_eq!(rust_name(text, &types), None, "{text}");
        }
    }
}
