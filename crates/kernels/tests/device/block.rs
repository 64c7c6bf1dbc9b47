//! Tests of blocks on the CPU: arrays of the host that are taken over, edge types, and when the transposed block is built.

use burn::tensor::{DType, Device, Tensor};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId, TransposedBlock};
use kiln_kernels::ops::{self, Reduction};
use kiln_kernels::{DeviceBlock, testing};

fn host() -> Block {
    Block::new(BlockParts {
        srcs: (0..3).map(NodeId).collect(),
        indptr: vec![0, 2, 3],
        indices: [2, 1, 2].map(LocalId).to_vec(),
        edge_ids: (0..3).map(EdgeId).collect(),
        ..BlockParts::default()
    })
}

#[test]
fn takes_over_the_transposed_block_without_a_copy() {
    let mut carrying = host();
    carrying.transpose();
    let place = carrying.transposed().map(|transposed| transposed.dsts().as_ptr());
    let block = DeviceBlock::new(carrying, &Device::flex());
    let transposed = testing::transposed_on_host(&block);
    assert_eq!(transposed.map(|transposed| transposed.dsts().as_ptr()), place);
    assert_eq!(transposed, Some(&TransposedBlock::of(&host())));
}

#[test]
fn flex_tensors_take_over_the_arrays_without_a_copy() {
    let host = host();
    let place = host.indices().as_ptr().addr();
    let block = DeviceBlock::new(host, &Device::flex());
    #[expect(clippy::disallowed_methods, reason = "the test needs the address of the data")]
    let data = testing::into_sources(block).into_data();
    assert_eq!(data.as_bytes().as_ptr().addr(), place);
}

#[test]
fn edge_types_are_uploaded_as_i32() {
    let without = DeviceBlock::new(host(), &Device::flex());
    assert!(without.edge_types().is_none());
    let parts = BlockParts { edge_types: Some(vec![0, 255, 7]), ..host().into_parts() };
    let block = DeviceBlock::new(Block::new(parts), &Device::flex());
    let edge_types = block.edge_types().expect("the block should have edge types");
    assert_eq!((edge_types.dtype(), edge_types.dims()), (DType::I32, [3]));
    assert_eq!(testing::read_block(&block).edge_types(), Some([0, 255, 7].as_slice()));
    assert_eq!(block.n_bytes(), without.n_bytes() + 3 * size_of::<i32>());
}

#[test]
fn transposes_a_block_when_a_gradient_first_needs_it() {
    let device = Device::flex().autodiff();
    let block = DeviceBlock::new(host(), &device);
    let x = Tensor::<2>::ones([3, 4], &device);
    let scale = Tensor::<2>::ones([1, 4], &device).require_grad();
    let _ = (ops::aggregate(&block, x.clone(), Reduction::Mean) * scale).sum().backward();
    assert_eq!(testing::transposed_on_host(&block), None, "no list should be built for untracked rows");
    let clone = block.clone();
    let _ = ops::aggregate(&clone, x.require_grad(), Reduction::Mean).sum().backward();
    assert_eq!(
        testing::transposed_on_host(&block),
        Some(&TransposedBlock::of(&host())),
        "clones should share the transposed block"
    );
}
