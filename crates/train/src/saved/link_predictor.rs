use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_feature::EdgeFeatures;
use kiln_graph::{Csc, Links, NodeId, RelationSchema};
use kiln_sample::{CustomSampler, Rule};

use crate::error::Result;
use crate::evaluate::layer_wise::WantedRows;
use crate::saved::error::{ModelError, ModelNodesError, PredictModeError};
use crate::saved::graph_access::GraphAccess;
use crate::saved::link_scorer::{LinkScorer, LinkScorerBuilder};
use crate::saved::mode::PredictMode;
use crate::saved::model::SavedModel;
use crate::saved::model_file::ModelTask;
use crate::saved::outputs::OutputRows;
use crate::saved::prediction_data::PredictionData;
use crate::saved::predictor::NodePredictor;
use crate::saved::timed_links::TimedLinks;
use crate::saved::timed_nodes::TimedNodes;
use crate::saved::top_k::{ScoredLink, TopKConfig};

/// A saved model of links on a graph: scores pairs of a source and a destination, and finds the best destinations of a source. A
/// model of edges predicts the classes, labels or numbers of edges instead ([`LinkPredictor::predict_edges`]).
/// Threads can use one predictor at the same time, and clones share its data.
///
/// The links of a heterogeneous graph are those of the relation that training had: sources and destinations are the nodes of its
/// types, which are numbered from 0 within their types, unless a method takes node ids of the graph. In a graph of one type,
/// all nodes are sources and destinations, and both numbers are the same. Messages pass over all edges of the graph. As for a
/// [`NodePredictor`], the data may contain other nodes than the training data.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kiln_feature::FeatureStore;
/// # use kiln_graph::{Csc, Links, NodeId};
/// use kiln_train::{LinkPredictor, PredictMode, PredictionData, SavedModel, TopKConfig};
/// # fn example(graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
/// let model = SavedModel::open("runs/links")?;
/// let predictor = LinkPredictor::new(&model, PredictionData::new(graph, features))?;
/// let mode = PredictMode::default();
/// let scores = predictor.score_links(&Links::new(vec![3], vec![80])?, &mode)?;
/// // The ten best destinations of node 3 that it has no link to.
/// let config = TopKConfig::new(10).excluding(predictor.known_links()?)?;
/// let best = predictor.top_k(&[NodeId(3)], &config, &mode)?;
/// # let _ = (scores, best);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LinkPredictor {
    /// The predictor of the rows that the decoder reads, of the nodes of all types.
    encoder: NodePredictor,
    /// The position of the relation whose edges are the links; `None` for a graph of one type of nodes.
    relation: Option<usize>,
    /// The ids of the sources and of the destinations.
    ends: [Range<u32>; 2],
}

impl LinkPredictor {
    /// Prepares a graph and its features for a model's predictions.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::Csc;
    /// # use kiln_train::{LinkPredictor, PredictionData, SavedModel};
    /// # fn example(graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// let model = SavedModel::open("runs/links")?;
    /// let predictor = LinkPredictor::new(&model, PredictionData::new(graph, features))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for links or edges, and the errors of [`NodePredictor::new`].
    pub fn new(model: &SavedModel, data: PredictionData) -> Result<Self> {
        data.check_model(model)?;
        if model.info().inputs.task != ModelTask::Edges {
            model.check_task(ModelTask::Links)?;
        }
        let encoder = NodePredictor::on_all_nodes(model, data)?;
        let relation = model.schema_info().and_then(|info| info.link_relation());
        let of_relation = encoder.schema().zip(relation);
        let all = 0..encoder.n_nodes() as u32;
        let ends = of_relation.map_or([all.clone(), all], |(schema, relation)| schema.node_ranges(relation));
        Ok(Self { encoder, relation, ends })
    }

    /// Returns a predictor with the same model on another device, which `model` was opened on.
    ///
    /// ```no_run
    /// # use burn::tensor::Device;
    /// # use kiln_train::{LinkPredictor, ModelRegistry, SavedModel};
    /// # fn example(predictor: LinkPredictor, device: Device) -> kiln_train::Result<()> {
    /// // A second device that predicts on the same graph, which is not prepared again.
    /// let model = SavedModel::open_with("runs/links", &ModelRegistry::default(), &device)?;
    /// let second = predictor.with_model(&model)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if `model` has another description.
    pub fn with_model(&self, model: &SavedModel) -> Result<Self> {
        Ok(Self { encoder: self.encoder.with_model(model)?, ..self.clone() })
    }

    /// Sets the sampling rule of a model that was trained with a custom rule.
    ///
    /// ```no_run
    /// # use kiln_train::LinkPredictor;
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
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
        Self { encoder: self.encoder.rule(rule), ..self }
    }

    /// Sets the sampler of a model that was evaluated with one of a program's own; see [`NodePredictor::sampler`].
    ///
    /// ```no_run
    /// # use kiln_train::LinkPredictor;
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// use kiln_sample::{CustomSampler, NeighborSampler};
    /// let predictor = predictor.sampler(CustomSampler::new("whole", |graph, _| NeighborSampler::full(graph, 2)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sampler(self, sampler: CustomSampler) -> Self {
        Self { encoder: self.encoder.sampler(sampler), ..self }
    }

    /// Returns the model.
    ///
    /// ```no_run
    /// # use kiln_train::LinkPredictor;
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// println!("scores of a model that was trained on {}", predictor.model().info().inputs.data_name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn model(&self) -> &SavedModel {
        self.encoder.model()
    }

    /// Returns the predictor of the rows that the decoder reads, from which a [`LinkScorer`] scores pairs. Its nodes are those of
    /// all types, with their ids in the graph.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LinkPredictor, PredictMode};
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// // The rows of two nodes, which the decoder reads.
    /// let rows = predictor.encoder().predict(&[NodeId(3), NodeId(80)], &PredictMode::default())?;
    /// println!("{} columns", rows.width());
    /// # Ok(())
    /// # }
    /// ```
    pub fn encoder(&self) -> &NodePredictor {
        &self.encoder
    }

    /// Returns the relation whose edges are the links; `None` for a graph of one type of nodes.
    ///
    /// ```no_run
    /// # use kiln_train::LinkPredictor;
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// let name = predictor.relation().map_or("edge", |relation| &relation.name);
    /// println!("scores of the relation {name}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn relation(&self) -> Option<&RelationSchema> {
        let (schema, relation) = self.encoder.schema().zip(self.relation)?;
        schema.relations().get(relation)
    }

    /// Returns the node ids, in the graph, of the sources and of the destinations.
    ///
    /// ```no_run
    /// # use kiln_train::LinkPredictor;
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// let [srcs, dsts] = predictor.node_ranges();
    /// println!("{} sources, {} destinations", srcs.len(), dsts.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_ranges(&self) -> [Range<u32>; 2] {
        self.ends.clone()
    }

    /// Returns the links that the graph has, with node ids of the graph, for [`TopKConfig::excluding`]: the edges of the relation
    /// as a graph of all nodes, or the graph of one type of nodes with the model's preparation. For a model that was trained at the
    /// times of items, they are those before the time of the graph, if it has one.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LinkPredictor, PredictMode, TopKConfig};
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// // Recommendations leave out the links that the source has.
    /// let config = TopKConfig::new(10).excluding(predictor.known_links()?)?;
    /// let best = predictor.top_k(&[NodeId(3)], &config, &PredictMode::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged, and [`Error::Saved`](crate::Error::Saved) if it is
    /// only sampled.
    pub fn known_links(&self) -> Result<Arc<Csc>> {
        match (&self.encoder.graph_of_known_links()?, self.relation) {
            (GraphAccess::Plain(graph), _) => Ok(Arc::clone(graph)),
            (GraphAccess::Heterogeneous(graph), Some(relation)) => Ok(Arc::new(graph.whole_graph(relation)?)),
            _ => Err(ModelError::Mode(PredictModeError::NeedsWholeGraph { what: "the list of known links" })
                .into()),
        }
    }

    /// Returns which nodes are known ([`PredictionData::known_nodes`]), among which [`LinkPredictor::top_k`] searches; `None` if all
    /// are.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LinkPredictor, LinkScorerBuilder};
    /// # fn example(predictor: LinkPredictor, nodes: Vec<NodeId>) -> kiln_train::Result<()> {
    /// // A scorer of rows that other ranks compute has the same destinations.
    /// let builder = LinkScorerBuilder::new(predictor.model(), nodes, None)?.known_nodes(predictor.known_nodes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn known_nodes(&self) -> Option<Arc<[bool]>> {
        self.encoder.known_nodes()
    }

    /// Computes the rows of nodes with these ids in the graph, in any order and with repetitions, from which pairs of them are
    /// scored. The scorer has node ids of the graph, too. The row of each node is computed once. A memory limit of exact mode also
    /// applies to the rows, beside the outputs of layers.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LinkPredictor, PredictMode, TopKConfig};
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// // The rows of 1,000 nodes are computed once, and used for several searches among them.
    /// let nodes: Vec<NodeId> = (0..1_000).map(NodeId).collect();
    /// let scorer = predictor.link_scorer(nodes, &PredictMode::default())?;
    /// let best = scorer.top_k(&[NodeId(3)], &TopKConfig::new(10))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`].
    pub fn link_scorer(&self, nodes: Vec<NodeId>, mode: &PredictMode) -> Result<LinkScorer> {
        self.scorer_of(nodes.into(), mode)
    }

    fn scorer_of(&self, nodes: TimedNodes, mode: &PredictMode) -> Result<LinkScorer> {
        let spill = self.encoder.exact_config(mode).and_then(|config| config.spill);
        let builder =
            LinkScorerBuilder::with_times(self.model(), nodes, spill.map(|spill| spill.memory_bytes))?;
        let builder = builder.known_nodes(self.known_nodes());
        let encoder = match builder.times() {
            Some(times) => &self.encoder.with_item_times(Arc::clone(times)),
            None => &self.encoder,
        };
        let batches = encoder.batches(builder.nodes(), mode, WantedRows::Outputs)?;
        builder.of_batches(&batches)
    }

    /// Returns the score of each link, a logit. The links need not be in the graph. A model that was trained at the times of links
    /// needs the time of each ([`TimedLinks`]), unless the graph is that of one time.
    ///
    /// ```no_run
    /// # use kiln_graph::Links;
    /// # use kiln_train::{LinkPredictor, PredictMode};
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// // The links from node 3 to node 80 and from node 5 to node 81.
    /// let links = Links::new(vec![3, 5], vec![80, 81])?;
    /// let scores = predictor.score_links(&links, &PredictMode::default())?;
    /// println!("{scores:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a node does not exist, and the errors of [`NodePredictor::predict`].
    pub fn score_links(&self, links: impl Into<TimedLinks>, mode: &PredictMode) -> Result<Vec<f32>> {
        let links = self.with_ids(&links.into())?;
        self.scorer_of(links.nodes(), mode)?.score(links)
    }

    /// Returns the outputs of a model of edges, one row per edge: the scores of classes or labels, or numbers in the units of the
    /// targets. The edges need not be in the graph. `features` are their own, a row for each, if the model reads some. A model that
    /// was trained at the times of edges needs the time of each ([`TimedLinks`]), unless the graph is that of one time.
    ///
    /// ```no_run
    /// # use kiln_feature::EdgeFeatures;
    /// # use kiln_graph::Links;
    /// # use kiln_train::{LinkPredictor, PredictMode};
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// // Two payments from account 3, of 10 and of 990.
    /// let payments = Links::new(vec![3, 3], vec![80, 81])?;
    /// let amounts = EdgeFeatures::new(vec![10.0, 990.0], 1)?;
    /// let outputs = predictor.predict_edges(&payments, Some(&amounts), &PredictMode::default())?;
    /// println!("{:?} {:?}", outputs.classes(), outputs.confidences());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a node does not exist, and the errors of [`NodePredictor::predict`] and
    /// [`LinkScorer::edge_outputs`].
    pub fn predict_edges(
        &self,
        edges: impl Into<TimedLinks>,
        features: Option<&EdgeFeatures>,
        mode: &PredictMode,
    ) -> Result<OutputRows> {
        let edges = self.with_ids(&edges.into())?;
        self.scorer_of(edges.nodes(), mode)?.edge_outputs(edges, features)
    }

    /// Finds the destinations with the largest scores of each source among all destinations, or those of
    /// [`TopKConfig::among`], as [`LinkScorer::top_k`] does. The graph of [`TopKConfig::excluding`] has node ids of the graph,
    /// as [`LinkPredictor::known_links`] has.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LinkPredictor, PredictMode, TopKConfig};
    /// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
    /// let srcs = [3, 5].map(NodeId);
    /// for link in predictor.top_k(&srcs, &TopKConfig::new(10), &PredictMode::default())? {
    ///     println!("{} to {}: {}", link.src.0, link.dst.0, link.score);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a source does not exist, and the errors of [`NodePredictor::predict`] and
    /// [`LinkScorer::top_k`].
    pub fn top_k(&self, srcs: &[NodeId], config: &TopKConfig, mode: &PredictMode) -> Result<Vec<ScoredLink>> {
        let srcs = self.ids_of(0, srcs)?;
        let [src_ids, dst_ids] = &self.ends;
        let config = config.clone().within_type(dst_ids);
        let all_dsts: Vec<NodeId> = dst_ids.clone().map(NodeId).collect();
        let nodes = srcs.iter().chain(config.dsts(&all_dsts)).copied().collect();
        let mut found = self.link_scorer(nodes, mode)?.top_k(&srcs, &config)?;
        for link in &mut found {
            link.src = NodeId(link.src.0 - src_ids.start);
            link.dst = NodeId(link.dst.0 - dst_ids.start);
        }
        Ok(found)
    }

    /// Returns links of nodes that are numbered within their types, with ids of the graph.
    fn with_ids(&self, links: &TimedLinks) -> Result<TimedLinks> {
        let srcs = self.ids_of(0, links.links().srcs())?;
        let dsts = self.ids_of(1, links.links().dsts())?;
        Ok(links.with_links(Links::new(srcs, dsts)?))
    }

    /// Returns the ids, in the graph, of sources (`end` 0) or destinations (`end` 1).
    fn ids_of(&self, end: usize, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
        let ids = &self.ends[end];
        let n_nodes = ids.len();
        match nodes.iter().find(|node| n_nodes <= node.index()) {
            Some(&node) => Err(ModelError::Nodes(ModelNodesError::NoSuchNode { node, n_nodes }).into()),
            None => Ok(nodes.iter().map(|node| NodeId(ids.start + node.0)).collect()),
        }
    }
}

impl fmt::Debug for LinkPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkPredictor")
            .field("model", self.model())
            .field("relation", &self.relation().map(|relation| &relation.name))
            .finish_non_exhaustive()
    }
}
