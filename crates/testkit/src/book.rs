use std::fs;
use std::path::Path;

/// A page of the book in `docs/book`.
#[derive(Debug, Clone)]
pub struct BookPage {
    /// The path below `docs/book/src`.
    pub path: String,
    /// The text in Markdown.
    pub text: String,
}

/// Returns the pages of the workspace's book in the order of its `SUMMARY.md`.
///
/// ```
/// let pages = kiln_testkit::book_pages();
/// assert_eq!(pages[0].path, "README.md");
/// ```
///
/// # Panics
/// Panics if a page cannot be read.
pub fn book_pages() -> Vec<BookPage> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src");
    let read = |path: &str| {
        let text = fs::read_to_string(folder.join(path));
        text.unwrap_or_else(|error| panic!("docs/book/src/{path}: {error}"))
    };
    let summary = read("SUMMARY.md");
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.map(|path| BookPage { path: path.to_owned(), text: read(path) }).collect()
}

impl BookPage {
    /// Returns the blocks of code of a language, such as `console`, without their fences.
    pub fn blocks<'a>(&'a self, language: &str) -> Vec<&'a str> {
        let fence = format!("```{language}\n");
        let mut blocks = Vec::new();
        let mut rest = self.text.as_str();
        while let Some((_, begin)) = rest.split_once(&fence) {
            let (block, after) = begin.split_once("```").unwrap_or((begin, ""));
            blocks.push(block);
            rest = after;
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_language() {
        let text = "```sh\na\n```\ntext\n```console\n$ b\n```\n```console\n$ c\n".to_owned();
        let page = BookPage { path: "a.md".into(), text };
        assert_eq!(page.blocks("console"), ["$ b\n", "$ c\n"]);
        assert_eq!(page.blocks("rust"), [""; 0]);
    }
}
