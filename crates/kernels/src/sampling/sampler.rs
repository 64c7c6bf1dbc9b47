use std::path::Path;
use std::sync::Arc;

use kiln_graph::Csc;
#[cfg(feature = "cube")]
use kiln_graph::{LocalId, NodeId};
#[cfg(feature = "cube")]
use kiln_sample::RuleError;
use kiln_sample::{
    Dsts, EdgeWeights, Error, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler, Result, RngKey,
    SampledBlocks, SamplerConfig, Scratch, Seeds, TimeLimits, TimesError,
};

#[cfg(feature = "cube")]
use crate::cube::graph::Graph;
#[cfg(feature = "cube")]
use crate::cube::hop::{HopArrays, HopError};
#[cfg(feature = "cube")]
use crate::cube::launch::{float_tensor, int_tensor};
#[cfg(feature = "cube")]
use crate::device::block::{BlockTensors, DeviceBlock};
#[cfg(feature = "cube")]
use crate::device::devices::in_loading_queue;
use crate::sampling::graph::{DeviceGraph, GraphMemory};
#[cfg(feature = "cube")]
use crate::sampling::rule::needs_host;
use crate::sampling::sample::{DeviceSample, DeviceSampledBlocks};
#[cfg(feature = "cube")]
use crate::sampling::staged::{Staged, StagedError, check_fanout};

/// A neighbour sampler that runs on the device of the graph. On every device, it returns the same blocks as a
/// [`NeighborSampler`] with the same fanouts and keys, with identical ids. ([`EdgeWeights::Unbiased`] depends on the
/// rounding of the device's division.)
///
/// If the graph is in the device's memory, blocks stay there. The host only reads the numbers of edges and sources and
/// waits for the device once per hop, or twice if a hop may have more than 4 million edges. The selected edges are
/// copied to the host if the graph is staged ([`DeviceGraph::host_staged`]), or if hops are sampled one by one
/// ([`FrontierSampler`]).
///
/// One thread of the device draws all neighbours of a node, so fanouts should be at most a few dozen. A fanout above
/// 1,024 is an error, unless all neighbours are taken anyway because no node has more.
///
/// A custom rule that has a version in CubeCL ([`kiln_sample::SamplingRule::device_rule`]) runs on the device. Another one
/// picks on the host, from a graph that is there ([`DeviceGraph::host_staged`]).
///
/// Seeds with times ([`Seeds::with_times`]) are sampled on the device from a graph in its memory, and on the host from one that is
/// there.
///
/// For rules that look for self loops, the neighbours of each node must be in ascending order, as in every graph that
/// [`kiln_graph::CscBuilder`] builds.
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
    config: SamplerConfig,
}

impl DeviceSampler {
    /// Creates a uniform sampler without replacement. A destination with no more neighbours than its fanout gets all of
    /// them. `fanouts[i]` belongs to layer `i`, input layer first.
    pub fn new(graph: DeviceGraph, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self { graph, config: SamplerConfig::new(fanouts) }
    }

    /// Creates a sampler with this configuration.
    ///
    /// # Errors
    /// Returns [`Error::NoWeights`] or [`Error::NoEdgeTypes`] if the configuration requests edge weights or types and
    /// the graph has none, and [`RuleError::OfRelation`](kiln_sample::RuleError::OfRelation) if it has a rule or a window of one
    /// relation. Returns [`RuleError::CustomRule`] for a graph in the memory of a device other than the CPU and a
    /// custom rule without a version for devices ([`kiln_sample::SamplingRule::device_rule`]); for a graph on the host, such
    /// a rule picks there. Returns an [`UploadError`](crate::UploadError) as [`Error::Elsewhere`] if the device cannot allocate
    /// the edge types.
    pub fn with_config(graph: DeviceGraph, config: SamplerConfig) -> Result<Self> {
        config.check_unnamed()?;
        if config.weights != EdgeWeights::None && !graph.has_weights() {
            return Err(Error::NoWeights);
        }
        #[cfg(feature = "cube")]
        if needs_host(&config.rule) && matches!(graph.memory, GraphMemory::Cube(_)) {
            return Err(Error::Rule(RuleError::CustomRule));
        }
        if config.edge_types {
            graph.store_edge_types()?;
        }
        Ok(Self { graph, config })
    }

    /// Returns the graph that is sampled.
    pub fn graph(&self) -> &DeviceGraph {
        &self.graph
    }

    /// Samples one block per layer for `seeds`, as [`DeviceSampler::sample`] does, and moves the blocks to the device.
    ///
    /// # Errors
    /// Returns the errors of [`DeviceSampler::sample`].
    ///
    /// # Panics
    /// Panics if the device fails.
    pub fn sample_blocks(
        &self,
        seeds: &Seeds,
        key: RngKey,
        scratch: &mut Scratch,
    ) -> Result<DeviceSampledBlocks> {
        let sample = self.sample(seeds, key, scratch)?;
        sample.into_blocks(&[]).map_err(|error| Error::Elsewhere(Box::new(error)))
    }

    /// Samples one block per layer for `seeds`. All randomness comes from `key`, the key of the step. `scratch` is used
    /// when the host assembles the blocks: on the CPU, and for a staged graph.
    ///
    /// # Errors
    /// Returns the errors of [`FrontierSampler::sample_blocks`]. On devices other than the CPU, also returns
    /// [`kiln_sample::FanoutsError::FanoutTooLarge`] if a fanout is above the limit (see [`DeviceSampler`]). For a
    /// staged graph, also returns an [`UploadError`](crate::UploadError) as [`Error::Elsewhere`] if the lists of a hop
    /// cannot be copied.
    ///
    /// # Panics
    /// Panics if the device fails.
    pub fn sample(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<DeviceSample> {
        #[cfg(feature = "cube")]
        if let GraphMemory::Cube(graph) = &self.graph.memory {
            return self.on_device(graph, seeds, key);
        }
        let SampledBlocks { blocks, seed_index } = FrontierSampler::sample_blocks(self, seeds, key, scratch)?;
        let distinct = if blocks.is_empty() { seeds.distinct(&seed_index) } else { Vec::new() };
        Ok(DeviceSample::of_host(blocks, seed_index, distinct, self.graph.device.clone()))
    }

    fn sample_on_host(
        &self,
        graph: &Arc<Csc>,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let sampler = NeighborSampler::with_config(Arc::clone(graph), self.config.clone())?;
        sampler.sample_frontier(request, dsts, scratch, out)
    }

    #[cfg(feature = "cube")]
    fn on_device(&self, graph: &Graph, seeds: &Seeds, key: RngKey) -> Result<DeviceSample> {
        self.check_times(seeds.times().is_some())?;
        // Hops of a relation may have no times beside others that have.
        if seeds.times().is_some() && !self.graph.has_times() {
            return Err(Error::Times(TimesError::NoEdgeTimes));
        }
        let NumberedSeeds { nodes: distinct, times, rows } = number_seeds(seeds, self.graph.n_nodes())?;
        let mut nodes = graph.upload_nodes(&distinct);
        let mut time_index = times.as_ref().map(|(_, index)| graph.upload_positions(index));
        let excluded = graph.upload_excluded(seeds.excluded().map(|edges| &**edges));
        let SamplerConfig { fanouts, rule, weights, edge_types, time_limits, .. } = &self.config;
        let mut blocks = Vec::with_capacity(fanouts.len());
        for (layer, &fanout) in fanouts.iter().enumerate().rev() {
            let request = HopRequest::new(key, layer, fanout, *weights);
            let request = HopRequest { edge_types: *edge_types, time_limits: *time_limits, ..request };
            let of_hop = times.as_ref().zip(time_index.take());
            let of_hop = of_hop.map(|((distinct, _), index)| graph.times_of(distinct, index, &request));
            let arrays = graph
                .sample_hop(&Graph::hop_of(nodes, excluded.clone(), of_hop), &request, rule)
                .map_err(|error| of_layer(error, layer))?;
            nodes = arrays.srcs.clone();
            time_index = arrays.src_times.clone();
            blocks.push(DeviceBlock::of_tensors(tensors(arrays)));
        }
        blocks.reverse();
        Ok(DeviceSample::of_device(blocks, rows, int_tensor(nodes)))
    }

    /// Checks that the graph and the rule fit seeds or destinations with or without times.
    #[cfg(feature = "cube")]
    fn check_times(&self, has_times: bool) -> Result<()> {
        match has_times {
            true if self.graph.lacks_time_order() => Err(Error::Times(TimesError::NoOrder)),
            false if self.config.rule.needs_times() => Err(Error::Times(TimesError::NoTimes)),
            _ => Ok(()),
        }
    }
}

/// Samples single hops whose edges are copied to the host, which assembles the blocks, for example for a partitioned
/// graph.
///
/// The host waits for the device once more than for a block that stays there; with staged lists, it also waits for each
/// copied array. Copies and kernels run on the stream of [`run_on_load_stream`](crate::run_on_load_stream), whichever
/// thread calls.
impl FrontierSampler for DeviceSampler {
    fn fanouts(&self) -> &[Fanout] {
        &self.config.fanouts
    }

    fn weights(&self) -> EdgeWeights {
        self.config.weights
    }

    fn has_edge_types(&self) -> bool {
        self.config.edge_types
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn time_limits(&self) -> TimeLimits {
        self.config.time_limits
    }

    fn takes_times(&self) -> bool {
        true
    }

    fn has_edge_times(&self) -> bool {
        self.graph.has_times()
    }

    fn indices_path(&self) -> Option<&Path> {
        match &self.graph.memory {
            GraphMemory::Host(graph) => graph.indices_path(),
            #[cfg(feature = "cube")]
            GraphMemory::Staged(graph, _) => graph.indices_path(),
            #[cfg(feature = "cube")]
            GraphMemory::Cube(_) => None,
        }
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        if self.config.rule.needs_times() && dsts.times().is_none() {
            return Err(Error::Times(TimesError::NoTimes));
        }
        if request.weights != EdgeWeights::None && !self.graph.has_weights() {
            return Err(Error::NoWeights);
        }
        if request.edge_types {
            self.graph.store_edge_types()?;
        }
        match &self.graph.memory {
            GraphMemory::Host(graph) => self.sample_on_host(graph, request, dsts, scratch, out),
            #[cfg(feature = "cube")]
            GraphMemory::Staged(graph, _) if dsts.times().is_some() || needs_host(&self.config.rule) => {
                self.sample_on_host(graph, request, dsts, scratch, out)
            }
            #[cfg(feature = "cube")]
            GraphMemory::Cube(graph) => {
                self.check_times(dsts.times().is_some())?;
                let times = dsts.times();
                let dsts = dsts.nodes();
                let n_nodes = self.graph.n_nodes();
                if let Some(position) = dsts.iter().position(|dst| n_nodes <= dst.index()) {
                    return Err(Error::SeedOutOfRange { node: dsts[position], position, n_nodes });
                }
                let read = in_loading_queue(|| {
                    let excluded = graph.upload_excluded(request.excluded.as_deref());
                    let times = times.map(|times| {
                        let index = graph.upload_positions(times.index());
                        graph.times_of(times.distinct(), index, request)
                    });
                    let nodes = Graph::hop_of(graph.upload_nodes(dsts), excluded, times);
                    graph.read_hop(&nodes, request, &self.config.rule, out)
                });
                read.map_err(|error| of_layer(error, request.layer))
            }
            #[cfg(feature = "cube")]
            GraphMemory::Staged(graph, anchor) => {
                check_fanout(request.fanout).map_err(|error| of_layer(error, request.layer))?;
                let staged = Staged::new(graph, dsts.nodes(), request)?;
                let read = in_loading_queue(|| staged.read_hop(anchor, request, &self.config.rule, out));
                read.map_err(|error| match error {
                    StagedError::Hop(error) => of_layer(error, request.layer),
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
        edge_types: arrays.edge_types.map(int_tensor),
        src_nodes: int_tensor(arrays.srcs),
        most_in_edges: arrays.most_in_edges,
        counts: arrays.counts,
    }
}

#[cfg(feature = "cube")]
fn of_layer(error: HopError, layer: usize) -> Error {
    match error {
        HopError::TooLarge { n_edges } => Error::BlockTooLarge { layer, n_edges },
        HopError::PickOutOfRange { dst } => Error::Rule(RuleError::DevicePickOutOfRange { dst: NodeId(dst) }),
        HopError::FanoutTooLarge { most } => {
            Error::Fanouts(kiln_sample::FanoutsError::FanoutTooLarge { layer, most })
        }
    }
}

/// The seeds of a batch as destinations.
#[cfg(feature = "cube")]
struct NumberedSeeds {
    /// The distinct seeds in the order of their first appearance.
    nodes: Vec<NodeId>,
    /// The distinct times, ascending, and the position of each destination's time among them; `None` without times.
    times: Option<(Vec<i64>, Vec<u32>)>,
    /// The destination of each seed.
    rows: Vec<LocalId>,
}

/// Numbers the seeds in the order of their first appearance: their nodes or, with times, pairs of a node and a time.
#[cfg(feature = "cube")]
fn number_seeds(seeds: &Seeds, n_nodes: usize) -> Result<NumberedSeeds> {
    let mut distinct = seeds.times().map(<[i64]>::to_vec).unwrap_or_default();
    distinct.sort_unstable();
    distinct.dedup();
    let mut numbers = std::collections::HashMap::with_capacity(seeds.len());
    let mut nodes = Vec::with_capacity(seeds.len());
    let mut index = Vec::with_capacity(seeds.len());
    let mut rows = Vec::with_capacity(seeds.len());
    for (position, &node) in seeds.as_nodes().iter().enumerate() {
        if n_nodes <= node.index() {
            return Err(Error::SeedOutOfRange { node, position, n_nodes });
        }
        let time = seeds.times().map_or(0, |times| distinct.partition_point(|time| *time < times[position]));
        let row = *numbers.entry((node, time)).or_insert_with(|| {
            nodes.push(node);
            index.push(time as u32);
            LocalId(nodes.len() as u32 - 1)
        });
        rows.push(row);
    }
    Ok(NumberedSeeds { nodes, times: seeds.times().map(|_| (distinct, index)), rows })
}
