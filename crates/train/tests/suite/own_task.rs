//! A task of one's own implements three methods: it trains, is evaluated and runs as the built-in one whose formula it has.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::Tensor;
use kiln_nn::{ClassLoss, ForwardContext, Sage};
use kiln_train::{
    FitConfig, MetricSums, NodeClassification, NodeInput, Outcome, RunConfig, RunDir, StepOutput, Task,
    TaskTrainer, VALIDATION, weights_to_bytes,
};

use crate::common::{NodeLoader, config, data, loader, ranks, sage, shard};

/// Node classification by cross entropy.
struct OwnTask;

impl Task for OwnTask {
    type Input = NodeInput;
    type Model = Sage;
    type Targets = Vec<i32>;

    fn forward(&self, model: &Sage, input: &NodeInput, _: &[Tensor<2>], ctx: &ForwardContext) -> StepOutput {
        let outputs = input.outputs(model, &[], ctx);
        let loss = ClassLoss::default().sum(outputs.clone(), &input.labels);
        StepOutput { outputs, loss_sum: loss.sum, weight: loss.weight }
    }

    fn targets(&self, input: &NodeInput) -> Vec<i32> {
        input.labels.clone()
    }

    fn count(targets: &Vec<i32>, outputs: &Tensor<2>, counts: &mut MetricSums) {
        let [n_items, n_classes] = outputs.dims();
        let outputs = kiln_kernels::to_vec_f32(outputs.clone());
        for (row, class) in outputs.chunks_exact(n_classes).zip(targets) {
            counts.hits += u64::from(row.iter().all(|output| *output <= row[*class as usize]));
        }
        counts.total = n_items as u64;
    }
}

#[test]
fn it_has_the_weights_and_numbers_of_the_built_in_task() {
    let data = data(240);
    let of_ranks = ranks(2).run(|comm| {
        let shard = shard(&*comm);
        let [train, val] =
            [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, shard));
        let mut comm = comm;
        let model = || sage(&data, [0.1, 0.5]);
        let mut own = TaskTrainer::new(OwnTask, &config(), comm.duplicate("own")?, |_, _| Ok(model()))?;
        let mut built_in = TaskTrainer::new(NodeClassification::new(), &config(), comm, |_, _| Ok(model()))?;
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let trained = [own.epoch(&train, |_| ())?.counts, built_in.epoch(&train, |_| ())?.counts];
            let evaluated = [
                own.evaluate(val.epoch(VALIDATION), |_, _| ())?,
                built_in.evaluate(val.epoch(VALIDATION), |_, _| ())?,
            ];
            numbers.extend([trained, evaluated]);
        }
        Ok((numbers, [weights_to_bytes(own.model())?, weights_to_bytes(built_in.model())?]))
    });
    for (numbers, weights) in of_ranks.unwrap() {
        assert!(numbers.iter().all(|[own, built_in]| own == built_in && 0 < own.total), "{numbers:?}");
        assert_eq!(weights[0], weights[1]);
    }
}

#[test]
fn a_run_of_it_keeps_the_best_epoch() {
    let (data, folder) = (data(240), tempfile::tempdir().unwrap());
    let outcomes = ranks(1).run(|comm| {
        let shard = shard(&*comm);
        let [train, val] =
            [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, shard));
        let trainer = TaskTrainer::new(OwnTask, &config(), comm, |_, _| Ok(sage(&data, [0.1, 0.5])))?;
        let fit = FitConfig { n_epochs: 2, patience: None, checkpoint_every: None };
        let run = RunConfig::new(RunDir::New(folder.path().to_owned()), fit);
        let validate = |trainer: &mut TaskTrainer<OwnTask>, val: &NodeLoader, phase| {
            trainer.evaluate(val.epoch(phase), |_, _| ())
        };
        match run.fit(trainer, &train, &val, validate, &mut ())? {
            Outcome::Trained(trained) => Ok(trained.run().best()?.clone()),
            Outcome::Interrupted(_) => panic!("no one has asked the run to stop"),
        }
    });
    let best = outcomes.unwrap().remove(0);
    assert_eq!(best.val.total as usize, data.split().val.len());
    assert!(folder.path().join("best.safetensors").exists());
}
