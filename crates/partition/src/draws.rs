use kiln_graph::NodeId;
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Shuffles nodes by the Fisher-Yates algorithm, from the last position to the first, as `docs/rng.md` specifies.
pub(crate) fn shuffle(nodes: &mut [NodeId], seed: u64) {
    let mut draws = Xoshiro256StarStar::seed_from_u64(seed);
    for last in (1..nodes.len()).rev() {
        let other = ((u128::from(draws.next_u64()) * (last as u128 + 1)) >> 64) as usize;
        nodes.swap(last, other);
    }
}
