//! Batches of links: pairs, negatives and excluded edges.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_feature::DenseFeatures;
use kiln_graph::{Block, CscBuilder, LinkId, LinkNegatives, Links, NodeId};
use kiln_loader::{
    BatchError, Batcher, ItemSampler, ItemSamplerConfig, LinkBatch, LinkBatcher, LinkExclusion, MiniBatch,
    NodeBatcher, Phase, SeedBatch, Shard, StageTimes, UnevenShards,
};
use kiln_sample::{
    ExcludedEdges, Fanout, FrontierSampler, InBatchNegatives, NegativeSampler, Negatives, NeighborSampler,
    NodeRng, PositiveLink, RngKey, Scratch, UniformNegatives, UniformPairNegatives,
};

const N_NODES: u32 = 60;
const TRAIN: Phase = Phase::Train { epoch: 1 };

type Nodes = NodeBatcher<dyn FrontierSampler>;

/// A circulant graph in both directions, whose links are its edges in one direction.
fn links() -> Links {
    let pairs = (0..N_NODES).flat_map(|src| [1, 7, 19].map(|step| (src, (src + step) % N_NODES)));
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = pairs.unzip();
    Links::new(srcs, dsts).unwrap()
}

fn nodes(fanouts: [Fanout; 2]) -> Nodes {
    let links = links();
    let srcs: Vec<u32> = links.srcs().iter().map(|node| node.0).collect();
    let dsts: Vec<u32> = links.dsts().iter().map(|node| node.0).collect();
    let graph = CscBuilder::new(N_NODES as usize).symmetrize().build(&srcs, &dsts).unwrap();
    let features =
        DenseFeatures::from_f32((0..N_NODES).map(|node| node as f32).collect::<Vec<_>>(), 1).unwrap();
    NodeBatcher::without_targets(Arc::new(NeighborSampler::new(Arc::new(graph), fanouts)), Arc::new(features))
}

fn batcher(negatives: Negatives) -> LinkBatcher<Nodes> {
    LinkBatcher::new(nodes([Fanout::UpTo(3), Fanout::All]), links(), negatives)
}

fn items(rank: usize, world_size: usize, batch_size: usize) -> ItemSampler<LinkId> {
    let config = ItemSamplerConfig { batch_size, shard: Shard { rank, world_size }, ..Default::default() };
    ItemSampler::new((0..180).map(LinkId).collect::<Vec<_>>(), config).unwrap()
}

fn make(batcher: &LinkBatcher<Nodes>, seeds: SeedBatch<LinkId>) -> LinkBatch<MiniBatch> {
    batcher.batch(seeds, &mut Scratch::default(), &mut StageTimes::default()).unwrap()
}

/// The nodes of each pair.
fn pairs(batch: &LinkBatch<MiniBatch>) -> Vec<(NodeId, NodeId)> {
    let node = |position: &u32| batch.nodes.sampled.seeds.as_nodes()[*position as usize];
    batch.srcs.iter().zip(&batch.dsts).map(|(src, dst)| (node(src), node(dst))).collect()
}

#[test]
fn pairs_begin_with_the_link_and_address_the_seeds() {
    for negatives in [
        Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 3),
        Negatives::new(UniformPairNegatives { srcs: 0..N_NODES, dsts: 0..N_NODES }, 3),
    ] {
        let seeds = items(0, 1, 32).epoch(TRAIN).batch(2);
        let sampled = negatives.sample(&links(), &seeds.seeds, &seeds.seeds, seeds.phase_key).unwrap();
        let batch = make(&batcher(negatives), seeds.clone());
        assert_eq!((batch.links.len(), batch.n_negatives), (32, 3));
        let pairs = pairs(&batch);
        for (row, (pairs, link)) in pairs.chunks_exact(4).zip(&seeds.seeds).enumerate() {
            assert_eq!(pairs[0], links().pair(*link));
            for (number, pair) in pairs[1..].iter().enumerate() {
                let position = 3 * row + number;
                assert_eq!(*pair, (sampled.srcs[position], sampled.dsts[position]));
            }
        }
        let n_dst = batch.nodes.sampled.blocks.last().unwrap().n_dst();
        assert!(batch.nodes.sampled.seed_index.iter().all(|row| row.index() < n_dst));
        // The features of the blocks' first destinations identify the nodes.
        assert_eq!(
            batch.nodes.sampled.blocks[0].srcs()[..n_dst],
            batch.nodes.sampled.blocks[1].dsts()[..n_dst]
        );
    }
}

/// Joins the batches of the ranks in the order of the ranks.
fn joined(
    of: impl Fn(usize) -> LinkBatch<MiniBatch>,
    n_ranks: usize,
) -> (Vec<LinkId>, Vec<(NodeId, NodeId)>) {
    let batches: Vec<_> = (0..n_ranks).map(of).collect();
    let links = batches.iter().flat_map(|batch| batch.links.clone()).collect();
    (links, batches.iter().flat_map(pairs).collect())
}

#[test]
fn four_ranks_have_the_negatives_and_exclusions_of_one() {
    for negatives in
        [Negatives::new(InBatchNegatives, 2), Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 2)]
    {
        let batcher = batcher(negatives);
        for step in 0..4 {
            let one = make(&batcher, items(0, 1, 48).epoch(TRAIN).batch(step));
            let of_rank = |rank: usize| make(&batcher, items(rank, 4, 12).epoch(TRAIN).batch(step));
            assert_eq!(joined(of_rank, 4), (one.links.clone(), pairs(&one)), "step {step}");
            let accumulated = |batch: usize| {
                let config = ItemSamplerConfig { batch_size: 12, accumulate: 4, ..Default::default() };
                let items = ItemSampler::new((0..180).map(LinkId).collect::<Vec<_>>(), config).unwrap();
                make(&batcher, items.epoch(TRAIN).batch(4 * step + batch))
            };
            assert_eq!(joined(accumulated, 4), (one.links.clone(), pairs(&one)), "step {step}");
            // The links of all ranks are excluded on each rank, in both directions, so each rank samples the sources of one.
            let of_one = sources(&one);
            for part in (0..4).map(of_rank).chain((0..4).map(accumulated)) {
                for (layer, of_dsts) in sources(&part).iter().enumerate() {
                    for (dst, srcs) in of_dsts {
                        assert_eq!(Some(srcs), of_one[layer].get(dst), "step {step}, layer {layer}, {dst:?}");
                    }
                }
            }
        }
    }
}

/// The sources of each destination, for each block.
fn sources(batch: &LinkBatch<MiniBatch>) -> Vec<BTreeMap<NodeId, Vec<NodeId>>> {
    let of_block = |block: &Block| {
        let srcs = |dst: usize| {
            let edges = block.indptr()[dst] as usize..block.indptr()[dst + 1] as usize;
            block.indices()[edges].iter().map(|src| block.srcs()[src.index()]).collect()
        };
        block.dsts().iter().enumerate().map(|(row, dst)| (*dst, srcs(row))).collect()
    };
    batch.nodes.sampled.blocks.iter().map(of_block).collect()
}

/// Keeps the excluded edges of each batch instead of sampling.
struct Excluded;

impl Batcher for Excluded {
    type Item = NodeId;
    type Batch = Option<Arc<ExcludedEdges>>;
    type Scratch = ();

    fn batch(&self, seeds: SeedBatch, _: &mut (), _: &mut StageTimes) -> Result<Self::Batch, BatchError> {
        Ok(seeds.excluded)
    }

    fn n_bytes(_: &Self::Batch) -> usize {
        0
    }
}

#[test]
fn batches_of_a_step_share_the_excluded_edges() {
    let negatives = Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 1);
    let batcher = LinkBatcher::new(Excluded, links(), negatives);
    let config = ItemSamplerConfig { batch_size: 12, accumulate: 4, ..Default::default() };
    let order = |seed: u64| {
        let config = ItemSamplerConfig { seed, ..config };
        ItemSampler::new((0..180).map(LinkId).collect::<Vec<_>>(), config).unwrap().epoch(TRAIN)
    };
    let excluded = |seeds| batcher.batch(seeds, &mut (), &mut StageTimes::default()).unwrap().nodes.unwrap();
    let mut last: Option<Arc<ExcludedEdges>> = None;
    // Steps with the same number and other links have edges of their own.
    for (seed, step) in [(0, 0), (0, 1), (1, 1), (0, 1)] {
        let order = order(seed);
        let of_step = [0, 1, 2, 3].map(|batch| excluded(order.batch(4 * step + batch)));
        assert!(of_step.iter().all(|edges| Arc::ptr_eq(edges, &of_step[0])), "seed {seed}, step {step}");
        let pairs = order.batch(4 * step).of_step.iter().map(|link| links().pair(*link)).collect::<Vec<_>>();
        assert_eq!(*of_step[0], ExcludedEdges::with_reverses(pairs), "seed {seed}, step {step}");
        assert!(last.is_none_or(|last| *last != *of_step[0]));
        last = Some(Arc::clone(&of_step[0]));
    }
    let seeds = order(0).batch(0);
    let directed = batcher.exclusion(LinkExclusion::Directed);
    let edges = directed.batch(seeds, &mut (), &mut StageTimes::default()).unwrap().nodes.unwrap();
    assert_eq!(edges.len(), 48);
}

#[test]
fn batches_count_negatives_that_are_rejected_after_the_last_draw() {
    let n_rejected = |negatives: Negatives, links: &[u32]| {
        let seeds = SeedBatch::new(TRAIN, 0, RngKey::new(0), links.iter().copied().map(LinkId).collect());
        make(&batcher(negatives), seeds).n_rejected
    };
    // A step with a single link has no other destination.
    assert_eq!(n_rejected(Negatives::new(InBatchNegatives, 3), &[7]), 3);
    assert_eq!(n_rejected(Negatives::new(InBatchNegatives, 3), &[7, 20]), 0);
    // All destinations are the source, without and with another draw.
    let fixed = UniformNegatives { dsts: 0..1 };
    assert_eq!(n_rejected(Negatives::new(fixed.clone(), 2).max_draws(1), &[0, 1, 50]), 4);
    assert_eq!(n_rejected(Negatives::new(fixed, 2), &[50]), 0);
}

#[test]
fn debug_output_of_a_seed_batch_has_the_items_of_its_step_only() {
    let seeds = items(0, 1, 3).epoch(TRAIN).batch(2);
    assert_eq!(format!("{:?}", seeds.of_step), format!("{:?}", seeds.seeds));
    assert_eq!(format!("{seeds:?}").matches("LinkId(").count(), 6, "{seeds:?}");
}

#[test]
fn evaluation_negatives_do_not_depend_on_the_batch_size_or_the_epoch() {
    let uniform = Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 5);
    for negatives in [uniform, Negatives::new(InBatchNegatives, 5)] {
        let batcher = batcher(Negatives::new(InBatchNegatives, 1)).eval_negatives(negatives);
        let all = |batch_size: usize, phase: Phase| {
            let order = items(0, 1, batch_size).epoch(phase);
            let of_step = |step| pairs(&make(&batcher, order.batch(step)));
            (0..order.n_steps()).flat_map(of_step).collect::<Vec<_>>()
        };
        assert_eq!(all(7, Phase::Validation), all(180, Phase::Validation));
        assert_ne!(all(180, Phase::Test), all(180, Phase::Validation));
    }
}

#[test]
fn evaluations_use_the_given_negatives_in_their_order() {
    // Each link has its own source as a negative destination, edges of the graph, and repeated nodes: none is rejected.
    let negatives = |first: u32, n_links: u32, n_per_link: u32| {
        let ids = (first..first + n_links).map(LinkId).collect::<Vec<_>>();
        let dsts: Vec<u32> =
            (0..n_links * n_per_link).map(|negative| (first + negative / 2) % N_NODES).collect();
        LinkNegatives::of_dsts(ids, n_per_link as usize, dsts).unwrap()
    };
    let (val, test) = (negatives(100, 30, 5), negatives(130, 50, 3));
    let batcher = batcher(Negatives::new(InBatchNegatives, 1))
        .eval_negatives(Negatives::fixed(val.clone()))
        .test_negatives(Negatives::fixed(test.clone()));
    for (phase, negatives) in [(Phase::Validation, &val), (Phase::Test, &test)] {
        let expected: Vec<(NodeId, NodeId)> = (0..)
            .zip(negatives.links())
            .flat_map(|(row, link)| {
                let (src, dst) = links().pair(*link);
                let negatives = negatives.dsts_of(row).iter().map(|dst| (src, *dst)).collect::<Vec<_>>();
                [(src, dst)].into_iter().chain(negatives)
            })
            .collect();
        for (n_ranks, batch_size) in [(1, 1), (1, 7), (1, 100), (2, 4), (4, 3)] {
            let order = |rank: usize| {
                let shard = Shard { rank, world_size: n_ranks };
                let config = ItemSamplerConfig { batch_size, shard, ..Default::default() };
                ItemSampler::new(negatives.links().to_vec(), config).unwrap().epoch(phase)
            };
            let mut all = Vec::new();
            for step in 0..order(0).n_steps() {
                let of_rank = |rank: usize| make(&batcher, order(rank).batch(step));
                all.extend(joined(of_rank, n_ranks).1);
            }
            assert_eq!(all, expected, "{phase:?}, {n_ranks} ranks, batches of {batch_size}");
        }
    }
    let seeds = items(0, 1, 7).epoch(Phase::Validation).batch(0);
    let error = batcher.batch(seeds, &mut Scratch::default(), &mut StageTimes::default()).unwrap_err();
    assert!(error.to_string().contains("no row for link 0"), "{error}");
}

#[test]
fn excludes_the_links_of_training_steps() {
    let negatives = || Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 1);
    let full = || LinkBatcher::new(nodes([Fanout::All; 2]), links(), negatives());
    let n_edges = |batcher: &LinkBatcher<Nodes>, phase: Phase| {
        let batch = make(batcher, items(0, 1, 180).epoch(phase).batch(0));
        batch.nodes.sampled.blocks[1].n_edges()
    };
    // All edges are links of the step.
    assert_eq!(n_edges(&full(), TRAIN), 0);
    assert_eq!(n_edges(&full().exclusion(LinkExclusion::Directed), TRAIN), 180);
    assert_eq!(n_edges(&full().exclusion(LinkExclusion::None), TRAIN), 360);
    assert_eq!(n_edges(&full(), Phase::Validation), 360);
}

#[test]
fn pads_a_short_step_on_all_ranks_alike() {
    let config = |rank| ItemSamplerConfig {
        batch_size: 8,
        shard: Shard { rank, world_size: 5 },
        uneven: UnevenShards::Pad,
        ..Default::default()
    };
    let order =
        |rank| ItemSampler::new((0..83).map(LinkId).collect::<Vec<_>>(), config(rank)).unwrap().epoch(TRAIN);
    let last: Vec<_> = (0..5).map(|rank| order(rank).step(2)).collect();
    let all: Vec<LinkId> = last.iter().flat_map(|seeds| seeds.seeds.clone()).collect();
    assert_eq!(all.len(), 5);
    assert!(last.iter().all(|seeds| seeds.of_step.iter().eq(&all)));
}

#[test]
fn reports_links_that_do_not_exist() {
    let seeds = SeedBatch::new(TRAIN, 0, RngKey::new(0), vec![LinkId(3), LinkId(180)]);
    let batcher = batcher(Negatives::new(InBatchNegatives, 1));
    let error = batcher.batch(seeds, &mut Scratch::default(), &mut StageTimes::default()).unwrap_err();
    assert!(
        matches!(error, BatchError::LinkOutOfRange { link: LinkId(180), position: 1, n_links: 180 }),
        "{error}"
    );
}

#[test]
fn users_draw_negatives_of_their_own() {
    struct Next;
    impl NegativeSampler for Next {
        fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
            (link.src, NodeId((link.dst.0 + 1 + rng.below(2)) % N_NODES))
        }

        fn name(&self) -> &str {
            "next"
        }
    }
    let batch = make(&batcher(Negatives::new(Next, 1)), items(0, 1, 180).epoch(TRAIN).batch(0));
    for pair in pairs(&batch).chunks_exact(2) {
        assert_eq!(pair[0].0, pair[1].0);
        assert!(
            [1, 2].contains(&((pair[1].1.0 + N_NODES - pair[0].1.0) % N_NODES)) || pair[1].0 == pair[1].1
        );
    }
}

/// The nodes of a link and of its negatives know what was known at the time of the link, and no other time.
#[test]
fn the_nodes_of_a_link_are_sampled_at_its_time() {
    let all = links();
    let srcs: Vec<u32> = all.srcs().iter().map(|node| node.0).collect();
    let dsts: Vec<u32> = all.dsts().iter().map(|node| node.0).collect();
    let graph = CscBuilder::new(N_NODES as usize).symmetrize().build(&srcs, &dsts).unwrap();
    let edge_times: Vec<i64> = (0..graph.n_edges() as i64).map(|edge| edge * 37 % 100).collect();
    let graph = Arc::new(graph.with_edge_times(edge_times.clone()).unwrap());
    let features = DenseFeatures::from_f32(vec![0.0; N_NODES as usize], 1).unwrap();
    let sampler: Arc<dyn FrontierSampler> = Arc::new(NeighborSampler::new(graph, [Fanout::All; 2]));
    let nodes: Nodes = NodeBatcher::without_targets(sampler, Arc::new(features));
    let link_times: Vec<i64> = (0..all.len() as i64).map(|link| link % 90 + 5).collect();
    let negatives = Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 2);
    let batcher =
        LinkBatcher::new(nodes, all, negatives).exclusion(LinkExclusion::None).link_times(link_times.clone());
    let seeds = items(0, 1, 32).epoch(TRAIN).batch(2);
    let batch = make(&batcher, seeds.clone());
    let times = batch.nodes.sampled.seeds.times().unwrap();
    for (position, (src, dst)) in batch.srcs.iter().zip(&batch.dsts).enumerate() {
        let expected = link_times[batch.links[position / 3].index()];
        assert_eq!([times[*src as usize], times[*dst as usize]], [expected; 2], "pair {position}");
    }
    for block in &batch.nodes.sampled.blocks {
        let of_srcs = block.src_times().unwrap();
        for (row, bounds) in block.indptr().windows(2).enumerate() {
            for edge in &block.edge_ids()[bounds[0] as usize..bounds[1] as usize] {
                assert!(edge_times[edge.index()] < of_srcs[row], "edge {} should be early", edge.0);
            }
        }
    }
    // Times that come with the seeds replace those of the links, and there is one for each.
    let given = make(&batcher, SeedBatch { times: Some(vec![50; 32]), ..seeds.clone() });
    assert!(given.nodes.sampled.seeds.times().unwrap().iter().all(|time| *time == 50));
    let short = SeedBatch { times: Some(vec![50]), ..seeds };
    let error = batcher.batch(short, &mut Scratch::default(), &mut StageTimes::default()).unwrap_err();
    assert!(error.to_string().contains("1 times for 32 seeds"), "{error}");
}
