//! The flags of `kiln train` for neighbour sampling and evaluation.

use clap::{Args, ValueEnum};
use kiln::data::TimeKind;
use kiln::graph::{ByRelation, GraphSchema};
use kiln::nn::{Frequencies, TimeEncoderConfig};
use kiln::sample::{Fanout, RelationFanouts, Rule};
use kiln::{EvalMode, Messages, NeighborLoader};
use kiln_usage::{bail, ensure};

use crate::flags::model::ModelGraph;
use crate::flags::parse;
use crate::output::print_rank_zero;

/// The neighbours that evaluation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Eval {
    /// Samples neighbours as in training.
    Sampled,
    /// Reads all neighbours, layer by layer over the whole graph.
    Exact,
}

/// Returns the value of `--fanouts` if the flag is not given: 10 in each layer.
pub(crate) fn default_fanouts(n_layers: Option<usize>) -> String {
    vec!["10"; n_layers.unwrap_or(3)].join(",")
}

/// The flags for neighbour sampling and evaluation.
#[derive(Debug, Args)]
#[command(next_help_heading = "Neighbours")]
pub(crate) struct SamplingArgs {
    /// Neighbours per node: a number per layer, such as `10,10`, input layer first; `all` or -1 is all neighbours. With --layers,
    /// one value is used for all layers. Relations of a heterogeneous graph may have their own, such as
    /// `10,10;depends=5,5;tagged=0,0`. Default: 10 in each layer, and 3 layers without --layers.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) fanouts: Option<RelationFanouts>,
    /// Sampling rule, for sage and rgcn. Relations of a heterogeneous graph may have their own, such as
    /// `uniform;buys=most-recent`.
    #[arg(long, default_value = "uniform", value_parser = parse::choice([
        ("uniform", "Uniform without replacement", Rule::Uniform),
        ("uniform-with-replacement", "Uniform with replacement", Rule::UniformWithReplacement),
        ("most-recent", "The latest edges, with --messages item-time", Rule::MostRecent),
    ]).relation_choices())]
    pub(crate) rule: ByRelation<Rule>,
    /// Neighbours that evaluation reads.
    #[arg(long, value_enum, default_value = "sampled")]
    pub(crate) eval: Eval,
    /// Memory limit of `--eval exact` for layer outputs, such as 512MiB; the rest is written to temporary files
    /// (TMPDIR). The scores of the test nodes are not included. Default: no limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Edges over which messages pass: in data with a split by time, those that were known before the time of training, validation
    /// or test, or all, which reads the future of the items; in data whose items have times, those that were known at the time of
    /// each. Default: known.
    #[arg(long, value_parser = parse::messages())]
    pub(crate) messages: Option<Messages>,
    /// With --messages item-time, edges at the time of an item itself are known, too.
    #[arg(long)]
    pub(crate) until: bool,
    /// With --messages item-time, the length of the time before an item from which edges are taken: a number in the unit of the
    /// times or, between dates, such as 30d, 12h, 15m or 90s. Relations of a heterogeneous graph may have their own, such as
    /// `30d;buys=7d;rates=all`. Default: all that is known.
    #[arg(long, value_parser = parse::texts_by_relation)]
    pub(crate) time_window: Option<ByRelation<String>>,
    /// The task table of the data whose rows are trained on, each at its own time, instead of the nodes that have targets.
    #[arg(long)]
    pub(crate) task_table: Option<String>,
    /// Makes the model read how long ago nodes and edges with times were at the time of an item, with --messages item-time. All
    /// models read the ages of nodes, and models that can read edge features those of edges.
    #[arg(long, help_heading = "Model", value_parser = parse::choice([
        ("fixed", "Cosines and sines of fixed frequencies", Frequencies::Fixed),
        ("learned", "Cosines and sines of frequencies that training changes", Frequencies::Learned),
    ]))]
    time_encoding: Option<Frequencies>,
    /// Number of frequencies of --time-encoding. Default: 16.
    #[arg(long, help_heading = "Model", value_parser = parse::whole(1, 4096), requires = "time_encoding")]
    time_frequencies: Option<usize>,
    /// Validates on N batches on rank 0, while the other ranks wait. Default: the whole split on all ranks.
    #[arg(long, value_parser = parse::size, conflicts_with = "eval")]
    pub(crate) val_batches: Option<usize>,
    /// Cross-validates on N stratified folds of a set of graphs, which the ranks (threads) divide; writes no files.
    #[arg(long, value_parser = parse::whole(3, 1_000_000), conflicts_with_all = ["out", "resume", "start_or_resume", "patience", "checkpoint_every"])]
    pub(crate) folds: Option<usize>,
}

impl SamplingArgs {
    /// Returns the fanouts of a graph, one per layer; see [`SamplingArgs::repeated_fanouts`]. Those of relations without their
    /// own are never empty: if all have their own, they are those of the first.
    pub(crate) fn fanouts(
        &self,
        n_layers: Option<usize>,
        graph: &ModelGraph<'_>,
        schema: &GraphSchema,
    ) -> anyhow::Result<RelationFanouts> {
        let fanouts = self.repeated_fanouts(n_layers)?;
        let first = fanouts.of_relations.first().cloned();
        let of_rules = self.rule.of_relations.first().map(|(name, _)| ("--rule", name, "rule"));
        let of_windows = self.time_window.as_ref().and_then(|windows| windows.of_relations.first());
        let of_windows = of_windows.map(|(name, _)| ("--time-window", name, "length"));
        let mut named = first.iter().map(|(name, _)| ("--fanouts", name, "list of numbers"));
        if let (ModelGraph::OneType(_), Some((flag, name, value))) =
            (graph, named.next().or(of_rules).or(of_windows))
        {
            bail!(
                "{flag} names the relation `{name}`, but the data has no named relations: give one {value}"
            );
        }
        let has_own = |name: &String| fanouts.of_relations.iter().any(|(own, _)| own == name);
        let without = schema.relations().iter().map(|relation| &relation.name).find(|name| !has_own(name));
        match (without, first) {
            (Some(name), _) if fanouts.of_all.is_empty() => bail!(
                "--fanouts has no list for the relation `{name}`: add `;{name}=...`, or a list without a name for all \
                 others"
            ),
            (None, Some((_, first))) if fanouts.of_all.is_empty() => {
                Ok(RelationFanouts { of_all: first, ..fanouts })
            }
            _ => Ok(fanouts),
        }
    }

    /// Returns the given fanouts, single given ones repeated for all layers, or the default. `n_layers` is the value of
    /// `--layers`.
    pub(crate) fn repeated_fanouts(&self, n_layers: Option<usize>) -> anyhow::Result<RelationFanouts> {
        let Some(given) = &self.fanouts else { return Ok(default_fanouts(n_layers).parse()?) };
        let Some(n_layers) = n_layers else { return Ok(given.clone()) };
        let fanouts = given.clone().repeated(n_layers);
        let lists = fanouts.of_relations.iter().map(|(_, list)| list).chain([&fanouts.of_all]);
        let other = lists.map(Vec::len).find(|n_fanouts| ![0, n_layers].contains(n_fanouts));
        match other {
            None => Ok(fanouts),
            Some(n_fanouts) => bail!(
                "--fanouts has {n_fanouts} values for --layers {n_layers}: give one per layer, or one for all"
            ),
        }
    }

    /// Returns the edges over which messages pass, in data whose times have this meaning.
    pub(crate) fn messages(&self, times: TimeKind) -> anyhow::Result<Messages> {
        let window = self.time_window.as_ref().and_then(|windows| windows.of_all.as_deref());
        let default = if self.task_table.is_some() { Messages::AT_ITEM_TIME } else { Messages::default() };
        Ok(self.messages.unwrap_or(default).limited(self.until, window, times)?)
    }

    /// Returns the loader with the rules and windows of relations that have their own.
    pub(crate) fn configure_relations(
        &self,
        mut loader: NeighborLoader,
        times: TimeKind,
    ) -> anyhow::Result<NeighborLoader> {
        for (name, rule) in &self.rule.of_relations {
            loader = loader.relation_rule(name, rule.clone())?;
        }
        for (name, window) in self.time_window.iter().flat_map(|windows| &windows.of_relations) {
            let window = times.parse_window(window).map_err(kiln::data::Error::from)?;
            loader = loader.relation_window(name, window)?;
        }
        Ok(loader)
    }

    /// Returns the encoding of the ages of nodes and edges; `None` for a model that reads none.
    pub(crate) fn time_encoding(&self) -> Option<TimeEncoderConfig> {
        let n_frequencies = self.time_frequencies.unwrap_or(16);
        self.time_encoding.map(|frequencies| TimeEncoderConfig { frequencies, n_frequencies })
    }

    /// Prints a note if a sampling rule was given for layers that all read all neighbours.
    pub(crate) fn note_unused_rule(&self, fanouts: &RelationFanouts) {
        let mut lists = fanouts.of_relations.iter().map(|(_, list)| list).chain([&fanouts.of_all]);
        if matches!(self.rule.of_all, Some(Rule::UniformWithReplacement))
            && lists.all(|list| list.iter().all(|fanout| *fanout == Fanout::All))
        {
            print_rank_zero("note: --rule has no effect with --fanouts all");
        }
    }

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
