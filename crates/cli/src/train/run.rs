//! A run of `kiln train`: its flags, its ranks, and the training of a model on one of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use kiln::burn::module::Module;
use kiln::comm::LaunchEnv;
use kiln::nn::ModelConfig;
use kiln::train::{OptimizerConfig, TensorBoard, TrainCallback};
use kiln::{DataLoader, Error, RankHandle, TrainedModel, Trainer, launch};
use kiln_usage::{UsageError, description_file};
use serde_json::json;

use super::flag_rules::{Task, compare_flags};
use super::progress::Progress;
use crate::flags::device::DeviceArgs;
use crate::flags::fit::FitArgs;
use crate::flags::links::LinkArgs;
use crate::flags::loss::LossArgs;
use crate::flags::model::ModelArgs;
use crate::flags::optimizer::OptimizerArgs;
use crate::flags::partitions::PartitionArgs;
use crate::flags::ranks::RankArgs;
use crate::flags::sampling::{SamplingArgs, default_fanouts};
use crate::flags::source::DataArgs;
use crate::output::{is_json, log, print_event, print_rank_zero};

/// The flags of `kiln train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// File of flags, such as `run.toml` of a run: `lr = 0.01`.
    ///
    /// A TOML, YAML or JSON table of the flags' names and values. Flags of the command line take precedence.
    #[arg(value_name = "FILE", value_parser = |text: &str| description_file(text, "--like"), conflicts_with_all = ["like", "resume", "start_or_resume"])]
    pub(super) description: Option<PathBuf>,
    /// Takes the flags of the run in this folder that the command line does not have, for a new run.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["resume", "start_or_resume"])]
    pub(super) like: Option<PathBuf>,
    /// Learning task. Default: graph for sets of graphs, otherwise node.
    #[arg(long, value_enum)]
    pub(super) task: Option<Task>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) loss: LossArgs,
    #[command(flatten)]
    pub(crate) fit: FitArgs,
    #[command(flatten)]
    pub(super) optimizer: OptimizerArgs,
    #[command(flatten)]
    pub(crate) ranks: RankArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) parts: PartitionArgs,
}

impl TrainArgs {
    /// Returns the value of each flag, including defaults, from the values that the parser knows. `precision` is that of this
    /// processor.
    pub(super) fn describe(
        &self,
        task: Task,
        precision: &str,
        mut flags: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let is_of_graphs = task == Task::Graph;
        let name = task.to_possible_value().map(|task| task.get_name().to_owned());
        flags.remove("like");
        flags.insert("task".to_owned(), name.unwrap_or_default());
        flags.insert("precision".to_owned(), precision.to_owned());
        flags.entry("fanouts".to_owned()).or_insert_with(|| {
            // The layers of models of graphs read no fanouts.
            default_fanouts(self.model.layers.filter(|_| !is_of_graphs))
        });
        let mut defaults = self.model.defaults(is_of_graphs);
        defaults.extend(self.optimizer.defaults(is_of_graphs, self.fit.epochs));
        match task {
            Task::Link => defaults.extend(self.link.defaults(&self.model)),
            Task::Edge => defaults.extend(self.link.edge_defaults(&self.model)),
            Task::Node | Task::Graph => {}
        }
        flags.extend(defaults.into_iter().map(|(name, text)| (name.to_owned(), text)));
        flags
    }
}

/// The configuration of a run.
pub(super) struct TrainRun<'a> {
    pub(super) args: &'a TrainArgs,
    pub(super) optimizer: OptimizerConfig,
    pub(super) launch: Option<LaunchEnv>,
    pub(super) started: Instant,
    /// The value of each flag, including defaults.
    pub(super) flags: BTreeMap<String, String>,
    /// The flags that were given, as a file that repeats the run.
    pub(super) description: String,
    pub(super) task: Task,
}

/// The outcome of a rank's training.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// A signal stopped the rank, and the checkpoint is written.
    Interrupted,
}

impl TrainRun<'_> {
    /// Runs `body` on each rank of this process. Ranks that are processes must have the same task and partitions in the same
    /// place; the trainer compares their other settings and their data.
    pub(super) fn launch(
        &self,
        body: impl Fn(RankHandle) -> kiln::Result<Outcome> + Sync,
    ) -> anyhow::Result<Vec<Outcome>> {
        let mut config = self.args.ranks.job.config(self.launch.as_ref())?;
        if self.launch.is_some() {
            config = config
                .agree_on("--task", format!("{:?}", self.task))
                .agree_on("place of the partitions", self.args.parts.holders());
        }
        Ok(launch(config, |rank| {
            if self.launch.is_some() && rank.is_zero() {
                print_rank_zero(rank.description());
            }
            body(rank)
        })?)
    }

    /// Trains on one rank, keeps the weights of the best epoch and evaluates them on the test split.
    pub(super) fn fit<C: ModelConfig, L: DataLoader<C::Model>>(
        &self,
        model: &C,
        loader: &L,
        rank: &RankHandle,
        callback: impl TrainCallback + 'static,
    ) -> kiln::Result<Outcome> {
        let TrainArgs { fit, optimizer, ranks, .. } = self.args;
        let progress = || Progress::new(fit.epochs, rank.world_size(), fit.loss_every);
        let warn = |text: String| log(&format!("warning: {text}"));
        let tensorboard = (fit.tensorboard && rank.is_zero()).then(|| TensorBoard::new(warn));
        let config = fit
            .config()
            .settings(self.flags.clone())
            .description(&*self.description)
            .title(format!("kiln train on {}", loader.names().0))
            .started(self.started)
            .stop_flag(kiln::stop_on_signals()?)
            .callback(((rank.is_zero().then(progress), callback), tensorboard));
        let mut trainer = Trainer::new(model.clone(), self.optimizer)
            .seed(ranks.seed)
            .accumulate(optimizer.accumulate)
            .devices(ranks.job.device.clone())
            .rank(rank);
        if let Some(run) = &fit.init_from {
            trainer = trainer.init_from(run);
        }
        match trainer.fit(loader, config) {
            Ok(best) => {
                print_summary(&best, loader)?;
                Ok(Outcome::Done)
            }
            Err(Error::Interrupted { n_epochs, n_steps, folder }) => {
                if let (true, Some(folder)) = (rank.is_zero(), folder) {
                    let path = folder.display();
                    print_rank_zero(format_args!(
                        "stopped after {n_epochs} epochs and {n_steps} steps, with a checkpoint, a summary and a report: continue \
                         with --resume {path}"
                    ));
                }
                Ok(Outcome::Interrupted)
            }
            Err(Error::Train(error)) => Err(self.name_flags(error)),
            Err(error) => Err(error),
        }
    }

    /// Returns an error of a run that cannot be resumed with the names of the flags, instead of those of settings.
    fn name_flags(&self, error: kiln::train::Error) -> Error {
        let text = match &error {
            kiln::train::Error::TooFewEpochs { n_epochs, n_done } => {
                format!("--epochs {n_epochs}: expected at least the {n_done} epochs already done")
            }
            kiln::train::Error::Run(kiln::train::RunError::OtherRun { name, then, now }) => {
                let Some(resumed) = self.args.fit.read_resumed_flags() else { return error.into() };
                let mut differences = compare_flags(&resumed, &self.flags);
                if name == "batch size x ranks" {
                    differences.push(format!("--batch-size x --ranks was {then} and is {now} now"));
                }
                if name == "target scale" {
                    // A run without the setting learned the targets as they are.
                    let [then, now] =
                        [then, now].map(|scale| if scale == "not set" { "none" } else { scale.as_str() });
                    differences.retain(|difference| !difference.starts_with("--target-scale "));
                    differences.push(format!("--target-scale was {then} and is {now} now"));
                }
                if differences.is_empty() {
                    return error.into();
                }
                format!(
                    "the checkpoint belongs to another run: {}; restore the earlier value, or start a new run",
                    differences.join(", ")
                )
            }
            _ => return error.into(),
        };
        Error::Other(UsageError(text).into())
    }
}

/// Writes the report of a run, and prints its summary and its folder on rank 0.
fn print_summary<M: Module + Sync, L: DataLoader<M>>(best: &TrainedModel<M>, loader: &L) -> kiln::Result<()> {
    let (Some(summary), Some(folder)) = (best.write_report(loader)?, best.folder()) else { return Ok(()) };
    match is_json() {
        true => {
            let fields = json!({ "folder": folder.display().to_string(), "summary": summary });
            print_event("summary", fields);
        }
        false => print_rank_zero(format_args!("{summary}\nfiles           {}", folder.display())),
    }
    Ok(())
}
