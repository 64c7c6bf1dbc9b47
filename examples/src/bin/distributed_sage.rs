//! Trains GraphSAGE on a graph in parts: each machine holds one, samples across all, and asks the others for features.
//! After GraphLearn-for-PyTorch's tutorial on distributed training.
//!
//! ```text
//! cargo xtask data partition debian-packages --standardize --parts 2 --out parts
//! mpirun -n 2 target/release/distributed_sage --parts parts
//! ```
//!
//! Worker mode, as above, has the parts lie with the ranks; with `--mode server --servers HOST:PORT,...` they lie with
//! `kiln-serve`. Both under Slurm, and what happens when a server dies: docs/distributed.md.

use std::process::ExitCode;

use clap::Parser;
use kiln_examples::{PartsArgs, Program, args, flags, keep, run};
use kiln_sample::Fanout;

/// Trains GraphSAGE on a graph's nodes, whose parts lie with the ranks or with servers.
#[derive(Debug, Parser)]
#[command(mut_arg("workers", |flag| flag.default_value("2")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.01")))]
#[command(mut_arg("epochs", |flag| flag.default_value("10")))]
#[command(mut_arg("dropout", |flag| flag.default_value("0")))]
#[command(mut_arg("batch_size", |flag| flag.default_value("512")))]
struct Args {
    #[command(flatten)]
    parts: PartsArgs,
    #[command(flatten)]
    model: args::ModelArgs,
    /// Neighbours per node, one number (or `all`) a hop, **counted from the seeds**, as in GraphLearn-for-PyTorch: the reverse of the other programs' order.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "15,10,5")]
    fanouts: Vec<Fanout>,
    #[command(flatten)]
    fit: args::FitArgs,
    #[command(flatten)]
    keep: keep::KeepArgs,
    #[command(flatten)]
    run: run::RunArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let (args, settings) = args::parse::<Args>("distributed_sage");
    let Args { run, fit, keep, .. } = &args;
    let parts = args.parts.open(run)?;
    let mut fanouts = args.model.fanouts(&args.fanouts)?;
    fanouts.reverse();
    let model = args.model.sage(parts.dim, parts.n_classes, fanouts.len());
    let (settings, loss_every, class_names) = (&settings, None, &parts.class_names);
    let (data_name, data_hash) = (&parts.name, &parts.hash);
    let program = Program { settings, run, fit, keep, data_name, data_hash, class_names, loss_every };
    parts.train(program, &fanouts, |key, device| model.init(key, device))
}
