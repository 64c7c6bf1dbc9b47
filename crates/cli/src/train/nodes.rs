//! `kiln train --task node`.

use anyhow::Context;
use kiln::NeighborLoader;
use kiln::feature::TargetKind;
use kiln::nn::{BlockModel, ModelConfig};
use kiln::train::ConfigVisitor;

use super::graph::{RankTraining, TrainingGraph};
use super::run::{Outcome, TrainRun};

impl TrainRun<'_> {
    /// Trains on the nodes of the type that has targets.
    pub(super) fn nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let graph = self.open_graph()?;
        let (kind, n_outputs) = targets_of(&graph, self.args.sampling.task_table.as_deref())?;
        let config = self.configure_nodes(&graph, n_outputs, false)?;
        let objective = self.args.loss.objective(kind)?;
        let (outcomes, shared) = self.train_on(
            &graph,
            |source| {
                let loader = self.node_loader(source, &config)?.objective(objective.clone());
                Ok(match self.args.loss.target_scale {
                    Some(scale) => loader.target_scale(scale),
                    None => loader,
                })
            },
            |training| config.model.visit(training),
        )?;
        if let Some(loader) = shared {
            self.args.device.report(&loader);
        }
        Ok(outcomes)
    }
}

/// Returns the kind of the targets of a graph, or of a task table, and the number of outputs of their model.
fn targets_of(graph: &TrainingGraph, task_table: Option<&str>) -> anyhow::Result<(TargetKind, usize)> {
    let data = match graph {
        TrainingGraph::Whole(opened) => &opened.data,
        // The loader reports partitions without targets.
        TrainingGraph::Partitioned(graph) => {
            let targets = graph.info().targets.as_ref();
            return Ok(targets.map_or((TargetKind::Classes, 0), |targets| (targets.kind, targets.n_outputs)));
        }
    };
    let name = &data.name;
    if let Some(name) = task_table {
        let values = &data.task_table(name)?.targets.values;
        return Ok((values.kind(), values.n_outputs()));
    }
    let targets = data.targets.as_ref().with_context(|| format!("{name} has no targets to train on"))?;
    anyhow::ensure!(
        !targets.split.train.is_empty(),
        "the train split of {name} has no nodes: add at least one, or use --task link to learn its edges"
    );
    Ok((targets.values.kind(), targets.values.n_outputs()))
}

impl ConfigVisitor for RankTraining<'_, NeighborLoader> {
    type Output = kiln::Result<Outcome>;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> Self::Output {
        self.run.fit(&config, self.loader, self.rank, self.traffic)
    }
}
