//! Where graph and features are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::ensure;
use burn::tensor::Device;
use clap::{Args, ValueEnum};
use kiln_data::Dataset;
use kiln_graph::Csc;
use kiln_kernels::{CacheStats, DeviceFeatures, DeviceGraph, DeviceSampler};
use kiln_loader::{ItemSampler, Phase};
use kiln_sample::{FrontierSampler, count_node_accesses};

use crate::run::RunArgs;
use crate::say;

/// Where neighbours are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphMode {
    /// On the processor, from the graph as it is.
    Cpu,
    /// On the device that computes, from a copy in its memory.
    Device,
    /// On the device that computes, from the host's memory: of each hop, the lists that it needs are copied.
    ZeroCopy,
}

impl GraphMode {
    /// Brings a graph where it is sampled; nothing, where the processor samples.
    ///
    /// # Errors
    /// When the device has no room, or cannot sample.
    pub(crate) fn bring(self, graph: Arc<Csc>, device: &Device) -> anyhow::Result<Option<DeviceGraph>> {
        Ok(match self {
            Self::Cpu => None,
            Self::Device => Some(DeviceGraph::new(graph, device)?),
            Self::ZeroCopy => Some(DeviceGraph::host_staged(graph, device)?),
        })
    }

    /// Where the edges of a graph are that has been brought.
    pub(crate) fn tell(self, n_edges: u64) -> String {
        let place = if self == Self::ZeroCopy { "stay with the host" } else { "are on the device" };
        format!("{n_edges} edges {place}")
    }
}

/// Which features a device had better hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HotBy {
    /// Those of nodes that are many nodes' neighbours.
    Degree,
    /// Those that the first epoch's batches read most often, which are sampled on the processor to find out.
    Presampling,
}

/// Where graph and features are read.
#[derive(Debug, Args)]
pub struct PlacementArgs {
    /// Where neighbours are sampled, and features gathered for them: on the processor; on the device, from copies in its memory; or there with the graph left to the host, the lists of each hop being copied. The batches are the same.
    #[arg(long, value_enum, default_value = "cpu")]
    graph_mode: GraphMode,
    /// Bytes of features that the device holds, as in 2GiB, the hottest ones first; the others are sent batch by batch. All, if not given.
    #[arg(long, value_parser = kiln_data::convert::parse_bytes)]
    feature_cache: Option<u64>,
    /// Which features count as hot: by degree, if not given.
    #[arg(long, value_enum)]
    hot_by: Option<HotBy>,
}

/// Where a program's batches are made.
#[derive(Debug, Clone)]
pub enum Placement {
    /// By the processor.
    Host,
    /// By the devices of the ranks of this process, each with a copy of its own, which its ranks share; by place.
    Devices(BTreeMap<usize, OnDevice>),
}

/// What makes batches on one device.
#[derive(Debug, Clone)]
pub struct OnDevice {
    /// Samples blocks.
    pub sampler: Arc<DeviceSampler>,
    /// Gives features.
    pub features: Arc<DeviceFeatures>,
}

impl PlacementArgs {
    /// Copies to each device of this process's ranks, once, what it was asked to hold, and says so. `sampler` is the
    /// processor's, and `to_device` makes a device's from the graph there.
    ///
    /// # Errors
    /// When flags contradict each other, or a device has no room.
    pub fn place(
        &self,
        run: &RunArgs,
        data: &Dataset,
        graph: Arc<Csc>,
        sampler: &dyn FrontierSampler,
        to_device: impl Fn(DeviceGraph) -> kiln_sample::Result<DeviceSampler>,
    ) -> anyhow::Result<Placement> {
        let is_for_cache = self.feature_cache.is_some() || self.hot_by.is_none();
        ensure!(is_for_cache, "--hot-by is for --feature-cache: give both or neither");
        if self.graph_mode == GraphMode::Cpu {
            let needs_device = self.feature_cache.is_some();
            ensure!(
                !needs_device,
                "--feature-cache is for --graph-mode device or zero-copy: give both or neither"
            );
            return Ok(Placement::Host);
        }
        let hotness = match self.feature_cache {
            Some(n_bytes) => Some((n_bytes, self.hotness(run, data, &graph, sampler)?)),
            None => None,
        };
        let mut on_devices = BTreeMap::new();
        for (place, device) in run.own_devices() {
            let Some(on_device) = self.graph_mode.bring(graph.clone(), &device)? else { continue };
            let features = match &hotness {
                None => DeviceFeatures::new(data.features.clone(), &device)?,
                Some((n_bytes, hotness)) => {
                    DeviceFeatures::hottest(data.features.clone(), hotness, *n_bytes, &device)?
                }
            };
            let (n_cached, n_rows) = (features.n_cached(), data.features.n_rows());
            if on_devices.is_empty() {
                let edges = self.graph_mode.tell(on_device.n_edges());
                say(format_args!("{edges}; {n_cached} of {n_rows} feature rows are on the device"));
            }
            let sampler = Arc::new(to_device(on_device)?);
            on_devices.insert(place, OnDevice { sampler, features: Arc::new(features) });
        }
        Ok(Placement::Devices(on_devices))
    }

    fn hotness(
        &self,
        run: &RunArgs,
        data: &Dataset,
        graph: &Csc,
        sampler: &dyn FrontierSampler,
    ) -> anyhow::Result<Vec<u32>> {
        if self.hot_by != Some(HotBy::Presampling) {
            return Ok(graph.out_degrees());
        }
        let items = ItemSampler::new(&data.split.train[..], run.items_of_all_ranks())?;
        let order = items.epoch(Phase::Train { epoch: 0 });
        let batches = (0..order.n_steps()).map(|step| order.step(step)).map(|batch| (batch.seeds, batch.key));
        Ok(count_node_accesses(sampler, graph.n_nodes(), batches)?)
    }
}

impl Placement {
    /// Says how often the devices had what was asked for.
    pub fn say_hits(&self) {
        if let Self::Devices(on_devices) = self {
            let hits = on_devices.values().map(|on_device| on_device.features.cache_stats());
            let hits = hits.fold(CacheStats::default(), CacheStats::and);
            say(format_args!("feature hits    {:.1} % of {} rows", 100.0 * hits.hit_rate(), hits.n_rows));
        }
    }
}
