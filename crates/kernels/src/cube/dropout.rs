//! Keyed dropout of rows of nodes or of edges, alone or after a bias and a ReLU, and the gradient of the ReLU.
//!
//! ```text
//! out[r, c] = scale * x[r, c]    if word c % 4 of draw4(0, nodes[r], c / 4) >= threshold, otherwise 0
//! ```
//!
//! The words of an edge are those of `draw4(id >> 32, id mod 2^32, c / 4)`.
//!
//! * *Contract.* `out` is overwritten. The mask is computed in integer arithmetic and is identical to the host's
//!   (`docs/rng.md`). If nothing is dropped, nothing is drawn and `nodes` is not read.
//! * *Work distribution.* One unit per four neighbouring columns of a row, which share one group of draws, if the width
//!   is a multiple of four. Otherwise one unit per column, which draws a whole group for it.
//! * *Cost.* Memory-bound: `2 F b` bytes per row of `F` columns of `b` bytes (the gradient: `3 F b`). A group of draws
//!   takes 7 rounds of 4 multiplications.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_sample::RngKey;

use crate::cube::launch::{self, Rows, launch_units};
use crate::cube::philox::{draw4, word};
use crate::ops::keep::Keep;

/// The parameters of a dropout mask.
#[derive(CubeType, CubeLaunch)]
struct Mask {
    key_low: u32,
    key_high: u32,
    threshold: u32,
    scale: f32,
}

/// The ReLU. NaN stays NaN.
#[cube]
pub(super) fn relu<N: Size>(value: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::zeroed();
    select_many(value.less_than(&zero), zero, value)
}

/// The gradient of a ReLU from its output and the gradient of that.
#[cube]
pub(super) fn relu_adjoint<N: Size>(output: Vector<f32, N>, grad: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::zeroed();
    select_many(output.less_equal(&zero), zero, grad)
}

#[cube(launch, address_type = "dynamic")]
fn dropout_kernel<F: Float, N: Size>(
    x: &[Vector<F, N>],
    bias: &[Vector<F, N>],
    nodes: &[u32],
    out: &mut [Vector<F, N>],
    mask: &Mask,
    width: usize,
    stride: usize,
    #[comptime] has_bias: bool,
    #[comptime] has_relu: bool,
    #[comptime] is_masked: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let mut value = Vector::<f32, N>::cast_from(x[row * stride + column]);
    if comptime!(has_bias) {
        value += Vector::cast_from(bias[column]);
    }
    if comptime!(has_relu) {
        value = relu::<N>(value);
    }
    if comptime!(is_masked) {
        value = masked::<N>(value, mask, 0u32, nodes[row], column as u32);
    }
    out[ABSOLUTE_POS] = Vector::cast_from(value);
}

#[cube(launch, address_type = "dynamic")]
fn edge_dropout_kernel<F: Float, N: Size>(
    x: &[Vector<F, N>],
    edge_ids: &[i64],
    out: &mut [Vector<F, N>],
    mask: &Mask,
    width: usize,
    stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let value = Vector::<f32, N>::cast_from(x[row * stride + column]);
    let id = u64::cast_from(edge_ids[row]);
    let value = masked::<N>(value, mask, u32::cast_from(id >> 32), u32::cast_from(id), column as u32);
    out[ABSOLUTE_POS] = Vector::cast_from(value);
}

/// Masks a vector of columns; `column` counts vectors. A vector has one value or four.
#[cube]
fn masked<N: Size>(
    value: Vector<f32, N>,
    mask: &Mask,
    node_type: u32,
    node: u32,
    column: u32,
) -> Vector<f32, N> {
    let mut value = value;
    let first = column * (N::value() as u32);
    let words = draw4(mask.key_low, mask.key_high, node_type, node, first / 4);
    #[unroll]
    for lane in 0..N::value() {
        let kept = word(&words, (first + lane as u32) % 4) >= mask.threshold;
        value.insert(lane, select(kept, value.extract(lane) * mask.scale, f32::new(0.0)));
    }
    value
}

#[cube(launch, address_type = "dynamic")]
fn relu_dropout_adjoint_kernel<F: Float, N: Size>(
    output: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    width: usize,
    output_stride: usize,
    grad_stride: usize,
    scale: f32,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let output = Vector::<f32, N>::cast_from(output[row * output_stride + column]);
    let grad = Vector::<f32, N>::cast_from(grad[row * grad_stride + column]) * Vector::new(scale);
    out[ABSOLUTE_POS] = Vector::cast_from(relu_adjoint::<N>(output, grad));
}

/// Adds the bias to all rows if there is one, `[d]`, applies ReLU if `has_relu` is true, and then dropout, `[n, d], [n] -> [n, d]`.
pub(super) fn dropout(
    x: CubeTensor,
    bias: Option<CubeTensor>,
    nodes: CubeTensor,
    key: RngKey,
    keep: Keep,
    has_relu: bool,
) -> CubeTensor {
    let x = Rows::of(x);
    let n_rows = x.n_rows();
    let width = x.width();
    let out = Rows::new(x.tensor(), n_rows, width, x.tensor().dtype);
    if n_rows * width == 0 {
        return out.into_tensor();
    }
    let is_masked = !keep.is_everything();
    let bias = bias.map(into_contiguous);
    let of_bias = bias.as_ref().map_or(usize::MAX, |bias| launch::vector_size(bias, &[width]));
    let largest = x.vector_size(&[width]).min(of_bias);
    let vector_size = if is_masked { masked_vector_size(largest) } else { largest };
    launch_units!(
        dropout_kernel,
        x.tensor(),
        n_rows * width / vector_size,
        vector_size,
        x.buffer(vector_size),
        // Without a bias, the kernel does not read the argument.
        bias.as_ref().map_or_else(|| x.buffer(vector_size), |bias| launch::vectors(bias, vector_size)),
        launch::buffer(&into_contiguous(nodes)),
        out.buffer(vector_size),
        mask_of(key, keep),
        width / vector_size,
        x.stride / vector_size,
        bias.is_some(),
        has_relu,
        is_masked,
        launch::element(x.tensor())
    );
    out.into_tensor()
}

/// Applies dropout to the rows of edges, `[n_edges, d], [n_edges] -> [n_edges, d]`.
pub(super) fn edge_dropout(x: CubeTensor, edge_ids: CubeTensor, key: RngKey, keep: Keep) -> CubeTensor {
    let x = Rows::of(x);
    let n_rows = x.n_rows();
    let width = x.width();
    let out = Rows::new(x.tensor(), n_rows, width, x.tensor().dtype);
    if n_rows * width == 0 {
        return out.into_tensor();
    }
    let vector_size = masked_vector_size(x.vector_size(&[width]));
    launch_units!(
        edge_dropout_kernel,
        x.tensor(),
        n_rows * width / vector_size,
        vector_size,
        x.buffer(vector_size),
        launch::buffer(&edge_ids),
        out.buffer(vector_size),
        mask_of(key, keep),
        width / vector_size,
        x.stride / vector_size,
        launch::element(x.tensor())
    );
    out.into_tensor()
}

/// The size of the vectors that are masked: one group of random draws has four words, one for each of four values.
fn masked_vector_size(largest: usize) -> usize {
    if largest >= 4 { 4 } else { 1 }
}

fn mask_of(key: RngKey, keep: Keep) -> MaskLaunch {
    let [key_low, key_high] = key.words();
    MaskLaunch::new(key_low, key_high, keep.threshold(), keep.scale())
}

/// Computes the gradient of a ReLU with dropout that returned `output`, `[n, d], [n, d] -> [n, d]`.
pub(super) fn relu_dropout_adjoint(output: CubeTensor, grad: CubeTensor, keep: Keep) -> CubeTensor {
    let output = Rows::of(output);
    let grad = Rows::of(grad);
    let n_rows = grad.n_rows();
    let width = grad.width();
    let out = Rows::new(grad.tensor(), n_rows, width, grad.tensor().dtype);
    if n_rows * width == 0 {
        return out.into_tensor();
    }
    let vector_size = output.vector_size(&[width]).min(grad.vector_size(&[width]));
    launch_units!(
        relu_dropout_adjoint_kernel,
        grad.tensor(),
        n_rows * width / vector_size,
        vector_size,
        output.buffer(vector_size),
        grad.buffer(vector_size),
        out.buffer(vector_size),
        width / vector_size,
        output.stride / vector_size,
        grad.stride / vector_size,
        keep.scale(),
        launch::element(grad.tensor())
    );
    out.into_tensor()
}
