//! Judges a graph isomorphism network by cross-validation, as the GIN paper does, and as it should be.
//!
//! The paper reports the epoch whose mean accuracy over the folds left out is largest: it is chosen on what is
//! reported. The honest figure beside it chooses the epoch on one more fold that is held out.
//!
//! ```text
//! cargo run --release --bin cross_validation -- --ranks 2 --model gin
//! ```

use anyhow::ensure;
use burn::tensor::Device;
use clap::Parser;
use kiln_comm::{Communicator, SingleRank};
use kiln_data::Split;
use kiln_examples::args::{self, FitArgs};
use kiln_examples::graphs::{GinArgs, GinTask, GraphArgs, Graphs};
use kiln_examples::run::RunArgs;
use kiln_examples::{Mean, best_epoch, flags, launch, say};
use kiln_graph::NodeId;
use kiln_train::{TEST, Trainer, TrainerConfig, VALIDATION};

/// Cross-validates a network on many small graphs. Ranks take folds of their own.
#[derive(Debug, Parser)]
#[command(mut_arg("epochs", |flag| flag.default_value("350")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.01")))]
#[command(mut_arg("lr_decay_every", |flag| flag.default_value("50")))]
#[command(mut_arg("batch_size", |flag| flag.default_value("32")))]
#[command(mut_arg("model", |flag| flag.default_value("gin")))]
#[command(mut_arg("ranks", |flag| flag.help("Threads that take folds of their own")))]
struct Args {
    #[command(flatten)]
    data: GraphArgs,
    #[command(flatten)]
    model: GinArgs,
    #[command(flatten)]
    fit: FitArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Parts that the graphs are dealt into, each class evenly.
    #[arg(long, value_parser = flags::folds, default_value = "10")]
    folds: usize,
}

/// Accuracies on a fold.
struct Judged {
    fold: usize,
    /// After each epoch on all others.
    paper: Vec<f64>,
    /// After the epoch that was best on the fold after it, of a model that learned from the rest.
    honest: f64,
}

fn main() -> anyhow::Result<()> {
    let (args, _) = args::parse::<Args>("cross_validation");
    ensure!(launch().is_none(), "folds are for threads: start one process, with --ranks");
    let graphs = args.data.open()?;
    let folds = Split::folds(graphs.set.labels(), args.folds, args.run.seed)?;
    let of_ranks = args.run.ranks().run(|comm| Ok(rank(&args, &graphs, &folds, &*comm)?))?;

    let mut judged: Vec<Judged> = of_ranks.into_iter().flatten().collect();
    judged.sort_by_key(|judged| judged.fold);
    let mean_after = |epoch: usize| judged.iter().map(|fold| fold.paper[epoch]).sum::<f64>();
    let best = best_epoch(&(0..args.fit.epochs).map(mean_after).collect::<Vec<_>>());
    let paper = Mean::of(judged.iter().map(|fold| fold.paper[best]));
    let honest = Mean::of(judged.iter().map(|fold| fold.honest));
    say(format_args!("paper's protocol  {paper} after epoch {}\ninner validation  {honest}", best + 1));
    Ok(())
}

/// The folds of one rank.
fn rank(
    args: &Args,
    graphs: &Graphs,
    folds: &[Vec<NodeId>],
    comm: &dyn Communicator,
) -> anyhow::Result<Vec<Judged>> {
    let rank_info = comm.rank_info();
    let device = args.run.device_of(rank_info.local_rank);
    let own = (0..folds.len()).filter(|fold| fold % rank_info.world_size == rank_info.rank);
    let judge = |fold| {
        let inner = (fold + 1) % folds.len();
        let paper = train(args, graphs, folds, &[fold], &device)?.remove(0);
        let both = train(args, graphs, folds, &[fold, inner], &device)?;
        let honest = both[0][best_epoch(&both[1])];
        let best = paper[best_epoch(&paper)];
        say(format_args!("fold {:2}  best epoch {best:.4}  by inner validation {honest:.4}", fold + 1));
        Ok(Judged { fold, paper, honest })
    };
    own.map(judge).collect()
}

/// Trains on all folds but those left out; the accuracies on each of these after each epoch.
fn train(
    args: &Args,
    graphs: &Graphs,
    folds: &[Vec<NodeId>],
    left_out: &[usize],
    device: &Device,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let rest = folds.iter().enumerate().filter(|(fold, _)| !left_out.contains(fold));
    let rest: Vec<NodeId> = rest.flat_map(|(_, graphs)| graphs.iter().copied()).collect();
    let (run, model) = (&args.run, args.model.config(graphs)?);
    let config = TrainerConfig { device: device.clone(), ..run.trainer(0, args.fit.optimizer()?) };
    let init = |key, device: &Device| model.init(key, device);
    let mut trainer = Trainer::new(GinTask::new(), &config, Box::new(SingleRank), init)?;
    let train = graphs.loader(&trainer, &rest, run)?;
    ensure!(train.n_steps(trainer.next_phase()) > 0, "no step for these folds: lower --batch-size");
    let judge = |&fold: &usize| graphs.loader(&trainer, &folds[fold], run);
    let judges = left_out.iter().map(judge).collect::<kiln_train::Result<Vec<_>>>()?;
    let mut curves = vec![Vec::with_capacity(args.fit.epochs); left_out.len()];
    for _ in 0..args.fit.epochs {
        trainer.epoch(&train, |_| ())?;
        for ((judge, curve), phase) in judges.iter().zip(&mut curves).zip([TEST, VALIDATION]) {
            curve.push(trainer.evaluate(judge.epoch(phase), |_, _| ())?.accuracy());
        }
    }
    Ok(curves)
}
