//! Hashed n-grams of texts.

use crate::hash::{below, hash_bytes};
use crate::spec::NgramUnit;

/// Adds 1 to the column of each n-gram of a text in lower case, and divides the row by its Euclidean norm. A text without
/// n-grams leaves zeros.
pub(super) fn add_ngrams(text: &str, unit: NgramUnit, min_n: usize, max_n: usize, row: &mut [f32]) {
    let text = text.to_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut add = |ngram: &[u8]| row[below(hash_bytes(ngram), row.len())] += 1.0;
    let mut buffer = Vec::new();
    for n in min_n..=max_n {
        match unit {
            NgramUnit::Word => {
                for window in words.windows(n) {
                    buffer.clear();
                    for (position, word) in window.iter().enumerate() {
                        if position > 0 {
                            buffer.push(b' ');
                        }
                        buffer.extend_from_slice(word.as_bytes());
                    }
                    add(&buffer);
                }
            }
            NgramUnit::Char => {
                for word in &words {
                    let bounded = format!("<{word}>");
                    let starts = bounded.char_indices().map(|(start, _)| start);
                    let ends: Vec<usize> = starts.clone().skip(1).chain([bounded.len()]).collect();
                    for (start, end) in starts.zip(ends.iter().skip(n - 1)) {
                        add(&bounded.as_bytes()[start..*end]);
                    }
                }
            }
        }
    }
    let norm = row.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
    if norm > 0.0 {
        row.iter_mut().for_each(|value| *value = (f64::from(*value) / norm) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: usize = 1 << 12;

    fn row(text: &str, unit: NgramUnit, min_n: usize, max_n: usize) -> Vec<f32> {
        let mut row = vec![0.0; COLUMNS];
        add_ngrams(text, unit, min_n, max_n, &mut row);
        row
    }

    fn expected(ngrams: &[(&str, f32)]) -> Vec<f32> {
        let mut row = vec![0.0; COLUMNS];
        for (ngram, value) in ngrams {
            row[below(hash_bytes(ngram.as_bytes()), COLUMNS)] += value;
        }
        row
    }

    #[test]
    fn words_are_counted_and_normalised() {
        // Counts 2, 1 and 2 have the norm 3.
        let found = row("The cat, the CAT-dog", NgramUnit::Word, 1, 1);
        assert_eq!(found, expected(&[("the", 2.0 / 3.0), ("cat", 2.0 / 3.0), ("dog", 1.0 / 3.0)]));
        let found = row("a b c", NgramUnit::Word, 2, 3);
        let third = 1.0 / 3.0_f64.sqrt();
        assert_eq!(found, expected(&[("a b", third as f32), ("b c", third as f32), ("a b c", third as f32)]));
        assert_eq!(row("…", NgramUnit::Word, 1, 2), vec![0.0; COLUMNS]);
    }

    #[test]
    fn characters_have_the_bounds_of_their_word() {
        let half = 0.5;
        let found = row("Äb", NgramUnit::Char, 2, 3);
        let fifth = (1.0 / 5.0_f64.sqrt()) as f32;
        let ngrams = ["<ä", "äb", "b>", "<äb", "äb>"].map(|ngram| (ngram, fifth));
        assert_eq!(found, expected(&ngrams));
        assert_eq!(
            row("ab cd", NgramUnit::Char, 4, 4),
            expected(&[("<ab>", half * 2.0_f32.sqrt()), ("<cd>", half * 2.0_f32.sqrt())])
        );
    }
}
