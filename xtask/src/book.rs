//! `cargo xtask book`: checks the book in `docs/book`, and builds it with mdBook.
//!
//! mdBook builds a copy of the pages in `target/book-source`. The copy also has the sections of the long documents of `docs`, split
//! into pages, and the files to which pages link.

mod documents;
mod links;
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use documents::Document;
use links::Targets;
pub(crate) use pages::problems;
use pages::{MAX_WORDS, SOURCE};

use crate::tools;
use crate::workspace::{self, SourceFile};

/// The copy that mdBook builds.
const COPY: &str = "target/book-source";
/// The built book.
const BUILT: &str = "target/book";

/// The documents whose sections become pages of the built book, with their titles.
const DOCUMENTS: &[(&str, &str)] = &[
    ("docs/migrating.md", "Migrating"),
    ("docs/glossary.md", "Glossary"),
    ("docs/formats.md", "Formats"),
    ("docs/inputs.md", "Inputs"),
    ("docs/clusters.md", "Clusters"),
    ("docs/distributed.md", "Distributed"),
    ("docs/rng.md", "Random numbers"),
    ("docs/benchmarks/results.md", "Results"),
    ("docs/kernels.md", "Kernels"),
    ("docs/architecture.md", "Architecture"),
    ("docs/testing.md", "Testing"),
];

/// Options of `cargo xtask book`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Opens the built book in a browser
    #[arg(long)]
    open: bool,
}

/// Checks and builds the book, and checks the links of the built pages.
///
/// # Errors
/// Returns an error if a check fails, or if mdBook or lychee cannot be installed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let paths = workspace::paths()?;
    let files = workspace::text_files(&paths)?;
    let problems = problems(&files);
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    let root = workspace::root()?;
    let copy = root.join(COPY);
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {COPY}"))?;
    }
    let staged = staged(&files)?;
    for (path, text) in &staged.pages {
        write(&copy.join("src").join(path), text.as_bytes())?;
    }
    fs::copy(root.join("docs/book/book.toml"), copy.join("book.toml"))?;
    let own = paths.iter().filter_map(|path| path.strip_prefix(SOURCE));
    for path in own.filter(|path| !path.ends_with(".md")) {
        write(&copy.join("src").join(path), &fs::read(root.join(SOURCE).join(path))?)?;
    }
    for path in &staged.files {
        let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        write(&copy.join("src").join(links::copied(path)), &bytes)?;
    }
    tools::build_book(&copy, &root.join(BUILT), args.open)?;
    tools::check_html_links(&root.join(BUILT))?;
    println!("{BUILT}/index.html: {} pages", staged.pages.len() - 1);
    Ok(())
}

/// The files of the copy.
#[derive(Default)]
struct Staged {
    /// The Markdown files, by their paths in the book, and `SUMMARY.md`.
    pages: Vec<(String, String)>,
    /// The paths of other files of the workspace to which pages link.
    files: BTreeSet<String>,
}

/// Returns the pages with links that are valid in the built book.
fn staged(files: &[SourceFile]) -> Result<Staged> {
    let mut documents = Vec::new();
    for (path, title) in DOCUMENTS {
        let file = files.iter().find(|file| file.path == *path);
        let file = file.with_context(|| format!("{path} does not exist"))?;
        documents.push(Document::new(path, title, &file.text, MAX_WORDS));
    }
    let targets =
        Targets { documents: &documents, paths: files.iter().map(|file| file.path.as_str()).collect() };
    let mut staged = Staged::default();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let Some(path) = file.path.strip_prefix(SOURCE) else { continue };
        let text = match path {
            "SUMMARY.md" => file.text.replace("](README.md)", "](index.md)") + &contents(&documents),
            _ => targets.rewrite(&file.text, &file.path, path, &mut staged.files),
        };
        staged.pages.push((links::built(path), text));
    }
    for document in &documents {
        for page in &document.pages {
            let text = targets.rewrite(&page.text, &document.path, &page.path, &mut staged.files);
            staged.pages.push((page.path.clone(), text));
        }
    }
    ensure!(!staged.pages.is_empty(), "{SOURCE} has no pages");
    Ok(staged)
}

/// Returns the entries of the documents for `SUMMARY.md`.
fn contents(documents: &[Document]) -> String {
    let mut contents = "\n# Documents\n\n".to_owned();
    for document in documents {
        let (first, others) = document.pages.split_first().expect("a document should have a page");
        contents += &format!("* [{}]({})\n", document.title, first.path);
        for page in others {
            contents += &format!("  * [{}]({})\n", page.title, page.path);
        }
    }
    contents
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().expect("a file should have a folder");
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_built_book_are_short_and_link_to_existing_pages() {
        let files = workspace::text_files(&workspace::paths().unwrap()).unwrap();
        let staged = staged(&files).unwrap();
        let paths: BTreeSet<&str> = staged.pages.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths.len(), staged.pages.len());
        for (path, text) in staged.pages.iter().filter(|(path, _)| path != "SUMMARY.md") {
            let n_words = text.split_whitespace().count();
            // A table that was split has its heading in each part.
            assert!(n_words <= MAX_WORDS + 50, "{path} has {n_words} words");
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            for target in pages::page_links(text) {
                let target = crate::prose::joined(folder, target.split('#').next().unwrap_or_default());
                assert!(paths.contains(target.as_str()), "{path} links to {target}");
            }
        }
    }
}
