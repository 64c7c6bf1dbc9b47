use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cell::{Cell, text_cell};

/// The texts of a spec that stand for a missing value.
#[derive(Debug)]
pub(crate) struct MissingTexts {
    texts: Vec<MissingText>,
    /// True if none of the texts is that of a number, a boolean or a time, so that texts alone must be compared.
    are_words: bool,
}

#[derive(Debug)]
struct MissingText {
    /// The text in the spec.
    text: String,
    /// The text of the value that it stands for.
    canonical: String,
    /// True if a value of the table has this text.
    occurred: AtomicBool,
}

impl MissingTexts {
    pub(crate) fn new(texts: &[String]) -> Arc<Self> {
        let are_words =
            texts.iter().all(|text| matches!(text_cell(text).value(), Cell::Text(_) | Cell::Missing));
        Arc::new(Self { texts: texts.iter().map(|text| MissingText::new(text)).collect(), are_words })
    }

    /// Returns true if a value has one of the texts, in any spelling.
    pub(super) fn contains(&self, cell: &Cell<'_>) -> bool {
        if self.are_words && (self.texts.is_empty() || !matches!(cell, Cell::Text(_))) {
            return false;
        }
        let mut buffer = String::new();
        let text = match (cell.text(&mut buffer), cell) {
            (Ok(Some(text)), _) => text,
            (Err(_), Cell::Text(text)) => text,
            _ => return false,
        };
        let mut is_missing = false;
        for missing in self.texts.iter().filter(|missing| missing.canonical == text) {
            missing.occurred.store(true, Ordering::Relaxed);
            is_missing = true;
        }
        is_missing
    }

    /// Returns the texts that no value had.
    pub(crate) fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = self.texts.iter().filter(|missing| !missing.occurred.load(Ordering::Relaxed));
        unused.map(|missing| missing.text.as_str())
    }
}

impl MissingText {
    fn new(text: &str) -> Self {
        let cell = text_cell(text);
        let mut buffer = String::new();
        let canonical = cell.text(&mut buffer).ok().flatten().unwrap_or(text).to_owned();
        // An empty text and NaN are missing values in any case.
        let occurred = AtomicBool::new(matches!(cell, Cell::Missing));
        Self { text: text.to_owned(), canonical, occurred }
    }
}
