//! `kiln train`. Each task has one way into training: `nodes`, `links`, `graphs` and `folds`. Whether the graph is whole or
//! partitioned, with one type of nodes or several, is one value, the `TrainingGraph`. The data or `--task` determines the
//! task.

mod flag_rules;
mod folds;
mod graph;
mod graphs;
mod links;
mod nodes;
mod progress;
mod run;
mod traffic;

use std::process::ExitCode;
use std::time::Instant;

use kiln::comm::EXIT_RETRY;
use kiln::train::OptimizerConfig;
use kiln_usage::ensure;

use self::flag_rules::{Task, Training};
use self::run::{Outcome, TrainRun};
use crate::described::run_files;
use crate::flags::GivenFlags;
use crate::out_folder::remove_left;
use crate::output::be_quiet;

pub(crate) use self::run::TrainArgs;

/// Runs `kiln train`.
pub(crate) fn run(args: &TrainArgs, mut flags: GivenFlags) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    if std::env::var_os(kiln_sweep::SUPERVISED).is_some() {
        kiln_sweep::stop_with_sweep(kiln::stop_on_signals()?)?;
    }
    let launch = args.ranks.job.launch()?;
    match &launch {
        // Rank 0 of several processes opens the folder after all have joined, so that all end with its error.
        Some(launch) if launch.rank != 0 => be_quiet(),
        Some(_) => {}
        None => {
            let dir = args.fit.dir();
            dir.path().map_or(Ok(()), remove_left)?;
            dir.check()?;
        }
    }
    let precision = args.device.set_precision(&args.ranks.job.device)?;
    let (task, optimizer) = select(args, &flags)?;
    args.ranks.job.note_unused(&flags, launch.as_ref(), args.parts.source());
    flags.make_absolute(&["data", "init-from", "parts"]);
    if let Some(launch) = &launch {
        flags.set("ranks", launch.world_size.to_string());
    }
    let values = args.describe(task, precision, flags.all);
    let given = run_files().describe(&flags.on_command_line, &values).to_toml();
    let description = format!("# `kiln train FILE` repeats this run: kiln {}\n{given}", env!("KILN_COMMIT"));
    let run = TrainRun { args, optimizer, launch, started, flags: values, description, task };
    let outcomes = match (task, args.sampling.folds) {
        (Task::Node, _) => run.nodes()?,
        (Task::Link | Task::Edge, _) => run.links()?,
        (Task::Graph, None) => run.graphs()?,
        (Task::Graph, Some(n_folds)) => run.cross_validate(n_folds)?,
    };
    Ok(if outcomes.contains(&Outcome::Interrupted) { ExitCode::from(EXIT_RETRY) } else { ExitCode::SUCCESS })
}

/// Checks the flags of a run of a sweep, whose runs are single processes.
pub(crate) fn check(args: &TrainArgs, flags: &GivenFlags) -> anyhow::Result<()> {
    let launch = args.ranks.job.launch()?;
    ensure!(
        launch.is_none(),
        "a launcher started several processes, but a sweep is one: start `kiln sweep` without it"
    );
    select(args, flags).map(drop)
}

/// Returns the task and the optimizer of the flags, after a check that they suit each other.
fn select(args: &TrainArgs, flags: &GivenFlags) -> anyhow::Result<(Task, OptimizerConfig)> {
    let task = select_task(args)?;
    check_flags(args, task, flags)?;
    args.sampling.repeated_fanouts(args.model.layers)?;
    let optimizer = args.optimizer.config(task == Task::Graph, args.fit.epochs)?;
    Ok((task, optimizer))
}

/// Returns the task of the flags, or that of the data.
fn select_task(args: &TrainArgs) -> anyhow::Result<Task> {
    Ok(match args.task {
        Some(task) => task,
        None if !args.parts.are_given() && args.data.data.has_graphs()? => Task::Graph,
        None => Task::Node,
    })
}

/// Checks that the task uses the flags of the command line.
fn check_flags(args: &TrainArgs, task: Task, flags: &GivenFlags) -> anyhow::Result<()> {
    let is_partitioned = task != Task::Graph && args.parts.are_given();
    Training { task, is_partitioned, has_folds: args.sampling.folds.is_some() }.check_flags(flags)?;
    if flags.on_command_line.contains("rule") {
        args.model.check_rule()?;
    }
    ensure!(
        !(matches!(task, Task::Link | Task::Edge) && is_partitioned)
            || flags.on_command_line.contains("data"),
        "--task {} on a partitioned graph needs --data, the data that was partitioned, for its links: add it",
        if task == Task::Edge { "edge" } else { "link" }
    );
    Ok(())
}
