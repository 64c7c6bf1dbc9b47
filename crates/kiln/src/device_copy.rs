use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use kiln_data::Dataset;
use kiln_graph::Csc;
use kiln_kernels::{DeviceFeatures, DeviceSampler, GraphMode};
use kiln_loader::{ItemSampler, Phase};
use kiln_sample::{NeighborSampler, SamplerConfig, Seeds, count_node_accesses};

use crate::{Error, Result};

/// The nodes whose features are cached on a device, where there is no room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CachedNodes {
    /// Those with the most out-edges.
    #[default]
    ByDegree,
    /// Those that the first epoch's batches read most often, which are sampled on the host to find out (GNNLab's
    /// presampling, Yang et al. 2022).
    ByPresampling,
}

/// The copy of a graph and its features that one device reads.
#[derive(Debug, Clone)]
pub struct DeviceCopy {
    /// Samples blocks.
    pub sampler: Arc<DeviceSampler>,
    /// Gathers features.
    pub features: Arc<DeviceFeatures>,
}

impl CachedNodes {
    /// How often batches ask for each node; `items` are the training items of all ranks.
    pub(crate) fn hotness(
        self,
        graph: &Arc<Csc>,
        sampling: &SamplerConfig,
        items: impl FnOnce() -> Result<ItemSampler>,
    ) -> Result<Vec<u32>> {
        match self {
            Self::ByDegree => Ok(graph.out_degrees()),
            Self::ByPresampling => {
                let order = items()?.epoch(Phase::Train { epoch: 0 });
                let steps = (0..order.n_steps()).map(|step| order.step(step));
                let batches = steps.map(|batch| (Seeds::nodes(batch.seeds), batch.key));
                let sampler = NeighborSampler::with_config(graph.clone(), sampling.clone())?;
                Ok(count_node_accesses(&sampler, graph.n_nodes(), batches)?)
            }
        }
    }
}

impl DeviceCopy {
    /// Copies to a device what it samples and gathers from: of the features all, or so many bytes of the hottest nodes'.
    pub(crate) fn new(
        device: &Device,
        mode: GraphMode,
        data: &Dataset,
        graph: &Arc<Csc>,
        sampling: &SamplerConfig,
        hottest: Option<(u64, Arc<Vec<u32>>)>,
    ) -> Result<Self> {
        let on_device = mode.upload(graph.clone(), device)?.ok_or(Error::CacheNeedsDevice)?;
        let sampler = Arc::new(DeviceSampler::with_config(on_device, sampling.clone())?);
        let source = data.features.clone();
        let features = match hottest {
            None => DeviceFeatures::new(source, device)?,
            Some((n_bytes, hotness)) => DeviceFeatures::hottest(source, &hotness, n_bytes, device)?,
        };
        Ok(Self { sampler, features: Arc::new(features) })
    }
}

/// The copies of one description of batches, by device.
#[derive(Clone, Default)]
pub(crate) struct DeviceCopies(Arc<Mutex<Copies>>);

#[derive(Default)]
struct Copies {
    all: Vec<(Device, DeviceCopy)>,
    /// Counted once for all devices.
    hotness: Option<Arc<Vec<u32>>>,
}

impl DeviceCopies {
    /// The copy on a device, which the first rank that computes there makes while the others wait. `make` finds the hotness
    /// of the nodes there, once some rank has counted it.
    pub(crate) fn get_or_make(
        &self,
        device: &Device,
        make: impl FnOnce(&mut Option<Arc<Vec<u32>>>) -> Result<DeviceCopy>,
    ) -> Result<DeviceCopy> {
        let mut copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, copy)) = copies.all.iter().find(|(place, _)| place == device) {
            return Ok(copy.clone());
        }
        let copy = make(&mut copies.hotness)?;
        copies.all.push((device.clone(), copy.clone()));
        Ok(copy)
    }

    pub(crate) fn all(&self) -> Vec<DeviceCopy> {
        let copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copies.all.iter().map(|(_, copy)| copy.clone()).collect()
    }
}
