//! Trains a graph isomorphism network to classify graphs, on one rank or several: DGL's tutorial on graph
//! classification by several GPUs.
//!
//! ```text
//! cargo run --release --bin graph_classification -- --ranks 2
//! ```

use clap::Parser;
use kiln_data::Split;
use kiln_dist::Communicator;
use kiln_examples::args::{self, FitArgs, Settings};
use kiln_examples::graphs::{GinArgs, GraphArgs, Graphs};
use kiln_examples::keep::KeepArgs;
use kiln_examples::run::RunArgs;
use kiln_examples::{Progress, say};
use kiln_graph::NodeId;
use kiln_loader::Pass;
use kiln_nn::Gin;
use kiln_sample::RngKey;
use kiln_train::{About, Evaluation, GraphClassification, TEST, Trainer, VALIDATION, fit, test_best};

/// Trains a network on many small graphs and keeps the best model.
#[derive(Debug, Parser)]
#[command(mut_arg("epochs", |flag| flag.default_value("5")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.01")))]
#[command(mut_arg("batch_size", |flag| flag.default_value("32")))]
struct Args {
    #[command(flatten)]
    data: GraphArgs,
    #[command(flatten)]
    model: GinArgs,
    #[command(flatten)]
    fit: FitArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> anyhow::Result<()> {
    kiln_kernels::keep_freed_memory();
    let (args, settings) = args::parse::<Args>("graph_classification");
    let graphs = args.data.open()?;
    let split = Split::random(graphs.set.n_graphs(), [0.8, 0.1], args.run.seed)?;
    let hash = graphs.set.hash()?;
    args.run.ranks().run(|comm| Ok(train(&args, &settings, &graphs, &split, &hash, comm)?))?;
    Ok(())
}

/// One rank's part.
fn train(
    args: &Args,
    settings: &Settings,
    graphs: &Graphs,
    split: &Split,
    hash: &str,
    comm: Box<dyn Communicator>,
) -> anyhow::Result<()> {
    let (items, ahead, device) =
        (args.run.items(comm.topology()), args.run.loader(), args.run.device.clone());
    let loader = |part: &[NodeId]| graphs.loader(part, items, ahead);
    let (train, val, test) = (loader(&split.train)?, loader(&split.val)?, loader(&split.test)?);
    let model = args.model.config(graphs)?.init(RngKey::new(args.run.seed), &device.clone().autodiff())?;
    let task = GraphClassification::<Gin>::new();
    let mut trainer = Trainer::new(task, model, &args.fit.optimizer()?, comm, device)?;

    let mut run = args.keep.start(settings, &args.run, hash, &mut trainer)?;
    let n_steps = train.n_steps(Pass::Train { epoch: 0 });
    let mut progress = trainer.is_first().then(|| Progress::new(args.fit.epochs, n_steps, None));
    let validate = |trainer: &mut Trainer<_>| trainer.evaluate(val.epoch(VALIDATION), |_, _| ());
    let report =
        fit(&mut trainer, &train, args.keep.config(args.fit.epochs), validate, &mut run, &mut progress)?;
    let said = test_best(trainer, &run, |trainer| {
        let mut said = Evaluation::default();
        trainer
            .evaluate(test.epoch(TEST), |input, forward| said.add(&input.items, &input.labels, forward))?;
        Ok(said)
    })?;
    let title = format!("{} on {}", settings.program, graphs.set.name);
    let (class_names, elapsed) = (&graphs.set.class_names, settings.started.elapsed());
    let summary = run.finish(&said, &report, &About { title: &title, class_names, elapsed })?;
    if let (Some(summary), Some(folder), Some(progress)) = (summary, run.folder(), progress) {
        progress.finish();
        say(format_args!("{summary}\nfiles           {}", folder.path().display()));
    }
    Ok(())
}
