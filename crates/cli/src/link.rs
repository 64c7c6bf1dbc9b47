//! `kiln train --task link`: its flags, and the loaders and models that they select.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::Args;
use kiln::data::{Dataset, LinkSplit};
use kiln::feature::Preparation;
use kiln::graph::{Csc, LinkNegatives};
use kiln::loader::LinkExclusion;
use kiln::nn::{LinkDecoderConfig, LinkLoss};
use kiln::sample::{DegreeNegatives, InBatchNegatives, Negatives, TypedUniformNegatives};
use kiln::train::{DataHash, Objective, TrainCallback};
use kiln::{LinkNeighborLoader, NeighborLoader, PartitionedGraph, RankHandle};

use crate::data::with_self_loops;
use crate::data_id::DataId;
use crate::flags;
use crate::link_split::LinkSplitArgs;
use crate::model::ModelArgs;
use crate::node_model::{LinkTraining, NodeModel, NodeTraining};
use crate::train::{Outcome, TrainArgs, TrainRun};

/// The distribution of negatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NegativeKind {
    Uniform,
    UniformPairs,
    Degree,
    InBatch,
}

/// The kind of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderKind {
    Dot,
    DistMult,
    Mlp,
}

/// The flags for link prediction. They have no defaults in the parser, because checkpoints record every flag with a
/// value.
#[derive(Debug, Args)]
#[command(next_help_heading = "Links, for --task link")]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    pub(crate) split: LinkSplitArgs,
    /// Width of the rows that the encoder computes for the decoder. Default: 64.
    #[arg(long, value_parser = flags::size)]
    embedding: Option<usize>,
    /// Decoder, which scores a pair of rows. Default: dot.
    #[arg(long, value_parser = flags::choice([
        ("dot", "Dot product", DecoderKind::Dot),
        ("distmult", "Dot product with a learned weight per column", DecoderKind::DistMult),
        ("mlp", "Multilayer perceptron on the product of the rows", DecoderKind::Mlp),
    ]))]
    decoder: Option<DecoderKind>,
    /// Linear layers of `--decoder mlp`. Default: 3.
    #[arg(long, value_parser = flags::layers)]
    decoder_layers: Option<usize>,
    /// Negatives per link in training. Default: 1.
    #[arg(long, value_parser = flags::size)]
    negatives: Option<usize>,
    /// Distribution of negatives in training. Default: uniform.
    #[arg(long, value_parser = flags::choice([
        ("uniform", "Replaces the destination by any node", NegativeKind::Uniform),
        ("uniform-pairs", "Draws both nodes", NegativeKind::UniformPairs),
        ("degree", "Replaces the destination in proportion to the in-degree to the power 0.75", NegativeKind::Degree),
        ("in-batch", "Replaces the destination by that of another link of the step", NegativeKind::InBatch),
    ]))]
    negative_sampler: Option<NegativeKind>,
    /// Draws a negative anew if it is an edge: in training, of the graph that passes messages; in evaluations, of --data,
    /// which contains the links for validation and test unless it has a split of links.
    #[arg(long)]
    reject_edges: bool,
    /// Negatives per link in evaluations, drawn uniformly. Default: the negatives of the data, or else 100.
    #[arg(long, value_parser = flags::size)]
    eval_negatives: Option<usize>,
    /// Edges that a training step leaves out of its messages. Default: reverses.
    #[arg(long, value_parser = flags::choice([
        ("reverses", "The edges of the step's links and their reverses", LinkExclusion::WithReverses),
        ("directed", "The edges of the step's links", LinkExclusion::Directed),
        ("none", "None", LinkExclusion::None),
    ]))]
    exclude: Option<LinkExclusion>,
}

impl LinkArgs {
    /// The names of the flags, separated by spaces.
    pub(crate) const FLAGS: &str = "link-split link-type link-direction disjoint-train relation \
        reverse-relation embedding decoder decoder-layers negatives negative-sampler reject-edges eval-negatives exclude";

    /// Returns the split of the data, or a random one, and prints a summary.
    pub(crate) fn split(&self, data: &Dataset, is_symmetrized: bool, seed: u64) -> anyhow::Result<LinkSplit> {
        ensure!(
            data.links.is_none() || !self.split.are_given(),
            "{} has a split of links: remove {}",
            data.name,
            LinkSplitArgs::NAMES
        );
        ensure!(
            data.links.is_none() || !is_symmetrized,
            "--symmetrize would add the reverses of edges to a graph whose links are split already, among them links for \
             validation and test: remove it, and symmetrize the data before its split"
        );
        self.split.split(data, seed)
    }

    /// Returns the values of flags that were not given, for the description of a run and its checkpoints. Others depend
    /// on the data, which a checkpoint identifies.
    pub(crate) fn defaults(&self, model: &ModelArgs) -> Vec<(&'static str, String)> {
        let flags = [
            ("weight-init", model.weight_init.is_none() && model.has_weight_init(), "pyg"),
            ("embedding", self.embedding.is_none(), "64"),
            ("decoder", self.decoder.is_none(), "dot"),
            ("negatives", self.negatives.is_none(), "1"),
            ("negative-sampler", self.negative_sampler.is_none(), "uniform"),
            ("exclude", self.exclude.is_none(), "reverses"),
            ("decoder-layers", self.decoder == Some(DecoderKind::Mlp) && self.decoder_layers.is_none(), "3"),
        ];
        let missing = flags.into_iter().filter(|(_, is_missing, _)| *is_missing);
        missing.map(|(flag, _, default)| (flag, default.to_owned())).collect()
    }

    pub(crate) fn embedding(&self) -> usize {
        self.embedding.unwrap_or(64)
    }

    pub(crate) fn decoder(&self) -> anyhow::Result<LinkDecoderConfig> {
        let kind = self.decoder.unwrap_or(DecoderKind::Dot);
        ensure!(
            kind == DecoderKind::Mlp || self.decoder_layers.is_none(),
            "--decoder-layers requires --decoder mlp: add it, or remove --decoder-layers"
        );
        Ok(match kind {
            DecoderKind::Dot => LinkDecoderConfig::Dot,
            DecoderKind::DistMult => LinkDecoderConfig::DistMult,
            DecoderKind::Mlp => {
                let n_layers = self.decoder_layers.unwrap_or(3);
                LinkDecoderConfig::Mlp { hidden: self.embedding(), n_layers, dropout: 0.0 }
            }
        })
    }

    /// Sets negatives, excluded edges and the loss of a loader. `nodes` are those of the types of sources and destinations,
    /// and `whole` is the graph before the split.
    fn configure(
        &self,
        mut loader: LinkNeighborLoader,
        nodes: [Range<u32>; 2],
        split: &LinkSplit,
        whole: impl FnOnce() -> anyhow::Result<Arc<Csc>>,
        loss: LinkLoss,
    ) -> anyhow::Result<LinkNeighborLoader> {
        let message = Arc::new(split.message().whole_graph(split.relation())?);
        let [srcs, dsts] = nodes;
        let (uniform, n_per_link) =
            (TypedUniformNegatives::of_dsts(dsts.clone()), self.negatives.unwrap_or(1));
        let negatives = match self.negative_sampler.unwrap_or(NegativeKind::Uniform) {
            NegativeKind::Uniform => Negatives::new(uniform.clone(), n_per_link),
            NegativeKind::UniformPairs => {
                Negatives::new(TypedUniformNegatives::of_pairs(srcs, dsts), n_per_link)
            }
            // Nodes that are no destinations have no edges, and are never drawn.
            NegativeKind::Degree => Negatives::new(DegreeNegatives::new(&message)?, n_per_link),
            NegativeKind::InBatch => Negatives::new(InBatchNegatives, n_per_link),
        };
        let negatives = if self.reject_edges { negatives.rejecting(message)? } else { negatives };
        if let Some(exclusion) = self.exclude {
            loader = loader.exclusion(exclusion);
        }
        let loader = loader.negatives(negatives).loss(loss);
        let n_per_link = self.eval_negatives.unwrap_or(LinkNeighborLoader::EVAL_NEGATIVES);
        let drawn = Negatives::new(uniform, n_per_link);
        let drawn = if self.reject_edges { drawn.rejecting(whole()?)? } else { drawn };
        let fixed =
            |negatives: Option<&LinkNegatives>| negatives.filter(|_| self.eval_negatives.is_none()).cloned();
        let [val, test] = [split.val_negatives(), split.test_negatives()]
            .map(|negatives| fixed(negatives).map_or_else(|| drawn.clone(), Negatives::fixed));
        Ok(loader.val_negatives(val).test_negatives(test))
    }

    /// Sets negatives, excluded edges and the loss of a loader of a homogeneous graph. `data` is the data before the split.
    fn configure_homogeneous(
        &self,
        loader: LinkNeighborLoader,
        data: &Dataset,
        split: &LinkSplit,
        loss: LinkLoss,
    ) -> anyhow::Result<LinkNeighborLoader> {
        let nodes = 0..data.graph.n_nodes() as u32;
        self.configure(loader, [nodes.clone(), nodes], split, || Ok(data.csc()?.clone()), loss)
    }

    /// Sets negatives, excluded edges and the loss of a loader of one relation. `data` is the data before the split.
    pub(crate) fn configure_typed(
        &self,
        loader: LinkNeighborLoader,
        data: &Dataset,
        split: &LinkSplit,
        loss: LinkLoss,
    ) -> anyhow::Result<LinkNeighborLoader> {
        let whole = || Ok(Arc::new(data.graph.whole_graph(split.relation())?));
        self.configure(loader, split.node_ranges(), split, whole, loss)
    }
}

impl TrainRun<'_> {
    /// Trains on the links of a whole graph.
    pub(crate) fn links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, sampling, ranks, device, link, .. } = self.args;
        let is_symmetrized = data.is_symmetrized();
        let (data, id) = data.open_graph(ranks.seed, model.reads_edge_features())?;
        let split = link.split(&data, is_symmetrized, ranks.seed)?;
        let fanouts = self.args.fanouts()?;
        let mut nodes = NeighborLoader::new(&data, &fanouts)
            .batches(ranks.batches(false))
            .evaluation(sampling.evaluation()?);
        if let Some(workers) = ranks.workers {
            nodes = nodes.workers(workers);
        }
        let encoder = model.of_nodes(&data, Some(link.embedding()), fanouts.len())?;
        let nodes = encoder.configure(nodes, &sampling.rule)?;
        let loader = LinkNeighborLoader::new(device.place(nodes)?, &split)?;
        let loader = link.configure_homogeneous(loader, &data, &split, self.link_loss()?)?;
        let decoder = link.decoder()?;
        let outcomes =
            self.launch(&id, |rank| self.fit_links(&encoder, decoder, &loader, &rank, &id.hash, ()))?;
        device.report(loader.nodes());
        Ok(outcomes)
    }

    /// Trains on links between the nodes of a partitioned graph. The links come from the data that was partitioned.
    pub(crate) fn partitioned_links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, ranks, device, parts, link, .. } = self.args;
        // The partitions' hash is that of data with edge features, whether the model reads them or not.
        let (data, id) = data.open_graph(ranks.seed, true)?;
        require_links(data.links.is_some())?;
        let split = link.split(&data, false, ranks.seed)?;
        let graph = parts.open(ranks.job.tls(), device.graph_mode)?;
        check_partitions(&graph, &data, &id.hash)?;
        let id = DataId::recorded(graph.info().hash.clone());
        let fanouts = self.args.fanouts()?;
        let encoder = model.of_nodes(&graph, Some(link.embedding()), fanouts.len())?;
        self.check_partitioned(&graph, &encoder)?;
        let (decoder, loss) = (link.decoder()?, self.link_loss()?);
        self.launch(&id, |rank| {
            let (nodes, traffic) = self.partitioned_loader(&graph, &rank, &fanouts, &encoder)?;
            let loader = LinkNeighborLoader::new(nodes, split.targets())?;
            let loader = link
                .configure_homogeneous(loader, &data, &split, loss)
                .map_err(|error| kiln::Error::Other(error.into()))?;
            self.fit_links(&encoder, decoder, &loader, &rank, &id.hash, traffic)
        })
    }

    /// Trains a link model with this encoder and decoder on one rank.
    pub(crate) fn fit_links(
        &self,
        encoder: &NodeModel,
        decoder: LinkDecoderConfig,
        loader: &LinkNeighborLoader,
        rank: &RankHandle,
        hash: &DataHash,
        callback: impl TrainCallback + 'static,
    ) -> kiln::Result<Outcome> {
        let nodes = NodeTraining { run: self, loader, rank, hash, callback };
        encoder.fit(LinkTraining { nodes, decoder })
    }

    pub(crate) fn link_loss(&self) -> anyhow::Result<LinkLoss> {
        match self.args.loss.objective(kiln::feature::TargetKind::Links)? {
            Objective::Links(loss) => Ok(loss),
            other => bail!("--loss is for {}: use bce or bpr for links", other.kind()),
        }
    }
}

/// Checks that the data of partitions has a split of links.
pub(crate) fn require_links(has_links: bool) -> anyhow::Result<()> {
    ensure!(
        has_links,
        "--task link on a partitioned graph needs --data with a split of links: split the links first (`kiln data \
         split-links`), partition the result, and give both"
    );
    Ok(())
}

/// Checks that the partitions are those of the data, whose hash is `hash`. Those of another split would pass messages
/// over links of the validation and the test.
fn check_partitions(graph: &PartitionedGraph, data: &Dataset, hash: &DataHash) -> anyhow::Result<()> {
    let info = graph.info();
    // `kiln data partition --add-self-loops` records the hash of the data with self loops.
    let has_loops = info.preparation.as_ref().is_some_and(Preparation::adds_self_loops);
    let with_loops = if has_loops { with_self_loops(data.clone())? } else { data.clone() };
    let hash = if has_loops { with_loops.hash()? } else { hash.wait()? };
    let data = &with_loops;
    let schema = &info.schema;
    let has_size = schema.n_nodes() == data.graph.n_nodes() && schema.n_edges() == data.graph.n_edges();
    // `kiln data partition --standardize` records the hash of the scaled data.
    let is_same = info.hash == hash || (has_size && info.hash == data.clone().standardize()?.hash()?);
    require_same(graph, is_same, data.graph.n_nodes(), data.graph.n_edges())
}

/// Checks that `is_same` is true: that the partitions are those of the data, which has these numbers of nodes and edges.
pub(crate) fn require_same(
    graph: &PartitionedGraph,
    is_same: bool,
    n_nodes: usize,
    n_edges: u64,
) -> anyhow::Result<()> {
    let schema = &graph.info().schema;
    ensure!(
        is_same,
        "the partitions ({} nodes, {} edges) are those of other data than --data ({n_nodes} nodes, {n_edges} edges), or \
         of another split: partition the data of --data, whose graph lacks the links of the validation and the test",
        schema.n_nodes(),
        schema.n_edges()
    );
    Ok(())
}
