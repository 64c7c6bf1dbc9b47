//! Tests of models with relations and attention: what they learn, and that threads, workers and ranks do not change the
//! weights.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::nn::{AttentionKind, BlockModel, GatConfig, LayerWiseModel, RgcnConfig};
use kiln::prelude::*;
use kiln::train::weights_to_bytes;

/// The nodes that are classified; each has an in-edge from as many carriers of each relation.
const N_NODES: u32 = 1_200;
const N_CARRIERS: u32 = 64;
const N_EDGES_PER_RELATION: u32 = 4;

/// Returns hashed bits, a different number for each `i`.
fn hashed(i: u32) -> u32 {
    i.wrapping_mul(2_654_435_769).rotate_left(13).wrapping_mul(0x85EB_CA6B) >> 8
}

/// A graph whose labels depend on the relation. Carriers have one of two signs as their feature. A node's neighbours of
/// relation 0 have the sign of its class, those of relation 1 the other one, so without types both classes have the same
/// neighbours. A node's own feature is noise.
fn two_relations() -> Dataset {
    let n_nodes = N_NODES + N_CARRIERS;
    let class = |node: u32| hashed(node) & 1;
    let (mut srcs, mut dsts, mut types) = (vec![], vec![], vec![]);
    for node in 0..N_NODES {
        for relation in 0..2 {
            for k in 0..N_EDGES_PER_RELATION {
                // Carriers with an even number have one sign, the others the other one.
                let sign = class(node) ^ relation;
                let pair = hashed(31 * node + 7 * k + relation) % (N_CARRIERS / 2);
                srcs.push(N_NODES + 2 * pair + sign);
                dsts.push(node);
                types.push(relation as u8);
            }
        }
    }
    let features: Vec<f32> = (0..n_nodes)
        .flat_map(|node| {
            let sign = if node % 2 == 0 { 1.0 } else { -1.0 };
            let noise = (hashed(node + 77) % 1000) as f32 / 500.0 - 1.0;
            if node < N_NODES { [0.0, noise] } else { [sign, 0.0] }
        })
        .collect();
    let labels: Vec<i32> = (0..n_nodes).map(|node| class(node) as i32).collect();
    let nodes = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<_>>();
    Dataset::builder(n_nodes as usize)
        .edges(&srcs, &dsts)
        .edge_types(&types)
        .features(features, 2)
        .labels(labels, 2)
        .split(nodes(0..600), nodes(600..900), nodes(900..N_NODES))
        .build()
        .unwrap()
}

fn test_accuracy<C: ModelConfig>(data: &Dataset, model: C, loader: &NeighborLoader, out: &Path) -> f64
where
    C::Model: BlockModel + LayerWiseModel,
{
    let fit = FitConfig::epochs(30).out(out).quiet();
    let best = Trainer::new(model, AdamConfig::new(2e-2)).seed(3).fit(loader, fit).unwrap();
    assert_eq!(data.split.test.len(), 300);
    best.evaluate(loader, Phase::Test).unwrap().accuracy()
}

#[test]
fn rgcn_learns_labels_that_depend_on_the_relation_and_graphsage_cannot() {
    let (data, folder) = (two_relations(), tempfile::tempdir().unwrap());
    let loader = NeighborLoader::new(&data, [3]).batch_size(100);
    let rgcn = RgcnConfig::new(2, 2, 2).layers(1).bases(2);
    let typed = test_accuracy(&data, rgcn, &loader.clone().edge_types(), &folder.path().join("rgcn"));
    let sage = SageConfig::new(2, 2).layers(1);
    let untyped = test_accuracy(&data, sage, &loader, &folder.path().join("sage"));
    // Three sampled neighbours of eight are of one relation in one of seven draws, and tell nothing about their types.
    println!("R-GCN {typed}, GraphSAGE {untyped}");
    assert!(0.95 <= typed && untyped <= 0.70, "R-GCN {typed}, GraphSAGE {untyped}");
}

/// Trains two epochs and returns the weights.
fn weights<C: ModelConfig>(model: &C, loader: &NeighborLoader, out: &Path) -> Vec<u8>
where
    C::Model: BlockModel + LayerWiseModel,
{
    let fit = FitConfig::epochs(2).out(out).quiet();
    let best = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(5).fit(loader, fit).unwrap();
    weights_to_bytes(&best.model).unwrap()
}

fn check_threads_and_workers<C: ModelConfig>(model: &C, loader: &NeighborLoader)
where
    C::Model: BlockModel + LayerWiseModel,
{
    let folder = tempfile::tempdir().unwrap();
    let run = |n_threads: usize, n_workers: usize| {
        let out = folder.path().join(format!("{n_threads}-{n_workers}"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| weights(model, &loader.clone().workers(n_workers), &out))
    };
    let one = run(1, 0);
    assert!(one == run(3, 0), "the weights depend on the number of threads");
    assert!(one == run(2, 2), "the weights depend on the number of workers");
}

#[test]
fn threads_and_workers_do_not_change_the_weights() {
    let data = two_relations();
    let loader = NeighborLoader::new(&data, [3, 4]).batch_size(150);
    let gat = GatConfig::new(2, 2).layers(2).hidden(8).heads(2).attention_dropout(0.3);
    let looped = loader.clone().add_self_loops().unwrap();
    check_threads_and_workers(&gat, &looped);
    check_threads_and_workers(&gat.attention(AttentionKind::GatV2), &looped);
    let rgcn = RgcnConfig::new(2, 2, 2).layers(2).hidden(8).bases(2);
    check_threads_and_workers(&rgcn, &loader.edge_types());
}
