//! `kiln train --task graph`.

use std::sync::Arc;

use kiln::GraphLoader;
use kiln::data::{GraphDataset, Split};
use kiln::feature::FeatureStore;
use kiln::graph::GraphId;

use super::run::{Outcome, TrainArgs, TrainRun};

impl TrainRun<'_> {
    /// Trains on the graphs of a set.
    pub(super) fn graphs(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, ranks, .. } = self.args;
        let (graphs, split) = data.data.load_graphs()?;
        let features = graphs.node_features(data.node_features)?;
        let model = model.build_graph_model((features.dim(), graphs.targets().n_outputs()))?;
        let split = match split {
            Some(split) => split,
            None => Split::random(graphs.n_graphs(), [0.8, 0.1], ranks.seed)?,
        };
        let loader = self.graph_loader(&graphs, features, &split)?;
        self.launch(|rank| self.fit(&model, &loader, &rank, ()))
    }

    /// Returns a loader of graphs with these node features.
    pub(super) fn graph_loader(
        &self,
        graphs: &GraphDataset,
        features: Arc<dyn FeatureStore>,
        split: &Split<GraphId>,
    ) -> anyhow::Result<GraphLoader> {
        let TrainArgs { ranks, loss, .. } = self.args;
        let loader = GraphLoader::new(graphs, features, split)
            .node_features(self.args.data.node_features)
            .batches(ranks.batches(true));
        let mut loader = loader.objective(loss.objective(graphs.targets().kind())?);
        if let Some(scale) = loss.target_scale {
            loader = loader.target_scale(scale);
        }
        Ok(match ranks.workers {
            Some(workers) => loader.workers(workers),
            None => loader,
        })
    }
}
