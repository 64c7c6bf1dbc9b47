//! The features: latent semantic analysis of the first lines of the descriptions.
//!
//! The features are the rows of the document-word matrix times its leading right singular vectors (Deerwester, Dumais,
//! Furnas, Landauer, Harshman, "Indexing by latent semantic analysis", 1990). The data set stores a vector of 8-bit
//! values per word, and the words of each document. The features of a document are computed from these when the data
//! set is loaded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::packages::Packages;
use crate::rules::Rules;
use crate::svd::{self, SparseRows};

/// The words of the descriptions, and their vectors.
#[derive(Debug)]
pub(crate) struct Features {
    /// The start of each node's words in `words`; `n_nodes + 1` entries.
    pub(crate) word_indptr: Vec<u32>,
    /// The ids of the distinct words of each node, ascending. A word's id is its position among all kept words, sorted
    /// by bytes. The words themselves are not stored.
    pub(crate) words: Vec<u16>,
    /// The weight of each word: `ln((1 + n_nodes) / (1 + n_nodes_with_word)) + 1`.
    pub(crate) idf: Vec<f32>,
    /// The entries of the right singular vectors, `n_columns` values per word, as multiples of the word's scale.
    pub(crate) word_vectors: Vec<i8>,
    /// The scale of each word: the largest absolute value of its vector, divided by 127; 1 for a vector of zeros.
    pub(crate) scales: Vec<f32>,
    /// The number of columns of `word_vectors`, at most the number of words.
    pub(crate) n_columns: usize,
}

impl Features {
    /// Computes the word vectors. Each row of the document-word matrix contains the idf weights of one node's words,
    /// divided by their Euclidean norm (a word counts once per line). A node without words has a row of zeros.
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
        ensure!(!n_documents.is_empty(), "no word occurs in at least {} descriptions", rules.min_documents);
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

/// Returns the distinct words of a line in lower case: maximal runs of at least two of `a-z`, `0-9`, `+` and `#`.
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

/// Rounds the values of each row to multiples of the row's scale, and returns the multiples and the scales; see
/// [`Features::scales`].
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
