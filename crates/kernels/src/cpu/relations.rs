//! The edge weights of relational layers on the CPU.

use burn::backend::Flex;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::TensorData;

use crate::cpu::aggregate::by_dst;
use crate::cpu::cost::PASS_NS;
use crate::cpu::edges::{SegmentRows, fill_segments};
use crate::cpu::tensor::{contiguous, floats, ints};
use crate::device::block::Adjacency;
use crate::ops::aggregation::Weights;

/// Returns the share of each edge in the edges of its type at its destination; see
/// [`BlockOps::relation_shares`](crate::ops::backend::BlockOps::relation_shares). Panics if a type is not below `n_types`.
pub(super) fn relation_shares(
    block: &Adjacency<Flex>,
    types: &IntTensor<Flex>,
    n_types: usize,
    weights: &Weights<Flex>,
) -> FloatTensor<Flex> {
    let types = ints(types);
    let values = match weights {
        Weights::Ones => fill_segments(by_dst(block), 1, PASS_NS, &Shares { types, n_types }),
        Weights::Tensor(weights) => {
            let weights = contiguous(weights.clone());
            let shares = WeightedShares { types, n_types, weights: floats(&weights) };
            fill_segments(by_dst(block), 1, PASS_NS, &shares)
        }
    };
    FloatTensor::<Flex>::from_data(TensorData::new(values, [block.n_edges]))
}

struct Shares<'a> {
    types: &'a [i32],
    n_types: usize,
}

struct WeightedShares<'a> {
    types: &'a [i32],
    n_types: usize,
    weights: &'a [f32],
}

impl SegmentRows for Shares<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        let types = &self.types[first..first + out.len()];
        let mut counts = vec![0_u32; self.n_types];
        for &of_edge in types {
            counts[position(of_edge, self.n_types)] += 1;
        }
        for (out, &of_edge) in out.iter_mut().zip(types) {
            *out = 1.0 / counts[of_edge as usize] as f32;
        }
    }
}

impl SegmentRows for WeightedShares<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        let types = &self.types[first..first + out.len()];
        let weights = &self.weights[first..first + out.len()];
        let mut sums = vec![0.0_f32; self.n_types];
        for (&of_edge, weight) in types.iter().zip(weights) {
            sums[position(of_edge, self.n_types)] += weight.abs();
        }
        for ((out, &of_edge), weight) in out.iter_mut().zip(types).zip(weights) {
            *out = weight / sums[of_edge as usize].max(f32::MIN_POSITIVE);
        }
    }
}

/// Returns a type as a position; panics unless it is below `n_types`.
fn position(of_edge: i32, n_types: usize) -> usize {
    match usize::try_from(of_edge) {
        Ok(position) if position < n_types => position,
        _ => panic!("an edge has type {of_edge}, but there are {n_types} relations"),
    }
}
