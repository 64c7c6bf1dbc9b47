//! A training loop of one's own has the weights of `Trainer::fit` with the same loss.

use kiln::burn::optim::GradientsParams;
use kiln::burn::tensor::Tensor;
use kiln::train::{
    CustomLossError, DeviceBatch, Error as TrainError, InputError, LossTargets, Task, TaskTrainer,
    TrainerError, weights_to_bytes,
};

use super::losses::cross_entropy;
use super::*;
use crate::heterogeneous;
use crate::links::{linear, random_graph};

/// Trains two epochs by a loss on each rank. Returns the weights, the losses of the epochs and the accuracy of the validation.
fn train<C: ModelConfig, L: DataLoader<C::Model>>(
    setup: &Trainer<C>,
    loader: &L,
    loss: impl Fn(Tensor<2>, &<L::Task as Task>::Input) -> Tensor<1>,
) -> Result<(Vec<u8>, Vec<f64>, f64)> {
    let mut trainer = setup.start(loader)?;
    let loaders = setup.loaders(loader, &trainer)?;
    let mut losses = Vec::new();
    for _ in 0..2 {
        for batch in loaders.train.epoch(trainer.next_phase()) {
            let gradients = trainer.gradients(&batch?, &loss)?;
            trainer.update(gradients)?;
        }
        losses.push(trainer.end_epoch()?.counts.loss());
    }
    let val = loaders.evaluate(&mut trainer, Phase::Validation)?;
    Ok((weights_to_bytes(trainer.model())?, losses, val.accuracy()))
}

/// Compares a loop with `Trainer::fit`.
fn check<C: ModelConfig, L: DataLoader<C::Model> + Sync>(
    setup: impl Fn() -> Trainer<C> + Sync,
    loader: &L,
    n_ranks: usize,
    loss: impl Fn(Tensor<2>, &<L::Task as Task>::Input) -> Tensor<1> + Sync,
) {
    let folder = tempfile::tempdir().unwrap();
    let config = RankConfig::threads(n_ranks).threads_per_rank(1);
    let of_loop = launch(config, |rank| train(&setup().rank(&rank), loader, &loss)).unwrap();
    assert!(of_loop.iter().all(|of_rank| of_rank == &of_loop[0]));
    let config = RankConfig::threads(n_ranks).threads_per_rank(1);
    launch(config, |rank| {
        // Without patience, the last checkpoint has the last epoch.
        let config = quiet(2, folder.path());
        let best = setup().rank(&rank).fit(loader, config)?;
        let (weights, losses, accuracy) = &of_loop[0];
        if rank.is_zero() {
            let rows = rows(folder.path());
            let expected: Vec<f64> = rows.iter().map(|row| row["train_loss"].as_f64().unwrap()).collect();
            assert_eq!((&expected, rows[1]["val_accuracy"].as_f64()), (losses, Some(*accuracy)));
        }
        if best.best.epoch == 2 {
            assert_eq!(&weights_to_bytes(&best.model)?, weights);
        }
        Ok(())
    })
    .unwrap();
}

fn named(kind: TargetKind, loss: fn(Tensor<2>, &LossTargets<'_>) -> Tensor<1>) -> Objective {
    Objective::custom("own", kind, loss)
}

#[test]
fn of_nodes_with_dropout_and_clipped_gradients() {
    let data = cycle(160, 3);
    for n_ranks in [1, 2] {
        let loader =
            loader(&data).batch_size(32 / n_ranks).objective(named(TargetKind::Classes, cross_entropy));
        let optimizer = AdamConfig::new(1e-2).clip_grad_norm(0.1).weight_decay(0.1);
        let config = SageConfig::for_data(&data).layers(2).hidden(8).dropout(0.5);
        let setup = || Trainer::new(config.clone(), optimizer).seed(3);
        check(setup, &loader, n_ranks, |outputs, input| {
            let targets = input.loss_targets(&outputs);
            cross_entropy(outputs, &targets)
        });
    }
}

#[test]
fn of_trainable_rows() {
    let data = heterogeneous::data();
    let loader = heterogeneous::loader(&data).workers(0).objective(named(TargetKind::Classes, cross_entropy));
    check(
        || heterogeneous::trainer(&data),
        &loader,
        1,
        |outputs, input| {
            let targets = input.loss_targets(&outputs);
            cross_entropy(outputs, &targets)
        },
    );
}

/// Computes the mean difference of a link's score and those of its negatives.
fn margin(scores: Tensor<2>, _: &LossTargets<'_>) -> Tensor<1> {
    let [_, n_scores] = scores.dims();
    let of_links = scores.clone().narrow(1, 0, 1).squeeze_dim::<1>(1);
    let of_negatives = scores.narrow(1, 1, n_scores - 1).mean_dim(1).squeeze_dim::<1>(1);
    (of_negatives - of_links).exp()
}

#[test]
fn of_links() {
    let (data, _) = random_graph(200, 800);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 1).unwrap();
    let nodes = NeighborLoader::new(&data, [2]).batch_size(64).workers(0);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap().objective(named(TargetKind::Links, margin));
    let setup = || Trainer::new(linear(), AdamConfig::new(1e-2));
    let mut trainer = setup().start(&loader).unwrap();
    let loaders = setup().loaders(&loader, &trainer).unwrap();
    let before = loaders.validate(&mut trainer, Phase::Validation, Metric::Mrr).unwrap();
    let (_, losses, _) = train(&setup(), &loader, |scores, input| {
        let targets = input.loss_targets(&scores);
        margin(scores, &targets)
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    setup().fit(&loader, quiet(2, folder.path())).unwrap();
    let rows = rows(folder.path());
    assert_eq!(rows.iter().map(|row| row["train_loss"].as_f64().unwrap()).collect::<Vec<_>>(), losses);
    assert!(before.value.is_some() && before.sums.total == split.split().val.len() as u64);
}

fn first_batch<T: Task>(
    batches: impl Iterator<Item = kiln::loader::Result<DeviceBatch<T::Input>>>,
    _: &TaskTrainer<T>,
) -> DeviceBatch<T::Input> {
    batches.into_iter().next().unwrap().unwrap()
}

#[test]
fn gradients_may_be_replaced_and_bad_losses_are_errors() {
    let data = cycle(80, 3);
    let loader = loader(&data);
    let setup = trainer(&data);
    let mut trainer = setup.start(&loader).unwrap();
    let loaders = setup.loaders(&loader, &trainer).unwrap();
    let batch = first_batch(loaders.train.epoch(trainer.next_phase()), &trainer);
    let before = weights_to_bytes(trainer.model()).unwrap();
    let loss = |outputs: Tensor<2>, input: &kiln::train::NodeInput| {
        let targets = input.loss_targets(&outputs);
        cross_entropy(outputs, &targets)
    };
    let mut gradients = trainer.gradients(&batch, loss).unwrap();
    assert!(!gradients.model.is_empty());
    gradients.model = GradientsParams::new();
    trainer.update(gradients).unwrap();
    assert_eq!(
        weights_to_bytes(trainer.model()).unwrap(),
        before,
        "a step without gradients changed the weights"
    );

    let error = trainer.gradients(&batch, |outputs, input| loss(outputs, input).mean()).unwrap_err();
    let TrainError::Input(InputError::CustomLoss(CustomLossError::Shape { n_items, got, .. })) = error else {
        panic!("{error}")
    };
    assert_eq!((n_items, got), (batch.n_items, 1));
    let error =
        trainer.gradients(&batch, |outputs, input| loss(outputs, input).mul_scalar(f32::NAN)).unwrap_err();
    assert!(matches!(error, TrainError::Trainer(TrainerError::LossNotFinite { .. })), "{error}");
    let accumulating = super::trainer(&data).accumulate(2);
    let error = accumulating.start(&loader).unwrap().gradients(&batch, loss).unwrap_err();
    assert!(matches!(error, TrainError::Trainer(TrainerError::BadSetting { .. })), "{error}");
}
