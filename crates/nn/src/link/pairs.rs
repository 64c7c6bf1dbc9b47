use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use kiln_kernels::DeviceRows;

/// The pairs of nodes that a [`LinkDecoder`](crate::LinkDecoder) scores, on a device.
///
/// | array | element | length | indexed by | value |
/// |---|---|---|---|---|
/// | `srcs` | row index | `n_pairs` | pair | the row of its source in the output of the encoder |
/// | `dsts` | row index | `n_pairs` | pair | the row of its destination |
/// | `ids` | u32 | `n_pairs` | pair | its id, from which dropout masks are drawn |
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct LinkPairs {
    pub(crate) srcs: DeviceRows,
    pub(crate) dsts: DeviceRows,
    pub(crate) ids: Tensor<1, Int>,
}

impl LinkPairs {
    /// Copies pairs of rows of a matrix with `n_rows` rows to a device. A row may occur in several pairs. The id of a
    /// pair must not depend on its batch, so that dropout masks do not depend on batches and ranks.
    ///
    /// # Panics
    /// Panics if there is not one source, one destination and one id per pair, or if a row is not below `n_rows`.
    pub fn upload(srcs: &[u32], dsts: &[u32], ids: Vec<u32>, n_rows: usize, device: &Device) -> Self {
        let n_pairs = ids.len();
        assert_eq!(srcs.len(), n_pairs, "expected one source for each of {n_pairs} pairs");
        assert_eq!(dsts.len(), n_pairs, "expected one destination for each of {n_pairs} pairs");
        let device = &device.clone().inner();
        Self {
            srcs: DeviceRows::upload(srcs, n_rows, device),
            dsts: DeviceRows::upload(dsts, n_rows, device),
            ids: Tensor::from_data(TensorData::new(ids, [n_pairs]), (device, DType::U32)),
        }
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.srcs.len()
    }

    /// Returns true if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.srcs.is_empty()
    }

    /// The number of bytes that the arrays occupy, without those that the gradient adds.
    pub fn n_bytes(&self) -> usize {
        // Row indices also have an array of offsets.
        let n_values = 2 * (2 * self.len() + 1) + self.len();
        4 * n_values
    }
}
