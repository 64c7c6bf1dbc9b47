use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_feature::FeatureStore;
use kiln_graph::{Csc, GraphSchema, Links, NodeId, RelationSchema, Relations};
use kiln_sample::{Fanout, Rule, SamplerConfig, TypedSampler};

use crate::error::Result;
use crate::evaluate::layer_wise::WantedRows;
use crate::saved::batches::PredictionBatches;
use crate::saved::error::ModelError;
use crate::saved::info::ModelTask;
use crate::saved::link_scorer::{LinkScorer, LinkScorerBuilder};
use crate::saved::mode::PredictMode;
use crate::saved::model::SavedModel;
use crate::saved::top_k::{ScoredLink, TopKConfig};
use crate::saved::typed_predictor::{TypedNodePredictor, info_of};
use crate::step::node_keys::NodeKeys;

/// A saved model of the links of one relation of a heterogeneous graph: scores pairs of a source and a destination, and finds
/// the best destinations of a source. Threads can use one predictor at the same time, and clones share its data.
///
/// Sources and destinations are numbered from 0 within their types, unless a method takes node ids of the graph. Messages pass
/// over all edges of the graph. As for a [`TypedNodePredictor`], the data may contain other nodes than the training data.
#[derive(Clone)]
pub struct TypedLinkPredictor {
    /// The predictor of the rows that the decoder reads.
    nodes: TypedNodePredictor,
    schema: GraphSchema,
    /// The graph; `None` if it is only sampled.
    graph: Option<Arc<Relations>>,
    /// The position of the relation whose edges are the links.
    relation: usize,
    /// The ids of the nodes of the sources' type and of the destinations' type.
    ends: [Range<u32>; 2],
}

impl TypedLinkPredictor {
    /// Prepares a graph for a model's predictions. The arguments are those of [`TypedNodePredictor::new`].
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for links of heterogeneous graphs, and the errors of
    /// [`TypedNodePredictor::new`].
    pub fn new(
        model: &SavedModel,
        graph: Arc<Relations>,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
        keys: &[Option<NodeKeys>],
    ) -> Result<Self> {
        let (schema, relations) = (graph.schema().clone(), Arc::clone(&graph));
        let sampler = move |fanouts, config| Ok(TypedSampler::new(&relations, fanouts, config)?);
        Ok(Self { graph: Some(graph), ..Self::on_sampler(model, schema, features, keys, sampler)? })
    }

    /// Creates a predictor like [`TypedLinkPredictor::new`] on a graph that is only sampled, such as a partitioned graph. The
    /// arguments are those of [`TypedNodePredictor::on_sampler`].
    ///
    /// # Errors
    /// Returns the errors of [`TypedLinkPredictor::new`].
    pub fn on_sampler(
        model: &SavedModel,
        schema: GraphSchema,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
        keys: &[Option<NodeKeys>],
        sampler: impl Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<TypedSampler> + Send + Sync + 'static,
    ) -> Result<Self> {
        model.typed_network()?;
        model.check_task(ModelTask::Links)?;
        let relation =
            info_of(model).link_relation().expect("the description of a link model should name a relation");
        let nodes = TypedNodePredictor::of(model, schema.clone(), features, keys, sampler)?;
        let ends = schema.node_ranges(relation);
        Ok(Self { nodes, schema, graph: None, relation, ends })
    }

    /// Returns a predictor with the same model on another device, which `model` was opened on.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if `model` has another description.
    pub fn with_model(&self, model: &SavedModel) -> Result<Self> {
        Ok(Self { nodes: self.nodes.with_model(model)?, ..self.clone() })
    }

    /// Sets the sampling rule of a model that was trained with a custom rule.
    #[must_use]
    pub fn rule(self, rule: impl Into<Rule>) -> Self {
        Self { nodes: self.nodes.rule(rule), ..self }
    }

    /// Returns the model.
    pub fn model(&self) -> &SavedModel {
        self.nodes.model()
    }

    /// Returns the relation whose edges are the links.
    pub fn relation(&self) -> &RelationSchema {
        &self.schema.relations()[self.relation]
    }

    /// Returns the node ids, in the graph, of the sources' type and of the destinations' type.
    pub fn node_ranges(&self) -> [Range<u32>; 2] {
        self.ends.clone()
    }

    /// Returns the edges of the relation as a graph of all nodes, for [`TopKConfig::excluding`].
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged, and [`Error::Saved`](crate::Error::Saved) if it is
    /// only sampled.
    pub fn known_links(&self) -> Result<Arc<Csc>> {
        let graph =
            self.graph.as_ref().ok_or(ModelError::NeedsWholeGraph { what: "the list of known links" })?;
        Ok(Arc::new(graph.whole_graph(self.relation)?))
    }

    /// Returns the rows that the decoder reads, of nodes with these ids in the graph, as batches that are computed one by one.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a node does not exist, and the errors of
    /// [`TypedNodePredictor::predict`].
    pub fn batches(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<PredictionBatches> {
        let n_nodes = self.schema.n_nodes();
        check(nodes, n_nodes)?;
        self.nodes.batches_of(nodes, mode, WantedRows::Outputs)
    }

    /// Computes the rows of nodes with these ids in the graph, in any order and with repetitions, from which pairs of them are
    /// scored. The scorer has node ids of the graph, too.
    fn link_scorer(&self, nodes: Vec<NodeId>, mode: &PredictMode) -> Result<LinkScorer> {
        let builder = LinkScorerBuilder::new(self.model(), nodes, None)?;
        let batches = self.batches(builder.nodes(), mode)?;
        builder.of_batches(&batches)
    }

    /// Returns the score of each link, a logit. The links need not be in the graph.
    ///
    /// # Errors
    /// Returns the errors of [`TypedLinkPredictor::batches`].
    pub fn score_links(&self, links: &Links, mode: &PredictMode) -> Result<Vec<f32>> {
        let [srcs, dsts] = [links.srcs(), links.dsts()];
        let (srcs, dsts) = (self.ids_of(0, srcs)?, self.ids_of(1, dsts)?);
        let nodes = srcs.iter().chain(&dsts).copied().collect();
        self.link_scorer(nodes, mode)?.score(&Links::new(srcs, dsts)?)
    }

    /// Finds the destinations with the largest scores of each source among all nodes of the destinations' type, or those
    /// of [`TopKConfig::among`], as [`LinkScorer::top_k`] does. The graph of [`TopKConfig::excluding`] has node ids of the graph,
    /// as [`TypedLinkPredictor::known_links`] has.
    ///
    /// # Errors
    /// Returns the errors of [`TypedLinkPredictor::batches`] and [`LinkScorer::top_k`].
    pub fn top_k(&self, srcs: &[NodeId], config: &TopKConfig, mode: &PredictMode) -> Result<Vec<ScoredLink>> {
        let srcs = self.ids_of(0, srcs)?;
        let [src_ids, dst_ids] = &self.ends;
        let config = config.clone().within_type(dst_ids);
        let all_dsts: Vec<NodeId> = dst_ids.clone().map(NodeId).collect();
        let nodes = srcs.iter().chain(config.dsts(&all_dsts)).copied().collect();
        let within = |link: ScoredLink| ScoredLink {
            src: NodeId(link.src.0 - src_ids.start),
            dst: NodeId(link.dst.0 - dst_ids.start),
            ..link
        };
        Ok(self.link_scorer(nodes, mode)?.top_k(&srcs, &config)?.into_iter().map(within).collect())
    }

    /// Returns the ids, in the graph, of nodes of the sources' type (`end` 0) or of the destinations' type (`end` 1).
    fn ids_of(&self, end: usize, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
        let ids = &self.ends[end];
        check(nodes, ids.len())?;
        Ok(nodes.iter().map(|node| NodeId(ids.start + node.0)).collect())
    }
}

fn check(nodes: &[NodeId], n_nodes: usize) -> Result<()> {
    match nodes.iter().find(|node| n_nodes <= node.index()) {
        Some(&node) => Err(ModelError::NoSuchNode { node, n_nodes }.into()),
        None => Ok(()),
    }
}

impl fmt::Debug for TypedLinkPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedLinkPredictor")
            .field("model", self.model())
            .field("relation", &self.relation().name)
            .finish_non_exhaustive()
    }
}
