//! The edge weights of relational layers on the CPU.

use burn::backend::Flex;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::TensorData;

use crate::cpu::aggregate::by_dst;
use crate::cpu::cost::PASS_NS;
use crate::cpu::edges::{SegmentRows, fill_segments};
use crate::cpu::tensor::ints;
use crate::device::block::Adjacency;

/// Returns 1 divided by the number of edges of each edge's type at its destination, `[n_edges]`. Panics if a type is not below `n_types`.
pub(super) fn relation_shares(
    block: &Adjacency<Flex>,
    types: &IntTensor<Flex>,
    n_types: usize,
) -> FloatTensor<Flex> {
    let shares = Shares { types: ints(types), n_types };
    let values = fill_segments(by_dst(block), 1, PASS_NS, &shares);
    FloatTensor::<Flex>::from_data(TensorData::new(values, [block.n_edges]))
}

struct Shares<'a> {
    types: &'a [i32],
    n_types: usize,
}

impl SegmentRows for Shares<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        let types = &self.types[first..first + out.len()];
        let mut counts = vec![0_u32; self.n_types];
        for &of_edge in types {
            let count = usize::try_from(of_edge).ok().and_then(|of_edge| counts.get_mut(of_edge));
            let Some(count) = count else {
                panic!("an edge has type {of_edge}, but there are {} relations", self.n_types);
            };
            *count += 1;
        }
        for (out, &of_edge) in out.iter_mut().zip(types) {
            *out = 1.0 / counts[of_edge as usize] as f32;
        }
    }
}
