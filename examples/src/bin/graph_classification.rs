//! Trains a graph isomorphism network to classify graphs, on one rank or several: DGL's tutorial on graph
//! classification by several GPUs. Built in are the graphs of MUTAG; the tutorial's are those of IMDB-BINARY.
//!
//! ```text
//! cargo run --release --bin graph_classification -- --ranks 2 --model gin --epochs 50
//! cargo run --release --bin graph_classification -- --ranks 2 --data IMDBBINARY.txt
//! ```

use std::process::ExitCode;

use clap::Parser;
use kiln_comm::Communicator;
use kiln_data::Split;
use kiln_examples::args::{self, FitArgs};
use kiln_examples::graphs::{GinArgs, GinTask, GraphArgs, Graphs};
use kiln_examples::{Crew, Ending, Program, keep::KeepArgs, run::RunArgs};

use kiln_train::{Evaluation, Trainer};

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

fn main() -> anyhow::Result<ExitCode> {
    let (args, settings) = args::parse::<Args>("graph_classification");
    let graphs = args.data.open()?;
    let split = Split::random(graphs.set.n_graphs(), [0.8, 0.1], args.run.seed)?;
    let Args { run, fit, keep, .. } = &args;
    let (settings, data_hash, loss_every) = (&settings, &graphs.set.hash()?, None);
    let (data_name, class_names) = (&graphs.set.name, &graphs.set.class_names);
    let program = Program { settings, run, fit, keep, data_name, data_hash, class_names, loss_every };
    let crew = Crew::meet(settings, run, data_hash)?;
    let endings = crew.run(|comm| train(program, &args.model, &graphs, &split, comm))?;
    Ok(Ending::status(&endings))
}

/// One rank's part.
fn train(
    program: Program<'_>,
    model: &GinArgs,
    graphs: &Graphs,
    split: &Split,
    comm: Box<dyn Communicator>,
) -> anyhow::Result<Ending> {
    let (run, model) = (program.run, model.config(graphs)?);
    let config = run.trainer(comm.rank_info().local_rank, program.fit.optimizer()?);
    let trainer = Trainer::new(GinTask::new(), &config, comm, |key, device| model.init(key, device))?;
    let [train, val, test] =
        [&split.train, &split.val, &split.test].map(|part| graphs.loader(&trainer, part, run));
    program.run(
        trainer,
        &[train?, val?, test?],
        |trainer, val, phase| trainer.evaluate(val.epoch(phase), |_, _| ()),
        |trainer, test, phase| {
            let mut said = Evaluation::default();
            trainer.evaluate(test.epoch(phase), |input, forward| {
                said.add(&input.items, &input.labels, forward)
            })?;
            Ok(said)
        },
        (),
    )
}
