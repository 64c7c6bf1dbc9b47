use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use kiln_feature::{FeatureStore, Labels, RelationRows};
use kiln_graph::{Csc, EdgeColumns, GraphId, NodeId, SharedArray};
use kiln_kernels::{DeviceGraphs, ops, to_vec_f32, upload_features};
use kiln_loader::{Batcher, GraphBatcher, SeedBatch};
use kiln_nn::{EdgeDims, LinkDecoder};

use crate::error::Result;
use crate::runs::find::{is_run, suggest_runs};
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::contradiction::contradiction;
use crate::saved::error::{ModelEdgesError, ModelError, ModelFileError, ModelNodesError, PreparationError};
use crate::saved::info::{EvaluationInfo, ModelInfo, SamplingInfo};
use crate::saved::mode::PredictMode;
use crate::saved::model_file::{MODEL_FILE, MOST_MODEL_BYTES, ModelTask};
use crate::saved::network::{GraphNetwork, Network, NodeEncoder};
use crate::saved::outputs::OutputRows;
use crate::saved::prediction_data::PredictionData;
use crate::saved::predictor::NodePredictor;
use crate::saved::registry::{BadModel, ModelRegistry};
use crate::saved::schema_info::SchemaInfo;
use crate::step::embedding::node_keys::NodeKeys;
use crate::step::weights::hash;
use kiln_store::progress::ProgressUnit;
use kiln_store::whole_file::read_whole;

/// The file of a run folder with the weights of the best epoch.
pub(crate) const WEIGHTS_FILE: &str = "best.safetensors";

/// A trained model with the description of its inputs, opened from a run folder for predictions. It needs `model.json`
/// and `best.safetensors` of the folder, and no training data. Clones share the weights; threads can predict at the
/// same time.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kiln_feature::FeatureStore;
/// # use kiln_graph::{Csc, NodeId};
/// use kiln_train::{PredictMode, SavedModel};
/// # fn example(graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
/// let model = SavedModel::open("runs/train-001")?;
/// let scores = model.predict(&graph, &features, &[NodeId(7)], &PredictMode::default())?;
/// println!("{:?}", scores.classes()[0].and_then(|class| model.class_name(class)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SavedModel {
    opened: Arc<Opened>,
}

struct Opened {
    info: ModelInfo,
    network: Network,
    /// The number of relations of a model that reads edge types.
    n_relations: Option<usize>,
    device: Device,
    /// The path of `model.json`, for error messages.
    path: PathBuf,
}

impl SavedModel {
    /// Opens one of kiln's models on the CPU.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example() -> kiln_train::Result<()> {
    /// let model = SavedModel::open("runs/train-001")?;
    /// println!("trained on {}", model.info().inputs.data_name);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`SavedModel::open_with`].
    pub fn open(run_dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(run_dir, &ModelRegistry::default(), &Device::flex())
    }

    /// Opens a model of a registry on a device.
    ///
    /// ```no_run
    /// # use burn::tensor::Device;
    /// # use kiln_nn::SageConfig;
    /// # use kiln_train::{ModelRegistry, SavedModel};
    /// # fn example() -> kiln_train::Result<()> {
    /// // A model of a program's own configuration. kiln's models need no registration.
    /// let registry = ModelRegistry::default().with_node_model::<SageConfig>();
    /// let model = SavedModel::open_with("runs/own", &registry, &Device::flex())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a file is missing, damaged or of a newer format, if the
    /// registry has no model of this kind, or if the weights do not fit the description.
    pub fn open_with(run_dir: impl AsRef<Path>, registry: &ModelRegistry, device: &Device) -> Result<Self> {
        let run_dir = run_dir.as_ref();
        let (path, info_bytes) = read(run_dir, MODEL_FILE)?;
        let info = ModelInfo::parse(&info_bytes, &path)?;
        let Some(constructor) = registry.constructor(&info.kind) else {
            let known = registry.kinds().collect::<Vec<_>>().join(", ");
            return Err(ModelError::File(ModelFileError::UnknownKind { path, kind: info.kind, known }).into());
        };
        let (weights_path, weights) = read(run_dir, WEIGHTS_FILE)?;
        if let Some(expected) = &info.weights_hash {
            let got = hash(&weights);
            if got != *expected {
                let reason = format!("its SHA-256 is {got}, expected {expected}");
                return Err(
                    ModelError::File(ModelFileError::BadWeights { path: weights_path, reason }).into()
                );
            }
        }
        let (network, n_relations) = constructor(&info, weights, device).map_err(|bad| match bad {
            BadModel::Config(reason) => {
                ModelError::File(ModelFileError::BadInfo { path: path.clone(), reason })
            }
            BadModel::Weights(reason) => {
                ModelError::File(ModelFileError::BadWeights { path: weights_path, reason })
            }
        })?;
        if let Some(reason) = contradiction(&info, &network) {
            return Err(ModelError::File(ModelFileError::BadInfo { path, reason }).into());
        }
        let device = device.clone().inner();
        Ok(Self { opened: Arc::new(Opened { info, network, n_relations, device, path }) })
    }

    /// Returns the content of `model.json`.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel) -> kiln_train::Result<()> {
    /// let inputs = &model.info().inputs;
    /// println!("{} features, {} classes", inputs.n_features, inputs.n_outputs);
    /// # Ok(())
    /// # }
    /// ```
    pub fn info(&self) -> &ModelInfo {
        &self.opened.info
    }

    /// Returns the name of a class, or `None` if the classes have no names or the class does not exist.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::{Csc, NodeId};
    /// # use kiln_train::{PredictMode, SavedModel};
    /// # fn example(model: SavedModel, graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// let scores = model.predict(&graph, &features, &[NodeId(7)], &PredictMode::default())?;
    /// // A node whose outputs are not finite has no class.
    /// let name = scores.classes()[0].and_then(|class| model.class_name(class)).unwrap_or("unknown");
    /// # Ok(())
    /// # }
    /// ```
    pub fn class_name(&self, class: u32) -> Option<&str> {
        self.info().inputs.class_names.get(class as usize).map(String::as_str)
    }

    /// Returns the scores of nodes, one row per node and one column per class. The graph and the features are those of
    /// the data as it was loaded: the model's [`Preparation`](kiln_feature::Preparation) is applied to them. They may
    /// contain nodes that training did not have. For several calls on one graph, a [`NodePredictor`] prepares it once.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::{Csc, NodeId};
    /// # use kiln_train::{PredictMode, SavedModel};
    /// # fn example(model: SavedModel, graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// let scores = model.predict(&graph, &features, &[NodeId(7), NodeId(9)], &PredictMode::default())?;
    /// println!("{:?} {:?}", scores.classes(), scores.confidences());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::new`] and [`NodePredictor::predict`].
    pub fn predict(
        &self,
        graph: &Arc<Csc>,
        features: &Arc<dyn FeatureStore>,
        nodes: &[NodeId],
        mode: &PredictMode,
    ) -> Result<OutputRows> {
        self.predictor(graph, features)?.predict(nodes, mode)
    }

    /// Returns the embeddings of nodes: the input rows of the model's last layer. The arguments are those of
    /// [`SavedModel::predict`].
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::{Csc, NodeId};
    /// # use kiln_train::{PredictMode, SavedModel};
    /// # fn example(model: SavedModel, graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// let embeddings = model.embed(&graph, &features, &[NodeId(7), NodeId(9)], &PredictMode::default())?;
    /// for row in embeddings.rows() {
    ///     println!("{row:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::new`] and [`NodePredictor::embed`].
    pub fn embed(
        &self,
        graph: &Arc<Csc>,
        features: &Arc<dyn FeatureStore>,
        nodes: &[NodeId],
        mode: &PredictMode,
    ) -> Result<OutputRows> {
        self.predictor(graph, features)?.embed(nodes, mode)
    }

    fn predictor(&self, graph: &Arc<Csc>, features: &Arc<dyn FeatureStore>) -> Result<NodePredictor> {
        NodePredictor::new(self, PredictionData::new(graph.clone(), features.clone()))
    }

    /// Returns the scores of whole graphs, one row per graph and one column per class. The nodes of graph `g` are
    /// `node_offsets[g]..node_offsets[g + 1]` of `graph`, which is block-diagonal, as in a
    /// [`GraphBatcher`]. Batches are those of the run's evaluation.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::{Csc, GraphId};
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel, graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// // Two molecules of three and two atoms.
    /// let scores = model.predict_graphs(&graph, &vec![0, 3, 5].into(), &features, &[GraphId(0), GraphId(1)])?;
    /// println!("{:?}", scores.classes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for graphs, or the features have another
    /// number of columns or rows, and [`Error::Loader`](crate::Error::Loader) if a graph does not exist or is damaged.
    pub fn predict_graphs(
        &self,
        graph: &Arc<Csc>,
        node_offsets: &SharedArray<u32>,
        features: &Arc<dyn FeatureStore>,
        graphs: &[GraphId],
    ) -> Result<OutputRows> {
        let batches = self.graph_batches(graph, node_offsets, features, graphs)?;
        let rows = batches.all([Some(self.info().inputs.n_outputs), None])?;
        Ok(rows.scores.expect("the scores should have been computed"))
    }

    /// Returns the scores of whole graphs like [`SavedModel::predict_graphs`], as batches that are computed one by one.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::FeatureStore;
    /// # use kiln_graph::{Csc, GraphId, SharedArray};
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel, graph: Arc<Csc>, node_offsets: SharedArray<u32>,
    /// # features: Arc<dyn FeatureStore>, graphs: Vec<GraphId>) -> kiln_train::Result<()> {
    /// let batches = model.graph_batches(&graph, &node_offsets, &features, &graphs)?;
    /// for batch in 0..batches.n_batches() {
    ///     println!("{:?}", batches.batch(batch)?.scores.map(|scores| scores.classes()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`SavedModel::predict_graphs`].
    pub fn graph_batches(
        &self,
        graph: &Arc<Csc>,
        node_offsets: &SharedArray<u32>,
        features: &Arc<dyn FeatureStore>,
        graphs: &[GraphId],
    ) -> Result<PredictionBatches> {
        self.graph_network()?;
        self.check_features(&**features, graph.n_nodes())?;
        if features.n_rows() != graph.n_nodes() {
            let n_rows = features.n_rows();
            let n_nodes = graph.n_nodes();
            return Err(ModelError::Nodes(ModelNodesError::TooFewRows { n_rows, n_nodes }).into());
        }
        let preparation = self
            .info()
            .inputs
            .preparation
            .as_ref()
            .ok_or(ModelError::Preparation(PreparationError::UnknownPreparation))?;
        let features = preparation.features(features.clone())?;
        // The batcher reads the graphs' classes for the loss. A prediction has none, so all are 0.
        let n_graphs = node_offsets.len().saturating_sub(1);
        let labels = Arc::new(Labels::new(vec![0; n_graphs], 1));
        let batcher = GraphBatcher::new(graph.clone(), node_offsets.clone(), features, labels);
        let model = self.clone();
        let EvaluationInfo { batch_size, seed, .. } = self.info().evaluation;
        Ok(PredictionBatches::of_items(
            ProgressUnit::Graphs,
            graphs,
            batch_size,
            seed,
            move |seeds, positions| {
                let scores = Some(model.graph_scores(&batcher, seeds)?);
                Ok(PredictedRows { positions, scores, embeddings: None })
            },
        ))
    }

    fn graph_scores(
        &self,
        batcher: &GraphBatcher<dyn FeatureStore>,
        seeds: SeedBatch<GraphId>,
    ) -> Result<OutputRows> {
        let step = seeds.step;
        let batch = batcher.batch(seeds, &mut (), &mut Default::default());
        let batch = batch.map_err(|source| kiln_loader::Error::Batch { step, source })?;
        let rows = upload_features(batch.x, batch.x_dim, self.device());
        let graphs = DeviceGraphs::new(batch.block, &batch.node_offsets, &batch.graphs, self.device());
        self.scores(self.graph_network()?.forward(&graphs, ops::widen(rows)))
    }

    pub(crate) fn device(&self) -> &Device {
        &self.opened.device
    }

    /// Returns the model of nodes, of a model of links its encoder.
    pub(crate) fn encoder(&self) -> Result<&NodeEncoder> {
        match &self.opened.network {
            Network::Nodes { encoder, .. } => Ok(encoder),
            Network::Graphs(_) => Err(self.other_task(ModelTask::Nodes)),
        }
    }

    /// Returns the sampling of a model of nodes or links.
    pub(crate) fn sampling(&self) -> &SamplingInfo {
        let sampling = self.info().inputs.sampling.as_ref();
        sampling.expect("the description of a node model should have its sampling")
    }

    /// Returns the types and relations of the graph of a model of a heterogeneous graph.
    pub(crate) fn schema_info(&self) -> Option<&SchemaInfo> {
        self.info().inputs.graph.as_ref()
    }

    /// Returns the names of the columns of edges that the model reads.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel) -> kiln_train::Result<()> {
    /// for name in model.edge_columns() {
    ///     println!("the data of predictions needs the column {name} of the edges");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn edge_columns(&self) -> Vec<&str> {
        let sampling = self.info().inputs.sampling.iter();
        sampling.flat_map(SamplingInfo::edge_columns).map(|(name, _)| name).collect()
    }

    /// Returns the form of the rows of a column of edges that the model reads, by which the data of predictions gathers them.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel) {
    /// let rows = model.relation_rows("features");
    /// # let _ = rows;
    /// # }
    /// ```
    pub fn relation_rows(&self, name: &str) -> RelationRows {
        let sampling = self.info().inputs.sampling.as_ref();
        match sampling.is_some_and(|sampling| !sampling.edge_widths.is_empty()) {
            true if name == EdgeColumns::FEATURES => RelationRows::Padded,
            _ => RelationRows::Equal,
        }
    }

    /// Returns true if the model was trained on the data with this hash, or on links of it.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel, data_hash: &str) -> kiln_train::Result<()> {
    /// if !model.is_of_data(data_hash) {
    ///     eprintln!("the model was trained on other data: {}", model.info().data_hash);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_of_data(&self, hash: &str) -> bool {
        // The hash of a run on links is that of its data, which may be followed by that of the links.
        self.info().data_hash.split(", links ").next() == Some(hash)
    }

    /// Returns true for a model of a heterogeneous graph whose trained rows have no names, because it was trained on nodes
    /// without names, or on partitions of an older version of kiln.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel) -> kiln_train::Result<()> {
    /// if model.finds_rows_by_id() {
    ///     eprintln!("the data must have the nodes of the training data, in the same order");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn finds_rows_by_id(&self) -> bool {
        let tables = self.encoder().map_or(&[][..], |encoder| &encoder.tables);
        tables.iter().any(|table| table.keys().is_none())
    }

    /// Returns the keys with which the nodes of the training data of a model of a heterogeneous graph find their trained rows,
    /// `[n_types]`, from those of the data's names: if the model or the data has no names of the nodes of a type, row `v` is that of
    /// node `v`.
    ///
    /// ```no_run
    /// # use kiln_train::{NodeKeys, SavedModel};
    /// # fn example(model: SavedModel) -> kiln_train::Result<()> {
    /// // Users have names; items have features, and no trained rows.
    /// let names = vec![Some(NodeKeys::of_names(2, |user| ["ann", "bob"][user])), None];
    /// let keys = model.keys_of_training_data(&names);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys_of_training_data(&self, of_names: &[Option<NodeKeys>]) -> Vec<Option<NodeKeys>> {
        let (Ok(encoder), Some(graph)) = (self.encoder(), &self.info().inputs.graph) else {
            return of_names.to_vec();
        };
        let mut tables = encoder.tables.iter();
        let keys = |(width, of_names): (Option<usize>, &Option<NodeKeys>)| match width {
            Some(_) => None,
            // The nodes with the keys of the rows, in their order, have the ids of the rows.
            None => tables.next()?.keys().map(|of_rows| of_names.as_ref().unwrap_or(of_rows).clone()),
        };
        graph.widths().zip(of_names).map(keys).collect()
    }

    fn graph_network(&self) -> Result<&dyn GraphNetwork> {
        match &self.opened.network {
            Network::Graphs(network) => Ok(&**network),
            Network::Nodes { .. } => Err(self.other_task(ModelTask::Graphs)),
        }
    }

    pub(crate) fn decoder(&self) -> Result<&LinkDecoder> {
        match &self.opened.network {
            Network::Nodes { decoder: Some(decoder), .. } => Ok(decoder),
            Network::Nodes { decoder: None, .. } | Network::Graphs(_) => {
                Err(self.other_task(ModelTask::Links))
            }
        }
    }

    /// Returns the sizes of the edges that a model of edges predicts; `None` for other models.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel) -> kiln_train::Result<()> {
    /// if let Some(dims) = model.edge_dims() {
    ///     println!("reads {} features of each edge", dims.d_edge);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn edge_dims(&self) -> Option<EdgeDims> {
        match &self.opened.network {
            Network::Nodes { decoder, .. } => decoder.as_ref()?.edge_dims(),
            Network::Graphs(_) => None,
        }
    }

    /// Checks that the model was trained for this task.
    pub(crate) fn check_task(&self, expected: ModelTask) -> Result<()> {
        match self.info().inputs.task == expected {
            true => Ok(()),
            false => Err(self.other_task(expected)),
        }
    }

    fn other_task(&self, expected: ModelTask) -> crate::Error {
        ModelError::OtherTask { expected, got: self.info().inputs.task }.into()
    }

    /// Checks that the model knows all edge types of a graph. `n_edge_types` returns one more than its largest type, or
    /// `None` if there are no types; it is called only if the model reads types.
    ///
    /// ```no_run
    /// # use kiln_graph::Csc;
    /// # use kiln_train::SavedModel;
    /// # fn example(model: SavedModel, graph: Csc) -> kiln_train::Result<()> {
    /// // A model of 4 relations reads no edge of type 4.
    /// model.check_edge_types(|| graph.n_edge_types())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model reads edge types and there are none, or types that are
    /// not below its number of relations.
    pub fn check_edge_types(&self, n_edge_types: impl FnOnce() -> Option<usize>) -> Result<()> {
        let Some(n_relations) = self.opened.n_relations else { return Ok(()) };
        match n_edge_types() {
            None => Err(ModelError::Edges(ModelEdgesError::NoEdgeTypes { n_relations }).into()),
            Some(n_edge_types) if n_relations < n_edge_types => {
                Err(ModelError::Edges(ModelEdgesError::UnknownEdgeTypes { n_edge_types, n_relations }).into())
            }
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn check_features(&self, features: &dyn FeatureStore, n_nodes: usize) -> Result<()> {
        let expected = self.info().inputs.n_features;
        let got = features.dim();
        if expected != got {
            return Err(ModelError::Nodes(ModelNodesError::FeatureWidth { expected, got }).into());
        }
        match features.n_rows() < n_nodes {
            true => {
                Err(ModelError::Nodes(ModelNodesError::TooFewRows { n_rows: features.n_rows(), n_nodes })
                    .into())
            }
            false => Ok(()),
        }
    }

    /// Returns the outputs of a model of nodes or graphs, `[n_items, width]`, row-major, as scores: those of a regression in the
    /// units of its targets. Those of the encoder of links or edges are rows for its decoder, and not changed.
    pub(crate) fn score_rows(&self, values: Vec<f32>, width: usize) -> OutputRows {
        match self.info().inputs.task {
            ModelTask::Nodes | ModelTask::Graphs => self.restored_rows(values, width),
            ModelTask::Links | ModelTask::Edges => OutputRows::new(values, width),
        }
    }

    /// Returns outputs as scores, as [`SavedModel::score_rows`] does, for any model.
    pub(crate) fn restored_rows(&self, mut values: Vec<f32>, width: usize) -> OutputRows {
        if let Some(scaler) = &self.info().inputs.target_scaler {
            scaler.restore(&mut values, width);
        }
        OutputRows::new(values, width)
    }

    /// Copies a model's output, `[n_items, n_outputs]`, to host memory, as scores. A model may have more outputs than classes.
    pub(crate) fn scores(&self, outputs: Tensor<2>) -> Result<OutputRows> {
        let [_, got] = outputs.dims();
        let expected = match self.info().inputs.task {
            ModelTask::Links | ModelTask::Edges => 1,
            ModelTask::Nodes | ModelTask::Graphs => self.info().inputs.n_outputs,
        };
        match got < expected {
            true => Err(ModelError::OutputWidth { expected, got }.into()),
            false => Ok(self.score_rows(to_vec_f32(outputs), got)),
        }
    }
}

impl fmt::Debug for SavedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Opened { info, path, .. } = &*self.opened;
        f.debug_struct("SavedModel").field("path", path).field("kind", &info.kind).finish_non_exhaustive()
    }
}

pub(crate) fn read(run_dir: &Path, name: &str) -> Result<(PathBuf, Vec<u8>)> {
    let path = run_dir.join(name);
    // The weights may be of any size.
    let most_bytes = if name == MODEL_FILE { MOST_MODEL_BYTES } else { u64::MAX };
    match read_whole(&path, most_bytes) {
        Ok(bytes) => Ok((path, bytes)),
        Err(source) => {
            let suggestion = if is_run(run_dir) { String::new() } else { suggest_runs(run_dir) };
            Err(ModelError::File(ModelFileError::Unreadable { path, source, suggestion }).into())
        }
    }
}
