use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{HashedPart, LinkTargets, TypedDataset, TypedTargets};
use kiln_feature::FeatureStore;
use kiln_graph::{GraphSchema, ItemId, NodeId};
use kiln_kernels::{DeviceSampler, GraphMode};
use kiln_loader::ItemSampler;
use kiln_sample::{Fanout, Rule, SamplerConfig, TypedSampler};
use kiln_train::{DataHash, NodeKeys};

use crate::data_hash::hash_with_links;
#[cfg(feature = "grpc")]
use crate::data_hash::known_hash_with_links;
use crate::device_copy::GraphCopies;
#[cfg(feature = "grpc")]
use crate::partitioned::JoinedTypedGraph;
use crate::prediction::row_keys;
use crate::{Error, Result};

/// The source of the graph, the features and the targets of a loader of a heterogeneous graph.
#[derive(Clone)]
pub(crate) enum TypedSource {
    /// A dataset in this process.
    Whole(Arc<TypedDataset>),
    /// A partitioned graph, which ranks or servers hold.
    #[cfg(feature = "grpc")]
    Partitioned(JoinedTypedGraph),
}

impl TypedSource {
    /// Returns the targets and the split.
    pub(crate) fn targets(&self) -> Result<TypedTargets> {
        match self {
            Self::Whole(data) => {
                data.targets.clone().ok_or_else(|| Error::NoTargets { name: data.name.clone() })
            }
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => {
                let name = || joined.graph.name().to_owned();
                joined.targets().ok_or_else(|| Error::NoLabelsInPartitions { name: name() })
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Whole(data) => &data.name,
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.graph.name(),
        }
    }

    /// Returns the node types and relations.
    pub(crate) fn schema(&self) -> &GraphSchema {
        match self {
            Self::Whole(data) => data.graph.schema(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.graph.schema(),
        }
    }

    /// Returns the number of feature columns of each node type; `None` for a type without features.
    pub(crate) fn dims(&self) -> Vec<Option<usize>> {
        match self {
            Self::Whole(data) => data.dims(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.graph.dims(),
        }
    }

    /// Returns the hash of all data, together with that of links if there are any.
    pub(crate) fn data_hash(&self, links: Option<LinkTargets>) -> DataHash {
        match self {
            Self::Whole(data) => {
                let data = Arc::clone(data);
                hash_with_links(move |check| data.hash_of(HashedPart::All(check)), links)
            }
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => known_hash_with_links(joined.graph.hash(), links),
        }
    }

    /// Returns a hash of the sizes and of a sample of the values, or the hash of all values if that is known.
    pub(crate) fn data_sample(&self) -> Result<String> {
        match self {
            Self::Whole(data) => Ok(data.hash_of(HashedPart::Sample)?),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => Ok(joined.graph.hash().to_owned()),
        }
    }

    /// Returns the features of each node type; `None` for a type without features.
    pub(crate) fn features(&self) -> Vec<Option<Arc<dyn FeatureStore>>> {
        match self {
            Self::Whole(data) => data.features.clone(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => {
                let stores = joined.features.iter();
                stores.map(|store| store.clone().map(|store| store as Arc<dyn FeatureStore>)).collect()
            }
        }
    }

    /// Returns a sampler with these fanouts of each relation in each layer.
    pub(crate) fn sampler(&self, fanouts: Vec<Vec<Fanout>>, config: SamplerConfig) -> Result<TypedSampler> {
        match self {
            Self::Whole(data) => Ok(TypedSampler::new(&data.graph, fanouts, config)?),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => Ok(joined.graph.typed_sampler(fanouts, &config)?),
        }
    }

    /// Returns the dataset in this process. `what` needs it, for the message.
    ///
    /// # Errors
    /// Returns [`Error::NeedsWholeGraph`] for a partitioned graph.
    pub(crate) fn whole(&self, what: &'static str) -> Result<&Arc<TypedDataset>> {
        match self {
            Self::Whole(data) => Ok(data),
            #[cfg(feature = "grpc")]
            Self::Partitioned(_) => Err(Error::NeedsWholeGraph { what }),
        }
    }

    /// Returns the keys of the nodes of each type without features.
    pub(crate) fn row_keys(&self) -> Arc<[Option<NodeKeys>]> {
        match self {
            Self::Whole(data) => row_keys(data),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.keys.clone(),
        }
    }

    /// Returns a sampler like [`TypedSampler::new`] whose relations are sampled on a device; the host joins their edges.
    ///
    /// # Errors
    /// Returns [`Error::RuleNeedsHost`] for a custom rule, [`Error::NeedsLocalPartition`] for a graph that servers hold, and the
    /// errors of the copies.
    pub(crate) fn device_sampler(
        &self,
        fanouts: Vec<Vec<Fanout>>,
        config: SamplerConfig,
        copies: &GraphCopies,
        mode: GraphMode,
        device: &Device,
    ) -> Result<TypedSampler> {
        if matches!(config.rule, Rule::Custom { .. }) {
            return Err(Error::RuleNeedsHost);
        }
        let graph = match self {
            Self::Whole(data) => &data.graph,
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => return joined.device_sampler(fanouts, &config, mode, device),
        };
        let of_relation = |position: usize| -> Result<DeviceSampler> {
            let whole = || Ok(graph.whole_graph(position)?);
            let copy = copies.get_or_make(device, mode, position, whole)?;
            let config = SamplerConfig { edge_types: false, ..config.clone() };
            Ok(DeviceSampler::with_config(copy, config)?)
        };
        let samplers = (0..graph.n_relations()).map(of_relation).collect::<Result<Vec<_>>>()?;
        Ok(TypedSampler::of_samplers(graph.schema().clone(), Arc::new(samplers), fanouts, &config)?)
    }

    /// Gives each rank the items whose node it owns, as [`Source::shard_by_owner`](crate::source::Source::shard_by_owner) does.
    #[cfg_attr(not(feature = "grpc"), allow(unused_variables, reason = "only ranks of partitions own nodes"))]
    pub(crate) fn shard_by_owner<I: ItemId>(
        &self,
        items: ItemSampler<I>,
        node_of: impl Fn(I) -> NodeId + Send + Sync + 'static,
    ) -> Result<ItemSampler<I>> {
        match self {
            Self::Whole(_) => Ok(items),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.owners.shard(items, node_of),
        }
    }
}
