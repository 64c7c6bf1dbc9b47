//! Metrics over ranks, their names and directions, and the kinds of targets that they are defined for.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use kiln_feature::TargetKind::{self, Classes, Links, MultiLabel, Regression};
use kiln_train::{Error, LinkRanks, Metric, MetricError, MetricStats};

use crate::common::ranks;

/// The tolerance for sums in another order.
const TOLERANCE: f64 = 1e-12;

const N_OUTPUTS: usize = 3;

/// Returns statistics of every third number below 60, starting at each of `parts`. The first of three parts is empty.
fn stats(metric: Metric, kind: TargetKind, parts: impl IntoIterator<Item = u32>) -> MetricStats {
    let mut stats = MetricStats::new(metric, kind, N_OUTPUTS).unwrap();
    for part in parts.into_iter().filter(|&part| 0 < part) {
        for item in (part..60).step_by(3) {
            let outputs = [0, 1, 2].map(|i| (item * 37 + i * 11) % 16).map(|value| value as f32 / 4.0 - 2.0);
            let has_label = |i: u32| (item * 29 + i * 7) % 5 < 2;
            match kind {
                Classes => stats.add_classes(&[(item * 29 % 7 % 3) as i32], &outputs),
                MultiLabel => {
                    stats.add_targets(&[0, 1, 2].map(|i| f32::from(u8::from(has_label(i)))), &outputs);
                }
                Regression => {
                    let missing = if item % 4 == 0 { f32::NAN } else { 1.0 };
                    stats.add_targets(&[missing, item as f32 * 100.0, (item % 5) as f32], &outputs);
                }
                Links => stats.add_links(&outputs),
            }
        }
    }
    stats
}

#[test]
fn metrics_of_several_ranks_equal_those_of_one() {
    for kind in [Classes, MultiLabel, Regression, Links] {
        for metric in Metric::of_kind(kind) {
            let expected = stats(metric, kind, 0..3).value().unwrap();
            let values = ranks(3).run(|mut comm| {
                let own = stats(metric, kind, [comm.rank_info().rank as u32]);
                Ok(own.value_over(&mut *comm)?)
            });
            let values = values.unwrap();
            for value in &values {
                let value = value.unwrap();
                assert!(
                    (value - expected).abs() <= TOLERANCE * expected.abs(),
                    "{metric}: {value} {expected}"
                );
                assert_eq!(
                    Some(value),
                    values[0],
                    "{metric}: the values of all ranks should be bit-identical"
                );
            }
            assert!(
                expected.is_finite() && expected != 0.0,
                "{metric} should depend on the items: {expected}"
            );
        }
    }
}

#[test]
fn undefined_metrics_are_undefined_on_all_ranks() {
    for (metric, kind) in [
        (Metric::RocAuc, MultiLabel),
        (Metric::R2, Regression),
        (Metric::Accuracy, Classes),
        (Metric::Mrr, Links),
    ] {
        let values = ranks(2).run(|mut comm| Ok(stats(metric, kind, []).value_over(&mut *comm)?));
        assert_eq!(values.unwrap(), [None, None], "{metric}");
    }
}

#[test]
fn names_parse_and_unknown_names_list_the_known_ones() {
    for metric in Metric::ALL {
        assert_eq!(metric.name().parse::<Metric>().unwrap(), metric);
    }
    let error = "auc".parse::<Metric>().unwrap_err();
    let expected = "unknown metric 'auc': expected one of accuracy, f1-micro, f1-macro, roc-auc, average-precision, \
                    average-precision-micro, rmse, mae, r2, mrr, hits@10, hits@50, hits@100 (did you mean `roc-auc`?)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn metrics_of_other_targets_are_rejected() {
    let error = MetricStats::new(Metric::Rmse, MultiLabel, 2).unwrap_err();
    assert!(matches!(error, Error::Metric(MetricError::OtherMetric { .. })));
    let expected = "the metric rmse is not defined for several labels per item: use one of accuracy, f1-micro, \
                    f1-macro, roc-auc, average-precision, average-precision-micro";
    assert_eq!(error.to_string(), expected);
    assert!(Metric::RocAuc.check(Regression).is_err());
    assert!(Metric::AveragePrecisionMicro.check(Classes).is_err());
    assert!(Metric::Mrr.check(Classes).is_err() && Metric::Accuracy.check(Links).is_err());
    for kind in [Classes, MultiLabel, Regression, Links] {
        Metric::default_of(kind).check(kind).unwrap();
    }
}

#[test]
fn lower_errors_and_higher_scores_are_better() {
    assert!(
        Metric::Accuracy.is_better(Some(0.6), Some(0.5)) && !Metric::Accuracy.is_better(Some(0.5), Some(0.5))
    );
    assert!(Metric::R2.is_better(Some(-1.0), Some(-2.0)));
    assert!(Metric::Rmse.is_better(Some(0.5), Some(0.6)) && !Metric::Mae.is_better(Some(0.5), Some(0.5)));
    for metric in Metric::ALL {
        assert!(metric.is_better(Some(0.0), None));
        assert!(!metric.is_better(None, Some(0.0)) && !metric.is_better(None, None));
    }
}

/// The squares of the targets lose all digits of their deviation, so a difference of sums of squares would fail.
#[test]
fn r2_is_exact_for_targets_far_from_zero() {
    let mut stats = MetricStats::new(Metric::R2, Regression, 1).unwrap();
    for item in 0..1000 {
        let target = (1 << 23) as f32 + (item % 4) as f32;
        stats.add_targets(&[target], &[target + 1.0]);
    }
    // The squared error of an item is 1, and the variance of 0, 1, 2 and 3 is 1.25.
    assert!((stats.value().unwrap() - (1.0 - 1.0 / 1.25)).abs() < 1e-9, "{:?}", stats.value());
}

#[test]
fn ties_of_a_link_have_the_mean_rank() {
    for (scores, expected) in [
        (&[1.0, 0.0, -1.0][..], Some(1.0)),
        (&[1.0, 1.0, -1.0], Some(1.5)),
        (&[1.0, 1.0, 1.0], Some(2.0)),
        (&[1.0, 2.0, 1.0], Some(2.5)),
        (&[f32::NEG_INFINITY, 0.0, f32::INFINITY], Some(3.0)),
        (&[f32::INFINITY, f32::INFINITY, 0.0], Some(1.5)),
        (&[1.0], Some(1.0)),
        (&[f32::NAN, 0.0], None),
        (&[0.0, f32::NAN], None),
    ] {
        assert_eq!(LinkRanks::rank(scores), expected, "{scores:?}");
    }
    let mut ranks = LinkRanks::new(3);
    for scores in [[1.0, 0.0, -1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 1.0]] {
        ranks.add(&scores);
    }
    assert_eq!((ranks.n_links(), ranks.n_first()), (3, 1));
    assert_eq!(ranks.mrr(), Some((1.0 + 1.0 / 2.0 + 1.0 / 2.5) / 3.0));
    assert_eq!([1, 2, 3].map(|k| ranks.hits_at(k)), [Some(1.0 / 3.0), Some(2.0 / 3.0), Some(1.0)]);
}

/// A NaN is not the best or the worst score, and not the absence of a label: it is no prediction.
#[test]
fn outputs_that_are_not_finite_count_in_no_metric() {
    for kind in [Classes, MultiLabel, Regression, Links] {
        for metric in Metric::of_kind(kind) {
            let expected = stats(metric, kind, 0..3).value().unwrap();
            let mut found = stats(metric, kind, 0..3);
            let mut nothing = stats(metric, kind, []);
            for value in [f32::NAN, f32::INFINITY] {
                let row = [0.5, value, 0.25];
                for stats in [&mut found, &mut nothing] {
                    match kind {
                        Classes => stats.add_classes(&[0], &row),
                        MultiLabel => stats.add_targets(&[1.0, f32::NAN, 0.0], &row),
                        Regression => stats.add_targets(&[1.0, f32::NAN, 3.0], &row),
                        Links => stats.add_links(&row),
                    }
                }
            }
            assert_eq!(found.value(), Some(expected), "{metric}");
            assert_eq!(nothing.value(), None, "{metric}");
        }
    }
}
