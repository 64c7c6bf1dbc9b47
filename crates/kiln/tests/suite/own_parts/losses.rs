//! A loss of one's own trains and evaluates as the built-in loss whose formula it has, for all kinds of targets.

use std::path::Path;

use kiln::burn::tensor::Tensor;
use kiln::burn::tensor::activation::{log_sigmoid, log_softmax};
use kiln::nn::{ClassLoss, LossSum, TargetLoss};
use kiln::train::{CustomLossError, Error as TrainError, InputError, LossTargets, RunError};

use super::*;
use crate::edges::{self, Ratings};
use crate::links::{linear, random_graph};

/// Rounding of f32 in the loss of a few steps, whose sums have another order.
const TOLERANCE: f64 = 2e-4;

/// Computes the cross entropy of each item.
pub(super) fn cross_entropy(outputs: Tensor<2>, targets: &LossTargets<'_>) -> Tensor<1> {
    log_softmax(outputs, 1).gather(1, targets.classes().unsqueeze_dim(1)).neg().squeeze_dim(1)
}

/// Computes a loss of the known targets.
fn of_known(
    outputs: Tensor<2>,
    targets: &LossTargets<'_>,
    loss: impl Fn(Tensor<2>, Tensor<2>) -> Tensor<2>,
) -> LossSum {
    let weight = targets.values.iter().filter(|value| !value.is_nan()).count() as f64;
    let is_missing = targets.values().is_nan();
    let known = targets.values().mask_fill(is_missing.clone(), 0.0);
    LossSum { sum: loss(outputs, known).mask_fill(is_missing, 0.0).sum(), weight }
}

/// Trains with both objectives, and compares the losses of all epochs.
fn check<C: ModelConfig, L: DataLoader<C::Model>>(
    trainer: impl Fn() -> Trainer<C>,
    [own, built_in]: [L; 2],
    metric: Metric,
) {
    let folder = tempfile::tempdir().unwrap();
    let run = |loader: &L, name: &str| {
        let out = folder.path().join(name);
        let best = trainer().fit(loader, quiet(2, &out).metric(metric)).unwrap();
        best.write_report(loader).unwrap();
        (rows(&out), summary(&out))
    };
    let (of_own, summary) = run(&own, "own");
    let (of_built_in, of_other) = run(&built_in, "built-in");
    for (one, other) in of_own.iter().zip(&of_built_in) {
        for name in ["train_loss", "val_loss"] {
            let [one, other] = [one, other].map(|row| row[name].as_f64().unwrap());
            assert!((one - other).abs() < TOLERANCE * (1.0 + other.abs()), "{name}: {one} and {other}");
        }
    }
    assert_eq!((of_own.len(), &summary["loss"]), (2, &"own".into()));
    assert_eq!(of_other.get("loss"), None);
}

#[test]
fn of_classes() {
    let data = cycle(160, 3);
    let own = Objective::custom("own", TargetKind::Classes, cross_entropy);
    let exact = |loader: NeighborLoader| loader.evaluation(EvalMode::Exact { memory_bytes: None });
    check(|| trainer(&data), [loader(&data).objective(own.clone()), loader(&data)], Metric::Accuracy);
    check(|| trainer(&data), [exact(loader(&data).objective(own)), exact(loader(&data))], Metric::F1Macro);

    // Class weights are the weights of a sum.
    let of_classes = [1.0, 2.0, 0.5];
    let own = Objective::custom("own", TargetKind::Classes, move |outputs, targets| {
        let weights: Vec<f32> = targets.classes.iter().map(|class| of_classes[*class as usize]).collect();
        let weight = weights.iter().map(|weight| f64::from(*weight)).sum();
        let weights = Tensor::<1>::from_floats(&weights[..], &outputs.device());
        LossSum { sum: (cross_entropy(outputs, targets) * weights).sum(), weight }
    });
    let built_in = ClassLoss { class_weights: Some(of_classes.to_vec()), ..ClassLoss::default() };
    let loaders = [own, Objective::Classes(built_in)].map(|objective| loader(&data).objective(objective));
    check(|| trainer(&data), loaders, Metric::Accuracy);
}

#[test]
fn of_labels_and_numbers_with_missing_ones() {
    let squared = |outputs: Tensor<2>, values: Tensor<2>| (outputs - values).square();
    let of_labels = |outputs: Tensor<2>, values: Tensor<2>| {
        outputs.clone() * values.neg().add_scalar(1.0) - log_sigmoid(outputs)
    };
    let numbers = Objective::custom("own", TargetKind::Regression, move |outputs, targets| {
        of_known(outputs, targets, squared)
    });
    let labels = Objective::custom("own", TargetKind::MultiLabel, move |outputs, targets| {
        of_known(outputs, targets, of_labels)
    });
    for (own, built_in, metric) in [
        (numbers, Objective::Regression(TargetLoss::SquaredError), Metric::Rmse),
        (labels, Objective::MultiLabel, Metric::RocAuc),
    ] {
        let data = crate::targets::data(own.kind());
        check(|| trainer(&data), [own, built_in].map(|objective| loader(&data).objective(objective)), metric);
    }
}

#[test]
fn of_links_and_edges() {
    let (data, _) = random_graph(200, 800);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 1).unwrap();
    let links = || {
        LinkNeighborLoader::new(NeighborLoader::new(&data, [2]).batch_size(64).workers(0), &split).unwrap()
    };
    let own = Objective::custom("own", TargetKind::Links, |scores, _| {
        let [n_links, n_scores] = scores.dims();
        let of_links = log_sigmoid(scores.clone().narrow(1, 0, 1)).neg().sum();
        let of_negatives = log_sigmoid(scores.narrow(1, 1, n_scores - 1).neg()).neg().sum();
        LossSum { sum: of_links + of_negatives, weight: (n_links * n_scores) as f64 }
    });
    check(|| Trainer::new(linear(), AdamConfig::new(1e-2)), [links().objective(own), links()], Metric::Mrr);

    let ratings = Ratings::new();
    let split = ratings.split(ratings.classes());
    let edges = || ratings.loader(&split);
    let own = Objective::custom("own", TargetKind::Classes, cross_entropy);
    let trainer = || edges::trainer(&ratings, &edges());
    check(trainer, [edges().objective(own), edges()], Metric::Accuracy);
}

#[test]
fn of_graphs() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.2], 0).unwrap();
    let loader = || GraphLoader::new(&graphs, features.clone(), &split).batch_size(32).workers(0);
    let own = Objective::custom("own", TargetKind::Classes, cross_entropy);
    let model = GinConfig::simplified(features.dim(), 8, 2);
    let trainer = || Trainer::new(model.clone(), AdamConfig::new(1e-2));
    check(trainer, [loader().objective(own), loader()], Metric::Accuracy);
}

#[test]
fn ranks_divide_by_the_weight_of_all_items() {
    let data = cycle(160, 3);
    let own = Objective::custom("own", TargetKind::Classes, cross_entropy);
    let folder = tempfile::tempdir().unwrap();
    let run = |n_ranks: usize| {
        let out = folder.path().join(n_ranks.to_string());
        let loader = loader(&data).batch_size(32 / n_ranks).objective(own.clone());
        launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
            trainer(&data).rank(&rank).fit(&loader, quiet(2, &out)).map(drop)
        })
        .unwrap();
        rows(&out)
    };
    for (one, two) in run(1).iter().zip(run(2)) {
        let [one, two] = [one, &two].map(|row| row["val_loss"].as_f64().unwrap());
        assert!((one - two).abs() < TOLERANCE, "{one} and {two}");
    }
}

fn refused(objective: Objective, out: &Path) -> TrainError {
    let data = cycle(80, 3);
    match trainer(&data).fit(&loader(&data).objective(objective), quiet(1, out)).map(drop) {
        Err(Error::Train(error)) if !out.exists() => error,
        other => panic!("expected an error before the run: {other:?}"),
    }
}

#[test]
fn a_loss_of_a_wrong_shape_or_kind_is_an_error_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mean = Objective::custom("mean", TargetKind::Classes, |outputs, targets| {
        cross_entropy(outputs, targets).mean()
    });
    let error = refused(mean, &out);
    assert!(
        error.to_string().contains("the loss mean returns 1 losses for 3 items, expected one per item"),
        "{error}"
    );
    let of_weight = |weight| {
        Objective::custom("heavy", TargetKind::Classes, move |outputs, targets| LossSum {
            sum: cross_entropy(outputs, targets).sum(),
            weight,
        })
    };
    for weight in [-1.0, f64::NAN] {
        let error = refused(of_weight(weight), &out);
        let TrainError::Input(InputError::CustomLoss(CustomLossError::Weight { .. })) = error else {
            panic!("{error}")
        };
    }
    let error = refused(Objective::custom("", TargetKind::Classes, cross_entropy), &out);
    assert!(
        matches!(&error, TrainError::Input(InputError::CustomLoss(CustomLossError::Name { .. }))),
        "{error}"
    );
    let error = refused(Objective::custom("own", TargetKind::Links, |scores, _| scores.sum()), &out);
    assert!(matches!(error, TrainError::Input(InputError::OtherTargets { .. })), "{error}");
}

#[test]
fn a_run_resumes_by_a_loss_of_the_same_name_only() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let named =
        |name: &str| loader(&data).objective(Objective::custom(name, TargetKind::Classes, cross_entropy));
    trainer(&data).fit(&named("own"), quiet(1, &out)).unwrap();
    let resumed = || FitConfig::epochs(2).resume(&out).quiet();
    for other in [named("other"), loader(&data)] {
        let error = trainer(&data).fit(&other, resumed()).map(drop).unwrap_err();
        let Error::Train(TrainError::Run(RunError::OtherRun { name, then, .. })) = &error else {
            panic!("{error}")
        };
        assert_eq!((name.as_str(), then.as_str()), ("objective", "Custom(\"own\")"));
    }
    assert_eq!(trainer(&data).fit(&named("own"), resumed()).unwrap().report.n_epochs, 2);
}
