use std::sync::Arc;

use kiln_sample::{Fanout, FrontierSampler, HeteroNeighborSampler, SamplerConfig};

use crate::client::sampler::DistRelations;
use crate::{DistGraph, DistNeighborSampler, Error, Result};

impl DistGraph {
    /// Returns a sampler of all relations of the graph, heterogeneous or not. For the same key its blocks are bit-identical to
    /// those of a [`HeteroNeighborSampler`] of the whole graph. `fanouts[layer][relation]` is the number of edges to pick, input layer
    /// first; the own fanouts of `config` are ignored. A hop sends the requests of all relations together.
    ///
    /// # Errors
    /// Returns [`kiln_sample::FanoutsError::RelationFanouts`] unless each layer has one fanout per relation, the errors of
    /// [`SamplerConfig::relation_configs`], and [`Error::BadRule`] if a server does not know the name of the rule.
    pub fn hetero_sampler(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
    ) -> Result<HeteroNeighborSampler> {
        self.hetero_sampler_before(fanouts, config, None)
    }

    /// Returns a sampler like [`DistGraph::hetero_sampler`] that leaves out the edges that were not known before a time
    /// ([`DistNeighborSampler::cut_at`]).
    ///
    /// # Errors
    /// Returns the errors of [`DistGraph::hetero_sampler`].
    pub fn hetero_sampler_before(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
        time: Option<i64>,
    ) -> Result<HeteroNeighborSampler> {
        self.hetero_sampler_of(fanouts, config, |_, _, sampler| Ok(sampler.cut_at(time)))
    }

    /// Returns a sampler like [`DistGraph::hetero_sampler`] that samples the local nodes of each relation with a sampler of your
    /// own, for example on a device ([`DistNeighborSampler::with_local_sampler`]). `own` returns that of a relation with this
    /// configuration, whose fanouts are not used, because each hop states its own.
    ///
    /// # Errors
    /// Returns the errors of `own`, [`DistGraph::hetero_sampler`] and [`DistNeighborSampler::with_local_sampler`].
    pub fn hetero_sampler_with_local<S: FrontierSampler + 'static, E: From<Error>>(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
        own: impl Fn(usize, &SamplerConfig) -> std::result::Result<S, E>,
    ) -> std::result::Result<HeteroNeighborSampler, E> {
        self.hetero_sampler_with_local_before(fanouts, config, None, own)
    }

    /// Returns a sampler like [`DistGraph::hetero_sampler_with_local`] that leaves out the edges that were not known before a time,
    /// as `own` does.
    ///
    /// # Errors
    /// Returns the errors of [`DistGraph::hetero_sampler_with_local`].
    pub fn hetero_sampler_with_local_before<S: FrontierSampler + 'static, E: From<Error>>(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
        time: Option<i64>,
        own: impl Fn(usize, &SamplerConfig) -> std::result::Result<S, E>,
    ) -> std::result::Result<HeteroNeighborSampler, E> {
        self.hetero_sampler_of(fanouts, config, |relation, config, sampler| {
            Ok(sampler.cut_at(time).with_local_sampler(own(relation, config)?)?)
        })
    }

    /// Returns a sampler of all relations, of which `prepare` prepares each.
    fn hetero_sampler_of<E: From<Error>>(
        self: &Arc<Self>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
        prepare: impl Fn(
            usize,
            &SamplerConfig,
            DistNeighborSampler,
        ) -> std::result::Result<DistNeighborSampler, E>,
    ) -> std::result::Result<HeteroNeighborSampler, E> {
        let schema = self.schema();
        let are_weighted: Vec<bool> =
            (0..schema.relations().len()).map(|position| self.relation(position).has_weights).collect();
        let configs = config.relation_configs(schema, &are_weighted).map_err(Error::from)?;
        let mut samplers = Vec::new();
        for (position, of_relation) in configs.into_iter().enumerate() {
            let sampler = DistNeighborSampler::of_relation(Arc::clone(self), position, of_relation.clone())?;
            samplers.push(prepare(position, &of_relation, sampler)?);
        }
        let relations = Arc::new(DistRelations { graph: Arc::clone(self), samplers });
        let sampler = HeteroNeighborSampler::of_samplers(schema.clone(), relations, fanouts, config);
        Ok(sampler.map_err(Error::from)?.with_weighted(are_weighted))
    }
}
