//! Tests that this crate does not make the mistakes of well-known multi-device training programs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::sync::Mutex;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_comm::Communicator;
use kiln_graph::NodeId;
use kiln_loader::{Shard, StageTimes};
use kiln_nn::ForwardContext;
use kiln_sample::RngKey;
use kiln_train::{DeviceBatch, MetricSums, StepOutput, Task, TaskTrainer, VALIDATION};

use crate::common::{config, data, loader, nodes, ranks, shard, trainer};

/// A model whose parameter has no effect on the loss.
#[derive(Module, Debug)]
struct Zero {
    value: Param<Tensor<1>>,
}

/// A task whose items contain their own loss and correctness.
struct Told;

#[derive(Debug, Clone, Copy)]
struct Item {
    loss: f32,
    is_right: bool,
}

impl Task for Told {
    type Input = Vec<Item>;
    type Model = Zero;
    type Targets = Vec<bool>;

    fn forward(&self, model: &Zero, input: &Vec<Item>, _: &[Tensor<2>], _: &ForwardContext) -> StepOutput {
        let device = model.value.val().device();
        let losses: Vec<f32> = input.iter().map(|item| item.loss).collect();
        let losses = Tensor::<1>::from_data(TensorData::new(losses, [input.len()]), &device);
        let loss_sum = losses.sum() + model.value.val() * 0.0;
        StepOutput { outputs: Tensor::zeros([input.len(), 1], &device), loss_sum, weight: input.len() as f64 }
    }

    fn targets(&self, input: &Vec<Item>) -> Vec<bool> {
        input.iter().map(|item| item.is_right).collect()
    }

    fn count(are_right: &Vec<bool>, _: &Tensor<2>, counts: &mut MetricSums) {
        counts.hits = are_right.iter().filter(|is_right| **is_right).count() as u64;
        counts.total = are_right.len() as u64;
    }
}

fn told(comm: Box<dyn Communicator>) -> TaskTrainer<Told> {
    let init = |_, device: &Device| {
        let value = Tensor::from_data(TensorData::new(vec![0.0_f32], [1]), device);
        Ok(Zero { value: Param::from_tensor(value) })
    };
    TaskTrainer::new(Told, &config(), comm, init).unwrap()
}

fn batch(input: Vec<Item>) -> kiln_loader::Result<DeviceBatch<Vec<Item>>> {
    let (key, times, device) = (RngKey::new(0), StageTimes::default(), Device::flex());
    Ok(DeviceBatch { key, n_items: input.len(), n_bytes: 0, times, device, input })
}

fn items(n_items: usize, loss: f32, is_right: bool) -> Vec<Item> {
    vec![Item { loss, is_right }; n_items]
}

/// Rank 0 has three correct items, rank 1 has a wrong one: the accuracy is 3/4, while the mean of the ranks' accuracies
/// is 1/2.
#[test]
fn accuracies_of_ranks_are_not_averaged() {
    let accuracies = ranks(2).run(|comm| {
        let is_first = comm.rank_info().rank == 0;
        let items = if is_first { items(3, 1.0, true) } else { items(1, 1.0, false) };
        let mut trainer = told(comm);
        let validated = trainer.evaluate([batch(items.clone())], |_, _| ())?;
        let trained = trainer.epoch_of([batch(items)], |_| ())?;
        Ok([validated.accuracy(), trained.counts.accuracy()])
    });
    assert_eq!(accuracies.unwrap(), [[0.75; 2]; 2]);
}

/// The first step has four items of loss 1, the second one item of loss 6 on one rank: the mean loss is 2. The mean
/// over the steps would be 3.5, and the means over each rank's own steps would be 1 and 3.5.
#[test]
fn losses_are_divided_by_seeds_and_not_by_steps() {
    let losses = ranks(2).run(|comm| {
        let last = if comm.rank_info().rank == 0 { Vec::new() } else { items(1, 6.0, false) };
        let batches = || [batch(items(2, 1.0, true)), batch(last.clone())];
        let mut trainer = told(comm);
        let mut steps = Vec::new();
        let trained = trainer.epoch_of(batches(), |step| steps.push(step.counts.loss()))?;
        assert_eq!(steps, [1.0, 6.0]);
        Ok([trained.counts.loss(), trainer.evaluate(batches(), |_, _| ())?.loss()])
    });
    assert_eq!(losses.unwrap(), [[2.0; 2]; 2]);
}

/// The 50 seeds are not divisible by the 3 ranks, but all are used, and each epoch shuffles them across all ranks.
#[test]
fn no_seed_is_dropped_and_all_ranks_are_shuffled_together() {
    let data = data(200);
    let seen = ranks(3).run(|comm| {
        let loader = loader(&data, &nodes(50), 15, shard(&*comm));
        let mut trainer = trainer(&data, comm);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut own = BTreeSet::new();
            let batches = loader.epoch(trainer.next_phase()).inspect(|batch| {
                own.extend(batch.as_ref().unwrap().input.seeds.iter().copied());
            });
            trainer.epoch_of(batches, |_| ())?;
            seen.push(own);
        }
        Ok(seen)
    });
    let seen = seen.unwrap();
    for epoch in 0..4 {
        assert_eq!(seen.iter().map(|rank| rank[epoch].len()).sum::<usize>(), 50);
        let all: BTreeSet<NodeId> = seen.iter().flat_map(|rank| rank[epoch].clone()).collect();
        assert_eq!(all, nodes(50).into_iter().collect());
    }
    // If ranks kept their seeds, a rank would have the same set in all four epochs.
    assert!(seen.iter().all(|rank| rank.iter().collect::<BTreeSet<_>>().len() == 4));
}

/// Each rank evaluates its share of the split, and all get the result of the whole split.
#[test]
fn validation_is_not_repeated_on_every_rank() {
    let data = data(200);
    let val: Vec<NodeId> = (100..151).map(NodeId).collect();
    let validated = ranks(4).run(|comm| {
        let loader = loader(&data, &val, 16, shard(&*comm));
        let mut own = Vec::new();
        let visit = |input: &kiln_train::NodeInput, _: &StepOutput| own.extend_from_slice(&input.seeds);
        let counts = trainer(&data, comm).evaluate(loader.epoch(VALIDATION), visit)?;
        Ok((counts, own))
    });
    let (counts, shares): (Vec<MetricSums>, Vec<Vec<NodeId>>) = validated.unwrap().into_iter().unzip();
    assert!(counts.iter().all(|all| all.total == 51 && *all == counts[0]), "{counts:?}");
    assert!(shares.iter().all(|share| (12..=13).contains(&share.len())), "{shares:?}");
    let mut all = shares.concat();
    all.sort();
    assert_eq!(all, val);

    let alone = ranks(1).run(|comm| {
        let loader = loader(&data, &val, 16, Shard::default());
        Ok(trainer(&data, comm).evaluate(loader.epoch(VALIDATION), |_, _| ())?)
    });
    let alone = alone.unwrap()[0];
    assert_eq!((alone.hits, alone.total), (counts[0].hits, 51));
}

/// Shares of any size, including empty ones, take part in every step. Ranks with different numbers of batches get an
/// error.
#[test]
fn uneven_shares_do_not_deadlock() {
    let data = data(200);
    for n_seeds in [1, 3, 4, 5, 13] {
        let counts = ranks(4).run(|comm| {
            let loader = loader(&data, &nodes(n_seeds), 4, shard(&*comm));
            let mut trainer = trainer(&data, comm);
            let trained = trainer.epoch(&loader, |_| ())?.counts.total;
            Ok([trained, trainer.evaluate(loader.epoch(VALIDATION), |_, _| ())?.total])
        });
        assert_eq!(counts.unwrap(), [[u64::from(n_seeds); 2]; 4]);
    }

    let told_of = Mutex::new(Vec::new());
    let outcome = ranks(2).run(|comm| {
        let n_batches = 2 + comm.rank_info().rank;
        let error =
            told(comm).epoch_of((0..n_batches).map(|_| batch(items(1, 1.0, true))), |_| ()).unwrap_err();
        told_of.lock().unwrap().push(error.to_string());
        Err::<(), _>(error.into())
    });
    outcome.unwrap_err();
    for text in told_of.into_inner().unwrap() {
        assert!(text.contains("ranks called different collectives") && text.contains("in step 2"), "{text}");
    }
}

/// The short last batch contains more nodes than seeds, like the others, and only its seeds are counted.
#[test]
fn a_short_last_batch_scores_only_its_seeds() {
    let data = data(200);
    let steps = ranks(2).run(|comm| {
        let loader = loader(&data, &nodes(23), 10, shard(&*comm));
        let mut trainer = trainer(&data, comm);
        let (mut trained, mut judged) = (Vec::new(), Vec::new());
        trainer.epoch(&loader, |step| trained.push(step.counts.total))?;
        trainer.evaluate(loader.epoch(VALIDATION), |input, forward| {
            assert!(input.seeds.len() < input.x.only().unwrap().dims()[0]);
            judged.push([input.seeds.len(), input.labels.len(), forward.outputs.dims()[0]]);
        })?;
        Ok((trained, judged))
    });
    let judged = |last| vec![[5; 3], [5; 3], [last; 3]];
    assert_eq!(steps.unwrap(), [(vec![10, 10, 3], judged(2)), (vec![10, 10, 3], judged(1))]);
}
