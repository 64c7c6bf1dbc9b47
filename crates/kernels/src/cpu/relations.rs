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
/// [`BlockOps::relation_shares`](crate::ops::backend::BlockOps::relation_shares). Panics if there are several types and one is
/// not below `n_types`.
pub(super) fn relation_shares(
    block: &Adjacency<Flex>,
    types: &IntTensor<Flex>,
    n_types: usize,
    weights: &Weights<Flex>,
) -> FloatTensor<Flex> {
    let types = (1 < n_types).then(|| ints(types));
    let of_edges = EdgeTypes { types, n_types };
    let values = match weights {
        Weights::Ones => fill_segments(by_dst(block), 1, PASS_NS, &Shares { of_edges }),
        Weights::Tensor(weights) => {
            let weights = contiguous(weights.clone());
            let shares = WeightedShares { of_edges, weights: floats(&weights) };
            fill_segments(by_dst(block), 1, PASS_NS, &shares)
        }
    };
    FloatTensor::<Flex>::from_data(TensorData::new(values, [block.n_edges]))
}

/// The types of edges; `None` if there is one type.
#[derive(Clone, Copy)]
struct EdgeTypes<'a> {
    types: Option<&'a [i32]>,
    n_types: usize,
}

impl EdgeTypes<'_> {
    /// Returns the type of an edge; panics unless it is below the number of types.
    #[inline(always)]
    fn of(&self, edge: usize) -> usize {
        let Some(types) = self.types else { return 0 };
        match usize::try_from(types[edge]) {
            Ok(position) if position < self.n_types => position,
            _ => panic!("an edge has type {}, but there are {} relations", types[edge], self.n_types),
        }
    }

    /// Calls `run` with a sum of 0 for each type.
    fn with_sums<T: Copy + Default>(&self, run: impl FnOnce(&mut [T])) {
        // A destination has few edges: an allocation would take longer than their sums.
        let mut few = [T::default(); 64];
        match few.get_mut(..self.n_types) {
            Some(sums) => run(sums),
            None => run(&mut vec![T::default(); self.n_types]),
        }
    }
}

struct Shares<'a> {
    of_edges: EdgeTypes<'a>,
}

struct WeightedShares<'a> {
    of_edges: EdgeTypes<'a>,
    weights: &'a [f32],
}

impl SegmentRows for Shares<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        self.of_edges.with_sums(|counts: &mut [u32]| {
            for edge in first..first + out.len() {
                counts[self.of_edges.of(edge)] += 1;
            }
            for (out, edge) in out.iter_mut().zip(first..) {
                *out = 1.0 / counts[self.of_edges.of(edge)] as f32;
            }
        });
    }
}

impl SegmentRows for WeightedShares<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        self.of_edges.with_sums(|sums: &mut [f32]| {
            for edge in first..first + out.len() {
                sums[self.of_edges.of(edge)] += self.weights[edge].abs();
            }
            for (out, edge) in out.iter_mut().zip(first..) {
                let sum = sums[self.of_edges.of(edge)];
                // A sum of 0 is that of weights of 0, whose quotients are 0.
                *out = self.weights[edge] / sum.max(f32::MIN_POSITIVE);
            }
        });
    }
}
