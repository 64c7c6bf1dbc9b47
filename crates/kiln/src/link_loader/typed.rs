//! Loaders of the links of one relation of a heterogeneous graph.

use std::sync::Arc;

#[cfg(feature = "grpc")]
use kiln_data::TypedLinks;
use kiln_data::{HashedPart, LinkTargets, TypedLinkSplit};
use kiln_feature::TargetKind;
use kiln_graph::LinkId;
use kiln_loader::{LinkBatcher, LinkExclusion, Loader, NodeBatcher, Phase};
use kiln_nn::{BlockModel, LinkModel, TypedModel};
use kiln_sample::{TypedSampler, TypedUniformNegatives};
use kiln_train::{
    DataHash, DeviceBatcher, EvaluationInfo, Evaluator, HostNodeBatcher, LinkTask, ModelInputs, SplitTargets,
    TaskTrainer,
};

use crate::data_loader::evaluate_by_evaluator;
use crate::{
    BatchRequirements, DataLoader, Error, LinkNeighborLoader, RankHandle, Result, TypedNeighborLoader,
};

/// A description of minibatches of the links of one relation of a heterogeneous graph, with the sampled neighbourhoods of
/// their sources, their destinations and their negatives: the counterpart of PyG's `LinkNeighborLoader` for a `HeteroData`.
/// It trains a [`LinkModel`] whose encoder is a [`TypedModel`].
///
/// Negatives are nodes of the relation's types; your own sampler must draw such nodes, too
/// ([`TypedUniformNegatives`]): others are the error
/// [`BatchError::NegativeOfOtherType`](kiln_loader::BatchError::NegativeOfOtherType). A training step excludes its links from
/// the relation, and their reverses from the reverse relation of the split (DGL's `exclude="reverse_types"`). In a relation between nodes of one type, it
/// excludes both directions from both.
///
/// ```
/// use kiln::graph::{NodeTypes, RelationEdges};
/// use kiln::prelude::*;
/// let users: Vec<u32> = (0..40).map(|edge| edge % 10).collect();
/// let items: Vec<u32> = (0..40).map(|edge| edge % 8 + edge / 10).collect();
/// let of = |name, src_type, dst_type, srcs, dsts| RelationEdges { name, src_type, dst_type, srcs, dsts, weights: None };
/// // Neither users nor items have features: their rows are trained.
/// let data = TypedDataset::builder(NodeTypes::new([("user", 10), ("item", 11)])?)
///     .relation(of("buys", "user", "item", &users, &items))
///     .relation(of("bought by", "item", "user", &items, &users))
///     .build()?;
/// let split = TypedLinkSplit::random(&data.graph, "buys", Some("bought by"), &LinkSplitConfig::default(), 0)?;
/// let nodes = TypedNeighborLoader::without_targets(&data, [5, 5]).batch_size(8);
/// let loader = TypedLinkNeighborLoader::of_relation(nodes, &split)?;
/// let encoder = TypedModelConfig::new(data.dims(), RgcnConfig::new(8, 16, 2).layers(2).hidden(8));
/// let config = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("run");
/// let best = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(2).out(out))?;
/// assert_eq!(best.evaluate(&loader, Phase::Test)?.total, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type TypedLinkNeighborLoader = LinkNeighborLoader<RelationNodes>;

/// The loader of the nodes of the links of one relation, whose relations pass the messages.
#[derive(Debug, Clone)]
pub struct RelationNodes {
    loader: TypedNeighborLoader,
    relation: usize,
    reverse: Option<usize>,
}

impl RelationNodes {
    /// Returns the relations from which the links of a training step are excluded.
    fn excluded_relations(&self) -> Vec<usize> {
        [self.relation].into_iter().chain(self.reverse).collect()
    }

    fn name_of(&self, relation: usize) -> String {
        self.loader.source().schema().relations()[relation].name.clone()
    }
}

impl LinkNeighborLoader<RelationNodes> {
    /// Returns a loader of the links of a split. `nodes` is a loader of the data that was split, which needs no targets
    /// ([`TypedNeighborLoader::without_targets`]); its relations are replaced by those of the split. Training draws one
    /// negative destination per link, uniformly from the nodes of the destinations' type. Evaluations use the fixed
    /// negatives of the split, or draw 100 per link.
    ///
    /// # Errors
    /// Returns [`Error::OtherRelations`] if the split has other types of nodes or relations than the data, and
    /// [`Error::ObjectiveOfNodes`] if [`TypedNeighborLoader::objective`] was called on `nodes`.
    pub fn of_relation(nodes: TypedNeighborLoader, split: &TypedLinkSplit) -> Result<Self> {
        let loader = nodes.on_message_graph(split)?;
        Self::of_links(loader, split.relation(), split.reverse(), split.of_relation().targets())
    }

    /// Returns a loader of the links of one relation of a partitioned graph, whose relations are those that pass messages: they
    /// must not have the links of the validation and the test, as in partitions of a dataset with links
    /// ([`TypedDataset::links`](kiln_data::TypedDataset::links)). The neighbours in the relation and in its reverse must ascend, as
    /// they do in such partitions, or a step does not find its links to exclude them. In worker mode, each rank trains on the links
    /// whose destination it owns. Otherwise it is [`TypedLinkNeighborLoader::of_relation`].
    ///
    /// # Errors
    /// Returns [`Error::NeedsPartitionedGraph`] for a loader of a whole graph, [`Error::ObjectiveOfNodes`] if
    /// [`TypedNeighborLoader::objective`] was called on `nodes`, and [`Error::Data`] if the links are not those of the graph
    /// ([`TypedLinks::check`]).
    #[cfg(feature = "grpc")]
    pub fn of_partitioned_relation(nodes: TypedNeighborLoader, links: &TypedLinks) -> Result<Self> {
        if nodes.partition().is_none() {
            // The relations of a dataset may have the links of the validation and the test.
            let what = "TypedLinkNeighborLoader::of_partitioned_relation";
            let instead = "use TypedLinkNeighborLoader::of_relation with a split";
            return Err(Error::NeedsPartitionedGraph { what, instead });
        }
        links.check(nodes.source().schema())?;
        Self::of_links(nodes, links.relation, links.reverse, &links.targets)
    }

    /// Returns a loader of links whose relations pass messages.
    fn of_links(
        loader: TypedNeighborLoader,
        relation: usize,
        reverse: Option<usize>,
        targets: &LinkTargets,
    ) -> Result<Self> {
        if loader.has_objective() {
            return Err(Error::ObjectiveOfNodes);
        }
        let [srcs, dsts] = loader.source().schema().node_ranges(relation);
        // The reverse of a link between two types is an edge of the reverse relation only.
        let exclusion = match reverse.is_some() || srcs == dsts {
            true => LinkExclusion::WithReverses,
            false => LinkExclusion::Directed,
        };
        let nodes = RelationNodes { loader, relation, reverse };
        Ok(Self::with_nodes(nodes, targets, TypedUniformNegatives::of_dsts(dsts)).exclusion(exclusion))
    }
}

impl<M: BlockModel + Sync> DataLoader<LinkModel<TypedModel<M>>> for TypedLinkNeighborLoader {
    type Task = LinkTask<TypedModel<M>>;
    type Batcher = DeviceBatcher<LinkBatcher<HostNodeBatcher<TypedSampler>>>;

    fn task(&self) -> Self::Task {
        let nodes = &self.nodes.loader;
        LinkTask::with_loss(self.loss).on_types(nodes.input_types()).with_keys(nodes.row_keys())
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Links
    }

    fn names(&self) -> (&str, &[String]) {
        (self.nodes.loader.source().name(), &[])
    }

    fn data_hash(&self) -> Result<DataHash> {
        Ok(self.nodes.loader.source().data_hash(Some(self.targets.clone())))
    }

    fn data_sample(&self) -> Result<String> {
        let links = self.targets.hash_of(HashedPart::Sample)?;
        Ok(format!("{}, links {links}", self.nodes.loader.source().data_sample()?))
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let RelationNodes { loader, relation, reverse } = &self.nodes;
        let reverse = reverse.map(|reverse| ("reverse relation", self.nodes.name_of(reverse)));
        let of_links = [("relation", self.nodes.name_of(*relation))].into_iter().chain(reverse);
        let settings = loader.sampling_settings().chain(of_links);
        settings.chain(self.link_settings(loader.batch_config(), n_ranks)).collect()
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        let RelationNodes { loader, relation, .. } = &self.nodes;
        let (mut inputs, evaluation) = loader.describe(seed, n_ranks);
        inputs.graph = inputs.graph.map(|graph| graph.with_link_relation(*relation));
        Some((inputs.of_links(), evaluation))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        Ok(Some(self.targets_of(phase, n_batches, self.nodes.loader.batch_config().batch_size)))
    }

    fn check(&self, model: &BatchRequirements) -> Result<()> {
        self.check_negatives()?;
        self.nodes.loader.check_sampling(model)
    }

    fn evaluator(&self, _: &RankHandle) -> Result<Evaluator> {
        self.nodes.loader.evaluator_of()
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<Self::Batcher>> {
        let nodes = &self.nodes.loader;
        let items = self.items(phase, trainer, evaluator, nodes.batch_config())?;
        let sampler =
            Arc::new(nodes.sampler(trainer.device())?.excluding_from(&self.nodes.excluded_relations()));
        let batcher = NodeBatcher::without_targets(sampler, nodes.features());
        let batcher = nodes.host_batcher(batcher, &items, &trainer.model().encoder, trainer.device());
        let config = nodes.loader_config(&items);
        let links = self.targets.links().clone();
        let items = nodes.source().shard_by_owner(items, move |link: LinkId| links.pair(link).1)?;
        let batcher = self
            .batcher(batcher, phase)
            .node_ranges(nodes.source().schema().node_ranges(self.nodes.relation));
        Ok(trainer.loader(items, batcher, config)?)
    }

    evaluate_by_evaluator!();
}
