//! Checks of the pages as text, which need no mdBook.

use std::collections::{BTreeMap, BTreeSet};

use crate::prose::joined;
use crate::workspace::SourceFile;

/// The folder of the pages.
pub(super) const SOURCE: &str = "docs/book/src/";
/// The maximum number of words of a page, its code included.
pub(super) const MAX_WORDS: usize = 1_500;

/// The maximum number of words of a paragraph or an item of a list.
const MAX_PARAGRAPH_WORDS: usize = 80;
/// The page that a reader opens first.
const FIRST: &str = "README.md";
const SUMMARY: &str = "SUMMARY.md";

/// Returns a message for each page that `SUMMARY.md` does not list exactly once, that is too long, has a long paragraph, or is more
/// than two links away from the first page, and for each image without a page.
pub(crate) fn problems(files: &[SourceFile]) -> Vec<String> {
    let mut pages = BTreeMap::new();
    let mut summary = "";
    let mut images = Vec::new();
    for SourceFile { path, text } in files {
        match path.strip_prefix(SOURCE) {
            Some(SUMMARY) => summary = text,
            Some(page) if page.ends_with(".md") => drop(pages.insert(page, text.as_str())),
            Some(image) if image.ends_with(".svg") => images.push(image),
            _ => {}
        }
    }
    let mut problems = listing(summary, &pages);
    problems.extend(pages.iter().flat_map(|(page, text)| lengths(page, text)));
    let near = near(&pages);
    let far = pages.keys().filter(|page| !near.contains(**page));
    problems.extend(far.map(|page| format!("{SOURCE}{page} is more than two links away from {FIRST}")));
    let linked: BTreeSet<String> =
        pages.iter().flat_map(|(page, text)| targets(page, text, ".svg")).collect();
    let unused = images.into_iter().filter(|image| !linked.contains(*image));
    problems.extend(unused.map(|image| format!("{SOURCE}{image}: no page shows the image")));
    problems
}

/// Returns a message for each page that the summary does not list exactly once, and for each entry without a page.
fn listing(summary: &str, pages: &BTreeMap<&str, &str>) -> Vec<String> {
    let listed = page_links(summary);
    let mut problems = Vec::new();
    for page in pages.keys() {
        let n = listed.iter().filter(|listed| *listed == page).count();
        if n != 1 {
            problems.push(format!("{SOURCE}{SUMMARY} lists {page} {n} times, expected once"));
        }
    }
    let missing = listed.iter().filter(|page| !pages.contains_key(**page));
    problems.extend(missing.map(|page| format!("{SOURCE}{SUMMARY} lists {page}, which does not exist")));
    problems
}

fn lengths(page: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let n_words = text.split_whitespace().count();
    if MAX_WORDS < n_words {
        problems.push(format!("{SOURCE}{page} has {n_words} words, at most {MAX_WORDS} allowed: split it"));
    }
    for (line, n_words) in long_paragraphs(text) {
        problems.push(format!(
            "{SOURCE}{page}:{line}: a paragraph of {n_words} words, at most {MAX_PARAGRAPH_WORDS} allowed: make steps of it"
        ));
    }
    problems
}

/// Returns the line and the number of words of each paragraph and item of a list that is too long. Code and tables do not count.
fn long_paragraphs(text: &str) -> Vec<(usize, usize)> {
    let mut long = Vec::new();
    let mut is_code = false;
    for (line_idx, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let n_words = line.split_whitespace().count();
        if !is_code && !line.starts_with('|') && MAX_PARAGRAPH_WORDS < n_words {
            long.push((line_idx + 1, n_words));
        }
    }
    long
}

/// Returns the pages that are at most two links away from the first one.
fn near<'a>(pages: &BTreeMap<&'a str, &'a str>) -> BTreeSet<String> {
    let mut near = BTreeSet::from([FIRST.to_owned()]);
    for _ in 0..2 {
        let known = near.clone();
        let known = known.iter().filter_map(|page| Some((page, pages.get(page.as_str())?)));
        near.extend(known.flat_map(|(page, text)| targets(page, text, ".md")));
    }
    near
}

/// Returns the files of the book with an extension to which a page links.
fn targets(page: &str, text: &str, extension: &str) -> Vec<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let targets = link_targets(text).into_iter().filter_map(|target| target.split('#').next());
    targets.filter(|target| target.ends_with(extension)).map(|target| joined(folder, target)).collect()
}

/// Returns the links of a text to Markdown files.
pub(super) fn page_links(text: &str) -> Vec<&str> {
    let mut targets = link_targets(text);
    targets.retain(|target| target.split('#').next().is_some_and(|path| path.ends_with(".md")));
    targets
}

/// Returns the targets of the links of a text outside of blocks of code.
fn link_targets(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code {
            targets.extend(line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: format!("{SOURCE}{path}"), text: text.into() }
    }

    fn book(changes: &[(&str, &str)]) -> Vec<String> {
        let mut files = BTreeMap::from([
            ("SUMMARY.md", "[First](README.md)\n* [A](a/b.md)\n* [C](a/c.md)\n".to_owned()),
            ("README.md", "[b](a/b.md#top)\n".to_owned()),
            ("a/b.md", "# B\n[c](c.md) ![](../images/d.svg)\n".to_owned()),
            ("a/c.md", "# C\n".to_owned()),
            ("images/d.svg", "<svg/>".to_owned()),
        ]);
        files.extend(changes.iter().map(|(path, text)| (*path, (*text).to_owned())));
        problems(&files.iter().map(|(path, text)| file(path, text)).collect::<Vec<_>>())
    }

    #[test]
    fn a_listed_linked_short_book_has_no_problems() {
        assert_eq!(book(&[]), [""; 0]);
    }

    #[test]
    fn finds_pages_that_the_summary_does_not_list_once() {
        let found = book(&[("SUMMARY.md", "[F](README.md)\n[A](a/b.md)\n[A](a/b.md)\n[D](a/d.md)\n")]);
        let expected = [
            "lists a/b.md 2 times, expected once",
            "lists a/c.md 0 times, expected once",
            "lists a/d.md, which does not exist",
        ];
        let expected = expected.map(|problem| format!("{SOURCE}{SUMMARY} {problem}"));
        assert_eq!(found, expected);
    }

    #[test]
    fn finds_long_pages_and_paragraphs() {
        let page = format!(
            "# B\n[c](c.md) ![](../images/d.svg)\n{}",
            "ten words on each line of this page, ten words\n".repeat(150)
        );
        assert!(book(&[("a/b.md", &page)])[0].contains("a/b.md has 1504 words, at most 1500 allowed"));
        let fits = page.replacen("ten words on", "on", 2);
        assert_eq!(book(&[("a/b.md", &fits)]), [""; 0]);
        let paragraph = format!("# C\n{}\n", "word ".repeat(81));
        assert!(book(&[("a/c.md", &paragraph)])[0].contains("a/c.md:2: a paragraph of 81 words"));
        let code = format!("```text\n{}\n```\n| {} |\n", "word ".repeat(81), "word ".repeat(81));
        assert_eq!(book(&[("a/c.md", &code)]), [""; 0]);
    }

    #[test]
    fn finds_pages_that_are_far_from_the_first_one() {
        let summary = "[F](README.md)\n[A](a/b.md)\n[C](a/c.md)\n[D](a/d.md)\n";
        let change = [("SUMMARY.md", summary), ("a/c.md", "[d](d.md)\n"), ("a/d.md", "# D\n")];
        assert_eq!(book(&change), [format!("{SOURCE}a/d.md is more than two links away from README.md")]);
        // A link in a block of code is none.
        let code = [("a/b.md", "![](../images/d.svg)\n```text\n[c](c.md)\n```\n")];
        assert_eq!(book(&code), [format!("{SOURCE}a/c.md is more than two links away from README.md")]);
    }

    #[test]
    fn tasks_of_readers_are_on_the_first_page() {
        let first = include_str!("../../../docs/book/src/README.md");
        let tasks = [
            ("train on three CSV files and join the predictions", "how-to/join-predictions.md"),
            ("continue a run, also on another machine after its time limit", "how-to/continue-run.md"),
            ("use four GPUs of one machine", "how-to/four-gpus.md"),
            ("stop when a metric no longer improves, also one of my own", "how-to/stop-early.md"),
            ("serve a model over HTTP", "how-to/serve.md"),
        ];
        for (task, page) in tasks {
            let row = first.lines().find(|line| line.contains(task)).unwrap();
            assert!(link_targets(row).contains(&page), "{row}");
        }
    }

    #[test]
    fn finds_images_that_no_page_shows() {
        assert_eq!(
            book(&[("images/e.svg", "<svg/>")]),
            [format!("{SOURCE}images/e.svg: no page shows the image")]
        );
    }
}
