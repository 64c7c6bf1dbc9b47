use std::path::Path;
use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor};
use bytemuck::cast_vec;
use kiln_graph::{Csc, LocalId, NodeId};
use kiln_sample::{
    BlockSampler, Error, Fanout, Frontier, FrontierSampler, Hop, NeighborSampler, Result, RngKey, Sampled,
    Scratch, Seeds, Uniform,
};

#[cfg(feature = "cube")]
use crate::cube::graph::{Graph, HopArrays, HopError};
#[cfg(feature = "cube")]
use crate::cube::launch::{float_tensor, int_tensor};
#[cfg(feature = "cube")]
use crate::device::block::BlockTensors;
use crate::device::block::{DeviceBlock, upload};
#[cfg(feature = "cube")]
use crate::device::devices::in_loading_queue;
use crate::sampling::graph::{DeviceGraph, Place};
#[cfg(feature = "cube")]
use crate::sampling::plan::HopPlan;
use crate::sampling::plan::{DeviceRule, EdgeWeights};
#[cfg(feature = "cube")]
use crate::sampling::staged::{Staged, StagedError, check_plan};

/// Samples neighbourhoods where the graph is: the same fanouts and keys as a [`NeighborSampler`] give the same blocks, bit
/// for bit in their ids, on any device. (Weights that are scaled are rounded by the device's division.)
///
/// Of a graph in the device's memory nothing comes back to the host, which waits for the device once a hop, for the
/// numbers of edges and of sources; twice where a hop might have more than 4 million edges. Of one that is staged
/// ([`DeviceGraph::staged`]), and where hops are asked for one by one ([`FrontierSampler`]), the picks come back.
///
/// A node's neighbours are drawn one after the other by one unit of the device: fanouts are meant to be some dozens. Of
/// more than 1,024 an error says so; all neighbours are taken at any number.
///
/// Neighbours of a node must ascend for rules that look for self loops, as in every graph that
/// [`kiln_graph::CscBuilder`] made.
///
/// ```
/// use std::sync::Arc;
/// use burn::tensor::Device;
/// use kiln_graph::{CscBuilder, NodeId};
/// use kiln_kernels::{DeviceGraph, DeviceSampler};
/// use kiln_sample::{Fanout, RngKey, Scratch, Seeds};
/// let star = Arc::new(CscBuilder::new(5).build(&[1, 2, 3, 4], &[0, 0, 0, 0])?);
/// let graph = DeviceGraph::new(star, &Device::flex())?;
/// let sampler = DeviceSampler::new(graph, [Fanout::UpTo(2)]);
/// let seeds = Seeds::nodes(vec![NodeId(0)]);
/// let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?;
/// assert_eq!(sampled.blocks[0].n_edges(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DeviceSampler {
    graph: DeviceGraph,
    fanouts: Vec<Fanout>,
    rule: DeviceRule,
    weights: EdgeWeights,
}

/// The blocks of one batch, on a device.
#[derive(Debug, Clone)]
pub struct DeviceSampled {
    /// One block a layer, input layer first.
    pub blocks: Vec<DeviceBlock>,
    /// For each seed, as given, its row among the last block's destinations.
    pub seed_rows: Vec<LocalId>,
    /// Global ids of the nodes whose features the blocks start from, as u32: the first block's sources, or the distinct
    /// seeds where there is no layer.
    pub input_nodes: Tensor<1, Int>,
}

impl DeviceSampler {
    /// A sampler without replacement: a destination with no more neighbours than its fanout gets all. `fanouts[i]`
    /// belongs to layer `i`, input layer first.
    pub fn new(graph: DeviceGraph, fanouts: impl Into<Vec<Fanout>>) -> Self {
        Self::with_rule(graph, fanouts, Uniform)
    }

    /// A sampler by one of `kiln_sample`'s rules, such as [`UniformWithLoop`](kiln_sample::UniformWithLoop).
    pub fn with_rule(
        graph: DeviceGraph,
        fanouts: impl Into<Vec<Fanout>>,
        rule: impl Into<DeviceRule>,
    ) -> Self {
        Self { graph, fanouts: fanouts.into(), rule: rule.into(), weights: EdgeWeights::None }
    }

    /// The same sampler, whose blocks carry the graph's edge weights.
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn carry_weights(self) -> Result<Self> {
        self.with_edge_weights(EdgeWeights::Stored)
    }

    /// The same sampler, whose blocks carry weights as by [`NeighborSampler::estimate_sums`].
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn estimate_sums(self) -> Result<Self> {
        self.with_edge_weights(EdgeWeights::Scaled)
    }

    fn with_edge_weights(self, weights: EdgeWeights) -> Result<Self> {
        if self.graph.has_weights() { Ok(Self { weights, ..self }) } else { Err(Error::NoWeights) }
    }

    /// Number of layers, one block each.
    pub fn n_layers(&self) -> usize {
        self.fanouts.len()
    }

    /// The graph.
    pub fn graph(&self) -> &DeviceGraph {
        &self.graph
    }

    /// Samples one block a layer for `seeds`, drawing from `key` only, which is the step's. `scratch` is used where the
    /// host puts blocks together: on the processor, and of a graph that is staged.
    ///
    /// # Errors
    /// As [`BlockSampler::sample_blocks`]; on other devices than the processor also [`Error::FanoutTooLarge`], and of a
    /// graph that is staged an [`UploadError`](crate::UploadError) as [`Error::Elsewhere`].
    ///
    /// # Panics
    /// When the device fails.
    pub fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<DeviceSampled> {
        #[cfg(feature = "cube")]
        if let Place::Cube(graph) = &self.graph.place {
            return self.on_device(graph, seeds, key);
        }
        self.through_host(seeds, key, scratch)
    }

    /// Blocks that are put together by the host.
    fn through_host(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<DeviceSampled> {
        let Sampled { blocks, seed_rows } = BlockSampler::sample_blocks(self, seeds, key, scratch)?;
        let device = &self.graph.device;
        let blocks: Vec<_> = blocks.into_iter().map(|block| DeviceBlock::new(block, device)).collect();
        let input_nodes = match blocks.first() {
            Some(block) => block.src_nodes().clone(),
            None => upload(cast_vec::<_, u32>(seeds.distinct(&seed_rows)), DType::U32, device),
        };
        Ok(DeviceSampled { blocks, seed_rows, input_nodes })
    }

    #[cfg(feature = "cube")]
    fn on_device(&self, graph: &Graph, seeds: &Seeds, key: RngKey) -> Result<DeviceSampled> {
        let (distinct, seed_rows) = number_seeds(seeds, self.graph.n_nodes())?;
        let mut nodes = graph.upload_nodes(&distinct);
        let mut blocks = Vec::with_capacity(self.fanouts.len());
        for layer in (0..self.fanouts.len()).rev() {
            let key = key.fold(kiln_sample::Domain::Layer, layer as u64);
            let plan = self.plan(Hop { layer, key });
            let arrays =
                graph.sample_hop(&Graph::hop_of(nodes), &plan).map_err(|error| of_layer(error, layer))?;
            nodes = arrays.srcs.clone();
            blocks.push(DeviceBlock::of_tensors(tensors(arrays)));
        }
        blocks.reverse();
        Ok(DeviceSampled { blocks, seed_rows, input_nodes: int_tensor(nodes) })
    }

    #[cfg(feature = "cube")]
    fn plan(&self, hop: Hop) -> HopPlan {
        let (fanout, rule, weights) = (self.fanouts[hop.layer], self.rule, self.weights);
        HopPlan { fanout, rule, weights, key: hop.key }
    }

    fn host_sampler(&self, graph: &Arc<Csc>) -> Result<NeighborSampler<DeviceRule>> {
        let sampler = NeighborSampler::with_rule(Arc::clone(graph), self.fanouts.clone(), self.rule);
        match self.weights {
            EdgeWeights::None => Ok(sampler),
            EdgeWeights::Stored => sampler.carry_weights(),
            EdgeWeights::Scaled => sampler.estimate_sums(),
        }
    }
}

/// Hops whose edges come back to the host, where somebody else makes blocks of them, of a graph in parts say. As
/// [`BlockSampler`] it gives the host's blocks.
///
/// The host waits for the device once more than for a block that stays there, and where lists are staged for each of the
/// arrays that are copied. That is done in the queue of [`load_on`](crate::load_on), whatever thread asks.
impl FrontierSampler for DeviceSampler {
    fn n_layers(&self) -> usize {
        self.fanouts.len()
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        match &self.graph.place {
            Place::Host(graph) => graph.indices_path(),
            #[cfg(feature = "cube")]
            Place::Staged(graph, _) => graph.indices_path(),
            #[cfg(feature = "cube")]
            Place::Cube(_) => None,
        }
    }

    fn sample_frontier(
        &self,
        hop: Hop,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        match &self.graph.place {
            Place::Host(graph) => self.host_sampler(graph)?.sample_frontier(hop, dsts, scratch, out),
            #[cfg(feature = "cube")]
            Place::Cube(graph) => {
                let n_nodes = self.graph.n_nodes();
                if let Some(position) = dsts.iter().position(|dst| n_nodes <= dst.index()) {
                    return Err(Error::SeedOutOfRange { node: dsts[position], position, n_nodes });
                }
                let read = in_loading_queue(|| {
                    let nodes = Graph::hop_of(graph.upload_nodes(dsts));
                    graph.read_hop(&nodes, &self.plan(hop), out)
                });
                read.map_err(|error| of_layer(error, hop.layer))
            }
            #[cfg(feature = "cube")]
            Place::Staged(graph, anchor) => {
                let plan = self.plan(hop);
                check_plan(&plan).map_err(|error| of_layer(error, hop.layer))?;
                let staged = Staged::new(graph, dsts, self.weights != EdgeWeights::None)?;
                let read = in_loading_queue(|| staged.read_hop(anchor, &plan, out));
                read.map_err(|error| match error {
                    StagedError::Hop(error) => of_layer(error, hop.layer),
                    StagedError::Upload(error) => Error::Elsewhere(Box::new(error)),
                })
            }
        }
    }
}

#[cfg(feature = "cube")]
fn tensors(arrays: HopArrays) -> BlockTensors {
    BlockTensors {
        indptr: int_tensor(arrays.indptr),
        indices: int_tensor(arrays.indices),
        edge_ids: int_tensor(arrays.edge_ids),
        weights: arrays.weights.map(float_tensor),
        src_nodes: int_tensor(arrays.srcs),
    }
}

#[cfg(feature = "cube")]
fn of_layer(error: HopError, layer: usize) -> Error {
    match error {
        HopError::TooLarge { n_edges } => Error::BlockTooLarge { layer, n_edges },
        HopError::FanoutTooLarge { most } => Error::FanoutTooLarge { layer, most },
    }
}

/// The distinct seeds by first appearance, and each seed's number among them.
#[cfg(feature = "cube")]
fn number_seeds(seeds: &Seeds, n_nodes: usize) -> Result<(Vec<NodeId>, Vec<LocalId>)> {
    let mut numbers = std::collections::HashMap::with_capacity(seeds.len());
    let (mut distinct, mut rows) = (Vec::with_capacity(seeds.len()), Vec::with_capacity(seeds.len()));
    for (position, &node) in seeds.as_nodes().iter().enumerate() {
        if node.index() >= n_nodes {
            return Err(Error::SeedOutOfRange { node, position, n_nodes });
        }
        let row = *numbers.entry(node).or_insert_with(|| {
            distinct.push(node);
            LocalId(distinct.len() as u32 - 1)
        });
        rows.push(row);
    }
    Ok((distinct, rows))
}
