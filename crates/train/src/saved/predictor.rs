mod rows;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use kiln_graph::{Csc, GraphSchema, NodeId};
use kiln_sample::{CustomSampler, Fanout, Rule, Scratch, TimeLimits};

use crate::error::{Error, Result};
use crate::evaluate::layer_wise::{LayerWiseConfig, WantedRows};
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::error::{ModelError, ModelNodesError, PredictModeError};
use crate::saved::graph_access::GraphAccess;
use crate::saved::info::EvaluatedNeighbors;
use crate::saved::mode::PredictMode;
use crate::saved::model::SavedModel;
use crate::saved::model_file::ModelTask;
use crate::saved::outputs::OutputRows;
use crate::saved::prediction_data::{PredictionData, PreparedData, SeedTimes};

/// A saved node model on a graph: predicts classes and computes embeddings of the graph's nodes; of a heterogeneous graph,
/// those of the nodes of the type that had targets in training, which are numbered from 0 within the type. Threads can use one
/// predictor at the same time, and clones share its data.
///
/// The data may contain other nodes than the training data. A node of a type without features has the trained row of the node
/// with its name; a node that training did not have, or that was in no batch, has the mean row
/// ([`NodeEmbedding::learned_rows`](crate::NodeEmbedding::learned_rows)).
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kiln_feature::FeatureStore;
/// # use kiln_graph::{Csc, NodeId};
/// use kiln_train::{NodePredictor, PredictMode, PredictionData, SavedModel};
/// # fn example(graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
/// let model = SavedModel::open("runs/train-001")?;
/// let predictor = NodePredictor::new(&model, PredictionData::new(graph, features))?;
/// let scores = predictor.predict(&[NodeId(7), NodeId(9)], &PredictMode::default())?;
/// println!("{:?}", scores.classes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct NodePredictor {
    model: SavedModel,
    data: PreparedData,
    /// The ids of the nodes that can be predicted.
    nodes: Range<u32>,
    /// A custom sampling rule.
    rule: Option<Rule>,
    /// The sampler of a program's own.
    sampler: Option<CustomSampler>,
    /// Tables of samplers that no thread uses at the moment.
    scratches: Arc<Mutex<Vec<Scratch>>>,
}

impl NodePredictor {
    /// Prepares a graph and its features for a model's predictions. This copies a graph of one type if the model needs it
    /// symmetric, with self loops or normalised, and reads no feature. A model of links of such a graph is opened, too: its
    /// scores are the rows that its decoder reads.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::Csc;
    /// # use kiln_train::{NodePredictor, PredictionData, SavedModel};
    /// # fn example(graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// let model = SavedModel::open("runs/train-001")?;
    /// let predictor = NodePredictor::new(&model, PredictionData::new(graph, features))?;
    /// println!("{} nodes", predictor.n_nodes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if the model is not for nodes, or not for graphs of this kind; if the features have other columns
    /// than the training data, or fewer rows than there are nodes; if the features of edges have another number of columns, or
    /// belong to other edges than those of the prepared graph. For a graph of one type, also if it lacks the edge types that the
    /// model reads or has others, and if the preparation of the model is unknown, or does not have the steps that the data went
    /// through, or is not possible on a graph that is only sampled. For a heterogeneous graph, also if it has other types or
    /// relations than the training data, or in another order; if a list does not have one entry per type; if nodes lack the names
    /// by which the model finds their rows; or if the model has no names of the nodes of a type, and the data has names or another
    /// number of nodes.
    ///
    /// Returns [`Error::Graph`] if the graph is damaged, [`crate::InputError::EdgeFeatureRows`] unless the features of
    /// edges have one row per edge, and [`EmbeddingError::Keys`](crate::EmbeddingError::Keys) within
    /// [`crate::TrainerError::Embedding`] unless a type has one key per node.
    pub fn new(model: &SavedModel, data: PredictionData) -> Result<Self> {
        data.check_model(model)?;
        if data.is_heterogeneous() {
            model.check_task(ModelTask::Nodes)?;
        }
        let predictor = Self::on_all_nodes(model, data)?;
        let target_type = model.schema_info().and_then(|info| info.target_position());
        let of_type =
            predictor.schema().zip(target_type).map(|(schema, target)| schema.types().range(target));
        Ok(Self { nodes: of_type.unwrap_or(predictor.nodes.clone()), ..predictor })
    }

    /// Creates a predictor of the nodes of all types, whose numbers are their ids in the graph, for a model that was checked by
    /// [`PredictionData::check_model`].
    pub(super) fn on_all_nodes(model: &SavedModel, data: PredictionData) -> Result<Self> {
        model.encoder()?;
        let data = data.prepare(model)?;
        Ok(Self {
            model: model.clone(),
            nodes: 0..data.graph.n_nodes() as u32,
            data,
            rule: None,
            sampler: None,
            scratches: Arc::default(),
        })
    }

    /// Returns a predictor with the same model on another device, which `model` was opened on.
    ///
    /// ```no_run
    /// # use burn::tensor::Device;
    /// # use kiln_train::{ModelRegistry, NodePredictor, SavedModel};
    /// # fn example(predictor: NodePredictor, device: Device) -> kiln_train::Result<()> {
    /// // A second device that predicts on the same graph, which is not prepared again.
    /// let model = SavedModel::open_with("runs/train-001", &ModelRegistry::default(), &device)?;
    /// let second = predictor.with_model(&model)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if `model` has another description.
    pub fn with_model(&self, model: &SavedModel) -> Result<Self> {
        match model.info() == self.model.info() {
            true => Ok(Self { model: model.clone(), ..self.clone() }),
            false => Err(ModelError::OtherModel.into()),
        }
    }

    /// Returns which nodes are known; `None` if all are.
    pub(super) fn known_nodes(&self) -> Option<Arc<[bool]>> {
        self.data.known_nodes.clone()
    }

    /// Sets the sampling rule of a model that was trained with a custom rule. Relations with a built-in rule of their own keep it.
    ///
    /// ```no_run
    /// # use kiln_train::NodePredictor;
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// use kiln_sample::{NodeKey, Neighbors, Selection};
    /// // The rule of the training: the first neighbours.
    /// let predictor = predictor.rule(|neighbors: Neighbors<'_>, _: NodeKey, fanout: u32, picks: &mut Selection| {
    ///     (0..fanout.min(neighbors.ids.len() as u32)).for_each(|position| picks.push(position));
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rule(self, rule: impl Into<Rule>) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// Sets the sampler of a model that was evaluated with one of a program's own. It must have the name and the settings of the
    /// training. A model that was evaluated without one is sampled by it, too.
    ///
    /// ```no_run
    /// # use kiln_train::NodePredictor;
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// use kiln_sample::{CustomSampler, NeighborSampler};
    /// // The sampler of the training: both hops take all neighbours.
    /// let predictor = predictor.sampler(CustomSampler::new("whole", |graph, _| NeighborSampler::full(graph, 2)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sampler(self, sampler: CustomSampler) -> Self {
        Self { sampler: Some(sampler), ..self }
    }

    /// Sets the time of each item of the requests that follow, in their order, for a model that was trained at the times of items;
    /// others ignore them. The same node may occur at several times.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// // The same node, by what was known at the times 100 and 200.
    /// let nodes = [NodeId(7), NodeId(7)];
    /// let scores = predictor.with_item_times([100, 200]).predict(&nodes, &PredictMode::default())?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_item_times(&self, times: impl Into<Arc<[i64]>>) -> Self {
        let times = self.has_item_times().then(|| SeedTimes::OfItems(times.into()));
        Self { data: PreparedData { seed_times: times, ..self.data.clone() }, ..self.clone() }
    }

    fn has_item_times(&self) -> bool {
        self.model.info().inputs.has_item_times()
    }

    /// Returns the times of the items of a model that was trained at their times; `None` for other models.
    ///
    /// # Errors
    /// Returns [`PredictModeError::NoItemTimes`] if the items have none.
    fn seed_times(&self) -> Result<Option<&SeedTimes>> {
        match (self.has_item_times(), &self.data.seed_times) {
            (false, _) => Ok(None),
            (true, Some(times)) => Ok(Some(times)),
            (true, None) => Err(ModelError::Mode(PredictModeError::NoItemTimes).into()),
        }
    }

    /// Returns the one time of the items of a request, which have ids of the graph; `None` for a model without times, and without
    /// items.
    ///
    /// # Errors
    /// Returns [`PredictModeError::ExactItemTimes`] if they have several times.
    fn one_time(&self, nodes: &[NodeId]) -> Result<Option<i64>> {
        let Some(times) = self.seed_times()? else { return Ok(None) };
        let times = times.of(nodes, 0..nodes.len())?;
        match times.windows(2).all(|times| times[0] == times[1]) {
            true => Ok(times.first().copied()),
            false => Err(ModelError::Mode(PredictModeError::ExactItemTimes).into()),
        }
    }

    /// Returns a predictor on the edges that items of one time know.
    fn known_at(&self, time: i64) -> Result<Self> {
        let sampling = self.model.sampling();
        let graph = self.data.graph.known_at(self.time_limits(), &sampling.relation_windows, time)?;
        let mut edge_columns = self.data.edge_columns.clone();
        for (name, _) in self.data.edge_columns.iter() {
            if let Some(rows) = graph.edge_rows(name, self.model.relation_rows(name))? {
                edge_columns.set(Arc::clone(name), rows);
            }
        }
        Ok(Self { data: PreparedData { graph, edge_columns, ..self.data.clone() }, ..self.clone() })
    }

    fn time_limits(&self) -> TimeLimits {
        self.model.sampling().item_times.map(TimeLimits::from).unwrap_or_default()
    }

    /// Returns the graph, of a model that was trained at the times of items with the edges before its time, if it has one.
    pub(super) fn graph_of_known_links(&self) -> Result<GraphAccess> {
        match self.data.seed_times {
            Some(SeedTimes::At(time)) => {
                self.data.graph.known_at(TimeLimits::default(), &BTreeMap::new(), time)
            }
            _ => Ok(self.data.graph.clone()),
        }
    }

    /// Returns the model.
    ///
    /// ```no_run
    /// # use kiln_train::NodePredictor;
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// println!("predictions of a model of the kind {}", predictor.model().info().kind);
    /// # Ok(())
    /// # }
    /// ```
    pub fn model(&self) -> &SavedModel {
        &self.model
    }

    /// Returns the number of nodes that can be predicted: those of the graph, or of the type that had targets in training.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// // All nodes that the model can classify.
    /// let nodes: Vec<NodeId> = (0..predictor.n_nodes() as u32).map(NodeId).collect();
    /// let scores = predictor.predict(&nodes, &PredictMode::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the types of nodes and the relations of a heterogeneous graph; `None` for a graph of one type of nodes.
    ///
    /// ```no_run
    /// # use kiln_train::NodePredictor;
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// for relation in predictor.schema().iter().flat_map(|schema| schema.relations()) {
    ///     println!("the model reads the relation {}", relation.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn schema(&self) -> Option<&GraphSchema> {
        self.data.graph.schema()
    }

    /// Returns the graph with the model's preparation: with the reverse of each edge or with self loops if the model needs
    /// them, and normalised for a GCN. `None` if the graph is heterogeneous or only sampled.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::NodePredictor;
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// // The number of neighbours that an exact prediction of node 7 reads in its last layer.
    /// let n_neighbors = predictor.graph().map(|graph| graph.in_degree(NodeId(7)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn graph(&self) -> Option<&Arc<Csc>> {
        match &self.data.graph {
            GraphAccess::Plain(graph) => Some(graph),
            _ => None,
        }
    }

    /// Returns the width of the embeddings.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// // An index of vectors needs the width before the first embedding.
    /// let width = predictor.embedding_width()?;
    /// let embeddings = predictor.embed(&[NodeId(7)], &PredictMode::default())?;
    /// assert_eq!(embeddings.width(), width);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::NotLayerWise`] if the layers of the model return no sizes.
    pub fn embedding_width(&self) -> Result<usize> {
        self.model.encoder()?.network.embedding_width().ok_or(Error::NotLayerWise)
    }

    /// Returns the scores of nodes, one row per node and one column per class; for a model of links, the rows that its
    /// decoder reads. Nodes may repeat.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_sample::Fanout;
    /// # use kiln_train::{NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// let nodes = [7, 9].map(NodeId);
    /// // The classes, by the neighbours that the evaluation of the run read, and with 20 in each of two layers.
    /// let classes = predictor.predict(&nodes, &PredictMode::default())?.classes();
    /// let mode = PredictMode::Sampled { fanouts: vec![Fanout::UpTo(20); 2], seed: 0 };
    /// let classes = predictor.predict(&nodes, &mode)?.classes();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if a node does not exist, the number of fanouts is not the number
    /// of layers, or the model was trained with a custom rule that was not set, and the errors of sampling, of the
    /// features and of [`LayerWiseInference::outputs`](crate::LayerWiseInference::outputs).
    pub fn predict(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let rows = self.rows(nodes, mode, WantedRows::Outputs)?;
        rows.scores.ok_or(Error::NotLayerWise)
    }

    /// Returns the embeddings of nodes: the input rows of the model's last layer. For a model of one layer, these are
    /// the prepared features. With jumping knowledge they begin with what the last layer needs of
    /// earlier layers: their rows ([`Cat`](kiln_nn::JumpingKnowledge::Cat)) or the maximum of all
    /// ([`Max`](kiln_nn::JumpingKnowledge::Max)).
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LayerWiseConfig, NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// // All neighbours, layer by layer over the whole graph.
    /// let mode = PredictMode::Exact(LayerWiseConfig::default());
    /// let embeddings = predictor.embed(&[NodeId(7), NodeId(9)], &mode)?;
    /// println!("{:?}", embeddings.rows().next());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`], and [`Error::NotLayerWise`] if the layers of the model return no sizes.
    pub fn embed(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let rows = self.rows(nodes, mode, WantedRows::Embeddings)?;
        rows.embeddings.ok_or(Error::NotLayerWise)
    }

    /// Returns the scores and the embeddings of nodes, in the time of [`NodePredictor::predict`].
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// let (scores, embeddings) = predictor.predict_and_embed(&[NodeId(7)], &PredictMode::default())?;
    /// println!("class {:?}, embedding {:?}", scores.classes()[0], embeddings.values());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::embed`].
    pub fn predict_and_embed(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
    ) -> Result<(OutputRows, OutputRows)> {
        let rows = self.rows(nodes, mode, WantedRows::Both)?;
        let scores = rows.scores.ok_or(Error::NotLayerWise)?;
        Ok((scores, rows.embeddings.ok_or(Error::NotLayerWise)?))
    }

    fn rows(&self, nodes: &[NodeId], mode: &PredictMode, wanted: WantedRows) -> Result<PredictedRows> {
        let batches = self.batches(nodes, mode, wanted)?;
        let widths = match nodes.is_empty() {
            true => self.widths(wanted)?,
            // The batches have them.
            false => [None, None],
        };
        batches.all(widths)
    }

    /// Returns the widths of the scores and of the embeddings; `None` for rows that are not wanted.
    fn widths(&self, wanted: WantedRows) -> Result<[Option<usize>; 2]> {
        let inputs = &self.model.info().inputs;
        let n_outputs = match self.model.encoder()?.network.outer_widths() {
            Some([_, d_out]) => Some(d_out),
            // The outputs of links and edges do not have the width of the encoder's rows.
            None if matches!(inputs.task, ModelTask::Links | ModelTask::Edges) => None,
            None => Some(inputs.n_outputs),
        };
        let embedding_width = wanted.has_embeddings().then(|| self.embedding_width()).transpose()?;
        Ok([n_outputs.filter(|_| wanted.has_outputs()), embedding_width])
    }

    /// Returns true if predictions in this mode read all neighbours, layer by layer over the whole graph. They are then
    /// computed by [`NodePredictor::batches`], before the first batch.
    ///
    /// ```no_run
    /// # use kiln_train::{NodePredictor, PredictMode};
    /// # fn example(predictor: NodePredictor) -> kiln_train::Result<()> {
    /// // An exact prediction of one node takes as long as that of all nodes.
    /// if predictor.is_exact(&PredictMode::AsEvaluated) {
    ///     eprintln!("computing the outputs of all {} nodes", predictor.n_nodes());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_exact(&self, mode: &PredictMode) -> bool {
        self.exact_config(mode).is_some()
    }

    /// Returns the memory limits of predictions that read all neighbours; `None` for a mode that samples neighbours.
    pub(super) fn exact_config(&self, mode: &PredictMode) -> Option<LayerWiseConfig> {
        match (mode, self.model.info().evaluation.neighbors) {
            (PredictMode::Exact(config), _) => Some(config.clone()),
            (PredictMode::AsEvaluated, EvaluatedNeighbors::Exact { memory_bytes }) => {
                Some(LayerWiseConfig::within(memory_bytes))
            }
            _ => None,
        }
    }

    /// Returns the outputs of nodes as batches that are computed one by one. Nodes may repeat. In exact mode, this
    /// computes all layers; only the rows of the requested nodes are read batch by batch.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{NodePredictor, PredictMode, WantedRows};
    /// # fn example(predictor: NodePredictor, nodes: &[NodeId]) -> kiln_train::Result<()> {
    /// // The memory is that of one batch, for any number of nodes.
    /// let batches = predictor.batches(nodes, &PredictMode::default(), WantedRows::Outputs)?;
    /// for batch in 0..batches.n_batches() {
    ///     let rows = batches.batch(batch)?;
    ///     println!("items {:?}: {:?}", rows.positions, rows.scores.map(|scores| scores.classes()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`].
    pub fn batches(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        let n_nodes = self.n_nodes();
        if let Some(&node) = nodes.iter().find(|node| n_nodes <= node.index()) {
            return Err(ModelError::Nodes(ModelNodesError::NoSuchNode { node, n_nodes }).into());
        }
        // The forward pass of a model without sizes of its layers may not run them in order.
        if wanted.has_embeddings() {
            self.embedding_width()?;
        }
        let nodes: Vec<NodeId> = nodes.iter().map(|node| NodeId(self.nodes.start + node.0)).collect();
        if let Some(config) = self.exact_config(mode) {
            if self.data.ages.is_some() {
                return Err(ModelError::Mode(PredictModeError::ExactAges).into());
            }
            return match self.one_time(&nodes)? {
                Some(time) => self.known_at(time)?.exact(&nodes, config, wanted),
                None => self.exact(&nodes, config, wanted),
            };
        }
        let (fanouts, seed) = self.fanouts(mode)?;
        self.sampled(&nodes, fanouts, seed, wanted)
    }

    /// Returns the fanouts of each relation in each layer, `[n_layers][n_relations]`, and the seed of a mode that samples
    /// neighbours.
    fn fanouts(&self, mode: &PredictMode) -> Result<(Vec<Vec<Fanout>>, u64)> {
        let n_layers = self.model.encoder()?.network.n_layers();
        let (of_all, seed) = match mode {
            PredictMode::Sampled { fanouts, seed } => (&fanouts[..], *seed),
            PredictMode::SampledByRelation { fanouts, seed } => {
                match (self.schema(), fanouts.of_relations.first()) {
                    (Some(schema), _) => return Ok((fanouts.by_layer(schema, n_layers)?, *seed)),
                    (None, None) => (&fanouts.of_all[..], *seed),
                    (None, Some((name, _))) => {
                        return Err(ModelError::Mode(PredictModeError::NoNamedRelations {
                            name: name.clone(),
                        })
                        .into());
                    }
                }
            }
            PredictMode::AsEvaluated | PredictMode::Exact(_) => (&[][..], self.model.info().evaluation.seed),
        };
        let fanouts = match (of_all, self.model.schema_info()) {
            ([], Some(info)) => info.fanouts(n_layers),
            ([], None) => self.of_all_relations(&self.model.sampling().fanouts()),
            (of_all, _) => self.of_all_relations(of_all),
        };
        match fanouts.len() {
            n_fanouts if n_fanouts == n_layers => Ok((fanouts, seed)),
            n_fanouts => {
                Err(ModelError::Mode(PredictModeError::FanoutsMismatch { n_fanouts, n_layers }).into())
            }
        }
    }

    /// Returns the fanout of each relation in each layer from those of each layer.
    fn of_all_relations(&self, fanouts: &[Fanout]) -> Vec<Vec<Fanout>> {
        fanouts.iter().map(|fanout| self.same_of_relations(*fanout)).collect()
    }

    /// Returns this fanout for each relation.
    fn same_of_relations(&self, fanout: Fanout) -> Vec<Fanout> {
        vec![fanout; self.data.graph.n_relations()]
    }
}

impl fmt::Debug for NodePredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePredictor").field("model", &self.model).finish_non_exhaustive()
    }
}
