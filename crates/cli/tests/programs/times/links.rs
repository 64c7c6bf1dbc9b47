//! Links and edges with times: their splits, and what was known before them.

use kiln::data::{TimeSplit, format};

use super::{date, error, kiln, payments, payments_with, weights_hash};

#[test]
fn links_are_split_by_the_times_of_their_edges() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let split_nodes = payments();
    format::write(&split_nodes, root.join("nodes")).unwrap();
    let data = split_nodes.clone().with_split(split_nodes.split().clone()).unwrap();
    format::write(&data, root.join("set")).unwrap();
    let times = "--link-times 2026-02-01,2026-03-01,2026-04-01 --link-direction directed";
    let printed = kiln(root, &format!("data split-links @/set {times} --out @/links"));
    assert!(printed.contains("links           56 / 62 / 59, messages over 238 edges"), "{printed}");
    let links = format::open(root.join("links")).unwrap();
    let expected = TimeSplit::new(Some(date("2026-02-01")), date("2026-03-01"), date("2026-04-01")).unwrap();
    assert_eq!(links.times.split, Some(expected));
    let train =
        "train --task link --hidden 8 --embedding 8 --layers 1 --fanouts 4 --epochs 1 --threads-per-rank 1";
    let of_set = kiln(root, &format!("{train} --data @/links --out @/run"));
    assert!(!of_set.contains("are edges of the graph"), "{of_set}");
    let of_flags = kiln(root, &format!("{train} --data @/set {times} --out @/flags"));
    assert_eq!(weights_hash(root, "run"), weights_hash(root, "flags"), "{of_flags}");
    kiln(root, "data partition @/links --cache-ratio 0 --parts 1 --out @/parts");
    kiln(root, &format!("{train} --data @/links --parts @/parts --host 127.0.0.1 --out @/of-parts"));
    assert_eq!(weights_hash(root, "of-parts"), weights_hash(root, "run"));
    for (times, expected) in [
        ("2026-02-01", "--link-times: got 1 times, expected VAL,TEST or TRAIN,VAL,TEST"),
        ("2026-04-01,2026-03-01", "expected train before val, and val not after test"),
        ("35,40", "`35` is no time: expected a date"),
        ("2027-01-01,2027-02-01", "no item of the split by time is in the val part"),
    ] {
        let got = error(root, &format!("data split-links @/set --link-times {times} --out @/bad"));
        assert!(got.contains(expected), "{got}");
    }
    let other = error(root, &format!("data split-links @/nodes {times} --out @/bad"));
    assert!(other.contains("the nodes of payments have a split by time"), "{other}");
    let without = error(root, "data split-links fake:50 --link-times 3,4 --out @/bad");
    assert!(without.contains("the edges of the relation `edge` have no times"), "{without}");
}

#[test]
fn links_and_edges_know_what_was_known_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let set = payments_with(&[1, 5, 7]);
    let set = set.clone().with_split(set.split().clone()).unwrap();
    format::write(&set, root.join("set")).unwrap();
    let times = "--link-times 2026-02-01,2026-03-01,2026-04-01 --link-direction directed";
    let link = "train --task link --hidden 8 --embedding 8 --layers 1 --fanouts 2 --epochs 1 --batch-size 8 --threads-per-rank 1";
    let of_set = format!("{link} --data @/set {times} --messages item-time");
    for (name, flags) in [
        ("before", "--reject-edges"),
        ("recent", "--rule most-recent"),
        ("window", "--time-window 60h"),
        ("past", "--negative-sampler past"),
    ] {
        let printed = kiln(root, &format!("{of_set} {flags} --out @/{name}"));
        assert!(name == "past" || !printed.contains("are edges of the graph"), "{printed}");
    }
    let hashes = ["before", "recent", "window", "past"].map(|run| weights_hash(root, run));
    for (position, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..position].contains(hash), "{position} of {hashes:?}");
    }
    // A stored split keeps the times of its links.
    let printed = kiln(root, &format!("data split-links @/set {times} --with-times --out @/links"));
    assert!(printed.contains("messages over 585 edges"), "{printed}");
    let of_links = format!("{link} --data @/links --messages item-time");
    kiln(root, &format!("{of_links} --rule most-recent --out @/stored"));
    assert_eq!(weights_hash(root, "stored"), weights_hash(root, "recent"));
    kiln(root, &format!("data split-links @/set {times} --out @/once"));
    std::fs::write(root.join("pairs.csv"), "3,70\n90,4\n").unwrap();
    let scores = |run: &str| std::fs::read_to_string(root.join(run).join("links.csv")).unwrap();
    let predict = "predict --run @/before --data @/set --pairs @/pairs.csv";
    kiln(root, &format!("{predict} --at 2026-03-20 --out @/march"));
    kiln(root, &format!("{predict} --at 2026-02-02 --out @/february"));
    assert_ne!(scores("march"), scores("february"));
    kiln(root, "predict --run @/before --data @/set --top-k 3 --exclude-edges --at 2026-02-02 --out @/top");
    // Destinations exist before the time.
    let first_late = 32;
    for line in scores("top").lines().skip(1) {
        let dst: u32 = line.split(',').nth(1).unwrap().parse().unwrap();
        assert!(dst < first_late, "{line}");
    }
    for (flags, expected) in [
        (format!("{of_set} --until --out @/x"), "the edge of a link has the time of the link"),
        (format!("{of_set} --eval exact --out @/x"), "exact evaluation of items of several times"),
        (format!("{of_set} --negative-sampler past --reject-edges --out @/x"), "which are edges: remove one"),
        (format!("{of_set} --negative-sampler degree --out @/x"), "use uniform or past"),
        (
            format!("{link} --data @/set {times} --negative-sampler past --out @/x"),
            "add --messages item-time, or use another sampler",
        ),
        (
            of_links.replace("@/links", "@/once") + " --out @/x",
            "the links of payments have no times, at which their nodes would be sampled",
        ),
        (
            format!("{link} --data @/set --messages item-time --disjoint-train 0.5 --out @/x"),
            "0 for links with times",
        ),
        (format!("{predict} --out @/x"), "these items have no times"),
        ("predict --run @/before --data @/set --top-k 3 --out @/x".to_owned(), "these items have no times"),
    ] {
        let printed = error(root, &flags);
        assert!(printed.contains(expected), "{flags}: {printed}");
    }
    // Edges with targets have the times of their table.
    crate::fraud::Payments::generate(4_000).write(&root.join("payments.parquet"));
    kiln(root, "data spec @/payments.parquet --out @/fraud.yaml");
    kiln(root, "data import @/fraud.yaml --out @/fraud");
    let edges = "train --task edge --data @/fraud --layers 1 --fanouts 3 --hidden 8 --embedding 8 --epochs 1 --threads-per-rank 1";
    kiln(root, &format!("{edges} --messages item-time --rule most-recent --out @/edges"));
    let printed = kiln(root, "predict --run @/edges --data @/fraud --out @/predicted");
    assert!(!printed.contains("messages pass over all edges"), "{printed}");
    let text = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let of_run = text("edges/test_predictions.csv");
    assert!(100 < of_run.lines().count());
    assert!(text("predicted/predictions.csv") == of_run, "the predictions differ");
    kiln(root, "predict --run @/edges --data @/fraud --at 2026-01-02 --out @/early");
    assert!(text("early/predictions.csv") != of_run, "the predictions should read less");
}
