//! `kiln predict`.

mod args;
mod data;
mod edges;
mod graphs;
mod job;
mod links;
mod nodes;

use std::time::Instant;

use kiln::predictions::ItemSelection;
use kiln::store::array_folder::check_free;
use kiln::train::{ModelInfo, ModelInputs, ModelTask};
use kiln_usage::ensure;

use self::args::Mode;
pub(crate) use self::args::PredictArgs;
use self::job::{Job, open_model};
use crate::flags::GivenFlags;
use crate::flags::device::set_trained_precision;
use crate::out_folder;
use crate::output::{be_quiet, print_note_lines, print_rank_zero};

/// Runs `kiln predict`.
pub(crate) fn run(args: &PredictArgs, given: &GivenFlags) -> anyhow::Result<()> {
    let launch = args.job.launch()?;
    if launch.as_ref().is_some_and(|launch| launch.rank != 0) {
        be_quiet();
    }
    // Other ranks write nothing, and may have no access to the folder.
    match launch.as_ref().is_none_or(|launch| launch.rank == 0 || args.per_rank) {
        true => out_folder::prepare(&args.out)?,
        false => drop(check_free(&args.out)?),
    }
    let local_rank = launch.as_ref().map_or(0, |launch| launch.local_rank);
    let model = open_model(args, local_rank)?;
    set_trained_precision(model.info().precision.as_deref(), &args.job.device);
    let ModelInfo { kind, inputs, .. } = model.info();
    let &ModelInputs { task, ref data_name, n_features, n_outputs, .. } = inputs;
    print_rank_zero(format_args!(
        "{kind} for {task}, trained on {data_name}: {n_features} features, {n_outputs} outputs"
    ));
    if args.mode == Mode::AsEvaluated {
        print_note_lines(model.info().note_on_draws());
    }
    args.parts.check()?;
    ensure!(
        !args.parts.is_given() || *args.selection() != ItemSelection::New,
        "partitions do not state which nodes are new, which --nodes new selects: use --data, or a file of ids"
    );
    print_note_lines(args.selection().note_on_file());
    args.job.note_unused(given, launch.as_ref(), &args.parts);
    args.links.check(args, task)?;
    ensure!(
        args.node_features.is_none() || task == ModelTask::Graphs,
        "--node-features does not apply to a model of {task}: remove it"
    );
    ensure!(
        args.at.is_none() || task != ModelTask::Graphs,
        "--at does not apply to a model of graphs: remove it"
    );
    let job = Job { args, model, local_rank, launch, started: Instant::now() };
    ensure!(
        args.keys.is_none() || task != ModelTask::Graphs,
        "--keys does not apply to a model of {task}: use --nodes"
    );
    match task {
        ModelTask::Nodes => job.nodes(),
        ModelTask::Links => job.links(),
        ModelTask::Edges => job.edges(),
        ModelTask::Graphs => job.graphs(),
    }
}
