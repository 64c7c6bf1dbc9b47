//! Tests of the two sampling rules of `custom_sampler`: uniform sampling, and preference for neighbours of low degree.
#![allow(clippy::unwrap_used, reason = "helper functions of tests may unwrap")]

use kiln::data::{DatasetTargets, synthetic};
use std::sync::Arc;

use kiln::feature::{DenseFeatures, Labels};
use kiln::graph::CscBuilder;
use kiln::prelude::*;

#[allow(dead_code, reason = "the tests do not call the program's main function")]
#[path = "../src/bin/custom_sampler.rs"]
mod custom_sampler;

use custom_sampler::{LowDegree, Uniform};

/// Sets the rule of this name on a loader.
fn with_rule(loader: NeighborLoader, rule: &str, data: &Dataset) -> NeighborLoader {
    match rule {
        "low-degree" => loader.rule(LowDegree(data.csc().unwrap().clone())),
        _ => loader.rule(Uniform::default()),
    }
}

#[test]
fn weights_depend_on_the_rule_but_not_on_workers_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let data = synthetic::fake(synthetic::FakeConfig { avg_num_nodes: 2000, ..Default::default() }).unwrap();
    let hash = |rule: &str, workers: usize, threads: usize| {
        let loader = NeighborLoader::new(&data, [4, 4, 4]).batch_size(256).workers(workers);
        let loader = with_rule(loader, rule, &data);
        let trained = launch(RankConfig::threads(2).threads_per_rank(threads), |rank| {
            let model = SageConfig::for_data(&data).hidden(16);
            let out = folder.path().join(format!("{rule}-{workers}-{threads}"));
            Trainer::new(model, AdamConfig::new(0.001))
                .rank(&rank)
                .fit(&loader, FitConfig::epochs(1).out(out).quiet())
        });
        trained.unwrap().remove(0).best.weights_hash
    };
    let mut firsts = Vec::new();
    for rule in ["uniform", "low-degree"] {
        let first = hash(rule, 0, 1);
        for (workers, threads) in [(1, 1), (0, 2)] {
            assert_eq!(hash(rule, workers, threads), first, "{rule}: {workers} workers, {threads} threads");
        }
        firsts.push(first);
    }
    assert_ne!(firsts[0], firsts[1]);
}

const N_CLASSES: u32 = 4;
const N_LEAVES: u32 = 4000;

/// The number of hubs. It is so large that a model cannot learn which hubs a leaf has.
const N_HUBS: u32 = 400;

/// Returns a graph whose leaves are classified. A leaf has ten neighbours: a partner of degree 1, whose features show
/// the leaf's class, and nine hubs of degree 90, whose features show arbitrary classes.
///
/// ```text
///   leaves 0..n, partners n..2n, hubs 2n..          partner -> leaf -> hub      hub -> leaf
/// ```
fn leaves_and_hubs() -> Dataset {
    let (mut srcs, mut dsts) = (Vec::new(), Vec::new());
    let class = |leaf: u32| leaf * 7 / 3 % N_CLASSES;
    let hub = |number: u32| 2 * N_LEAVES + number % N_HUBS;
    for leaf in 0..N_LEAVES {
        let partner = N_LEAVES + leaf;
        srcs.extend([partner, leaf]);
        dsts.extend([leaf, partner]);
        for nth in 0..9 {
            // The stride is coprime to the number of hubs, so the nine hubs of a leaf are distinct.
            let hub = hub(leaf * 31 + leaf / N_HUBS * 17 + nth * 43);
            srcs.extend([hub, leaf]);
            dsts.extend([leaf, hub]);
        }
    }
    let n_nodes = 2 * N_LEAVES + N_HUBS;
    let shown = |node: u32| match node {
        leaf if leaf < N_LEAVES => None,
        partner if partner < 2 * N_LEAVES => Some(class(partner - N_LEAVES)),
        hub => Some(hub * 13 / 5 % N_CLASSES),
    };
    let column = |node, column| if shown(node) == Some(column) { 1.0 } else { 0.0 };
    let features =
        (0..n_nodes).flat_map(|node| (0..N_CLASSES).map(move |at| column(node, at))).collect::<Vec<f32>>();
    let labels: Vec<i32> =
        (0..n_nodes).map(|node| if node < N_LEAVES { class(node) as i32 } else { 0 }).collect();
    let part = |nodes: std::ops::Range<u32>| nodes.map(NodeId).collect();
    let labels = Labels::new(labels, N_CLASSES as usize);
    let split = Split { train: part(0..2000), val: part(2000..2500), test: part(2500..N_LEAVES) };
    Dataset {
        name: "leaves and hubs".into(),
        graph: CscBuilder::new(n_nodes as usize).build(&srcs, &dsts).unwrap().into(),
        features: vec![Some(Arc::new(DenseFeatures::from_f32(features, N_CLASSES as usize).unwrap()))],
        targets: Some(DatasetTargets::new(0, labels.into(), split)),
        ..synthetic::ring(6).unwrap()
    }
}

/// A model that receives one neighbour of a leaf predicts the class correctly if that neighbour is the partner, or a
/// hub that shows the class by chance. With inverse degrees the partner is picked with probability 1 / (1 + 9 / 90), so
/// the expected accuracy is 0.93. With uniform sampling the probability is 1 / 10, and the expected accuracy 0.33.
#[test]
fn accuracy_matches_the_rules_probabilities() {
    /// The tolerance of the accuracy: four standard deviations on 1500 test nodes.
    const TOLERANCE: f64 = 0.05;
    let (folder, data) = (tempfile::tempdir().unwrap(), leaves_and_hubs());
    let chance = 1.0 / f64::from(N_CLASSES);
    for (rule, partner) in [("low-degree", 1.0 / 1.1), ("uniform", 0.1)] {
        let loader = with_rule(NeighborLoader::new(&data, [1]).batch_size(250), rule, &data);
        let model = SageConfig::for_data(&data).layers(1).hidden(8).dropout(0.0);
        let mut trainer = Trainer::new(model, AdamConfig::new(0.05));
        let best = trainer.fit(&loader, FitConfig::epochs(8).out(folder.path().join(rule)).quiet()).unwrap();
        let expected = partner + (1.0 - partner) * chance;
        let found = best.evaluate(&loader, Phase::Test).unwrap().accuracy();
        println!("{rule}: {found}, expected {expected}");
        assert!((found - expected).abs() < TOLERANCE, "{rule}: the accuracy is {found}, expected {expected}");
    }
}
