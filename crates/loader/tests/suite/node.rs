//! Batches of nodes: alignment of arrays, identical batches for any number of workers, typed errors.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kiln_feature::{DenseFeatures, EdgeFeatures, FeatureStore, Labels};
use kiln_graph::{Block, Csc, CscBuilder, NodeId, TransposedBlock};
use kiln_loader::{
    BatchError, Batcher, Error, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, MiniBatch, NodeBatcher,
    Phase, SeedBatch, Shard, StageTimes,
};
use kiln_sample::{
    Dsts, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler, RngKey, SampledBlocks, Scratch,
    Seeds,
};

const N_NODES: u32 = 6000;
const N_CLASSES: u32 = 7;

type NodeLoader = Loader<NodeBatcher<dyn FrontierSampler>>;

/// Every node has the 12 nodes before it as in-neighbours.
fn graph() -> Arc<Csc> {
    let mut srcs = Vec::new();
    let mut dsts = Vec::new();
    for dst in 0..N_NODES {
        for back in 1..=12 {
            srcs.push((dst + N_NODES - back) % N_NODES);
            dsts.push(dst);
        }
    }
    Arc::new(CscBuilder::new(N_NODES as usize).build(&srcs, &dsts).unwrap())
}

/// A loader of nodes: node `v` has the features `[v, -v]` and the class `v % N_CLASSES`; the first `n_labelled` nodes
/// are labelled.
fn loader(
    items: &[NodeId],
    fanouts: Vec<Fanout>,
    n_labelled: u32,
    config: ItemSamplerConfig,
    workers: usize,
) -> NodeLoader {
    loader_of(Arc::new(NeighborSampler::new(graph(), fanouts)), items, n_labelled, config, workers)
}

/// A loader as [`loader`] returns it, with a sampler of [`graph`].
fn loader_of(
    sampler: Arc<dyn FrontierSampler>,
    items: &[NodeId],
    n_labelled: u32,
    config: ItemSamplerConfig,
    workers: usize,
) -> NodeLoader {
    let rows: Vec<f32> = (0..N_NODES).flat_map(|node| [node as f32, -(node as f32)]).collect();
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(rows, 2).unwrap());
    let class = |node| if node < n_labelled { (node % N_CLASSES) as i32 } else { -1 };
    let labels = Labels::new((0..N_NODES).map(class).collect::<Vec<_>>(), N_CLASSES as usize);
    let batcher = NodeBatcher::new(sampler, features, Arc::new(labels));
    let items = ItemSampler::new(items.to_vec(), config).unwrap();
    Loader::new(items, batcher, LoaderConfig { workers, queue_bytes: 1 << 20 }).unwrap()
}

fn nodes() -> Vec<NodeId> {
    (0..N_NODES).map(NodeId).collect()
}

fn fanouts() -> Vec<Fanout> {
    vec![Fanout::UpTo(5), Fanout::UpTo(3)]
}

fn check_batch(batch: &MiniBatch) {
    let seeds = batch.sampled.seeds.as_nodes();
    assert_eq!((batch.sampled.labels.len(), batch.sampled.seed_index.len()), (seeds.len(), seeds.len()));
    let last = batch.sampled.blocks.last().unwrap();
    for ((seed, row), label) in seeds.iter().zip(&batch.sampled.seed_index).zip(&batch.sampled.labels) {
        assert_eq!(last.dsts()[row.index()], *seed);
        assert_eq!(*label as u32, seed.0 % N_CLASSES);
    }
    let rows: Vec<f32> =
        batch.sampled.blocks[0].srcs().iter().flat_map(|v| [v.0 as f32, -(v.0 as f32)]).collect();
    assert_eq!(
        (batch.input.only().unwrap().x.clone().into_f32(), batch.input.only().unwrap().dim),
        (rows, 2)
    );
}

/// The debug text of a batch with its times set to 0.
fn without_times(mut batch: MiniBatch) -> String {
    batch.times = StageTimes::default();
    format!("{batch:?}")
}

#[test]
fn batches_are_identical_for_any_number_of_workers() {
    let config = ItemSamplerConfig { batch_size: 256, seed: 3, ..Default::default() };
    for phase in [Phase::Train { epoch: 2 }, Phase::Validation] {
        let mut expected = Vec::new();
        for workers in [0, 1, 2, 8] {
            let loader = loader(&nodes(), fanouts(), N_NODES, config, workers);
            for repetition in 0..2 {
                let batches: Vec<MiniBatch> = loader.epoch(phase).map(Result::unwrap).collect();
                batches.iter().for_each(check_batch);
                let batches: Vec<String> = batches.into_iter().map(without_times).collect();
                if expected.is_empty() {
                    expected = batches;
                    assert_eq!(expected.len(), (N_NODES as usize).div_ceil(256));
                } else {
                    assert!(batches == expected, "{workers} workers, repetition {repetition}, {phase:?}");
                }
            }
        }
    }
}

#[test]
fn training_batches_equal_evaluation_batches_plus_transposed_blocks_after_the_first() {
    let rows = vec![0.0; 2 * N_NODES as usize];
    let batcher = || {
        let sampler = Arc::new(NeighborSampler::new(graph(), fanouts()));
        let features = Arc::new(DenseFeatures::from_f32(rows.clone(), 2).unwrap());
        NodeBatcher::new(sampler, features, Arc::new(Labels::new(vec![0; N_NODES as usize], 1)))
    };
    // Both batches have the same seeds and the same key.
    let items = ItemSampler::new(nodes(), ItemSamplerConfig::default()).unwrap();
    let seeds = items.epoch(Phase::Train { epoch: 0 }).step(0);
    let batch = |phase| {
        let seeds = SeedBatch { phase, ..seeds.clone() };
        batcher().batch(seeds, &mut Scratch::default(), &mut StageTimes::default()).unwrap()
    };
    let (plain, training) = (batch(Phase::Validation), batch(Phase::Train { epoch: 0 }));
    assert_eq!(training.sampled.blocks, plain.sampled.blocks);
    assert!(plain.sampled.blocks.iter().all(|block| block.transposed().is_none()));
    assert_eq!(training.sampled.blocks[0].transposed(), None);
    let transposed = TransposedBlock::of(&plain.sampled.blocks[1]);
    assert_eq!(training.sampled.blocks[1].transposed(), Some(&transposed));
    assert_eq!(training.n_bytes(), plain.n_bytes() + transposed.n_bytes());
}

#[test]
fn a_duplicate_seed_has_one_destination_and_two_labels() {
    let config = ItemSamplerConfig { shuffle: false, ..Default::default() };
    let items = [9, 4, 9].map(NodeId);
    let loader = loader(&items, fanouts(), N_NODES, config, 0);
    let batch = loader.epoch(Phase::Train { epoch: 0 }).next().unwrap().unwrap();
    check_batch(&batch);
    assert_eq!(batch.sampled.seeds.as_nodes(), items);
    assert_eq!(batch.sampled.blocks.last().map(Block::dsts), Some([9, 4].map(NodeId).as_slice()));
    assert_eq!(batch.sampled.labels, [2, 4, 2]);
}

#[test]
fn batches_have_the_features_of_the_edges_of_each_block() {
    let graph = graph();
    let rows: Vec<f32> = (0..graph.n_edges()).flat_map(|edge| [edge as f32, 0.5 * edge as f32]).collect();
    let features = DenseFeatures::from_f32(vec![0.0; N_NODES as usize], 1).unwrap();
    let labels = Arc::new(Labels::new(vec![0; N_NODES as usize], 1));
    let batcher = |edge_features: EdgeFeatures| {
        let sampler = Arc::new(NeighborSampler::new(graph.clone(), fanouts()));
        NodeBatcher::new(sampler, Arc::new(features.clone()), labels.clone())
            .edge_column("features", edge_features)
    };
    let batch = |edge_features| {
        let seeds = ItemSampler::new(nodes(), ItemSamplerConfig::default()).unwrap();
        let seeds = seeds.epoch(Phase::Validation).step(0);
        batcher(edge_features).batch(seeds, &mut Scratch::default(), &mut StageTimes::default())
    };
    let mut got = batch(EdgeFeatures::new(rows.clone(), 2).unwrap()).unwrap();
    let n_bytes = got.n_bytes();
    let columns = std::mem::take(&mut got.sampled.edge_columns);
    let edge_x = &columns[0];
    assert_eq!((edge_x.dim, edge_x.blocks.len()), (2, 2));
    for (block, rows) in got.sampled.blocks.iter().zip(&edge_x.blocks) {
        let expected = block.edge_ids().iter().flat_map(|edge| [edge.0 as f32, 0.5 * edge.0 as f32]);
        assert_eq!(rows.clone().into_f32(), expected.collect::<Vec<_>>());
    }
    assert_eq!(n_bytes, got.n_bytes() + edge_x.n_bytes());
    let error = batch(EdgeFeatures::new(rows[..4].to_vec(), 2).unwrap()).unwrap_err();
    assert!(error.to_string().contains("has no feature row: expected an id below 2"), "{error}");
}

#[test]
fn a_sampled_batch_is_the_batch_without_its_rows() {
    let rows: Vec<f32> = (0..2 * N_NODES).map(|value| value as f32).collect();
    let features = Arc::new(DenseFeatures::from_f32(rows, 2).unwrap());
    let labels = Arc::new(Labels::new(vec![0; N_NODES as usize], 1));
    // A repeated seed has one row if the model has no layers.
    let config = ItemSamplerConfig { shuffle: false, ..Default::default() };
    let items = ItemSampler::new([9, 4, 9].map(NodeId).to_vec(), config).unwrap();
    for (fanouts, phase) in [(fanouts(), Phase::Train { epoch: 1 }), (Vec::new(), Phase::Validation)] {
        let sampler = Arc::new(NeighborSampler::new(graph(), fanouts));
        let batcher = NodeBatcher::new(sampler, features.clone(), labels.clone());
        let seeds = items.epoch(phase).step(0);
        let (mut scratch, mut times) = (Scratch::default(), StageTimes::default());
        let batch = batcher.batch(seeds.clone(), &mut scratch, &mut times).unwrap();
        let sampled = batcher.sample(seeds, &mut scratch, &mut times).unwrap();
        let rows = batcher.features().gather(&sampled.input_nodes()).unwrap();
        assert_eq!(rows.only().unwrap().x, batch.input.only().unwrap().x);
        assert_eq!(
            (sampled.step, sampled.key, sampled.blocks),
            (batch.sampled.step, batch.sampled.key, batch.sampled.blocks)
        );
        assert_eq!(sampled.seeds.as_nodes(), batch.sampled.seeds.as_nodes());
        assert_eq!((sampled.seed_index, sampled.labels), (batch.sampled.seed_index, batch.sampled.labels));
    }
}

#[test]
fn without_layers_features_are_those_of_the_distinct_seeds() {
    let config = ItemSamplerConfig { shuffle: false, ..Default::default() };
    let loader = loader(&[9, 4, 9].map(NodeId), Vec::new(), N_NODES, config, 0);
    let batch = loader.epoch(Phase::Train { epoch: 0 }).next().unwrap().unwrap();
    assert_eq!(batch.input.only().unwrap().x.clone().into_f32(), [9.0, -9.0, 4.0, -4.0]);
    assert_eq!(batch.sampled.seed_index.iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn a_rank_without_seeds_in_the_last_step_gets_an_empty_batch() {
    let shard = Shard { rank: 1, world_size: 2 };
    let config = ItemSamplerConfig { batch_size: 1, shard, shuffle: false, ..Default::default() };
    let loader = loader(&nodes()[..3], fanouts(), N_NODES, config, 2);
    let batches: Vec<MiniBatch> = loader.epoch(Phase::Train { epoch: 0 }).map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(|batch| batch.sampled.seeds.len()).collect::<Vec<_>>(), [1, 0]);
    assert_eq!((batches[1].input.only().unwrap().x.n_values(), batches[1].sampled.blocks.len()), (0, 2));
    check_batch(&batches[1]);
}

#[test]
fn reports_an_unlabelled_seed_at_its_step() {
    let config = ItemSamplerConfig { batch_size: 10, shuffle: false, ..Default::default() };
    let mut batches = loader(&nodes(), fanouts(), 25, config, 2).epoch(Phase::Train { epoch: 0 });
    assert!(batches.next().unwrap().is_ok() && batches.next().unwrap().is_ok());
    let error = batches.next().unwrap().unwrap_err();
    let Error::Batch { step: 2, source: BatchError::Feature(source) } = &error else { panic!("{error}") };
    assert!(matches!(
        source,
        kiln_feature::Error::Targets(kiln_feature::TargetsError::Unlabelled { item: "node", id: 25 })
    ));
    assert_eq!(
        error.to_string(),
        "loading the batch of step 2 failed: node 25 has no label: remove it from the split"
    );
    assert!(batches.next().is_none());
}

#[test]
fn reports_a_seed_out_of_range_at_its_step() {
    let config = ItemSamplerConfig { batch_size: 1, shuffle: false, ..Default::default() };
    let items = [NodeId(1), NodeId(N_NODES)];
    let mut batches = loader(&items, fanouts(), N_NODES, config, 1).epoch(Phase::Train { epoch: 0 });
    assert!(batches.next().unwrap().is_ok());
    let error = batches.next().unwrap().unwrap_err();
    let Error::Batch { step: 1, source: BatchError::Sample(source) } = &error else { panic!("{error}") };
    assert!(matches!(source, kiln_sample::Error::SeedOutOfRange { node: NodeId(N_NODES), .. }));
}

/// The time that [`Waiting`] takes at least for the blocks of a batch.
const WAIT: Duration = Duration::from_millis(5);

/// A sampler that waits, so that a lower bound of its time is known on any machine.
struct Waiting(NeighborSampler);

impl FrontierSampler for Waiting {
    fn fanouts(&self) -> &[Fanout] {
        self.0.fanouts()
    }

    fn n_nodes(&self) -> usize {
        FrontierSampler::n_nodes(&self.0)
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        self.0.sample_frontier(request, dsts, scratch, out)
    }

    fn sample_blocks(
        &self,
        seeds: &Seeds,
        key: RngKey,
        scratch: &mut Scratch,
    ) -> kiln_sample::Result<SampledBlocks> {
        thread::sleep(WAIT);
        self.0.sample_blocks(seeds, key, scratch)
    }
}

#[test]
fn batches_report_their_sizes_and_times() {
    let sampler = Arc::new(Waiting(NeighborSampler::new(graph(), fanouts())));
    let loader = loader_of(sampler, &nodes(), N_NODES, ItemSamplerConfig::default(), 2);
    let mut total = StageTimes::default();
    let mut n_batches = 0;
    for batch in loader.epoch(Phase::Train { epoch: 0 }) {
        let batch = batch.unwrap();
        let blocks: usize = batch.sampled.blocks.iter().map(Block::n_bytes).sum();
        // Seeds, their numbers within the type, their rows and their labels.
        let n_seeds = batch.sampled.seeds.len();
        assert_eq!(batch.n_bytes(), blocks + 4 * 4 * n_seeds + 4 * 2 * batch.sampled.blocks[0].n_src());
        assert!(!batch.times.seeds.is_zero() && WAIT <= batch.times.sample && !batch.times.gather.is_zero());
        total += batch.times;
        n_batches += 1;
    }
    assert!(1 < n_batches && WAIT * n_batches <= total.sample);
}
