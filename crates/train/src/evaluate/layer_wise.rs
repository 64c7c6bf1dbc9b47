use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::{DenseFeatures, FeatureBuffer, FeatureStore};
use kiln_graph::{Csc, NodeId};
use kiln_kernels::DeviceBlock;
use kiln_nn::{ForwardContext, LayerWiseModel, Mode};
use kiln_sample::{EdgeWeights, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};

use crate::error::{Error, Result};
use crate::evaluate::layer_range::{RangeCost, Ranges};
use crate::evaluate::spill::Activations;
use crate::step::memory::{MemoryUse, PeakMemory};

/// Exact outputs of a model for every node of a graph: each layer over all nodes and all their
/// in-neighbours, one range of nodes after the other, before the next layer. Each node's hidden row is so
/// computed once, where whole neighbourhoods of seeds would compute it again for each batch that meets it.
/// (Hamilton, Ying and Leskovec 2017, algorithm 1, is this loop, written for all nodes at once.)
///
/// It holds the activations of two layers, of which [`Spill`] keeps what is too much in files, what one
/// range needs, and 8 bytes a node for the sampler. The graph and the features are the caller's.
///
/// Outputs depend neither on threads nor on [`Spill`], to the bit. Another budget for ranges changes them
/// by rounding at most: a layer may choose the order of its products by its block's shape, as
/// [`SageConv`](kiln_nn::SageConv) does, and a matrix product may sum in another order for another height.
#[derive(Debug)]
pub struct LayerWiseInference {
    graph: Arc<Csc>,
    sampler: NeighborSampler,
    carries_weights: bool,
    config: LayerWiseConfig,
    peak: Mutex<PeakMemory>,
}

/// What a [`LayerWiseInference`] may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerWiseConfig {
    /// Bytes that one range of nodes may need: its edges, its sources' rows and what a layer makes of them,
    /// counted for the layers in `kiln_nn`. A single node that needs more is a range of its own. Less is
    /// taken where a memory limit leaves less.
    pub range_bytes: u64,
    /// Where activations go that are too large; `None` keeps them in memory.
    pub spill: Option<Spill>,
}

/// When activations go to a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spill {
    /// Bytes of the process's own memory that all of this may hold: two layers' activations, one range, and
    /// 8 bytes a node. A layer whose output would pass it is written to a file and mapped.
    pub memory_bytes: u64,
    /// The folder of the files. They have no name but for a moment: their bytes on disk go with the mapping,
    /// however the process ends.
    pub folder: PathBuf,
}

impl Default for LayerWiseConfig {
    /// Ranges of 256 MiB, everything in memory.
    fn default() -> Self {
        Self { range_bytes: 256 << 20, spill: None }
    }
}

impl LayerWiseInference {
    /// Inference over all in-neighbours of a graph.
    ///
    /// # Errors
    /// [`Error::MemoryTooSmall`] for a limit that leaves nothing for a range.
    pub fn new(graph: Arc<Csc>, mut config: LayerWiseConfig) -> Result<Self> {
        if let Some(Spill { memory_bytes, .. }) = config.spill {
            let needed_bytes = sampler_bytes(&graph);
            let left = memory_bytes.checked_sub(needed_bytes);
            let left = left.ok_or(Error::MemoryTooSmall { memory_bytes, needed_bytes })?;
            config.range_bytes = config.range_bytes.min(left);
        }
        let sampler = NeighborSampler::full(Arc::clone(&graph), 1);
        Ok(Self { graph, sampler, carries_weights: false, config, peak: Mutex::default() })
    }

    /// The same for models that read edge weights: blocks carry the graph's.
    ///
    /// # Errors
    /// [`Error::Sample`] when the graph has none.
    pub fn carry_weights(self) -> Result<Self> {
        let config = SamplerConfig::full(1).with_weights(EdgeWeights::Stored);
        let sampler = NeighborSampler::with_config(Arc::clone(&self.graph), config)?;
        Ok(Self { sampler, carries_weights: true, ..self })
    }

    /// The most memory of the process seen so far, after each range of nodes.
    pub fn peak_memory(&self) -> MemoryUse {
        self.peak.lock().unwrap_or_else(PoisonError::into_inner).get()
    }

    /// The model's outputs for every node, in the order of the ids. Dropout is off and nothing is recorded
    /// for gradients, whether the model has autodiff or not; it must be on `device`.
    ///
    /// # Errors
    /// [`Error::NoNodes`], [`Error::LayerWidth`] when a layer does not fit the rows that it gets,
    /// [`Error::TooFewRows`] for features of fewer nodes, [`Error::TooLarge`], [`Error::TooManyEdges`], [`Error::Io`] with the file when activations cannot be written, and what the
    /// graph and the features say.
    ///
    /// # Panics
    /// When a layer gives another shape than it promises.
    pub fn outputs<M: LayerWiseModel>(
        &self,
        model: &M,
        features: &dyn FeatureStore,
        device: &Device,
    ) -> Result<DenseFeatures> {
        self.check(model, features)?;
        let run = Run { inference: self, model: model.valid(), device: device.clone().inner() };
        let mut scratch = Scratch::default();
        let mut rows = run.layer(0, features, 0, &mut scratch)?;
        for layer in 1..model.n_layers() {
            rows = run.layer(layer, &rows, rows.rows().owned_bytes() as u64, &mut scratch)?;
        }
        Ok(rows)
    }

    fn check<M: LayerWiseModel>(&self, model: &M, features: &dyn FeatureStore) -> Result<()> {
        let (n_nodes, n_rows) = (self.graph.n_nodes(), features.n_rows());
        if n_nodes == 0 {
            return Err(Error::NoNodes);
        }
        if model.n_layers() == 0 {
            return Err(Error::BadSetting { what: "the number of layers", expected: "at least 1", got: 0.0 });
        }
        if n_rows < n_nodes {
            return Err(Error::TooFewRows { n_rows, n_nodes });
        }
        let mut width = features.dim();
        for layer in 0..model.n_layers() {
            let [d_in, d_out] = model.widths(layer);
            if d_in != width {
                return Err(Error::LayerWidth { layer, expected: d_in, got: width });
            }
            width = d_out;
        }
        Ok(())
    }

    /// What a layer needs beside activations: one range, and the sampler's table.
    fn fixed_bytes(&self) -> u64 {
        self.config.range_bytes.saturating_add(sampler_bytes(&self.graph))
    }

    /// The folder, if a layer's output is to go to a file, `held_bytes` being the layer before it.
    fn spill_folder(&self, held_bytes: u64, output_bytes: u64) -> Option<&PathBuf> {
        let needed_bytes = self.fixed_bytes().saturating_add(held_bytes).saturating_add(output_bytes);
        let spill = self.config.spill.as_ref()?;
        (spill.memory_bytes < needed_bytes).then_some(&spill.folder)
    }
}

/// The sampler's table.
fn sampler_bytes(graph: &Csc) -> u64 {
    8 * graph.n_nodes() as u64
}

/// One way through all layers, with a model without autodiff.
struct Run<'a, M> {
    inference: &'a LayerWiseInference,
    model: M,
    device: Device,
}

impl<M: LayerWiseModel> Run<'_, M> {
    /// One layer over all nodes, from the rows of the layer before it, which hold `held_bytes` of memory.
    fn layer(
        &self,
        layer: usize,
        source: &dyn FeatureStore,
        held_bytes: u64,
        scratch: &mut Scratch,
    ) -> Result<DenseFeatures> {
        let graph = &*self.inference.graph;
        let [d_in, d_out] = self.model.widths(layer);
        let n_nodes = graph.n_nodes();
        let output_bytes = (n_nodes as u64).saturating_mul(d_out as u64).saturating_mul(4);
        let mut output = match self.inference.spill_folder(held_bytes, output_bytes) {
            None => Activations::in_memory(n_nodes, d_out)?,
            Some(folder) => Activations::in_file(folder)?,
        };
        let cost = RangeCost::new(d_in, d_out, source.dtype(), self.inference.carries_weights);
        for nodes in Ranges::new(graph, cost, self.inference.config.range_bytes) {
            let rows = self.range(layer, source, nodes?, scratch)?;
            output.append(&rows)?;
        }
        output.finish(d_out)
    }

    /// One layer's outputs for one range of nodes.
    fn range(
        &self,
        layer: usize,
        source: &dyn FeatureStore,
        nodes: Range<u32>,
        scratch: &mut Scratch,
    ) -> Result<Vec<f32>> {
        // No key matters: all neighbours are picked, and nothing is random in evaluation.
        let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
        let n_dst = nodes.len();
        let seeds = Seeds::nodes(nodes.map(NodeId).collect());
        let block = self.inference.sampler.sample_blocks(&seeds, ctx.key, scratch)?.blocks.remove(0);
        let mut rows = FeatureBuffer::empty(source.dtype());
        source.gather(block.srcs(), &mut rows)?;
        let x = TensorData::new(rows.into_f32(), [block.n_src(), source.dim()]);
        let x = Tensor::from_data(x, &self.device);
        let block = DeviceBlock::new(block, &self.device);
        let outputs = self.model.layer(layer, &block, x, &ctx);
        let [_, d_out] = self.model.widths(layer);
        assert_eq!(outputs.dims(), [n_dst, d_out], "the shape of layer {layer}'s outputs");
        let rows = kiln_kernels::to_vec_f32(outputs);
        self.inference.peak.lock().unwrap_or_else(PoisonError::into_inner).look();
        Ok(rows)
    }
}
