//! The test vectors of `docs/rng.md`, which were computed by an independent program.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{CscBuilder, NodeId};
use kiln_sample::{Fanout, FrontierSampler, KeyDomain, NeighborSampler, RngKey, Rule, Scratch, Seeds};

/// The key of seed 0x0123456789abcdef, epoch 2, step 3.
fn step_key() -> RngKey {
    RngKey::new(0x0123_4567_89ab_cdef).fold_in(KeyDomain::Epoch, 2).fold_in(KeyDomain::Step, 3)
}

#[test]
fn folded_keys_match_documented_vectors() {
    let epoch = RngKey::new(0x0123_4567_89ab_cdef).fold_in(KeyDomain::Epoch, 2);
    assert_eq!(epoch.words(), [0xcefb_20d1, 0xe58c_551a]);
    assert_eq!(step_key().words(), [0x6765_f960, 0x57ca_27b1]);
    assert_eq!(step_key().fold_in(KeyDomain::Layer, 1).words(), [0xb64d_505a, 0x97e9_ce97]);
    assert_eq!(step_key().fold_in(KeyDomain::Layer, 1).to_u64(), 0x97e9_ce97_b64d_505a);
    let relation = step_key().fold_in(KeyDomain::Layer, 1).fold_in(KeyDomain::Relation, 3);
    assert_eq!(relation.words(), [0x7b4a_4715, 0x8a03_d030]);
}

#[test]
fn draws_match_documented_vectors() {
    let mut rng = step_key().fold_in(KeyDomain::Layer, 1).node(NodeId(42)).rng();
    let first: Vec<u32> = (0..6).map(|_| rng.next_u32()).collect();
    assert_eq!(first, [0x48d5_ef6f, 0x06af_d582, 0xa751_dec1, 0xeda9_d3bc, 0x7944_d54f, 0x73ab_a9f0]);
    let unit = step_key().fold_in(KeyDomain::Layer, 1).node(NodeId(42)).rng().unit_f32();
    assert_eq!(unit, 0x0048_d5ef as f32 / 16_777_216.0);
    let dropout = step_key().fold_in(KeyDomain::Dropout, 1);
    assert_eq!(dropout.draw4(0, 42, 1), [0x9dc6_093b, 0xf17d_4885, 0x9ce3_c07e, 0x392a_65f8]);
}

/// The picked edges of node 42 at layer 1, if it has `degree` neighbours.
fn picks(rule: Rule, degree: u32, fanout: u32) -> Vec<u64> {
    let srcs: Vec<u32> = (0..degree).map(|node| node % 43).collect();
    let graph = Arc::new(CscBuilder::new(43).build(&srcs, &vec![42; degree as usize]).unwrap());
    let sampler = NeighborSampler::with_rule(graph, [Fanout::All, Fanout::UpTo(fanout)], rule);
    let seeds = Seeds::nodes(vec![NodeId(42)]);
    let sampled = sampler.sample_blocks(&seeds, step_key(), &mut Scratch::default()).unwrap();
    sampled.blocks[1].edge_ids().iter().map(|edge| edge.0).collect()
}

#[test]
fn picks_match_documented_vectors() {
    assert_eq!(picks(Rule::Uniform, 100, 10), [2, 25, 28, 40, 43, 45, 60, 65, 79, 87]);
    assert_eq!(picks(Rule::Uniform, 12, 10), [0, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(picks(Rule::UniformWithReplacement, 100, 5), [2, 28, 47, 65, 92]);
}
