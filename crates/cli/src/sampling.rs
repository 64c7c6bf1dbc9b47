//! The flags of `kiln train` for neighbour sampling and evaluation.

use anyhow::ensure;
use clap::{Args, ValueEnum};
use kiln::EvalMode;
use kiln::sample::{Fanout, Rule};

use crate::flags;

/// The neighbours that evaluation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Eval {
    /// Samples neighbours as in training.
    Sampled,
    /// Reads all neighbours, layer by layer over the whole graph.
    Exact,
}

/// The flags for neighbour sampling and evaluation.
#[derive(Debug, Args)]
#[command(next_help_heading = "Neighbours")]
pub(crate) struct SamplingArgs {
    /// Neighbours per node: a number or `all` per layer, input layer first. With --layers, one value is used for all
    /// layers.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "10,10,10")]
    pub(crate) fanouts: Vec<Fanout>,
    /// Sampling rule, for sage and rgcn.
    #[arg(long, default_value = "uniform", value_parser = flags::choice([
        ("uniform", "Uniform without replacement", Rule::Uniform),
        ("uniform-with-replacement", "Uniform with replacement", Rule::UniformWithReplacement),
    ]))]
    pub(crate) rule: Rule,
    /// Neighbours that evaluation reads.
    #[arg(long, value_enum, default_value = "sampled")]
    pub(crate) eval: Eval,
    /// Memory limit of `--eval exact` for layer outputs, such as 512MiB; the rest is written to temporary files
    /// (TMPDIR). The scores of the test nodes are not included. Default: no limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Validates on N batches on rank 0, while the other ranks wait. Default: the whole split on all ranks.
    #[arg(long, value_parser = flags::size, conflicts_with = "eval")]
    pub(crate) val_batches: Option<usize>,
    /// Cross-validates on N stratified folds of a set of graphs, which the ranks (threads) divide; writes no files.
    #[arg(long, value_parser = flags::folds, conflicts_with_all = ["out", "resume", "start_or_resume", "patience", "checkpoint_every"])]
    pub(crate) folds: Option<usize>,
}

impl SamplingArgs {
    /// Returns the evaluation that the flags request.
    pub(crate) fn evaluation(&self) -> anyhow::Result<EvalMode> {
        ensure!(
            self.eval == Eval::Exact || self.memory.is_none(),
            "--memory requires --eval exact: add it, or remove --memory"
        );
        Ok(match (self.eval, self.val_batches) {
            (Eval::Exact, _) => EvalMode::Exact { memory_bytes: self.memory },
            (Eval::Sampled, Some(n_batches)) => EvalMode::FirstRank { n_batches },
            (Eval::Sampled, None) => EvalMode::Sampled,
        })
    }
}
