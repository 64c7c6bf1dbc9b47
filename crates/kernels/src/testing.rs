//! Test helpers: checks of ops, gradients and layers, the reference ops that they are compared to, and counters of the
//! implementations that ran.

use std::io::Write;
use std::sync::{Arc, Once};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;
use kiln_feature::{EdgeFeatures, FeatureStore};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId, TransposedBlock};

use crate::counts;
use crate::device::block::{Adjacency, DeviceBlock};
use crate::device::devices::{is_cpu, open_device};
use crate::device::error::UploadError;
use crate::device::features::DeviceFeatures;
use crate::device::read::{read_i64, to_vec_f32};
use crate::ops::MatmulPrecision;
use crate::sampling::edge_features::DeviceEdgeColumn;
use crate::sampling::graph::DeviceGraph;
use crate::smoke::loss_and_gradient;

pub mod reference;

pub use crate::counts::{Launches, Reads, Uploads};

/// Counts the ops that run on this thread during a call, including those of the backward pass.
pub fn launches_of(call: impl FnOnce()) -> Launches {
    let before = counts::so_far();
    call();
    let after = counts::so_far();
    Launches { direct: after.direct - before.direct, reference: after.reference - before.reference }
}

/// Counts the reads from devices on this thread during a call.
pub fn reads_of(call: impl FnOnce()) -> Reads {
    let before = counts::reads_so_far();
    call();
    let after = counts::reads_so_far();
    Reads { n_reads: after.n_reads - before.n_reads, n_bytes: after.n_bytes - before.n_bytes }
}

/// Counts the bytes of feature rows that this thread sends to devices during a call.
pub fn uploads_of(call: impl FnOnce()) -> Uploads {
    let before = counts::uploads_so_far();
    call();
    let after = counts::uploads_so_far();
    Uploads {
        n_bytes: after.n_bytes - before.n_bytes,
        n_pinned_bytes: after.n_pinned_bytes - before.n_pinned_bytes,
    }
}

/// Same as [`DeviceFeatures::hottest`], but splits the table into parts of at most `part_bytes` bytes, as if the device
/// could not allocate more at once.
///
/// # Errors
/// Same as [`DeviceFeatures::hottest`].
pub fn features_in_parts(
    source: Arc<dyn FeatureStore>,
    hotness: &[u32],
    n_bytes: u64,
    part_bytes: u64,
    device: &Device,
) -> Result<DeviceFeatures, UploadError> {
    DeviceFeatures::hottest_in_parts(source, hotness, n_bytes, part_bytes, device)
}

/// Same as [`DeviceEdgeColumn::new`], but splits the table into parts of at most `part_bytes` bytes.
///
/// # Errors
/// Same as [`DeviceEdgeColumn::new`].
pub fn edge_features_in_parts(
    features: EdgeFeatures,
    part_bytes: u64,
    graph: &DeviceGraph,
) -> Result<DeviceEdgeColumn, UploadError> {
    DeviceEdgeColumn::in_parts("features", features, part_bytes, graph)
}

/// Returns the number of parts of a table of edge features. Rows on the host are one part.
pub fn n_parts_of_edges(features: &DeviceEdgeColumn) -> usize {
    features.n_parts()
}

/// Returns the number of parts of a table of feature rows. On the CPU, where there is no table, it is 1.
pub fn n_parts(features: &DeviceFeatures) -> usize {
    features.n_parts()
}

/// Returns the size of the largest page in CubeCL's pools of a device's memory, or `None` for a device without CubeCL
/// kernels.
#[cfg_attr(not(feature = "cube"), expect(unused_variables, reason = "no device has CubeCL kernels"))]
pub fn largest_page_bytes(device: &Device) -> Option<u64> {
    #[cfg(feature = "cube")]
    if let Some(anchor) = crate::cube::launch::anchor(device) {
        return Some(crate::cube::launch::largest_page_bytes(&anchor));
    }
    None
}

/// Returns the device that tests run on: the one that the environment variable `KILN_DEVICE` names (see
/// [`open_device`]), or the CPU if it is not set.
///
/// # Panics
/// Panics if there is no such device.
pub fn device() -> Device {
    match std::env::var("KILN_DEVICE") {
        Ok(name) => open_device(&name)
            .unwrap_or_else(|error| panic!("the device that KILN_DEVICE names could not be opened: {error}")),
        Err(_) => Device::flex(),
    }
}

/// Returns true if kernels of this element type run on a device.
///
/// CubeCL's CPU runtime reports bf16 on every CPU, but on a CPU without AVX-512 BF16 instructions its compiler calls a
/// function that does not exist (`__truncsfbf2`). There, this function returns false for bf16 and prints a `kiln-skip:`
/// line once.
pub fn supports(device: &Device, dtype: DType) -> bool {
    let is_missing = dtype == DType::BF16 && is_cube_cpu(device) && !has_bf16_instructions();
    if is_missing {
        static ONCE: Once = Once::new();
        // `writeln!` bypasses the test harness, which captures the `println!` output of passing tests.
        let reason = "CubeCL's CPU runtime compiles them on processors with AVX-512 BF16 only";
        ONCE.call_once(|| drop(writeln!(std::io::stdout(), "kiln-skip: gpu: bf16 kernels: {reason}")));
    }
    device.supports_dtype(dtype) && !is_missing
}

fn is_cube_cpu(device: &Device) -> bool {
    #[cfg(feature = "cube-cpu")]
    return device.clone().inner() == Device::cpu();
    #[cfg(not(feature = "cube-cpu"))]
    {
        let _ = device;
        false
    }
}

fn has_bf16_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns a tensor of irregular values in `[-1, 1)` that depend on the shape only and are the same on every platform.
pub fn ramp<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let n_values: usize = shape.iter().product();
    // Multiples of the golden ratio modulo 1 are evenly distributed and do not repeat (Weyl 1916).
    let values = (0..n_values as u32).map(|idx| idx.wrapping_mul(2_654_435_769) >> 8);
    let values: Vec<f32> = values.map(|word| word as f32 / 8_388_608.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns the values of a tensor in row-major order.
///
/// # Panics
/// Panics if the tensor is not f32, so that a test notices an op that changes the element type.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    assert_eq!(tensor.dtype(), DType::F32, "the tensor should be f32");
    to_vec_f32(tensor)
}

/// Copies a tensor to the CPU. Tests compute expected values there, because Burn's matrix products round f32 to TF32 on
/// CUDA and are very slow on CubeCL's CPU runtime.
pub fn on_cpu<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values(tensor.clone()), tensor.dims()), &Device::flex())
}

/// Checks that two lists of numbers are equal up to `tolerance`, which is absolute for expected values below 1 and
/// relative for larger ones.
///
/// # Panics
/// Panics if the lengths differ or a value is out of tolerance; the message names the first such index.
pub fn check_close(got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "the numbers of values differ");
    for (idx, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "value {idx}: got {got}, expected {expected}");
    }
}

/// The step of the finite differences. Values are about 1 and sums about 10, where the resolution of f32 is about 1e-6;
/// rounding therefore changes a difference quotient by about 1e-4.
const STEP: f32 = 1.0 / 64.0;

/// The tolerance of a gradient against its finite difference. For smooth functions, the larger part of the error grows
/// with the square of the step.
pub const GRADIENT_TOLERANCE: f32 = 5e-3;

/// The largest number of values of a tensor that [`check_gradient`] moves on another device than the CPU.
const MOST_MOVED: usize = 8;

/// Checks the gradient of a function of one tensor against central differences of a fixed weighted sum
/// of its results.
///
/// It calls `f` once, and then twice for each value of `x` that it moves: all of them on the CPU, and on another device,
/// where a call launches all kernels of `f`, at most eight, evenly spaced from the first to the last. At a kink (two equal
/// maxima, a ReLU at 0) the function has no derivative and the check may fail: choose an `x` away from kinks.
///
/// # Panics
/// Panics if a value of the gradient differs by more than [`GRADIENT_TOLERANCE`]; the message has its position among the
/// moved values.
pub fn check_gradient<const D: usize, const E: usize>(x: Tensor<D>, f: impl Fn(Tensor<D>) -> Tensor<E>) {
    let plain = x.device().inner();
    let shape = x.dims();
    let x = values(x);
    let tensor =
        |x: &[f32], device: &Device| Tensor::<D>::from_data(TensorData::new(x.to_vec(), shape), device);
    let tracked = tensor(&x, &plain.clone().autodiff()).require_grad();
    let result = f(tracked.clone());
    let factors = ramp(result.dims(), &result.device());
    let grads = (result * factors.clone()).sum().backward();
    let gradient = tracked.grad(&grads).expect("the function's result should depend on its argument");
    let factors = values(factors);
    let weighted = |x: &[f32]| -> f64 {
        let result = values(f(tensor(x, &plain.clone().autodiff())));
        result.iter().zip(&factors).map(|(value, factor)| f64::from(*value) * f64::from(*factor)).sum()
    };
    let gradient = values(gradient);
    let n_moved = if is_cpu(&plain) { x.len() } else { x.len().min(MOST_MOVED) };
    let indices = (0..n_moved).map(|nth| nth * (x.len() - 1) / (n_moved - 1).max(1));
    let mut got = Vec::with_capacity(n_moved);
    let mut expected = Vec::with_capacity(n_moved);
    for idx in indices {
        got.push(gradient[idx]);
        let mut moved = x.clone();
        moved[idx] = x[idx] + STEP;
        let above = weighted(&moved);
        moved[idx] = x[idx] - STEP;
        let below = weighted(&moved);
        expected.push(((above - below) / f64::from(2.0 * STEP)) as f32);
    }
    check_close(&got, &expected, GRADIENT_TOLERANCE);
}

/// Reads a block back from its device.
///
/// # Panics
/// Panics if the arrays of the block are inconsistent (see [`Block::new`]).
pub fn read_block(block: &DeviceBlock) -> Block {
    let Adjacency { indptr, indices, .. } = block.adjacency();
    let read = |array| read_i64(Tensor::from_dispatch(array)).into_iter();
    Block::new(BlockParts {
        srcs: read_i64(block.src_nodes().clone()).into_iter().map(|id| NodeId(id as u32)).collect(),
        indptr: read(indptr).map(|start| start as u32).collect(),
        indices: read(indices).map(|local| LocalId(local as u32)).collect(),
        edge_ids: read_i64(block.edge_ids().clone()).into_iter().map(|edge| EdgeId(edge as u64)).collect(),
        weights: block.weights().cloned().map(to_vec_f32),
        edge_types: block.edge_types().cloned().map(read_edge_types),
    })
}

/// Reads edge types back from their device.
fn read_edge_types(edge_types: Tensor<1, Int>) -> Vec<u8> {
    let read = read_i64(edge_types).into_iter();
    read.map(|edge_type| u8::try_from(edge_type).expect("an edge type should be below 256")).collect()
}

/// Returns the sources of a block's edges, `[n_edges]`, as they are on the device.
pub fn into_sources(block: DeviceBlock) -> Tensor<1, Int> {
    block.into_sources()
}

/// Returns the transposed block of a block, if the host has it.
pub fn transposed_on_host(block: &DeviceBlock) -> Option<&TransposedBlock> {
    block.transposed_on_host()
}

/// Returns the numbers of a device that [`smoke_test`](crate::smoke_test) compares with those of the CPU.
pub fn smoke_test_numbers(device: &Device) -> Vec<f32> {
    loss_and_gradient(device)
}

/// Builds the transposed block on the device and returns its arrays: `indptr`, `dsts` and `edges` (see
/// [`TransposedBlock`]). For a device without CubeCL kernels, the host builds the transposed block.
///
/// # Panics
/// Panics if the device fails.
pub fn read_by_source(block: &DeviceBlock) -> [Vec<u32>; 3] {
    #[cfg(feature = "cube")]
    {
        let Adjacency { indptr, indices, n_src, by_source, .. } = block.adjacency();
        let array = |tensor| Tensor::<1, Int>::from_dispatch(tensor).try_into_primitive::<CubeBackend>();
        if let (Ok(indptr), Ok(indices)) = (array(indptr), array(indices)) {
            return by_source.device(&indptr, &indices, n_src).read();
        }
    }
    let listed = TransposedBlock::of(&read_block(block));
    [listed.indptr().to_vec(), listed.dsts().to_vec(), listed.edges().to_vec()]
}

/// Computes the running sums of `values` on a device, `[n] -> [n + 1]`: the sum of the values before each position, and
/// the sum of all. Sums saturate at `u32::MAX`. Returns `None` for a device without CubeCL kernels.
///
/// # Panics
/// Panics if the device fails.
#[cfg_attr(not(feature = "cube"), expect(unused_variables, reason = "no device has CubeCL kernels"))]
pub fn running_sums(values: &[u32], device: &Device) -> Option<Vec<u32>> {
    #[cfg(feature = "cube")]
    if let Some(anchor) = crate::cube::launch::anchor(device) {
        return Some(crate::cube::scan::sums_of(&anchor, values));
    }
    None
}

/// Computes the matrix product of f32 values with a precision, `[n, k], [k, m] -> [n, m]`. Returns `None` for a device
/// without CubeCL kernels.
#[cfg_attr(not(feature = "cube"), expect(unused_variables, reason = "no device has CubeCL kernels"))]
pub fn product(left: &Tensor<2>, right: &Tensor<2>, precision: MatmulPrecision) -> Option<Tensor<2>> {
    #[cfg(feature = "cube")]
    {
        let array = |tensor: &Tensor<2>| tensor.clone().try_into_primitive::<burn_cubecl::CubeBackend>().ok();
        let product = crate::cube::dense::product_with(array(left)?, array(right)?, precision);
        Some(Tensor::from_primitive::<burn_cubecl::CubeBackend>(product))
    }
    #[cfg(not(feature = "cube"))]
    None
}

/// Computes the gradient of a weight in f32 with a precision, `[n, d_in], [n, d_out] -> [d_in, d_out]`. Returns `None` for
/// a device without CubeCL kernels.
#[cfg_attr(not(feature = "cube"), expect(unused_variables, reason = "no device has CubeCL kernels"))]
pub fn weight_gradient(x: &Tensor<2>, grad: &Tensor<2>, precision: MatmulPrecision) -> Option<Tensor<2>> {
    #[cfg(feature = "cube")]
    {
        let array = |tensor: &Tensor<2>| tensor.clone().try_into_primitive::<CubeBackend>().ok();
        let gradient = crate::cube::dense::weight_gradient_with(array(x)?, array(grad)?, precision);
        Some(Tensor::from_primitive::<CubeBackend>(gradient))
    }
    #[cfg(not(feature = "cube"))]
    None
}

/// The tolerance of a layer's result when the edges of each destination are reordered. A few numbers of about 1 are
/// then added in another order.
const ORDER_TOLERANCE: f32 = 1e-5;

/// Checks a layer on a block: the shape of its result, its independence of the order of a destination's edges, and its
/// gradient with respect to its input by [`check_gradient`].
///
/// # Panics
/// Panics if one of these checks fails.
pub fn check_layer(
    block: &Block,
    d_in: usize,
    d_out: usize,
    device: &Device,
    layer: impl Fn(&DeviceBlock, Tensor<2>) -> Tensor<2>,
) {
    let uploaded = DeviceBlock::upload(block, device);
    let x = ramp([block.n_src(), d_in], device);
    let result = layer(&uploaded, x.clone());
    assert_eq!(result.dims(), [block.n_dst(), d_out], "the result should be [n_dst, d_out]");
    let reversed = DeviceBlock::upload(&with_reversed_edges(block), device);
    check_close(&values(layer(&reversed, x.clone())), &values(result), ORDER_TOLERANCE);
    check_gradient(x, |x| layer(&uploaded, x));
}

/// Returns a copy of the block with the edges of each destination in reverse order.
fn with_reversed_edges(block: &Block) -> Block {
    let mut parts: BlockParts = block.clone().into_parts();
    for range in block.indptr().windows(2) {
        let edges = range[0] as usize..range[1] as usize;
        parts.indices[edges.clone()].reverse();
        parts.edge_ids[edges.clone()].reverse();
        if let Some(weights) = &mut parts.weights {
            weights[edges].reverse();
        }
    }
    Block::new(parts)
}
