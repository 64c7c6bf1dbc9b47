//! The flags that split the edges of a dataset into links.

use anyhow::{Context, bail, ensure};
use clap::Args;
use kiln::data::{Dataset, LinkDirection, LinkSplit, LinkSplitConfig, TypedDataset, TypedLinkSplit};

use crate::flags;
use crate::output::print_rank_zero;

/// The flags of `kiln train --task link` and `kiln data split-links` that split edges. They have no defaults in the
/// parser, because checkpoints record every flag with a value.
#[derive(Debug, Args)]
pub(crate) struct LinkSplitArgs {
    /// Shares of the edges for validation and test, for data without a split of links. Default: 0.05,0.1.
    #[arg(long, value_delimiter = ',', value_name = "VAL,TEST", value_parser = flags::rate)]
    link_split: Vec<f64>,
    /// Number of the edge type whose edges are the links. Default: all edges.
    #[arg(long)]
    link_type: Option<u8>,
    /// Relation of links and edges. Default: undirected if each edge has its reverse.
    #[arg(long, value_parser = flags::choice([
        ("directed", "Each edge is a link", LinkDirection::Directed),
        ("with-reverses", "As directed, but reverse edges leave the graph together with a link", LinkDirection::WithReverses),
        ("undirected", "An edge and its reverse are one link", LinkDirection::Undirected),
    ]))]
    link_direction: Option<LinkDirection>,
    /// Share of the training edges that are links and do not pass messages; the others only pass messages. Default: 0,
    /// which uses all of them for both.
    #[arg(long, value_parser = flags::share)]
    disjoint_train: Option<f64>,
}

impl LinkSplitArgs {
    /// The names of the flags, for messages.
    pub(crate) const NAMES: &str = "--link-split, --link-type, --link-direction and --disjoint-train";

    /// Returns true if a flag is given.
    pub(crate) fn are_given(&self) -> bool {
        let Self { link_split, link_type, link_direction, disjoint_train } = self;
        !link_split.is_empty() || link_type.is_some() || link_direction.is_some() || disjoint_train.is_some()
    }

    /// Returns the split of the data, or a random one, and prints its sizes.
    pub(crate) fn split(&self, data: &Dataset, seed: u64) -> anyhow::Result<LinkSplit> {
        let split = LinkSplit::of_dataset(data, &self.config()?, seed).context(FAILED)?;
        print_sizes(&split, split.message().n_edges());
        Ok(split)
    }

    /// Returns a random split of the links of a relation, and prints its sizes.
    pub(crate) fn split_relation(
        &self,
        data: &TypedDataset,
        relation: &str,
        reverse: Option<&str>,
        seed: u64,
    ) -> anyhow::Result<TypedLinkSplit> {
        ensure!(
            self.link_type.is_none(),
            "--link-type does not apply to a heterogeneous dataset, whose links --relation names: remove it"
        );
        let split = TypedLinkSplit::random(&data.graph, relation, reverse, &self.config()?, seed);
        let split = split.context(FAILED)?;
        print_sizes(split.of_relation(), split.message().n_edges());
        Ok(split)
    }

    fn config(&self) -> anyhow::Result<LinkSplitConfig> {
        let &[val, test] = (if self.link_split.is_empty() { &[0.05, 0.1][..] } else { &self.link_split[..] })
        else {
            bail!("--link-split: got {} numbers, expected two: VAL,TEST", self.link_split.len());
        };
        Ok(LinkSplitConfig {
            val,
            test,
            direction: self.link_direction,
            edge_type: self.link_type,
            disjoint_train: self.disjoint_train.unwrap_or(0.0),
        })
    }
}

const FAILED: &str = "the links could not be split";

fn print_sizes(split: &LinkSplit, n_edges: u64) {
    let [train, val, test] = split.split().parts().map(|(_, links)| links.len());
    print_rank_zero(format_args!("links           {train} / {val} / {test}, messages over {n_edges} edges"));
}
