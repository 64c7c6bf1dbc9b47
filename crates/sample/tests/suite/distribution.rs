//! Chi-square tests of uniformity over many keys. The keys are fixed, so the results are deterministic.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use kiln_graph::NodeId;
use kiln_sample::{Fanout, FrontierSampler, KeyDomain, NeighborSampler, RngKey, Rule, Scratch, Seeds};
use kiln_testkit::{chi_square_p_value, hub};

/// The smallest accepted p-value. A correct generator gives a smaller p-value for one in ten thousand keys.
const LEAST_P_VALUE: f64 = 1e-4;

/// Counts how often each neighbour of a hub is picked over many steps.
fn pick_counts(sampler: &impl FrontierSampler, degree: usize, n_steps: u64) -> Vec<u64> {
    let mut counts = vec![0; degree];
    let mut scratch = Scratch::default();
    let seeds = Seeds::nodes(vec![NodeId(0)]);
    for step in 0..n_steps {
        let key = RngKey::new(11).fold_in(KeyDomain::Step, step);
        for edge in sampler.sample_blocks(&seeds, key, &mut scratch).unwrap().blocks[0].edge_ids() {
            counts[edge.index()] += 1;
        }
    }
    counts
}

#[test]
fn neighbours_are_equally_likely_without_replacement() {
    for (degree, fanout) in [(20u32, 5u32), (100, 10), (64, 60)] {
        let sampler = NeighborSampler::new(hub(degree), [Fanout::UpTo(fanout)]);
        let n_steps = 20_000;
        let counts = pick_counts(&sampler, degree as usize, n_steps);
        let mean = n_steps as f64 * f64::from(fanout) / f64::from(degree);
        // The picks of one step are distinct, so the variance of the counts is smaller than for independent picks,
        // by the factor (degree - fanout) / (degree - 1). The counts are scaled to the variance of chi-square.
        let shrink = (f64::from(degree - fanout) / f64::from(degree - 1)).sqrt();
        let scaled: Vec<u64> =
            counts.iter().map(|&count| (mean + (count as f64 - mean) / shrink).round() as u64).collect();
        let p = chi_square_p_value(&scaled, &vec![mean; degree as usize]);
        assert!(p > LEAST_P_VALUE && p < 1.0 - LEAST_P_VALUE, "{fanout} of {degree}: p = {p}, {counts:?}");
    }
}

#[test]
fn neighbours_are_equally_likely_with_replacement() {
    let sampler = NeighborSampler::with_rule(hub(37), [Fanout::UpTo(8)], Rule::UniformWithReplacement);
    let counts = pick_counts(&sampler, 37, 20_000);
    let p = chi_square_p_value(&counts, &[8.0 * 20_000.0 / 37.0; 37]);
    assert!(p > LEAST_P_VALUE && p < 1.0 - LEAST_P_VALUE, "p = {p}, {counts:?}");
}

/// Tests that all pairs of neighbours are equally likely, which does not follow from equally likely single neighbours.
#[test]
fn pairs_of_neighbours_are_equally_likely() {
    let sampler = NeighborSampler::new(hub(6), [Fanout::UpTo(2)]);
    let mut counts = [0u64; 36];
    let mut scratch = Scratch::default();
    for step in 0..30_000 {
        let key = RngKey::new(3).fold_in(KeyDomain::Step, step);
        let sampled = sampler.sample_blocks(&Seeds::nodes(vec![NodeId(0)]), key, &mut scratch).unwrap();
        let edges = sampled.blocks[0].edge_ids();
        counts[edges[0].index() * 6 + edges[1].index()] += 1;
    }
    let pairs: Vec<u64> = counts.into_iter().filter(|&count| count > 0).collect();
    assert_eq!(pairs.len(), 15);
    let p = chi_square_p_value(&pairs, &[2_000.0; 15]);
    assert!(p > LEAST_P_VALUE && p < 1.0 - LEAST_P_VALUE, "p = {p}, {pairs:?}");
}

/// Tests that the draws of adjacent layers, steps and nodes are uncorrelated.
#[test]
fn draws_of_layers_steps_and_nodes_are_independent() {
    let picked = |key: RngKey, node: u32| key.node(NodeId(node)).rng().below(4) as usize;
    let mut by_node = [0u64; 16];
    let mut by_layer = [0u64; 16];
    let mut by_step = [0u64; 16];
    for node in 0..40_000 {
        let key = RngKey::new(9);
        by_node[picked(key, node) * 4 + picked(key, node + 1)] += 1;
        let layer = |layer| picked(key.fold_in(KeyDomain::Layer, layer), node);
        by_layer[layer(0) * 4 + layer(1)] += 1;
        let step = |step| picked(key.fold_in(KeyDomain::Step, step), 5);
        by_step[step(u64::from(node)) * 4 + step(u64::from(node) + 1)] += 1;
    }
    for (what, counts) in [("nodes", by_node), ("layers", by_layer), ("steps", by_step)] {
        let p = chi_square_p_value(&counts, &[2_500.0; 16]);
        assert!(p > LEAST_P_VALUE && p < 1.0 - LEAST_P_VALUE, "{what}: p = {p}, {counts:?}");
    }
}
