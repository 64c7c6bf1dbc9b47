//! Batches whose seeds have times of their own are equal on the host and on a device.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_graph::{Csc, NodeId};
use kiln_kernels::testing::{device, read_block, values};
use kiln_kernels::{DeviceBlock, DeviceFeatures, DeviceGraph, DeviceSampler, ops};
use kiln_loader::{Batcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Phase};
use kiln_sample::{NeighborSampler, Rule, SamplerConfig, TimeLimits};
use kiln_train::{DeviceBatch, DeviceNodeBatcher, HostNodeBatcher, NodeInput};

use super::common::{data, nodes};

/// The number of nodes that are seeds.
const N_SEEDS: u32 = 300;

fn batches<F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(batcher: F) -> Vec<NodeInput> {
    let config = ItemSamplerConfig { batch_size: 64, seed: 1, ..Default::default() };
    let items = ItemSampler::new(nodes(N_SEEDS), config).unwrap();
    let loader = Loader::new(items, batcher, LoaderConfig { workers: 1, ..Default::default() }).unwrap();
    loader.epoch(Phase::Train { epoch: 1 }).map(|batch| batch.unwrap().input).collect()
}

#[test]
fn batches_of_the_device_at_item_times_equal_those_of_the_host() {
    let (data, device) = (data(400), device());
    let time = |number: u64| (number * 31 % 17) as i64;
    let graph = Csc::clone(data.csc().unwrap());
    let graph = graph.with_edge_times((0..data.graph.n_edges()).map(time).collect::<Vec<i64>>()).unwrap();
    let graph = Arc::new(graph);
    let features = || data.node_features().unwrap().clone();
    let node_times: Vec<i64> = (0..features().n_rows() as u64).map(|node| time(node) + 4).collect();
    let limits = TimeLimits { includes_equal: true, window: Some(9) };
    let config = SamplerConfig::new([4, 3]).with_rule(Rule::MostRecent).with_time_limits(limits);
    let on_host = NeighborSampler::with_config(Arc::clone(&graph), config.clone()).unwrap();
    let on_host =
        NodeBatcher::new(Arc::new(on_host), features(), data.labels()).seed_times(node_times.clone());
    let expected = batches(HostNodeBatcher::new(on_host, &device));
    let batcher = |copy: DeviceGraph| {
        let sampler = DeviceSampler::with_config(copy, config.clone()).unwrap();
        let rows = DeviceFeatures::new(features(), &device).unwrap();
        DeviceNodeBatcher::new(sampler.into(), rows.into(), data.labels())
    };
    let blocks = |blocks: &[DeviceBlock]| blocks.iter().map(read_block).collect::<Vec<_>>();
    for copy in [DeviceGraph::new, DeviceGraph::host_staged] {
        let copy = copy(Arc::clone(&graph), &device).unwrap();
        let got = batches(batcher(copy).seed_times(node_times.clone()));
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(
                (&got.seeds, &got.seed_index, &got.labels),
                (&expected.seeds, &expected.seed_index, &expected.labels)
            );
            assert_eq!(blocks(&got.blocks), blocks(&expected.blocks));
            let [got, expected] =
                [got, expected].map(|input| values(ops::widen(input.x.only().unwrap().clone())));
            assert_eq!(got, expected);
        }
    }
}

#[test]
fn a_seed_without_a_time_is_an_error() {
    let (data, device) = (data(400), device());
    let graph = DeviceGraph::new(Arc::clone(data.csc().unwrap()), &device).unwrap();
    let sampler = DeviceSampler::new(graph, [2]);
    let rows = DeviceFeatures::new(data.node_features().unwrap().clone(), &device).unwrap();
    let batcher = DeviceNodeBatcher::new(sampler.into(), rows.into(), data.labels()).seed_times(vec![0; 10]);
    let items = ItemSampler::new(nodes(N_SEEDS), ItemSamplerConfig::default()).unwrap();
    let loader = Loader::new(items, batcher, LoaderConfig::default()).unwrap();
    let batch = loader.epoch(Phase::Test).next().unwrap();
    let error = batch.err().unwrap().to_string();
    assert!(error.contains("the graph has 10 nodes"), "{error}");
}
