use kiln_graph::NodeId;
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Brings nodes into a random order: Fisher and Yates from the last position down, as `docs/rng.md` has it.
pub(crate) fn shuffle(nodes: &mut [NodeId], seed: u64) {
    let mut draws = Xoshiro256StarStar::seed_from_u64(seed);
    for last in (1..nodes.len()).rev() {
        let other = ((u128::from(draws.next_u64()) * (last as u128 + 1)) >> 64) as usize;
        nodes.swap(last, other);
    }
}
