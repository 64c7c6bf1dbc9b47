//! The result of a fixed case, in a form of a few hundred bytes, and its comparison with the expected one.

use kiln_benches::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The largest number of values that a result contains besides its digest or sums.
const N_KEPT: usize = 48;

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(crate) enum Outcome {
    /// Integers, or copies of floating-point numbers, which must be identical bit by bit.
    Bits {
        /// The number of 32-bit words.
        n_words: usize,
        /// The digest of all words in little-endian order, in hexadecimal digits.
        sha256: String,
        /// Evenly spaced words, at most [`N_KEPT`], which show where the first difference is.
        kept: Vec<u32>,
    },
    /// Floating-point numbers that a device may round differently, because it adds in another order.
    Floats {
        /// The largest difference of a value: absolute for expected values below 1, relative for larger ones.
        bound: f32,
        /// The number of values.
        n_values: usize,
        /// The sum of all values.
        sum: f64,
        /// The sum of their magnitudes.
        magnitude: f64,
        /// Evenly spaced values, at most [`N_KEPT`].
        kept: Vec<f32>,
    },
}

impl Outcome {
    /// Describes words that must be identical.
    pub(crate) fn bits(words: &[u32]) -> Self {
        let mut digest = Sha256::new();
        words.iter().for_each(|word| digest.update(word.to_le_bytes()));
        let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let kept = kept_indices(words.len()).map(|idx| words[idx]).collect();
        Self::Bits { n_words: words.len(), sha256, kept }
    }

    /// Describes copies of floating-point numbers, which must be identical.
    pub(crate) fn copies(values: &[f32]) -> Self {
        Self::bits(&values.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
    }

    /// Describes numbers that may differ by `bound`.
    pub(crate) fn floats(values: &[f32], bound: f32) -> Self {
        Self::Floats {
            bound,
            n_values: values.len(),
            sum: values.iter().copied().map(f64::from).sum(),
            magnitude: values.iter().map(|value| f64::from(value.abs())).sum(),
            kept: kept_indices(values.len()).map(|idx| values[idx]).collect(),
        }
    }

    /// Compares this result with the expected one.
    ///
    /// # Errors
    /// Returns an error that names the first difference.
    pub(crate) fn check(&self, expected: &Self) -> Result {
        match (self, expected) {
            (
                Self::Bits { n_words, sha256, kept },
                Self::Bits { n_words: n, sha256: digest, kept: words },
            ) => {
                if n_words != n {
                    return Err(format!("{n_words} words, expected {n}").into());
                }
                let differing = kept.iter().zip(words).position(|(got, expected)| got != expected);
                if let Some(at) = differing {
                    let idx = kept_indices(*n).nth(at).unwrap_or_default();
                    return Err(format!("word {idx} is {:#x}, expected {:#x}", kept[at], words[at]).into());
                }
                if sha256 != digest {
                    return Err(format!("the digest is {sha256}, expected {digest}").into());
                }
                Ok(())
            }
            (Self::Floats { n_values, sum, kept, .. }, Self::Floats { .. }) => {
                check_floats(*n_values, *sum, kept, expected)
            }
            _ => Err("the expected result is of another kind: pack again".into()),
        }
    }
}

/// Compares numbers with the expected ones.
fn check_floats(n_values: usize, sum: f64, kept: &[f32], expected: &Outcome) -> Result {
    let Outcome::Floats { bound, n_values: n, sum: expected_sum, magnitude, kept: values } = expected else {
        return Ok(());
    };
    if n_values != *n {
        return Err(format!("{n_values} values, expected {n}").into());
    }
    for (at, (got, expected)) in kept.iter().zip(values).enumerate() {
        let difference = (got - expected).abs();
        // A NaN compares as false.
        let is_close = difference <= bound * expected.abs().max(1.0);
        if !is_close {
            let idx = kept_indices(*n).nth(at).unwrap_or_default();
            return Err(format!("value {idx} is {got}, expected {expected} within {bound:e}").into());
        }
    }
    let allowed = f64::from(*bound) * magnitude.max(1.0);
    let is_close = (sum - expected_sum).abs() <= allowed;
    if !is_close {
        return Err(format!("the sum is {sum}, expected {expected_sum} within {allowed:e}").into());
    }
    Ok(())
}

/// Returns evenly spaced indices, at most [`N_KEPT`].
fn kept_indices(n: usize) -> impl Iterator<Item = usize> {
    let n_kept = n.min(N_KEPT);
    (0..n_kept).map(move |at| at * n / n_kept)
}
