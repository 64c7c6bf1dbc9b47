//! A model of nodes that the flags select.

use kiln::graph::EdgeColumns;
use kiln::nn::GraphRequirements;
use kiln::sample::{EdgeWeights, Rule};
use kiln::train::{ConfigVisitor, NamedModel};
use kiln::{Error, NeighborLoader};
use kiln_usage::ensure;

/// A model of nodes with its options.
pub(crate) struct NodeModel {
    pub(super) model: NamedModel,
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
        if self.requirements.edge_weights && !self.requirements.gcn_norm {
            loader = loader.edge_weights(EdgeWeights::Stored);
        }
        if self.requirements.edge_widths.is_some() {
            loader = loader.edge_features_by_relation();
        } else if self.requirements.d_edge.is_some() {
            loader = loader.edge_features();
        }
        Ok(if self.requirements.ages.is_some() { loader.ages() } else { loader })
    }

    /// Checks that the edges of a graph have the weights that the model reads. Without weights, a GCN reads those of its
    /// normalisation only.
    pub(crate) fn check_weights(&self, edge_columns: &[Vec<String>]) -> anyhow::Result<()> {
        let are_read = self.requirements.edge_weights && !self.requirements.gcn_norm;
        let mut columns = edge_columns.iter().flatten();
        ensure!(
            !are_read || columns.any(|column| column == EdgeColumns::WEIGHTS),
            "--edge-weighting needs data whose edges have weights: remove it, or add weights"
        );
        Ok(())
    }

    /// Checks that the model can be trained on a partitioned graph.
    pub(crate) fn check_partitioned(&self) -> anyhow::Result<()> {
        check_partitioned(&self.model.name, &self.requirements)
    }

    /// Calls a function on the configuration, such as its training.
    pub(crate) fn visit<T, V: ConfigVisitor<Output = kiln::Result<T>>>(&self, visitor: V) -> kiln::Result<T> {
        self.model.configure(visitor).map_err(|error| Error::Other(error.into()))?
    }
}

/// Checks that a model with these requirements can be trained on a partitioned graph.
pub(super) fn check_partitioned(name: &str, requirements: &GraphRequirements) -> anyhow::Result<()> {
    ensure!(
        !requirements.gcn_norm,
        "--model {name} normalises over the whole graph: use --data, or another model with partitions"
    );
    Ok(())
}
