//! The flags of `kiln train --task link` and `--task edge`, and the decoder and the negatives that they select.

use std::sync::Arc;

use clap::Args;
use kiln::LinkNeighborLoader;
use kiln::data::{Dataset, LinkSplit};
use kiln::feature::TargetKind;
use kiln::graph::LinkNegatives;
use kiln::loader::LinkExclusion;
use kiln::nn::{EdgeDims, LinkDecoderConfig, LinkLoss};
use kiln::sample::{
    DegreeNegatives, InBatchNegatives, Negatives, PastNegatives, UniformNegatives, UniformPairNegatives,
};
use kiln::train::{Objective, TargetScale};
use kiln_usage::{bail, ensure};

use crate::flags::link_split::LinkSplitArgs;
use crate::flags::loss::LossArgs;
use crate::flags::model::{ModelArgs, WEIGHT_INITS};
use crate::flags::parse;

/// The distribution of negatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum NegativeKind {
    #[default]
    Uniform,
    UniformPairs,
    Degree,
    InBatch,
    Past,
}

/// The kind of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum DecoderKind {
    #[default]
    Dot,
    DistMult,
    Mlp,
}

/// The choices of `--decoder`.
const DECODERS: [(&str, &str, DecoderKind); 3] = [
    ("dot", "Dot product", DecoderKind::Dot),
    ("distmult", "Dot product with a learned weight per column", DecoderKind::DistMult),
    ("mlp", "Multilayer perceptron on the product of the rows", DecoderKind::Mlp),
];

/// The choices of `--negative-sampler`.
const NEGATIVE_SAMPLERS: [(&str, &str, NegativeKind); 5] = [
    ("uniform", "Replaces the destination by any node of its type", NegativeKind::Uniform),
    ("uniform-pairs", "Draws both nodes", NegativeKind::UniformPairs),
    (
        "degree",
        "Replaces the destination in proportion to the in-degree to the power 0.75",
        NegativeKind::Degree,
    ),
    ("in-batch", "Replaces the destination by that of another link of the step", NegativeKind::InBatch),
    ("past", "A destination that the source had before, with --messages item-time", NegativeKind::Past),
];

/// The choices of `--exclude`.
const EXCLUSIONS: [(&str, &str, LinkExclusion); 3] = [
    ("reverses", "The edges of the step's links and their reverses", LinkExclusion::WithReverses),
    ("directed", "The edges of the step's links", LinkExclusion::Directed),
    ("none", "None", LinkExclusion::None),
];

/// The flags for link prediction. They have no defaults in the parser, because the description of a run has every flag with a
/// value.
#[derive(Debug, Args)]
#[command(next_help_heading = "Links, for --task link and edge")]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    pub(crate) split: LinkSplitArgs,
    /// Width of the rows that the encoder computes for the decoder. Default: 64.
    #[arg(long, value_parser = parse::size)]
    embedding: Option<usize>,
    /// Decoder, which scores a pair of rows. Default: dot.
    #[arg(long, value_parser = parse::choice(DECODERS))]
    decoder: Option<DecoderKind>,
    /// Linear layers of `--decoder mlp`, or of the decoder of edges. Default: 3, or 2 for edges.
    #[arg(long, value_parser = parse::whole(1, 1000))]
    decoder_layers: Option<usize>,
    /// Negatives per link in training. Default: 1.
    #[arg(long, value_parser = parse::size)]
    negatives: Option<usize>,
    /// Distribution of negatives in training. Default: uniform.
    #[arg(long, value_parser = parse::choice(NEGATIVE_SAMPLERS))]
    negative_sampler: Option<NegativeKind>,
    /// Draws a negative anew if it is an edge: in training, of the graph that passes messages; in evaluations, of --data,
    /// which contains the links for validation and test unless it has a split of links.
    #[arg(long)]
    reject_edges: bool,
    /// Negatives per link in evaluations, drawn uniformly. Default: the negatives of the data, or else 100.
    #[arg(long, value_parser = parse::size)]
    eval_negatives: Option<usize>,
    /// Edges that a training step leaves out of its messages. Default: reverses.
    #[arg(long, value_parser = parse::choice(EXCLUSIONS))]
    exclude: Option<LinkExclusion>,
}

impl LinkArgs {
    /// Returns the values of flags with their defaults, for the description of a run. Others depend on the data.
    pub(crate) fn defaults(&self, model: &ModelArgs) -> Vec<(&'static str, String)> {
        let decoder = self.decoder.unwrap_or_default();
        let sampler = self.negative_sampler.unwrap_or_default();
        let mut defaults = self.encoder_defaults(model);
        defaults.extend([
            ("decoder", parse::name_of(&DECODERS, &decoder).to_owned()),
            ("negatives", self.negatives().to_string()),
            ("negative-sampler", parse::name_of(&NEGATIVE_SAMPLERS, &sampler).to_owned()),
        ]);
        if decoder == DecoderKind::Mlp {
            defaults.push(("decoder-layers", self.decoder_layers().to_string()));
        }
        defaults
    }

    /// Returns the values of the flags of edges with their defaults, for the description of a run.
    pub(crate) fn edge_defaults(&self, model: &ModelArgs) -> Vec<(&'static str, String)> {
        let mut defaults = self.encoder_defaults(model);
        defaults.push(("decoder-layers", self.decoder_layers.unwrap_or(2).to_string()));
        defaults
    }

    fn encoder_defaults(&self, model: &ModelArgs) -> Vec<(&'static str, String)> {
        let exclusion = self.exclude.unwrap_or_default();
        let mut defaults = vec![
            ("embedding", self.embedding().to_string()),
            ("exclude", parse::name_of(&EXCLUSIONS, &exclusion).to_owned()),
        ];
        let weight_init = model.weight_init_of_encoder();
        defaults
            .extend(weight_init.map(|init| ("weight-init", parse::name_of(&WEIGHT_INITS, &init).to_owned())));
        defaults
    }

    /// Returns the decoder of edges with these features and outputs.
    pub(crate) fn edge_decoder(&self, EdgeDims { d_edge, n_outputs }: EdgeDims) -> LinkDecoderConfig {
        let n_layers = self.decoder_layers.unwrap_or(2);
        LinkDecoderConfig::Edge { hidden: self.embedding(), n_layers, dropout: 0.0, d_edge, n_outputs }
    }

    /// Sets the excluded edges and the loss of a loader of edges with targets.
    pub(crate) fn configure_edges(
        &self,
        mut loader: LinkNeighborLoader,
        objective: Objective,
        scale: Option<TargetScale>,
    ) -> LinkNeighborLoader {
        if let Some(exclusion) = self.exclude {
            loader = loader.exclusion(exclusion);
        }
        loader = loader.objective(objective);
        match scale {
            Some(scale) => loader.target_scale(scale),
            None => loader,
        }
    }

    pub(crate) fn embedding(&self) -> usize {
        self.embedding.unwrap_or(64)
    }

    fn decoder_layers(&self) -> usize {
        self.decoder_layers.unwrap_or(3)
    }

    fn negatives(&self) -> usize {
        self.negatives.unwrap_or(1)
    }

    pub(crate) fn decoder(&self) -> anyhow::Result<LinkDecoderConfig> {
        let kind = self.decoder.unwrap_or_default();
        ensure!(
            kind == DecoderKind::Mlp || self.decoder_layers.is_none(),
            "--decoder-layers requires --decoder mlp: add it, or remove --decoder-layers"
        );
        Ok(match kind {
            DecoderKind::Dot => LinkDecoderConfig::Dot,
            DecoderKind::DistMult => LinkDecoderConfig::DistMult,
            DecoderKind::Mlp => LinkDecoderConfig::Mlp {
                hidden: self.embedding(),
                n_layers: self.decoder_layers(),
                dropout: 0.0,
            },
        })
    }

    /// Checks that negatives of the past have times, and are not rejected as edges.
    pub(crate) fn check_negatives(&self, at_item_times: bool) -> anyhow::Result<()> {
        let is_past = self.negative_sampler == Some(NegativeKind::Past);
        ensure!(
            !is_past || at_item_times,
            "--negative-sampler past needs the times of links: add --messages item-time, or use another sampler"
        );
        ensure!(
            !is_past || !self.reject_edges,
            "--reject-edges rejects all negatives of --negative-sampler past, which are edges: remove one"
        );
        ensure!(
            !at_item_times || self.negative_sampler != Some(NegativeKind::Degree),
            "--negative-sampler degree draws by the edges of all times, also of those after a link: use uniform or past with \
             --messages item-time"
        );
        Ok(())
    }

    /// Sets negatives, excluded edges and the loss of a loader. `data` is the data before the split.
    pub(crate) fn configure(
        &self,
        mut loader: LinkNeighborLoader,
        data: &Dataset,
        split: &LinkSplit,
        loss: LinkLoss,
        at_item_times: bool,
    ) -> kiln::Result<LinkNeighborLoader> {
        let messages = match at_item_times {
            true => Arc::clone(split.message()),
            false => split.training_messages(&data.times)?,
        };
        let message = Arc::new(messages.whole_graph(split.relation())?);
        let [srcs, dsts] = split.node_ranges();
        let uniform = UniformNegatives { dsts: dsts.clone() };
        let n_per_link = self.negatives();
        let negatives = match self.negative_sampler.unwrap_or_default() {
            NegativeKind::Uniform => Negatives::new(uniform.clone(), n_per_link),
            NegativeKind::UniformPairs => Negatives::new(UniformPairNegatives { srcs, dsts }, n_per_link),
            // Nodes that are no destinations have no edges, and are never drawn.
            NegativeKind::Degree => Negatives::new(DegreeNegatives::new(&message)?, n_per_link),
            NegativeKind::InBatch => Negatives::new(InBatchNegatives, n_per_link),
            NegativeKind::Past => Negatives::new(PastNegatives::new(&message, dsts)?, n_per_link),
        };
        let negatives = if self.reject_edges { negatives.rejecting(message)? } else { negatives };
        if let Some(exclusion) = self.exclude {
            loader = loader.exclusion(exclusion);
        }
        let loader = loader.negatives(negatives).loss(loss);
        let n_per_link = self.eval_negatives.unwrap_or(LinkNeighborLoader::EVAL_NEGATIVES);
        let drawn = Negatives::new(uniform, n_per_link);
        let drawn = match self.reject_edges {
            true => drawn.rejecting(Arc::new(data.graph.whole_graph(split.relation())?))?,
            false => drawn,
        };
        let choose = |fixed: Option<&LinkNegatives>| match fixed {
            Some(fixed) if self.eval_negatives.is_none() => Negatives::fixed(fixed.clone()),
            _ => drawn.clone(),
        };
        let val = choose(split.val_negatives());
        let test = choose(split.test_negatives());
        Ok(loader.val_negatives(val).test_negatives(test))
    }
}

/// Returns the loss of links that the flags select.
pub(crate) fn select_loss(loss: &LossArgs) -> anyhow::Result<LinkLoss> {
    ensure!(loss.target_scale.is_none(), "--target-scale is for regression targets: remove it");
    match loss.objective(TargetKind::Links)? {
        Objective::Links(loss) => Ok(loss),
        other => bail!("--loss is for {}: use bce or bpr for links", other.kind()),
    }
}
