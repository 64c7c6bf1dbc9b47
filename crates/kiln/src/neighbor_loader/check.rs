//! Checks that the blocks of a loader suit a model.

use kiln_feature::RelationRows;
use kiln_graph::EdgeColumns;
use kiln_nn::GraphRequirements;
use kiln_sample::{EdgeWeights, Fanout, Rule};
use kiln_train::EmbeddingError;

use crate::source::{dims, has_self_loops};
use crate::{BatchRequirements, Error, NeighborLoader, Result};

impl NeighborLoader {
    /// Checks that the blocks suit a model; see [`DataLoader::check`](crate::DataLoader::check).
    pub(crate) fn check_sampling(&self, model: &BatchRequirements) -> Result<()> {
        let (n_fanouts, n_layers) = (self.fanouts.len(), model.n_layers);
        // The model determines the number of layers: if the fanouts did, a typing error would change the model.
        if n_fanouts != n_layers {
            return Err(Error::FanoutsMismatch { n_fanouts, n_layers });
        }
        self.check_custom_samplers(n_layers)?;
        if model.graph.edge_weights && self.sampling.weights == EdgeWeights::None {
            return Err(Error::NoEdgeWeights);
        }
        match self.source.is_heterogeneous() {
            true => self.check_types(model)?,
            false
                if model.graph.metagraph.is_some()
                    || model.graph.widths.is_some() && model.graph.ages.is_none() =>
            {
                return Err(Error::HeterogeneousModel);
            }
            false => {}
        }
        if let Some(n_relations) = model.graph.n_relations {
            self.check_edge_types(n_relations)?;
        }
        self.check_edge_features(&model.graph)?;
        self.check_ages(&model.graph)?;
        match model.graph.self_loops && !(has_self_loops(&*self.source) && self.may_keep_self_loops()) {
            true => Err(Error::NoSelfLoops),
            false => Ok(()),
        }
    }

    /// Checks that blocks have the edge features that the model reads.
    fn check_edge_features(&self, model: &GraphRequirements) -> Result<()> {
        if model.d_edge.is_none() && model.edge_widths.is_none() {
            return Ok(());
        }
        let columns = self.edge_column_stores()?;
        let features = columns.get(EdgeColumns::FEATURES).ok_or(Error::NoEdgeFeatures)?;
        let widths = features.relation_widths();
        match (&model.edge_widths, model.d_edge) {
            (Some(expected), _) if self.source.is_heterogeneous() => {
                match *expected == widths && self.edge_feature_rows == RelationRows::Padded {
                    true => Ok(()),
                    false => Err(Error::EdgeFeatureWidths { expected: expected.clone(), got: widths }),
                }
            }
            (_, Some(expected)) if features.dim() == expected => Ok(()),
            (expected, d_edge) => {
                let expected = expected.clone().unwrap_or_else(|| vec![d_edge]);
                Err(Error::EdgeFeatureWidths { expected, got: widths })
            }
        }
    }

    /// Checks that the model reads the types and relations of a heterogeneous graph, and that no setting needs a graph of one
    /// type.
    fn check_types(&self, model: &BatchRequirements) -> Result<()> {
        if self.feature_cache.is_some() {
            let reason = "the features of several types stay on the host";
            return Err(Error::NeedsOneType { what: "a feature cache", reason });
        }
        let Some(expected) = &model.graph.widths else { return Err(Error::HomogeneousModel) };
        let got = dims(&*self.source);
        if *expected != got {
            let expected = expected.clone();
            return Err(kiln_train::Error::from(EmbeddingError::OtherTypes { expected, got }).into());
        }
        let metagraph = self.source.schema().metagraph();
        match &model.graph.metagraph {
            Some(of_model) if *of_model != metagraph => Err(Error::OtherMetagraph),
            _ => Ok(()),
        }
    }

    /// Checks that all edge types are below the number of relations, because a kernel on a device does not check types;
    /// predictions check it, too. If the graph has no types, creating the sampler returns an error.
    fn check_edge_types(&self, n_relations: usize) -> Result<()> {
        if !self.sampling.edge_types {
            return Err(Error::NoEdgeTypes);
        }
        let n_edge_types = match self.source.is_heterogeneous() {
            true => Some(self.source.schema().relations().len()),
            false => self.source.n_edge_types()?,
        };
        match n_edge_types {
            Some(n_edge_types) if n_relations < n_edge_types => {
                Err(Error::TooManyEdgeTypes { n_edge_types, n_relations })
            }
            _ => Ok(()),
        }
    }

    /// Returns false if the default rule would drop self loops. A rule that the program has set is its own decision.
    fn may_keep_self_loops(&self) -> bool {
        self.samplers.of_all.is_some()
            || self.has_rule && !self.sampling.rule.needs_times()
            || matches!(self.sampling.rule, Rule::UniformKeepSelfLoops)
            || self.fanouts.iter().flatten().all(|fanout| *fanout == Fanout::All)
    }
}
