//! Compares metrics with values computed by hand: ties, absent classes, and undefined metrics.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use burn::tensor::{Device, Tensor};
use kiln_feature::{DenseFeatures, Labels, TargetKind};
use kiln_graph::NodeId;
use kiln_train::{
    ClassScores, ConfusedPair, Confusion, ConfusionMatrix, Evaluation, Metric, MetricStats, Metrics,
    Prediction, StepOutput, average_precision, precision_recall_curve, roc_auc,
};

/// The tolerance for a few additions and divisions of numbers of about 1 in f64.
const TOLERANCE: f64 = 1e-12;

fn confusion(n_classes: usize, pairs: &[(u32, u32)]) -> Confusion {
    let mut confusion = Confusion::new(n_classes);
    for &(label, predicted) in pairs {
        confusion.add(label, predicted);
    }
    confusion
}

fn close(got: Option<f64>, expected: f64) {
    assert!((got.unwrap() - expected).abs() < TOLERANCE, "{got:?}, expected {expected}");
}

#[test]
fn f1_is_computed_from_the_confusion_matrix() {
    let pairs = [(0, 0), (0, 1), (1, 1), (1, 1), (2, 0)];
    // The F1 scores of the classes 0, 1 and 2 are 2 / (2 + 2), 4 / (2 + 3) and 0 / (1 + 0). Class 3 has no labels and
    // no predictions.
    let all = confusion(4, &pairs);
    close(all.f1_macro(), (0.5 + 0.8) / 3.0);
    close(all.f1_micro(), 0.6);
    assert_eq!(all.accuracy(), 0.6);
    // A class with predictions but without labels is included in the mean, with an F1 of 0.
    close(confusion(2, &[(0, 0), (0, 1)]).f1_macro(), (2.0 / 3.0) / 2.0);
    let none = Confusion::new(3);
    assert_eq!((none.f1_macro(), none.f1_micro()), (None, None));
    assert!(none.accuracy().is_nan());
}

/// The F1 score of the summed counts differs from the mean of the two parts' F1 scores.
#[test]
fn confusions_of_batches_and_ranks_add_up() {
    let pairs = [(0, 0), (0, 1), (1, 1), (1, 1), (2, 0)];
    let mut sum = confusion(4, &pairs[..2]);
    let rest = confusion(4, &pairs[2..]);
    let mean = (sum.f1_macro().unwrap() + rest.f1_macro().unwrap()) / 2.0;
    sum += &rest;
    assert_eq!(sum, confusion(4, &pairs));
    assert_ne!(sum.f1_macro(), Some(mean));
}

fn matrix(n_classes: usize, pairs: &[(u32, u32)]) -> ConfusionMatrix {
    let mut matrix = ConfusionMatrix::new(n_classes);
    for &(label, predicted) in pairs {
        matrix.add(label, predicted);
    }
    matrix
}

#[test]
fn confusion_matrix_counts_cells_margins_and_most_confused_pairs() {
    let pairs = [(0, 0), (0, 1), (1, 1), (1, 1), (2, 0), (2, 0), (0, 1), (2, 1)];
    let all = matrix(4, &pairs);
    let cells: Vec<u64> = (0..16).map(|cell| all.count(cell / 4, cell % 4)).collect();
    assert_eq!(cells, [1, 2, 0, 0, 0, 2, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(all.margins(), &confusion(4, &pairs));
    let pair = |label, predicted, n_items| ConfusedPair { label, predicted, n_items };
    assert_eq!(all.most_confused(10), [pair(0, 1, 2), pair(2, 0, 2), pair(2, 1, 1)]);
    assert_eq!(all.most_confused(1), [pair(0, 1, 2)]);

    let mut sum = matrix(4, &pairs[..3]);
    sum += &matrix(4, &pairs[3..]);
    assert_eq!(sum, all);
}

#[test]
fn a_class_without_labels_and_predictions_has_no_scores() {
    let all = confusion(4, &[(0, 0), (0, 1), (1, 1), (1, 1), (2, 0)]);
    let scores = |n_labelled, n_predicted, precision, recall, f1| ClassScores {
        n_labelled,
        n_predicted,
        precision,
        recall,
        f1,
    };
    assert_eq!(all.n_classes(), 4);
    assert_eq!(all.scores(0), scores(2, 2, Some(0.5), Some(0.5), Some(0.5)));
    assert_eq!(all.scores(1), scores(2, 3, Some(2.0 / 3.0), Some(1.0), Some(0.8)));
    assert_eq!(all.scores(2), scores(1, 0, None, Some(0.0), Some(0.0)));
    assert_eq!(all.scores(3), scores(0, 0, None, None, None));
}

#[test]
fn roc_auc_counts_ordered_pairs_and_half_of_the_ties() {
    let (yes, no) = (true, false);
    let cases: [(&[f64], &[bool], Option<f64>); 10] = [
        // Of the pairs (0.35, 0.1), (0.35, 0.4), (0.8, 0.1) and (0.8, 0.4), the second has the wrong order.
        (&[0.1, 0.4, 0.35, 0.8], &[no, no, yes, yes], Some(0.75)),
        // Three of the four pairs are ordered, and one pair ties.
        (&[1.0, 2.0, 2.0, 3.0], &[no, yes, no, yes], Some(3.5 / 4.0)),
        // Both positives are above one of the three negatives (1), tie with one (1/2) and are below one (0).
        (&[5.0, 5.0, 5.0, 4.0, 6.0], &[yes, yes, no, no, no], Some(0.5)),
        (&[0.3; 4], &[no, yes, no, yes], Some(0.5)),
        (&[0.0, -0.0], &[no, yes], Some(0.5)),
        (&[-2.0, -1.0, f64::NEG_INFINITY, f64::INFINITY], &[no, yes, no, yes], Some(1.0)),
        (&[2.0, 1.0], &[no, yes], Some(0.0)),
        (&[1.0, 2.0], &[yes, yes], None),
        (&[], &[], None),
        (&[1.0, f64::NAN, 2.0], &[yes, no, no], None),
    ];
    for (scores, is_positive, expected) in cases {
        assert_eq!(roc_auc(scores, is_positive), expected, "{scores:?} {is_positive:?}");
    }
}

#[test]
fn roc_auc_equals_the_count_over_all_pairs() {
    // There are only a few distinct scores, so that ties of all kinds occur.
    let scores: Vec<f64> = (0..200_u32).map(|i| f64::from(i.wrapping_mul(2_654_435_761) >> 28)).collect();
    let is_positive: Vec<bool> = (0..200_u32).map(|i| i.wrapping_mul(40_503) % 7 < 2).collect();
    let (mut wins, mut n_pairs) = (0.0, 0.0);
    for (one, _) in scores.iter().zip(&is_positive).filter(|(_, positive)| **positive) {
        for (other, _) in scores.iter().zip(&is_positive).filter(|(_, positive)| !**positive) {
            wins += if one > other { 1.0 } else { f64::from(u8::from(one == other)) / 2.0 };
            n_pairs += 1.0;
        }
    }
    assert_eq!(roc_auc(&scores, &is_positive), Some(wins / n_pairs));
}

/// Returns an evaluation whose logits have these probabilities. Each row has another constant added, which does not
/// change the probabilities.
fn evaluation<const N: usize>(probabilities: &[[f32; N]], labels: &[i32]) -> Evaluation {
    let rows = probabilities.iter().enumerate();
    let logits: Vec<f32> = rows.flat_map(|(i, row)| row.map(|p| p.ln() + [0.0, 10.0, -3.0][i % 3])).collect();
    let nodes: Vec<NodeId> = (0..labels.len() as u32).map(NodeId).collect();
    let labels = Labels::new(labels.to_vec(), N);
    Evaluation::of(&DenseFeatures::from_f32(logits, N).unwrap(), &nodes, &labels).unwrap()
}

#[test]
fn multiclass_roc_auc_is_the_one_vs_rest_mean_without_absent_classes() {
    let said = [[0.7, 0.2, 0.1], [0.3, 0.1, 0.6], [0.5, 0.4, 0.1], [0.2, 0.6, 0.2]];
    // For class 0, the scores 0.7 and 0.3 are compared with 0.5 and 0.2: three of four pairs are ordered. For class 1,
    // 0.4 and 0.6 are compared with 0.2 and 0.1: all four pairs are ordered. Class 2 has no nodes.
    let some = evaluation(&said, &[0, 0, 1, 1]);
    close(some.roc_auc(), (0.75 + 1.0) / 2.0);
    let predicted: Vec<Option<u32>> = some.predictions().iter().map(|said| said.predicted).collect();
    assert_eq!(predicted, [0, 2, 0, 1].map(Some));
    assert_eq!(some.predictions()[1], Prediction { item: 1, label: 0, predicted: Some(2) });
    // The F1 scores of the classes 0, 1 and 2 are 2 / (2 + 2), 2 / (2 + 1) and 0 / (0 + 1).
    let Metrics { accuracy, f1_macro, f1_micro, .. } = some.metrics();
    assert_eq!((accuracy, f1_micro), (0.5, Some(0.5)));
    close(f1_macro, (0.5 + 2.0 / 3.0) / 3.0);
    assert_eq!(some.confusion_matrix(), matrix(3, &[(0, 0), (0, 2), (1, 0), (1, 1)]));
    assert_eq!(some.confusion_matrix().margins(), &some.confusion());
    // The expected loss is -(ln 0.7 + ln 0.3 + ln 0.4 + ln 0.6); the logits are f32.
    let counts = some.counts().unwrap();
    let expected = -(0.7_f64 * 0.3 * 0.4 * 0.6).ln();
    assert!((counts.loss_sum - expected).abs() < 1e-5, "{} {expected}", counts.loss_sum);
    assert_eq!((counts.weight, counts.hits, counts.total), (4.0, 2, 4));

    assert_eq!(evaluation(&said, &[1, 1, 1, 1]).roc_auc(), None);
    close(evaluation(&[[0.25; 4]; 4], &[0, 1, 2, 3]).roc_auc(), 0.5);
}

#[test]
fn binary_roc_auc_uses_the_scores_of_class_1() {
    let said = [[0.1, 0.9], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]];
    // The first call compares 0.8 with 0.9, 0.6 and 0.3; the second compares 0.9 and 0.3 with 0.6 and 0.8.
    close(evaluation(&said, &[0, 0, 0, 1]).roc_auc(), 2.0 / 3.0);
    close(evaluation(&said, &[1, 0, 1, 0]).roc_auc(), 0.5);
}

#[test]
fn predictions_are_sorted_by_node() {
    let mut said = Evaluation::default();
    let device = Device::flex();
    // Node 4 is added twice, first with the predicted class 0, then with the predicted class 1.
    for (items, labels, rows) in
        [([7, 4], [0, 1], [[2.0, 1.0], [3.0, 1.0]]), ([4, 2], [1, 0], [[0.0, 1.0]; 2])]
    {
        let outputs = Tensor::from_data(rows, &device);
        let forward = StepOutput { outputs, loss_sum: Tensor::zeros([1], &device), weight: 2.0 };
        said.add(&items.map(NodeId), &labels, &forward);
    }
    let expected = [(2, 0, 1), (4, 1, 0), (4, 1, 1), (7, 0, 0)];
    let expected = expected.map(|(item, label, class)| Prediction { item, label, predicted: Some(class) });
    assert_eq!(said.predictions(), expected);
    assert_eq!(said.counts().unwrap().hits, 2);
}

/// The first and the last row would have class 0, the label of node 2.
#[test]
fn rows_that_are_not_finite_have_no_class_and_count_in_no_metric() {
    let logits = vec![f32::NAN, f32::NAN, 0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY];
    let nodes = [0, 1, 2].map(NodeId);
    let labels = Labels::new(vec![1_i32, 1, 0], 2);
    let outputs = DenseFeatures::from_f32(logits, 2).unwrap();
    let said = Evaluation::of(&outputs, &nodes, &labels).unwrap();
    let expected = [(0, 1, None), (1, 1, Some(1)), (2, 0, None)];
    let expected = expected.map(|(item, label, predicted)| Prediction { item, label, predicted });
    assert_eq!(said.predictions(), expected);
    assert_eq!(said.confusion_matrix(), matrix(2, &[(1, 1)]));
    assert_eq!((said.metrics().accuracy, said.metrics().f1_micro), (1.0, Some(1.0)));
    let mut stats = MetricStats::new(Metric::Accuracy, TargetKind::Classes, 2).unwrap();
    stats.add_classes(&[0, 0], &[f32::NAN, 0.0, 0.0, 1.0]);
    assert_eq!(stats.value(), Some(0.0));
    // A model may rule a class out by the logit -inf: such a row has a class.
    let outputs = DenseFeatures::from_f32(vec![0.0, f32::NEG_INFINITY, 1.0, 0.0], 2).unwrap();
    let counts = Evaluation::count(&outputs, &nodes[..2], &Labels::new(vec![0_i32, 0], 2)).unwrap();
    assert_eq!((counts.hits, counts.total), (2, 2));
}

#[test]
#[should_panic(expected = "1 items, 2 labels and 2 rows of outputs")]
fn rejects_a_batch_of_unequal_lengths() {
    let device = Device::flex();
    let outputs = Tensor::zeros([2, 3], &device);
    let forward = StepOutput { outputs, loss_sum: Tensor::zeros([1], &device), weight: 2.0 };
    Evaluation::default().add(&[NodeId(1)], &[0, 0], &forward);
}

#[test]
fn an_empty_evaluation_has_no_metrics() {
    let nothing = Evaluation::default();
    assert_eq!((nothing.roc_auc(), nothing.confusion().f1_macro()), (None, None));
    assert_eq!(nothing.counts().unwrap().total, 0);
    assert!(nothing.predictions().is_empty());
}

#[test]
fn precision_recall_curves_enter_ties_together_and_contain_the_average_precision() {
    let (scores, is_positive) = ([3.0, 2.0, 2.0, 1.0, 0.0], [true, false, true, true, false]);
    let curve = precision_recall_curve(&scores, &is_positive);
    let points: Vec<[f64; 2]> = curve.iter().map(|point| [point.recall, point.precision]).collect();
    assert_eq!(points, [[1.0 / 3.0, 1.0], [2.0 / 3.0, 2.0 / 3.0], [1.0, 0.75], [1.0, 0.6]]);
    let mut last = 0.0;
    let area =
        points.iter().map(|[recall, precision]| (recall - std::mem::replace(&mut last, *recall)) * precision);
    close(average_precision(&scores, &is_positive), area.sum());
    assert_eq!(precision_recall_curve(&[1.0, 2.0], &[false, false]), []);
    assert_eq!(average_precision(&[1.0, 2.0], &[false, false]), Some(0.0));
    assert_eq!((average_precision(&[], &[]), average_precision(&[f64::NAN], &[true])), (None, None));
}
