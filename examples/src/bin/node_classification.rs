//! Trains GraphSAGE to classify nodes, by minibatches of sampled neighbourhoods.
//!
//! ```text
//! cargo run --release --bin node_classification
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use clap::Parser;
use kiln_examples::{
    DataName, Progress, at_least_one, dataset, device, fanouts, non_negative, parse, positive, rate,
};
use kiln_feature::FeatureSource;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeFetch, Pass};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::{Domain, Fanout, NeighborSampler, RngKey};
use kiln_train::{
    NodeClassification, Optimizer, OptimizerConfig, PeakMemory, RunFolder, SingleRank, Summary, Trainer,
};

/// Trains GraphSAGE on a graph, evaluates it with sampled neighbours, and keeps the best model.
#[derive(Debug, Parser)]
struct Args {
    /// Data set.
    #[arg(long, value_enum, default_value = "debian-packages")]
    data: DataName,
    /// Neighbours per node, one number (or `all`) a layer, input layer first.
    #[arg(long, value_delimiter = ',', value_parser = fanouts, default_value = "10,10,10")]
    fanouts: Vec<Fanout>,
    /// Seeds in a batch.
    #[arg(long, value_parser = at_least_one, default_value = "1024")]
    batch_size: usize,
    /// Width of the hidden layers.
    #[arg(long, value_parser = at_least_one, default_value = "256")]
    hidden: usize,
    /// Passes over the training nodes.
    #[arg(long, value_parser = at_least_one, default_value = "20")]
    epochs: usize,
    /// Step size of the optimizer.
    #[arg(long, value_parser = positive, default_value = "0.003")]
    lr: f64,
    /// Fraction of the hidden values that is dropped in training.
    #[arg(long, value_parser = rate, default_value = "0.5")]
    dropout: f64,
    /// Weight decay: Adam without, AdamW with.
    #[arg(long, value_parser = non_negative, default_value = "0")]
    weight_decay: f64,
    /// Whether feature columns are scaled to mean 0 and standard deviation 1.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    standardize: bool,
    /// Seed of the order, the samples, the initial weights and dropout.
    #[arg(long, default_value = "0")]
    seed: u64,
    /// Threads that sample and gather ahead; 0 does so between the steps.
    #[arg(long, default_value = "1")]
    workers: usize,
    /// Threads that compute; all cores if not given.
    #[arg(long, value_parser = at_least_one)]
    threads: Option<usize>,
    /// Device that computes.
    #[arg(long, value_parser = device, default_value = "cpu")]
    device: Device,
    /// New or empty folder for the results; `runs/node_classification-NNN` if not given.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let (args, settings) = parse::<Args>();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.threads.unwrap_or(0)).build()?;
    pool.install(|| train(&args, &settings))
}

fn train(args: &Args, settings: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut run = match &args.out {
        Some(path) => RunFolder::create(path)?,
        None => RunFolder::create_numbered("runs", "node_classification")?,
    };
    run.write_config(settings)?;
    let data = dataset(args.data, args.seed)?;
    let data = if args.standardize { data.standardize() } else { data };
    let sampler = Arc::new(NeighborSampler::new(data.graph.clone(), args.fanouts.clone()));
    let loader = |nodes: &[NodeId]| -> anyhow::Result<_> {
        let config =
            ItemSamplerConfig { batch_size: args.batch_size, seed: args.seed, ..ItemSamplerConfig::default() };
        let fetch = NodeFetch::new(sampler.clone(), data.features.clone(), data.labels.clone());
        let config = (ItemSampler::new(nodes, config)?, LoaderConfig { workers: args.workers, ..Default::default() });
        Ok(Loader::new(config.0, fetch, config.1)?)
    };
    let (train, val) = (loader(&data.split.train)?, loader(&data.split.val)?);

    let model = SageConfig {
        d_in: data.features.dim(),
        hidden: args.hidden,
        n_classes: data.labels.n_classes(),
        n_layers: args.fanouts.len(),
        aggregate: Aggregate::Mean,
        dropout: args.dropout,
    };
    let key = RngKey::new(args.seed).fold(Domain::Host, 1);
    let model: Sage = model.init(key, &args.device.clone().autodiff())?;
    let kind = if args.weight_decay > 0.0 { Optimizer::AdamW } else { Optimizer::Adam };
    let optimizer = OptimizerConfig { kind, learning_rate: args.lr, weight_decay: args.weight_decay };
    let mut trainer =
        Trainer::new(NodeClassification::new(), model, &optimizer, SingleRank, args.device.clone())?;

    println!(
        "{}: {} nodes, {} edges, {} features, {} classes; {} / {} / {} nodes to train, validate, test",
        data.name,
        data.graph.n_nodes(),
        data.graph.n_edges(),
        data.features.dim(),
        data.labels.n_classes(),
        data.split.train.len(),
        data.split.val.len(),
        data.split.test.len(),
    );
    let mut progress = Progress::new(args.epochs, train.n_steps());
    let mut memory = PeakMemory::default();
    for epoch in 0..args.epochs {
        let report = trainer.epoch(train.epoch(Pass::Train { epoch: epoch as u64 }), |step| progress.step(step))?;
        let counts = trainer.evaluate(val.epoch(Pass::Evaluate { split: 0 }), |_, _| ())?;
        let is_best = run.record(epoch + 1, &report, &counts, trainer.model())?;
        memory.merge(report.peak_memory);
        progress.epoch(epoch + 1, &report, &counts, is_best);
    }
    progress.finish();

    // The test split is read once, with the epoch that validation chose.
    let mut model = trainer.model().clone();
    run.load_best(&mut model)?;
    trainer.set_model(model);
    let mut predictions = Vec::new();
    let test = loader(&data.split.test)?.epoch(Pass::Evaluate { split: 1 });
    let counts = trainer.evaluate(test, |input, forward| {
        predictions.extend(input.predictions(&forward.outputs));
    })?;
    run.write_predictions(&predictions)?;
    let summary = Summary::new(&counts, run.best()?, start.elapsed(), memory.get());
    run.finish(&summary)?;
    println!("{summary}\nfiles           {}", run.path().display());
    Ok(())
}
