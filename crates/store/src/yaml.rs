//! YAML files as trees of text, with errors that name the line or the entry. Written for metadata of some
//! kilobytes from anywhere: what a file may grow to is limited.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use granit_parser::{Event, Parser, ScalarStyle};
use kiln_graph::open_file;

use crate::{Error, Result};

/// Longer files are no metadata.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What the tree may cost with its aliases written out: a node costs 1, and a byte of text 1.
const MAX_COST: usize = 4 << 20;

/// Lists and mappings may lie this deep in each other.
const MAX_DEPTH: usize = 32;

/// Mappings have at most so many keys, since each new one is compared with all.
const MAX_KEYS: usize = 1000;

/// A file, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Yaml {
    /// Nothing, `null` or `~`.
    Null,
    /// Text, a number or a truth value, as it is written.
    Scalar(String),
    /// A list.
    List(Vec<Yaml>),
    /// A mapping, in the order of the file; no key stands twice.
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    /// Reads a file of one document.
    ///
    /// # Errors
    /// [`Error::BadLine`] for what is no YAML, [`Error::Io`] and [`Error::Metadata`] for files that cannot be
    /// read or are too long.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = String::new();
        let file = open_file(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
        let n_bytes = file.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        if n_bytes as u64 > MAX_FILE_BYTES {
            return Err(Error::Metadata {
                path: path.to_owned(),
                key: "its length".into(),
                expected: format!("at most {MAX_FILE_BYTES} bytes"),
                found: "more".into(),
            });
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let bad = |line: usize, expected: &str, found: String| Error::BadLine {
            path: path.to_owned(),
            line: line as u64,
            expected: expected.into(),
            found,
        };
        let mut builder = Builder::default();
        for event in Parser::new_from_str(text) {
            let (event, span) =
                event.map_err(|error| bad(error.marker().line(), "valid YAML", error.info()))?;
            builder.take(event).map_err(|found| bad(span.start.line(), "plain metadata", found.into()))?;
        }
        Ok(builder.root.unwrap_or(Self::Null))
    }

    fn cost(&self) -> usize {
        match self {
            Self::Null => 1,
            Self::Scalar(text) => 1 + text.len(),
            Self::List(items) => 1 + items.iter().map(Self::cost).sum::<usize>(),
            Self::Map(entries) => {
                1 + entries.iter().map(|(key, value)| key.len() + value.cost()).sum::<usize>()
            }
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Null | Self::Scalar(_) => 0,
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }
}

/// An entry of a file, with the keys that lead to it.
#[derive(Debug, Clone)]
pub struct YamlEntry<'a> {
    path: &'a Path,
    key: String,
    value: &'a Yaml,
}

impl<'a> YamlEntry<'a> {
    /// The whole file.
    pub fn root(path: &'a Path, value: &'a Yaml) -> Self {
        Self { path, key: String::new(), value }
    }

    /// The file.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// The keys that lead here: `tasks[0].train_set`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the entry of a key in a mapping; `None` for nothing or `null`.
    ///
    /// # Errors
    /// [`Error::Metadata`] for another kind of entry.
    pub fn get(&self, key: &str) -> Result<Option<Self>> {
        let entries = match self.value {
            Yaml::Map(entries) => entries,
            _ => return Err(self.bad("a mapping")),
        };
        let value = entries.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        Ok(value.filter(|value| **value != Yaml::Null).map(|value| self.child(key, value)))
    }

    /// Returns the entry of a key that must be there; `expected` is what it should be, for the message.
    ///
    /// # Errors
    /// [`Error::Metadata`] for another kind of entry.
    pub fn require(&self, key: &str, expected: &str) -> Result<Self> {
        self.get(key)?.ok_or_else(|| self.child(key, &Yaml::Null).bad(expected))
    }

    /// The entries of a list.
    ///
    /// # Errors
    /// [`Error::Metadata`] for another kind of entry.
    pub fn list(&self) -> Result<Vec<Self>> {
        let Yaml::List(items) = self.value else {
            return Err(self.bad("a list"));
        };
        let child =
            |(position, value)| Self { path: self.path, key: format!("{}[{position}]", self.key), value };
        Ok(items.iter().enumerate().map(child).collect())
    }

    /// The entries of the list under a key; none where there is no such key.
    ///
    /// # Errors
    /// [`Error::Metadata`] for another kind of entry.
    pub fn list_of(&self, key: &str) -> Result<Vec<Self>> {
        self.get(key)?.map_or(Ok(Vec::new()), |list| list.list())
    }

    /// The text.
    ///
    /// # Errors
    /// [`Error::Metadata`] for another kind of entry.
    pub fn text(&self) -> Result<&'a str> {
        match self.value {
            Yaml::Scalar(text) => Ok(text),
            _ => Err(self.bad("text")),
        }
    }

    /// The number, which is not negative.
    ///
    /// # Errors
    /// [`Error::Metadata`] for another kind of entry.
    pub fn count(&self) -> Result<u64> {
        let number = match self.value {
            // YAML 1.1 lets digits be grouped.
            Yaml::Scalar(text) => text.replace('_', "").parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.bad("a number of 0 or more"))
    }

    /// An error for an entry that cannot be used.
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

/// The tree so far.
#[derive(Debug, Default)]
struct Builder {
    root: Option<Yaml>,
    /// Lists and mappings that are not closed, outermost first.
    open: Vec<Open>,
    /// What aliases stand for, by the parser's number of the anchor.
    anchors: HashMap<usize, Yaml>,
    cost: usize,
}

#[derive(Debug)]
struct Open {
    value: Yaml,
    /// The key of a mapping that has no value yet.
    key: Option<String>,
    anchor: usize,
}

impl Builder {
    /// Adds what an event stands for; the error says what is wrong.
    fn take(&mut self, event: Event<'_>) -> std::result::Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let is_null = is_null && style == ScalarStyle::Plain;
                self.add(if is_null { Yaml::Null } else { Yaml::Scalar(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(Yaml::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => self.open(Yaml::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { value, anchor, .. }) => self.add(value, anchor),
                None => Err("an end without a start"),
            },
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err("an alias of what it stands in");
                };
                if self.open.len() + value.depth() > MAX_DEPTH {
                    return Err("lists in lists, too deep");
                }
                self.cost += value.cost();
                if self.cost > MAX_COST {
                    return Err("aliases of aliases, too many");
                }
                self.add(value.clone(), 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => Err("a second document"),
            _ => Ok(()),
        }
    }

    fn open(&mut self, value: Yaml, anchor: usize) -> std::result::Result<(), &'static str> {
        if self.open.len() == MAX_DEPTH {
            return Err("lists in lists, too deep");
        }
        self.open.push(Open { value, key: None, anchor });
        Ok(())
    }

    /// Puts a finished value where it belongs.
    fn add(&mut self, value: Yaml, anchor: usize) -> std::result::Result<(), &'static str> {
        if anchor != 0 {
            self.cost += value.cost();
            if self.cost > MAX_COST {
                return Err("anchors in anchors, too many");
            }
            self.anchors.insert(anchor, value.clone());
        }
        let Some(Open { value: parent, key, .. }) = self.open.last_mut() else {
            self.root = Some(value);
            return Ok(());
        };
        match (parent, key.take(), value) {
            (Yaml::List(items), _, value) => items.push(value),
            (Yaml::Map(entries), Some(name), value) => entries.push((name, value)),
            (Yaml::Map(entries), None, Yaml::Scalar(name)) => match &*name {
                "<<" => return Err("a merge of mappings (<<)"),
                _ if entries.len() == MAX_KEYS => return Err("a mapping of more than 1000 keys"),
                _ if entries.iter().any(|(known, _)| *known == name) => {
                    return Err("a key that stands twice");
                }
                _ => *key = Some(name),
            },
            _ => return Err("a key that is no text"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_plain_yaml_is_refused_with_its_line() {
        let bomb: String =
            (1..30).map(|level| format!("- &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1)).collect();
        let wide = format!("- &a \"{}\"\n{}", "x".repeat(1000), "- *a\n".repeat(5000));
        let chain: String = (1..40).map(|level| format!("- &a{level} [*a{}]\n", level - 1)).collect();
        let keys: String = (0..1001).map(|key| format!("k{key}: 1\n")).collect();
        for (text, expected) in [
            ("a: [1, 2\nb: 3\n", "metadata.yaml, line "),
            ("a: 1\na: 2\n", "line 2: \"a key that stands twice\", expected plain metadata"),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", "line 3: \"a merge of mappings (<<)\""),
            ("? [a]\n: 1\n", "a key that is no text"),
            ("a: 1\n---\nb: 2\n", "line 2: \"a second document\""),
            ("a: *nothing\n", "metadata.yaml, line 1: "),
            ("a: &a [*a]\n", "line 1: \"an alias of what it stands in\""),
            (&format!("- &a0 x\n{bomb}"), "too many"),
            (&wide, "\"aliases of aliases, too many\""),
            (&format!("- &a0 x\n{chain}"), "\"lists in lists, too deep\""),
            (&"[".repeat(1 << 20), "metadata.yaml, line 1: "),
            (&"- ".repeat(1 << 19), "line 1: \"lists in lists, too deep\""),
            (&"{a: ".repeat(1 << 18), "metadata.yaml, line 1: "),
            (&keys, "line 1001: \"a mapping of more than 1000 keys\""),
        ] {
            let said = Yaml::parse("metadata.yaml".as_ref(), text).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}\n    expected {expected}");
        }
    }

    #[test]
    fn trees_are_read_as_they_are_written() {
        let text = "a: [1, ~, 'null', &x {b: c}]\nd: *x\ne:\n";
        let scalar = |text: &str| Yaml::Scalar(text.into());
        let map = Yaml::Map(vec![("b".into(), scalar("c"))]);
        let list = Yaml::List(vec![scalar("1"), Yaml::Null, scalar("null"), map.clone()]);
        let entries = vec![("a".into(), list), ("d".into(), map), ("e".into(), Yaml::Null)];
        assert_eq!(Yaml::parse("file".as_ref(), text).unwrap(), Yaml::Map(entries));
    }
}
