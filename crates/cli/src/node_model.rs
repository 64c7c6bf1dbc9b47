//! The models of nodes of a homogeneous graph that the flags select, and what they need of a loader.

use anyhow::ensure;
use kiln::NeighborLoader;
use kiln::nn::{EdgeInput, GatConfig, GcnConfig, GineConfig, RgcnConfig, SageConfig};
use kiln::sample::Rule;

/// Evaluates an expression with the configuration in a variant of an enum, whose type differs between the variants.
macro_rules! with_config {
    ($model:ident { $($variant:ident),+ }, $value:expr, $config:ident => $body:expr) => {
        match $value {
            $($model::$variant($config) => $body),+
        }
    };
}

pub(crate) use with_config;

/// The configuration of a model for node classification.
pub(crate) enum NodeModel {
    Sage(SageConfig),
    Gcn(GcnConfig),
    Gat(GatConfig),
    Rgcn(RgcnConfig),
    Gine(GineConfig),
}

impl NodeModel {
    /// Returns the loader with the preparation, the rule and the edge data that the model needs. `rule` is that of models
    /// without a rule of their own.
    pub(crate) fn configure(&self, loader: NeighborLoader, rule: &Rule) -> kiln::Result<NeighborLoader> {
        match self {
            Self::Sage(_) => Ok(loader.rule(rule.clone())),
            Self::Gcn(_) => loader.gcn_norm(),
            Self::Gat(_) => loader.add_self_loops(),
            Self::Rgcn(_) => Ok(loader.rule(rule.clone()).edge_types()),
            Self::Gine(config) => Ok(match config.edges {
                EdgeInput::Features(_) => loader.rule(rule.clone()).edge_features(),
                EdgeInput::Types(_) => loader.rule(rule.clone()).edge_types(),
            }),
        }
    }

    /// Checks that the model can be trained on a partitioned graph.
    pub(crate) fn check_partitioned(&self) -> anyhow::Result<()> {
        ensure!(
            !matches!(self, Self::Gcn(_)),
            "--model gcn normalises over the whole graph: use --data, or another model with partitions"
        );
        Ok(())
    }
}
