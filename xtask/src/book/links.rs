//! Links of pages, as they are in the workspace and as they are in the built book.

use std::collections::BTreeSet;

use super::documents::Document;
use super::pages::SOURCE;
use crate::prose::joined;

/// What links of the book may lead to.
pub(super) struct Targets<'a> {
    pub(super) documents: &'a [Document],
    /// The paths of the text files of the workspace.
    pub(super) paths: BTreeSet<&'a str>,
}

impl Targets<'_> {
    /// Returns a text of the file `path` with its links for the page `page` of the built book. Links to a document lead to the page
    /// of the section. Other files of the workspace are added to `files`, which are copied. Links to folders and to pages that the
    /// book does not have become their text.
    pub(super) fn rewrite(&self, text: &str, path: &str, page: &str, files: &mut BTreeSet<String>) -> String {
        let mut new = String::new();
        let mut is_code = false;
        for line in text.split_inclusive('\n') {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            }
            match is_code {
                true => new.push_str(line),
                false => self.rewrite_line(line, path, page, files, &mut new),
            }
        }
        new
    }

    fn rewrite_line(
        &self,
        line: &str,
        path: &str,
        page: &str,
        files: &mut BTreeSet<String>,
        new: &mut String,
    ) {
        let mut rest = line;
        // The positions in `new` of the brackets that are open.
        let mut open = Vec::new();
        while let Some(next) = rest.chars().next() {
            if next == '`' {
                let (code, after) = rest.split_at(code_len(rest));
                new.push_str(code);
                rest = after;
                continue;
            }
            let link = rest.strip_prefix("](").and_then(|after| after.split_once(')'));
            if let Some((target, after)) = link
                && let Some(start) = open.pop()
            {
                match self.target(target, path, page, files) {
                    Some(target) => new.push_str(&format!("]({target})")),
                    None => drop(new.remove(start)),
                }
                rest = after;
                continue;
            }
            match next {
                '[' => open.push(new.len()),
                ']' => drop(open.pop()),
                _ => {}
            }
            new.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }

    /// Returns the target of a link in the built book, or `None` if the book does not have it.
    fn target(&self, target: &str, path: &str, page: &str, files: &mut BTreeSet<String>) -> Option<String> {
        if target.contains("://") {
            return Some(target.to_owned());
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (to, anchor) = target.split_once('#').unwrap_or((target, ""));
        let to = if to.is_empty() { path.to_owned() } else { joined(folder, to) };
        let document = self.documents.iter().find(|document| document.path == to);
        let (to, anchor) = if let Some(document) = document {
            document.find(anchor)
        } else if !self.is_file(&to) {
            return None;
        } else if let Some(own) = to.strip_prefix(SOURCE) {
            (built(own), anchor.to_owned())
        } else if to.ends_with(".md") {
            return None;
        } else {
            files.insert(to.clone());
            (copied(&to), String::new())
        };
        let hash = if anchor.is_empty() { "" } else { "#" };
        Some(format!("{}{hash}{anchor}", relative(page, &to)))
    }

    /// Returns true for a file. An image that is not text is known by its extension.
    fn is_file(&self, path: &str) -> bool {
        self.paths.contains(path) || path.ends_with(".png")
    }
}

/// Returns the path of a page in the copy. The first page is `README.md` in the workspace, where GitHub shows it.
pub(super) fn built(path: &str) -> String {
    if path == "README.md" { "index.md".to_owned() } else { path.to_owned() }
}

/// Returns the path in the book of a copied file.
pub(super) fn copied(path: &str) -> String {
    format!("files/{path}")
}

/// Returns the relative path from a page to a file of the book.
fn relative(page: &str, to: &str) -> String {
    let n_folders = page.matches('/').count();
    format!("{}{to}", "../".repeat(n_folders))
}

/// Returns the length of the code that begins with the backticks at the start of a text, or of the backticks if none closes it.
fn code_len(text: &str) -> usize {
    let n_ticks = text.len() - text.trim_start_matches('`').len();
    let ticks = &text[..n_ticks];
    text[n_ticks..].find(ticks).map_or(n_ticks, |at| 2 * n_ticks + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_sections_and_copies() {
        let formats = Document::new("docs/formats.md", "Formats", "# F\n\n## Times\n\ntext\n", 3);
        let documents = [formats];
        let paths =
            ["docs/formats.md", "docs/book/src/README.md", "docs/book/src/c.md", "examples/a.rs"].into();
        let targets = Targets { documents: &documents, paths };
        let mut files = BTreeSet::new();
        let mut rewritten = |text: &str| targets.rewrite(text, "docs/book/src/a/b.md", "a/b.md", &mut files);
        assert_eq!(rewritten("[x](../c.md#d) [y](https://e)"), "[x](../c.md#d) [y](https://e)");
        assert_eq!(rewritten("[x](../README.md)"), "[x](../index.md)");
        assert_eq!(
            rewritten("[`x`](../../../formats.md#times)"),
            "[`x`](../documents/formats/times.md#times)"
        );
        assert_eq!(rewritten("[x](../../../../examples/a.rs)."), "[x](../files/examples/a.rs).");
        assert_eq!(
            rewritten("see [the x](../../../../examples) and [y](../../../other.md)"),
            "see the x and y"
        );
        assert_eq!(
            rewritten("`[x](../../../other.md)`\n```\n[x](no.md)\n```\n"),
            "`[x](../../../other.md)`\n```\n[x](no.md)\n```\n"
        );
        assert_eq!(files, ["examples/a.rs".to_owned()].into());
    }
}
