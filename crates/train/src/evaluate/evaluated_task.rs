use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use kiln_feature::TargetKind;
use kiln_graph::{ItemId, LinkId, NodeId};
use kiln_loader::{Batcher, Loader, Phase};
use kiln_nn::{BlockModel, LinkModel, Mode};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::error::Result;
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::evaluator::ExactEvaluator;
use crate::evaluate::pair_scores::pair_outputs;
use crate::step::batch::DeviceBatch;
use crate::step::task::link::{LinkInput, LinkTask};
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::negatives::NegativeCounts;
use crate::step::task::node::{NodeInput, NodeTask};
use crate::step::task::task_objective::TaskObjective;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;

/// A task on the nodes or the links of a graph, whose outputs an [`Evaluator`](crate::Evaluator) collects.
pub trait EvaluatedTask: Task + Sized {
    /// The items of the task.
    type Item: ItemId;

    /// The model of nodes.
    type Encoder: BlockModel + Sync;

    /// Returns the model of nodes, of which exact evaluation computes the rows of all nodes.
    fn encoder(model: &Self::Model) -> &Self::Encoder;

    /// Returns the objective.
    fn objective(&self) -> &TaskObjective;

    /// Appends a batch to an evaluation.
    fn collect(evaluation: &mut Evaluation, input: &Self::Input, forward: &StepOutput);

    /// Returns the outputs for the loader's items in this phase, computed with all neighbours on this rank.
    ///
    /// # Errors
    /// Returns the errors of [`LayerWiseInference::outputs`](crate::LayerWiseInference::outputs) and of the loader.
    fn evaluate_exactly<F>(
        exact: &ExactEvaluator,
        trainer: &mut TaskTrainer<Self>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<Evaluation>
    where
        F: Batcher<Item = Self::Item, Batch = DeviceBatch<Self::Input>>;

    /// Returns the metric sums of [`EvaluatedTask::evaluate_exactly`].
    ///
    /// # Errors
    /// Returns the errors of [`EvaluatedTask::evaluate_exactly`] and [`Evaluation::counts`].
    fn count_exactly<F>(
        exact: &ExactEvaluator,
        trainer: &mut TaskTrainer<Self>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<MetricSums>
    where
        F: Batcher<Item = Self::Item, Batch = DeviceBatch<Self::Input>>,
    {
        Self::evaluate_exactly(exact, trainer, loader, phase)?.counts()
    }
}

impl<M: BlockModel + Sync> EvaluatedTask for NodeTask<M> {
    type Item = NodeId;
    type Encoder = M;

    fn encoder(model: &M) -> &M {
        model
    }

    fn objective(&self) -> &TaskObjective {
        self.objective()
    }

    fn collect(evaluation: &mut Evaluation, input: &NodeInput, forward: &StepOutput) {
        evaluation.add_batch(&input.seeds, &input.labels, &input.target_values, forward);
    }

    fn evaluate_exactly<F>(
        exact: &ExactEvaluator,
        trainer: &mut TaskTrainer<Self>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<Evaluation>
    where
        F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>,
    {
        let (outputs, nodes) = exact.outputs_of_targets(trainer, loader.items().items(), phase)?;
        Evaluation::of_targets(&outputs, &nodes, exact.targets.targets(), trainer.task.objective())
    }

    /// Does not hold the output rows of all nodes in memory at once.
    fn count_exactly<F>(
        exact: &ExactEvaluator,
        trainer: &mut TaskTrainer<Self>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<MetricSums>
    where
        F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>,
    {
        let (outputs, nodes) = exact.outputs_of_targets(trainer, loader.items().items(), phase)?;
        Evaluation::count_targets(&outputs, &nodes, exact.targets.targets(), trainer.task.objective())
    }
}

impl<M: BlockModel + Sync> EvaluatedTask for LinkTask<M> {
    type Item = LinkId;
    type Encoder = M;

    fn encoder(model: &LinkModel<M>) -> &M {
        &model.encoder
    }

    fn objective(&self) -> &TaskObjective {
        self.objective()
    }

    fn collect(evaluation: &mut Evaluation, input: &LinkInput, forward: &StepOutput) {
        if evaluation.kind() != TargetKind::Links {
            return evaluation.add_batch(&input.links, &input.labels, &input.target_values, forward);
        }
        let [srcs, dsts] = input.link_nodes();
        evaluation.add_links(&input.links, &srcs, &dsts, forward);
    }

    /// Computes the encoder's rows of all nodes, and the outputs of the pairs of the loader's batches. The neighbours that the
    /// loader samples are not read.
    fn evaluate_exactly<F>(
        exact: &ExactEvaluator,
        trainer: &mut TaskTrainer<Self>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<Evaluation>
    where
        F: Batcher<Item = LinkId, Batch = DeviceBatch<LinkInput>>,
    {
        let rows = exact.outputs(trainer, phase)?;
        let decoder = trainer.model().decoder.valid();
        let mut evaluation = Evaluation::new(trainer.task.objective().clone());
        trainer.eval_negatives = NegativeCounts::default();
        let n_links = loader.items().items().len() as u64;
        let progress = Progress::start("evaluating links", ProgressUnit::Links, n_links);
        for batch in loader.epoch(phase) {
            let DeviceBatch { input, .. } = batch?;
            if input.links.is_empty() {
                continue;
            }
            trainer.eval_negatives += Self::negatives(&input);
            // The nodes of a batch are numbered within their types, the rows in the graph.
            let [first_src, first_dst] = exact.first_ends;
            let id_of = |position: &u32, first: u32| NodeId(input.nodes.seeds[*position as usize].0 + first);
            let srcs: Vec<NodeId> = input.srcs.iter().map(|position| id_of(position, first_src)).collect();
            let dsts: Vec<NodeId> = input.dsts.iter().map(|position| id_of(position, first_dst)).collect();
            let device = &trainer.device().clone().inner();
            let objective = trainer.task.objective();
            let edges = input.features.as_ref();
            let outputs = pair_outputs(&decoder, &rows, &srcs, &dsts, edges, device)?;
            // Those of links are one score per pair.
            let width = outputs.len() / input.links.len();
            let outputs = Tensor::from_data(TensorData::new(outputs, [input.links.len(), width]), device);
            let forward = objective.forward(outputs, &input.labels, &input.target_values, Mode::Eval);
            Self::collect(&mut evaluation, &input, &forward);
            progress.advance(input.links.len() as u64);
        }
        Ok(evaluation)
    }
}
