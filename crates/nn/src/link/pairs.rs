use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use kiln_kernels::DeviceRows;

/// The maximum number of pairs that are scored at once: with rows of 128 columns, their rows take 64 MiB. An evaluation
/// with 1,000 negatives per link has millions of pairs in a batch.
pub(crate) const PAIRS_AT_ONCE: usize = 1 << 16;

/// The pairs of nodes that a [`LinkDecoder`](crate::LinkDecoder) scores, on a device.
///
/// | array | element | length | indexed by | value |
/// |---|---|---|---|---|
/// | `srcs` | row index | `n_pairs` | pair | the row of its source in the output of the encoder |
/// | `dsts` | row index | `n_pairs` | pair | the row of its destination |
/// | `ids` | u32 | `n_pairs` | pair | its id, from which dropout masks are drawn |
///
/// A clone shares the device's memory.
///
/// The arrays are divided into parts of at most 65,536 pairs, which are scored one after the other.
#[derive(Debug, Clone)]
pub struct LinkPairs {
    /// At least one part, which may be empty.
    pub(crate) parts: Vec<PairsPart>,
    n_pairs: usize,
}

/// Consecutive pairs.
#[derive(Debug, Clone)]
pub(crate) struct PairsPart {
    pub(crate) srcs: DeviceRows,
    pub(crate) dsts: DeviceRows,
    pub(crate) ids: Tensor<1, Int>,
}

impl LinkPairs {
    /// Copies pairs of rows of a matrix with `n_rows` rows to a device. A row may occur in several pairs; its
    /// gradient is a sum in the order of the pairs. The id of a
    /// pair must not depend on its batch, so that dropout masks do not depend on batches and ranks.
    ///
    /// # Panics
    /// Panics if there is not one source, one destination and one id per pair, or if a row is not below `n_rows`.
    pub fn upload(srcs: &[u32], dsts: &[u32], ids: Vec<u32>, n_rows: usize, device: &Device) -> Self {
        let n_pairs = ids.len();
        assert_eq!(srcs.len(), n_pairs, "expected one source for each of {n_pairs} pairs");
        assert_eq!(dsts.len(), n_pairs, "expected one destination for each of {n_pairs} pairs");
        let device = &device.clone().inner();
        let parts = (0..n_pairs.max(1))
            .step_by(PAIRS_AT_ONCE)
            .map(|first: usize| {
                let part = first..n_pairs.min(first + PAIRS_AT_ONCE);
                let ids = TensorData::new(ids[part.clone()].to_vec(), [part.len()]);
                PairsPart {
                    srcs: DeviceRows::upload(&srcs[part.clone()], n_rows, device),
                    dsts: DeviceRows::upload(&dsts[part], n_rows, device),
                    ids: Tensor::from_data(ids, (device, DType::U32)),
                }
            })
            .collect();
        Self { parts, n_pairs }
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.n_pairs
    }

    /// Returns true if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.n_pairs == 0
    }

    /// The number of bytes that the arrays occupy, without those that the gradient adds.
    pub fn n_bytes(&self) -> usize {
        // Row indices also have an array of offsets.
        let n_values = 2 * (2 * self.n_pairs + self.parts.len()) + self.n_pairs;
        4 * n_values
    }
}
