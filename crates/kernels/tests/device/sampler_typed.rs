//! Sampling the relations of a heterogeneous graph on a device: the blocks are bit-identical to those of the host.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_graph::{NodeId, NodeTypes, RelationEdges, Relations};
use kiln_kernels::testing::device;
use kiln_kernels::{DeviceGraph, DeviceSampler};
use kiln_sample::{
    EdgeWeights, ExcludedEdges, Fanout, FrontierSampler, HeteroNeighborSampler, RngKey, SamplerConfig,
    Scratch, Seeds,
};

use super::rule::rules;
use super::sampler::check_same_blocks;

/// Users, items and tags; relations with hubs, with parallel edges, between nodes of one type, and without edges.
fn graph() -> Relations {
    let types = NodeTypes::new([("user", 70), ("item", 300), ("tag", 9)]).unwrap();
    let scattered =
        |n: u32, step: u32, below: u32| (0..n).map(|edge| edge * step % below).collect::<Vec<u32>>();
    let buys = (scattered(900, 7, 70), scattered(900, 11, 300));
    let with = (scattered(600, 13, 300), scattered(600, 5, 40));
    let tagged = (scattered(500, 3, 9), scattered(500, 17, 300));
    let weights: Vec<f32> = (0..900).map(|edge| 0.5 + (edge % 7) as f32).collect();
    let relation = |name, src_type, dst_type, srcs, dsts, n: usize| RelationEdges {
        name,
        src_type,
        dst_type,
        srcs,
        dsts,
        weights: Some(&weights[..n]),
        columns: None,
    };
    let relations = [
        relation("buys", "user", "item", &buys.0, &buys.1, 900),
        relation("bought by", "item", "user", &buys.1, &buys.0, 900),
        relation("with", "item", "item", &with.0, &with.1, 600),
        relation("tagged", "tag", "item", &tagged.0, &tagged.1, 500),
        relation("of", "user", "tag", &[], &[], 0),
    ];
    Relations::from_edges(types, &relations).unwrap()
}

#[test]
fn device_and_host_sample_the_same_blocks_of_relations() {
    let graph = graph();
    let fanouts = vec![
        [3, 2, 4, 1, 5].map(Fanout::UpTo).to_vec(),
        vec![Fanout::All, Fanout::UpTo(3), Fanout::UpTo(0), Fanout::UpTo(6), Fanout::All],
    ];
    let items: Vec<NodeId> = (0..60).map(|item| NodeId(70 + item * 29 % 300)).collect();
    let mixed: Vec<NodeId> = [5, 371, 90, 69, 378, 70].map(NodeId).to_vec();
    let of_item = |item: u32| graph.relation(0).graph.in_neighbors(NodeId(item)).to_vec();
    let pairs = (0..60).flat_map(|item| of_item(item).into_iter().map(move |user| (user, NodeId(70 + item))));
    let excluded = Arc::new(ExcludedEdges::new(pairs.step_by(2)));
    let (key, mut scratch) = (RngKey::new(9), Scratch::default());
    for rule in rules() {
        for weights in [EdgeWeights::None, EdgeWeights::Stored] {
            let config = SamplerConfig { rule: rule.clone(), weights, ..SamplerConfig::default() };
            let config = config.with_edge_types();
            let host = HeteroNeighborSampler::new(&graph, fanouts.clone(), config.clone()).unwrap();
            for is_staged in [false, true] {
                let of_relation = |relation: usize| {
                    let whole = Arc::new(graph.whole_graph(relation).unwrap());
                    let copy = match is_staged {
                        true => DeviceGraph::host_staged(whole, &device()),
                        false => DeviceGraph::new(whole, &device()),
                    };
                    let config = SamplerConfig { edge_types: false, ..config.clone() };
                    DeviceSampler::with_config(copy.unwrap(), config).unwrap()
                };
                let samplers: Vec<DeviceSampler> = (0..graph.n_relations()).map(of_relation).collect();
                let schema = graph.schema().clone();
                let sampler =
                    HeteroNeighborSampler::of_samplers(schema, Arc::new(samplers), fanouts.clone(), &config)
                        .unwrap();
                for seeds in [
                    Seeds::nodes(items.clone()),
                    Seeds::nodes(mixed.clone()),
                    Seeds::nodes(items.clone()).excluding(Some(excluded.clone())),
                ] {
                    let expected = host.sample_blocks(&seeds, key, &mut scratch).unwrap();
                    let got = sampler.sample_blocks(&seeds, key, &mut scratch).unwrap();
                    check_same_blocks(got, &expected);
                    assert!(expected.blocks.iter().all(|block| 0 < block.n_edges()));
                }
            }
        }
    }
}
