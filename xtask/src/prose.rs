//! Checks of the prose: item docs that begin with a fragment, banned phrases, and Rust snippets in Markdown files that
//! no doctest compiles.

use std::collections::BTreeMap;

use crate::workspace::SourceFile;

/// The maximum share of a crate's docs that may begin with a fragment. It is not 0, because the check also counts some
/// full sentences, such as "Once the epoch ends, …".
const MAX_FRAGMENTS: f64 = 0.03;

/// The words that mark a doc as a fragment if it begins with one of them. Such a doc lacks a subject or a verb, and the
/// reader must take it from the item's name.
const FRAGMENT_STARTS: &[&str] = &[
    "Also",
    "And",
    "As",
    "Because",
    "But",
    "Else",
    "How",
    "Like",
    "More",
    "Nobody",
    "Not",
    "Nothing",
    "Of",
    "Once",
    "Only",
    "Or",
    "Otherwise",
    "So",
    "Than",
    "That",
    "Twice",
    "What",
    "Where",
    "Whether",
    "Which",
    "Who",
    "Whose",
    "Why",
];

/// The words that mark a doc as a fragment if it begins with one of them and its first sentence has no comma. A comma
/// indicates that a main clause follows: "If true, …".
const PHRASE_STARTS: &[&str] = &[
    "After", "Among", "At", "Before", "Behind", "Beside", "Between", "By", "For", "From", "If", "In", "Into",
    "On", "Out", "Over", "Per", "Through", "To", "Under", "Until", "When", "While", "With", "Within",
    "Without",
];

/// The phrases that no text may contain, each with its replacement. Only this file is excluded from the check.
const BANNED: &[(&str, &str)] = &[
    ("the same bits", "bit-identical"),
    ("nobody", "the subject of the sentence: no client, no rank"),
    ("lies here", "local"),
    ("lies elsewhere", "remote"),
    ("kiln's own form", "the kiln format"),
    ("kiln's form", "the kiln format"),
    ("made anew", "rebuilt"),
    ("no news", "a plain statement"),
    ("is under way", "in-flight, running"),
    ("are under way", "in-flight, running"),
    ("is there twice", "a duplicate"),
    ("asks of others", "remote requests"),
    ("rows of others", "remote rows"),
    ("parted", "partitioned"),
    ("gives up", "stops retrying, fails"),
    ("come back for", "retry"),
    ("in the place of", "instead of"),
    ("what follows on what", "the failure behaviour"),
    ("signs of life", "heartbeats"),
];

/// Returns a message for each crate in which the share of docs that begin with a fragment exceeds [`MAX_FRAGMENTS`]. A
/// message contains the positions of the first ten fragments.
pub(crate) fn fragments(files: &[SourceFile]) -> Vec<String> {
    let mut crates: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_generated()) {
        let (n_docs, fragments) = crates.entry(crate_folder(&file.path)).or_default();
        for (line, doc) in docs(&file.text) {
            *n_docs += 1;
            if is_fragment(&first_sentence(&doc)) {
                fragments.push(format!("{}:{line}", file.path));
            }
        }
    }
    let is_above = |n_docs: usize, found: usize| MAX_FRAGMENTS * (n_docs as f64) < found as f64;
    let above = crates.into_iter().filter(|(_, (n_docs, found))| is_above(*n_docs, found.len()));
    above.map(|(folder, (n_docs, found))| too_many(folder, n_docs, &found)).collect()
}

fn too_many(folder: &str, n_docs: usize, found: &[String]) -> String {
    let percent = 100.0 * found.len() as f64 / n_docs as f64;
    let first = found.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(
        "{folder}: {percent:.1} % of {n_docs} docs begin with a fragment, at most {:.0} % allowed: begin with a noun phrase \
         or a verb (\"The number of …\", \"Returns …\"): {first}",
        100.0 * MAX_FRAGMENTS
    )
}

/// Returns the folder of a file's crate: `crates/graph` for `crates/graph/src/lib.rs`, `xtask` for `xtask/src/main.rs`.
fn crate_folder(path: &str) -> &str {
    let n_parts = if path.starts_with("crates/") { 2 } else { 1 };
    path.match_indices('/').nth(n_parts - 1).map_or(path, |(at, _)| &path[..at])
}

/// Returns the doc comments of a file, each with the number of its first line.
fn docs(text: &str) -> Vec<(usize, String)> {
    let mut docs: Vec<(usize, String)> = Vec::new();
    let mut kind_before = None;
    for (line_idx, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let kind = ["///", "//!"].into_iter().find(|kind| line.starts_with(kind));
        if let Some(kind) = kind {
            if kind_before != Some(kind) {
                docs.push((line_idx + 1, String::new()));
            }
            let (_, doc) = docs.last_mut().expect("the list should contain the current doc comment");
            doc.push_str(line[kind.len()..].trim());
            doc.push('\n');
        }
        kind_before = kind;
    }
    docs
}

/// Returns the first sentence of a doc comment on one line. A colon also ends a sentence.
fn first_sentence(doc: &str) -> String {
    let paragraph = doc.trim_start().split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let end = [". ", ": "].iter().filter_map(|end| paragraph.find(end)).min().unwrap_or(paragraph.len());
    paragraph[..end].to_owned()
}

fn is_fragment(sentence: &str) -> bool {
    let word = sentence.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    FRAGMENT_STARTS.contains(&word) || PHRASE_STARTS.contains(&word) && !sentence.contains(',')
}

/// Returns a message for each banned phrase in Rust, Markdown, shell and TOML files, including phrases with a line
/// break.
pub(crate) fn banned_phrases(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_prose = |path: &str| [".rs", ".md", ".sh", ".toml"].iter().any(|end| path.ends_with(end));
    for SourceFile { path, text } in files.iter().filter(|file| is_prose(&file.path)) {
        // This file contains the list of banned phrases.
        if path == "xtask/src/prose.rs" {
            continue;
        }
        let mut before = String::new();
        for (line_idx, line) in text.lines().enumerate() {
            let line = without_comment_start(line).to_lowercase();
            let both = format!("{before} {line}");
            for (phrase, better) in BANNED {
                let spans_both = || !contains_words(&before, phrase) && contains_words(&both, phrase);
                if contains_words(&line, phrase) || spans_both() {
                    problems.push(format!("{path}:{}: \"{phrase}\": write {better}", line_idx + 1));
                }
            }
            before = line;
        }
    }
    problems
}

fn without_comment_start(line: &str) -> &str {
    let line = line.trim();
    ["///", "//!", "//"].iter().find_map(|start| line.strip_prefix(start)).unwrap_or(line).trim()
}

/// Returns true if a text contains a phrase that is not part of longer words.
fn contains_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        !text[..at].ends_with(is_word) && !text[at + phrase.len()..].starts_with(is_word)
    })
}

/// Returns a message for each Rust snippet of a Markdown file that no doctest compiles, because no crate's docs include
/// the file or because the snippet is marked `ignore`.
pub(crate) fn untested_snippets(files: &[SourceFile]) -> Vec<String> {
    let rust = || files.iter().filter(|file| file.is_rust());
    let mut problems = Vec::new();
    for SourceFile { path, text } in files.iter().filter(|file| file.path.ends_with(".md")) {
        let fences =
            text.lines().enumerate().filter_map(|(idx, line)| Some((idx, line.strip_prefix("```rust")?)));
        for (line_idx, attributes) in fences {
            if attributes.contains("ignore") {
                problems.push(format!(
                    "{path}:{}: no doctest compiles a snippet that is marked `ignore`",
                    line_idx + 1
                ));
            } else if !rust().any(|file| includes(file, path)) {
                problems.push(format!(
                    "{path}:{}: no doctest compiles this snippet, because no crate's docs include the file",
                    line_idx + 1
                ));
            }
        }
    }
    problems
}

/// Returns true if the docs of a Rust file include the Markdown file at `path`.
fn includes(file: &SourceFile, path: &str) -> bool {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let includes = file.text.split("#[doc = include_str!(\"").skip(1);
    includes.filter_map(|rest| rest.split('"').next()).any(|target| joined(folder, target) == path)
}

/// Resolves a relative path: the folder `docs` and the target `../README.md` give `README.md`.
pub(crate) fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn fragments_above_the_limit_are_listed_by_crate() {
        let good = "/// The number of ranks.\npub n: u32,\n\n".repeat(40);
        let one = format!("{good}/// Of no node.\npub a: u32,\n");
        let two = format!("{one}    /// With room\n    /// for more. Ranks.\n    pub b: u32,\n");
        assert_eq!(fragments(&[file("crates/a/src/lib.rs", &one)]), [""; 0]);
        let found = fragments(&[file("crates/a/src/lib.rs", &two), file("crates/b/src/lib.rs", &good)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a: 4.8 % of 42 docs begin with a fragment"), "{found:?}");
        assert!(found[0].ends_with(": crates/a/src/lib.rs:121, crates/a/src/lib.rs:123"), "{found:?}");
    }

    #[test]
    fn distinguishes_fragments_from_sentences() {
        for fragment in ["Whether it is full", "As [`X`]", "With room for more", "What it reads, and where"] {
            assert!(is_fragment(fragment), "{fragment}");
        }
        for sentence in [
            "If true, batches are dropped",
            "The number of ranks",
            "Returns what was read",
            "`None` if empty",
        ] {
            assert!(!is_fragment(sentence), "{sentence}");
        }
    }

    #[test]
    fn separates_item_docs_from_file_docs() {
        let text =
            "//! A file.\n/// An item: more.\n/// Second line.\n\nfn f() {} // not a doc\n    /// A field.\n";
        let firsts: Vec<_> = docs(text).iter().map(|(line, doc)| (*line, first_sentence(doc))).collect();
        assert_eq!(firsts, [(1, "A file".into()), (2, "An item".into()), (6, "A field".into())]);
    }

    #[test]
    fn a_banned_phrase_is_found_across_a_line_break() {
        let found = banned_phrases(&[
            file("a.rs", "// It is the\n// same bits.\nfn same() {}\n"),
            file("b.svg", "nobody"),
        ]);
        assert_eq!(found, ["a.rs:2: \"the same bits\": write bit-identical"]);
        assert_eq!(banned_phrases(&[file("a.md", "the same bitstream, departed")]), [""; 0]);
        assert_eq!(banned_phrases(&[file("a.md", "Nobody\nsees it")]).len(), 1);
        // Consecutive lines with the same phrase are two problems.
        assert_eq!(banned_phrases(&[file("a.md", "nobody sees it\nnobody sees it")]).len(), 2);
    }

    #[test]
    fn finds_markdown_snippets_without_a_doctest() {
        let page = file("docs/book/src/a.md", "text\n```rust\nfn f() {}\n```\n```console\n$ ls\n```\n");
        let lib = file(
            "crates/a/src/lib.rs",
            "#[doc = include_str!(\"../../../docs/book/src/a.md\")]\nstruct Book;\n",
        );
        assert_eq!(untested_snippets(&[page.clone(), lib]), [""; 0]);
        assert_eq!(
            untested_snippets(&[page]),
            [
                "docs/book/src/a.md:2: no doctest compiles this snippet, because no crate's docs include the file"
            ]
        );
        let ignored = file("README.md", "```rust,ignore\n```\n");
        assert_eq!(
            untested_snippets(&[ignored]),
            ["README.md:1: no doctest compiles a snippet that is marked `ignore`"]
        );
    }
}
