//! Batches of node tasks prepared on the host and on a device are equal, and training with them gives bit-identical
//! weights.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use burn::tensor::Device;
use half::f16;
use kiln_comm::{Communicator, SingleRank};
use kiln_data::Dataset;
use kiln_feature::{EdgeFeatures, FeatureBuffer};
use kiln_graph::{Block, EdgeId, NodeId};
use kiln_kernels::ops;
use kiln_kernels::testing::{Uploads, device, read_block, reads_of, uploads_of, values};
use kiln_kernels::{DeviceBlock, DeviceEdgeColumn, DeviceFeatures, DeviceGraph, DeviceSampler, is_cpu};
use kiln_loader::{Batcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Phase};
use kiln_nn::{Aggregate, EdgeInput, Gine, GineConfig, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler, SamplerConfig, Seeds, count_node_accesses};
use kiln_train::{
    DeviceBatch, DeviceBatcher, DeviceNodeBatcher, EpochReport, HostNodeBatcher, NodeClassification,
    NodeInput, OptimizerConfig, StepReport, TaskTrainer, TrainerConfig, weights_to_bytes,
};

use super::common::{data, nodes, ranks, shard};

const FANOUTS: [Fanout; 2] = [Fanout::UpTo(4), Fanout::UpTo(3)];

fn items(data: &Dataset, comm: &dyn Communicator) -> ItemSampler {
    let shard = shard(comm);
    let config =
        ItemSamplerConfig { batch_size: 64 / shard.world_size, seed: 1, shard, ..Default::default() };
    // A repeated seed is a single destination node, but has two losses.
    let mut seeds = nodes(300);
    seeds.extend(nodes(5));
    assert!(seeds.len() < data.graph.n_nodes());
    ItemSampler::new(seeds, config).unwrap()
}

fn loader<F: Batcher<Item = NodeId>>(
    data: &Dataset,
    comm: &dyn Communicator,
    batcher: F,
    workers: usize,
) -> Loader<F> {
    let config = LoaderConfig { workers, ..Default::default() };
    Loader::new(items(data, comm), batcher, config).unwrap()
}

fn host_fetch(data: &Dataset) -> NodeBatcher<NeighborSampler> {
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), FANOUTS);
    NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels())
}

/// Returns a batcher on the device. If `has_all_rows` is true, device memory contains all feature rows, otherwise a
/// tenth of them.
fn device_fetch(data: &Dataset, device: &Device, has_all_rows: bool) -> DeviceNodeBatcher {
    let graph = DeviceGraph::new(data.csc().unwrap().clone(), device).unwrap();
    let sampler = DeviceSampler::new(graph, FANOUTS);
    let source = data.node_features().unwrap().clone();
    let n_rows = source.n_rows() as u64;
    let features = match has_all_rows {
        true => DeviceFeatures::new(source, device).unwrap(),
        false => {
            let row_bytes = 4 * source.dim() as u64;
            let n_bytes = 4 * n_rows + n_rows / 10 * row_bytes;
            DeviceFeatures::hottest(source, &data.csc().unwrap().out_degrees(), n_bytes, device).unwrap()
        }
    };
    DeviceNodeBatcher::new(sampler.into(), features.into(), data.labels())
}

fn sage(data: &Dataset) -> SageConfig {
    SageConfig {
        d_in: data.node_features().unwrap().dim(),
        hidden: 16,
        n_classes: data.labels().n_classes(),
        n_layers: 2,
        aggregate: Aggregate::Mean,
        input_dropout: 0.1,
        dropout: 0.5,
        ..SageConfig::new(data.node_features().unwrap().dim(), data.labels().n_classes())
    }
}

fn trainer(
    data: &Dataset,
    comm: Box<dyn Communicator>,
    device: &Device,
) -> TaskTrainer<NodeClassification<Sage>> {
    let optimizer = OptimizerConfig::adam(0.01, 0.0);
    let config = TrainerConfig { seed: 1, device: device.clone(), ..TrainerConfig::new(optimizer) };
    TaskTrainer::new(NodeClassification::new(), &config, comm, |key, device| sage(data).init(key, device))
        .unwrap()
}

fn train<F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(
    data: &Dataset,
    comm: Box<dyn Communicator>,
    device: &Device,
    batcher: F,
    workers: usize,
) -> (EpochReport, Vec<u8>) {
    let loader = loader(data, &*comm, batcher, workers);
    let mut trainer = trainer(data, comm, device);
    let report = trainer.epoch(&loader, |_| ()).unwrap();
    let counts = trainer.evaluate(loader.epoch(Phase::Validation), |_, _| ()).unwrap();
    assert_eq!(counts.total, 305);
    (report, weights_to_bytes(trainer.model()).unwrap())
}

#[test]
fn batches_of_host_and_device_give_identical_weights() {
    let (data, device) = (data(400), device());
    let on_host = || DeviceBatcher::new(host_fetch(&data), &device);
    let (expected, weights) = train(&data, Box::new(SingleRank), &device, on_host(), 0);
    let check = |what: &str, (got, got_weights): (EpochReport, Vec<u8>)| {
        assert_eq!(got.counts, expected.counts, "{what}: losses");
        assert_eq!(got_weights, weights, "{what}: weights");
    };
    for workers in [0, 1] {
        check("copied by a worker", train(&data, Box::new(SingleRank), &device, on_host(), workers));
        let gathered = HostNodeBatcher::new(host_fetch(&data), &device);
        check("gathered for the device", train(&data, Box::new(SingleRank), &device, gathered, workers));
        for has_all_rows in [true, false] {
            let batcher = device_fetch(&data, &device, has_all_rows);
            check("made on the device", train(&data, Box::new(SingleRank), &device, batcher, workers));
        }
    }
}

#[test]
fn two_ranks_train_on_the_batches_of_a_shared_device() {
    let (data, device) = (data(400), device());
    let train_ranks = |on_device: bool| {
        ranks(2)
            .run(|comm| {
                Ok(match on_device {
                    true => train(&data, comm, &device, device_fetch(&data, &device, true), 1),
                    false => train(&data, comm, &device, DeviceBatcher::new(host_fetch(&data), &device), 1),
                })
            })
            .unwrap()
    };
    let (expected, got) = (train_ranks(false), train_ranks(true));
    for ((got, got_weights), (expected, weights)) in got.iter().zip(&expected) {
        assert_eq!(got.counts, expected.counts);
        assert_eq!(got_weights, weights);
    }
}

#[test]
fn batches_of_the_device_equal_those_of_the_host() {
    let (data, device) = (data(400), device());
    let on_host = loader(&data, &SingleRank, host_fetch(&data), 0);
    let on_device = loader(&data, &SingleRank, device_fetch(&data, &device, false), 1);
    let phase = Phase::Train { epoch: 3 };
    let on_device: Vec<DeviceBatch<NodeInput>> = on_device.epoch(phase).map(Result::unwrap).collect();
    assert_eq!(on_device.len(), on_host.n_steps(phase));
    for (got, expected) in on_device.into_iter().zip(on_host.epoch(phase)) {
        let expected = expected.unwrap();
        let (got, key) = (got.input, got.key);
        assert_eq!(got.blocks.len(), expected.sampled.blocks.len());
        let rows: Vec<usize> = expected.sampled.seed_index.iter().map(|row| row.index()).collect();
        assert_eq!(
            (key, &got.seed_index, &got.labels),
            (expected.sampled.key, &rows, &expected.sampled.labels)
        );
        assert_eq!(got.seeds, expected.sampled.seeds.as_nodes());
        for (got, mut expected) in got.blocks.iter().zip(expected.sampled.blocks) {
            expected.take_transposed();
            assert_eq!(read_block(got), expected);
        }
        assert_eq!(
            values(ops::widen(got.x.only().unwrap().clone())),
            expected.input.only().unwrap().x.clone().into_f32()
        );
    }
}

#[test]
fn edge_types_reach_the_blocks_of_every_batcher() {
    let (data, device) = (data(400), device());
    let types: Vec<u8> = (0..data.graph.n_edges()).map(|edge| (edge % 251) as u8).collect();
    let graph = Arc::new((**data.csc().unwrap()).clone().with_edge_types(types.into()).unwrap());
    let config = || SamplerConfig::new(FANOUTS).with_edge_types();
    let on_host = || {
        let sampler = Arc::new(NeighborSampler::with_config(graph.clone(), config()).unwrap());
        NodeBatcher::new(sampler, data.node_features().unwrap().clone(), data.labels())
    };
    let on_device = || {
        let graph = DeviceGraph::new(graph.clone(), &device).unwrap();
        let sampler = DeviceSampler::with_config(graph, config()).unwrap();
        let features = DeviceFeatures::new(data.node_features().unwrap().clone(), &device).unwrap();
        DeviceNodeBatcher::new(sampler.into(), features.into(), data.labels())
    };
    fn first<F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(
        data: &Dataset,
        batcher: F,
    ) -> Vec<Block> {
        blocks_of_first(data, batcher).iter().map(read_block).collect()
    }
    let all = graph.edge_types().unwrap();
    let expected = first(&data, DeviceBatcher::new(on_host(), &device));
    for block in &expected {
        let of_block: Vec<u8> = block.edge_ids().iter().map(|edge| all[edge.index()]).collect();
        assert_eq!(block.edge_types(), Some(&of_block[..]));
    }
    assert_eq!(first(&data, HostNodeBatcher::new(on_host(), &device)), expected);
    assert_eq!(first(&data, on_device()), expected);
}

/// The thread that launches kernels must not copy the rows: with all rows in pinned memory, it does not.
#[test]
fn rows_of_a_batch_are_sent_from_pinned_memory() {
    let (data, device) = (data(400), device());
    let is_cuda = std::env::var("KILN_DEVICE").is_ok_and(|name| name.starts_with("cuda"));
    let phase = Phase::Train { epoch: 0 };
    let rows = |batch: &DeviceBatch<NodeInput>| batch.input.x.only().unwrap().shape().num_elements() as u64;
    let mut n_values = [0; 2];
    // Without workers, this thread makes the batches.
    let uploads = [
        uploads_of(|| {
            let batcher = DeviceBatcher::new(host_fetch(&data), &device);
            let batches = loader(&data, &SingleRank, batcher, 0).epoch(phase);
            n_values[0] = batches.map(|batch| rows(&batch.unwrap())).sum();
        }),
        uploads_of(|| {
            let batcher = HostNodeBatcher::new(host_fetch(&data), &device);
            let batches = loader(&data, &SingleRank, batcher, 0).epoch(phase);
            n_values[1] = batches.map(|batch| rows(&batch.unwrap())).sum();
        }),
    ];
    assert!(0 < n_values[0] && n_values[0] == n_values[1]);
    let n_bytes = if is_cpu(&device) { 0 } else { 4 * n_values[0] };
    let expected = Uploads { n_bytes, n_pinned_bytes: if is_cuda { n_bytes } else { 0 } };
    assert_eq!(uploads, [expected; 2]);
}

/// Rows that are selected by counting the accesses of a sampled epoch have a higher hit rate than arbitrary rows.
#[test]
fn rows_selected_by_presampling_have_a_higher_hit_rate() {
    let (data, device) = (data(400), device());
    let loader = loader(&data, &SingleRank, host_fetch(&data), 0);
    let order = loader.items().epoch(Phase::Train { epoch: 0 });
    let batches =
        (0..order.n_steps()).map(|step| order.step(step)).map(|batch| (Seeds::nodes(batch.seeds), batch.key));
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), FANOUTS);
    let counts = count_node_accesses(&sampler, data.graph.n_nodes(), batches).unwrap();
    let n_inputs: u32 = counts.iter().sum();
    let batches = loader.epoch(Phase::Train { epoch: 0 });
    assert_eq!(
        n_inputs as usize,
        batches.map(|batch| batch.unwrap().sampled.blocks[0].n_src()).sum::<usize>()
    );
    let share = |hotness: &[u32]| {
        let n_bytes = (4 * 400 + 40 * 4 * data.node_features().unwrap().dim()) as u64;
        let features =
            DeviceFeatures::hottest(data.node_features().unwrap().clone(), hotness, n_bytes, &device)
                .unwrap();
        let features = Arc::new(features);
        let graph = DeviceGraph::new(data.csc().unwrap().clone(), &device).unwrap();
        let sampler = Arc::new(DeviceSampler::new(graph, FANOUTS));
        let batcher = DeviceNodeBatcher::new(sampler, Arc::clone(&features), data.labels());
        let loader = Loader::new(items(&data, &SingleRank), batcher, LoaderConfig::default()).unwrap();
        loader.epoch(Phase::Train { epoch: 0 }).for_each(|batch| drop(batch.unwrap()));
        assert_eq!(features.cache_stats().n_rows, u64::from(n_inputs));
        features.cache_stats().hit_rate()
    };
    let (hottest, any) = (share(&counts), share(&vec![0; 400]));
    if is_cpu(&device) {
        assert_eq!((hottest, any), (1.0, 1.0), "the CPU reads all rows in place");
    } else {
        assert!(any < hottest && hottest < 1.0, "{hottest} and {any}");
    }
}

/// Steps do not wait for the device, except to read the losses of several steps at a time.
#[test]
fn losses_and_outputs_are_read_only_at_the_configured_interval() {
    let (data, device) = (data(400), device());
    let run = |read_every: usize| {
        let loader = loader(&data, &SingleRank, device_fetch(&data, &device, true), 1);
        let mut trainer = trainer(&data, Box::new(SingleRank), &device).with_read_every(read_every);
        let mut batches = loader.epoch(trainer.next_phase());
        let (mut steps, mut reads, mut more) = (Vec::new(), Vec::new(), true);
        while more {
            let seen = |report: &StepReport| steps.push((report.step, report.counts));
            let read = reads_of(|| more = trainer.step(&mut batches, seen).unwrap());
            reads.push(read.n_reads);
        }
        let report = trainer.end_epoch().unwrap();
        assert_eq!(report.n_steps, 5);
        (steps, reads, report.counts, weights_to_bytes(trainer.model()).unwrap())
    };
    let (steps, reads, counts, weights) = run(1);
    assert_eq!(steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let is_host = is_cpu(&device);
    // Each step reads two tensors, the loss and the outputs. Nothing is read after the last step.
    assert_eq!(reads, if is_host { [0; 6] } else { [2, 2, 2, 2, 2, 0] });
    let (later, reads, later_counts, later_weights) = run(3);
    assert_eq!(reads, if is_host { [0; 6] } else { [0, 0, 6, 0, 0, 4] });
    assert_eq!(
        (later, later_counts, later_weights),
        (steps, counts, weights),
        "losses that are read later should be equal"
    );
}

/// Returns the blocks of the first training batch.
fn blocks_of_first<F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(
    data: &Dataset,
    batcher: F,
) -> Vec<DeviceBlock> {
    let mut batches = loader(data, &SingleRank, batcher, 1).epoch(Phase::Train { epoch: 0 });
    batches.next().unwrap().unwrap().input.blocks
}

/// Returns features of one column for the edges.
fn features_of_edges(data: &Dataset) -> EdgeFeatures {
    let rows = (0..data.graph.n_edges()).map(|edge| f16::from_f32((edge % 256) as f32 / 8.0));
    EdgeFeatures::new(rows.collect::<Vec<_>>(), 1).unwrap()
}

/// Returns a batcher on the host with edge features.
fn host_with_edges(data: &Dataset, fanouts: [Fanout; 2]) -> NodeBatcher<NeighborSampler> {
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), fanouts);
    NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels())
        .edge_column("features", features_of_edges(data))
}

/// Returns batchers with edge features on a device, of a copy of the graph and of a staged graph.
fn devices_with_edges(data: &Dataset, device: &Device, fanouts: [Fanout; 2]) -> [DeviceNodeBatcher; 2] {
    let copied = DeviceGraph::new(data.csc().unwrap().clone(), device).unwrap();
    let staged = DeviceGraph::host_staged(data.csc().unwrap().clone(), device).unwrap();
    [copied, staged].map(|graph| {
        let of_edges = DeviceEdgeColumn::new("features", features_of_edges(data), &graph).unwrap();
        let sampler = DeviceSampler::new(graph, fanouts);
        let of_nodes = DeviceFeatures::new(data.node_features().unwrap().clone(), device).unwrap();
        DeviceNodeBatcher::new(sampler.into(), of_nodes.into(), data.labels()).edge_column(of_edges.into())
    })
}

#[test]
fn blocks_have_the_features_of_their_edges_also_without_edges() {
    let (data, device) = (data(400), device());
    let mut rows = FeatureBuffer::default();
    features_of_edges(&data)
        .gather(&(0..data.graph.n_edges()).map(EdgeId).collect::<Vec<_>>(), &mut rows)
        .unwrap();
    let rows = rows.into_f32();
    for fanouts in [FANOUTS, [Fanout::UpTo(0); 2]] {
        let host = || host_with_edges(&data, fanouts);
        let of_host = blocks_of_first(&data, DeviceBatcher::new(host(), &device));
        let expected: Vec<Block> = of_host.iter().map(read_block).collect();
        let gathered = blocks_of_first(&data, HostNodeBatcher::new(host(), &device));
        let of_device = devices_with_edges(&data, &device, fanouts);
        let of_device = of_device.map(|batcher| blocks_of_first(&data, batcher));
        for blocks in [of_host, gathered].into_iter().chain(of_device) {
            assert_eq!(blocks.iter().map(read_block).collect::<Vec<_>>(), expected);
            for (block, of_host) in blocks.iter().zip(&expected) {
                let ids = of_host.edge_ids();
                let expected: Vec<f32> = ids.iter().map(|edge| rows[edge.index()]).collect();
                let got = block.edge_features().unwrap();
                assert_eq!(got.dims(), [ids.len(), 1]);
                assert_eq!(values(ops::widen(got.clone())), expected);
            }
        }
    }
}

/// Trains a model of edge features for an epoch and returns its weights.
fn train_gine<F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(
    data: &Dataset,
    device: &Device,
    batcher: F,
) -> Vec<u8> {
    let (d_in, n_classes) = (data.node_features().unwrap().dim(), data.labels().n_classes());
    let model = GineConfig::new(d_in, n_classes, EdgeInput::Features(1)).layers(2).hidden(8);
    let optimizer = OptimizerConfig::adam(0.01, 0.0);
    let config = TrainerConfig { seed: 1, device: device.clone(), ..TrainerConfig::new(optimizer) };
    let init = |key, device: &Device| model.init(key, device);
    let task = NodeClassification::<Gine>::new();
    let mut trainer = TaskTrainer::new(task, &config, Box::new(SingleRank), init).unwrap();
    trainer.epoch(&loader(data, &SingleRank, batcher, 1), |_| ()).unwrap();
    weights_to_bytes(trainer.model()).unwrap()
}

#[test]
fn batches_of_host_and_device_give_identical_weights_of_a_model_of_edge_features() {
    let (data, device) = (data(400), device());
    let of_host = HostNodeBatcher::new(host_with_edges(&data, FANOUTS), &device);
    let expected = train_gine(&data, &device, of_host);
    for batcher in devices_with_edges(&data, &device, FANOUTS) {
        assert!(train_gine(&data, &device, batcher) == expected);
    }
}
