//! Documents of `docs` as pages of the book: a document is split at its headings, and a long section between its paragraphs.

use std::collections::BTreeMap;

/// The number of words from which a section begins a new page.
const MIN_WORDS: usize = 400;

/// A document, split into pages.
pub(super) struct Document {
    /// The path in the workspace.
    pub(super) path: String,
    pub(super) title: String,
    pub(super) pages: Vec<Page>,
    /// The page and the anchor on it, by the anchor in the document.
    anchors: BTreeMap<String, (String, String)>,
}

/// A page of a document.
pub(super) struct Page {
    /// The path in the book.
    pub(super) path: String,
    pub(super) title: String,
    pub(super) text: String,
}

/// The numbers of words and anchors while a document is split.
#[derive(Default)]
struct Counts {
    /// The words on the last page.
    n_words: usize,
    /// The headings of each anchor, in the document and on the last page.
    in_document: BTreeMap<String, usize>,
    on_page: BTreeMap<String, usize>,
}

/// A piece of a document that stays on one page.
struct Block<'a> {
    /// The level of a heading, 0 for other text.
    level: usize,
    text: &'a str,
}

impl Document {
    /// Splits the text of a document into pages of at most `max_words`. Only a block of code or a row of a table may be longer.
    pub(super) fn new(path: &str, title: &str, text: &str, max_words: usize) -> Self {
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".md");
        let folder = format!("documents/{stem}");
        let mut document =
            Self { path: path.into(), title: title.into(), pages: Vec::new(), anchors: BTreeMap::new() };
        let blocks = blocks(text);
        let mut counts = Counts::default();
        for (block_idx, block) in blocks.iter().enumerate() {
            for part in parts(block.text, max_words) {
                let n_needed = match block.level {
                    0 => words(&part),
                    _ => words_to_text(&blocks[block_idx..]).min(max_words),
                };
                let is_full = max_words < counts.n_words + n_needed;
                let begins = block.level == 2 && MIN_WORDS <= counts.n_words;
                if document.pages.is_empty() || is_full || begins {
                    document.pages.push(document.next_page(&folder, block));
                    counts.n_words = 0;
                    counts.on_page.clear();
                }
                document.push(block.level, &part, &mut counts);
            }
        }
        document
    }

    /// Adds a piece of the document to the last page. The first heading of a page is its title.
    fn push(&mut self, level: usize, part: &str, counts: &mut Counts) {
        let page = self.pages.last_mut().expect("the document should have a page");
        let is_first = page.text.is_empty();
        if 0 < level {
            let heading = part.trim_start_matches('#');
            let anchor = anchor(heading);
            let whole = numbered(&anchor, &mut counts.in_document);
            self.anchors.insert(whole, (page.path.clone(), numbered(&anchor, &mut counts.on_page)));
            page.text += if is_first { "#" } else { &part[..level] };
            page.text += heading;
        } else {
            if is_first {
                page.text = format!("# {}\n\n", page.title);
            }
            page.text += part;
        }
        counts.n_words += words(part);
    }

    /// Returns an empty page that begins with a block.
    fn next_page(&self, folder: &str, block: &Block<'_>) -> Page {
        let title = match (block.level, self.pages.last()) {
            (0, Some(page)) => continued(&page.title),
            (0, None) => self.title.clone(),
            _ => block.text.trim_start_matches('#').trim().to_owned(),
        };
        let name = if self.pages.is_empty() { "index".into() } else { anchor(&title) };
        let n_same = self.pages.iter().filter(|page| page.title == title).count();
        let number = if n_same == 0 { String::new() } else { format!("-{}", n_same + 1) };
        Page { path: format!("{folder}/{name}{number}.md"), title, text: String::new() }
    }

    /// Returns the page and the anchor on it of an anchor of the document.
    pub(super) fn find(&self, anchor: &str) -> (String, String) {
        self.anchors.get(anchor).cloned().unwrap_or_else(|| (self.pages[0].path.clone(), String::new()))
    }
}

/// Returns the title of the page after a page whose section it continues: `Times (2)` after `Times`.
fn continued(title: &str) -> String {
    let numbered = title.strip_suffix(')').and_then(|title| title.rsplit_once(" ("));
    match numbered.and_then(|(title, number)| Some((title, number.parse::<u32>().ok()?))) {
        Some((title, number)) => format!("{title} ({})", number + 1),
        None => format!("{title} (2)"),
    }
}

/// Splits a text into headings, and the paragraphs, lists, tables and blocks of code between them.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_code = false;
    let mut start = 0;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let level = if is_code { 0 } else { heading_level(line) };
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if 0 < level && start < end {
            blocks.push(Block { level: 0, text: &text[start..end] });
            start = end;
        }
        end += line.len();
        if 0 < level || (!is_code && line.trim().is_empty()) {
            blocks.push(Block { level, text: &text[start..end] });
            start = end;
        }
    }
    blocks.push(Block { level: 0, text: &text[start..] });
    blocks.retain(|block| !block.text.is_empty());
    blocks
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Returns the number of words from a heading to the end of the first text after it, so that no page ends with a heading.
fn words_to_text(blocks: &[Block<'_>]) -> usize {
    let mut n_words = 0;
    for block in blocks {
        n_words += words(block.text);
        if block.level == 0 && !block.text.trim().is_empty() {
            break;
        }
    }
    n_words
}

fn heading_level(line: &str) -> usize {
    let level = line.len() - line.trim_start_matches('#').len();
    if line[level..].starts_with(' ') { level } else { 0 }
}

/// Splits a table that is longer than a page into tables with the same head. Other text is one part.
fn parts(text: &str, max_words: usize) -> Vec<String> {
    if words(text) <= max_words || !text.starts_with('|') {
        return vec![text.to_owned()];
    }
    let (head, rows) = text.match_indices('\n').nth(1).map_or((text, ""), |(at, _)| text.split_at(at + 1));
    let mut parts = Vec::new();
    let mut part = head.to_owned();
    for row in rows.split_inclusive('\n') {
        if max_words < words(&part) + words(row) {
            parts.push(std::mem::replace(&mut part, head.to_owned()) + "\n");
        }
        part += row;
    }
    parts.push(part);
    parts
}

/// Returns the anchor of a heading, as GitHub and mdBook make it: lower case, without punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the anchor with a number if it occurs again.
fn numbered(anchor: &str, counts: &mut BTreeMap<String, usize>) -> String {
    let n = counts.entry(anchor.to_owned()).or_default();
    *n += 1;
    if *n == 1 { anchor.to_owned() } else { format!("{anchor}-{}", *n - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(text: &str, max_words: usize) -> Vec<(String, String)> {
        let document = Document::new("docs/d.md", "D", text, max_words);
        document.pages.into_iter().map(|page| (page.path, page.text)).collect()
    }

    #[test]
    fn a_document_is_split_at_headings_when_a_page_is_full() {
        let text =
            "# Title\n\none two\n\n## Next: `a`\n\nthree\n\n```sh\n# no heading\n```\n\n### Last\n\nfour\n";
        assert_eq!(pages(text, 100), [("documents/d/index.md".into(), text.into())]);
        let found = pages(text, 10);
        assert_eq!(
            found[0],
            ("documents/d/index.md".into(), "# Title\n\none two\n\n## Next: `a`\n\nthree\n\n".into())
        );
        assert_eq!(found[1].0, "documents/d/title-2.md");
        assert_eq!(found[1].1, "# Title (2)\n\n```sh\n# no heading\n```\n\n### Last\n\nfour\n");
    }

    #[test]
    fn pages_that_continue_a_section_are_numbered() {
        assert_eq!(continued("Times"), "Times (2)");
        assert_eq!(continued("Times (2)"), "Times (3)");
        assert_eq!(continued("Times (UTC)"), "Times (UTC) (2)");
    }

    #[test]
    fn a_heading_is_on_the_page_of_its_text() {
        let found = pages("# Title\n\none two\n\n## Next\n\nthree four\n", 7);
        assert_eq!(found[1], ("documents/d/next.md".into(), "# Next\n\nthree four\n".into()));
    }

    #[test]
    fn a_section_begins_a_page_after_enough_words() {
        let long = format!("# Title\n\n{}\n\n## Next\n\ntext\n", "word ".repeat(MIN_WORDS));
        let found = pages(&long, 1000);
        assert_eq!(found[1], ("documents/d/next.md".into(), "# Next\n\ntext\n".into()));
    }

    #[test]
    fn a_long_table_is_split_with_its_head() {
        let table = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n";
        let found = parts(table, 12);
        assert_eq!(found, ["| a | b |\n|---|---|\n| 1 | 2 |\n\n", "| a | b |\n|---|---|\n| 3 | 4 |\n"]);
    }

    #[test]
    fn anchors_lead_to_the_pages_of_their_headings() {
        let text = format!("# Title\n\n{}\n\n## A, b\n\n## A, b\n", "word ".repeat(MIN_WORDS));
        let document = Document::new("docs/d.md", "D", &text, 1000);
        assert_eq!(document.find(""), ("documents/d/index.md".into(), String::new()));
        assert_eq!(document.find("a-b"), ("documents/d/a-b.md".into(), "a-b".into()));
        assert_eq!(document.find("a-b-1"), ("documents/d/a-b.md".into(), "a-b-1".into()));
    }
}
