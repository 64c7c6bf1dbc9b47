//! The models of nodes that the flags select, and what they need of a loader.

use anyhow::ensure;
use kiln::nn::GraphRequirements;
use kiln::sample::Rule;
use kiln::train::{ConfigVisitor, NamedModel};
use kiln::{Error, NeighborLoader};

/// A model of nodes with its options.
pub(crate) struct NodeModel {
    model: NamedModel,
    requirements: GraphRequirements,
}

impl NodeModel {
    /// Returns a model after a check of its options.
    pub(crate) fn new(model: NamedModel) -> anyhow::Result<Self> {
        let requirements = model.requirements()?;
        Ok(Self { model, requirements })
    }

    /// Returns the loader with the preparation, the rule and the edge data that the model needs. `rule` is that of models
    /// without a rule of their own.
    pub(crate) fn configure(&self, loader: NeighborLoader, rule: &Rule) -> kiln::Result<NeighborLoader> {
        let mut loader = match &self.requirements {
            requirements if requirements.gcn_norm => loader.gcn_norm()?,
            requirements if requirements.self_loops => loader.add_self_loops()?,
            _ => loader.rule(rule.clone()),
        };
        if self.requirements.n_relations.is_some() {
            loader = loader.edge_types();
        }
        if self.requirements.d_edge.is_some() {
            loader = loader.edge_features();
        }
        Ok(loader)
    }

    /// Checks that the model can be trained on a partitioned graph.
    pub(crate) fn check_partitioned(&self) -> anyhow::Result<()> {
        ensure!(
            !self.requirements.gcn_norm,
            "--model {} normalises over the whole graph: use --data, or another model with partitions",
            self.model.name
        );
        Ok(())
    }

    /// Returns the model with its options.
    #[cfg(test)]
    pub(crate) fn named(&self) -> &NamedModel {
        &self.model
    }

    /// Calls a function on the configuration, such as its training.
    pub(crate) fn visit<T, V: ConfigVisitor<Output = kiln::Result<T>>>(&self, visitor: V) -> kiln::Result<T> {
        self.model.configure(visitor).map_err(|error| Error::Other(error.into()))?
    }
}
