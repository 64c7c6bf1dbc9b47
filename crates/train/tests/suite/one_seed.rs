//! Tests that a trainer's model, loaders and runs have the trainer's seed, device and epoch number.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::Device;
use kiln_comm::SingleRank;
use kiln_loader::{ItemSampler, ItemSamplerConfig, LoaderConfig, NodeBatcher, Phase, Shard};
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    BatchConfig, Error, FitConfig, LrSchedule, NodeClassification, OptimizerConfig, Run, RunFolder,
    RunIdentity, TaskTrainer, TrainerConfig, TrainerError, VALIDATION, fit, weights_to_bytes,
};

use crate::common::{config, data, loader, nodes, ranks, sage, shard, trainer};

/// Items that the trainer creates have its seed and its rank's share.
#[test]
fn item_sampler_of_a_trainer_has_its_seed_and_shard() {
    let data = data(100);
    let configs = ranks(2).run(|comm| {
        let trainer = trainer(&data, comm);
        let batches = BatchConfig { batch_size: 7, drop_last: true, ..BatchConfig::default() };
        let items = trainer.items(nodes(50), batches)?;
        Ok((*items.config(), trainer.seed()))
    });
    for (rank, (config, seed)) in configs.unwrap().into_iter().enumerate() {
        let shard = Shard { rank, world_size: 2 };
        let expected =
            ItemSamplerConfig { batch_size: 7, drop_last: true, seed: 1, shard, ..Default::default() };
        assert_eq!((config, seed), (expected, 1));
    }
}

#[test]
fn rejects_a_loader_of_another_seed_or_share() {
    let data = data(100);
    let sampler = || NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::UpTo(3); 2]);
    let batcher = || NodeBatcher::new(sampler().into(), data.node_features().unwrap().clone(), data.labels());
    let mut trainer = trainer(&data, Box::new(SingleRank));
    let items = |seed, shard| {
        let config = ItemSamplerConfig { batch_size: 10, seed, shard, ..Default::default() };
        ItemSampler::new(nodes(50), config).unwrap()
    };
    let error = trainer.loader(items(2, Shard::default()), batcher(), LoaderConfig::default()).unwrap_err();
    assert!(error.to_string().contains("belong to seed 2, expected seed 1"), "{error}");
    let half = Shard { rank: 1, world_size: 2 };
    let error = trainer.epoch(&loader(&data, &nodes(50), 10, half), |_| ()).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::OtherLoader { .. })), "{error}");
    assert!(error.to_string().contains("rank 1 of 2, expected the share of rank 0 of 1"), "{error}");
    assert_eq!(trainer.n_epochs(), 0);
}

#[test]
fn rejects_a_model_without_autodiff() {
    let data = data(100);
    let model = |_, device: &Device| sage_on(&data, &device.clone().inner());
    let error =
        TaskTrainer::new(NodeClassification::new(), &config(), Box::new(SingleRank), model).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::ModelDevice { .. })), "{error}");
    assert!(error.to_string().contains("with autodiff"), "{error}");
}

fn sage_on(data: &kiln_data::Dataset, device: &Device) -> kiln_nn::Result<kiln_nn::Sage> {
    let config = kiln_nn::SageConfig {
        d_in: data.node_features().unwrap().dim(),
        hidden: 4,
        n_classes: data.labels().n_classes(),
        n_layers: 2,
        aggregate: kiln_nn::Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.0,
        ..kiln_nn::SageConfig::new(data.node_features().unwrap().dim(), data.labels().n_classes())
    };
    config.init(kiln_sample::RngKey::new(1), device)
}

/// An epoch counted by the trainer equals one that is numbered by hand.
#[test]
fn a_trainer_counts_its_epochs() {
    let data = data(200);
    let optimizer =
        OptimizerConfig { schedule: LrSchedule::step(1, 0.5), ..OptimizerConfig::adam(0.01, 0.0) };
    let config = TrainerConfig { optimizer, ..config() };
    let trainer = || {
        let model = |_, _: &Device| Ok(sage(&data, [0.0, 0.5]));
        TaskTrainer::new(NodeClassification::new(), &config, Box::new(SingleRank), model).unwrap()
    };
    let loader = loader(&data, &nodes(90), 30, Shard::default());
    let (mut counted, mut by_hand) = (trainer(), trainer());
    for epoch in 0..3 {
        assert_eq!((counted.n_epochs(), counted.next_phase()), (epoch, Phase::Train { epoch: epoch as u64 }));
        counted.epoch(&loader, |_| ()).unwrap();
        by_hand.epoch_of(loader.epoch(Phase::Train { epoch: epoch as u64 }), |_| ()).unwrap();
    }
    assert_eq!(weights_to_bytes(counted.model()).unwrap(), weights_to_bytes(by_hand.model()).unwrap());
    assert_eq!(trainer().with_epoch(5).next_phase(), Phase::Train { epoch: 5 });
}

/// An epoch whose first step was run by hand continues at the second.
#[test]
fn epoch_continues_a_partly_trained_epoch() {
    let data = data(200);
    let loader = loader(&data, &nodes(90), 30, Shard::default());
    let mut whole = trainer(&data, Box::new(SingleRank));
    let expected = whole.epoch(&loader, |_| ()).unwrap();
    let mut continued = trainer(&data, Box::new(SingleRank));
    let mut batches = loader.epoch(continued.next_phase());
    assert!(continued.step(&mut batches, |_| ()).unwrap());
    drop(batches);
    let report = continued.epoch(&loader, |_| ()).unwrap();
    assert_eq!((report.n_steps, report.counts), (expected.n_steps, expected.counts));
    assert_eq!(continued.n_epochs(), 1);
    assert_eq!(weights_to_bytes(continued.model()).unwrap(), weights_to_bytes(whole.model()).unwrap());
}

#[test]
fn rejects_a_trainer_at_another_epoch_than_the_run() {
    let (data, folder) = (data(200), tempfile::tempdir().unwrap());
    let done = ranks(1).run(|comm| {
        let train = loader(&data, &nodes(90), 30, shard(&*comm));
        let mut trainer = trainer(&data, comm);
        let create = || RunFolder::create(folder.path());
        let mut run = Run::start(&mut trainer, create, RunIdentity::default())?;
        trainer.epoch(&train, |_| ())?;
        let config = FitConfig { n_epochs: 2, patience: None, checkpoint_every: None };
        let validate = |trainer: &mut TaskTrainer<_>| trainer.evaluate(train.epoch(VALIDATION), |_, _| ());
        Ok(fit(&mut trainer, &train, config, validate, &mut run, &mut ()).unwrap_err().to_string())
    });
    let errors = done.unwrap();
    assert!(errors[0].contains("the trainer is in epoch 1, the run in epoch 0"), "{errors:?}");
}
