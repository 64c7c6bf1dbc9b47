use std::sync::Arc;
use std::time::Duration;

use kiln_data::{GraphDataset, NodeFeatures};
use kiln_feature::FeatureStore;
use kiln_graph::{GraphId, NodeId};
use kiln_store::progress::ProgressScope;
use kiln_train::{
    LinkPredictor, ModelError, ModelNodesError, NodePredictor, OutputRows, PredictMode, PredictModeError,
    PredictedRows, PredictionBatches, SavedModel, WantedRows,
};

use crate::{GraphSource, RankHandle, Result};

/// The longest wait of a rank for the outputs of others. It may be long, because a lost rank is detected during the wait.
const WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The ranks that get the outputs of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PredictionOutput {
    /// Rank 0 gets all outputs, in the order of the request.
    #[default]
    RankZero,
    /// Each rank gets the outputs of a range of the request that it computed. The ranges of the ranks are consecutive.
    EachRank,
}

impl RankHandle {
    /// Computes the outputs of nodes on all ranks, and passes them to `each` batch by batch. They are bit-identical for
    /// any number of ranks. In exact mode, rank 0 computes alone, with the threads of all ranks of its machine.
    /// Collective: every rank must call it, with the same request.
    ///
    /// For links, these are the rows that a [`LinkScorerBuilder`](kiln_train::LinkScorerBuilder) takes, of the predictor
    /// [`LinkPredictor::encoder`].
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(model: SavedModel, data: Dataset, nodes: &[NodeId]) -> Result<()> {
    /// use kiln::PredictionOutput;
    /// use kiln::train::WantedRows;
    /// let predictor = model.on_nodes(&data)?;
    /// launch(RankConfig::from_env_or_threads(2), |rank| {
    ///     let mode = PredictMode::default();
    ///     rank.predict(&predictor, nodes, &mode, WantedRows::Outputs, PredictionOutput::RankZero, |rows| {
    ///         println!("items {:?}: {:?}", rows.positions, rows.scores.map(|scores| scores.classes()));
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::batches`], of `each` and of other ranks, and an error for
    /// [`PredictionOutput::EachRank`] in exact mode.
    pub fn predict(
        &self,
        predictor: &NodePredictor,
        nodes: &[NodeId],
        mode: &PredictMode,
        wanted: WantedRows,
        output: PredictionOutput,
        each: impl FnMut(PredictedRows) -> Result<()>,
    ) -> Result<()> {
        if !predictor.is_exact(mode) {
            return self.predict_batches(&predictor.batches(nodes, mode, wanted)?, output, each);
        }
        if output == PredictionOutput::EachRank {
            return Err(kiln_train::Error::from(ModelError::Mode(PredictModeError::ExactOnRankZero)).into());
        }
        if self.is_zero() {
            let threads = self.process.machine_pool()?;
            let scope = ProgressScope::current();
            let batches = threads.install(|| scope.run(|| predictor.batches(nodes, mode, wanted)))?;
            batches.for_each(0..batches.n_batches(), each)?;
        }
        Ok(self.communicator("exact predictions")?.barrier(WAIT)?)
    }

    /// Computes batches like [`RankHandle::predict`], for example of graphs. Collective: every rank must call it, with
    /// the same request.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(model: SavedModel, graphs: GraphDataset, ids: &[GraphId]) -> Result<()> {
    /// use kiln::PredictionOutput;
    /// let features = model.node_features(&graphs)?;
    /// let batches = model.graph_batches(graphs.graph(), graphs.node_offsets(), &features, ids)?;
    /// launch(RankConfig::from_env_or_threads(2), |rank| {
    ///     // Each rank has its share of the scores.
    ///     rank.predict_batches(&batches, PredictionOutput::EachRank, |rows| {
    ///         println!("items {:?}: {:?}", rows.positions, rows.scores.map(|scores| scores.classes()));
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`PredictionBatches::batch`], of `each` and of other ranks.
    pub fn predict_batches(
        &self,
        batches: &PredictionBatches,
        output: PredictionOutput,
        each: impl FnMut(PredictedRows) -> Result<()>,
    ) -> Result<()> {
        let mut comm = self.communicator("predictions")?;
        if output == PredictionOutput::RankZero {
            return batches.gather(&mut *comm, each);
        }
        let (rank, n_ranks, n_batches) = (self.index(), self.world_size(), batches.n_batches());
        batches.for_each(n_batches * rank / n_ranks..n_batches * (rank + 1) / n_ranks, each)?;
        Ok(comm.barrier(WAIT)?)
    }
}

/// Predictions of a [`SavedModel`] on datasets and partitioned graphs.
///
/// ```no_run
/// use kiln::prelude::*;
/// let model = SavedModel::open("runs/train-001")?;
/// let predictor = model.on_nodes(&Dataset::open("debian-packages")?)?;
/// let scores = predictor.predict(&[NodeId(7), NodeId(9)], &PredictMode::default())?;
/// println!("{:?} {:?}", scores.classes(), scores.confidences());
/// let links = SavedModel::open("runs/links")?.on_links(&Dataset::open("citations")?)?;
/// let best = links.top_k(&[NodeId(7)], &TopKConfig::new(10), &PredictMode::default())?;
/// println!("{best:?}");
/// # Ok::<(), Error>(())
/// ```
pub trait PredictOn {
    /// Prepares a graph for predictions of its nodes; of a heterogeneous graph, of those of the type that had targets in
    /// training. Targets and split are not read, and the graph may contain nodes that training did not have. `graph` is a
    /// [`Dataset`](kiln_data::Dataset) or a partitioned graph that this rank has
    /// joined, whose outputs are those of the whole graph, bit for bit. For a model of a graph with one type of nodes, the
    /// relations of a heterogeneous dataset with one node type are joined
    /// ([`Dataset::to_homogeneous`](kiln_data::Dataset::to_homogeneous)).
    ///
    /// The steps of the model's preparation that the data already went through
    /// ([`Dataset::preparation`](kiln_data::Dataset::preparation)) are not repeated.
    ///
    /// The trained rows of nodes without features are found by the names of the nodes, so that the data may have other nodes than
    /// the training data, in another order. A model that was trained on nodes without names, or on partitions of an older version of
    /// kiln, finds rows by id: on the data of its training, which is recognised by its hash
    /// ([`GraphSource::with_hash`]), and on a dataset with as many nodes, which have no names either.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(model: SavedModel) -> Result<()> {
    /// // The data of this month, with nodes that training did not have.
    /// let predictor = model.on_nodes(&Dataset::open("payments-2024-06")?)?;
    /// let scores = predictor.predict(&[NodeId(7)], &PredictMode::default())?;
    /// println!("{:?}", scores.classes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::new`], among them one if the preparation of the training data is unknown and the
    /// dataset went through no step. On a partitioned graph, an error if the preparation of its data is unknown, unless the model
    /// was trained on the same data, and if rows would be found by id on other data.
    fn on_nodes(&self, graph: impl Into<GraphSource>) -> Result<NodePredictor>;

    /// Prepares a graph for predictions of links: of links between any nodes, or of the relation that training had. Otherwise it is
    /// [`PredictOn::on_nodes`]. Messages pass over all edges of the graph: to score held-out links, pass data without them.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(model: SavedModel) -> Result<()> {
    /// let predictor = model.on_links(&Dataset::open("citations")?)?;
    /// for link in predictor.top_k(&[NodeId(7)], &TopKConfig::new(10), &PredictMode::default())? {
    ///     println!("paper {} with the score {}", link.dst.0, link.score);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`LinkPredictor::new`] and [`PredictOn::on_nodes`].
    fn on_links(&self, graph: impl Into<GraphSource>) -> Result<LinkPredictor>;

    /// Returns the node features of a set of graphs, of the kind that the model was trained with. If the model does not record it,
    /// the kind is [`NodeFeatures::Auto`].
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(model: SavedModel) -> Result<()> {
    /// // For example the degrees, if the model was trained on them.
    /// let molecules = GraphDataset::open("molecules")?;
    /// let features = model.node_features(&molecules)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`GraphDataset::node_features`], and [`Error::Train`](crate::Error::Train) if the recorded
    /// kind is unknown.
    fn node_features(&self, data: &GraphDataset) -> Result<Arc<dyn FeatureStore>>;

    /// Returns the scores of graphs of a set, one row per graph and one column per class. `features` must have the
    /// columns of the training data, in the same order.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(model: SavedModel, molecules: GraphDataset) -> Result<()> {
    /// let features = model.node_features(&molecules)?;
    /// let scores = model.predict_dataset(&molecules, &features, &[GraphId(0), GraphId(5)])?;
    /// println!("{:?}", scores.classes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`SavedModel::predict_graphs`].
    fn predict_dataset(
        &self,
        data: &GraphDataset,
        features: &Arc<dyn FeatureStore>,
        graphs: &[GraphId],
    ) -> Result<OutputRows>;
}

impl PredictOn for SavedModel {
    fn on_nodes(&self, graph: impl Into<GraphSource>) -> Result<NodePredictor> {
        let GraphSource { source, known_hash } = graph.into();
        let predictor = NodePredictor::new(self, source.prediction_data(self, known_hash.as_deref())?)?;
        source.check_predicted(self)?;
        Ok(predictor)
    }

    fn on_links(&self, graph: impl Into<GraphSource>) -> Result<LinkPredictor> {
        let GraphSource { source, known_hash } = graph.into();
        let predictor = LinkPredictor::new(self, source.prediction_data(self, known_hash.as_deref())?)?;
        source.check_predicted(self)?;
        Ok(predictor)
    }

    fn node_features(&self, data: &GraphDataset) -> Result<Arc<dyn FeatureStore>> {
        let recorded = self.info().inputs.node_features.as_deref();
        let kind = recorded.map_or(Some(NodeFeatures::Auto), NodeFeatures::from_name);
        let unknown = || {
            ModelError::Nodes(ModelNodesError::UnknownNodeFeatures {
                kind: recorded.unwrap_or_default().to_owned(),
            })
        };
        let kind = kind.ok_or_else(unknown).map_err(kiln_train::Error::from)?;
        Ok(self.reorder_columns("node", &data.node_features(kind)?, &data.feature_columns(kind))?)
    }

    fn predict_dataset(
        &self,
        data: &GraphDataset,
        features: &Arc<dyn FeatureStore>,
        graphs: &[GraphId],
    ) -> Result<OutputRows> {
        Ok(self.predict_graphs(data.graph(), data.node_offsets(), features, graphs)?)
    }
}
