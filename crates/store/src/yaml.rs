//! YAML files as trees of text, for small metadata files from untrusted sources: file size, nesting and the expansion of
//! aliases are limited. Errors contain the line or the entry.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use kiln_graph::open_file;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Options, Spanned};

use crate::{Error, Result};

/// The maximum file size in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The maximum number of bytes of all scalars. Those that an alias repeats count again.
const MAX_SCALAR_BYTES: usize = 5 << 20;

/// The maximum number of lists, mappings and scalars. Those that an alias repeats count again.
const MAX_NODES: usize = 100_000;

/// The maximum nesting depth of lists and mappings.
const MAX_DEPTH: usize = 32;

const DUPLICATE_KEY: &str = "a duplicate key";

/// A document or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Yaml {
    /// An empty value, `null` or `~`.
    Null,
    /// A string, number or boolean, as written in the file.
    Scalar(String),
    /// A list.
    List(Vec<Yaml>),
    /// A mapping.
    Map(BTreeMap<String, Yaml>),
}

impl Yaml {
    /// Reads a file with one document.
    ///
    /// # Errors
    /// Returns [`Error::BadLine`] if the file is not valid YAML or uses an unsupported feature, [`Error::Io`] if it
    /// cannot be read, and [`Error::Metadata`] if it is larger than 1 MiB.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = String::new();
        let file = open_file(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
        let n_bytes = file.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        if n_bytes as u64 > MAX_FILE_BYTES {
            return Err(Error::Metadata {
                path: path.to_owned(),
                key: "the file size".into(),
                expected: format!("at most {MAX_FILE_BYTES} bytes"),
                found: "over the limit".into(),
            });
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        // The parser counts positions from the end of a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root: Spanned<Node> =
            serde_saphyr::from_str_with_options(text, options()).map_err(|error| bad_line(path, &error))?;
        Self::new(path, text, root)
    }

    /// Converts a node, with the texts of numbers and booleans as they are in the file.
    fn new(path: &Path, text: &str, node: Spanned<Node>) -> Result<Self> {
        match node.value {
            Node::Null => Ok(Self::Null),
            Node::Text(text) => Ok(Self::Scalar(text)),
            Node::NumberOrBool => text_at(text, node.defined)
                .map(|text| Self::Scalar(text.to_owned()))
                .ok_or_else(|| plain_metadata(path, node.defined, "a value without a position")),
            Node::List(items) => {
                let items = items.into_iter().map(|item| Self::new(path, text, item));
                Ok(Self::List(items.collect::<Result<_>>()?))
            }
            Node::Map(entries) => {
                let entries =
                    entries.into_iter().map(|(key, value)| Ok((key, Self::new(path, text, value)?)));
                Ok(Self::Map(entries.collect::<Result<_>>()?))
            }
        }
    }
}

/// An entry of a file, with its path of keys for errors.
#[derive(Debug, Clone)]
pub struct YamlEntry<'a> {
    path: &'a Path,
    key: String,
    value: &'a Yaml,
}

impl<'a> YamlEntry<'a> {
    /// Creates the entry of the whole document.
    pub fn root(path: &'a Path, value: &'a Yaml) -> Self {
        Self { path, key: String::new(), value }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the entry's path of keys, such as `tasks[0].train_set`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value of a key in this mapping; `None` if it is missing or `null`.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a mapping.
    pub fn get(&self, key: &str) -> Result<Option<Self>> {
        let entries = match self.value {
            Yaml::Map(entries) => entries,
            _ => return Err(self.bad("a mapping")),
        };
        let value = entries.get(key);
        Ok(value.filter(|value| **value != Yaml::Null).map(|value| self.child(key, value)))
    }

    /// Returns the value of a required key in this mapping. `expected` describes the value, for the error.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a mapping or the key is missing.
    pub fn require(&self, key: &str, expected: &str) -> Result<Self> {
        self.get(key)?.ok_or_else(|| self.child(key, &Yaml::Null).bad(expected))
    }

    /// Returns the items of this list.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a list.
    pub fn list(&self) -> Result<Vec<Self>> {
        let Yaml::List(items) = self.value else {
            return Err(self.bad("a list"));
        };
        let child =
            |(position, value)| Self { path: self.path, key: format!("{}[{position}]", self.key), value };
        Ok(items.iter().enumerate().map(child).collect())
    }

    /// Returns the items of the list under a key; empty if the key is missing.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a mapping or the value is not a list.
    pub fn list_of(&self, key: &str) -> Result<Vec<Self>> {
        self.get(key)?.map_or(Ok(Vec::new()), |list| list.list())
    }

    /// Returns the text of this scalar.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not a scalar.
    pub fn text(&self) -> Result<&'a str> {
        match self.value {
            Yaml::Scalar(text) => Ok(text),
            _ => Err(self.bad("text")),
        }
    }

    /// Returns this scalar as a non-negative integer.
    ///
    /// # Errors
    /// Returns [`Error::Metadata`] if this entry is not such a number.
    pub fn count(&self) -> Result<u64> {
        let number = match self.value {
            // YAML 1.1 allows underscores between digits.
            Yaml::Scalar(text) => text.replace('_', "").parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.bad("a non-negative integer"))
    }

    /// Creates an error for an invalid entry. `expected` describes the allowed values.
    pub fn bad(&self, expected: impl Into<String>) -> Error {
        const LONGEST: usize = 60;
        let found = match self.value {
            Yaml::Null => "missing".to_owned(),
            Yaml::Scalar(text) => format!("{:?}", text.chars().take(LONGEST).collect::<String>()),
            Yaml::List(items) => format!("a list of {}", items.len()),
            Yaml::Map(_) => "a mapping".to_owned(),
        };
        let key = if self.key.is_empty() { "the document".to_owned() } else { self.key.clone() };
        Error::Metadata { path: self.path.to_owned(), key, expected: expected.into(), found }
    }

    fn child(&self, key: &str, value: &'a Yaml) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { path: self.path, key: format!("{}{dot}{key}", self.key), value }
    }
}

/// A value, without the text of a number or a boolean, which the parser converts: the position in the file has it.
#[derive(Debug)]
enum Node {
    Null,
    Text(String),
    NumberOrBool,
    List(Vec<Spanned<Node>>),
    Map(BTreeMap<String, Spanned<Node>>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

#[derive(Debug)]
struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plain metadata")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::NumberOrBool)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::NumberOrBool)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::NumberOrBool)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::NumberOrBool)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key == "<<" {
                return Err(de::Error::custom("a merge key (<<)"));
            }
            let value = entries.next_value()?;
            if map.insert(key, value).is_some() {
                // Keys of different types with the same text, such as `1` and `"1"`.
                return Err(de::Error::custom(DUPLICATE_KEY));
            }
        }
        Ok(Node::Map(map))
    }
}

/// Returns the parser's options: the limits, and merge keys and duplicate keys as errors.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_recorded_anchor_events: MAX_NODES,
            max_total_scalar_bytes: MAX_SCALAR_BYTES,
            max_recorded_anchor_bytes: MAX_SCALAR_BYTES,
            enforce_alias_anchor_ratio: false,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        ignore_binary_tag_for_string: true,
        with_snippet: false,
    }
}

/// Returns the text of a value as it is in the file.
fn text_at(text: &str, location: Location) -> Option<&str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let n_bytes = usize::try_from(span.byte_len()?).ok()?;
    text.get(start..start + n_bytes)
}

/// Converts an error of the parser.
fn bad_line(path: &Path, error: &serde_saphyr::Error) -> Error {
    use serde_saphyr::Error as Yaml;
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let cause = match error {
        Yaml::AliasError { error, .. } => error,
        _ => error,
    };
    let found = match cause {
        // The messages of `NodeVisitor`.
        Yaml::Message { msg, .. } => msg,
        Yaml::DuplicateMappingKey { .. } => DUPLICATE_KEY,
        Yaml::MultipleDocuments { .. } => "a second document",
        Yaml::RecursiveReferencesRequireWeakTypes { .. } => "a recursive alias",
        Yaml::NullIntoString { .. } | Yaml::Unexpected { .. } => "a key that is not a string",
        Yaml::Budget { breach: BudgetBreach::Depth { .. }, .. } => "nesting that is too deep",
        Yaml::Budget { .. } | Yaml::AliasReplayLimitExceeded { .. } => "too many values or too much text",
        _ => {
            let text = cause.to_string();
            // The location, which the error contains besides.
            let found = text.split(" at line ").next().unwrap_or_default().to_owned();
            return Error::BadLine {
                path: path.to_owned(),
                line: location.line(),
                expected: "valid YAML".into(),
                found,
            };
        }
    };
    plain_metadata(path, location, found)
}

/// Creates an error for a feature of YAML that metadata may not use.
fn plain_metadata(path: &Path, location: Location, found: &str) -> Error {
    Error::BadLine {
        path: path.to_owned(),
        line: location.line(),
        expected: "plain metadata".into(),
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_and_oversized_yaml_with_the_line() {
        let bomb: String =
            (1..30).map(|level| format!("- &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1)).collect();
        let wide = format!("- &a \"{}\"\n{}", "x".repeat(1000), "- *a\n".repeat(6000));
        let chain: String = (1..40).map(|level| format!("- &a{level} [*a{}]\n", level - 1)).collect();
        let many = format!("[{}]", "1,".repeat(MAX_NODES));
        for (text, expected) in [
            (
                "a: [1, 2\nb: 3\n",
                "metadata.yaml, line 2: \"illegal placement of ':' indicator\", expected valid YAML",
            ),
            ("a:\n- 'b\n", "metadata.yaml, line 2: \"unclosed quote\""),
            ("a:\n  b: !!int c\n", "metadata.yaml, line 2: \"invalid u64\""),
            ("b: 0\na: 1\nc: {}\na: 2\nd: 1\n", "line 4: \"a duplicate key\", expected plain metadata"),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", "line 3: \"a merge key (<<)\""),
            ("1: a\n\"1\": b\n", "\"a duplicate key\", expected plain metadata"),
            ("null: 1\n", "line 1: \"a key that is not a string\", expected plain metadata"),
            ("? [a]\n: 1\n", "a key that is not a string"),
            ("a: 1\n---\nb: 2\n", "line 3: \"a second document\""),
            ("a: *nothing\n", "metadata.yaml, line 1: "),
            ("a: &a [*a]\n", "line 1: \"a recursive alias\""),
            (&format!("- &a0 x\n{bomb}"), "\"too many values or too much text\""),
            (&wide, "\"too many values or too much text\""),
            (&format!("- &a0 x\n{chain}"), "\"nesting that is too deep\""),
            (&"[".repeat(1 << 20), "line 1: \"recursion limit exceeded\""),
            (&"- ".repeat(1 << 19), "line 1: \"nesting that is too deep\""),
            (&"{a: ".repeat(1 << 18), "line 1: \"recursion limit exceeded\""),
            (&many, "line 1: \"too many values or too much text\""),
        ] {
            let said = Yaml::parse("metadata.yaml".as_ref(), text).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}\n    expected {expected}");
        }
    }

    #[test]
    fn reads_lists_mappings_nulls_and_aliases() {
        let text = "a: [1, ~, 'null', &x {b: c}]\nd: *x\ne:\n";
        let scalar = |text: &str| Yaml::Scalar(text.into());
        let map = Yaml::Map([("b".into(), scalar("c"))].into());
        let list = Yaml::List(vec![scalar("1"), Yaml::Null, scalar("null"), map.clone()]);
        let entries = [("a".into(), list), ("d".into(), map), ("e".into(), Yaml::Null)];
        assert_eq!(Yaml::parse("file".as_ref(), text).unwrap(), Yaml::Map(entries.into()));
    }
    #[test]
    fn numbers_and_booleans_keep_their_text() {
        let plain =
            ["1_0", "1.50", "007", "0x1", "-3", "+3", "1e3", ".inf", ".NaN", "on", "True", "2020-01-01"];
        let huge = "99999999999999999999999999999999999999999999";
        for scalar in plain.into_iter().chain([huge]) {
            let texts = [
                format!("\u{feff}ä: {scalar}"),
                format!("ä: &a {scalar}   # comment\n"),
                format!("ö: {{x: \"é\"}}\nä: !t\n    {scalar}\n"),
                format!("x: [&a {scalar}, ü]\nä: *a"),
            ];
            for text in texts {
                let Yaml::Map(map) = Yaml::parse("file".as_ref(), &text).unwrap() else {
                    panic!("{text} is not a mapping");
                };
                assert_eq!(map["ä"], Yaml::Scalar(scalar.to_owned()), "{text}");
            }
        }
    }

    #[test]
    fn keys_are_text() {
        let text = "1: a\n0x7: b\ntrue: c\n~x: d\n";
        let Yaml::Map(map) = Yaml::parse("file".as_ref(), text).unwrap() else {
            panic!("not a mapping");
        };
        assert_eq!(map.keys().collect::<Vec<_>>(), ["0x7", "1", "true", "~x"]);
    }
}
