use std::sync::Arc;

use kiln_sample::{EdgeWeights, Fanout, SamplerConfig, TypedSampler};

use crate::sampler::DistRelations;
use crate::{DistGraph, DistNeighborSampler, Result};

impl DistGraph {
    /// Returns a sampler of all relations of the graph, heterogeneous or not. For the same key its blocks are bit-identical to
    /// those of a [`TypedSampler`] of the whole graph. `fanouts[layer][relation]` is the number of edges to pick, input layer
    /// first; the own fanouts of `config` are ignored. A hop sends the requests of all relations together.
    ///
    /// # Errors
    /// Returns [`kiln_sample::Error::RelationFanouts`] unless each layer has one fanout per relation,
    /// [`kiln_sample::Error::NoRelationWeights`] if edge weights are configured and a relation has none, and
    /// [`Error::BadRule`](crate::Error::BadRule) if a server does not know the name of the rule.
    pub fn typed_sampler(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
    ) -> Result<TypedSampler> {
        let mut samplers = Vec::new();
        for (position, relation) in self.schema().relations().iter().enumerate() {
            if config.weights != EdgeWeights::None && !self.has_weights(position) {
                let relation = relation.name.clone();
                return Err(kiln_sample::Error::NoRelationWeights { relation }.into());
            }
            let config = SamplerConfig { edge_types: false, ..config.clone() };
            samplers.push(DistNeighborSampler::of_relation(Arc::clone(self), position, config)?);
        }
        let relations = Arc::new(DistRelations { graph: Arc::clone(self), samplers });
        Ok(TypedSampler::of_samplers(self.schema().clone(), relations, fanouts, config)?)
    }
}
