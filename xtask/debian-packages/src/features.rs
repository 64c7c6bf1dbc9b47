//! The features: latent semantic analysis of the first lines of the descriptions.
//!
//! Deerwester, Dumais, Furnas, Landauer, Harshman, "Indexing by latent semantic analysis", 1990: the rows
//! of the document-word matrix times its leading right singular vectors. What is kept is those vectors,
//! one a word, in 8 bits, and each document's words; a document's features are made from them when the
//! set is loaded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::Rules;
use crate::packages::Packages;
use crate::svd::{self, SparseRows};

/// Words of the descriptions and their vectors.
#[derive(Debug)]
pub(crate) struct Features {
    /// Where each node's words start in `words`; one entry more than nodes.
    pub(crate) word_indptr: Vec<u32>,
    /// The distinct words of each node, ascending. A word's id is its position in the order by bytes of
    /// all words that are kept; the words themselves are not.
    pub(crate) words: Vec<u16>,
    /// Each word's weight `ln((1 + n_nodes) / (1 + n_nodes_with_word)) + 1`.
    pub(crate) idf: Vec<f32>,
    /// Each word's right singular vector, `n_columns` values a word, in units of its scale.
    pub(crate) word_vectors: Vec<i8>,
    /// Each word's scale: its largest absolute value over 127.
    pub(crate) scales: Vec<f32>,
    /// Columns of `word_vectors`; at most as many as there are words.
    pub(crate) n_columns: usize,
}

impl Features {
    /// Makes the vectors. Each row of the matrix is one node's idf weights over their Euclidean norm (a
    /// word counts once a line); a node without a word has a row of zeros.
    pub(crate) fn new(packages: &Packages, rules: Rules) -> Result<Self> {
        let mut documents: Vec<BTreeSet<String>> =
            packages.list.iter().map(|package| words(&package.description)).collect();
        let mut n_documents = BTreeMap::<String, usize>::new();
        for word in documents.iter().flatten() {
            match n_documents.get_mut(word) {
                Some(n) => *n += 1,
                None => drop(n_documents.insert(word.clone(), 1)),
            }
        }
        n_documents.retain(|_, n| *n >= rules.min_documents);
        ensure!(!n_documents.is_empty(), "no word stands in {} descriptions", rules.min_documents);
        ensure!(n_documents.len() <= 1 << 16, "{} words do not fit in u16", n_documents.len());
        let ids: BTreeMap<&str, u16> = n_documents.keys().map(String::as_str).zip(0..=u16::MAX).collect();
        let n_nodes = packages.list.len() as f64;
        let idf: Vec<f32> = n_documents.values().map(|&n| idf(n as f64, n_nodes)).collect();
        let mut word_indptr = vec![0];
        let mut word_ids = Vec::new();
        for document in &mut documents {
            word_ids.extend(document.iter().filter_map(|word| ids.get(word.as_str())));
            word_indptr.push(u32::try_from(word_ids.len())?);
        }
        let rows = weights(&word_indptr, &word_ids, &idf);
        let n_columns = rules.n_columns.min(idf.len());
        let vectors = svd::right_singular_vectors(&rows, idf.len(), n_columns);
        let (word_vectors, scales) = quantise(&vectors, n_columns);
        Ok(Self { word_indptr, words: word_ids, idf, word_vectors, scales, n_columns })
    }
}

/// The distinct words of a line: its longest runs of at least two of `a-z`, `0-9`, `+`, `#`, in lower
/// case.
fn words(line: &str) -> BTreeSet<String> {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '#');
    line.split(|c| !is_inside(c)).filter(|run| run.len() >= 2).map(str::to_ascii_lowercase).collect()
}

fn idf(n_nodes_with_word: f64, n_nodes: f64) -> f32 {
    (((1.0 + n_nodes) / (1.0 + n_nodes_with_word)).ln() + 1.0) as f32
}

fn weights<'a>(indptr: &'a [u32], words: &'a [u16], idf: &[f32]) -> SparseRows<'a> {
    let mut values: Vec<f64> = words.iter().map(|&word| f64::from(idf[word as usize])).collect();
    for range in indptr.windows(2) {
        let row = &mut values[range[0] as usize..range[1] as usize];
        let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
        for value in row {
            *value /= norm;
        }
    }
    SparseRows { indptr, columns: words, values }
}

/// Rounds each row to whole multiples of its largest absolute value over 127.
fn quantise(vectors: &[f64], n_columns: usize) -> (Vec<i8>, Vec<f32>) {
    let mut quantised = Vec::with_capacity(vectors.len());
    let mut scales = Vec::with_capacity(vectors.len() / n_columns);
    for row in vectors.chunks_exact(n_columns) {
        let largest = row.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let scale = if largest > 0.0 { largest / 127.0 } else { 1.0 };
        quantised.extend(row.iter().map(|value| (value / scale).round() as i8));
        scales.push(scale as f32);
    }
    (quantised, scales)
}
