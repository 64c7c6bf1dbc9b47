//! Tests that the evaluators for node classifiers on several ranks give equal results for the same nodes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_comm::Communicator;
use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_loader::{Loader, LoaderConfig, NodeBatcher};
use kiln_nn::Sage;
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    BatchConfig, DeviceBatcher, Error, Evaluator, ExactEvaluator, LayerWiseConfig, LayerWiseInference,
    Metric, MetricSums, NodeClassification, Prediction, TEST, TaskTrainer, TrainerError, VALIDATION,
};

use crate::common::{data, ranks, trainer};

/// The tolerance for sums of a few dozen numbers of about 1, which are added in two orders.
const TOLERANCE: f64 = 1e-4;

type SageTrainer = TaskTrainer<NodeClassification<Sage>>;
type AllNeighbors = Loader<DeviceBatcher<NodeBatcher<NeighborSampler>>>;

/// Returns a loader of batches of 10 nodes per rank with all their neighbours, so that sampled evaluation is also
/// exact.
fn loader(data: &Dataset, evaluator: &Evaluator, trainer: &SageTrainer, nodes: &[NodeId]) -> AllNeighbors {
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::All; 2]);
    let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
    let batches = BatchConfig { batch_size: 10, ..BatchConfig::default() };
    let items = evaluator.items(trainer, nodes, batches).unwrap();
    trainer.loader(items, batcher, LoaderConfig::default()).unwrap()
}

fn exact(data: &Dataset, n_ranks: usize) -> Evaluator {
    Evaluator::Exact(ExactEvaluator {
        test_inference: None,
        inference: LayerWiseInference::new(data.graph.clone(), LayerWiseConfig::default()).unwrap(),
        features: data.node_features().unwrap().clone().into(),
        targets: data.targets.as_ref().unwrap().values.clone().into(),
        first_ends: [0; 2],
        threads: Arc::new(ranks(n_ranks).machine_pool().unwrap()),
    })
}

/// Returns the ranks' metric sums on the test nodes, and rank 0's predictions for them.
fn judge(data: &Dataset, evaluator: &Evaluator, n_ranks: usize) -> (MetricSums, Vec<Prediction>) {
    let judged = ranks(n_ranks).run(|comm: Box<dyn Communicator>| {
        let mut trainer = trainer(data, comm);
        let loader = loader(data, evaluator, &trainer, &data.split().test);
        let counts = evaluator.count(&mut trainer, &loader, TEST)?;
        let evaluation = evaluator.evaluate(&mut trainer, &loader, TEST)?.gather(trainer.comm())?;
        Ok((counts, evaluation.predictions()))
    });
    let mut judged = judged.unwrap();
    assert!(judged.iter().all(|(counts, _)| *counts == judged[0].0), "{judged:?}");
    assert!(judged[1..].iter().all(|(_, predictions)| predictions.is_empty()));
    judged.remove(0)
}

#[test]
fn all_evaluators_return_equal_counts_and_predictions() {
    let data = data(300);
    let (expected, predictions) = judge(&data, &Evaluator::Sampled, 1);
    assert_eq!(predictions.len(), data.split().test.len());
    for n_ranks in [1, 3] {
        let first = Evaluator::FirstRank { n_batches: usize::MAX };
        for evaluator in [Evaluator::Sampled, first, exact(&data, n_ranks)] {
            let (counts, predicted) = judge(&data, &evaluator, n_ranks);
            let exact_parts = |counts: MetricSums| (counts.hits, counts.total, counts.weight);
            assert_eq!(exact_parts(counts), exact_parts(expected), "{n_ranks} ranks, {evaluator:?}");
            assert!((counts.loss() - expected.loss()).abs() < TOLERANCE, "{n_ranks} ranks, {evaluator:?}");
            assert_eq!(predicted, predictions, "{n_ranks} ranks, {evaluator:?}");
        }
    }
}

#[test]
fn first_rank_evaluator_limits_the_batches_of_count_but_not_of_evaluate() {
    let data = data(300);
    let (counts, predictions) = judge(&data, &Evaluator::FirstRank { n_batches: 2 }, 2);
    assert_eq!((counts.total, predictions.len()), (20, data.split().test.len()));
}

/// Every metric is computed on the nodes that the accuracy is computed on, and equal on all ranks.
#[test]
fn evaluators_validate_by_any_metric_on_the_nodes_that_they_count() {
    let data = data(300);
    let first = |n_batches| Evaluator::FirstRank { n_batches };
    for (evaluator, n_nodes) in
        [(Evaluator::Sampled, None), (first(usize::MAX), None), (first(2), Some(20)), (exact(&data, 2), None)]
    {
        let validations = ranks(2).run(|comm| {
            let mut trainer = trainer(&data, comm);
            let loader = loader(&data, &evaluator, &trainer, &data.split().test);
            let validate = |metric, trainer: &mut _| evaluator.validate(trainer, &loader, TEST, metric);
            Ok([Metric::Accuracy, Metric::F1Micro].map(|metric| validate(metric, &mut trainer).unwrap()))
        });
        let validations = validations.unwrap();
        assert_eq!(validations[0], validations[1], "{evaluator:?}");
        let [accuracy, f1] = &validations[0];
        assert_eq!(f1.sums.total, n_nodes.unwrap_or(data.split().test.len() as u64), "{evaluator:?}");
        // Each node has one label and one prediction, so both metrics count the same.
        assert_eq!((f1.sums.hits, f1.value), (accuracy.sums.hits, accuracy.value), "{evaluator:?}");
    }
}

#[test]
fn rejects_a_loader_of_another_share() {
    let data = data(300);
    let errors = ranks(2).run(|comm| {
        let mut trainer = trainer(&data, comm);
        let (sampled, first) = (Evaluator::Sampled, Evaluator::FirstRank { n_batches: 1 });
        let of = |evaluator: &Evaluator, trainer: &SageTrainer| {
            loader(&data, evaluator, trainer, &data.split().val)
        };
        let (own, all) = (of(&sampled, &trainer), of(&first, &trainer));
        let refused = [
            sampled.count(&mut trainer, &all, VALIDATION).unwrap_err(),
            first.count(&mut trainer, &own, VALIDATION).unwrap_err(),
        ];
        assert!(
            refused.iter().all(|error| matches!(error, Error::Trainer(TrainerError::OtherLoader { .. }))),
            "{refused:?}"
        );
        Ok(refused.map(|error| error.to_string()))
    });
    let [of_all, of_own] = &errors.unwrap()[1];
    assert!(of_all.contains("rank 0 of 1, expected the share of rank 1 of 2"), "{of_all}");
    assert!(of_own.contains("rank 1 of 2, expected the share of rank 0 of 1"), "{of_own}");
}

#[test]
fn exact_evaluation_reports_its_memory() {
    let data = data(300);
    let mut trainer = trainer(&data, Box::new(kiln_comm::SingleRank));
    let evaluator = exact(&data, 1);
    let loader = loader(&data, &evaluator, &trainer, &data.split().val);
    evaluator.count(&mut trainer, &loader, VALIDATION).unwrap();
    let Evaluator::Exact(ExactEvaluator { inference, .. }) = &evaluator else { unreachable!("made above") };
    assert_eq!(trainer.peak_memory(), inference.peak_memory());
}
