//! The lanes of a vector.

use cubecl::prelude::*;

/// Adds the lanes of a vector in their order.
#[cube]
pub(super) fn sum_of_lanes<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut sum = f32::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        sum += vector.extract(lane);
    }
    sum
}
