//! A heterogeneous graph and its sampled blocks.

use burn::tensor::Device;
use kiln_graph::{Block, NodeId, NodeTypes, RelationEdges, RelationGroups, Relations};
use kiln_kernels::DeviceBlock;
use kiln_sample::{Fanout, FrontierSampler, HeteroNeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};

/// Returns irregular numbers below `end`.
pub(crate) fn numbers(seed: u32, n: usize, end: u32) -> Vec<u32> {
    let hash = |i: u32| {
        let mixed = (i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> 8
    };
    (0..n as u32).map(|i| hash(i) % end).collect()
}

/// A graph of four types, one without nodes and one (`d`) into which there is no relation. There are two relations from
/// `a` to `b`.
pub(crate) fn graph() -> Relations {
    let types = NodeTypes::new([("a", 20), ("none", 0), ("b", 30), ("d", 5)]);
    let sizes = [("a", 20), ("b", 30), ("d", 5)];
    let size = |name: &str| sizes.iter().find(|(of, _)| *of == name).map_or(0, |(_, n)| *n);
    let relations = [
        ("r", "b", "a", 90),
        ("s", "a", "b", 40),
        ("t", "a", "b", 60),
        ("u", "a", "a", 30),
        ("v", "d", "a", 10),
        ("w", "none", "b", 0),
    ];
    let ends: Vec<[Vec<u32>; 2]> = relations
        .iter()
        .enumerate()
        .map(|(i, (_, src, dst, n))| {
            [numbers(2 * i as u32, *n, size(src).max(1)), numbers(2 * i as u32 + 1, *n, size(dst))]
        })
        .collect();
    let edges: Vec<RelationEdges<'_>> = relations
        .iter()
        .zip(&ends)
        .map(|(&(name, src_type, dst_type, _), [srcs, dsts])| {
            RelationEdges::new(name, src_type, dst_type, srcs, dsts)
        })
        .collect();
    Relations::from_edges(types.expect("the types should be valid"), &edges)
        .expect("the edges should be valid")
}

/// Samples blocks of the layers for seeds of mixed types.
pub(crate) fn sampled(graph: &Relations, seeds: &[u32], n_layers: usize) -> Vec<Block> {
    let fanouts = vec![vec![Fanout::UpTo(3); graph.n_relations()]; n_layers];
    let config = SamplerConfig::default().with_edge_types();
    let sampler = HeteroNeighborSampler::new(graph, fanouts, config).expect("the fanouts should match");
    let seeds = Seeds::nodes(seeds.iter().copied().map(NodeId).collect());
    let sample = sampler.sample_blocks(&seeds, RngKey::new(3), &mut Scratch::default());
    sample.expect("the seeds should be in range").blocks
}

/// Moves a block to a device, with its relation groups and those of its nodes.
pub(crate) fn uploaded(graph: &Relations, block: &Block, device: &Device) -> DeviceBlock {
    let groups = RelationGroups::new(block, graph.types(), &graph.metagraph());
    let groups = groups.and_then(|groups| groups.with_nodes(block, graph.types()));
    let groups = groups.expect("a sampled block should fit the graph");
    DeviceBlock::upload(block, device).with_relation_groups(groups, device)
}
