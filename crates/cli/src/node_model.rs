//! The models of nodes that the flags select, what they need of a loader, and their training.

use anyhow::ensure;
use kiln::nn::{BlockModel, GraphRequirements, LinkDecoderConfig, LinkModelConfig, ModelConfig};
use kiln::sample::Rule;
use kiln::train::{ConfigVisitor, DataHash, NamedModel, TrainCallback};
use kiln::{Error, LinkNeighborLoader, NeighborLoader, RankHandle};

use crate::train::{Outcome, TrainRun};

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

    /// Trains the model.
    pub(crate) fn fit<V>(&self, training: V) -> kiln::Result<Outcome>
    where
        V: ConfigVisitor<Output = kiln::Result<Outcome>>,
    {
        self.model.configure(training).map_err(|error| Error::Other(error.into()))?
    }
}

/// The training of a model of nodes on one rank.
pub(crate) struct NodeTraining<'a, L, T> {
    pub(crate) run: &'a TrainRun<'a>,
    pub(crate) loader: &'a L,
    pub(crate) rank: &'a RankHandle,
    pub(crate) hash: &'a DataHash,
    pub(crate) callback: T,
}

impl<T: TrainCallback + 'static> ConfigVisitor for NodeTraining<'_, NeighborLoader, T> {
    type Output = kiln::Result<Outcome>;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> Self::Output {
        self.run.fit(&config, self.loader, self.rank, self.hash, self.callback)
    }
}

/// The training of a model of links on one rank, whose encoder is a model of nodes.
pub(crate) struct LinkTraining<'a, T> {
    pub(crate) nodes: NodeTraining<'a, LinkNeighborLoader, T>,
    pub(crate) decoder: LinkDecoderConfig,
}

impl<T: TrainCallback + 'static> ConfigVisitor for LinkTraining<'_, T> {
    type Output = kiln::Result<Outcome>;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, encoder: C) -> Self::Output {
        let NodeTraining { run, loader, rank, hash, callback } = self.nodes;
        run.fit(&LinkModelConfig { encoder, decoder: self.decoder }, loader, rank, hash, callback)
    }
}
