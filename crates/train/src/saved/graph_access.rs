//! The graph of predictions: in this process as a whole, or only sampled.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_feature::{EdgeFeatureStore, RelationRows, edge_rows_of};
use kiln_graph::{Csc, GraphSchema, Relation, Relations};
use kiln_sample::{
    CustomSampler, Fanout, FrontierSampler, HeteroNeighborSampler, NeighborSampler, SamplerConfig,
    SamplerError, TimeLimits,
};

use crate::error::Result;
use crate::evaluate::inference_graph::InferenceGraph;
use crate::saved::error::{ModelError, PredictModeError};

/// The graph of predictions.
#[derive(Clone)]
pub(crate) enum GraphAccess {
    /// A graph of one type of nodes.
    Plain(Arc<Csc>),
    /// A heterogeneous graph.
    Heterogeneous(Arc<Relations>),
    /// A graph of one type of nodes that is not in this process as a whole, such as a partitioned graph.
    SampledPlain { n_nodes: usize, sampler: Arc<NewSampler> },
    /// A heterogeneous graph that is not in this process as a whole.
    SampledHeterogeneous { schema: GraphSchema, sampler: Arc<NewSampler> },
}

/// Creates a sampler of a graph from the fanouts of each relation in each layer, `[n_layers][n_relations]`.
pub(crate) type NewSampler =
    dyn Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<Arc<dyn FrontierSampler>> + Send + Sync;

impl GraphAccess {
    /// Returns the types of nodes and the relations of a heterogeneous graph; `None` for a graph of one type of nodes.
    pub(crate) fn schema(&self) -> Option<&GraphSchema> {
        match self {
            Self::Plain(_) | Self::SampledPlain { .. } => None,
            Self::Heterogeneous(graph) => Some(graph.schema()),
            Self::SampledHeterogeneous { schema, .. } => Some(schema),
        }
    }

    /// Returns the number of nodes of all types.
    pub(crate) fn n_nodes(&self) -> usize {
        match self {
            Self::Plain(graph) => graph.n_nodes(),
            Self::SampledPlain { n_nodes, .. } => *n_nodes,
            Self::Heterogeneous(graph) => graph.n_nodes(),
            Self::SampledHeterogeneous { schema, .. } => schema.n_nodes(),
        }
    }

    /// Returns the number of edges; `None` for a graph that is only sampled.
    pub(crate) fn n_edges(&self) -> Option<u64> {
        match self {
            Self::Plain(graph) => Some(graph.n_edges()),
            Self::Heterogeneous(graph) => Some(graph.schema().n_edges()),
            Self::SampledPlain { .. } | Self::SampledHeterogeneous { .. } => None,
        }
    }

    /// Returns the graph for an inference over all neighbours.
    ///
    /// # Errors
    /// Returns [`PredictModeError::NeedsWholeGraph`] for a graph that is only sampled.
    pub(crate) fn whole(&self) -> Result<InferenceGraph> {
        match self {
            Self::Plain(graph) => Ok(Arc::clone(graph).into()),
            Self::Heterogeneous(graph) => Ok(Arc::clone(graph).into()),
            Self::SampledPlain { .. } | Self::SampledHeterogeneous { .. } => {
                Err(ModelError::Mode(PredictModeError::NeedsWholeGraph { what: "exact mode" }).into())
            }
        }
    }

    /// Returns the graph of the edges that items of one time know. The edges of this graph are ordered by time. `windows` are those
    /// of the relations that have their own.
    ///
    /// # Errors
    /// Returns an error if the edges do not fit in memory. A graph that is only sampled stays as it is.
    pub(crate) fn known_at(
        &self,
        limits: TimeLimits,
        windows: &BTreeMap<String, Option<u64>>,
        time: i64,
    ) -> Result<Self> {
        match self {
            Self::Plain(graph) => Ok(Self::Plain(Arc::new(limits.known_graph(graph, time)?))),
            Self::Heterogeneous(graph) => {
                let mut relations = Vec::with_capacity(graph.n_relations());
                for relation in graph.iter() {
                    let window = windows.get(&relation.name).copied().unwrap_or(limits.window);
                    let of_relation = TimeLimits { window, ..limits };
                    let known = Arc::new(of_relation.known_graph(&relation.graph, time)?);
                    relations.push(Relation { graph: known, ..relation.clone() });
                }
                Ok(Self::Heterogeneous(Arc::new(Relations::new(Arc::clone(graph.types()), relations)?)))
            }
            Self::SampledPlain { .. } | Self::SampledHeterogeneous { .. } => Ok(self.clone()),
        }
    }

    /// Returns the rows of the edges in a column; `None` for a graph that is only sampled.
    ///
    /// # Errors
    /// Returns the errors of [`edge_rows_of`].
    pub(crate) fn edge_rows(
        &self,
        name: &str,
        rows: RelationRows,
    ) -> Result<Option<Arc<dyn EdgeFeatureStore>>> {
        Ok(match self {
            Self::Plain(graph) => Some(edge_rows_of(&Relations::of_graph(Arc::clone(graph)), name, rows)?),
            Self::Heterogeneous(graph) => Some(edge_rows_of(graph, name, rows)?),
            Self::SampledPlain { .. } | Self::SampledHeterogeneous { .. } => None,
        })
    }

    /// Returns the number of relations, 1 for a graph of one type of nodes.
    pub(crate) fn n_relations(&self) -> usize {
        self.schema().map_or(1, |schema| schema.relations().len())
    }

    /// Returns a program's own sampler of the graph.
    ///
    /// # Errors
    /// Returns [`PredictModeError::NeedsWholeGraph`] unless the graph has one type of nodes and is in this process as a whole, and
    /// the errors of the sampler's constructor.
    pub(crate) fn custom_sampler(
        &self,
        custom: &CustomSampler,
        fanouts: Vec<Vec<Fanout>>,
        config: SamplerConfig,
    ) -> Result<Arc<dyn FrontierSampler>> {
        let Self::Plain(graph) = self else {
            let what = "a sampler of the program's own, which reads a graph of one type of nodes,";
            return Err(ModelError::Mode(PredictModeError::NeedsWholeGraph { what }).into());
        };
        let expected = fanouts.len();
        let sampler = custom.create(graph, SamplerConfig { fanouts: fanouts.concat(), ..config })?;
        let got = sampler.n_layers();
        if expected != got {
            let name = custom.name().to_owned();
            return Err(kiln_sample::Error::from(SamplerError::Layers { name, expected, got }).into());
        }
        Ok(sampler)
    }

    /// Returns a sampler with these fanouts of each relation in each layer, `[n_layers][n_relations]`. The configuration has
    /// no fanouts.
    pub(crate) fn sampler(
        &self,
        fanouts: Vec<Vec<Fanout>>,
        config: SamplerConfig,
    ) -> Result<Arc<dyn FrontierSampler>> {
        match self {
            Self::Plain(graph) => {
                let config = SamplerConfig { fanouts: fanouts.concat(), ..config };
                Ok(Arc::new(NeighborSampler::with_config(graph.clone(), config)?))
            }
            Self::Heterogeneous(graph) => Ok(Arc::new(HeteroNeighborSampler::new(graph, fanouts, config)?)),
            Self::SampledPlain { sampler, .. } | Self::SampledHeterogeneous { sampler, .. } => {
                sampler(fanouts, config)
            }
        }
    }
}
