//! Sums over the units of a plane and of a cube.
//!
//! With `syncs`, the units of the plane are synchronized before the first shuffle, so that none of them is still in a branch
//! that the others did not take: a shuffle is executed by the units that are together, and those would read undefined
//! values from a unit that is not. Between shuffles there is no branch. All units of the plane must call the function.

use cubecl::prelude::*;

/// The number of units of a plane for which the kernels with planes are made.
pub(super) const PLANE: u32 = 32;

/// The number of units of a cube.
pub(super) const UNITS: u32 = 256;

#[cube]
pub(super) fn capped_sum(a: u32, b: u32) -> u32 {
    let sum = a + b;
    select(sum < a, u32::MAX, sum)
}

/// The sum of the values of a plane's units up to and including this unit.
#[cube]
pub(super) fn plane_sum_up_to(value: u32, #[comptime] syncs: bool) -> u32 {
    if comptime!(syncs) {
        sync_plane();
    }
    let mut sum = value;
    let mut distance = 1u32;
    #[unroll]
    for _ in 0..comptime!(PLANE.ilog2()) {
        let before = plane_shuffle_up(sum, distance);
        sum = select(UNIT_POS_PLANE >= distance, capped_sum(before, sum), sum);
        distance *= 2;
    }
    sum
}

/// The sum of the values before this unit's, from the result of [`plane_sum_up_to`].
#[cube]
pub(super) fn plane_sum_before(sum_up_to: u32, #[comptime] syncs: bool) -> u32 {
    if comptime!(syncs) {
        sync_plane();
    }
    let before = plane_shuffle_up(sum_up_to, 1u32);
    select(UNIT_POS_PLANE == 0, 0u32, before)
}

/// The sum of the values of all units of a cube. `sums` has one entry per plane.
#[cube]
pub(super) fn cube_sum(value: u32, sums: &mut [u32], #[comptime] syncs: bool) -> u32 {
    let up_to = plane_sum_up_to(value, syncs);
    if UNIT_POS_PLANE == PLANE - 1 {
        sums[(UNIT_POS / PLANE) as usize] = up_to;
    }
    sync_cube();
    let mut sum = 0u32;
    for plane in 0..comptime!(UNITS / PLANE) {
        sum = capped_sum(sum, sums[plane as usize]);
    }
    sync_cube();
    sum
}
