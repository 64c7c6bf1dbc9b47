//! A batch of links must not contain what it predicts. The graph and the features are random, so a score of a pair has
//! nothing to learn from: an area under the ROC curve above 1/2 shows that a link is read from the graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureBuffer};
use kiln_graph::{CscBuilder, LinkId, Links, NodeId};
use kiln_loader::{
    Batcher, ItemSampler, ItemSamplerConfig, LinkBatch, LinkBatcher, LinkExclusion, MiniBatch, NodeBatcher,
    Phase, StageTimes,
};
use kiln_sample::{
    Fanout, KeyDomain, Negatives, NeighborSampler, NodeRng, RngKey, Scratch, UniformNegatives,
};

const N_NODES: u32 = 2_000;
const N_LINKS: usize = 10_000;
const DIM: usize = 32;

fn rng(number: u32) -> NodeRng {
    RngKey::new(11).fold_in(KeyDomain::Step, 0).node(NodeId(number)).rng()
}

/// Returns pairs of different nodes, each drawn uniformly.
fn random_links() -> Links {
    let mut rng = rng(0);
    let pair = |_| {
        let src = rng.below(N_NODES);
        (src, (src + 1 + rng.below(N_NODES - 1)) % N_NODES)
    };
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = (0..N_LINKS).map(pair).unzip();
    Links::new(srcs, dsts).unwrap()
}

fn random_features() -> DenseFeatures {
    let mut rng = rng(1);
    let n_values = N_NODES as usize * DIM;
    let values: Vec<f32> = (0..n_values).map(|_| rng.below(1 << 16) as f32 / 32_768.0 - 1.0).collect();
    DenseFeatures::from_f32(values, DIM).unwrap()
}

/// Returns the area under the ROC curve of the pairs of one epoch. The score of a pair is the dot product of its nodes'
/// rows; the row of a node is the sum of the features of the node and of its sampled neighbours.
fn auc(fanout: Fanout, exclusion: LinkExclusion) -> f64 {
    let links = random_links();
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<u32>>();
    let graph = CscBuilder::new(N_NODES as usize).symmetrize();
    let graph = graph.build(&ids(links.srcs()), &ids(links.dsts())).unwrap();
    let sampler = NeighborSampler::new(Arc::new(graph), [fanout]);
    let nodes = NodeBatcher::without_targets(Arc::new(sampler), Arc::new(random_features()));
    let negatives = Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 1);
    let batcher = LinkBatcher::new(nodes, links, negatives).exclusion(exclusion);
    let config = ItemSamplerConfig { batch_size: 500, ..Default::default() };
    let items = ItemSampler::new((0..N_LINKS as u32).map(LinkId).collect::<Vec<_>>(), config).unwrap();
    let epoch = items.epoch(Phase::Train { epoch: 0 });
    let (mut scores, mut scratch) = (Vec::new(), Scratch::default());
    for step in 0..N_LINKS / 500 {
        let batch = batcher.batch(epoch.batch(step), &mut scratch, &mut StageTimes::default()).unwrap();
        scores.extend(scored(&batch));
    }
    assert_eq!(scores.len(), 2 * N_LINKS);
    area(scores)
}

/// Returns the score of each pair, and true for a link.
fn scored(batch: &LinkBatch<MiniBatch>) -> Vec<(f32, bool)> {
    let block = &batch.nodes.sampled.blocks[0];
    let FeatureBuffer::F32(x) = &batch.nodes.input.only().unwrap().x else {
        panic!("the features should be f32")
    };
    let feature = |row: usize| &x[row * DIM..(row + 1) * DIM];
    let row = |dst: usize| {
        let mut sum = feature(dst).to_vec();
        let edges = block.indptr()[dst] as usize..block.indptr()[dst + 1] as usize;
        for src in &block.indices()[edges] {
            sum.iter_mut().zip(feature(src.index())).for_each(|(sum, value)| *sum += value);
        }
        sum
    };
    let rows: Vec<Vec<f32>> = (0..block.n_dst()).map(row).collect();
    let row_of = |position: u32| &rows[batch.nodes.sampled.seed_index[position as usize].index()];
    let pairs = batch.srcs.iter().zip(&batch.dsts).enumerate();
    pairs
        .map(|(pair, (&src, &dst))| {
            let score = row_of(src).iter().zip(row_of(dst)).map(|(one, other)| one * other).sum();
            (score, pair.is_multiple_of(1 + batch.n_negatives))
        })
        .collect()
}

/// Returns the share of pairs of a link and a negative in which the link has the larger score.
fn area(mut scores: Vec<(f32, bool)>) -> f64 {
    scores.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut n_negatives, mut n_ordered) = (0_u64, 0_u64);
    for (_, is_link) in &scores {
        match is_link {
            true => n_ordered += n_negatives,
            false => n_negatives += 1,
        }
    }
    let n_links = scores.len() as u64 - n_negatives;
    n_ordered as f64 / (n_links * n_negatives) as f64
}

#[test]
fn links_cannot_be_read_from_a_batch_with_exclusion() {
    for fanout in [Fanout::UpTo(5), Fanout::All] {
        let auc = auc(fanout, LinkExclusion::WithReverses);
        assert!((auc - 0.5).abs() < 0.02, "{fanout:?}: {auc}");
    }
}

/// Shows that the test above can fail.
#[test]
fn links_can_be_read_from_a_batch_without_exclusion() {
    for (exclusion, least) in [(LinkExclusion::None, 0.72), (LinkExclusion::Directed, 0.6)] {
        let auc = auc(Fanout::All, exclusion);
        assert!(least < auc, "{exclusion:?}: {auc}");
    }
}
