//! The fixed cases of `kit expect` and `kit probe`: small inputs that reach the branches of each kernel.

mod dense;
mod rows;
mod sampling;
mod sums;

use burn::tensor::Device;
use kiln_benches::Result;
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};

use crate::outcome::Outcome;

/// A function that computes the result of a case on a device.
type Run = dyn Fn(&Device) -> Result<Outcome>;

/// A case: its name and its function.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) run: Box<Run>,
}

impl Case {
    fn new(name: impl Into<String>, run: impl Fn(&Device) -> Result<Outcome> + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Returns all cases. Integers and copies must be equal bit by bit. Sums and products of floating-point numbers may differ
/// by the bound of their case, because a device adds in another order than the CPU.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = sampling::cases();
    cases.extend(rows::cases());
    cases.extend(sums::cases());
    cases.extend(dense::cases());
    cases
}

/// Returns a block of 301 sources and 200 destinations: a hub with 20,000 edges, empty segments and parallel edges.
fn with_hub() -> Block {
    let mut indptr = vec![0];
    let mut indices = Vec::new();
    for dst in 0..200 {
        let degree = match dst {
            3 => 20_000,
            _ if dst % 5 == 0 => 0,
            _ => dst % 23,
        };
        indices.extend((0..degree).map(|k| LocalId((k % 1009 * 31 + k / 1009 + dst * 17) % 301)));
        indptr.push(indices.len() as u32);
    }
    let n_edges = indices.len();
    Block::new(BlockParts {
        srcs: (0..301).map(NodeId).collect(),
        indptr,
        indices,
        edge_ids: (0..n_edges as u64).map(EdgeId).collect(),
        weights: Some((0..n_edges).map(|edge| 0.5 + (edge % 7) as f32 * 0.25).collect()),
        edge_types: None,
    })
}
