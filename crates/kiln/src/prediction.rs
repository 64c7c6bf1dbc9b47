use std::sync::Arc;
use std::time::Duration;

use kiln_data::{Dataset, GraphDataset, NodeFeatures, TypedDataset};
use kiln_feature::FeatureStore;
#[cfg(feature = "grpc")]
use kiln_feature::Preparation;
#[cfg(feature = "grpc")]
use kiln_graph::GraphSchema;
use kiln_graph::{Csc, GraphId, NodeId};
#[cfg(feature = "grpc")]
use kiln_remote::DistNeighborSampler;
#[cfg(feature = "grpc")]
use kiln_sample::{Fanout, FrontierSampler, SamplerConfig, TypedSampler};
use kiln_train::{
    ModelError, NodeKeys, NodePredictor, OutputRows, PredictMode, PredictedRows, PredictionBatches,
    SavedModel, TypedLinkPredictor, TypedNodePredictor, WantedRows,
};

#[cfg(feature = "grpc")]
use crate::source::Source;
use crate::source::keys_of_names;
use crate::{RankHandle, Result};

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
        mut each: impl FnMut(PredictedRows) -> Result<()>,
    ) -> Result<()> {
        if !predictor.is_exact(mode) {
            return self.predict_batches(&predictor.batches(nodes, mode, wanted)?, output, each);
        }
        if output == PredictionOutput::EachRank {
            return Err(kiln_train::Error::from(ModelError::ExactOnRankZero).into());
        }
        if self.is_zero() {
            let threads = self.process.machine_pool()?;
            let batches = threads.install(|| predictor.batches(nodes, mode, wanted))?;
            for batch in 0..batches.n_batches() {
                each(batches.batch(batch)?)?;
            }
        }
        Ok(self.communicator("exact predictions")?.barrier(WAIT)?)
    }

    /// Computes batches like [`RankHandle::predict`], for example of graphs. Collective: every rank must call it, with
    /// the same request.
    ///
    /// # Errors
    /// Returns the errors of [`PredictionBatches::batch`], of `each` and of other ranks.
    pub fn predict_batches(
        &self,
        batches: &PredictionBatches,
        output: PredictionOutput,
        mut each: impl FnMut(PredictedRows) -> Result<()>,
    ) -> Result<()> {
        let mut comm = self.communicator("predictions")?;
        if output == PredictionOutput::RankZero {
            return batches.gather(&mut *comm, each);
        }
        let (rank, n_ranks, n_batches) = (self.index(), self.world_size(), batches.n_batches());
        for batch in n_batches * rank / n_ranks..n_batches * (rank + 1) / n_ranks {
            each(batches.batch(batch)?)?;
        }
        Ok(comm.barrier(WAIT)?)
    }
}

/// Predictions of a [`SavedModel`] on datasets.
///
/// ```no_run
/// use kiln::prelude::*;
/// let model = SavedModel::open("runs/train-001")?;
/// let predictor = model.on_dataset(&Dataset::open("debian-packages")?)?;
/// let scores = predictor.predict(&[NodeId(7), NodeId(9)], &PredictMode::default())?;
/// println!("{:?} {:?}", scores.classes(), scores.confidences());
/// # Ok::<(), Error>(())
/// ```
pub trait PredictOnDataset {
    /// Prepares a dataset for predictions. The steps of the model's preparation that the dataset already went through
    /// ([`Dataset::preparation`]) are not repeated. Labels and split are not read, and the dataset may contain nodes
    /// that training did not have.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::on_prepared`], and an error if the preparation of the training data is
    /// unknown and the dataset went through no step.
    fn on_dataset(&self, data: &Dataset) -> Result<NodePredictor>;

    /// Prepares a heterogeneous dataset for predictions of the nodes of the type that had targets in training. Targets and split
    /// are not read. The trained rows of nodes without features are found by the names of the nodes, so that the dataset may have
    /// other nodes than the training data, in another order. A model that was trained on nodes without names, or on partitions of an
    /// older version of kiln, finds rows by id: on the data of its training, which is compared by its hash, and on data with as many
    /// nodes, which have no names either.
    ///
    /// # Errors
    /// Returns the errors of [`TypedNodePredictor::new`].
    fn on_typed_dataset(&self, data: &TypedDataset) -> Result<TypedNodePredictor>;

    /// Prepares a heterogeneous dataset for predictions of the links of the relation that training had. Trained rows are found as by
    /// [`PredictOnDataset::on_typed_dataset`], except that data is not compared with that of the training. Messages pass over all edges of the dataset: to score held-out
    /// links, pass data without them.
    ///
    /// # Errors
    /// Returns the errors of [`TypedLinkPredictor::new`].
    fn on_typed_links(&self, data: &TypedDataset) -> Result<TypedLinkPredictor>;

    /// Prepares a dataset as [`PredictOnDataset::on_typed_dataset`] does, whose hash is known: `kiln_data::typed::hash` of a folder,
    /// which `kiln train` and partitions record, or [`TypedDataset::hash`].
    ///
    /// # Errors
    /// Returns the errors of [`TypedNodePredictor::new`].
    fn on_hashed_typed_dataset(&self, data: &TypedDataset, hash: &str) -> Result<TypedNodePredictor>;

    /// Prepares a partitioned graph for predictions on a rank, with the steps of the model's preparation that its data
    /// did not go through before it was partitioned. Outputs are those of the whole graph, bit for bit.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::on_sampler`], and an error if the preparation of the training data or of
    /// the partitions is unknown, unless the model was trained on the same partitioned data.
    #[cfg(feature = "grpc")]
    fn on_partitions(&self, joined: &crate::JoinedGraph) -> Result<NodePredictor>;

    /// Prepares a partitioned heterogeneous graph for predictions on a rank, as [`PredictOnDataset::on_typed_dataset`] prepares a
    /// dataset. Outputs are those of the whole graph, bit for bit. The trained rows of nodes without features are found by the keys
    /// in the partitions. Without keys, because the nodes have no names or an older version of kiln wrote the partitions, they are
    /// found by id, on the data of the training only: on the partitions of the run, or those of its dataset.
    ///
    /// # Errors
    /// Returns the errors of [`TypedNodePredictor::on_sampler`].
    #[cfg(feature = "grpc")]
    fn on_typed_partitions(&self, joined: &crate::JoinedGraph) -> Result<TypedNodePredictor>;

    /// Prepares a partitioned heterogeneous graph for predictions of links on a rank, as [`PredictOnDataset::on_typed_links`]
    /// prepares a dataset. Trained rows are found as by [`PredictOnDataset::on_typed_partitions`]. Messages pass over all edges of
    /// the partitions.
    ///
    /// # Errors
    /// Returns the errors of [`TypedLinkPredictor::on_sampler`], and an error if rows would be found by id on other data.
    #[cfg(feature = "grpc")]
    fn on_typed_link_partitions(&self, joined: &crate::JoinedGraph) -> Result<TypedLinkPredictor>;

    /// Returns the node features of a set, of the kind that the model was trained with. If the model does not record it,
    /// the kind is [`NodeFeatures::Auto`].
    ///
    /// # Errors
    /// Returns the errors of [`GraphDataset::node_features`], and [`Error::Train`](crate::Error::Train) if the recorded
    /// kind is unknown.
    fn node_features(&self, data: &GraphDataset) -> Result<Arc<dyn FeatureStore>>;

    /// Returns the scores of graphs of a set, one row per graph and one column per class. `features` must have the
    /// columns of the training data, in the same order.
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

/// Prepares a heterogeneous dataset, which may be the training data if its hash is known.
fn typed_predictor(
    model: &SavedModel,
    data: &TypedDataset,
    hash: Option<&str>,
) -> Result<TypedNodePredictor> {
    let (graph, features, keys) = (data.graph.clone(), data.features.clone(), keys_of_names(data));
    // Without names, the rows of a model are those of the nodes of its training data.
    let keys = match hash == Some(model.info().data_hash.as_str()) {
        true => model.keys_of_training_data(&keys),
        false => keys.to_vec(),
    };
    Ok(TypedNodePredictor::new(model, graph, features, &keys)?)
}

/// The samplers of a partitioned heterogeneous graph, by the fanouts of each layer and relation.
#[cfg(feature = "grpc")]
type PartitionSamplers =
    Box<dyn Fn(Vec<Vec<Fanout>>, SamplerConfig) -> kiln_train::Result<TypedSampler> + Send + Sync>;

/// Prepares a partitioned heterogeneous graph for a predictor of nodes or of links, which `create` creates.
#[cfg(feature = "grpc")]
fn on_typed_parts<P>(
    model: &SavedModel,
    joined: &crate::JoinedGraph,
    create: impl FnOnce(
        GraphSchema,
        Vec<Option<Arc<dyn FeatureStore>>>,
        &[Option<NodeKeys>],
        PartitionSamplers,
    ) -> kiln_train::Result<P>,
) -> Result<P> {
    let graph = joined.graph.clone();
    let (schema, dims) = (graph.schema().clone(), graph.dims());
    let names = schema.types().names().to_vec();
    // The hash of a run on links is that of its data, and may be followed by that of the links.
    let of_model = model.info().data_hash.split(", links ").next();
    let (of_names, is_training_data) = (joined.keys.clone(), of_model == Some(graph.hash()));
    let of_training = model.keys_of_training_data(&of_names);
    let keys = if is_training_data { &of_training[..] } else { &of_names[..] };
    let sampler = move |fanouts, config| -> kiln_train::Result<TypedSampler> {
        Ok(graph.typed_sampler(fanouts, &config).map_err(kiln_sample::Error::from)?)
    };
    let predictor = create(schema, joined.features(), keys, Box::new(sampler))?;
    // The nodes of other data may be in another order.
    let is_by_id = |(keys, dim): (&Option<NodeKeys>, Option<usize>)| keys.is_none() && dim.is_none();
    let by_id = of_training.iter().zip(dims).position(is_by_id).filter(|_| !is_training_data);
    match by_id.map(|position| names[position].clone()) {
        Some(node_type) => Err(kiln_train::Error::from(ModelError::RowsWithoutNames { node_type }).into()),
        None => Ok(predictor),
    }
}

/// Returns true if edges with the same id are the same in both graphs.
fn has_same_edges(one: &Arc<Csc>, other: &Arc<Csc>) -> bool {
    Arc::ptr_eq(one, other) || (one.indptr() == other.indptr() && one.indices() == other.indices())
}

impl PredictOnDataset for SavedModel {
    fn on_dataset(&self, data: &Dataset) -> Result<NodePredictor> {
        let (graph, features) = (data.graph.clone(), data.features.clone());
        // Data without a step may be as it was loaded, or need none.
        if self.info().inputs.preparation.is_none() && data.preparation.steps.is_empty() {
            return Err(kiln_train::Error::from(ModelError::UnknownPreparation).into());
        }
        let predictor = NodePredictor::on_prepared(self, graph, features, &data.preparation)?;
        match &data.edge_features {
            Some(features) if predictor.reads_edge_features() => {
                // A step of the preparation may have changed the order of the edges, and so their ids.
                let is_changed = predictor.graph().is_some_and(|graph| !has_same_edges(graph, &data.graph));
                if is_changed {
                    return Err(kiln_train::Error::from(ModelError::EdgeFeaturesOfUnprepared).into());
                }
                Ok(predictor.with_edge_features(features.clone())?)
            }
            _ => Ok(predictor),
        }
    }

    fn on_typed_dataset(&self, data: &TypedDataset) -> Result<TypedNodePredictor> {
        // Reading all values takes time.
        let hash = self.finds_rows_by_id().then(|| data.hash()).transpose()?;
        typed_predictor(self, data, hash.as_deref())
    }

    fn on_hashed_typed_dataset(&self, data: &TypedDataset, hash: &str) -> Result<TypedNodePredictor> {
        typed_predictor(self, data, Some(hash))
    }

    fn on_typed_links(&self, data: &TypedDataset) -> Result<TypedLinkPredictor> {
        let (graph, features, keys) = (data.graph.clone(), data.features.clone(), keys_of_names(data));
        Ok(TypedLinkPredictor::new(self, graph, features, &keys)?)
    }

    #[cfg(feature = "grpc")]
    fn on_partitions(&self, joined: &crate::JoinedGraph) -> Result<NodePredictor> {
        let graph = joined.graph.clone();
        let is_training_data = graph.hash() == self.info().data_hash;
        let done = match (&self.info().inputs.preparation, graph.preparation()) {
            (Some(_), Some(done)) => done.clone(),
            (Some(_), None) => {
                return Err(kiln_train::Error::from(ModelError::UnrecordedPreparation).into());
            }
            (None, done) if is_training_data || done.is_some_and(|done| !done.steps.is_empty()) => {
                Preparation::default()
            }
            (None, _) => return Err(kiln_train::Error::from(ModelError::UnknownPreparation).into()),
        };
        self.check_edge_types(|| graph.n_edge_types())?;
        let n_nodes = graph.n_nodes();
        let features = joined
            .features()
            .remove(0)
            .ok_or(ModelError::NotHeterogeneous)
            .map_err(kiln_train::Error::from)?;
        let sampler = move |config| -> kiln_train::Result<Arc<dyn FrontierSampler>> {
            let sampler = DistNeighborSampler::with_config(graph.clone(), config);
            Ok(Arc::new(sampler.map_err(kiln_sample::Error::from)?))
        };
        let predictor = NodePredictor::on_sampler(self, n_nodes, features, &done, sampler)?;
        match &joined.edge_features {
            Some(features) => Ok(predictor.with_edge_features(features.clone())?),
            None if predictor.reads_edge_features() => Err(kiln_remote::Error::NoEdgeFeatures.into()),
            None => Ok(predictor),
        }
    }

    #[cfg(feature = "grpc")]
    fn on_typed_partitions(&self, joined: &crate::JoinedGraph) -> Result<TypedNodePredictor> {
        on_typed_parts(self, joined, |schema, features, keys, sampler| {
            TypedNodePredictor::on_sampler(self, schema, features, keys, sampler)
        })
    }

    #[cfg(feature = "grpc")]
    fn on_typed_link_partitions(&self, joined: &crate::JoinedGraph) -> Result<TypedLinkPredictor> {
        on_typed_parts(self, joined, |schema, features, keys, sampler| {
            TypedLinkPredictor::on_sampler(self, schema, features, keys, sampler)
        })
    }

    fn node_features(&self, data: &GraphDataset) -> Result<Arc<dyn FeatureStore>> {
        let recorded = self.info().inputs.node_features.as_deref();
        let kind = recorded.map_or(Some(NodeFeatures::Auto), NodeFeatures::from_name);
        let unknown = || ModelError::UnknownNodeFeatures { kind: recorded.unwrap_or_default().to_owned() };
        Ok(data.node_features(kind.ok_or_else(unknown).map_err(kiln_train::Error::from)?)?)
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
