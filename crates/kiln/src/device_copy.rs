use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use kiln_feature::{EdgeColumnStores, FeatureStore};
use kiln_graph::Csc;
use kiln_kernels::{DeviceEdgeColumn, DeviceFeatures, DeviceGraph, DeviceSampler, GraphMode};
use kiln_sample::SamplerConfig;

use crate::{Error, Result};

/// The copy of a graph and its features that one device reads.
#[derive(Debug, Clone)]
pub struct DeviceCopy {
    /// The sampler of blocks on the device.
    pub sampler: Arc<DeviceSampler>,
    /// The features on the device.
    pub features: Arc<DeviceFeatures>,
    /// The columns of edges that the loader gathers, which are where the graph is.
    pub edge_columns: Vec<Arc<DeviceEdgeColumn>>,
}

impl DeviceCopy {
    /// Copies the graph to a device, and then the features that `features` returns. The columns of edges are copied with the
    /// graph, or stay on the host with it.
    pub(crate) fn new(
        device: &Device,
        mode: GraphMode,
        graph: &Arc<Csc>,
        features: impl FnOnce() -> Result<Arc<DeviceFeatures>>,
        sampling: &SamplerConfig,
        edge_columns: EdgeColumnStores,
    ) -> Result<Self> {
        let on_device = mode.upload(graph.clone(), device)?.ok_or(Error::CacheNeedsDevice)?;
        let mut columns_on_device = Vec::new();
        for (name, rows) in edge_columns.iter() {
            let rows = rows.as_edge_features().cloned();
            let rows = rows.ok_or(Error::NeedsWholeGraph { what: "edge features on a device" })?;
            columns_on_device.push(Arc::new(DeviceEdgeColumn::new(Arc::clone(name), rows, &on_device)?));
        }
        let sampler = Arc::new(DeviceSampler::with_config(on_device, sampling.clone())?);
        Ok(Self { sampler, features: features()?, edge_columns: columns_on_device })
    }
}

/// Copies the feature rows of all nodes to a device, or those of the hottest nodes up to a number of bytes.
pub(crate) fn copy_features(
    features: &Arc<dyn FeatureStore>,
    hottest: Option<(u64, Arc<Vec<u32>>)>,
    device: &Device,
) -> Result<Arc<DeviceFeatures>> {
    Ok(Arc::new(match hottest {
        None => DeviceFeatures::new(features.clone(), device)?,
        Some((n_bytes, hotness)) => DeviceFeatures::hottest(features.clone(), &hotness, n_bytes, device)?,
    }))
}

/// Returns each shared value once, in the order of the first occurrences.
pub(crate) fn distinct<T>(values: impl Iterator<Item = Arc<T>>) -> Vec<Arc<T>> {
    let mut distinct: Vec<Arc<T>> = Vec::new();
    for value in values {
        if !distinct.iter().any(|other| Arc::ptr_eq(other, &value)) {
            distinct.push(value);
        }
    }
    distinct
}

/// The copies of graphs on devices: of partitions, or of the relations of a heterogeneous graph or partition. Ranks with the
/// same device and mode share a copy, and so do clones.
#[derive(Clone, Default)]
pub(crate) struct GraphCopies(Arc<Mutex<Vec<GraphCopy>>>);

struct GraphCopy {
    device: Device,
    mode: GraphMode,
    /// The number of the partition or of the relation; of a relation of a partition, a number of both. With the time from which on
    /// edges of a partition are left out.
    number: (usize, Option<i64>),
    graph: DeviceGraph,
}

impl GraphCopies {
    /// Returns the copy of the graph with this number. The first rank that needs it creates it from `graph`, while the others
    /// wait.
    ///
    /// # Errors
    /// Returns the errors of `graph` and of the copy, and [`Error::CacheNeedsDevice`] for [`GraphMode::Host`].
    pub(crate) fn get_or_make(
        &self,
        device: &Device,
        mode: GraphMode,
        number: (usize, Option<i64>),
        graph: impl FnOnce() -> Result<Csc>,
    ) -> Result<DeviceGraph> {
        // The lock is held during the copy, so that other ranks of the device wait and share it.
        let mut copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |copy: &&GraphCopy| copy.device == *device && copy.mode == mode && copy.number == number;
        if let Some(copy) = copies.iter().find(is_it) {
            return Ok(copy.graph.clone());
        }
        let graph = mode.upload(Arc::new(graph()?), device)?.ok_or(Error::CacheNeedsDevice)?;
        copies.push(GraphCopy { device: device.clone(), mode, number, graph: graph.clone() });
        Ok(graph)
    }
}

/// The copies of a loader's graph and features, by device. A program creates the loader before `launch`, and its clones on
/// all ranks share them.
#[derive(Clone, Default)]
pub(crate) struct DeviceCopies {
    copies: Arc<Mutex<Copies>>,
    /// The copies of the relations of a heterogeneous graph, whose features stay on the host.
    graphs: GraphCopies,
}

#[derive(Default)]
struct Copies {
    all: Vec<(Device, DeviceCopy)>,
    /// The hotness of each node, which is computed once for all devices.
    hotness: Option<Arc<Vec<u32>>>,
}

impl DeviceCopies {
    /// Returns the copy on a device. The first rank that uses the device creates it with `make`, while the others wait.
    /// `make` receives the hotness of the nodes if an earlier call has computed it, and may store it for later calls.
    pub(crate) fn get_or_make(
        &self,
        device: &Device,
        make: impl FnOnce(&mut Option<Arc<Vec<u32>>>) -> Result<DeviceCopy>,
    ) -> Result<DeviceCopy> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, copy)) = copies.all.iter().find(|(place, _)| place == device) {
            return Ok(copy.clone());
        }
        let copy = make(&mut copies.hotness)?;
        copies.all.push((device.clone(), copy.clone()));
        Ok(copy)
    }

    /// Returns the copy on a device, if there is one.
    pub(crate) fn on(&self, device: &Device) -> Option<DeviceCopy> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.all.iter().find(|(place, _)| place == device).map(|(_, copy)| copy.clone())
    }

    /// Returns the copies of the relations of a heterogeneous graph only.
    pub(crate) fn graphs_only(&self) -> Self {
        Self { copies: Arc::default(), graphs: self.graphs.clone() }
    }

    pub(crate) fn graphs(&self) -> &GraphCopies {
        &self.graphs
    }

    pub(crate) fn all(&self) -> Vec<DeviceCopy> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.all.iter().map(|(_, copy)| copy.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_phases_share_on_several_devices_are_counted_once() {
        let [first, second] = [1, 1].map(Arc::new);
        let of_phases = [&first, &second, &first, &second, &first].map(Arc::clone);
        assert_eq!(distinct(of_phases.into_iter()).len(), 2);
    }
}
