//! The order of a layer's aggregation and its product.

use kiln_kernels::{BlockSize, FeatureAggregation};

/// The aggregation by which the first layer of a model reads its input rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputAggregation {
    /// The aggregation.
    pub aggregation: FeatureAggregation,
    /// The width of the input rows.
    pub d_in: usize,
    /// The width of the rows after the layer's product.
    pub d_out: usize,
}

impl InputAggregation {
    /// Returns true if the layer aggregates the rows of a block of this size and then multiplies them by its weights. If
    /// the opposite order is faster, the layer multiplies the rows of all sources, which must be gathered.
    pub fn is_first(&self, size: BlockSize) -> bool {
        !projects_first(size, [self.d_in, self.d_out])
    }
}

/// Returns true if a layer whose aggregation commutes with its product should multiply before it aggregates. It then
/// gathers narrower rows, but multiplies the rows of all sources and not only those of the destinations. The function
/// estimates which order is faster. (DGL decides by the widths alone. In a sampled block, with many sources per
/// destination, that choice is often slower.)
pub(crate) fn projects_first(size: BlockSize, [d_in, d_out]: [usize; 2]) -> bool {
    if d_in <= d_out {
        return false;
    }
    let more_products = (size.n_src - size.n_dst) as f64 * (d_in * d_out) as f64;
    let fewer_gathered = size.n_edges as f64 * (d_in - d_out) as f64;
    more_products < PRODUCTS_PER_GATHERED * fewer_gathered
}

/// The number of multiplications in a matrix product that take as long as gathering one value. It assumes 100 GFLOP/s
/// (0.02 ns per multiply-add) and 10 GB/s (0.4 ns per f32) on one core.
const PRODUCTS_PER_GATHERED: f64 = 20.0;
