use std::sync::Arc;

use kiln_data::{Dataset, HashedPart, LinkTargets, Split};
#[cfg(feature = "grpc")]
use kiln_feature::Preparation;
use kiln_feature::{PreparationStep, Targets};
use kiln_graph::{Csc, ItemId, NodeId, add_self_loops, gcn_norm};
use kiln_loader::ItemSampler;
use kiln_sample::SamplerConfig;
use kiln_train::{DataHash, ModelInputs, ModelTask, SamplingInfo};

use crate::Result;
use crate::data_hash::hash_with_links;
#[cfg(feature = "grpc")]
use crate::data_hash::known_hash_with_links;
#[cfg(feature = "grpc")]
use crate::partitioned::JoinedGraph;

/// The source of a loader's graph, features and targets.
#[derive(Clone)]
pub(crate) enum Source {
    /// A dataset in this process. The sampled `graph` is the result of `step` on the graph of the dataset.
    Whole { data: Box<Dataset>, graph: Arc<Csc>, step: GraphStep },
    /// A partitioned graph, which ranks or servers hold.
    #[cfg(feature = "grpc")]
    Partitioned(JoinedGraph),
}

/// The step by which a loader prepares the graph for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphStep {
    /// The graph is that of the dataset.
    None,
    /// [`gcn_norm`].
    GcnNorm,
    /// [`add_self_loops`].
    SelfLoops,
}

impl GraphStep {
    pub(crate) fn apply(self, graph: &Arc<Csc>) -> Result<Arc<Csc>> {
        Ok(match self {
            Self::None => Arc::clone(graph),
            Self::GcnNorm => Arc::new(gcn_norm(graph)?),
            Self::SelfLoops => Arc::new(add_self_loops(graph)?),
        })
    }
}

impl Source {
    pub(crate) fn split(&self) -> Split {
        match self {
            Self::Whole { data, .. } => data.split.clone(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.split(),
        }
    }

    pub(crate) fn targets(&self) -> Targets {
        match self {
            Self::Whole { data, .. } => data.targets(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.graph.labels().clone().into(),
        }
    }

    /// Returns the name of the data and the names of its classes.
    pub(crate) fn names(&self) -> (&str, &[String]) {
        match self {
            Self::Whole { data, .. } => (&data.name, &data.class_names),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => (joined.graph.name(), joined.graph.class_names()),
        }
    }

    /// Returns the hash of the data, together with that of links if there are any.
    pub(crate) fn data_hash(&self, links: Option<LinkTargets>) -> DataHash {
        match self {
            Self::Whole { data, .. } => {
                let data = data.clone();
                hash_with_links(move |check| data.hash_of(HashedPart::All(check)), links)
            }
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => known_hash_with_links(joined.graph.hash(), links),
        }
    }

    /// Returns a hash of the sizes and of a sample of the values, or the hash of all values if that is known.
    pub(crate) fn data_sample(&self) -> Result<String> {
        match self {
            Self::Whole { data, .. } => Ok(data.hash_of(HashedPart::Sample)?),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => Ok(joined.graph.hash().to_owned()),
        }
    }

    /// Returns the number of nodes.
    pub(crate) fn n_nodes(&self) -> usize {
        match self {
            Self::Whole { graph, .. } => graph.n_nodes(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.graph.n_nodes(),
        }
    }

    /// Returns one more than the largest edge type, or `None` if edges have no types.
    ///
    /// # Errors
    /// Returns [`Error::UnrecordedEdgeTypes`](crate::Error::UnrecordedEdgeTypes) if it is unknown.
    pub(crate) fn n_edge_types(&self) -> Result<Option<usize>> {
        match self {
            Self::Whole { graph, .. } => Ok(graph.n_edge_types()),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => match joined.graph.n_edge_types() {
                None if joined.graph.has_edge_types() => Err(crate::Error::UnrecordedEdgeTypes),
                n_edge_types => Ok(n_edge_types),
            },
        }
    }

    /// Returns true if the loader adds a self loop to each node that has none, without a normalisation.
    pub(crate) fn adds_self_loops(&self) -> bool {
        matches!(self, Self::Whole { step: GraphStep::SelfLoops, .. })
    }

    /// Returns true if a step added a self loop to each node that had none.
    pub(crate) fn has_self_loops(&self) -> bool {
        match self {
            Self::Whole { data, step, .. } => *step != GraphStep::None || data.preparation.adds_self_loops(),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.graph.preparation().is_some_and(Preparation::adds_self_loops),
        }
    }

    /// Gives each rank the items whose node it owns, on a partitioned graph in worker mode. Otherwise, the ranks keep
    /// their equal shares.
    #[cfg_attr(not(feature = "grpc"), allow(unused_variables, reason = "only ranks of partitions own nodes"))]
    pub(crate) fn shard_by_owner<I: ItemId>(
        &self,
        items: ItemSampler<I>,
        node_of: impl Fn(I) -> NodeId + Send + Sync + 'static,
    ) -> Result<ItemSampler<I>> {
        match self {
            Self::Whole { .. } => Ok(items),
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => joined.owners.shard(items, node_of),
        }
    }

    /// Returns the description of the data for a saved model.
    pub(crate) fn model_inputs(&self, sampling: &SamplerConfig) -> ModelInputs {
        let (data_name, class_names) = self.names();
        let (n_features, preparation, gcn_norm) = match self {
            Self::Whole { data, step, .. } => {
                let mut preparation = data.preparation.clone();
                if *step == GraphStep::SelfLoops && !preparation.adds_self_loops() {
                    preparation.steps.push(PreparationStep::SelfLoops);
                }
                (data.features.dim(), Some(preparation), *step == GraphStep::GcnNorm)
            }
            #[cfg(feature = "grpc")]
            Self::Partitioned(joined) => {
                let n_features = kiln_feature::FeatureStore::dim(&*joined.features);
                (n_features, joined.graph.preparation().cloned(), false)
            }
        };
        ModelInputs {
            task: ModelTask::Nodes,
            data_name: data_name.to_owned(),
            n_features,
            targets: self.targets().kind(),
            n_outputs: self.targets().n_outputs(),
            class_names: class_names.to_vec(),
            preparation,
            node_features: None,
            sampling: Some(SamplingInfo::new(sampling, gcn_norm)),
            graph: None,
        }
    }
}
