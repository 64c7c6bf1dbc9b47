//! The batchers and the threads of a neighbour loader, for nodes and for the nodes of links.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_feature::{EdgeColumnStores, FeatureBuffer, FeatureDType, FeatureStore, RelationRows, Targets};
use kiln_graph::{Csc, EdgeColumns, ItemId, NodeId, SharedArray};
use kiln_kernels::GraphMode;
use kiln_loader::{Batcher, FeatureStores, ItemSampler, Loader, LoaderConfig, NodeBatcher, NodeTargets};
use kiln_nn::{BlockModel, InputAggregation};
use kiln_sample::{FrontierSampler, SamplerConfig};
use kiln_train::{DeviceNodeBatcher, HostNodeBatcher, HostOrDeviceBatcher};

use crate::batches::{aggregation_of_workers, n_workers};
use crate::device_copy::copy_features;
use crate::source::{Sampling, WholeGraph, feature_stores};
use crate::{DeviceCopy, Error, NeighborLoader, Result};

impl NeighborLoader {
    /// Returns what the samplers of this loader pick. Edges that a batch excludes are left out of the relations
    /// `excluded_from`, or of all.
    pub(crate) fn sampling_from(&self, excluded_from: Option<Vec<usize>>) -> Sampling {
        let time_limits = self.item_time_limits().unwrap_or_default();
        let config = SamplerConfig { time_limits, ..self.sampling.clone() };
        let config = match self.source.is_heterogeneous() {
            true => config,
            // The only relation is not named in samplers.
            false => config.relation_config(self.only_relation()),
        };
        Sampling { fanouts: self.fanouts.clone(), config, excluded_from }
    }

    /// Returns the batcher for a device and a model. `train_items` returns the training nodes of all ranks, from which the
    /// feature cache may select its rows.
    pub(crate) fn batcher(
        &self,
        sampling: Sampling,
        device: &Device,
        model: &impl BlockModel,
        targets: Option<Targets>,
        train_items: impl FnOnce() -> Result<ItemSampler>,
    ) -> Result<HostOrDeviceBatcher> {
        if let Some(sampler) = self.custom_sampler(&sampling.config)? {
            let batcher = self.host_batcher(sampler, model, targets)?;
            return Ok(HostOrDeviceBatcher::Host(Box::new(HostNodeBatcher::new(batcher, device))));
        }
        let rules = [&self.sampling.rule].into_iter().chain(self.sampling.relation_rules.values());
        let mode = rules.fold(self.graph_mode, |mode, rule| mode.resolve(rule));
        let sampler = match mode {
            GraphMode::Host => Some(self.source.sampler(&sampling)?),
            _ => self.source.device_sampler(&sampling, self.copies.graphs(), mode, device)?,
        };
        let Some(sampler) = sampler else {
            return self.device_batcher(&sampling.config, mode, device, targets, train_items);
        };
        let batcher = self.host_batcher(sampler, model, targets)?;
        Ok(HostOrDeviceBatcher::Host(Box::new(HostNodeBatcher::new(batcher, device))))
    }

    /// Returns the batcher of a graph of one type that a device samples, and whose features it gathers.
    fn device_batcher(
        &self,
        config: &SamplerConfig,
        mode: GraphMode,
        device: &Device,
        targets: Option<Targets>,
        train_items: impl FnOnce() -> Result<ItemSampler>,
    ) -> Result<HostOrDeviceBatcher> {
        let Some(WholeGraph::One(graph)) = self.source.whole() else {
            return Err(Error::NeedsWholeGraph { what: "gathering on a device" });
        };
        let features = self.features();
        let features = features.only_store().expect("a graph of one type should have features");
        let edge_columns = self.edge_column_stores()?;
        let times = self.times_of_targets(targets.as_ref())?;
        let copied = self.phases.features_on(device);
        let copy = self.copies.get_or_make(device, |hotness| {
            let hottest = match copied {
                Some(_) => None,
                None => self.hottest(graph, config, hotness, times.as_deref(), train_items)?,
            };
            let features = || match copied {
                Some(copied) => Ok(copied),
                None => copy_features(features, hottest, device),
            };
            DeviceCopy::new(device, mode, graph, features, config, edge_columns)
        })?;
        let DeviceCopy { sampler, features, edge_columns } = copy;
        let batcher = match targets {
            Some(targets) => DeviceNodeBatcher::new(sampler, features, targets),
            None => DeviceNodeBatcher::without_targets(sampler, features),
        };
        let batcher = match times {
            Some(times) => batcher.seed_times(times),
            None => batcher,
        };
        Ok(HostOrDeviceBatcher::Device(
            edge_columns.into_iter().fold(batcher, DeviceNodeBatcher::edge_column),
        ))
    }

    /// Returns the times at which the nodes that have targets are sampled; `None` if they have none of their own, or if the seeds
    /// come with times.
    fn times_of_targets(&self, targets: Option<&Targets>) -> Result<Option<SharedArray<i64>>> {
        match targets.and(self.item_time_limits()) {
            Some(_) => self.item_times().map(Some),
            None => Ok(None),
        }
    }

    /// Returns the targets of the nodes, or of those of one type of a heterogeneous graph.
    pub(crate) fn node_targets(&self) -> NodeTargets {
        let values = self.targets.values.clone();
        if let Some(table) = &self.table {
            return NodeTargets::rows(table.nodes.clone(), values);
        }
        match self.source.is_heterogeneous() {
            true => NodeTargets::of_type(self.target_nodes(), values),
            false => values.into(),
        }
    }

    /// Returns the features of the nodes, which batches gather.
    fn features(&self) -> FeatureStores {
        if !self.reads_seeds_only {
            return feature_stores(&*self.source);
        }
        let schema = self.source.schema();
        let types = schema.types();
        let none = |n_rows: usize| Some(Arc::new(NoFeatures { n_rows }) as Arc<dyn FeatureStore>);
        let stores = (0..types.n_types()).map(|node_type| none(types.range(node_type).len()));
        FeatureStores::new(types.clone(), stores.collect())
    }

    /// Returns the columns of the sampled graph's edges that the loader gathers, by name.
    ///
    /// # Errors
    /// Returns an error if the data has no such column for the edges of this graph.
    pub(crate) fn edge_column_stores(&self) -> Result<EdgeColumnStores> {
        let mut stores = EdgeColumnStores::default();
        for name in &self.edge_columns {
            let rows = match &**name {
                EdgeColumns::FEATURES => self.source.edge_column(name, self.edge_feature_rows)?,
                _ => self.source.edge_column(name, RelationRows::Equal)?,
            };
            if let Some(WholeGraph::One(graph)) = self.source.whole() {
                let n_rows = rows.n_edges();
                let n_edges = graph.n_edges();
                if n_rows != n_edges {
                    return Err(Error::EdgeFeatureRows { n_rows, n_edges });
                }
            }
            stores.set(Arc::clone(name), rows);
        }
        Ok(stores)
    }

    /// Returns the size of the feature cache and the hotness of the nodes, or `None` if there is no cache.
    fn hottest(
        &self,
        graph: &Arc<Csc>,
        config: &SamplerConfig,
        hotness: &mut Option<Arc<Vec<u32>>>,
        times: Option<&[i64]>,
        train_items: impl FnOnce() -> Result<ItemSampler>,
    ) -> Result<Option<(u64, Arc<Vec<u32>>)>> {
        let Some((n_bytes, nodes)) = self.feature_cache else { return Ok(None) };
        let counted = match hotness.take() {
            Some(counted) => counted,
            None => Arc::new(nodes.hotness(graph, config, times, train_items)?),
        };
        Ok(Some((n_bytes, Arc::clone(hotness.insert(counted)))))
    }

    /// Returns the batcher of blocks on the host. It groups the edges and nodes of a heterogeneous graph by relation and type
    /// if the model reads groups.
    fn host_batcher(
        &self,
        sampler: Arc<dyn FrontierSampler>,
        model: &impl BlockModel,
        targets: Option<Targets>,
    ) -> Result<NodeBatcher<dyn FrontierSampler>> {
        if self.feature_cache.is_some() {
            return Err(Error::CacheNeedsDevice);
        }
        let times = self.times_of_targets(targets.as_ref())?;
        let batcher = match targets {
            Some(_) => NodeBatcher::new(sampler, self.features(), self.node_targets()),
            None => NodeBatcher::without_targets(sampler, self.features()),
        };
        let batcher = match times {
            Some(times) => batcher.seed_times(times),
            None => batcher,
        };
        let format = model.input_format();
        let batcher = match self.batch_ages(format.edge_ages) {
            Some(ages) => batcher.ages(ages),
            None => batcher,
        };
        let batcher = match self.source.is_heterogeneous() {
            true => {
                let schema = self.source.schema();
                batcher.groups_of_model(format.relation_groups, format.node_groups, schema)
            }
            false => batcher,
        };
        let mut batcher = batcher;
        for (name, rows) in self.edge_column_stores()?.iter() {
            batcher = batcher.edge_column(Arc::clone(name), Arc::clone(rows));
        }
        Ok(batcher)
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

/// Features of one column of zeros, for batches whose features are not read.
#[derive(Debug)]
struct NoFeatures {
    n_rows: usize,
}

impl FeatureStore for NoFeatures {
    fn dim(&self) -> usize {
        1
    }

    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn dtype(&self) -> FeatureDType {
        FeatureDType::F32
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        if let Some(&node) = ids.iter().find(|node| self.n_rows <= node.index()) {
            return Err(kiln_feature::Error::NodeOutOfRange { node, n_rows: self.n_rows });
        }
        *out = FeatureBuffer::F32(vec![0.0; ids.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kiln_data::synthetic;
    use kiln_nn::SageConfig;
    use kiln_sample::RngKey;

    use super::*;

    /// The CPU device of this test cannot sample, so a copy of the graph on the device would be an error.
    #[test]
    fn a_loader_for_pairs_copies_nothing_to_the_device_and_gathers_no_features() {
        let data = synthetic::ring(100).unwrap();
        let nodes = NeighborLoader::new(&data, [10, 10]).graph_mode(GraphMode::Device).feature_cache(1 << 10);
        let pairs = nodes.for_pairs_only();
        let device = Device::flex();
        let model = SageConfig::new(1, 2).layers(2).init(RngKey::new(0), &device).unwrap();
        let sampling = pairs.sampling_from(None);
        let batcher =
            pairs.batcher(sampling, &device, &model, None, || panic!("the cache should not be sampled"));
        let batcher = batcher.unwrap();
        assert!(matches!(batcher, HostOrDeviceBatcher::Host(_)), "{batcher:?}");
        assert!(pairs.device_copies().is_empty() && nodes.device_copies().is_empty());
        let features = pairs.features();
        let features = features.only_store().unwrap();
        let mut rows = FeatureBuffer::empty(FeatureDType::F32);
        features.gather(&[NodeId(7), NodeId(99)], &mut rows).unwrap();
        assert_eq!((features.dim(), rows.into_f32()), (1, vec![0.0; 2]));
        features.gather(&[NodeId(100)], &mut FeatureBuffer::empty(FeatureDType::F32)).unwrap_err();
        let (own, expected) = (nodes.source().data_hash(None), data.hash().unwrap());
        assert_eq!(own.wait().unwrap(), expected, "the loader should not change");
    }
}
