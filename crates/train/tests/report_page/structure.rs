//! The structure of the page, parsed as XML, which rejects unclosed tags.

use std::time::Duration;

use kiln_train::{EpochReport, EpochRow, MemoryUse, MetricSums, RunFolder, Timings, Validation};
use roxmltree::{Document, Node, ParsingOptions};

use crate::{HOSTILE, epoch, matrix, page};

/// Calls `look` with the page's root element.
pub(crate) fn parsed<T>(html: &str, look: impl Fn(Node<'_, '_>) -> T) -> T {
    let options = ParsingOptions { allow_dtd: true, ..Default::default() };
    look(Document::parse_with_options(html, options).unwrap().root_element())
}

pub(crate) fn text(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(Node::is_text).map(|node| node.text().unwrap());
    texts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the section with this heading.
pub(crate) fn section<'a, 'input>(root: Node<'a, 'input>, title: &str) -> Option<Node<'a, 'input>> {
    let mut sections = root.descendants().filter(|node| node.has_tag_name("section"));
    sections.find(|section| section.children().any(|node| node.has_tag_name("h2") && text(node) == title))
}

/// Returns the texts of a section's table, by row.
pub(crate) fn rows(root: Node<'_, '_>, title: &str) -> Vec<Vec<String>> {
    let section = section(root, title).unwrap();
    let rows = section.descendants().filter(|node| node.has_tag_name("tr"));
    rows.map(|row| row.children().filter(Node::is_element).map(text).collect()).collect()
}

fn note(root: Node<'_, '_>, title: &str) -> String {
    let notes = section(root, title).unwrap().descendants().filter(|node| node.has_tag_name("p"));
    notes.map(text).collect()
}

#[test]
fn shows_the_results_epochs_and_settings() {
    parsed(&page(4, 3).to_html().unwrap(), |root| {
        let tiles: Vec<String> =
            root.descendants().filter(|node| node.has_tag_name("dd")).map(text).collect();
        let hash = "sha256 ".to_owned() + &"c0ffee".repeat(10) + "abcd";
        let expected = [
            "0.8125",
            "0.7654",
            "undefined",
            "3validation accuracy 0.8750",
            "3 min 20 s4 epochs trained, stopped early",
            "300 MiBanonymous, and 20.0 GiB of mapped files",
            hash.as_str(),
        ];
        assert_eq!(tiles, expected);
        let epochs = rows(root, "Epochs");
        assert_eq!(epochs.len(), 5);
        let third = ["3best", "1.4250", "0.3250", "1.1750", "0.4500", "1,234", "9.50 s", "20,480", "300 MiB"];
        assert_eq!(epochs[3], third);
        assert_eq!(epochs[4][0], "4");
        let config = rows(root, "Configuration");
        assert_eq!(config[1..], [["batch-size", "1024"], ["fanouts", "10,10,10"], ["workers", "2"]]);
        let curves = section(root, "Learning curves").unwrap();
        assert_eq!(curves.descendants().filter(|node| node.tag_name().name() == "svg").count(), 1);
    });
}

#[test]
fn shows_stage_times_as_shares_of_the_loader_and_of_the_trainer() {
    parsed(&page(4, 3).to_html().unwrap(), |root| {
        let stages = rows(root, "Where the time went");
        let numbers: Vec<&[String]> = stages[1..].iter().map(|row| &row[..3]).collect();
        let expected = [
            ["seeds", "1.000", "8.3 %"],
            ["sample", "7.000", "58.3 %"],
            ["gather", "4.000", "33.3 %"],
            ["wait", "2.000", "6.2 %"],
            ["upload", "2.000", "6.2 %"],
            ["forward", "10.000", "31.2 %"],
            ["backward", "16.000", "50.0 %"],
            ["sync", "0.500", "1.6 %"],
            ["update", "1.500", "4.7 %"],
        ];
        assert_eq!(numbers, expected);
        // The trainer's bar has the full width of the drawing, and the loader's bar has 12 / 32 of it.
        let section = section(root, "Where the time went").unwrap();
        let width = |class: &str| {
            let mut rects = section.descendants().filter(|node| node.attribute("class") == Some(class));
            rects.find_map(|node| node.attribute("width")).unwrap().parse::<f64>().unwrap()
        };
        assert_eq!(width("backward"), 450.0);
        assert_eq!(["seeds", "sample", "gather"].map(width).iter().sum::<f64>(), 900.0 * 12.0 / 32.0);
    });
}

#[test]
fn explains_whether_the_loader_ran_in_its_own_threads() {
    let note_of = |workers: Option<&str>| {
        let mut page = page(1, 2);
        page.config.remove("workers");
        page.config.extend(workers.map(|workers| ("workers".to_owned(), workers.to_owned())));
        parsed(&page.to_html().unwrap(), |root| note(root, "Where the time went"))
    };
    let (beside, inline) = ("ran in its threads", "the loader's time is also part of wait");
    for (workers, says) in [(Some("2"), [true, false]), (Some("0"), [false, true]), (None, [true, true])] {
        let note = note_of(workers);
        assert_eq!([note.contains(beside), note.contains(inline)], says, "{workers:?}: {note}");
    }
}

#[test]
fn matrix_rows_are_labels_and_cells_are_shaded_by_their_share() {
    parsed(&page(1, 3).to_html().unwrap(), |root| {
        let expected = [
            ["label", "class 0", "class 1", "class 2"],
            ["class 0", "10", "2", "1"],
            ["class 1", "1", "10", "2"],
            ["class 2", "2", "1", "10"],
        ];
        assert_eq!(rows(root, "Confusion on the test split"), expected);
        let section = section(root, "Confusion on the test split").unwrap();
        let cells: Vec<_> = section.descendants().filter(|node| node.has_tag_name("td")).collect();
        assert_eq!(cells[0].attribute("style"), Some("--share:0.769"));
        assert_eq!(cells[1].attribute("title"), Some("class 0 as class 1: 15.4 % of the row"));
        let scores = rows(root, "Classes");
        assert_eq!(scores[2], ["class 1", "13", "13", "0.7692", "0.7692", "0.7692"]);
    });
}

/// Up to 64 classes are shown as a matrix; more classes are shown as a list of the most frequent mistakes.
#[test]
fn many_classes_are_shown_as_a_list_of_mistakes() {
    parsed(&page(1, 64).to_html().unwrap(), |root| {
        let matrix = rows(root, "Confusion on the test split");
        assert_eq!((matrix.len(), matrix[64].len()), (65, 65));
        assert_eq!(&matrix[64][..3], ["class 63", "2", "1"]);
    });
    parsed(&page(1, 65).to_html().unwrap(), |root| {
        let pairs = rows(root, "Confusion on the test split");
        assert_eq!(pairs[0], ["class", "predicted", "items", "share of the class"]);
        assert_eq!(pairs[1], ["class 0", "class 1", "2", "15.4 %"]);
        assert_eq!((pairs.len(), rows(root, "Classes").len()), (26, 66));
    });
    parsed(&page(1, 1).to_html().unwrap(), |root| {
        assert_eq!(rows(root, "Confusion on the test split"), [["label", "class 0"], ["class 0", "13"]]);
    });
    let mut many = page(1, 300);
    many.confusion.as_mut().unwrap().add(299, 299);
    parsed(&many.to_html().unwrap(), |root| {
        let scores = rows(root, "Classes");
        assert_eq!((scores.len(), scores[1][0].as_str()), (201, "class 299"));
    });
}

#[test]
fn missing_data_is_replaced_by_a_note_or_left_out() {
    let mut bare = page(0, 2);
    (bare.confusion, bare.config) = (None, Default::default());
    parsed(&bare.to_html().unwrap(), |root| {
        for (title, says) in [
            ("Learning curves", "No epoch was recorded."),
            ("Epochs", "No epoch was recorded."),
            ("Where the time went", "No time was measured."),
            ("Configuration", "No settings were recorded."),
        ] {
            assert_eq!(note(root, title), says);
        }
        assert!(section(root, "Confusion on the test split").is_none() && section(root, "Classes").is_none());
    });
    let mut nameless = page(1, 2);
    nameless.class_names = vec![String::new()];
    parsed(&nameless.to_html().unwrap(), |root| {
        assert_eq!(rows(root, "Confusion on the test split")[0], ["label", "0", "1"]);
    });
    // A class without items has no recall.
    nameless.confusion = Some(matrix(1));
    *nameless.confusion.as_mut().unwrap() = kiln_train::ConfusionMatrix::new(1);
    parsed(&nameless.to_html().unwrap(), |root| {
        assert_eq!(rows(root, "Classes")[1], ["0", "0", "0", "undefined", "undefined", "undefined"]);
    });
}

#[test]
fn numbers_that_are_not_finite_are_shown_as_words() {
    let mut page = page(2, 2);
    page.summary.test_accuracy = f64::NAN;
    page.epochs[0].train_loss = f64::INFINITY;
    page.epochs[1].val_loss = f64::NEG_INFINITY;
    parsed(&page.to_html().unwrap(), |root| {
        let first = root.descendants().find(|node| node.has_tag_name("dd")).unwrap();
        assert_eq!(text(first), "not a number");
        let epochs = rows(root, "Epochs");
        assert_eq!((epochs[1][1].as_str(), epochs[2][3].as_str()), ("infinity", "minus infinity"));
    });
}

#[test]
fn user_input_is_escaped() {
    let mut page = page(1, 2);
    page.title = HOSTILE.into();
    page.class_names = vec![HOSTILE.into(), "b".into()];
    page.config = [(HOSTILE.to_owned(), HOSTILE.to_owned())].into();
    page.summary.weights_hash = HOSTILE.into();
    let html = page.to_html().unwrap();
    parsed(&html, |root| {
        let is_foreign = |node: &Node<'_, '_>| ["script", "img"].contains(&node.tag_name().name());
        assert_eq!(root.descendants().find(is_foreign), None);
        // XML does not allow the character NUL, which is replaced.
        let shown = HOSTILE.replace('\0', "\u{fffd}");
        let heading = root.descendants().find(|node| node.has_tag_name("h1")).unwrap();
        assert_eq!(text(heading), shown);
        assert_eq!(rows(root, "Confusion on the test split")[0][1], shown);
        assert_eq!(rows(root, "Configuration")[1], [shown.as_str(), shown.as_str()]);
    });
}

/// No attribute and no style rule loads a resource.
#[test]
fn the_page_is_self_contained() {
    parsed(&page(3, 65).to_html().unwrap(), |root| {
        for node in root.descendants() {
            let loads = |name: &str| ["src", "href", "srcset", "data", "poster", "action"].contains(&name);
            assert!(!node.attributes().any(|attribute| loads(attribute.name())), "{node:?}");
        }
        let style = text(root.descendants().find(|node| node.has_tag_name("style")).unwrap());
        assert!(!style.contains("url(") && !style.contains("@import") && style.contains("@media print"));
    });
}

/// The style overrides the colours of the drawing library, for dark screens; a colour that it does not contain would
/// not change.
#[test]
fn the_style_overrides_every_colour_of_the_curves() {
    parsed(&page(4, 2).to_html().unwrap(), |root| {
        let style = text(root.descendants().find(|node| node.has_tag_name("style")).unwrap());
        let curves = section(root, "Learning curves").unwrap();
        for name in ["fill", "stroke"] {
            let colors = curves.descendants().filter_map(|node| node.attribute(name));
            for color in colors.filter(|color| *color != "none") {
                assert!(style.contains(&format!(".curves [{name}=\"{color}\"]")), "{name} {color}");
            }
        }
    });
}

#[test]
fn equal_runs_give_identical_pages() {
    assert_eq!(page(4, 65).to_html().unwrap(), page(4, 65).to_html().unwrap());
    assert_ne!(page(4, 65).to_html().unwrap(), page(3, 65).to_html().unwrap());
}

#[test]
fn parses_a_line_of_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = RunFolder::create(folder.path()).unwrap();
    let counts = MetricSums { loss_sum: 5.0, weight: 10.0, hits: 4, total: 10, ..MetricSums::default() };
    let timings = Timings { forward: Duration::from_millis(1500), ..Timings::default() };
    let memory = MemoryUse { anon_bytes: 300 << 20, mapped_bytes: 0 };
    let wall = Duration::from_secs(2);
    let report = EpochReport { n_steps: 3, counts, timings, wall, peak_memory: memory };
    let sums = MetricSums { loss_sum: f64::INFINITY, ..counts };
    let val = Validation { wall: Some(Duration::from_millis(250)), ..sums.into() };
    run.record(1, &report, val).unwrap();
    let lines = std::fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    let row: EpochRow = serde_json::from_str(&lines).unwrap();
    assert!(row.val_loss.is_nan());
    let stages = timings.seconds().map(|(name, seconds)| (name.to_owned(), seconds));
    let expected = EpochRow {
        train_loss: 0.5,
        train_accuracy: 0.4,
        val_loss: 0.0,
        val_accuracy: 0.4,
        n_steps: 3,
        seconds: 2.0,
        seeds_per_second: 5.0,
        stage_seconds: stages.into(),
        ..epoch(1)
    };
    assert_eq!(EpochRow { val_loss: 0.0, ..row }, expected);
}
