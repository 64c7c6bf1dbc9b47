//! Trains GraphSAGE to classify nodes, by minibatches of sampled neighbourhoods.
//!
//! ```text
//! cargo run --release --bin node_classification
//! ```
//!
//! Test accuracy 0.78 after 20 epochs, in 50 s on 2 cores of an Intel Xeon.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use clap::Parser;
use kiln_examples::{Progress, flags, say};
use kiln_feature::FeatureSource;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeFetch};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler, RngKey};
use kiln_train::{
    Evaluation, FitConfig, NodeClassification, OptimizerConfig, SingleRank, Summary, TEST, Trainer,
    VALIDATION, fit, test_best,
};

/// Trains GraphSAGE on a graph, evaluates it with sampled neighbours, and keeps the best model.
#[derive(Debug, Parser)]
struct Args {
    /// Data set.
    #[arg(long, value_enum, default_value = "debian-packages")]
    data: flags::DataName,
    /// Neighbours per node, one number (or `all`) a layer, input layer first.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "10,10,10")]
    fanouts: Vec<Fanout>,
    /// Seeds in a batch.
    #[arg(long, value_parser = flags::size, default_value = "1024")]
    batch_size: usize,
    /// Width of the hidden layers.
    #[arg(long, value_parser = flags::size, default_value = "256")]
    hidden: usize,
    /// Passes over the training nodes.
    #[arg(long, value_parser = flags::size, default_value = "20")]
    epochs: usize,
    /// Step size of the optimizer.
    #[arg(long, value_parser = flags::positive, default_value = "0.003")]
    lr: f64,
    /// Fraction of the hidden values that is dropped in training.
    #[arg(long, value_parser = flags::rate, default_value = "0.5")]
    dropout: f64,
    /// Weight decay: Adam without, AdamW with.
    #[arg(long, value_parser = flags::non_negative, default_value = "0")]
    weight_decay: f64,
    /// Whether feature columns are scaled to mean 0 and standard deviation 1.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    standardize: bool,
    /// Seed of the order, the samples, the initial weights and dropout.
    #[arg(long, default_value = "0")]
    seed: u64,
    /// Threads that sample and gather ahead; 0 does so between the steps.
    #[arg(long, value_parser = flags::workers, default_value = "1")]
    workers: usize,
    /// Threads that compute; all cores if not given.
    #[arg(long, value_parser = flags::threads)]
    threads: Option<usize>,
    /// Device that computes.
    #[arg(long, value_parser = flags::device, default_value = "cpu")]
    device: Device,
    /// New or empty folder for the results; `runs/node_classification-NNN` if not given.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    kiln_kernels::keep_freed_memory();
    let (args, settings) = flags::parse::<Args>();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.threads.unwrap_or(0)).build()?;
    pool.install(|| train(&args, &settings))
}

fn train(args: &Args, settings: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let start = Instant::now();
    let data = flags::dataset(args.data, args.standardize, args.seed)?;
    say(&data);
    let sampler = Arc::new(NeighborSampler::new(data.graph.clone(), args.fanouts.clone()));
    let items = ItemSamplerConfig { batch_size: args.batch_size, seed: args.seed, ..Default::default() };
    let ahead = LoaderConfig { workers: args.workers, ..Default::default() };
    let loader = |nodes: &[NodeId]| -> anyhow::Result<_> {
        let fetch = NodeFetch::new(sampler.clone(), data.features.clone(), data.labels.clone());
        Ok(Loader::new(ItemSampler::new(nodes, items)?, fetch, ahead)?)
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
    let model: Sage = model.init(RngKey::new(args.seed), &args.device.clone().autodiff())?;
    let optimizer = OptimizerConfig::adam(args.lr, args.weight_decay);
    let (task, device) = (NodeClassification::new(), args.device.clone());
    let mut trainer = Trainer::new(task, model, &optimizer, SingleRank, device)?;

    let mut run = flags::run_folder(args.out.as_deref(), "node_classification")?;
    run.write_config(settings)?;
    let mut progress = Progress::new(args.epochs, train.n_steps());
    let epochs = FitConfig { n_epochs: args.epochs, patience: None };
    let validate = |now: &Trainer<_, _>| now.evaluate(val.epoch(VALIDATION), |_, _| ());
    let report = fit(&mut trainer, &train, epochs, validate, &mut run, &mut progress)?;
    progress.finish();
    let (test, mut said) = (loader(&data.split.test)?, Evaluation::default());
    test_best(trainer, &run, |best| best.evaluate(test.epoch(TEST), |input, out| said.add(input, out)))?;
    run.write_predictions(&said.predictions())?;
    let summary = Summary::new(&said.metrics(), run.best()?, &report, start.elapsed());
    run.finish(&summary)?;
    say(format_args!("{summary}\nfiles           {}", run.path().display()));
    Ok(())
}
