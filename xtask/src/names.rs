//! The check of public type names: each occurs only once in the workspace's crates, so that a name always means the
//! same type.

use std::collections::BTreeMap;

use crate::exceptions::beyond;
use crate::workspace::SourceFile;

/// The names that still occur more than once. The list may only shrink.
const REPEATED: &[&str] = &[];

const ITEMS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Returns a message for each public type name that occurs more than once. `Error`, `Result` and names that end in
/// `Config` may repeat.
pub(crate) fn repeated_types(files: &[SourceFile]) -> Vec<String> {
    beyond(repeated(files), REPEATED, "REPEATED in xtask/src/names.rs")
}

fn repeated(files: &[SourceFile]) -> BTreeMap<String, String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for SourceFile { path, text } in files.iter().filter(|file| is_of_a_crate(&file.path)) {
        for (line_idx, line) in lines_outside_tests(text) {
            if let Some(name) = public_type(line).filter(|name| !may_repeat(name)) {
                places.entry(name).or_default().push(format!("{path}:{}", line_idx + 1));
            }
        }
    }
    places.retain(|_, places| 1 < places.len());
    places
        .into_iter()
        .map(|(name, places): (&str, Vec<String>)| {
            (
                name.to_owned(),
                format!("the public type name {name} occurs more than once: {}", places.join(", ")),
            )
        })
        .collect()
}

/// Returns true for the source files of library crates, except tests and generated protocol messages.
pub(crate) fn is_of_a_crate(path: &str) -> bool {
    let is_private =
        path.ends_with("/tests.rs") || path.contains("/tests/") || path.ends_with("/generated.rs");
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs") && !is_private
}

fn may_repeat(name: &str) -> bool {
    name == "Error" || name == "Result" || name.ends_with("Config")
}

/// Returns the lines of a file with their indices from 0, without its test modules.
pub(crate) fn lines_outside_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut after_cfg = false;
    let mut end = None::<String>;
    text.lines().enumerate().filter(move |(_, line)| {
        if let Some(last) = &end {
            if line == last {
                end = None;
            }
            return false;
        }
        let code = line.trim_start();
        if after_cfg && code.contains("mod ") && code.ends_with('{') {
            end = Some(format!("{}}}", &line[..line.len() - code.len()]));
        }
        // There may be other attributes between `#[cfg(test)]` and the module.
        after_cfg = code.starts_with("#[cfg(test)]") || after_cfg && code.starts_with("#[");
        end.is_none()
    })
}

/// Returns `Name` for `pub struct Name…`, and likewise for other items that define types.
pub(crate) fn public_type(line: &str) -> Option<&str> {
    let (item, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    ITEMS.contains(&item).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn finds_a_repeated_type_name_with_both_places() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct Place<T>(T);\n    pub enum Once {}\n"),
            file("crates/b/src/x/y.rs", "//! Docs.\npub trait Place: Send {}\npub union Bits {}\n"),
        ];
        let expected =
            "the public type name Place occurs more than once: crates/a/src/lib.rs:1, crates/b/src/x/y.rs:2";
        assert_eq!(repeated(&files), [("Place".to_owned(), expected.to_owned())].into());
    }

    #[test]
    fn private_types_tests_and_programs_may_repeat_a_name() {
        let type_of = |visibility: &str| format!("{visibility} struct Place;\n");
        let tests = format!("#[cfg(test)]\n#[rustfmt::skip]\nmod tests {{\n    {}}}\n", type_of("pub"));
        let files = [
            file("crates/a/src/lib.rs", &type_of("pub")),
            file("crates/a/src/private.rs", &type_of("pub(crate)")),
            file("crates/b/src/lib.rs", &tests),
            file("crates/b/src/lib/tests.rs", &type_of("pub")),
            file("crates/b/tests/suite.rs", &type_of("pub")),
            file("crates/b/src/proto/generated.rs", &type_of("pub")),
            file("examples/src/lib.rs", &type_of("pub")),
        ];
        assert_eq!(repeated(&files), BTreeMap::new());
    }

    #[test]
    fn finds_types_after_a_test_module() {
        let text = "#[cfg(test)]\nmod tests {\n    pub struct Place;\n}\npub struct Place;\n";
        let found = repeated(&[file("crates/a/src/lib.rs", text), file("crates/b/src/lib.rs", text)]);
        assert!(found["Place"].ends_with("crates/a/src/lib.rs:5, crates/b/src/lib.rs:5"), "{found:?}");
    }

    #[test]
    fn types_named_error_result_or_config_may_repeat_in_crates() {
        let text = "pub enum Error {}\npub type Result<T> = T;\npub struct SageConfig;\n";
        let files = [file("crates/a/src/lib.rs", text), file("crates/b/src/lib.rs", text)];
        assert_eq!(repeated(&files), BTreeMap::new());
    }
}
