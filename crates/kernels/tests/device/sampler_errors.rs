//! The errors of device samplers.

use std::sync::Arc;

use kiln_graph::{Csc, NodeId};
use kiln_kernels::testing::device;
use kiln_kernels::{DeviceGraph, DeviceSampler, GraphMode, is_cpu};
use kiln_sample::{
    DamagedGraphError, EdgeWeights, Error, Fanout, FanoutsError, Frontier, FrontierSampler, HopRequest,
    Neighbors, NodeKey, RngKey, Rule, RuleError, SamplerConfig, Scratch, Selection,
};
use kiln_testkit::{hub, six_nodes};

use super::rule::rules;
use super::sampler::{nodes, sampler};

/// The CPU has no limit on the fanout.
#[test]
fn devices_reject_fanouts_above_1024() {
    let graph = DeviceGraph::new(hub(3000), &device()).unwrap();
    let sample = |rule: Rule, fanout: u32| {
        let sampler = sampler(graph.clone(), &[Fanout::UpTo(fanout)], rule, EdgeWeights::None);
        sampler.sample_blocks(&nodes([0]), RngKey::new(0), &mut Scratch::default())
    };
    let is_host = is_cpu(&device());
    for rule in rules() {
        assert_eq!(sample(rule.clone(), 1024).unwrap().blocks[0].n_edges(), 1024);
        match sample(rule, 1025) {
            Ok(sampled) => assert!(is_host && sampled.blocks[0].n_edges() == 1025),
            Err(error) => {
                assert!(
                    !is_host
                        && matches!(
                            error,
                            Error::Fanouts(FanoutsError::FanoutTooLarge { layer: 0, most: 1024 })
                        ),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(
        sample(Rule::Uniform, 3000).unwrap().blocks[0].n_edges(),
        3000,
        "all edges should be taken without draws"
    );
    // For a staged graph the limit does not depend on the degrees, which differ from batch to batch.
    let staged =
        DeviceSampler::new(DeviceGraph::host_staged(hub(3000), &device()).unwrap(), [Fanout::UpTo(3000)]);
    let sampled = staged.sample_blocks(&nodes([7]), RngKey::new(0), &mut Scratch::default());
    assert_eq!(sampled.is_ok(), is_host);
}

#[test]
fn rejects_a_seed_out_of_range_with_its_position() {
    let graph = DeviceGraph::new(six_nodes(), &device()).unwrap();
    let sampler = DeviceSampler::new(graph, [Fanout::All]);
    let sampled = sampler.sample_blocks(&nodes([2, 6]), RngKey::new(0), &mut Scratch::default());
    let error = sampled.unwrap_err();
    assert!(matches!(error, Error::SeedOutOfRange { node: NodeId(6), position: 1, n_nodes: 6 }), "{error}");
}

#[test]
fn hops_reject_destinations_out_of_range_and_bad_edge_ranges() {
    let request = HopRequest::new(RngKey::new(0), 0, Fanout::UpTo(2), EdgeWeights::None);
    let sample = |graph: DeviceGraph, dsts: &[u32]| {
        let dsts: Vec<NodeId> = dsts.iter().copied().map(NodeId).collect();
        let sampler = DeviceSampler::new(graph, [Fanout::UpTo(2)]);
        sampler.sample_frontier(&request, (&dsts).into(), &mut Scratch::default(), &mut Frontier::default())
    };
    for graph in [DeviceGraph::new(six_nodes(), &device()), DeviceGraph::host_staged(six_nodes(), &device())]
    {
        let error = sample(graph.unwrap(), &[2, 6]).unwrap_err();
        assert!(
            matches!(error, Error::SeedOutOfRange { node: NodeId(6), position: 1, n_nodes: 6 }),
            "{error}"
        );
    }
    // A graph that is copied as a whole is checked before the copy. A staged graph is checked when its lists are read.
    let indptr = vec![0, 2, 1, 3];
    let damaged = Arc::new(Csc::new(indptr.into(), [0, 1, 2].map(NodeId).to_vec().into()).unwrap());
    let graph = || DeviceGraph::host_staged(damaged.clone(), &device()).unwrap();
    assert!(sample(graph(), &[0, 2]).is_ok());
    let error = sample(graph(), &[0, 1]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::DamagedGraph(DamagedGraphError::BadEdgeRange { node: NodeId(1), start: 2, end: 1, .. })
        ),
        "{error}"
    );
}

#[test]
fn rejects_edge_weights_for_an_unweighted_graph() {
    let graph = DeviceGraph::new(six_nodes(), &device()).unwrap();
    assert!(!graph.has_weights());
    let config = SamplerConfig::new([Fanout::All]).with_weights(EdgeWeights::Unbiased);
    assert!(matches!(DeviceSampler::with_config(graph, config), Err(Error::NoWeights)));
}

#[test]
fn rules_in_rust_pick_on_the_host() {
    let first = |_: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| picks.push(0);
    let config = SamplerConfig::new([2]).with_rule(first);
    assert_eq!(GraphMode::Device.resolve(&config.rule), GraphMode::ZeroCopy);
    let on_host = DeviceGraph::host_staged(six_nodes(), &device()).unwrap();
    let sampler = DeviceSampler::with_config(on_host, config.clone()).unwrap();
    let sampled = sampler.sample_blocks(&nodes([2]), RngKey::new(0), &mut Scratch::default());
    assert_eq!(sampled.unwrap().blocks[0].n_edges(), 1);
    let on_device = DeviceGraph::new(six_nodes(), &device()).unwrap();
    match DeviceSampler::with_config(on_device, config) {
        Ok(_) => assert!(is_cpu(&device())),
        Err(error) => {
            assert!(!is_cpu(&device()) && matches!(error, Error::Rule(RuleError::CustomRule)), "{error}");
        }
    }
}
