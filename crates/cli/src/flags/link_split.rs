//! The flags that split the edges of a dataset into links.

use anyhow::Context;
use clap::Args;
use kiln::data::{Dataset, DatasetLinks, LinkDirection, LinkSplit, LinkSplitConfig, Note, TimeSplit};
use kiln_usage::{bail, ensure};

use crate::flags::{list_names, parse};
use crate::output::{print_notes, print_rank_zero};

/// The flags of `kiln train --task link` and `kiln data split-links` that split edges. They have no defaults in the
/// parser, because the description of a run has every flag with a value.
#[derive(Debug, Args)]
pub(crate) struct LinkSplitArgs {
    #[command(flatten)]
    random: RandomSplitArgs,
    /// Relation of a heterogeneous dataset whose edges are the links.
    #[arg(long, value_name = "NAME")]
    relation: Option<String>,
    /// Relation that has the reverse of each link, which leaves the graph together with its link. Default: for data without a split
    /// of links, the relation that has the reverse of each edge, if there is one; `none` keeps its edges.
    #[arg(long, value_name = "NAME")]
    reverse_relation: Option<String>,
}

/// The flags of a random split, for data without a split of links.
#[derive(Debug, Args)]
struct RandomSplitArgs {
    /// Shares of the edges for validation and test, for data without a split of links. Default: 0.05,0.1.
    #[arg(long, value_delimiter = ',', value_name = "VAL,TEST", value_parser = parse::rate)]
    link_split: Vec<f64>,
    /// Splits the links by the times of their edges: the first time of the validation and of the test, such as
    /// 2026-03-01,2026-05-01, or of training, validation and test. Messages then pass over earlier edges only.
    #[arg(long, value_delimiter = ',', value_name = "TIMES", conflicts_with_all = ["link_split", "disjoint_train"], allow_hyphen_values = true)]
    link_times: Vec<String>,
    /// Number of the edge type whose edges are the links. Default: all edges.
    #[arg(long)]
    link_type: Option<u8>,
    /// Relation of links and edges. Default: undirected if each edge has its reverse.
    #[arg(long, value_parser = parse::choice([
        ("directed", "Each edge is a link", LinkDirection::Directed),
        ("with-reverses", "As directed, but reverse edges leave the graph together with a link", LinkDirection::WithReverses),
        ("undirected", "An edge and its reverse are one link", LinkDirection::Undirected),
    ]))]
    link_direction: Option<LinkDirection>,
    /// Share of the training edges that are links and do not pass messages; the others only pass messages. Default: 0,
    /// which uses all of them for both.
    #[arg(long, value_parser = parse::share)]
    disjoint_train: Option<f64>,
}

impl LinkSplitArgs {
    /// Checks the flags of a random split before the data is read.
    pub(crate) fn check(&self, with_times: bool) -> anyhow::Result<()> {
        self.random.config(with_times)?.check().context(FAILED)
    }

    /// Returns the split of the links of the data, or a new one, and prints its sizes and notes. The links of a new one have the times
    /// of their edges if `with_times`, for messages at the times of links.
    pub(crate) fn split_links(
        &self,
        data: &Dataset,
        seed: u64,
        with_times: bool,
    ) -> anyhow::Result<LinkSplit> {
        ensure!(data.links.is_none() || !self.random.are_given(), "{}", has_split(&data.name));
        let config = self.random.config(with_times)?;
        let split = match data.is_heterogeneous() {
            true => self.split_relation(data, seed, &config)?.with_time_split(self.random.time_split(data)?),
            false => {
                ensure!(
                    self.relation.is_none() && self.reverse_relation.is_none(),
                    "--relation and --reverse-relation need a heterogeneous dataset and a model of such: remove them, or name \
                     the edges by --link-type, with --link-direction with-reverses if other edges are their reverses"
                );
                match self.random.time_split(data)? {
                    Some(times) if data.links.is_none() => {
                        LinkSplit::temporal(data, "edge", None, times, &config).context(FAILED)?
                    }
                    _ => LinkSplit::of_dataset(data, &config, seed).context(FAILED)?,
                }
            }
        };
        let [train, val, test] = split.split().parts().map(|(_, links)| links.len());
        let n_edges = split.message().n_edges();
        print_rank_zero(format_args!(
            "links           {train} / {val} / {test}, messages over {n_edges} edges"
        ));
        let mut leaks = split.find_leaks()?;
        // Edges of the graph are no leak for links that only know what is before them.
        leaks.retain(|note| !with_times || !matches!(note, Note::LinksInGraph { .. }));
        print_notes(&leaks);
        print_notes(split.find_never_destinations()?.as_slice());
        Ok(split)
    }

    /// Returns the split of the links of a heterogeneous dataset, or a random split of the links of a relation.
    fn split_relation(
        &self,
        data: &Dataset,
        seed: u64,
        config: &LinkSplitConfig,
    ) -> anyhow::Result<LinkSplit> {
        let relation = self.relation.as_deref();
        let is_word = data.graph.position(NO_REVERSE).is_none();
        let reverse = self.reverse_relation.as_deref().filter(|name| !is_word || *name != NO_REVERSE);
        for name in relation.into_iter().chain(reverse) {
            data.graph.require(name)?;
        }
        match &data.links {
            Some(links) => self.given(data, links, relation, reverse),
            None => self.random_of_relation(data, relation, reverse, seed, config),
        }
    }

    /// Returns the split that a heterogeneous dataset has, whose relation the flags may repeat. They may name its reverse
    /// relation, which other formats than kiln's do not state.
    fn given(
        &self,
        data: &Dataset,
        links: &DatasetLinks,
        relation: Option<&str>,
        reverse: Option<&str>,
    ) -> anyhow::Result<LinkSplit> {
        let name = |position: usize| &*data.graph.relation(position).name;
        let of_data = name(links.relation);
        ensure!(
            relation.is_none_or(|relation| relation == of_data),
            "{} has a split of the links of `{of_data}`: remove --relation",
            data.name
        );
        let reverse_of_data = links.reverse.map(name);
        ensure!(
            reverse_of_data.is_none() || self.reverse_relation.is_none() || reverse == reverse_of_data,
            "the reverse of the links of {} is `{}`: remove --reverse-relation",
            data.name,
            reverse_of_data.unwrap_or_default()
        );
        let reverse = reverse.or(reverse_of_data);
        let links = DatasetLinks::new(data.graph.schema(), of_data, reverse, (*links.targets).clone());
        LinkSplit::new(&data.graph, links.context(FAILED)?).context(FAILED)
    }

    fn random_of_relation(
        &self,
        data: &Dataset,
        relation: Option<&str>,
        reverse: Option<&str>,
        seed: u64,
        config: &LinkSplitConfig,
    ) -> anyhow::Result<LinkSplit> {
        let Some(relation) = relation else {
            let names: Vec<_> = data.graph.iter().map(|relation| relation.name.as_str()).collect();
            bail!(
                "the links of a heterogeneous dataset need --relation, the name of the relation whose edges they are: add \
                 one of {}",
                names.join(", ")
            );
        };
        ensure!(
            self.random.link_type.is_none(),
            "--link-type does not apply to a heterogeneous dataset, whose links --relation names: remove it"
        );
        let reverse = match (reverse, &self.reverse_relation) {
            (None, None) => LinkSplit::find_reverse(&data.graph, relation)?,
            _ => reverse,
        };
        if let Some(reverse) = reverse.filter(|_| self.reverse_relation.is_none()) {
            let [relation, reverse] = [relation, reverse].map(str::to_owned);
            print_notes(&[Note::ReverseRelation { relation, reverse }]);
        }
        match self.random.time_split(data)? {
            Some(times) => LinkSplit::temporal(data, relation, reverse, times, config),
            None => LinkSplit::random_relation(&data.graph, relation, reverse, config, seed),
        }
        .context(FAILED)
    }
}

impl RandomSplitArgs {
    /// Returns true if a flag is given.
    fn are_given(&self) -> bool {
        let Self { link_split, link_times, link_type, link_direction, disjoint_train } = self;
        !link_split.is_empty()
            || !link_times.is_empty()
            || link_type.is_some()
            || link_direction.is_some()
            || disjoint_train.is_some()
    }

    /// Returns the split by time of the flags, or of data with a split of links; `None` for a random split.
    fn time_split(&self, data: &Dataset) -> anyhow::Result<Option<TimeSplit>> {
        let times = self.link_times.iter().map(|time| data.times.kind.parse(time));
        let times = times.collect::<Result<Vec<i64>, _>>().context("--link-times")?;
        Ok(match times[..] {
            [] if data.links.is_none() => None,
            [] => data.times.split,
            [val, test] => Some(TimeSplit::new(None, val, test)?),
            [train, val, test] => Some(TimeSplit::new(Some(train), val, test)?),
            _ => bail!("--link-times: got {} times, expected VAL,TEST or TRAIN,VAL,TEST", times.len()),
        })
    }

    fn config(&self, with_times: bool) -> anyhow::Result<LinkSplitConfig> {
        let &[val, test] = (if self.link_split.is_empty() { &[0.05, 0.1][..] } else { &self.link_split[..] })
        else {
            bail!("--link-split: got {} numbers, expected two: VAL,TEST", self.link_split.len());
        };
        Ok(LinkSplitConfig {
            with_times,
            val,
            test,
            direction: self.link_direction,
            edge_type: self.link_type,
            disjoint_train: self.disjoint_train.unwrap_or(0.0),
        })
    }
}

/// Returns the message for flags of a random split of data that has a split.
fn has_split(name: &str) -> String {
    let flags = list_names::<RandomSplitArgs>().into_iter().map(|flag| format!("--{flag}"));
    format!("{name} has a split of links: remove {}", parse::join_words(flags, "and"))
}

/// The value of `--reverse-relation` for links without a reverse relation.
const NO_REVERSE: &str = "none";

const FAILED: &str = "the links could not be split";
