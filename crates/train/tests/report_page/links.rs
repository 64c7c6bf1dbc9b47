//! The page of link prediction: tiles, epochs, and histograms of scores.

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::TargetKind;
use kiln_graph::{LinkId, NodeId};
use kiln_train::{EpochRow, Evaluation, LinkReport, Metric, Objective, ReportPage, StepOutput, Summary};

use roxmltree::Node;

use crate::structure::{parsed, rows, section, text};
use crate::{epoch, page, summary};

/// Returns an evaluation of links with two negatives each.
fn evaluation(scores: &[[f32; 3]]) -> Evaluation {
    let n_links = scores.len() as u32;
    let values = TensorData::new(scores.concat(), [scores.len(), 3]);
    let outputs = Tensor::<2>::from_data(values, &Device::flex());
    let loss_sum = Tensor::<1>::zeros([1], &Device::flex());
    let forward = StepOutput { outputs, loss_sum, weight: 1.0 };
    let links: Vec<LinkId> = (0..n_links).map(LinkId).collect();
    let nodes: Vec<NodeId> = (0..n_links).map(NodeId).collect();
    let mut evaluation = Evaluation::new(Objective::default_of(TargetKind::Links));
    evaluation.add_links(&links, &nodes, &nodes, &forward);
    evaluation
}

fn page_of(test: &Evaluation) -> ReportPage {
    let metric = Metric::Mrr;
    let summary = Summary { metric, val_metric: Some(0.125), test_metrics: test.all_metrics(), ..summary() };
    let of_epoch = |row| EpochRow { metric: metric.name().into(), val_metric: Some(0.25), ..row };
    let epochs = (1..=3).map(epoch).map(of_epoch).collect();
    ReportPage { summary, epochs, confusion: None, links: LinkReport::of(test), ..page(1, 1) }
}

const TITLE: &str = "Scores of links and negatives on the test split";

#[test]
fn links_show_histograms_of_finite_scores_and_no_accuracy() {
    let test = evaluation(&[[3.0, -1.0, 0.5], [2.0, 2.0, -4.0], [-0.5, 1.0, f32::INFINITY]]);
    let html = page_of(&test).to_html().unwrap();
    assert!(!html.contains("accuracy"), "{html}");
    parsed(&html, |root| {
        let tiles: Vec<String> =
            root.descendants().filter(|node| node.has_tag_name("dt")).map(text).collect();
        let metrics = ["roc-auc", "average-precision", "mrr", "hits@10", "hits@50", "hits@100"];
        assert_eq!(tiles[..6], metrics.map(|metric| format!("test {metric}")));
        let drawn = section(root, TITLE).unwrap();
        for color in ["#1B6CA8", "#D1495B"] {
            let is_line =
                |node: &Node| node.has_tag_name("polyline") && node.attribute("stroke") == Some(color);
            let line = drawn.descendants().find(is_line).unwrap();
            let n_points = line.attribute("points").unwrap().split_whitespace().count();
            assert_eq!(n_points, 100, "the histogram has two points per bin");
        }
        let table = rows(root, TITLE);
        assert_eq!(table[0], ["pairs", "number", "lowest score", "median", "mean", "highest score"]);
        assert_eq!(table[1], ["links", "2", "2.0000", "2.5000", "2.5000", "3.0000"]);
        assert_eq!(table[2], ["negatives", "4", "-4.0000", "-0.2500", "-0.6250", "2.0000"]);
        assert_eq!(
            rows(root, "Epochs")[0][..4],
            ["epoch", "training loss", "validation loss", "validation mrr"]
        );
    });
}

#[test]
fn equal_scores_are_drawn_and_those_that_are_not_finite_are_left_out() {
    for (score, is_drawn) in [(f32::NAN, false), (f32::NEG_INFINITY, false), (1.5, true), (1e30, true)] {
        let html = page_of(&evaluation(&[[score; 3]; 2])).to_html().unwrap();
        parsed(&html, |root| assert_eq!(section(root, TITLE).is_some(), is_drawn, "{score}"));
    }
}

#[test]
fn other_targets_have_no_section_on_links() {
    assert!(LinkReport::of(&Evaluation::default()).is_none());
}
