mod edge_settings;
mod edges;
mod existing_negatives;
mod item_times;
mod popularity;

use std::fmt;
use std::sync::Arc;

use kiln_data::{HashedPart, LinkTargets, NodeNames, TimeSplit};
use kiln_feature::{TargetKind, TargetScaler};
use kiln_graph::{GraphSchema, LinkId, Links, NodeId, RelationSchema};
use kiln_loader::{ItemSampler, LinkBatcher, LinkExclusion, LinkRelation, Loader, Phase};
use kiln_nn::{BlockModel, LinkLoss, LinkModel};
use kiln_predictions::{EdgeEnds, LinkNodes};
use kiln_sample::{Negatives, UniformNegatives};
use kiln_train::{
    DataHash, DeviceBatcher, EvaluationInfo, Evaluator, HostOrDeviceBatcher, LinkTask, ModelInputs,
    Objective, SplitTargets, TaskObjective, TaskTrainer,
};

use self::edge_settings::EdgeSettings;
use self::existing_negatives::ExistingNegatives;
use crate::batches::{
    batch_settings, first_items, items_of, objective_setting, shard_by_owner, target_scale_setting,
    texts_of_new_notes,
};
use crate::data_loader::evaluate_by_evaluator;
use crate::links::TrainingLinks;
use crate::{BatchRequirements, DataLoader, LinkLoaderError, NeighborLoader, RankHandle, Result};

/// A description of minibatches of links, with the sampled neighbourhoods of their sources, their destinations and
/// their negatives. It trains a [`LinkModel`]. Edges whose classes, labels or numbers are learned have targets and no negatives
/// ([`LinkNeighborLoader::with_targets`]).
///
/// The settings of batches and sampling are those of a [`NeighborLoader`]; its batch size counts links. A training step
/// excludes the edges of its links, in both directions, from its own messages. Evaluations pass messages over the
/// message graph of the split, which has no link of the validation and the test.
///
/// ```
/// use kiln::prelude::*;
/// let data = kiln::data::synthetic::ring(100)?;
/// let split = LinkSplit::random(&data.graph, &LinkSplitConfig { val: 0.1, test: 0.1, ..Default::default() }, 0)?;
/// let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
/// let loader = LinkNeighborLoader::new(nodes, &split)?;
/// # Ok::<(), Error>(())
/// ```
///
/// The links of a heterogeneous graph are those of one relation, as for PyG's `LinkNeighborLoader` with a `HeteroData`. The
/// encoder of the model is then a [`HeteroModel`](kiln_nn::HeteroModel). Negatives are nodes of the relation's types; your own
/// sampler must draw such nodes, too ([`UniformNegatives::dsts`]): others are the error
/// [`BatchError::NegativeOfOtherType`](kiln_loader::BatchError::NegativeOfOtherType). A training step excludes its links from the
/// relation, and their reverses from the reverse relation of the split (DGL's `exclude="reverse_types"`). In a relation between
/// nodes of one type, it excludes both directions from both.
///
/// ```
/// use kiln::graph::{NodeTypes, RelationEdges};
/// use kiln::prelude::*;
/// let users: Vec<u32> = (0..40).map(|edge| edge % 10).collect();
/// let items: Vec<u32> = (0..40).map(|edge| edge % 8 + edge / 10).collect();
/// let of = |name, src_type, dst_type, srcs, dsts| RelationEdges::new(name, src_type, dst_type, srcs, dsts);
/// // Neither users nor items have features: their rows are trained.
/// let data = Dataset::builder_with_types(NodeTypes::new([("user", 10), ("item", 11)])?)
///     .relation(of("buys", "user", "item", &users, &items))
///     .relation(of("bought by", "item", "user", &items, &users))
///     .build()?;
/// let split = LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &LinkSplitConfig::default(), 0)?;
/// let nodes = NeighborLoader::new(&data, [5, 5]).batch_size(8);
/// let loader = LinkNeighborLoader::new(nodes, &split)?;
/// let encoder = HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 16, 2).layers(2).hidden(8));
/// let config = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("run");
/// let best = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(2).out(out))?;
/// assert_eq!(best.evaluate(&loader, Phase::Test)?.total, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "pass it to Trainer::fit"]
pub struct LinkNeighborLoader {
    /// The loader of the nodes, whose graph passes the messages.
    nodes: NeighborLoader,
    /// The relation whose edges are the links; `None` for a graph of one type of nodes.
    relation: Option<LinkRelation>,
    targets: LinkTargets,
    /// The number of edges that pass messages, if the split has taken some from the data.
    n_message_edges: Option<u64>,
    negatives: Negatives,
    /// The negatives of the validation and the test.
    eval_negatives: [Negatives; 2],
    existing: ExistingNegatives,
    exclusion: LinkExclusion,
    /// True if the program has set the exclusion.
    sets_exclusion: bool,
    loss: LinkLoss,
    /// A loss of one's own for links, which replaces `loss`.
    link_objective: Option<Objective>,
    /// The settings of edges with targets; `None` for link prediction.
    edges: Option<EdgeSettings>,
    /// The names of the nodes of each type, `[n_types]`; empty for those of the data.
    node_names: Vec<Arc<NodeNames>>,
    /// A call that does not apply to the task.
    misplaced: Option<&'static str>,
}

impl LinkNeighborLoader {
    /// The default number of negatives of a link in evaluations, if the split has no fixed negatives.
    pub const EVAL_NEGATIVES: usize = 100;

    /// Returns a loader of links. `nodes` is a loader of the data that was split, which needs no targets. Training draws one
    /// negative destination per link, uniformly from the nodes of the destinations' type. Evaluations use the fixed negatives of
    /// the split, or draw 100 per link.
    ///
    /// With a [`LinkSplit`](kiln_data::LinkSplit), the graph of `nodes` is
    /// replaced by the split's message graph, normalised or with self loops if that of `nodes` is.
    ///
    /// With [`DatasetLinks`](kiln_data::DatasetLinks), or [`LinkTargets`] for a graph of one type, the links of a partitioned graph, its graph passes the
    /// messages: it must not have the links of the validation and the test, as in partitions of a dataset with links
    /// ([`Dataset::links`](kiln_data::Dataset::links)). The neighbours in the relation and in its reverse must ascend,
    /// as they do in such partitions, or a step does not find its links to exclude them. In worker mode, each rank trains on the
    /// links whose destination it owns.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let split = LinkSplit::random(&data.graph, &LinkSplitConfig { val: 0.05, test: 0.1, ..Default::default() }, 0)?;
    /// // A batch has 1,024 links.
    /// let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(1_024);
    /// let loader = LinkNeighborLoader::new(nodes, &split)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::OtherGraph`](crate::Error::OtherGraph) if the graphs have different numbers of nodes, [`Error::OtherRelations`](crate::Error::OtherRelations) if they have other
    /// types of nodes or relations, [`Error::NeedsWholeGraph`](crate::Error::NeedsWholeGraph) for a split on a partitioned graph,
    /// [`Error::NeedsPartitionedGraph`](crate::Error::NeedsPartitionedGraph) for links without a message graph on a whole graph, [`LinkLoaderError::ObjectiveOfNodes`] if
    /// [`NeighborLoader::objective`] or [`NeighborLoader::target_scale`] was called on `nodes`, [`LinkLoaderError::TaskTableOfNodes`] if they are rows of a task table, [`Error::Graph`](crate::Error::Graph) if edge weights are not finite, and
    /// [`Error::Data`](crate::Error::Data) if a node of a link or of a negative is not in the partitioned graph or of another type.
    pub fn new(nodes: NeighborLoader, links: impl Into<TrainingLinks>) -> Result<Self> {
        let links = links.into();
        let n_message_edges = links.n_message_edges().filter(|n_edges| *n_edges != nodes.n_data_edges());
        let nodes = nodes.on_message_graph(&links)?;
        if nodes.has_objective() {
            return Err(LinkLoaderError::ObjectiveOfNodes.into());
        }
        if nodes.has_task_table() {
            return Err(LinkLoaderError::TaskTableOfNodes.into());
        }
        let relation = links.relation(nodes.source());
        let schema = nodes.source().schema();
        let targets = links.into_targets();
        let fixed = [targets.val_negatives(), targets.test_negatives()];
        let eval_negatives = fixed.map(|fixed| match fixed {
            Some(fixed) => Negatives::fixed(fixed.clone()),
            None => uniform_negatives(schema, relation, Self::EVAL_NEGATIVES),
        });
        Ok(Self {
            negatives: uniform_negatives(schema, relation, 1),
            eval_negatives,
            existing: ExistingNegatives::default(),
            sets_exclusion: false,
            exclusion: relation.map_or_else(LinkExclusion::default, |relation| relation.exclusion(schema)),
            loss: LinkLoss::default(),
            link_objective: None,
            nodes,
            relation,
            targets,
            n_message_edges,
            edges: None,
            node_names: Vec::new(),
            misplaced: None,
        })
    }

    /// Sets the negatives of training. The run reports how many of them are still rejected after the last draw
    /// ([`FitReport::negatives`](kiln_train::FitReport::negatives)). [`InBatchNegatives`](kiln_sample::InBatchNegatives)
    /// of a step with a single link are the link itself, and count as rejected.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// // Five negatives per link. Nodes with an edge from the source are drawn again, up to 15 times.
    /// let uniform = UniformNegatives { dsts: 0..100 };
    /// let negatives = Negatives::new(uniform, 5).rejecting(data.csc()?.clone())?;
    /// let loader = LinkNeighborLoader::new(nodes, &split)?.negatives(negatives);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn negatives(self, negatives: Negatives) -> Self {
        Self { negatives, existing: ExistingNegatives::default(), ..self.note_call(".negatives()") }
    }

    /// Sets the negatives of the validation and the test. In-batch negatives are for training: in evaluations they
    /// depend on the batch size and on the number of ranks.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// // The MRR among 1,000 negatives instead of 100.
    /// let negatives = Negatives::new(UniformNegatives { dsts: 0..100 }, 1_000);
    /// let loader = LinkNeighborLoader::new(nodes, &split)?.eval_negatives(negatives);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn eval_negatives(self, negatives: Negatives) -> Self {
        self.val_negatives(negatives.clone()).test_negatives(negatives)
    }

    /// Sets the negatives of the validation.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// // A validation after each epoch that costs less than the test at the end.
    /// let negatives = Negatives::new(UniformNegatives { dsts: 0..100 }, 20);
    /// let loader = LinkNeighborLoader::new(nodes, &split)?.val_negatives(negatives);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn val_negatives(mut self, negatives: Negatives) -> Self {
        self.eval_negatives[0] = negatives;
        self.existing = ExistingNegatives::default();
        self.note_call(".val_negatives()")
    }

    /// Sets the negatives of the test.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// use kiln::sample::DegreeNegatives;
    /// // Popular destinations are more difficult negatives.
    /// let negatives = Negatives::new(DegreeNegatives::new(data.csc()?)?, 100);
    /// let loader = LinkNeighborLoader::new(nodes, &split)?.test_negatives(negatives);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn test_negatives(mut self, negatives: Negatives) -> Self {
        self.eval_negatives[1] = negatives;
        self.existing = ExistingNegatives::default();
        self.note_call(".test_negatives()")
    }

    /// Sets the edges that a training step leaves out of its messages. [`LinkExclusion::None`] suits training links
    /// that are no edges of the message graph, and steps that contain all links. Links that were split by time with a first time of
    /// training are later than all messages, and so are links that are sampled at their own times, so that nothing is left out.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// // The graph is directed: the reverse of a link is another link.
    /// let loader = LinkNeighborLoader::new(nodes, &split)?.exclusion(LinkExclusion::Directed);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn exclusion(self, exclusion: LinkExclusion) -> Self {
        Self { exclusion, sets_exclusion: true, ..self }
    }

    /// Sets the loss.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// // Each link has several negatives, which it should be ranked above.
    /// let negatives = Negatives::new(UniformNegatives { dsts: 0..100 }, 4);
    /// let loader = LinkNeighborLoader::new(nodes, &split)?
    ///     .negatives(negatives)
    ///     .loss(LinkLoss::BayesianPersonalizedRanking);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn loss(self, loss: LinkLoss) -> Self {
        Self { loss, link_objective: None, ..self.note_call(".loss()") }
    }

    /// Sets the names of the nodes of each type, `[n_types]`, which `test_predictions.csv` of a run has beside the numbers of both
    /// ends. The default is the names of the dataset; a partitioned graph has none.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(partitioned: &kiln::JoinedGraph, data: &Dataset) -> Result<()> {
    /// let links = data.links.as_ref().expect("the data should have links");
    /// let nodes = NeighborLoader::new(partitioned, [10, 10]);
    /// let loader = LinkNeighborLoader::new(nodes, links)?.node_names(&data.names);
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_names(self, names: &[Arc<NodeNames>]) -> Self {
        Self { node_names: names.to_vec(), ..self }
    }

    /// Returns the loader of the links' nodes.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// # let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0)?;
    /// # let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
    /// let loader = LinkNeighborLoader::new(nodes, &split)?;
    /// // The statistics of the feature caches of all batches of links.
    /// println!("{:?}", loader.nodes().cache_stats());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn nodes(&self) -> &NeighborLoader {
        &self.nodes
    }

    /// Returns the negatives of a phase.
    fn negatives_of(&self, phase: Phase) -> &Negatives {
        match phase {
            Phase::Train { .. } => &self.negatives,
            Phase::Validation => &self.eval_negatives[0],
            Phase::Test => &self.eval_negatives[1],
        }
    }

    /// Returns the edges that training steps leave out. After a split by time with a first time of the training, all messages are
    /// earlier than the links of the step: an earlier edge of the same pair was known. So are those of links with times.
    fn exclusion_of_steps(&self) -> LinkExclusion {
        match self.nodes.time_split() {
            Some(TimeSplit { train: Some(_), .. }) => LinkExclusion::None,
            _ if self.link_times().is_some() => LinkExclusion::None,
            _ => self.exclusion,
        }
    }

    /// Checks that the loss of links can be computed from the negatives of each phase.
    fn check_negatives(&self) -> Result<()> {
        if self.edges.is_some() {
            return Ok(());
        }
        for phase in [Phase::Train { epoch: 0 }, Phase::Validation, Phase::Test] {
            self.task_objective().check(TargetKind::Links, 1 + self.negatives_of(phase).n_per_link())?;
        }
        Ok(())
    }

    /// Returns the objective: that of links, or of the targets of edges.
    fn task_objective(&self) -> Objective {
        match self.edge_task() {
            Some((edges, targets)) => edges.objective(targets),
            None => self.link_objective.clone().unwrap_or(Objective::Links(self.loss)),
        }
    }

    /// Returns the name of a relation.
    fn name_of(&self, relation: usize) -> String {
        self.nodes.source().schema().relations()[relation].name.clone()
    }
}

/// Returns negatives whose destinations are drawn uniformly from the nodes that links may end at.
fn uniform_negatives(schema: &GraphSchema, relation: Option<LinkRelation>, n_per_link: usize) -> Negatives {
    let dsts = match relation {
        None => 0..schema.n_nodes() as u32,
        Some(relation) => {
            let [_, dsts] = schema.node_ranges(relation.position);
            dsts
        }
    };
    Negatives::new(UniformNegatives { dsts }, n_per_link)
}

/// Returns the sources and the destinations of some links.
fn nodes_of_links(links: &Links, ids: &[LinkId]) -> Vec<NodeId> {
    ids.iter().map(|link| links.pair(*link)).flat_map(|(src, dst)| [src, dst]).collect()
}

impl<M: BlockModel + Sync> DataLoader<LinkModel<M>> for LinkNeighborLoader {
    type Task = LinkTask<M>;
    type Batcher = DeviceBatcher<LinkBatcher<HostOrDeviceBatcher>>;

    fn task(&self, scaler: Option<&TargetScaler>) -> Self::Task {
        let objective = TaskObjective::from(self.task_objective()).with_target_scaler(scaler.cloned());
        let task = LinkTask::with_objective(objective);
        match self.nodes.has_input_encoder() {
            true => task.on_types(self.nodes.input_types()).with_keys(self.nodes.node_keys()),
            false => task,
        }
    }

    fn target_kind(&self) -> TargetKind {
        self.edge_task().map_or(TargetKind::Links, |(_, targets)| targets.kind())
    }

    fn target_scaler(&self) -> Result<Option<TargetScaler>> {
        self.edge_scaler()
    }

    fn names(&self) -> (&str, &[String]) {
        let class_names = if self.edges.is_some() { self.targets.class_names() } else { &[] };
        (self.nodes.source().name(), class_names)
    }

    fn ends(&self) -> Option<EdgeEnds> {
        let source = self.nodes.source();
        let of_source = source.names_of_nodes();
        let names = if self.node_names.is_empty() { of_source } else { &self.node_names };
        // The links of a graph of one type are those of its only relation.
        let relation = self.relation.map_or(0, |relation| relation.position);
        let RelationSchema { src_type, dst_type, .. } = source.schema().relations().get(relation)?;
        let names = [src_type, dst_type].map(|node_type| names.get(*node_type).cloned());
        let nodes = LinkNodes { ids: source.schema().node_ranges(relation), names };
        Some(EdgeEnds { links: self.targets.links().clone(), nodes })
    }

    fn data_hash(&self) -> Result<DataHash> {
        Ok(self.nodes.hash_data(Some(self.targets.clone())))
    }

    fn data_sample(&self) -> Result<String> {
        let links = self.targets.hash_of(HashedPart::Sample)?;
        Ok(format!("{}, links {links}", self.nodes.sample_data()?))
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let mut settings = self.nodes.sampling_settings();
        if let Some(LinkRelation { position, reverse }) = self.relation {
            settings.push(("relation", self.name_of(position)));
            settings.extend(reverse.map(|reverse| ("reverse relation", self.name_of(reverse))));
        }
        // The hash is that of the data before the split. Splits with the same links leave nested sets of its edges.
        settings.extend(self.n_message_edges.map(|n_edges| ("message edges", n_edges.to_string())));
        settings.extend(batch_settings(self.nodes.batch_config(), self.targets.split(), n_ranks));
        if self.edges.is_none() {
            let [val, test] = &self.eval_negatives;
            settings.extend([
                ("negatives", format!("{:?}", self.negatives)),
                ("validation negatives", format!("{val:?}")),
                ("test negatives", format!("{test:?}")),
            ]);
        }
        settings.push(("exclusion", format!("{:?}", self.exclusion)));
        let objective = self.task_objective();
        settings.extend(objective_setting(&objective));
        let scale = self.edges.as_ref().and_then(EdgeSettings::target_scale);
        settings.extend(target_scale_setting(scale, objective.kind()));
        settings
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        let (mut inputs, evaluation) = self.nodes.describe(seed, n_ranks);
        if let Some(relation) = self.relation {
            inputs.graph = inputs.graph.map(|graph| graph.with_link_relation(relation.position));
        }
        let inputs = match self.edge_task() {
            None => inputs.of_links(),
            Some((_, targets)) => inputs.describe_edges(targets.kind(), self.targets.class_names().to_vec()),
        };
        Some((inputs, evaluation))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        let batch_size = self.nodes.batch_config().batch_size;
        let links = first_items(self.targets.split(), phase, n_batches, batch_size);
        if let Some((_, targets)) = self.edge_task() {
            return Ok(Some(SplitTargets::of(targets, links)?));
        }
        Ok(Some(SplitTargets::of_links(links.len(), self.negatives_of(phase).n_per_link())))
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.nodes.notes_on_columns();
        match (self.edge_task(), self.targets.values()) {
            (Some((_, targets)), _) => {
                let of_split = self.targets.split().notes(targets, 0);
                notes.extend(texts_of_new_notes(of_split, self.nodes.source().notes()));
            }
            (None, Some(_)) => {
                let note = "the targets of the links are not read: --task edge learns them";
                notes.push(note.to_owned());
            }
            (None, None) => {}
        }
        notes.extend(self.nodes.note_on_messages());
        notes.extend(self.note_on_exclusion());
        notes
    }

    fn baselines(&self, seed: u64) -> Result<Vec<String>> {
        self.popularity_baseline(seed).map(Option::into_iter).map(Iterator::collect)
    }

    fn check(&self, model: &BatchRequirements) -> Result<()> {
        self.check_edges(model.edge_dims)?;
        self.check_negatives()?;
        self.check_link_times()?;
        self.nodes.check_sampling(model)
    }

    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator> {
        let mut evaluator = self.nodes.evaluator_of(rank, self.times_of_exact_evaluation()?)?;
        if let (Evaluator::Exact(exact), Some(relation)) = (&mut evaluator, self.relation) {
            let ends = self.nodes.source().schema().node_ranges(relation.position);
            exact.first_ends = ends.map(|nodes| nodes.start);
        }
        Ok(evaluator)
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<Self::Batcher>> {
        let batches = self.nodes.batch_config();
        let links = items_of(self.targets.split(), phase);
        let items = match phase {
            Phase::Train { .. } => trainer.items(&links[..], batches)?,
            Phase::Validation | Phase::Test => evaluator.items(trainer, &links[..], batches)?,
        };
        // An exact evaluation computes the rows of all nodes, and reads only the pairs of the batches.
        let nodes = match (phase, evaluator) {
            (Phase::Validation | Phase::Test, Evaluator::Exact(_)) => {
                // Seeds with times need the order of the edges.
                let of_phase = self.link_times().map(|_| self.nodes.phase_loader(phase)).transpose()?;
                of_phase.as_ref().unwrap_or(&self.nodes).for_pairs_only()
            }
            _ => self.nodes.phase_loader(phase)?,
        };
        let sampling = nodes.sampling_from(self.relation.map(LinkRelation::excluded));
        let encoder = &trainer.model().encoder;
        let batcher = nodes.batcher(sampling, trainer.device(), encoder, None, || {
            let train = nodes_of_links(self.targets.links(), &self.targets.split().train);
            Ok(ItemSampler::new(train, items.config().all_ranks()).map_err(kiln_train::Error::from)?)
        })?;
        let batcher = batcher.input_aggregation(nodes.input_aggregation(&items, encoder));
        let negatives = self.known_negatives(phase);
        let batcher = LinkBatcher::new(batcher, self.targets.links().clone(), negatives);
        let batcher = match self.edge_task() {
            Some((_, targets)) => batcher.targets(targets.clone(), self.targets.features().cloned()),
            None => batcher,
        };
        let batcher = batcher.exclusion(self.exclusion_of_steps());
        let batcher = match self.link_times() {
            Some(times) => batcher.link_times(times.clone()),
            None => batcher,
        };
        let batcher = match self.relation {
            Some(relation) => batcher.node_ranges(nodes.source().schema().node_ranges(relation.position)),
            None => batcher,
        };
        let links = self.targets.links().clone();
        let items = shard_by_owner(items, nodes.source().owner(), move |link: LinkId| links.pair(link).1)?;
        nodes.start(items, DeviceBatcher::new(batcher, trainer.device()))
    }

    evaluate_by_evaluator!();
}

impl fmt::Debug for LinkNeighborLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, negatives, exclusion, loss, .. } = self;
        f.debug_struct("LinkNeighborLoader")
            .field("nodes", nodes)
            .field("negatives", negatives)
            .field("exclusion", exclusion)
            .field("loss", loss)
            .finish_non_exhaustive()
    }
}
