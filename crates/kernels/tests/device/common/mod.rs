//! Blocks and aggregations that the tests of the ops share.

use std::process::Command;

use burn::tensor::{DType, Int, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::ops::{Aggregation, Reduction};
use kiln_kernels::testing::device;

/// Returns a block with the given sources of each destination, as local ids. Global ids are `100 + 7 * local`.
pub(crate) fn block(n_src: usize, in_srcs: &[Vec<u32>]) -> Block {
    let mut indptr = vec![0];
    let mut indices = Vec::new();
    for srcs in in_srcs {
        indices.extend(srcs.iter().copied().map(LocalId));
        indptr.push(indices.len() as u32);
    }
    Block::new(BlockParts {
        srcs: (0..n_src as u32).map(|local| NodeId(100 + 7 * local)).collect(),
        indptr,
        edge_ids: (0..indices.len() as u64).map(|edge| EdgeId(1000 + edge)).collect(),
        weights: Some((0..indices.len()).map(|edge| 0.5 + (edge % 7) as f32 * 0.25).collect()),
        indices,
        edge_types: None,
    })
}

/// A block of the six nodes 0 to 5, all destinations except node 5. Node 0 has no in-edges; node 2 has two parallel
/// edges and a self loop.
///
/// ```text
///   0: -    1: 0    2: 1 3 2 1    3: 5 4    4: 5
/// ```
pub(crate) fn six_nodes() -> Block {
    block(6, &[vec![], vec![0], vec![1, 3, 2, 1], vec![5, 4], vec![5]])
}

/// Returns the sum aggregation with these edge weights.
pub(crate) fn weighted_sum(weights: Tensor<1>) -> Aggregation {
    Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() }
}

/// A block with a hub of 20,000 edges at destination 3, empty segments, and parallel edges.
pub(crate) fn with_hub() -> Block {
    let sources = |dst: u32, degree: u32| (0..degree).map(|k| (k * k * 31 + dst * 17 + k) % 301).collect();
    let in_srcs: Vec<Vec<u32>> = (0..200)
        .map(|dst| match dst {
            3 => sources(dst, 20_000),
            _ if dst % 5 == 0 => vec![],
            _ => sources(dst, dst % 23),
        })
        .collect();
    block(301, &in_srcs)
}

/// Returns a command that runs one test of this program, such as `block::uploads`, in another process.
pub(crate) fn process_of(test: &str) -> Command {
    // The modules of the tests may be below another module, in a program with the tests of several crates.
    let (_, module) = module_path!().split_once("::").expect("the module should be in a crate");
    let test = format!("{}{test}", module.trim_end_matches("common"));
    let mut command = Command::new(std::env::current_exe().expect("the program should have a path"));
    command.args(["--exact", &test, "--nocapture"]);
    command
}

/// Returns true if the tests run on a CUDA device.
pub(crate) fn is_on_cuda() -> bool {
    std::env::var("KILN_DEVICE").is_ok_and(|name| name.starts_with("cuda"))
}

/// Returns the ids of `n` nodes.
pub(crate) fn nodes(n: u32) -> Tensor<1, Int> {
    let ids = TensorData::new((0..n).map(|row| row * 7 + 1).collect::<Vec<u32>>(), [n as usize]);
    Tensor::from_data(ids, (&device(), DType::U32))
}
