//! The uniform rule in CubeCL: from the same draws, it picks the same neighbours.

use kiln::kernels::cubecl::prelude::*;
use kiln::kernels::{CubeRule, DeviceNeighbors, DeviceRule, NeighborLists, NodeDraws, cubecl};

pub(crate) struct UniformInCube(pub(crate) DeviceRule);

impl Default for UniformInCube {
    fn default() -> Self {
        Self(DeviceRule::new::<Self>())
    }
}

#[cube]
impl CubeRule for UniformInCube {
    fn n_picks(degree: u32, fanout: u32) -> u32 {
        min(degree, fanout)
    }

    fn pick(neighbors: &DeviceNeighbors, _lists: &NeighborLists, draws: &NodeDraws, picks: &mut [u32]) {
        let degree = neighbors.degree;
        let n_picks = picks.len() as u32;
        let mut n_picked = 0u32;
        for position in 0..degree {
            if draws.below(position, degree - position) < n_picks - n_picked {
                picks[n_picked as usize] = position;
                n_picked += 1;
            }
        }
    }
}
