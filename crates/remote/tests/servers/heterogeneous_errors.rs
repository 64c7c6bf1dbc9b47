//! Errors of samplers, stores and connections on partitions of heterogeneous graphs.

use std::sync::Arc;

use kiln_graph::NodeId;
use kiln_partition::Part;
use kiln_remote::{
    ContentError, DistFeatureStore, DistGraph, DistNeighborSampler, Error, ServeConfig, Server,
};
use kiln_sample::{Fanout, FrontierSampler, RngKey, SamplerConfig, Scratch, Seeds};

use crate::cluster::{Cluster, addresses, config, hubs, parts, serve, token};
use crate::heterogeneous::{fanouts, shop};
use crate::same::last_ones;

#[test]
fn unsuitable_samplers_and_stores_are_errors() {
    let data = shop();
    let cluster = Cluster::of(&parts(&data, 2, |node| node as usize % 2, None), None, Default::default());
    let graph = || Arc::clone(&cluster.graph);
    let error = DistNeighborSampler::with_config(graph(), SamplerConfig::new([2])).unwrap_err();
    assert!(
        matches!(error, Error::Content(ContentError::Heterogeneous { instead: "DistGraph::hetero_sampler" })),
        "{error}"
    );
    let error = DistFeatureStore::new(graph()).unwrap_err();
    assert!(
        matches!(error, Error::Content(ContentError::Heterogeneous { instead: "DistFeatureStore::of_type" })),
        "{error}"
    );
    let sampler = DistNeighborSampler::new(graph(), [2]);
    let sample = |sampler: &DistNeighborSampler| {
        let seeds = Seeds::nodes(vec![NodeId(0)]);
        sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err().to_string()
    };
    assert!(sample(&sampler).contains("the partitions are of a heterogeneous graph"));
    // Node 0 is a user, and the relation leads to items.
    let sampler = DistNeighborSampler::of_relation(graph(), 0, SamplerConfig::new([2])).unwrap();
    let expected = "node 0 has no edges of relation `rates`, expected nodes of its destinations' type, which are 120..200";
    assert!(sample(&sampler).contains(expected), "{}", sample(&sampler));
    let error = DistNeighborSampler::of_relation(graph(), 4, SamplerConfig::new([2])).unwrap_err();
    assert_eq!(error.to_string(), "there is no relation 4, expected below 4");
    let error = DistFeatureStore::of_type(graph(), 0).unwrap_err();
    assert!(error.to_string().contains("the nodes of type 0 have no features"), "{error}");
    let error = DistFeatureStore::of_type(graph(), 3).unwrap_err();
    assert_eq!(error.to_string(), "there is no node type 3, expected below 3");
    let error = cluster.graph.hetero_sampler(vec![vec![Fanout::All]], &SamplerConfig::default()).unwrap_err();
    assert!(error.to_string().contains("fanouts for 1 relations"), "{error}");
    let error = cluster.graph.hetero_sampler(fanouts(), &SamplerConfig::default().with_rule(last_ones));
    assert!(error.is_ok(), "servers send the neighbours of rules without a name");
}

#[test]
fn connect_rejects_partitions_of_different_graphs() {
    let data = shop();
    let of_two = parts(&data, 2, |node| node as usize % 2, None);
    let other = parts(&data, 2, |node| usize::from(node % 3 == 0), None);
    let homogeneous = parts(&hubs(), 2, |node| node as usize % 2, None);
    let connect =
        |servers: &[Server]| DistGraph::connect(config(addresses(servers))).unwrap_err().to_string();
    let typed =
        |part: &Arc<Part>| Server::start(part.clone(), ServeConfig::new("127.0.0.1:0", token())).unwrap();
    for (servers, expected) in [
        (vec![typed(&of_two[0]), typed(&other[1])], "serve partitions of one partitioning"),
        (vec![typed(&of_two[0]), serve(&homogeneous[1])], "serve partitions of one partitioning"),
        (vec![typed(&of_two[1])], "no server holds partition 0 of 2"),
        (vec![typed(&of_two[0]), typed(&of_two[0])], "both hold partition 0"),
    ] {
        let error = connect(&servers);
        assert!(error.contains(expected), "{error}");
    }
}
