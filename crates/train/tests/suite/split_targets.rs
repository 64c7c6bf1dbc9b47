//! Tests of which metrics can rank models on a split: those whose value depends on the outputs, and no others.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_feature::{Labels, TargetKind, TargetValues, Targets};
use kiln_graph::NodeId;
use kiln_train::{Error, Metric, MetricError, SelectionError, SplitTargets};

fn all_nodes(n_nodes: usize) -> Vec<NodeId> {
    (0..n_nodes as u32).map(NodeId).collect()
}

fn of(targets: impl Into<Targets>) -> SplitTargets {
    let targets = targets.into();
    let targets = SplitTargets::of(&targets, &all_nodes(targets.len())).unwrap();
    assert!(0 < targets.n_items());
    targets
}

fn classes(labels: &[i32], n_classes: usize) -> SplitTargets {
    of(Labels::new(labels.to_vec(), n_classes))
}

fn labels(values: &[u8], n_labels: usize) -> SplitTargets {
    of(TargetValues::multi_label(values.to_vec(), n_labels).unwrap())
}

fn numbers(values: &[f32], n_columns: usize) -> SplitTargets {
    of(TargetValues::regression(values.to_vec(), n_columns).unwrap())
}

/// Checks which metrics of a kind can rank models: exactly those of `able`.
fn check(targets: &SplitTargets, kind: TargetKind, able: &[Metric]) {
    for metric in Metric::of_kind(kind) {
        let is_able = able.contains(&metric);
        assert_eq!(targets.can_rank(metric).unwrap(), is_able, "{metric}: {targets:?}");
        match targets.check(metric) {
            Ok(()) => assert!(is_able, "{metric}"),
            Err(Error::Metric(MetricError::Selection(SelectionError::CannotRank {
                metric: named,
                instead,
                ..
            }))) => {
                assert!(!is_able && named == metric.name(), "{metric}");
                for other in Metric::of_kind(kind) {
                    let names: Vec<&str> = instead.split([' ', ',']).collect();
                    assert_eq!(names.contains(&other.name()), able.contains(&other), "{metric}: {instead}");
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn classes_of_one_kind_have_no_order() {
    use Metric::{Accuracy, AveragePrecision, F1Macro, F1Micro, RocAuc};
    let counted = [Accuracy, F1Micro, F1Macro];
    let all = [Accuracy, F1Micro, F1Macro, RocAuc, AveragePrecision];
    let kind = TargetKind::Classes;
    for class in [0, 1] {
        check(&classes(&[class; 5], 2), kind, &counted);
        check(&classes(&[class; 5], 3), kind, &counted);
    }
    check(&classes(&[0, 1, 0], 2), kind, &all);
    check(&classes(&[2, 0, 2, 2], 4), kind, &all);
    check(&classes(&[0; 3], 1), kind, &[]);
    let error = classes(&[1; 30], 2).check(RocAuc).unwrap_err().to_string();
    let expected = "the metric roc-auc cannot select the best epoch: it is undefined for every model on the validation \
                    split, whose 30 items are all of class 1: use one of accuracy, f1-micro, f1-macro, or other items";
    assert!(error.starts_with(expected), "{error}");
    let error = classes(&[0; 3], 1).check(Accuracy).unwrap_err().to_string();
    assert!(error.contains("it is 1 for every model") && error.contains("no metric can"), "{error}");
}

#[test]
fn labels_need_positives_and_for_areas_negatives() {
    use Metric::{Accuracy, AveragePrecision, AveragePrecisionMicro, F1Macro, F1Micro, RocAuc};
    let all = [Accuracy, F1Micro, F1Macro, RocAuc, AveragePrecision, AveragePrecisionMicro];
    let (kind, missing) = (TargetKind::MultiLabel, TargetValues::<NodeId>::MISSING);
    check(&labels(&[0, 0, 0, 0], 2), kind, &[Accuracy]);
    check(&labels(&[1, 1, 1, 1], 2), kind, &[Accuracy, F1Micro, F1Macro]);
    // One label is always there and the other never: only the precision of all labels together depends on the order.
    check(&labels(&[1, 0, 1, 0], 2), kind, &[Accuracy, F1Micro, F1Macro, AveragePrecisionMicro]);
    check(&labels(&[1, 0, 1, 1], 2), kind, &all);
    // The only negative of the label is in the last of many items, behind missing ones.
    let mut values = vec![1; 10_000];
    values.extend([missing, 0]);
    let with_second = |value: u8| [value, if value == missing { 1 } else { missing }];
    let values: Vec<u8> = values.into_iter().flat_map(with_second).collect();
    check(&labels(&values, 2), kind, &all);
    let error = labels(&[0, 0, 0], 1).check(AveragePrecision).unwrap_err().to_string();
    assert!(error.contains("it is 0 for every model") && error.contains("none of whose 3 items"), "{error}");
}

#[test]
fn the_coefficient_of_determination_needs_different_targets() {
    use Metric::{Mae, R2, Rmse};
    let kind = TargetKind::Regression;
    check(&numbers(&[3.0; 20], 1), kind, &[Rmse, Mae]);
    check(&numbers(&[1e8; 20], 1), kind, &[Rmse, Mae]);
    check(&numbers(&[-2.5], 1), kind, &[Rmse, Mae]);
    check(&numbers(&[3.0, 3.0, 3.5], 1), kind, &[Rmse, Mae, R2]);
    check(&numbers(&[1e8, 1e8, -1e8], 1), kind, &[Rmse, Mae, R2]);
    check(&numbers(&[0.0, 1e6], 1), kind, &[Rmse, Mae, R2]);
    // The second column has different targets, the first one is constant.
    check(&numbers(&[1.0, f32::NAN, 1.0, 2.0, 1.0, 4.0], 2), kind, &[Rmse, Mae, R2]);
    check(&numbers(&[1.0, f32::NAN, 1.0, 2.0, 1.0, f32::NAN], 2), kind, &[Rmse, Mae]);
}

#[test]
fn ranks_of_links_need_more_negatives_than_hits() {
    use Metric::{AveragePrecision, Hits10, Hits50, Hits100, Mrr, RocAuc};
    let kind = TargetKind::Links;
    let of = |n_negatives| SplitTargets::of_links(7, n_negatives);
    check(&of(0), kind, &[]);
    check(&of(1), kind, &[Mrr, RocAuc, AveragePrecision]);
    // With 9 negatives, the last of 10 places is a hit.
    check(&of(9), kind, &[Mrr, RocAuc, AveragePrecision]);
    check(&of(10), kind, &[Mrr, RocAuc, AveragePrecision, Hits10]);
    check(&of(50), kind, &[Mrr, RocAuc, AveragePrecision, Hits10, Hits50]);
    check(&of(100), kind, &[Mrr, RocAuc, AveragePrecision, Hits10, Hits50, Hits100]);
    let error = of(0).check(Mrr).unwrap_err().to_string();
    let expected = "it is 1 for every model on the validation split, whose 7 links have 0 negatives each: use more \
                    negatives per link";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn metrics_of_other_targets_and_items_without_targets_are_errors() {
    let error = classes(&[0, 1], 2).check(Metric::Rmse).unwrap_err();
    assert!(matches!(error, Error::Metric(MetricError::OtherMetric { .. })), "{error}");
    let targets = Targets::from(Labels::new(vec![0, -1], 2));
    let error = SplitTargets::of(&targets, &all_nodes(2)).unwrap_err();
    assert!(matches!(error, Error::Feature(_)), "{error}");
    assert_eq!(SplitTargets::of(&targets, &[]).unwrap().n_items(), 0);
}
