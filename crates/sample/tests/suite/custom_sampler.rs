//! The blocks of custom samplers: valid ones are returned as they are, and each kind of a block that is not valid is an error that
//! names the sampler.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_sample::{
    CustomSampler, Dsts, EdgeWeights, Error, ExcludedEdges, Fanout, Frontier, FrontierSampler, HopRequest,
    NeighborSampler, RngKey, SampledBlocks, SamplerConfig, SamplerError, Scratch, Seeds,
};
use kiln_testkit::six_nodes;

/// A sampler whose blocks are those of a neighbour sampler after a change.
struct Changed {
    sampler: NeighborSampler,
    change: fn(&mut SampledBlocks),
}

impl FrontierSampler for Changed {
    fn fanouts(&self) -> &[Fanout] {
        self.sampler.fanouts()
    }

    fn n_nodes(&self) -> usize {
        self.sampler.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        self.sampler.sample_frontier(request, dsts, scratch, out)
    }

    fn sample_blocks(
        &self,
        seeds: &Seeds,
        key: RngKey,
        scratch: &mut Scratch,
    ) -> kiln_sample::Result<SampledBlocks> {
        // It leaves out no excluded edge.
        let seeds = Seeds::nodes(seeds.as_nodes().to_vec());
        let mut sampled = self.sampler.sample_blocks(&seeds, key, scratch)?;
        (self.change)(&mut sampled);
        Ok(sampled)
    }
}

fn seeds() -> Seeds {
    Seeds::nodes([5, 3, 5].map(NodeId).to_vec())
}

fn sample(seeds: &Seeds, change: fn(&mut SampledBlocks)) -> kiln_sample::Result<SampledBlocks> {
    let custom = CustomSampler::new("mine", move |graph, _| {
        let sampler = NeighborSampler::full(graph, 2);
        Changed { sampler, change }
    });
    let sampler = custom.create(&six_nodes(), SamplerConfig::default())?;
    sampler.sample_blocks(seeds, RngKey::new(0), &mut Scratch::default())
}

/// A change of what a sampler returns.
type Change = fn(&mut SampledBlocks);

/// Replaces the arrays of a block.
fn edit(sampled: &mut SampledBlocks, layer: usize, edit: impl FnOnce(&mut BlockParts)) {
    let mut parts = sampled.blocks.remove(layer).into_parts();
    edit(&mut parts);
    sampled.blocks.insert(layer, Block::new(parts));
}

#[test]
fn valid_blocks_are_returned_as_they_are() {
    let expected = NeighborSampler::full(six_nodes(), 2)
        .sample_blocks(&seeds(), RngKey::new(0), &mut Scratch::default())
        .unwrap();
    assert_eq!(sample(&seeds(), |_| ()).unwrap(), expected);
    assert_eq!(sample(&Seeds::default(), |_| ()).unwrap().seed_index, []);
}

#[test]
fn invalid_blocks_are_errors_that_name_the_sampler() {
    let changes: [(&str, Change); 12] = [
        ("returned 1 blocks, expected 2", |sampled| drop(sampled.blocks.remove(0))),
        ("not the 4 sources of the next layer", |sampled| {
            edit(sampled, 0, |parts| parts.srcs.swap(2, 3));
        }),
        ("it has node 99, but the graph has 6", |sampled| {
            edit(sampled, 0, |parts| *parts.srcs.last_mut().unwrap() = NodeId(99));
        }),
        ("are both node 5", |sampled| {
            edit(sampled, 0, |parts| *parts.srcs.last_mut().unwrap() = NodeId(5));
        }),
        ("it has edge 77", |sampled| edit(sampled, 1, |parts| parts.edge_ids[0] = EdgeId(77))),
        ("which is not an edge of the graph", |sampled| {
            edit(sampled, 1, |parts| parts.indices[0] = LocalId(0));
        }),
        ("the ids of its edges into node 3 do not ascend", |sampled| {
            edit(sampled, 1, |parts| {
                parts.indices.swap(1, 2);
                parts.edge_ids.swap(1, 2);
            });
        }),
        ("expected edge weights None, got some", |sampled| {
            edit(sampled, 1, |parts| parts.weights = Some(vec![1.0; parts.indices.len()]));
        }),
        ("expected no edge types", |sampled| {
            edit(sampled, 1, |parts| parts.edge_types = Some(vec![0; parts.indices.len()]));
        }),
        ("2 destinations and 2 rows for 3 seeds", |sampled| sampled.seed_index.truncate(2)),
        ("the seed at position 1 has another row", |sampled| sampled.seed_index[1] = LocalId(0)),
        ("panicked: local id 50 is out of range", |sampled| {
            edit(sampled, 0, |parts| parts.indices[0] = LocalId(50));
        }),
    ];
    for (expected, change) in changes {
        let error = sample(&seeds(), change).unwrap_err();
        assert!(matches!(error, Error::Sampler(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("`mine`") && text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn edges_that_a_batch_leaves_out_are_errors() {
    let excluded = std::sync::Arc::new(ExcludedEdges::new([(NodeId(2), NodeId(5))]));
    let error = sample(&seeds().excluding(Some(excluded)), |_| ()).unwrap_err();
    let Error::Sampler(SamplerError::ExcludedEdge { src, dst, .. }) = error else { panic!("{error}") };
    assert_eq!((src, dst), (NodeId(2), NodeId(5)));
}

#[test]
fn samplers_of_other_graphs_and_seeds_with_times_are_errors() {
    let other = CustomSampler::new("mine", |_, _| NeighborSampler::full(kiln_testkit::ring(9), 1));
    let error = other.create(&six_nodes(), SamplerConfig::default()).err().unwrap();
    assert!(matches!(error, Error::Sampler(SamplerError::Nodes { expected: 6, got: 9, .. })), "{error}");
    let error = sample(&seeds().with_times(vec![1, 2, 3]), |_| ()).unwrap_err();
    assert!(matches!(error, Error::Sampler(SamplerError::Times { .. })), "{error}");
}

#[test]
fn constructors_receive_the_configuration_and_may_fail() {
    let neighbors = CustomSampler::try_new("neighbors", NeighborSampler::with_config).setting("a", 1);
    let config = SamplerConfig::new([2]);
    let sampler = neighbors.create(&six_nodes(), config.clone()).unwrap();
    assert_eq!((sampler.fanouts(), sampler.n_layers()), (&config.fanouts[..], 1));
    let weighted = config.with_weights(EdgeWeights::Stored);
    assert!(matches!(neighbors.create(&six_nodes(), weighted).err(), Some(Error::NoWeights)));
    assert_eq!(neighbors.to_string(), "neighbors (a: 1)");
}
