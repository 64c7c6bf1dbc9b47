//! The page of tasks with several labels per item and of regression: tiles, epochs, charts and scores.

use kiln_feature::{DenseFeatures, TargetKind, TargetScaler, TargetValues, Targets};
use kiln_graph::NodeId;
use kiln_train::{EpochRow, Evaluation, Metric, Objective, ReportPage, Summary, TargetReport, TaskObjective};

use crate::structure::{parsed, rows, section, text};
use crate::{HOSTILE, epoch, page, summary};

const N_NODES: usize = 40;
const MISSING: u8 = TargetValues::<NodeId>::MISSING;

/// Returns an evaluation with `n_columns` columns. The first output ranks the labels perfectly, or is exact; the second
/// column has no target.
fn evaluation(kind: TargetKind, n_columns: usize) -> Evaluation {
    let cells = (0..N_NODES).flat_map(|node| (0..n_columns).map(move |column| (node, column)));
    let output = |(node, column): (usize, usize)| (node as f32 - 20.5) / (column + 1) as f32;
    let targets: Targets = match kind {
        TargetKind::Regression => {
            let value = |cell: (usize, usize)| if cell.1 == 1 { f32::NAN } else { output((cell.0, 0)) };
            TargetValues::regression(cells.clone().map(value).collect::<Vec<f32>>(), n_columns)
                .unwrap()
                .into()
        }
        _ => {
            let label = |(node, column): (usize, usize)| match column {
                0 => u8::from(20 < node),
                1 => MISSING,
                _ => u8::from(node.is_multiple_of(3)),
            };
            TargetValues::multi_label(cells.clone().map(label).collect::<Vec<u8>>(), n_columns)
                .unwrap()
                .into()
        }
    };
    let outputs = DenseFeatures::from_f32(cells.map(output).collect::<Vec<f32>>(), n_columns).unwrap();
    let nodes: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    Evaluation::of_targets(&outputs, &nodes, &targets, &Objective::default_of(kind).into()).unwrap()
}

fn page_of(kind: TargetKind, metric: Metric, n_columns: usize) -> ReportPage {
    let test = evaluation(kind, n_columns);
    let summary = Summary { metric, val_metric: Some(0.125), test_metrics: test.all_metrics(), ..summary() };
    let of_epoch = |row| EpochRow { metric: metric.name().into(), val_metric: Some(0.25), ..row };
    let (epochs, class_names) = ((1..=3).map(epoch).map(of_epoch).collect(), vec![HOSTILE.to_owned()]);
    ReportPage {
        summary,
        epochs,
        class_names,
        confusion: None,
        targets: TargetReport::of(&test),
        ..page(1, 1)
    }
}

#[test]
fn regression_shows_predictions_against_targets_and_no_accuracy() {
    let html = page_of(TargetKind::Regression, Metric::Mae, 3).to_html().unwrap();
    assert!(!html.contains("accuracy") && !html.contains("<script>"), "{html}");
    parsed(&html, |root| {
        let tiles: Vec<String> =
            root.descendants().filter(|node| node.has_tag_name("dt")).map(text).collect();
        assert_eq!(tiles[..3], ["test rmse", "test mae", "test r2"]);
        let title = "Predictions against targets on the test split";
        let section = section(root, title).unwrap();
        // The second column has no target, and is not drawn.
        let dots = section.descendants().filter(|node| node.has_tag_name("circle")).count();
        assert_eq!(dots, 2 * N_NODES);
        let table = rows(root, title);
        assert_eq!(table[1][1..], ["40", "0.0000", "0.0000", "1.0000"]);
        assert_eq!(table[2], ["1", "0", "undefined", "undefined", "undefined"]);
        let epochs = rows(root, "Epochs");
        assert_eq!(epochs[0][..4], ["epoch", "training loss", "validation loss", "validation mae"]);
        assert_eq!(epochs[3][3], "0.2500");
    });
}

#[test]
fn a_regression_on_standardised_targets_says_so_below_the_curves() {
    let note = "Losses are those of standardised targets";
    let page = page_of(TargetKind::Regression, Metric::Rmse, 1);
    assert!(!page.to_html().unwrap().contains(note));
    let nodes = [NodeId(0), NodeId(1)];
    let values = TargetValues::regression(vec![1.0, 3.0], 1).unwrap();
    let scaler = TargetScaler::standardize(&values, &nodes).unwrap();
    let objective = TaskObjective::from(Objective::default_of(TargetKind::Regression));
    let objective = objective.with_target_scaler(Some(scaler));
    let outputs = DenseFeatures::from_f32(vec![-1.0, 0.5], 1).unwrap();
    let test = Evaluation::of_targets(&outputs, &nodes, &values.into(), &objective).unwrap();
    // The outputs of the model are in the units of the targets.
    assert_eq!(test.column(0).iter().map(|pair| pair.output).collect::<Vec<f32>>(), [1.0, 2.5]);
    let page = ReportPage { targets: TargetReport::of(&test), ..page };
    parsed(&page.to_html().unwrap(), |root| {
        assert!(text(section(root, "Learning curves").unwrap()).contains(note));
    });
}

#[test]
fn several_labels_show_precision_recall_curves_and_scores_per_label() {
    let html = page_of(TargetKind::MultiLabel, Metric::AveragePrecision, 9).to_html().unwrap();
    parsed(&html, |root| {
        let title = "Precision and recall on the test split";
        let table = rows(root, title);
        assert_eq!(table[0], ["label", "known", "positive", "F1", "ROC-AUC", "average precision"]);
        assert_eq!(table[1][1..], ["40", "19", "1.0000", "1.0000", "1.0000"]);
        assert_eq!(table[2][1..], ["0", "0", "undefined", "undefined", "undefined"]);
        assert!(text(section(root, title).unwrap()).contains("6 of 9 columns are drawn."));
        let tiles: Vec<String> =
            root.descendants().filter(|node| node.has_tag_name("dt")).map(text).collect();
        assert_eq!(tiles[..2], ["test average-precision", "test accuracy"]);
        assert!(section(root, "Confusion on the test split").is_none());
    });
}

#[test]
fn class_labels_have_no_section_on_target_values() {
    assert!(TargetReport::of(&Evaluation::default()).is_none());
}
