//! The batchers and the threads of a neighbour loader, for nodes and for the nodes of links.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::Dataset;
use kiln_feature::{EdgeFeatureStore, EdgeFeatures, FeatureStore, Targets};
use kiln_graph::{Csc, ItemId};
use kiln_kernels::GraphMode;
use kiln_loader::{Batcher, ItemSampler, Loader, LoaderConfig, NodeBatcher};
use kiln_nn::{BlockModel, InputAggregation};
use kiln_sample::{FrontierSampler, NeighborSampler, Rule};
use kiln_train::{DeviceNodeBatcher, HostNodeBatcher, HostOrDeviceBatcher};

use crate::batches::{aggregation_of_workers, n_workers};
use crate::source::Source;
use crate::{DeviceCopy, Error, NeighborLoader, Result};

impl NeighborLoader {
    /// Returns the batcher for a device. `train_items` returns the training nodes of all ranks, from which the feature
    /// cache may select its rows.
    pub(crate) fn batcher(
        &self,
        device: &Device,
        targets: Option<Targets>,
        train_items: impl FnOnce() -> Result<ItemSampler>,
    ) -> Result<HostOrDeviceBatcher> {
        let edge_features = self.edge_feature_store()?;
        match &self.source {
            Source::Whole { data, graph, .. } if self.graph_mode == GraphMode::Host => {
                let sampler = NeighborSampler::with_config(graph.clone(), self.sampling.clone())?;
                let (sampler, features) = (Arc::new(sampler), data.features.clone());
                let batcher = self.host_batcher(sampler, features, edge_features, targets)?;
                Ok(HostOrDeviceBatcher::Host(HostNodeBatcher::new(batcher, device)))
            }
            Source::Whole { .. } if matches!(self.sampling.rule, Rule::Custom { .. }) => {
                Err(Error::RuleNeedsHost)
            }
            Source::Whole { data, graph, .. } => {
                let copy = self.copies.get_or_make(device, |hotness| {
                    let hottest = self.hottest(graph, hotness, train_items)?;
                    let (mode, edge_features) = (self.graph_mode, self.edge_feature_rows(data, graph)?);
                    DeviceCopy::new(device, mode, data, graph, &self.sampling, hottest, edge_features)
                })?;
                let DeviceCopy { sampler, features, edge_features } = copy;
                let batcher = match targets {
                    Some(targets) => DeviceNodeBatcher::new(sampler, features, targets),
                    None => DeviceNodeBatcher::without_targets(sampler, features),
                };
                Ok(HostOrDeviceBatcher::Device(match edge_features {
                    Some(features) => batcher.edge_features(features),
                    None => batcher,
                }))
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => {
                let sampler = joined.sampler(&self.sampling, self.graph_mode, device)?;
                let features = joined.features.clone();
                let batcher = self.host_batcher(sampler, features, edge_features, targets)?;
                Ok(HostOrDeviceBatcher::Host(HostNodeBatcher::new(batcher, device)))
            }
        }
    }

    /// Returns the features of the sampled graph's edges if the loader gathers them.
    ///
    /// # Errors
    /// Returns an error if the data has no features for the edges of this graph.
    pub(crate) fn edge_feature_store(&self) -> Result<Option<Arc<dyn EdgeFeatureStore>>> {
        match &self.source {
            Source::Whole { data, graph, .. } => {
                Ok(self.edge_feature_rows(data, graph)?.map(|features| features.into()))
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) if !self.edge_features => Ok(None),
            #[cfg(feature = "grpc")]
            Source::Partitioned(joined) => {
                let features = joined.edge_features.clone().ok_or(kiln_remote::Error::NoEdgeFeatures)?;
                Ok(Some(features))
            }
        }
    }

    /// Returns the features of the edges of `graph`, which the loader samples, if it gathers them.
    ///
    /// # Errors
    /// Returns an error if the data has no features for the edges of this graph.
    pub(crate) fn edge_feature_rows(&self, data: &Dataset, graph: &Csc) -> Result<Option<EdgeFeatures>> {
        if !self.edge_features {
            return Ok(None);
        }
        let features = data.edge_features.clone().ok_or(Error::DataWithoutEdgeFeatures)?;
        let (n_rows, n_edges) = (features.n_edges(), graph.n_edges());
        match n_rows == n_edges {
            true => Ok(Some(features)),
            false => Err(Error::EdgeFeatureRows { n_rows, n_edges }),
        }
    }

    /// Returns the size of the feature cache and the hotness of the nodes, or `None` if there is no cache.
    fn hottest(
        &self,
        graph: &Arc<Csc>,
        hotness: &mut Option<Arc<Vec<u32>>>,
        train_items: impl FnOnce() -> Result<ItemSampler>,
    ) -> Result<Option<(u64, Arc<Vec<u32>>)>> {
        let Some((n_bytes, nodes)) = self.feature_cache else { return Ok(None) };
        let counted = match hotness.take() {
            Some(counted) => counted,
            None => Arc::new(nodes.hotness(graph, &self.sampling, train_items)?),
        };
        Ok(Some((n_bytes, Arc::clone(hotness.insert(counted)))))
    }

    fn host_batcher(
        &self,
        sampler: Arc<dyn FrontierSampler>,
        features: Arc<dyn FeatureStore>,
        edge_features: Option<Arc<dyn EdgeFeatureStore>>,
        targets: Option<Targets>,
    ) -> Result<NodeBatcher<dyn FrontierSampler>> {
        if self.feature_cache.is_some() {
            return Err(Error::CacheNeedsDevice);
        }
        let batcher = match targets {
            Some(targets) => NodeBatcher::new(sampler, features, targets),
            None => NodeBatcher::without_targets(sampler, features),
        };
        Ok(match edge_features {
            Some(edge_features) => batcher.edge_features(edge_features),
            None => batcher,
        })
    }

    /// Returns the aggregation by which the model reads its input rows, if the workers for these items may compute it.
    pub(crate) fn input_aggregation<I: ItemId>(
        &self,
        items: &ItemSampler<I>,
        model: &impl BlockModel,
    ) -> Option<InputAggregation> {
        aggregation_of_workers(model, n_workers(self.workers, items))
    }

    /// Returns the loader of these items' batches.
    pub(crate) fn start<B: Batcher>(&self, items: ItemSampler<B::Item>, batcher: B) -> Result<Loader<B>> {
        let workers = n_workers(self.workers, &items);
        let queue_bytes = self.queue_bytes.unwrap_or(LoaderConfig::default().queue_bytes);
        let config = LoaderConfig { workers, queue_bytes };
        Ok(Loader::new(items, batcher, config).map_err(kiln_train::Error::from)?)
    }
}
