//! Trains a GCN on random data by several processes, on one machine or many: PyG's tutorial on training by several
//! GPUs of several machines, with parts of the split that do not overlap.
//!
//! ```text
//! cargo build --release --features mpi
//! mpirun -n 4 target/release/multi_node
//! srun --mpi=pmix -N2 -n4 target/release/multi_node
//! ```
//!
//! How to start it by other launchers, and what happens when a process is lost: docs/clusters.md.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use kiln_examples::{NodeProgram, Placement, Program, args, flags, keep, run};
use kiln_graph::gcn_norm;
use kiln_sample::{EdgeWeights, Fanout, NeighborSampler, Rule, SamplerConfig};
use kiln_train::Evaluator;

/// Trains a GCN on a graph's nodes; each process is a rank.
#[derive(Debug, Parser)]
#[command(mut_arg("data", |flag| flag.default_value("fake:100000")))]
#[command(mut_arg("hidden", |flag| flag.default_value("64")))]
#[command(mut_arg("dropout", |flag| flag.default_value("0")))]
#[command(mut_arg("epochs", |flag| flag.default_value("3")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.01")))]
#[command(mut_arg("weight_decay", |flag| flag.default_value("0.0005")))]
#[command(mut_arg("batch_size", |flag| flag.default_value("128")))]
struct Args {
    #[command(flatten)]
    data: args::DataArgs,
    #[command(flatten)]
    model: args::ModelArgs,
    /// Neighbours per node, one number (or `all`) a layer, input layer first.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "50,50")]
    fanouts: Vec<Fanout>,
    /// Batches of the validation split that rank 0 judges an epoch by, while the others wait.
    #[arg(long, value_parser = flags::size, default_value = "100")]
    val_batches: usize,
    #[command(flatten)]
    fit: args::FitArgs,
    #[command(flatten)]
    keep: keep::KeepArgs,
    #[command(flatten)]
    run: run::RunArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let (args, settings) = args::parse::<Args>("multi_node");
    let data = args.data.open(args.run.seed)?;
    let fanouts = args.model.fanouts(&args.fanouts)?;
    let config = args.model.gcn(data.features.dim(), data.labels.n_classes(), fanouts.len());
    let graph = Arc::new(gcn_norm(&data.graph)?);
    let sampling = SamplerConfig::new(fanouts).with_rule(Rule::UniformKeepSelfLoops);
    let sampler = NeighborSampler::with_config(graph, sampling.with_weights(EdgeWeights::Unbiased))?;
    let Args { run, fit, keep, .. } = &args;
    let (settings, data_hash, loss_every) = (&settings, &args.data.hash(&data)?, Some(10));
    let (data_name, class_names) = (&data.name, &data.class_names);
    let program = Program { settings, run, fit, keep, data_name, data_hash, class_names, loss_every };
    let evaluator = Evaluator::FirstRank { n_batches: args.val_batches };
    let (sampler, placement) = (Arc::new(sampler), Placement::Host);
    let program = NodeProgram { program, data: &data, sampler, placement, evaluator };
    program.train(|key, device| config.init(key, device))
}
