//! The graph of an exact inference, of one type of nodes or heterogeneous.

use std::sync::Arc;

use kiln_graph::{Block, Csc, GraphSchema, NodeId, RelationGroups, Relations};
use kiln_nn::{InputFormat, LayerMemory};
use kiln_sample::{Fanout, FrontierSampler, HeteroNeighborSampler, NeighborSampler, SamplerConfig};

use crate::error::Result;

/// The whole graph of a [`LayerWiseInference`](crate::LayerWiseInference).
#[derive(Debug, Clone)]
pub enum InferenceGraph {
    /// A graph of one type of nodes.
    OneType(Arc<Csc>),
    /// A heterogeneous graph. The type of an edge is the position of its relation.
    Relations(Arc<Relations>),
}

impl From<Arc<Csc>> for InferenceGraph {
    fn from(graph: Arc<Csc>) -> Self {
        Self::OneType(graph)
    }
}

impl From<Arc<Relations>> for InferenceGraph {
    fn from(graph: Arc<Relations>) -> Self {
        Self::Relations(graph)
    }
}

impl InferenceGraph {
    pub(crate) fn n_nodes(&self) -> usize {
        match self {
            Self::OneType(graph) => graph.n_nodes(),
            Self::Relations(graph) => graph.n_nodes(),
        }
    }

    pub(crate) fn n_edges(&self) -> u64 {
        match self {
            Self::OneType(graph) => graph.n_edges(),
            Self::Relations(graph) => graph.n_edges(),
        }
    }

    /// Returns the number of edges into a node, over all relations.
    pub(crate) fn in_degree(&self, node: NodeId) -> u64 {
        let graph = match self {
            Self::OneType(graph) => return graph.in_degree(node),
            Self::Relations(graph) => graph,
        };
        let Some((node_type, number)) = graph.types().locate(node) else { return 0 };
        let into_type = graph.iter().filter(|relation| relation.dst_type == node_type);
        into_type.map(|relation| relation.graph.in_degree(number)).sum()
    }

    /// Returns the types and relations of a heterogeneous graph.
    pub(crate) fn schema(&self) -> Option<&GraphSchema> {
        match self {
            Self::OneType(_) => None,
            Self::Relations(graph) => Some(graph.schema()),
        }
    }

    /// Returns the configuration of a sampler of all neighbours.
    pub(crate) fn sampling(&self) -> SamplerConfig {
        let edge_types = self.schema().is_some();
        SamplerConfig { edge_types, ..SamplerConfig::full(1) }
    }

    /// Returns a sampler of all neighbours in one layer. `fanouts` are those of the relations, of which 0 leaves a relation out;
    /// none if all are read.
    ///
    /// # Errors
    /// Returns [`Error::Sample`](crate::Error::Sample) if edges lack the weights or the types of the configuration, or if there is
    /// not one fanout per relation.
    pub(crate) fn sampler(
        &self,
        sampling: &SamplerConfig,
        fanouts: Option<&[Fanout]>,
    ) -> Result<Arc<dyn FrontierSampler>> {
        Ok(match self {
            Self::OneType(graph) => {
                Arc::new(NeighborSampler::with_config(Arc::clone(graph), sampling.clone())?)
            }
            Self::Relations(graph) => {
                let all = vec![Fanout::All; graph.n_relations()];
                let mut fanouts = fanouts.map_or(all, <[Fanout]>::to_vec);
                for fanout in fanouts.iter_mut().filter(|fanout| **fanout != Fanout::UpTo(0)) {
                    *fanout = Fanout::All;
                }
                Arc::new(HeteroNeighborSampler::new(graph, vec![fanouts], sampling.clone())?)
            }
        })
    }

    /// Returns the groups that a model reads of a block; `None` if it reads none, or for a graph of one type of nodes.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the block has edges of unknown relations.
    pub(crate) fn groups(&self, block: &Block, format: InputFormat) -> Result<Option<RelationGroups>> {
        let Some(schema) = self.schema().filter(|_| format.relation_groups) else { return Ok(None) };
        let groups = RelationGroups::new(block, schema.types(), &schema.metagraph())?;
        Ok(Some(match format.node_groups {
            true => groups.with_nodes(block, schema.types())?,
            false => groups,
        }))
    }

    /// Returns the memory of a range in addition to that of a graph of one type.
    pub(crate) fn memory(&self) -> LayerMemory {
        match self {
            Self::OneType(_) => LayerMemory::default(),
            // The edges are sampled by relation and then joined (24 bytes), and grouped on the host and the device (4 bytes for
            // the source and 8 for its order). Nodes are sorted by type by the sampler, and grouped on the host and the device.
            Self::Relations(graph) => LayerMemory {
                dst_bytes: 24 + 8 * graph.n_relations() as u64,
                src_bytes: 24,
                edge_bytes: 24 + 2 * 12,
            },
        }
    }
}
