//! Stage `step`: whole training steps (forward, backward, update) as users run them, on fresh batches that one worker
//! samples, gathers and copies to the device in advance. The benches are a step of GraphSAGE with three layers of 256,
//! (with `-bf16`: products in bf16), a step of a GCN with two layers of 64, and an epoch of GIN with two layers of 64, including loading and batching.
//! The rates count seeds and graphs.

use std::time::{Duration, Instant};

use burn::tensor::Device;
use kiln_benches::{
    Endless, GraphInput, Input, Result, Stage, Work, fake, graph_inputs, inputs, n_threads, train, wants_fake,
};
use kiln_comm::SingleRank;
use kiln_graph::gcn_norm;
use kiln_kernels::ops::{MatmulPrecision, has_bf16_products, set_matmul_precision};
use kiln_loader::{Batcher, GraphBatcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher};
use kiln_nn::{GcnConfig, GinConfig, JumpingKnowledge, Normalization};
use kiln_sample::{EdgeWeights, Fanout, NeighborSampler, Rule, SamplerConfig};
use kiln_train::{
    AdamConfig, DeviceBatch, DeviceBatcher, GraphClassification, NodeClassification, OptimizerConfig, Task,
    TaskTrainer, TrainerConfig,
};

/// The loader configuration of the GCN and GIN benches: one worker besides the trainer's threads.
const LOADER: LoaderConfig = LoaderConfig { workers: 1, queue_bytes: 256 << 20 };

pub(crate) fn main() -> Result {
    let mut stage = Stage::new("step");
    for input in inputs()? {
        sage(&mut stage, &input)?;
    }
    for input in graph_inputs()? {
        gin(&mut stage, &input)?;
    }
    if wants_fake() {
        gcn(&mut stage)?;
    }
    stage.finish();
    Ok(())
}

fn sage(stage: &mut Stage, input: &Input) -> Result {
    let sampled = input.sampled(4)?;
    let flops = sampled.iter().map(|batch| train::flop(input, batch)).sum::<Result<u64>>()?;
    let flop = flops / sampled.len() as u64;
    let n_seeds = sampled[0].seed_index.len() as u64;
    drop(sampled);
    let work = Work::new(n_seeds, "seeds", n_threads()).flop(flop);
    let variant = format!("sage-3x256-{}", input.fanouts_name());
    sage_of(stage, input, &variant, work)?;
    if has_bf16_products() {
        set_matmul_precision(MatmulPrecision::Bf16);
        sage_of(stage, input, &format!("{variant}-bf16"), work)?;
        set_matmul_precision(MatmulPrecision::F32);
    }
    Ok(())
}

fn sage_of(stage: &mut Stage, input: &Input, variant: &str, work: Work) -> Result {
    let mut trainer = train::trainer(input, &Device::flex())?;
    let mut batches = train::batches(input, trainer.model(), &Device::flex())?;
    stage.bench(variant, &input.name, work, |bencher| {
        bencher.iter_custom(|n| steps(&mut trainer, &mut batches, n));
    })
}

/// Returns the time of `n_steps` steps in a steady state. An unmeasured first step consumes a prefetched batch.
fn steps<T: Task, F: Batcher<Batch = DeviceBatch<T::Input>>>(
    trainer: &mut TaskTrainer<T>,
    batches: &mut Endless<F>,
    n_steps: u64,
) -> Duration {
    let mut step = || {
        trainer.step(batches, |_| ()).expect("a step should have a finite loss");
    };
    step();
    let started = Instant::now();
    (0..n_steps).for_each(|_| step());
    started.elapsed()
}

fn gcn(stage: &mut Stage) -> Result {
    let data = fake()?;
    let graph = std::sync::Arc::new(gcn_norm(data.csc()?)?);
    let config = SamplerConfig::new([Fanout::UpTo(50); 2]).with_rule(Rule::UniformKeepSelfLoops);
    let sampler = NeighborSampler::with_config(graph, config.with_weights(EdgeWeights::Unbiased))?;
    let batcher = NodeBatcher::new(sampler.into(), data.node_features()?.clone(), data.labels());
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    let items = ItemSamplerConfig { batch_size: 128, ..ItemSamplerConfig::default() };
    let mut batches =
        Endless::new(Loader::new(ItemSampler::new(data.split().train.to_vec(), items)?, batcher, LOADER)?);
    let model = GcnConfig {
        d_in: data.node_features()?.dim(),
        hidden: 64,
        n_classes: data.labels().n_classes(),
        n_layers: 2,
        input_dropout: 0.0,
        dropout: 0.0,
        ..GcnConfig::new(data.node_features()?.dim(), data.labels().n_classes())
    };
    let optimizer = AdamConfig::new(0.01).weight_decay(5e-4).into();
    let task = NodeClassification::new();
    let config = TrainerConfig::new(optimizer);
    let mut trainer = TaskTrainer::new(task, &config, Box::new(SingleRank), |key, device: &Device| {
        model.init(key, device)
    })?;
    stage.bench("gcn-2x64-50-50", "fake", Work::new(128, "seeds", n_threads()), |bencher| {
        bencher.iter_custom(|n| steps(&mut trainer, &mut batches, n));
    })
}

fn gin(stage: &mut Stage, input: &GraphInput) -> Result {
    let train = input.train();
    let work = Work::new(train.len() as u64, "graphs", n_threads());
    let offsets = input.node_offsets.clone().into();
    let batcher =
        GraphBatcher::new(input.graph.clone(), offsets, input.features.clone(), input.labels.clone());
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    let items = ItemSamplerConfig { batch_size: 32, ..ItemSamplerConfig::default() };
    let loader = Loader::new(ItemSampler::new(train, items)?, batcher, LOADER)?;
    let model = GinConfig {
        n_layers: 2,
        norm: Normalization::None,
        jumping: JumpingKnowledge::Last,
        dropout: 0.0,
        ..GinConfig::paper(input.features.dim(), 64, input.labels.n_classes())
    };
    let config = TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0));
    let mut trainer = TaskTrainer::new(
        GraphClassification::new(),
        &config,
        Box::new(SingleRank),
        |key, device: &Device| model.init(key, device),
    )?;
    stage.bench("gin-2x64-epoch", &input.name, work, |bencher| {
        bencher.iter(|| trainer.epoch(&loader, |_| {}).expect("a step should have a finite loss"));
    })
}
