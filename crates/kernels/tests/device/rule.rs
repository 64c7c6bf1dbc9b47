//! A custom rule in Rust and in CubeCL, which the tests of samplers run besides the built-in rules.

use std::any::Any;

#[cfg(feature = "cube")]
use kiln_kernels::cubecl::prelude::*;
#[cfg(feature = "cube")]
use kiln_kernels::{CubeRule, DeviceNeighbors, DeviceRule, NeighborLists, NodeDraws, cubecl};
use kiln_sample::{Neighbors, NodeKey, Rule, SamplingRule, Selection};

/// Picks uniformly without replacement (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S), starting with a
/// neighbour that depends on the ids, so that the picks do not ascend.
struct Rotated {
    #[cfg(feature = "cube")]
    on_devices: DeviceRule,
}

impl SamplingRule for Rotated {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        let degree = neighbors.degree() as u32;
        let start = (neighbors.ids[0].0 + neighbors.ids[neighbors.degree() - 1].0) % degree;
        let mut rng = key.rng();
        let mut wanted = fanout;
        for position in 0..degree {
            if rng.below(degree - position) < wanted {
                picks.push((position + start) % degree);
                wanted -= 1;
            }
        }
    }

    fn device_rule(&self) -> Option<&(dyn Any + Send + Sync)> {
        #[cfg(feature = "cube")]
        return Some(&self.on_devices);
        #[cfg(not(feature = "cube"))]
        None
    }
}

#[cfg(feature = "cube")]
#[cube]
impl CubeRule for Rotated {
    fn n_picks(degree: u32, fanout: u32) -> u32 {
        min(degree, fanout)
    }

    fn pick(neighbors: &DeviceNeighbors, lists: &NeighborLists, draws: &NodeDraws, picks: &mut [u32]) {
        let degree = neighbors.degree;
        let start = (neighbors.id(lists, 0u32) + neighbors.id(lists, degree - 1)) % degree;
        let n_picks = picks.len() as u32;
        let mut n_picked = 0u32;
        for position in 0..degree {
            if draws.below(position, degree - position) < n_picks - n_picked {
                picks[n_picked as usize] = (position + start) % degree;
                n_picked += 1;
            }
        }
    }
}

/// Returns the built-in rules and a custom one.
pub(crate) fn rules() -> Vec<Rule> {
    let custom = Rotated {
        #[cfg(feature = "cube")]
        on_devices: DeviceRule::new::<Rotated>(),
    };
    Rule::BUILT_IN.into_iter().chain([Rule::from(custom)]).collect()
}
