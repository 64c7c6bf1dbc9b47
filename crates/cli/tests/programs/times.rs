//! Data with times as a user trains, predicts and partitions it: messages of each phase, and what was known at a time.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod links;

use std::path::Path;

use kiln::data::{Dataset, TimeKind, TimeSplit, format};
use kiln::graph::{EdgeColumn, EdgeColumns, NodeTypes, RelationEdges};

use crate::predict::{fails, succeeds};

fn date(text: &str) -> i64 {
    TimeKind::Date.parse(text).unwrap()
}

/// A ring of payments in 2026, of which payment `i` is on day `i` and reads that of the day before, and from the day after.
fn payments() -> Dataset {
    payments_with(&[])
}

/// [`payments`] that also read the payment `back` payments before, `back / 2` days before their own, for each `back`.
fn payments_with(more: &[u32]) -> Dataset {
    let n_nodes = 120_u32;
    let day = date("2026-01-02") - date("2026-01-01");
    let of_day = |day_of_year: u32| date("2026-01-01") + i64::from(day_of_year) * day;
    let mut edges: Vec<(u32, u32, i64)> =
        (1..n_nodes).map(|node| (node - 1, node, of_day(node - 1))).collect();
    edges.extend((1..n_nodes).map(|node| (node, node - 1, of_day(node))));
    for back in more {
        edges.extend((*back..n_nodes).map(|node| (node - back, node, of_day(node - back / 2))));
    }
    let srcs: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let dsts: Vec<u32> = edges.iter().map(|edge| edge.1).collect();
    let times: Vec<i64> = edges.iter().map(|edge| edge.2).collect();
    Dataset::builder(n_nodes as usize)
        .name("payments")
        .edges(&srcs, &dsts)
        .edge_column(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap())
        .features((0..n_nodes).map(|node| (node * 7 % 11) as f32).collect::<Vec<f32>>(), 1)
        .labels((0..n_nodes).map(|node| (node / 3 % 2) as i32).collect::<Vec<i32>>(), 2)
        .node_times((0..n_nodes).map(of_day).collect::<Vec<i64>>())
        .time_kind(TimeKind::Date)
        .time_split(TimeSplit::new(None, date("2026-03-01"), date("2026-04-01")).unwrap())
        .build()
        .unwrap()
}

fn kiln(root: &Path, flags: &str) -> String {
    let flags = flags.replace('@', root.to_str().unwrap());
    succeeds(&flags.split_whitespace().collect::<Vec<_>>())
}

fn error(root: &Path, flags: &str) -> String {
    let flags = flags.replace('@', root.to_str().unwrap());
    fails(&flags.split_whitespace().collect::<Vec<_>>())
}

fn weights_hash(root: &Path, run: &str) -> String {
    let json = std::fs::read_to_string(root.join(run).join("summary.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&json).unwrap()["weights_hash"].to_string()
}

#[test]
fn messages_read_what_was_known_in_each_phase_and_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    format::write(&payments(), root.join("set")).unwrap();
    let summary = kiln(root, "data inspect @/set");
    assert!(summary.contains("times of the edges `edge`: 2026-01-01 to 2026-04-30"), "{summary}");
    assert!(summary.contains("split by time: validate from 2026-03-01, test from 2026-04-01"), "{summary}");
    let train = "train --data @/set --model sage --layers 1 --hidden 8 --fanouts 4 --epochs 2 --batch-size 8 --threads-per-rank 1";
    let known = kiln(root, &format!("{train} --out @/known"));
    let all = kiln(root, &format!("{train} --messages all --out @/all"));
    let note = "note: messages pass over edges of all times";
    assert!(!known.contains(note) && all.contains(note), "{known}\n{all}");
    let scores = |run: &str| std::fs::read_to_string(root.join(run)).unwrap();
    assert_ne!(weights_hash(root, "known"), weights_hash(root, "all"));
    // Without --at, the predictions are those of the test of the run.
    let printed = kiln(root, "predict --run @/known --data @/set --out @/of-run");
    assert!(
        printed.contains("messages pass over the edges before 2026-04-01, the time of the test"),
        "{printed}"
    );
    kiln(root, "predict --run @/known --data @/set --at 2026-04-01 --out @/at");
    assert_eq!(scores("of-run/scores.csv"), scores("at/scores.csv"));
    kiln(root, "predict --run @/known --data @/set --at 2027-01-01T00:00:00+01:00 --out @/later");
    assert_ne!(scores("of-run/scores.csv"), scores("later/scores.csv"));
    let of_text = error(root, "predict --run @/known --data @/set --at soon --out @/soon");
    assert!(of_text.contains("`soon` is no time: expected a date such as 2026-03-01"), "{of_text}");
    let without = error(root, "predict --run @/known --data fake:50 --at 7 --out @/ring");
    assert!(without.contains("have no times, which a split by time needs"), "{without}");
    // Partitions have the same split: one rank that holds the only one has the batches of the whole set.
    kiln(root, "data partition @/set --cache-ratio 0 --parts 1 --out @/parts");
    let of_parts = train.replace("--data @/set", "--parts @/parts --host 127.0.0.1");
    for (name, flags) in [("known", ""), ("all", "--messages all")] {
        let printed = kiln(root, &format!("{of_parts} {flags} --out @/parts-{name}"));
        assert_eq!(printed.contains(note), name == "all", "{printed}");
        assert_eq!(weights_hash(root, &format!("parts-{name}")), weights_hash(root, name), "{name}");
    }
    let predict = "predict --run @/known --parts @/parts --host 127.0.0.1";
    let printed = kiln(root, &format!("{predict} --out @/parts-test"));
    assert!(printed.contains("messages pass over the edges before 2026-04-01"), "{printed}");
    kiln(root, &format!("{predict} --at 2027-01-01T00:00:00+01:00 --out @/parts-later"));
    for (of_parts, whole) in [("parts-test", "of-run"), ("parts-later", "later")] {
        let [got, expected] = [of_parts, whole].map(|run| scores(&format!("{run}/scores.csv")));
        assert_eq!(got, expected, "{of_parts}");
    }
    let of_text = error(root, &format!("{predict} --at soon --out @/soon"));
    assert!(of_text.contains("`soon` is no time: expected a date such as 2026-03-01"), "{of_text}");
}

#[test]
fn items_know_what_was_known_at_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    format::write(&payments_with(&[1, 5, 7]), root.join("set")).unwrap();
    let train = "train --data @/set --model sage --layers 1 --hidden 8 --fanouts 1 --epochs 2 --batch-size 8 --threads-per-rank 1";
    let item_time = format!("{train} --messages item-time");
    for (name, flags) in [
        ("before", ""),
        ("until", "--until"),
        ("recent", "--rule most-recent"),
        ("window", "--time-window 60h"),
    ] {
        kiln(root, &format!("{item_time} {flags} --out @/{name}"));
    }
    let hashes: Vec<String> =
        ["before", "until", "recent", "window"].map(|run| weights_hash(root, run)).to_vec();
    for (position, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..position].contains(hash), "{position} of {hashes:?}");
    }
    let model = std::fs::read_to_string(root.join("window/model.json")).unwrap();
    let model: serde_json::Value = serde_json::from_str(&model).unwrap();
    let limits = serde_json::json!({"includes_equal": false, "window": 60 * 3_600_000_000_u64});
    assert_eq!(model["inputs"]["sampling"]["item_times"], limits, "{model}");
    let scores = |run: &str| std::fs::read_to_string(root.join(run).join("scores.csv")).unwrap();
    let printed = kiln(root, "predict --run @/before --data @/set --out @/own");
    assert!(!printed.contains("messages pass over"), "{printed}");
    kiln(root, "predict --run @/before --data @/set --at 2026-01-02 --out @/early");
    assert_ne!(scores("own"), scores("early"));
    kiln(root, "data partition @/set --cache-ratio 0 --parts 1 --out @/parts");
    let of_parts = item_time.replace("--data @/set", "--parts @/parts --host 127.0.0.1");
    kiln(root, &format!("{of_parts} --rule most-recent --out @/of-parts"));
    assert_eq!(weights_hash(root, "of-parts"), hashes[2]);
    for (at, name) in [("", "own"), ("--at 2026-01-02", "early")] {
        kiln(
            root,
            &format!("predict --run @/before --parts @/parts --host 127.0.0.1 {at} --out @/parts-{name}"),
        );
        assert_eq!(scores(&format!("parts-{name}")), scores(name));
    }
    for (flags, expected) in [
        (format!("{train} --until --out @/x"), "--until and --time-window are about the times of items"),
        (
            format!("{item_time} --time-window 30 --out @/x"),
            "`30` is no time: expected a positive number of days",
        ),
        (format!("{train} --rule most-recent --out @/x"), "`most-recent` picks by time"),
        (
            format!("{item_time} --eval exact --out @/x"),
            "exact evaluation of items of several times is not possible",
        ),
        (format!("{of_parts} --eval exact --out @/x"), "--eval exact needs the whole graph"),
        (format!("{of_parts} --graph-mode zero-copy --out @/x"), "keep the graph on the host"),
        ("predict --run @/before --data @/set --mode exact --out @/x".to_owned(), "at the time of each item"),
        ("predict --run @/before --data fake:50 --out @/x".to_owned(), "use items with times"),
    ] {
        let printed = error(root, &flags);
        assert!(printed.contains(expected), "{flags}: {printed}");
    }
}

#[test]
fn models_read_ages_in_frequencies() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    format::write(&payments_with(&[1, 5, 7]), root.join("set")).unwrap();
    let train =
        "train --data @/set --layers 1 --hidden 8 --fanouts 2 --epochs 2 --batch-size 8 --threads-per-rank 1";
    let item_time = format!("{train} --messages item-time");
    let runs = [
        ("sage", "--model sage"),
        ("sage-fixed", "--model sage --time-encoding fixed"),
        ("sage-four", "--model sage --time-encoding fixed --time-frequencies 4"),
        ("sage-learned", "--model sage --time-encoding learned"),
        ("gatv2-fixed", "--model gatv2 --heads 2 --time-encoding fixed"),
        // The ages are all that it reads of the edges.
        ("gine-learned", "--model gine --time-encoding learned"),
    ];
    let mut hashes = Vec::new();
    for (name, flags) in runs {
        kiln(root, &format!("{item_time} {flags} --out @/{name}"));
        let hash = weights_hash(root, name);
        assert!(!hashes.contains(&hash), "{name}");
        hashes.push(hash);
        kiln(root, &format!("predict --run @/{name} --data @/set --out @/{name}-test"));
        let read = |path: String| std::fs::read_to_string(root.join(path)).unwrap();
        let expected = read(format!("{name}/test_predictions.csv"));
        assert_eq!(read(format!("{name}-test/predictions.csv")), expected, "{name}");
    }
    let file = root.join("gine-learned/model.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let model: serde_json::Value = serde_json::from_str(&text).unwrap();
    let unit = date("2026-04-30") - date("2026-01-01");
    let ages = serde_json::json!({"unit": unit, "node_types": [true], "relations": [true]});
    assert_eq!(model["inputs"]["sampling"]["ages"], ages, "{model}");
    let longer = item_time.replace("--epochs 2", "--epochs 3");
    kiln(root, &format!("{longer} --model sage --time-encoding fixed --resume @/sage-fixed"));
    let other = error(root, &format!("{longer} --model sage --time-encoding learned --resume @/sage-fixed"));
    assert!(other.contains("--time-encoding was fixed and is learned now"), "{other}");
    for (from, to) in [
        (format!("\"unit\": {unit}"), "\"unit\": 0".to_owned()),
        ("\"n_frequencies\": 16".to_owned(), "\"n_frequencies\": 0".to_owned()),
    ] {
        assert!(text.contains(&from), "{text}");
        std::fs::write(&file, text.replace(&from, &to)).unwrap();
        let printed = error(root, "predict --run @/gine-learned --data @/set --out @/x");
        assert!(printed.contains("model.json"), "{printed}");
    }
    kiln(root, "data partition @/set --cache-ratio 0 --parts 1 --out @/parts");
    let of_parts = item_time.replace("--data @/set", "--parts @/parts --host 127.0.0.1");
    let encoded = "--model sage --time-encoding fixed --out @/x";
    for (flags, expected) in [
        (format!("{train} {encoded}"), "let items have times (--messages item-time)"),
        (format!("{item_time} {encoded} --eval exact"), "exact evaluation of"),
        (
            format!("{of_parts} {encoded}"),
            "--time-encoding does not apply to training on nodes of a partitioned graph",
        ),
        (format!("{item_time} --time-frequencies 4 --out @/x"), "--time-encoding"),
        (
            format!("{} {encoded}", item_time.replace("@/set", "fake:50")),
            "the model sage has no ages to encode",
        ),
        ("predict --run @/sage-fixed --data fake:50 --at 3 --out @/x".to_owned(), "times"),
    ] {
        let printed = error(root, &flags);
        assert!(printed.contains(expected), "{flags}: {printed}");
    }
}

fn ids(nodes: std::ops::Range<u32>) -> Vec<u32> {
    nodes.collect()
}

#[test]
fn relations_have_rules_and_windows_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let ends: Vec<u32> = (0..600).map(|edge| edge * 7 % 60).collect();
    let srcs: Vec<u32> = (0..600).map(|edge| edge * 11 % 13).collect();
    let times = EdgeColumn::new((0..600).map(|edge| edge * 17 % 60).collect::<Vec<i64>>(), 1).unwrap();
    let columns = EdgeColumns::default().with(EdgeColumns::TIMES, times).unwrap();
    let buys = RelationEdges::new("buys=all", "item", "user", &srcs, &ends);
    let data = Dataset::builder_with_types(NodeTypes::new([("user", 60), ("item", 13)]).unwrap())
        .relation(RelationEdges { columns: Some(&columns), ..buys })
        .relation(RelationEdges::new("likes", "item", "user", &srcs, &ends))
        .nodes("user")
        .features((0..60).map(|user| user as f32 / 60.0).collect::<Vec<f32>>(), 1)
        .labels((0..60).map(|user| user / 3 % 2).collect::<Vec<i32>>(), 2)
        .split(ids(0..40), ids(40..50), ids(50..60))
        .nodes("item")
        .features((0..13).map(|item| item as f32 / 13.0).collect::<Vec<f32>>(), 1)
        .build()
        .unwrap();
    let data = data.with_node_times(0, (0..60).collect::<Vec<i64>>()).unwrap();
    format::write(&data, root.join("set")).unwrap();
    let train = "train --data @/set --model sage --layers 1 --hidden 8 --fanouts 2 --epochs 1 --batch-size 8 --threads-per-rank 1 --messages item-time";
    for (name, flags) in [
        ("uniform", "--rule uniform;likes=uniform --time-window buys=all=all"),
        ("none", ""),
        ("recent", "--rule buys=all=most-recent"),
        ("window", "--time-window all;buys=all=9"),
    ] {
        kiln(root, &format!("{train} {flags} --out @/{name}"));
    }
    let hashes = ["none", "recent", "window"].map(|run| weights_hash(root, run));
    assert_eq!(weights_hash(root, "uniform"), hashes[0]);
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2], "{hashes:?}");
    kiln(root, "predict --run @/recent --data @/set --out @/own");
    format::write(&payments(), root.join("plain")).unwrap();
    let plain = train.replace("@/set", "@/plain");
    for (flags, expected) in [
        (format!("{train} --rule bought=most-recent"), "no relation `bought`"),
        (format!("{train} --rule likes=most-recent"), "`likes` has the rule `most-recent`"),
        (format!("{train} --time-window likes=5"), "`likes` has a window of time"),
        (format!("{train} --time-window likes=5d"), "`5d` is no time"),
        (format!("{train} --rule uniform;uniform"), "expected one value without a name of a relation"),
        (format!("{train} --rule likes=latest"), "invalid value 'latest' for '--rule <RULE>'"),
        (format!("{plain} --rule edge=most-recent"), "--rule names the relation `edge`"),
        (format!("{plain} --time-window edge=5d"), "--time-window names the relation `edge`"),
    ] {
        let printed = error(root, &format!("{flags} --out @/x"));
        assert!(printed.contains(expected), "{flags}: {printed}");
    }
}
