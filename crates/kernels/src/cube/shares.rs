//! The share of each edge in the edges of its type at its destination.
//!
//! ```text
//! out[e] = w[e] / sum over the edges f of e's destination and type of |w[f]|
//! ```
//!
//! Without weights, each edge weighs 1. A share of weights that are all 0 is 0.
//!
//! * *Contract.* `out` is overwritten. The sum is in f32 and in the order of the edges; without weights it is a count.
//! * *Work distribution.* One unit per destination and type, which reads the edges of the destination twice. If a destination
//!   may have more edges than one unit adds, the sums are a [segment sum](super::segment_sum) instead, over the rows of the
//!   identity matrix that the types of the edges select, and one unit per edge divides.
//! * *Cost.* `8 n_types` bytes per edge, of which the caches hold all but the first 8, and 4 bytes written.

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::aggregate::by_dst;
use crate::cube::launch::{self, launch_units};
use crate::cube::segment_sum::SegmentSum;
use crate::cube::segments::{Segments, segment_of};
use crate::cube::sum_factor::Factor;
use crate::device::block::Adjacency;
use crate::ops::aggregation::Weights;

#[cube(launch, address_type = "dynamic")]
fn shares_kernel(
    indptr: &[u32],
    types: &[i32],
    weights: &[f32],
    out: &mut [f32],
    n_types: usize,
    #[comptime] is_typed: bool,
    #[comptime] is_weighted: bool,
) {
    let dst = ABSOLUTE_POS / n_types;
    if dst + 1 >= indptr.len() {
        terminate!();
    }
    let own = i32::cast_from(ABSOLUTE_POS - dst * n_types);
    let start = indptr[dst];
    let end = indptr[dst + 1];
    let mut count = 0u32;
    let mut sum = f32::new(0.0);
    for edge in start..end {
        let mut is_own = true;
        if comptime!(is_typed) {
            is_own = types[edge as usize] == own;
        }
        if is_own {
            if comptime!(is_weighted) {
                sum += weights[edge as usize].abs();
            } else {
                count += 1u32;
            }
        }
    }
    if comptime!(!is_weighted) {
        sum = f32::cast_from(count);
    }
    // A sum of 0 is that of weights of 0, whose quotients are 0.
    let divisor = sum.max(f32::new(comptime!(f32::MIN_POSITIVE)));
    for edge in start..end {
        let mut is_own = true;
        if comptime!(is_typed) {
            is_own = types[edge as usize] == own;
        }
        if is_own {
            let mut weight = f32::new(1.0);
            if comptime!(is_weighted) {
                weight = weights[edge as usize];
            }
            out[edge as usize] = weight / divisor;
        }
    }
}

/// Divides the weight of each edge by the sum of its destination and type.
#[cube(launch, address_type = "dynamic")]
fn divide_by_sums_kernel(
    indptr: &[u32],
    types: &[u32],
    weights: &[f32],
    sums: &[f32],
    out: &mut [f32],
    n_types: usize,
    #[comptime] is_weighted: bool,
) {
    let edge = ABSOLUTE_POS;
    if edge >= out.len() {
        terminate!();
    }
    let dst = segment_of(indptr, edge as u32);
    let sum = sums[dst * n_types + types[edge] as usize];
    let mut weight = f32::new(1.0);
    if comptime!(is_weighted) {
        weight = weights[edge];
    }
    // A sum of 0 is that of weights of 0, whose quotients are 0.
    out[edge] = weight / sum.max(f32::new(comptime!(f32::MIN_POSITIVE)));
}

/// Returns the shares in a block whose destinations may have many edges.
fn shares_of_hubs(
    block: &Adjacency<CubeBackend>,
    types: CubeTensor,
    n_types: usize,
    weights: Weights<CubeBackend>,
) -> CubeTensor {
    let identity: Vec<f32> =
        (0..n_types * n_types).map(|at| f32::from(u8::from(at % (n_types + 1) == 0))).collect();
    let identity = launch::upload_as(&types, &identity, DType::F32);
    let identity = CubeBackend::float_reshape(identity, Shape::new([n_types, n_types]));
    let types = match n_types {
        // The types of edges of one type are not given.
        1 => CubeBackend::int_mul_scalar(block.indices.clone(), 0.into()),
        _ => types,
    };
    let types = into_contiguous(types);
    let (factor, weights) = match weights {
        Weights::Ones => (Factor::One, None),
        Weights::Tensor(weights) => {
            let sizes = into_contiguous(CubeBackend::float_abs(weights.clone()));
            (Factor::OfEdge(sizes), Some(into_contiguous(weights)))
        }
    };
    let segments = Segments { items: types.clone(), ..by_dst(block) };
    let sums = SegmentSum { factor, ..segments.sum_of(identity) }.launch();
    let out = launch::new_tensor(&types, Shape::new([block.n_edges]), DType::F32);
    launch_units!(
        divide_by_sums_kernel,
        &out,
        block.n_edges,
        launch::buffer(&block.indptr),
        launch::buffer(&types),
        // Without weights, the kernel does not read the argument.
        launch::buffer(weights.as_ref().unwrap_or(&sums)),
        launch::buffer(&sums),
        launch::buffer(&out),
        n_types,
        weights.is_some()
    );
    out
}

/// Returns the shares, `[n_edges]`, as f32. `types` are i32, and are not read if there is one type.
pub(super) fn shares(
    block: &Adjacency<CubeBackend>,
    types: CubeTensor,
    n_types: usize,
    weights: Weights<CubeBackend>,
) -> CubeTensor {
    let out = launch::new_tensor(&types, Shape::new([block.n_edges]), DType::F32);
    if block.n_edges == 0 {
        return out;
    }
    if by_dst(block).may_be_long() {
        return shares_of_hubs(block, types, n_types, weights);
    }
    let types = into_contiguous(types);
    let (is_weighted, weights) = match weights {
        // The kernel does not read the weights then.
        Weights::Ones => (false, launch::new_tensor(&types, Shape::new([1]), DType::F32)),
        Weights::Tensor(weights) => (true, into_contiguous(weights)),
    };
    let n_units = block.n_dst * n_types;
    launch_units!(
        shares_kernel,
        &out,
        n_units,
        launch::buffer(&block.indptr),
        launch::buffer(&types),
        launch::buffer(&weights),
        launch::buffer(&out),
        n_types,
        1 < n_types,
        is_weighted
    );
    out
}
