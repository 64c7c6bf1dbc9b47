use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Tensor};
use kiln_feature::{DenseFeatures, EdgeColumnStores, EdgeFeatureStore, FeatureStore};
use kiln_graph::{Block, NodeId};
use kiln_kernels::{BlockSize, gather_features, ops};
use kiln_loader::{BatchError, EdgeRows, FeatureStores};
use kiln_nn::{BlockModel, ForwardContext, InputEncoder, LayerSize, Mode, TypeOrder};
use kiln_sample::{EdgeWeights, Fanout, RngKey, SamplerConfig, Scratch, Seeds};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::error::{Error, ExactError, InputError, Result, TrainerError};
use crate::evaluate::inference_graph::InferenceGraph;
use crate::evaluate::layer_range::{DEFAULT_RANGE_BYTES, RangeCost, Ranges};
use crate::evaluate::spill::Activations;
use crate::step::batch::input_rows::{GatheredRows, InputRows};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::embedding::embeddings::learned_rows;
use crate::step::memory::{MemoryUse, PeakMemory};
use crate::step::task::node::blocks_to_device;

/// Exact outputs of a model for every node of a graph. Each layer is computed for all nodes and all their
/// in-neighbours, in ranges of nodes, before the next layer starts. Each node's hidden row is computed once; batches of
/// whole neighbourhoods would compute it again in every batch that contains the node. (Hamilton, Ying and Leskovec
/// 2017, algorithm 1, is this loop for all nodes at once.)
///
/// Memory: the activations of two layers (see [`Spill`] to move them to files), the tensors of one range, and 8 bytes
/// per node for the sampler. The graph and the features belong to the caller and are not counted.
///
/// On the CPU, outputs are bit-identical for any number of threads, any [`Spill`] and any [`LayerWiseConfig::range_bytes`]. On
/// other devices, another size of ranges changes them by rounding at most, because a matrix product may sum in another order
/// for another number of rows.
#[derive(Debug)]
pub struct LayerWiseInference {
    graph: InferenceGraph,
    /// The configuration of samplers.
    sampling: SamplerConfig,
    /// The fanouts of each relation in each layer, `[n_layers][n_relations]`, or empty.
    fanouts: Vec<Vec<Fanout>>,
    /// The columns of the edges that the layers read, by name.
    edge_columns: EdgeColumnStores,
    config: LayerWiseConfig,
    peak: Mutex<PeakMemory>,
}

/// The memory limits of a [`LayerWiseInference`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerWiseConfig {
    /// The bytes that one range of nodes may need for its edges, its sources' rows and the layer's intermediate
    /// tensors, estimated for the layers of `kiln_nn`. A single node that needs more forms its own range. A memory
    /// limit in `spill` may reduce it.
    pub range_bytes: u64,
    /// The memory limit above which activations are written to files; `None` keeps them in memory.
    pub spill: Option<Spill>,
}

/// The memory limit of a [`LayerWiseInference`], and the folder for activations that exceed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spill {
    /// The limit on anonymous memory, in bytes. It covers the activations of two layers, the tensors of one range, and
    /// 8 bytes per node. If a layer's output would exceed the limit, the output is written to a file and mapped.
    pub memory_bytes: u64,
    /// The folder for the files. A file is unlinked right after it is created, so the system frees its disk space when
    /// the mapping is dropped or the process ends.
    pub folder: PathBuf,
}

/// The rows that predictions return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedRows {
    /// The outputs of the last layer.
    Outputs,
    /// The inputs of the last layer.
    Embeddings,
    /// Both.
    Both,
}

impl WantedRows {
    pub(crate) fn has_outputs(self) -> bool {
        self != Self::Embeddings
    }

    pub(crate) fn has_embeddings(self) -> bool {
        self != Self::Outputs
    }
}

/// The rows of an inference, for every node; those that are not wanted are `None`.
#[derive(Debug)]
pub(crate) struct LayerWiseRows {
    /// The outputs of the last layer.
    pub(crate) outputs: Option<DenseFeatures>,
    /// The inputs of the last layer; also `None` for a model of one layer, whose inputs are the features.
    pub(crate) embeddings: Option<DenseFeatures>,
}

impl LayerWiseConfig {
    /// Returns the configuration that keeps activations within a memory limit, with files in the system's folder for
    /// temporary files; `None` is the default configuration.
    pub fn within(memory_bytes: Option<u64>) -> Self {
        let config = Self::default();
        match memory_bytes {
            None => config,
            Some(memory_bytes) => Self {
                range_bytes: config.range_bytes.min(memory_bytes / 8),
                spill: Some(Spill { memory_bytes, folder: std::env::temp_dir() }),
            },
        }
    }
}

impl Default for LayerWiseConfig {
    /// Returns the configuration with ranges of at most 256 MiB and all activations in memory.
    fn default() -> Self {
        Self { range_bytes: DEFAULT_RANGE_BYTES, spill: None }
    }
}

impl LayerWiseInference {
    /// Prepares inference over all in-neighbours of a graph: an `Arc<Csc>` of one type of nodes, or the `Arc<Relations>` of a
    /// heterogeneous graph. Blocks carry no edge weights, types and other columns; see [`LayerWiseInference::carry_weights`],
    /// [`LayerWiseInference::carry_edge_types`] and [`LayerWiseInference::carry_edge_column`]. Those of a heterogeneous graph
    /// carry the positions of the relations as types.
    ///
    /// # Errors
    /// Returns [`ExactError::MemoryTooSmall`] if the memory limit is below the sampler's 8 bytes per node.
    pub fn new(graph: impl Into<InferenceGraph>, mut config: LayerWiseConfig) -> Result<Self> {
        let graph = graph.into();
        if let Some(Spill { memory_bytes, .. }) = config.spill {
            let needed_bytes = sampler_bytes(&graph);
            let left = memory_bytes.checked_sub(needed_bytes);
            let left = left.ok_or(Error::Exact(ExactError::MemoryTooSmall { memory_bytes, needed_bytes }))?;
            config.range_bytes = config.range_bytes.min(left);
        }
        Ok(Self {
            sampling: graph.sampling(),
            fanouts: Vec::new(),
            graph,
            edge_columns: EdgeColumnStores::default(),
            config,
            peak: Mutex::default(),
        })
    }

    /// Leaves out the relations of a heterogeneous graph whose fanout in a layer is 0, `[n_layers][n_relations]`, as samplers with
    /// these fanouts do. All neighbours of the other relations are read. A graph of one type is read as a whole.
    #[must_use]
    pub fn relation_fanouts(self, fanouts: Vec<Vec<Fanout>>) -> Self {
        Self { fanouts, ..self }
    }

    /// Passes the graph's edge weights to the layers with each block, for models that use them.
    ///
    /// # Errors
    /// Returns [`Error::Sample`] if the graph has no weights.
    pub fn carry_weights(self) -> Result<Self> {
        let sampling = self.sampling.clone().with_weights(EdgeWeights::Stored);
        self.with_sampling(sampling)
    }

    /// Passes the graph's edge types to the layers with each block, for models that use them.
    ///
    /// # Errors
    /// Returns [`Error::Sample`] if the graph has no edge types.
    pub fn carry_edge_types(self) -> Result<Self> {
        let sampling = self.sampling.clone().with_edge_types();
        self.with_sampling(sampling)
    }

    /// Passes a column of edges, such as their features, to the layers with each block, for models that read it.
    ///
    /// # Errors
    /// Returns [`InputError::EdgeFeatureRows`] if there is not one row per edge of the graph.
    pub fn carry_edge_column(
        mut self,
        name: impl Into<Arc<str>>,
        rows: impl Into<Arc<dyn EdgeFeatureStore>>,
    ) -> Result<Self> {
        let rows = rows.into();
        check_edge_features(&*rows, &self.graph)?;
        self.edge_columns.set(name, rows);
        Ok(self)
    }

    fn with_sampling(self, sampling: SamplerConfig) -> Result<Self> {
        // Edges without the weights or types are an error here, before the first layer.
        self.graph.sampler(&sampling, None)?;
        Ok(Self { sampling, ..self })
    }

    /// Returns the peak memory of the process, sampled after each range of nodes.
    pub fn peak_memory(&self) -> MemoryUse {
        self.peak.lock().unwrap_or_else(PoisonError::into_inner).get()
    }

    /// Computes the model's outputs for every node, ordered by node id: `[n_nodes, d_out]` of the last layer. Dropout
    /// is off and no gradients are tracked, even if the model has autodiff. The model must be on `device`.
    ///
    /// # Errors
    /// Returns [`InputError::NoNodes`] for an empty graph, [`InputError::TooFewRows`] if there are fewer feature rows
    /// than nodes, [`InputError::LayerWidth`] if a layer's input width differs from the width of its rows,
    /// [`TrainerError::BadSetting`] for a model without layers, [`ExactError::TooLarge`] if a layer's outputs do not
    /// fit in memory, [`ExactError::TooManyEdges`] if a node has more edges than a block can hold,
    /// [`Error::NotLayerWise`] for a model that returns no [`BlockModel::layer_size`], [`crate::RunError::Io`] with the
    /// path if activations cannot be written, and the errors of the graph and the features.
    ///
    /// # Panics
    /// Panics if a layer returns another shape than it declares.
    pub fn outputs<M: BlockModel>(
        &self,
        model: &M,
        features: &dyn FeatureStore,
        device: &Device,
    ) -> Result<DenseFeatures> {
        let rows = self.compute(model, InferenceInput::OneType(features), WantedRows::Outputs, device)?;
        Ok(rows.outputs.expect("the outputs should have been computed"))
    }

    /// Computes the model's outputs for every node of a heterogeneous graph, as [`LayerWiseInference::outputs`] does. `tables`
    /// are the trained rows of each type without features, in the order of the types; a node that was in no step has the mean
    /// row ([`NodeEmbedding::learned_rows`]). The rows that [`BlockModel::input`] computes are one more layer: they are
    /// computed once for each node, and kept like activations.
    ///
    /// # Errors
    /// Returns the errors of [`LayerWiseInference::outputs`], [`EmbeddingError::OtherTypes`] for a model of types with other
    /// feature columns, and [`EmbeddingError::Lists`] unless there is a table for each type without features.
    ///
    /// [`EmbeddingError::OtherTypes`]: crate::EmbeddingError::OtherTypes
    /// [`EmbeddingError::Lists`]: crate::EmbeddingError::Lists
    pub fn outputs_by_type<M: BlockModel>(
        &self,
        model: &M,
        features: &FeatureStores,
        tables: &[Arc<NodeEmbedding>],
        device: &Device,
    ) -> Result<DenseFeatures> {
        let embedded = |nodes: &mut [Vec<NodeId>]| learned_rows(tables, nodes, device);
        let input = InferenceInput::new(features, &embedded);
        let rows = self.compute(model, input, WantedRows::Outputs, device)?;
        Ok(rows.outputs.expect("the outputs should have been computed"))
    }

    /// Computes the wanted rows for every node, as [`LayerWiseInference::outputs`] does.
    pub(crate) fn compute<M: BlockModel>(
        &self,
        model: &M,
        input: InferenceInput<'_>,
        wanted: WantedRows,
        device: &Device,
    ) -> Result<LayerWiseRows> {
        self.check(model, input)?;
        let run = Run {
            inference: self,
            model: model.valid(),
            device: device.clone().inner(),
            n_layers: model.n_layers() - usize::from(!wanted.has_outputs()),
            n_encoded: usize::from(matches!(input, InferenceInput::ByType { .. })),
        };
        let mut scratch = Scratch::default();
        let last = model.n_layers() - 1;
        let mut hidden = match input {
            InferenceInput::OneType(_) => None,
            InferenceInput::ByType { features, embedded } => Some(run.encode(features, embedded)?),
        };
        for layer in 0..last {
            hidden = Some(run.layer_on(layer, input, hidden.as_ref(), &mut scratch)?);
        }
        let outputs = match wanted.has_outputs() {
            true => Some(run.layer_on(last, input, hidden.as_ref(), &mut scratch)?),
            false => None,
        };
        Ok(LayerWiseRows { outputs, embeddings: hidden.filter(|_| wanted.has_embeddings()) })
    }

    fn check<M: BlockModel>(&self, model: &M, input: InferenceInput<'_>) -> Result<()> {
        let n_nodes = self.graph.n_nodes();
        if n_nodes == 0 {
            return Err(Error::Input(InputError::NoNodes));
        }
        if model.n_layers() == 0 {
            return Err(Error::Trainer(TrainerError::BadSetting {
                what: "the number of layers",
                expected: "at least 1",
                got: 0.0,
            }));
        }
        let mut width = match input {
            InferenceInput::OneType(features) if features.n_rows() < n_nodes => {
                return Err(Error::Input(InputError::TooFewRows { n_rows: features.n_rows(), n_nodes }));
            }
            InferenceInput::OneType(features) => features.dim(),
            InferenceInput::ByType { features, .. } => encoded_width(model, features)?,
        };
        for layer in 0..model.n_layers() {
            let LayerSize { widths: [d_in, d_out], .. } = size_of(model, layer)?;
            if d_in != width {
                return Err(Error::Input(InputError::LayerWidth { layer, expected: d_in, got: width }));
            }
            width = d_out;
        }
        Ok(())
    }

    /// Returns the bytes that a layer needs in addition to its activations, for one range and for the sampler's table.
    fn fixed_bytes(&self) -> u64 {
        self.config.range_bytes.saturating_add(sampler_bytes(&self.graph))
    }

    /// Returns the spill folder if a layer's output must be written to a file. `held_bytes` is the anonymous memory of
    /// the layer's input.
    fn spill_folder(&self, held_bytes: u64, output_bytes: u64) -> Option<&PathBuf> {
        let needed_bytes = self.fixed_bytes().saturating_add(held_bytes).saturating_add(output_bytes);
        let spill = self.config.spill.as_ref()?;
        (spill.memory_bytes < needed_bytes).then_some(&spill.folder)
    }
}

/// Checks that there is one row of features per edge.
pub(crate) fn check_edge_features(features: &dyn EdgeFeatureStore, graph: &InferenceGraph) -> Result<()> {
    let n_rows = features.n_edges();
    let n_edges = graph.n_edges();
    match n_rows == n_edges {
        true => Ok(()),
        false => Err(Error::Input(InputError::EdgeFeatureRows { n_rows, n_edges })),
    }
}

/// Returns the size of a layer.
///
/// # Errors
/// Returns [`Error::NotLayerWise`] if the model does not know it.
pub(crate) fn size_of<M: BlockModel>(model: &M, layer: usize) -> Result<LayerSize> {
    model.layer_size(layer).ok_or(Error::NotLayerWise)
}

/// Returns the size of the sampler's table: 8 bytes per node.
fn sampler_bytes(graph: &InferenceGraph) -> u64 {
    8 * graph.n_nodes() as u64
}

/// The rows of nodes that the first layer of an inference reads.
#[derive(Clone, Copy)]
pub(crate) enum InferenceInput<'a> {
    /// Features of one type of nodes, which the model reads as they are.
    OneType(&'a dyn FeatureStore),
    /// Features and trained rows by type, from which the model computes its input.
    ByType { features: &'a FeatureStores, embedded: &'a EmbeddedRows<'a> },
}

/// Returns the trained rows of nodes, `[n, width]` for each type without features. Nodes are numbered within their type.
pub(crate) type EmbeddedRows<'a> = dyn Fn(&mut [Vec<NodeId>]) -> Result<Vec<Tensor<2>>> + Sync + 'a;

impl<'a> InferenceInput<'a> {
    /// Returns the input of these features. Those of only one type need no encoder.
    pub(crate) fn new(features: &'a FeatureStores, embedded: &'a EmbeddedRows<'a>) -> Self {
        match features.only_store() {
            Some(store) => Self::OneType(&**store),
            None => Self::ByType { features, embedded },
        }
    }
}

/// Returns the width of the rows that the encoder of a model computes from these features.
///
/// # Errors
/// Returns [`EmbeddingError::OtherTypes`] if it reads other types.
fn encoded_width<M: BlockModel>(model: &M, features: &FeatureStores) -> Result<usize> {
    let got = features.widths();
    match model.input_encoder() {
        Some(encoder) if encoder.widths() == got => Ok(encoder.d_out()),
        encoder => {
            let expected = encoder.map(InputEncoder::widths).unwrap_or_default();
            Err(EmbeddingError::OtherTypes { expected, got }.into())
        }
    }
}

/// One inference over all layers; the model is without autodiff.
struct Run<'a, M> {
    inference: &'a LayerWiseInference,
    model: M,
    device: Device,
    /// The number of layers that are computed.
    n_layers: usize,
    /// 1 if the rows that the first layer reads are computed like those of a layer.
    n_encoded: usize,
}

/// Returns the error of rows that could not be gathered, which belong to no batch.
fn error_of_rows(source: BatchError) -> Error {
    match source {
        BatchError::Feature(source) => source.into(),
        source => kiln_loader::Error::Batch { step: 0, source }.into(),
    }
}

/// Returns the context of an inference. Any key works: all neighbours are taken, and evaluation has no dropout.
fn context() -> ForwardContext {
    ForwardContext { key: RngKey::new(0), mode: Mode::Eval }
}

impl<M: BlockModel> Run<'_, M> {
    /// Computes the rows that the first layer reads for all nodes, `[n_nodes, d_0]`, in ranges of nodes.
    fn encode(&self, features: &FeatureStores, embedded: &EmbeddedRows<'_>) -> Result<DenseFeatures> {
        let n_nodes = self.inference.graph.n_nodes();
        let width = encoded_width(&self.model, features)?;
        let mut output = self.activations(n_nodes, width, 0)?;
        let widest = features.widths().into_iter().flatten().fold(width, usize::max);
        // A node has a row as stored and as f32, its encoded row twice, and a position.
        let node_bytes = 4 * 4 * widest as u64 + 16;
        let n_at_once = (self.inference.config.range_bytes / node_bytes).clamp(1, 1 << 20) as usize;
        let nodes: Vec<u32> = (0..n_nodes as u32).step_by(n_at_once).collect();
        let progress = Progress::start("encoding nodes", ProgressUnit::Nodes, n_nodes as u64);
        for start in nodes {
            let end = n_nodes.min(start as usize + n_at_once) as u32;
            let nodes: Vec<NodeId> = (start..end).map(NodeId).collect();
            let gather =
                |store: &dyn FeatureStore, nodes: &[NodeId]| gather_features(store, nodes, &self.device);
            let rows = features.gather_with(&nodes, gather).map_err(error_of_rows)?;
            let mut rows = InputRows::Gathered(GatheredRows::new(rows, nodes.len(), &self.device));
            let embedded = embedded(rows.embedded_mut())?;
            let x = ops::widen(rows.of_model(&self.model, &embedded, &context()));
            output.append(&kiln_kernels::to_vec_f32(x))?;
            self.look_at_memory();
            progress.advance(u64::from(end - start));
        }
        output.finish(width)
    }

    /// Returns room for the rows of all nodes: in memory, or in a file if they would exceed the limit. `held_bytes` is the
    /// anonymous memory of the rows that they are computed from.
    fn activations(&self, n_nodes: usize, width: usize, held_bytes: u64) -> Result<Activations> {
        let output_bytes = (n_nodes as u64).saturating_mul(width as u64).saturating_mul(4);
        match self.inference.spill_folder(held_bytes, output_bytes) {
            None => Activations::in_memory(n_nodes, width),
            Some(folder) => Activations::in_file(folder),
        }
    }

    fn look_at_memory(&self) {
        self.inference.peak.lock().unwrap_or_else(PoisonError::into_inner).look();
    }

    /// Computes one layer for all nodes from the previous layer's outputs or encoded rows, or from the features of one type of
    /// nodes if it is the first.
    fn layer_on(
        &self,
        layer: usize,
        input: InferenceInput<'_>,
        hidden: Option<&DenseFeatures>,
        scratch: &mut Scratch,
    ) -> Result<DenseFeatures> {
        match (hidden, input) {
            (Some(rows), _) => self.layer(layer, rows, rows.rows().owned_bytes() as u64, scratch),
            (None, InferenceInput::OneType(features)) => self.layer(layer, features, 0, scratch),
            (None, InferenceInput::ByType { .. }) => Err(Error::NotLayerWise),
        }
    }

    /// Computes one layer for all nodes. `source` contains the layer's inputs: the features, or the outputs of the
    /// previous layer. `held_bytes` is the anonymous memory of these outputs; 0 for the features.
    fn layer(
        &self,
        layer: usize,
        source: &dyn FeatureStore,
        held_bytes: u64,
        scratch: &mut Scratch,
    ) -> Result<DenseFeatures> {
        let graph = &self.inference.graph;
        let LayerSize { widths: [d_in, d_out], memory } = size_of(&self.model, layer)?;
        let n_nodes = graph.n_nodes();
        let mut output = self.activations(n_nodes, d_out, held_bytes)?;
        let Self { inference, .. } = self;
        let cost = RangeCost::new(d_in, d_out, source.dtype(), &inference.sampling)
            .with_edge_columns(inference.edge_columns.iter().map(|(_, rows)| &**rows))
            .with_layer(graph.memory())
            .with_layer(memory);
        let size = cost.nominal_size(graph);
        let fanouts = inference.fanouts.get(layer).map(|of_relations| &of_relations[..]);
        let sampler = graph.sampler(&inference.sampling, fanouts)?;
        let name = format_args!("exact outputs, layer {} of {}", layer + 1, self.n_layers);
        let progress = Progress::start(name, ProgressUnit::Nodes, n_nodes as u64);
        for nodes in Ranges::new(graph, cost, self.inference.config.range_bytes) {
            let seeds = Seeds::nodes(nodes?.map(NodeId).collect());
            let blocks = sampler.sample_blocks(&seeds, context().key, scratch)?.blocks;
            let rows = self.range(layer, source, blocks, size)?;
            output.append(&rows)?;
            self.look_at_memory();
            progress.advance((rows.len() / d_out) as u64);
        }
        output.finish(d_out)
    }

    /// Computes one layer for the destinations of one block. `size` stands for the size of the block.
    fn range(
        &self,
        layer: usize,
        source: &dyn FeatureStore,
        blocks: Vec<Block>,
        size: BlockSize,
    ) -> Result<Vec<f32>> {
        let n_dst = blocks[0].n_dst();
        let groups = self.inference.graph.groups(&blocks[0], self.model.input_format())?;
        let x = gather_features(source, blocks[0].srcs(), &self.device)?;
        let mut edge_columns = Vec::new();
        for (name, rows) in self.inference.edge_columns.iter() {
            edge_columns.push(EdgeRows::gather(name, &**rows, &blocks)?);
        }
        let mut block = blocks_to_device(blocks, edge_columns, Some(size), &self.device).remove(0);
        if let Some(groups) = groups {
            block = block.with_relation_groups(groups, &self.device);
        }
        // Encoded rows and the outputs of earlier layers are f32.
        let x = match (layer, self.n_encoded) {
            (0, 0) => self.model.input(vec![x], &TypeOrder::of_one_type(block.n_src())),
            _ => x,
        };
        let outputs = self.model.layer(layer, &block, x, &context());
        let LayerSize { widths: [_, d_out], .. } = size_of(&self.model, layer)?;
        assert_eq!(outputs.dims(), [n_dst, d_out], "layer {layer} returned another shape than it declares");
        Ok(kiln_kernels::to_vec_f32(outputs))
    }
}
