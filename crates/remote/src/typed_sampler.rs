use std::sync::Arc;

use kiln_graph::RelationSchema;
use kiln_sample::{EdgeWeights, Fanout, FrontierSampler, SamplerConfig, TypedSampler};

use crate::{DistGraph, DistNeighborSampler, Result};

impl DistGraph {
    /// Returns a sampler of all relations of the graph, heterogeneous or not. For the same key its blocks are bit-identical to
    /// those of a [`TypedSampler`] of the whole graph. `fanouts[layer][relation]` is the number of edges to pick, input layer
    /// first; the own fanouts of `config` are ignored. Each hop requests the edges of one relation after another.
    ///
    /// # Errors
    /// Returns [`kiln_sample::Error::RelationFanouts`] unless each layer has one fanout per relation,
    /// [`kiln_sample::Error::NoRelationWeights`] if edge weights are configured and a relation has none, and
    /// [`Error::BadRule`] if a server does not know the name of the rule.
    pub fn typed_sampler(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
    ) -> Result<TypedSampler> {
        let of_relation = |(position, relation): (usize, &RelationSchema)| -> Result<_> {
            if config.weights != EdgeWeights::None && !self.has_weights(position) {
                let relation = relation.name.clone();
                return Err(kiln_sample::Error::NoRelationWeights { relation }.into());
            }
            let config = SamplerConfig { edge_types: false, ..config.clone() };
            let sampler = DistNeighborSampler::of_relation(Arc::clone(self), position, config)?;
            Ok(Arc::new(sampler) as Arc<dyn FrontierSampler>)
        };
        let samplers =
            self.schema().relations().iter().enumerate().map(of_relation).collect::<Result<_>>()?;
        Ok(TypedSampler::of_samplers(self.schema().clone(), samplers, fanouts, config)?)
    }
}
