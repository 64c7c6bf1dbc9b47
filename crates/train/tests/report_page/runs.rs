//! The page of several runs, and the page of a run that was interrupted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kiln_train::{Metric, RunRecord, RunState, RunTable, Summary};

use crate::structure::{parsed, rows, section, text};
use crate::{HOSTILE, epoch, page, summary};

fn run(name: &str, hidden: &str, n_epochs: usize) -> RunRecord {
    RunRecord {
        folder: PathBuf::from(name),
        settings: BTreeMap::from([("hidden".to_owned(), hidden.to_owned())]),
        metric: Metric::Accuracy,
        epochs: (1..=n_epochs).map(epoch).collect(),
        summary: Some(summary()),
        state: RunState::Finished,
    }
}

#[test]
fn runs_are_rows_and_lines_of_their_colour_and_their_names_are_escaped() {
    let table = RunTable::new(vec![run("a", HOSTILE, 1), run(HOSTILE, "8", 4)]);
    parsed(&table.to_html().unwrap(), |root| {
        let rows = rows(root, "Runs");
        let expected = [
            "run",
            "validation accuracy",
            "test accuracy",
            "best epoch",
            "epochs",
            "time",
            "state",
            "hidden",
        ];
        assert_eq!(rows[0], expected);
        // More epochs have a better accuracy.
        assert_eq!((rows.len(), rows[1][7].as_str(), rows[2][0].as_str()), (3, "8", "a"));
        assert_eq!(rows[1][1..5], ["0.4750", "0.8125", "4", "4"]);
        assert!(root.descendants().all(|node| !node.has_tag_name("script") && !node.has_tag_name("img")));
        let of_rows = root.descendants().filter(|node| node.attribute("class") == Some("swatch"));
        let colors = of_rows.filter_map(|node| node.attribute("style")?.strip_prefix("background: "));
        let colors: Vec<String> = colors.map(str::to_uppercase).collect();
        assert!(colors.len() == 2 && colors[0] != colors[1], "{colors:?}");
        let curves = section(root, "Learning curves").unwrap();
        let count = |tag: &str, color: &str| {
            let drawn = curves.descendants().filter(|node| node.tag_name().name() == tag);
            drawn.filter(|node| node.attribute("stroke") == Some(color)).count()
        };
        assert_eq!(colors.iter().map(|color| count("polyline", color)).collect::<Vec<_>>(), [2, 2]);
        // One epoch is a point.
        assert_eq!(colors.iter().map(|color| count("circle", color)).collect::<Vec<_>>(), [0, 2]);
    });
    assert_eq!(table.to_html().unwrap(), table.clone().to_html().unwrap());
    parsed(&RunTable::new(Vec::new()).to_html().unwrap(), |root| {
        assert!(text(section(root, "Learning curves").unwrap()).contains("No epoch was recorded"));
    });
}

#[test]
fn the_page_has_the_loss_and_the_reason_of_a_stop_as_text() {
    let of_callback = Summary {
        loss: Some("focal <2>".into()),
        stop_reason: Some("gap < 0 & growing".into()),
        ..summary()
    };
    let page = kiln_train::ReportPage { summary: of_callback, ..page(4, 3) };
    parsed(&page.to_html().unwrap(), |root| {
        let tiles: Vec<String> =
            root.descendants().filter(|node| node.has_tag_name("dd")).map(text).collect();
        assert!(tiles.iter().any(|tile| tile == "focal <2>"), "{tiles:?}");
        assert!(tiles.iter().any(|tile| tile.ends_with("stopped early: gap < 0 & growing")), "{tiles:?}");
    });
}

#[test]
fn the_page_of_an_interrupted_run_states_that_it_has_no_test() {
    let untested = Summary {
        test_accuracy: f64::NAN,
        test_f1_macro: None,
        stopped_early: false,
        interrupted: true,
        ..summary()
    };
    let before_an_epoch = Summary {
        best_epoch: 0,
        n_epochs: 0,
        metric: Metric::Accuracy,
        weights_hash: String::new(),
        ..untested.clone()
    };
    for (summary, n_epochs, expected) in [
        (
            untested,
            4,
            ["nonethe run was interrupted", "3validation accuracy 0.8750", "4 epochs trained, interrupted"],
        ),
        (
            before_an_epoch,
            0,
            ["nonethe run was interrupted", "0no epoch was completed", "0 epochs trained, interrupted"],
        ),
    ] {
        let page = kiln_train::ReportPage { summary, confusion: None, ..page(n_epochs, 3) };
        parsed(&page.to_html().unwrap(), |root| {
            let tiles: Vec<String> =
                root.descendants().filter(|node| node.has_tag_name("dd")).map(text).collect();
            assert_eq!(tiles[..2], expected[..2]);
            assert!(tiles[2].ends_with(expected[2]), "{tiles:?}");
        });
    }
}
