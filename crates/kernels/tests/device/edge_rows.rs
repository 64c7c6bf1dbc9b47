//! Sums of messages with a row per edge: results and gradients against Burn's operations.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::{Device, Int, Tensor, TensorData};
use kiln_graph::{Block, BlockParts};
use kiln_kernels::testing::{check_close, check_gradient, device, launches_of, ramp, values};
use kiln_kernels::{DeviceBlock, ops};

use super::common::{six_nodes, with_hub};

const TOLERANCE: f32 = 1e-5;
const HUB_TOLERANCE: f32 = 2e-4;

/// The definition in Burn's operations: a product with a matrix that is 1 for each edge and its destination.
fn written_down(host: &Block, x: Tensor<2>, rows: Tensor<2>) -> Tensor<2> {
    let (n_edges, device) = (host.n_edges(), x.device());
    let sources: Vec<i32> = host.indices().iter().map(|src| src.0 as i32).collect();
    let sources = Tensor::<1, Int>::from_data(TensorData::new(sources, [n_edges]), &device);
    let mut into = vec![0.0_f32; host.n_dst() * n_edges];
    for (dst, ends) in host.indptr().windows(2).enumerate() {
        into[dst * n_edges..][ends[0] as usize..ends[1] as usize].fill(1.0);
    }
    let into = Tensor::<2>::from_data(TensorData::new(into, [host.n_dst(), n_edges]), &device);
    into.matmul((x.select(0, sources) + rows).clamp_min(0.0))
}

fn check(host: &Block, width: usize, tolerance: f32) {
    let run = |device: &Device, op: &dyn Fn(Tensor<2>, Tensor<2>) -> Tensor<2>| {
        let x = ramp([host.n_src(), width], device).require_grad();
        let rows = (ramp([host.n_edges(), width], device) * -0.6 + 0.03).require_grad();
        let result = op(x.clone(), rows.clone());
        let grads = (result.clone() * ramp(result.dims(), device)).sum().backward();
        [result, x.grad(&grads).unwrap(), rows.grad(&grads).unwrap()].map(values)
    };
    let block = DeviceBlock::upload(host, &device());
    let got = run(&device().autodiff(), &|x, rows| ops::edge_relu_sum(&block, x, rows));
    // On the CPU, because Burn's products on CUDA round their inputs.
    let expected = run(&Device::flex().autodiff(), &|x, rows| written_down(host, x, rows));
    for (got, expected) in got.iter().zip(&expected) {
        assert!(expected.contains(&0.0) && expected.iter().any(|value| *value != 0.0));
        check_close(got, expected, tolerance);
    }
}

#[test]
fn sums_and_their_gradients_equal_the_definition() {
    for width in [1, 3, 16, 33, 130] {
        check(&six_nodes(), width, TOLERANCE);
    }
    check(&with_hub(), 8, HUB_TOLERANCE);
}

#[test]
fn gradients_equal_differences() {
    let host = six_nodes();
    let device = device().autodiff();
    let block = DeviceBlock::upload(&host, &device);
    // No sum of two rows is near the kink of the ReLU.
    let far = (0..3 * host.n_edges()).map(|i| if i % 5 < 3 { 2.5 } else { -2.5 }).collect::<Vec<f32>>();
    let rows = Tensor::<2>::from_data(TensorData::new(far, [host.n_edges(), 3]), &device);
    check_gradient(ramp([host.n_src(), 3], &device), |x| ops::edge_relu_sum(&block, x, rows.clone()));
    let x = ramp([host.n_src(), 3], &device);
    check_gradient(rows.clone(), |rows| ops::edge_relu_sum(&block, x.clone(), rows));
}

/// The op and each of its gradients are one loop or kernel.
#[test]
fn no_message_is_stored() {
    let device = device().autodiff();
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device);
    let x = ramp([host.n_src(), 8], &device).require_grad();
    let rows = ramp([host.n_edges(), 8], &device).require_grad();
    let launches = launches_of(|| {
        ops::edge_relu_sum(&block, x, rows).sum().backward();
    });
    assert_eq!((launches.direct, launches.reference), (3, 0));
}

#[test]
fn a_block_without_edges_gives_zeros() {
    let device = device().autodiff();
    let host = Block::new(BlockParts {
        srcs: six_nodes().srcs()[..3].to_vec(),
        indptr: vec![0; 3],
        ..BlockParts::default()
    });
    let block = DeviceBlock::upload(&host, &device);
    let x = ramp([3, 4], &device).require_grad();
    let rows = Tensor::<2>::from_data(TensorData::new(Vec::<f32>::new(), [0, 4]), &device).require_grad();
    let result = ops::edge_relu_sum(&block, x.clone(), rows);
    let grads = result.clone().sum().backward();
    assert_eq!((values(result), values(x.grad(&grads).unwrap())), (vec![0.0; 8], vec![0.0; 12]));
}
