//! Checks of ops and layers that need tensors, the reference that ops are checked against, and a view of
//! which implementation ran.

use std::io::Write;
use std::sync::Once;

#[cfg(feature = "cube")]
use burn::tensor::Int;
use burn::tensor::{DType, Device, Tensor, TensorData};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId, TransposedBlock};

use crate::counts;
use crate::device::block::{Adjacency, DeviceBlock};
use crate::device::devices::open_device;
use crate::device::read::{read_i64, to_vec_f32};

pub mod reference;

pub use crate::counts::{Launches, Reads};

/// The ops that ran on this thread during a call, gradients included.
pub fn launches_of(call: impl FnOnce()) -> Launches {
    let before = counts::so_far();
    call();
    let after = counts::so_far();
    Launches { direct: after.direct - before.direct, reference: after.reference - before.reference }
}

/// What came back from devices on this thread during a call.
pub fn reads_of(call: impl FnOnce()) -> Reads {
    let before = counts::reads_so_far();
    call();
    let after = counts::reads_so_far();
    Reads { n_reads: after.n_reads - before.n_reads, n_bytes: after.n_bytes - before.n_bytes }
}

/// The device that tests run on: that of the name in the environment variable `KILN_DEVICE` ([`open_device`]), or the
/// processor where that is not set.
///
/// # Panics
/// When there is no such device.
pub fn device() -> Device {
    match std::env::var("KILN_DEVICE") {
        Ok(name) => open_device(&name).unwrap_or_else(|error| panic!("KILN_DEVICE: {error}")),
        Err(_) => Device::flex(),
    }
}

/// Whether kernels of this element type run on a device; where they do not, standard output says what is skipped. CubeCL's
/// CPU runtime reports bf16 on every processor, but its compiler calls a function that is not there (`__truncsfbf2`) where
/// the processor has no instruction for it.
pub fn supports(device: &Device, dtype: DType) -> bool {
    let is_missing = dtype == DType::BF16 && is_cube_cpu(device) && !has_bf16_instructions();
    if is_missing {
        static ONCE: Once = Once::new();
        // Past the harness, which keeps what a test that passes prints.
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

/// A tensor of numbers in `[-1, 1)` that look random and are the same everywhere.
pub fn ramp<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let n_values: usize = shape.iter().product();
    // The golden ratio's multiples modulo 1 spread evenly and do not repeat (Weyl 1916).
    let values = (0..n_values as u32).map(|idx| idx.wrapping_mul(2_654_435_769) >> 8);
    let values: Vec<f32> = values.map(|word| word as f32 / 8_388_608.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The values of a tensor, row by row.
///
/// # Panics
/// When they are not f32: a test should see that an op changed the element type.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    assert_eq!(tensor.dtype(), DType::F32, "the tensor's element type");
    to_vec_f32(tensor)
}

/// A copy of a tensor on the CPU, where expected values are computed: Burn's matrix products round f32 to TF32 on CUDA, and
/// take seconds each on CubeCL's CPU runtime.
pub fn on_cpu<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values(tensor.clone()), tensor.dims()), &Device::flex())
}

/// Checks that two lists of numbers are equal up to `tolerance`, absolutely where they are below 1 and
/// relatively above.
///
/// # Panics
/// When they are not, with the first place.
pub fn check_close(got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "numbers of values");
    for (idx, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "value {idx}: got {got}, expected {expected}");
    }
}

/// The step of the finite differences. Values are about 1 and sums about 10, where f32 resolves 1e-6, so
/// a difference over this step has an error of about 1e-4 from rounding.
const STEP: f32 = 1.0 / 64.0;

/// What a gradient may differ from the finite difference, of which the step's square is the larger part
/// for smooth functions.
pub const GRADIENT_TOLERANCE: f32 = 5e-3;

/// Checks the gradient of a function of one tensor against central differences of a fixed weighted sum
/// of its results.
///
/// It costs two calls of `f` for each value of `x`. At a kink (an equal maximum, a ReLU at 0) the two
/// differ by right: choose an `x` that is away from them.
///
/// # Panics
/// When a value of the gradient differs by more than [`GRADIENT_TOLERANCE`], with its place.
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
    let mut expected = Vec::with_capacity(x.len());
    for idx in 0..x.len() {
        let mut moved = x.clone();
        moved[idx] = x[idx] + STEP;
        let above = weighted(&moved);
        moved[idx] = x[idx] - STEP;
        let below = weighted(&moved);
        expected.push(((above - below) / f64::from(2.0 * STEP)) as f32);
    }
    check_close(&values(gradient), &expected, GRADIENT_TOLERANCE);
}

/// A block read back from its device.
///
/// # Panics
/// When its arrays contradict each other.
pub fn read_block(block: &DeviceBlock) -> Block {
    let Adjacency { indptr, indices, .. } = block.adjacency();
    let read = |array| read_i64(Tensor::from_dispatch(array)).into_iter();
    Block::new(BlockParts {
        srcs: read_i64(block.src_nodes().clone()).into_iter().map(|id| NodeId(id as u32)).collect(),
        indptr: read(indptr).map(|start| start as u32).collect(),
        indices: read(indices).map(|local| LocalId(local as u32)).collect(),
        edge_ids: read_i64(block.edge_ids().clone()).into_iter().map(|edge| EdgeId(edge as u64)).collect(),
        weights: block.weights().cloned().map(to_vec_f32),
    })
}

/// A block's edges by source as its device lists them, as the arrays of [`TransposedBlock`]: `indptr`, `dsts`, `edges`.
///
/// # Panics
/// When the device fails.
pub fn read_by_source(block: &DeviceBlock) -> [Vec<u32>; 3] {
    #[cfg(feature = "cube")]
    {
        let Adjacency { indptr, indices, n_src, .. } = block.adjacency();
        let array = |tensor| Tensor::<1, Int>::from_dispatch(tensor).try_into_primitive::<CubeBackend>();
        if let (Ok(indptr), Ok(indices)) = (array(indptr), array(indices)) {
            return crate::cube::by_source::Transposed::list(&indptr, &indices, n_src).read();
        }
    }
    let listed = TransposedBlock::of(&read_block(block));
    [listed.indptr().to_vec(), listed.dsts().to_vec(), listed.edges().to_vec()]
}

/// What a layer's result may change when the edges of each destination change places: sums of a few
/// numbers of about 1 in another order.
const ORDER_TOLERANCE: f32 = 1e-5;

/// Checks a layer on a block: the shape of its result, that the order of a destination's edges does not
/// matter, and its gradient for its input by [`check_gradient`].
///
/// # Panics
/// When one of these does not hold.
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
    assert_eq!(result.dims(), [block.n_dst(), d_out], "the result's shape");
    let reversed = DeviceBlock::upload(&with_reversed_edges(block), device);
    check_close(&values(layer(&reversed, x.clone())), &values(result), ORDER_TOLERANCE);
    check_gradient(x, |x| layer(&uploaded, x));
}

/// The same block with the edges of each destination in opposite order.
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
