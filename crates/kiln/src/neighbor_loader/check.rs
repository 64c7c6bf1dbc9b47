//! Checks that the blocks of a loader suit a model.

use kiln_sample::{EdgeWeights, Fanout, Rule};

use crate::{BatchRequirements, Error, NeighborLoader, Result};

impl NeighborLoader {
    /// Checks that the blocks suit a model; see [`DataLoader::check`](crate::DataLoader::check).
    pub(crate) fn check_sampling(&self, model: &BatchRequirements) -> Result<()> {
        let (n_fanouts, n_layers) = (self.sampling.fanouts.len(), model.n_layers);
        if n_fanouts != n_layers {
            return Err(Error::FanoutsMismatch { n_fanouts, n_layers });
        }
        if model.graph.edge_weights && self.sampling.weights == EdgeWeights::None {
            return Err(Error::NoEdgeWeights);
        }
        if model.graph.metagraph.is_some() || model.graph.widths.is_some() {
            return Err(Error::HeterogeneousModel);
        }
        if let Some(n_relations) = model.graph.n_relations {
            self.check_edge_types(n_relations)?;
        }
        if let Some(expected) = model.graph.d_edge {
            let got = self.edge_feature_store()?.ok_or(Error::NoEdgeFeatures)?.dim();
            if got != expected {
                return Err(Error::EdgeFeatureWidth { expected, got });
            }
        }
        match model.graph.self_loops && !(self.source.has_self_loops() && self.may_keep_self_loops()) {
            true => Err(Error::NoSelfLoops),
            false => Ok(()),
        }
    }

    /// Checks that all edge types are below the number of relations. If the graph has no types, creating the sampler
    /// returns an error.
    fn check_edge_types(&self, n_relations: usize) -> Result<()> {
        if !self.sampling.edge_types {
            return Err(Error::NoEdgeTypes);
        }
        match self.source.n_edge_types()? {
            Some(n_edge_types) if n_relations < n_edge_types => {
                Err(Error::TooManyEdgeTypes { n_edge_types, n_relations })
            }
            _ => Ok(()),
        }
    }

    /// Returns false if the default rule would drop self loops. A rule that the program has set is its own decision.
    fn may_keep_self_loops(&self) -> bool {
        self.has_rule
            || matches!(self.sampling.rule, Rule::UniformKeepSelfLoops)
            || self.sampling.fanouts.iter().all(|fanout| *fanout == Fanout::All)
    }
}
