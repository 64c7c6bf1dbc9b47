//! The sampler of `layer_wise_sampler`: a naive reference of its picks, unbiased sums, and weights for any number of threads.
#![allow(clippy::unwrap_used, reason = "helper functions of tests may unwrap")]

use std::sync::Arc;

use kiln::data::synthetic::{FakeConfig, fake};
use kiln::graph::{Block, Csc, gcn_norm};
use kiln::prelude::*;
use kiln::sample::{CustomSampler, KeyDomain, RngKey, SamplerConfig, Scratch, Seeds};

#[allow(dead_code, reason = "the tests do not call the program's main function")]
#[path = "../src/bin/layer_wise_sampler.rs"]
mod layer_wise_sampler;

use layer_wise_sampler::Ladies;

fn data() -> Dataset {
    fake(FakeConfig { avg_num_nodes: 400, seed: 5, ..FakeConfig::default() }).unwrap()
}

fn ladies() -> CustomSampler {
    CustomSampler::try_new("ladies", Ladies::new)
}

fn graph() -> Arc<Csc> {
    Arc::new(gcn_norm(data().csc().unwrap()).unwrap())
}

fn blocks(graph: &Arc<Csc>, n_picks: [u32; 2], seed: u64) -> Vec<Block> {
    let sampler =
        ladies().create(graph, SamplerConfig::new(n_picks).with_weights(EdgeWeights::Unbiased)).unwrap();
    let seeds = Seeds::nodes((0..20).map(NodeId).collect());
    sampler.sample_blocks(&seeds, RngKey::new(seed), &mut Scratch::default()).unwrap().blocks
}

/// The edges of a block as destination, source and weight.
fn edges(block: &Block) -> Vec<(NodeId, NodeId, f32)> {
    let mut edges = Vec::new();
    for (row, &dst) in block.dsts().iter().enumerate() {
        for at in block.indptr()[row] as usize..block.indptr()[row + 1] as usize {
            edges.push((dst, block.global(block.indices()[at]), block.weights().unwrap()[at]));
        }
    }
    edges
}

/// Samples a layer by the definition, with a probability for each node of the graph.
fn reference(graph: &Csc, dsts: &[NodeId], n_picks: u32, key: RngKey) -> Vec<(NodeId, NodeId, f32)> {
    let mut edges = Vec::new();
    for &dst in dsts {
        let first = graph.first_edge(dst).0 as usize;
        for (at, &src) in graph.in_neighbors(dst).iter().enumerate() {
            edges.push((dst, src, f64::from(graph.weights().unwrap()[first + at])));
        }
    }
    let mut squares = vec![0.0; graph.n_nodes()];
    for (_, src, weight) in edges.iter().filter(|(dst, src, _)| src != dst) {
        squares[src.index()] += weight * weight;
    }
    let total: f64 = squares.iter().sum();
    let mut picked = Vec::new();
    for (dst, src, weight) in edges {
        let probability = match src == dst {
            true => 1.0,
            false => (squares[src.index()] * f64::from(n_picks) / total).min(1.0),
        };
        if f64::from(key.node(src).rng().unit_f32()) < probability {
            picked.push((dst, src, (weight / probability) as f32));
        }
    }
    picked
}

#[test]
fn picks_are_those_of_a_naive_reference() {
    /// Weights are computed in f64 in another order, and rounded to f32.
    const TOLERANCE: f32 = 1e-5;
    let graph = graph();
    for seed in 0..5 {
        let blocks = blocks(&graph, [60, 30], seed);
        for (layer, (block, n_picks)) in blocks.iter().zip([60, 30]).enumerate() {
            let key = RngKey::new(seed).fold_in(KeyDomain::Layer, layer as u64);
            let expected = reference(&graph, block.dsts(), n_picks, key);
            let got = edges(block);
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(&expected) {
                assert_eq!((got.0, got.1), (expected.0, expected.1));
                assert!((got.2 - expected.2).abs() <= TOLERANCE * expected.2, "{got:?}, {expected:?}");
            }
        }
    }
}

#[test]
fn weighted_sums_are_unbiased_estimates_of_those_over_all_neighbors() {
    const N_KEYS: u64 = 1000;
    /// The tolerance in standard errors of the mean: each of 20 sums exceeds it with a probability of about 6e-7.
    const N_ERRORS: f64 = 5.0;
    let graph = graph();
    let value = |node: NodeId| f64::from(node.0 % 7) - 2.0;
    let sums = |block: &Block| {
        let mut sums = vec![0.0; block.n_dst()];
        for (dst, src, weight) in edges(block) {
            let row = block.dsts().iter().position(|node| *node == dst).unwrap();
            sums[row] += f64::from(weight) * value(src);
        }
        sums
    };
    let exact = sums(&blocks(&graph, [u32::MAX; 2], 0)[1]);
    let samples: Vec<Vec<f64>> = (0..N_KEYS).map(|seed| sums(&blocks(&graph, [1, 30], seed)[1])).collect();
    let mut n_estimated = 0;
    for (row, exact) in exact.iter().enumerate() {
        let of_row = || samples.iter().map(|sums| sums[row]);
        let mean = of_row().sum::<f64>() / N_KEYS as f64;
        let variance = of_row().map(|sum| (sum - mean).powi(2)).sum::<f64>() / (N_KEYS - 1) as f64;
        let error = (variance / N_KEYS as f64).sqrt();
        // A node whose neighbours are always picked has no error but that of rounding.
        assert!((mean - exact).abs() < N_ERRORS * error + 1e-6, "{row}: {mean}, {exact}, {error}");
        n_estimated += usize::from(1e-3 < error);
    }
    assert!(10 < n_estimated, "{n_estimated} of 20 sums are estimates");
}

#[test]
fn weights_do_not_depend_on_workers_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let data = data();
    let hash = |workers: usize, threads: usize| {
        let loader = NeighborLoader::new(&data, [60, 30]).gcn_norm().unwrap().sampler(ladies());
        let loader = loader.batch_size(64).workers(workers);
        let trained = launch(RankConfig::threads(2).threads_per_rank(threads), |rank| {
            let out = folder.path().join(format!("{workers}-{threads}"));
            let model = GcnConfig::for_data(&data).layers(2).hidden(8);
            Trainer::new(model, AdamConfig::new(0.01))
                .rank(&rank)
                .fit(&loader, FitConfig::epochs(2).out(out).quiet())
        });
        trained.unwrap().remove(0).best.weights_hash
    };
    let first = hash(0, 1);
    for (workers, threads) in [(1, 1), (3, 2)] {
        assert_eq!(hash(workers, threads), first, "{workers} workers, {threads} threads");
    }
}
