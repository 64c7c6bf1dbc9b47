//! Tests of `kiln train --task link`, as a user runs it: splits, negatives, decoders and losses.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod distributed;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use kiln::data::{format, synthetic};
use kiln::graph::{CscBuilder, LinkId};
use kiln::prelude::*;
use kiln::store::npy;
use serde_json::Value;

use crate::distributed_sage::{Data, Learned};
use crate::predict::{fails, succeeds, text};

/// The flags of all runs.
const FLAGS: &str = "--task link --hidden 16 --dropout 0.1 --lr 0.01 --fanouts 4,4 --threads-per-rank 1";

/// The largest difference of scores and metrics that are computed in another order. Scores are up to 50.
const ROUNDING: f64 = 1e-3;

/// Returns an undirected graph of four communities, in which a third of the pairs has edges of type 1.
fn communities() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: 400,
        n_classes: 4,
        degree: 12,
        homophily: 0.9,
        dim: 8,
        noise: 0.5,
        seed: 1,
    };
    let data = synthetic::sbm(config).unwrap();
    let (srcs, dsts) = edges(&data);
    let types: Vec<u8> = srcs.iter().zip(&dsts).map(|(src, dst)| u8::from((src + dst) % 3 == 0)).collect();
    let graph = CscBuilder::new(data.graph.n_nodes()).edge_types(&types).build(&srcs, &dsts).unwrap();
    Dataset { graph: graph.into(), edge_type_names: vec!["a".into(), "b".into()], ..data }
}

fn edges(data: &Dataset) -> (Vec<u32>, Vec<u32>) {
    let srcs = data.csc().unwrap().indices().iter().map(|node| node.0).collect();
    (srcs, data.csc().unwrap().dsts().iter().map(|node| node.0).collect())
}

/// Runs `kiln` with flags and paths that contain no spaces.
fn kiln(flags: &str) -> String {
    succeeds(&flags.split_whitespace().collect::<Vec<_>>())
}

/// A folder with the data of a test and its runs.
struct Sets(Data);

impl Sets {
    /// Writes the graph to `graph`, and splits its links into `split`.
    fn new() -> Self {
        let sets = Self(Data { root: tempfile::tempdir().unwrap() });
        format::write(&communities(), sets.0.path("graph")).unwrap();
        sets.split(3, "split");
        sets
    }

    fn path(&self, name: &str) -> String {
        self.0.path(name).to_str().unwrap().to_owned()
    }

    fn split(&self, seed: u64, out: &str) {
        let (graph, out) = (self.path("graph"), self.path(out));
        kiln(&format!("data split-links {graph} --link-split 0.1,0.2 --seed {seed} --out {out}"));
    }

    fn partition(&self, set: &str, flags: &str, out: &str) -> String {
        let (set, out) = (self.path(set), self.path(out));
        kiln(&format!("data partition {set} {flags} --out {out}"));
        out
    }

    /// Trains on a set into the new folder `out`. Returns the results and the output.
    fn train(&self, set: &str, flags: &str, out: &str) -> (Learned, String) {
        self.0.run(&format!("{FLAGS} --data {} {flags}", self.path(set)), out)
    }

    /// Returns the error of a run that must fail before it writes anything.
    fn rejected(&self, flags: &str) -> String {
        let out = self.path("rejected");
        let flags = format!("train {flags} --out {out}");
        let error = fails(&flags.split_whitespace().collect::<Vec<_>>());
        assert!(!Path::new(&out).exists() && !error.contains("panicked"), "{flags}: {error}");
        error
    }

    fn summary(&self, out: &str) -> Value {
        serde_json::from_str(&self.file(out, "summary.json")).unwrap()
    }

    fn file(&self, out: &str, name: &str) -> String {
        text(&self.0.path(out).join(name))
    }

    /// Reads `test_predictions.csv`.
    fn scores(&self, out: &str) -> Vec<Scored> {
        let csv = self.file(out, "test_predictions.csv");
        let (header, lines) = csv.split_once('\n').unwrap();
        assert_eq!(header, "link,source,destination,score,rank");
        lines.lines().map(Scored::of).collect()
    }

    /// Checks that two runs have the same test links and negatives, and the same losses and scores up to rounding.
    fn check_close(&self, runs: [&str; 2]) {
        let [one, other] = runs.map(|run| Learned::of(&self.0.path(run)));
        one.check_close(&other);
        let [one, other] = runs.map(|run| self.scores(run));
        assert_eq!(one.len(), other.len());
        for (one, other) in one.iter().zip(&other) {
            assert_eq!((one.link, one.pair), (other.link, other.pair));
            assert!((one.score - other.score).abs() < ROUNDING, "{one:?} and {other:?}");
            // A negative whose score is almost that of the link may change places with it.
            assert!((one.rank - other.rank).abs() <= 1.0, "{one:?} and {other:?}");
        }
        for metric in ["roc-auc", "average-precision"] {
            let [one, other] = runs.map(|run| self.summary(run)["test_metrics"][metric].as_f64().unwrap());
            assert!((one - other).abs() < ROUNDING, "{metric}: {one} and {other}");
        }
    }
}

/// A line of `test_predictions.csv`.
#[derive(Debug)]
struct Scored {
    link: usize,
    pair: (u32, u32),
    score: f64,
    rank: f64,
}

impl Scored {
    fn of(line: &str) -> Self {
        let [link, src, dst, score, rank] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let pair = (src.parse().unwrap(), dst.parse().unwrap());
        Self { link: link.parse().unwrap(), pair, score: score.parse().unwrap(), rank: rank.parse().unwrap() }
    }
}

/// Returns `share` of `n`, rounded.
fn part(n: usize, share: f64) -> usize {
    (n as f64 * share).round() as usize
}

/// A split of pairs of nodes that have edges.
struct Case {
    flags: &'static str,
    n_pairs: usize,
    /// The number of links and of edges of a pair.
    of_pair: [usize; 2],
    shares: [f64; 2],
    disjoint_train: f64,
}

impl Case {
    /// Returns the line with the numbers of links and edges, for a graph of `n_edges` edges.
    fn line(&self, n_edges: usize) -> String {
        let [n_links, n_edges_of_pair] = self.of_pair;
        let [n_val, n_test] = self.shares.map(|share| part(self.n_pairs, share));
        let n_train = self.n_pairs - n_val - n_test;
        // The links of these pairs are not in the graph.
        let n_disjoint = part(n_train, self.disjoint_train);
        let n_train = if n_disjoint == 0 { n_train } else { n_disjoint };
        let n_edges = n_edges - n_edges_of_pair * (n_val + n_test + n_disjoint);
        let [n_train, n_val, n_test] = [n_train, n_val, n_test].map(|n| n_links * n);
        format!("links           {n_train} / {n_val} / {n_test}, messages over {n_edges} edges\n")
    }
}

#[test]
fn splits_edges_into_links_by_direction_type_and_shares() {
    let sets = Sets::new();
    let (srcs, dsts) = edges(&communities());
    let n_edges = srcs.len();
    let n_of_type = srcs.iter().zip(&dsts).filter(|(src, dst)| (*src + *dst) % 3 == 0).count();
    let (n_pairs, shares, disjoint_train) = (n_edges / 2, [0.1, 0.2], 0.0);
    let case = |flags, n_pairs, of_pair| Case { flags, n_pairs, of_pair, shares, disjoint_train };
    let default = Case { shares: [0.05, 0.1], ..case("", n_pairs, [1, 2]) };
    let disjoint =
        Case { disjoint_train: 0.25, ..case("--link-split 0.1,0.2 --disjoint-train 0.25", n_pairs, [1, 2]) };
    for case in [
        default,
        disjoint,
        case("--link-split 0.1,0.2 --link-direction undirected --model gcn", n_pairs, [1, 2]),
        case("--link-split 0.1,0.2 --link-direction directed --model gcn", n_edges, [1, 1]),
        case("--link-split 0.1,0.2 --link-direction with-reverses", n_pairs, [2, 2]),
        case("--link-split 0.1,0.2 --link-type 1", n_of_type / 2, [2, 2]),
    ] {
        let (flags, expected) = (case.flags, case.line(n_edges));
        let out = format!("run-{}", flags.replace(' ', ""));
        let (_, printed) = sets.train("graph", &format!("--epochs 1 {flags}"), &out);
        assert!(printed.contains(&expected), "{flags}: expected {expected}{printed}");
        // The reverse of a directed link may be an edge that passes messages.
        let has_leak =
            printed.contains("have a reverse edge there: scores on test do not measure unseen links");
        assert_eq!(has_leak, flags.contains(" directed"), "{flags}: {printed}");
        let n_test = part(case.n_pairs, case.shares[1]) * case.of_pair[0];
        assert_eq!(sets.scores(&out).len(), n_test);
    }
}

#[test]
fn learns_links_and_writes_their_scores_ranks_and_metrics() {
    let sets = Sets::new();
    let (srcs, dsts) = edges(&communities());
    let all: HashSet<(u32, u32)> = srcs.into_iter().zip(dsts).collect();
    for (out, flags) in [
        ("sage", "--metric roc-auc"),
        ("sage-mrr", ""),
        ("gcn", "--metric hits@10 --model gcn --eval exact"),
        ("mlp", "--metric average-precision --decoder mlp --loss bpr --negative-sampler degree"),
    ] {
        let (_, printed) = sets.train("graph", &format!("--epochs 8 --batch-size 256 {flags}"), out);
        let metric = flags.split(' ').nth(1).unwrap_or("mrr");
        assert!(printed.contains(&format!("val {metric} ")), "{printed}");
        let summary = sets.summary(out);
        assert_eq!(summary["metric"], metric);
        let scores = sets.scores(out);
        let pairs: HashSet<(u32, u32)> = scores.iter().map(|scored| scored.pair).collect();
        assert!(pairs.len() == scores.len() && pairs.is_subset(&all), "{out}");
        assert!(scores.iter().all(|scored| (1.0..=101.0).contains(&scored.rank)));
        let mean = |of: &dyn Fn(f64) -> f64| {
            scores.iter().map(|scored| of(scored.rank)).sum::<f64>() / scores.len() as f64
        };
        let hits = mean(&|rank| f64::from(u8::from(rank <= 10.0)));
        for (name, expected) in [("mrr", mean(&|rank| 1.0 / rank)), ("hits@10", hits)] {
            let value = summary["test_metrics"][name].as_f64().unwrap();
            assert!((value - expected).abs() < 1e-9, "{out}: {name} {value}, expected {expected}");
        }
        let auc = summary["test_metrics"]["roc-auc"].as_f64().unwrap();
        assert!(0.75 < auc, "{out}: {auc}");
    }
}

/// A flag that sets the default of `--help` changes nothing.
#[test]
fn link_flags_have_the_defaults_of_their_help() {
    let sets = Sets::new();
    let flags = "--link-split 0.05,0.1 --link-direction undirected --embedding 64 --decoder dot --negatives 1 \
                 --negative-sampler uniform --eval-negatives 100 --exclude reverses --loss bce --metric mrr";
    let [(plain, _), (given, _)] = [("", "plain"), (flags, "given")]
        .map(|(flags, out)| sets.train("graph", &format!("--epochs 1 {flags}"), out));
    assert_eq!(plain.weights_hash, given.weights_hash);
    assert_eq!(sets.file("plain", "test_predictions.csv"), sets.file("given", "test_predictions.csv"));
    let [(two, _), (three, _)] = [("", "default"), (" --decoder-layers 3", "three")]
        .map(|(flags, out)| sets.train("graph", &format!("--epochs 1 --decoder mlp{flags}"), out));
    assert_eq!(two.weights_hash, three.weights_hash);
}

#[test]
fn each_option_of_decoder_negatives_loss_and_messages_changes_the_weights() {
    let sets = Sets::new();
    let options = "--decoder distmult, --decoder mlp, --decoder mlp --decoder-layers 2, --embedding 8, --negatives 3, \
                   --negative-sampler uniform-pairs, --negative-sampler degree, --negative-sampler in-batch, \
                   --reject-edges, --loss bpr, --exclude directed, --exclude none, --model gcn, --seed 1";
    let mut runs = BTreeMap::new();
    for (number, flags) in ["", "--disjoint-train 0.5"].into_iter().chain(options.split(", ")).enumerate() {
        let (learned, _) = sets.train("graph", &format!("--epochs 1 {flags}"), &number.to_string());
        let same = runs.insert(learned.weights_hash, flags);
        assert_eq!(same, None, "`{flags}` has no effect");
    }
}

/// Writes the split to `out` as a folder of arrays without labels, with fixed negatives of these parts: each link is its
/// own negative four times, so that its rank is 3 with any weights.
fn write_fixed(sets: &Sets, with_negatives: &[&str], out: &str) {
    let data = kiln::data::open(sets.0.path("split")).unwrap();
    let folder = sets.0.path(out);
    fs::create_dir(&folder).unwrap();
    let put = |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes).unwrap();
    let (srcs, dsts) = edges(&data);
    put("edges.npy", npy::write(&[srcs.clone(), dsts].concat(), &[2, srcs.len()]));
    let n_nodes = data.graph.n_nodes();
    let rows = |node| data.node_features().unwrap().row(NodeId(node)).unwrap().to_vec();
    let features: Vec<f32> = (0..n_nodes as u32).flat_map(rows).collect();
    put("features.npy", npy::write(&features, &[n_nodes, features.len() / n_nodes]));
    let targets = data.links.unwrap();
    for (name, ids) in targets.targets.split().parts() {
        let pairs = ids.iter().map(|link: &LinkId| targets.targets.links().pair(*link));
        let nodes: Vec<u32> = pairs.clone().flat_map(|(src, dst)| [src.0, dst.0]).collect();
        put(&format!("{name}_edges.npy"), npy::write(&nodes, &[ids.len(), 2]));
        let negatives: Vec<u32> = pairs.flat_map(|(_, dst)| [dst.0; 4]).collect();
        if with_negatives.contains(&name) {
            put(&format!("{name}_negatives.npy"), npy::write(&negatives, &[ids.len(), 4]));
        }
    }
}

#[test]
fn evaluations_use_the_fixed_negatives_of_the_data_unless_their_number_is_given() {
    let sets = Sets::new();
    write_fixed(&sets, &["val", "test"], "fixed");
    let (fixed, _) = sets.train("fixed", "--epochs 1", "run");
    sets.train("fixed", "--epochs 1 --reject-edges --eval exact", "rejecting");
    for out in ["run", "rejecting"] {
        assert!(sets.scores(out).iter().all(|scored| scored.rank == 3.0), "{out}");
        let summary = sets.summary(out);
        let metrics =
            ["mrr", "hits@10", "roc-auc"].map(|name| summary["test_metrics"][name].as_f64().unwrap());
        assert_eq!(metrics, [1.0 / 3.0, 1.0, 0.5], "{out}");
        assert_eq!(summary["val_metric"], 1.0 / 3.0, "{out}");
    }
    let (drawn, _) = sets.train("fixed", "--epochs 1 --eval-negatives 7", "drawn");
    assert_eq!(fixed.weights_hash, drawn.weights_hash, "negatives of evaluations should not affect training");
    let (fixed, drawn) = (sets.scores("run"), sets.scores("drawn"));
    assert!(fixed.iter().zip(&drawn).all(|(fixed, drawn)| fixed.score == drawn.score));
    assert!(drawn.iter().all(|scored| scored.rank <= 8.0) && drawn.iter().any(|scored| scored.rank > 5.0));
}

#[test]
fn rejecting_edges_keeps_the_fixed_negatives_of_one_part() {
    let sets = Sets::new();
    for (part, is_fixed) in [("val", [true, false]), ("test", [false, true])] {
        write_fixed(&sets, &[part], part);
        sets.train(part, "--epochs 1 --reject-edges", &format!("{part}-run"));
        let summary = sets.summary(&format!("{part}-run"));
        let mrr =
            [&summary["val_metric"], &summary["test_metrics"]["mrr"]].map(|value| value.as_f64().unwrap());
        assert_eq!(mrr.map(|mrr| mrr == 1.0 / 3.0), is_fixed, "{part}: {mrr:?}");
    }
}

#[test]
fn graphs_without_labels_have_links_to_learn_but_no_nodes() {
    let sets = Sets::new();
    write_fixed(&sets, &[], "unlabelled");
    for entry in fs::read_dir(sets.0.path("unlabelled")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.to_str().unwrap().ends_with("_edges.npy") {
            fs::remove_file(entry).unwrap();
        }
    }
    let (_, printed) = sets.train("unlabelled", "--epochs 1", "run");
    assert!(printed.contains("links           "), "{printed}");
    let error = sets.rejected(&format!("--data {}", sets.path("unlabelled")));
    assert!(error.contains("add at least one, or use --task link"), "{error}");
}

/// `kiln data split-links` splits as training does, so the runs are the same.
#[test]
fn a_split_that_is_written_first_trains_the_same_weights() {
    let sets = Sets::new();
    let (of_graph, _) = sets.train("graph", "--epochs 1 --seed 3 --link-split 0.1,0.2", "graph-run");
    let (of_split, _) = sets.train("split", "--epochs 1 --seed 3", "split-run");
    assert_eq!(of_graph.weights_hash, of_split.weights_hash);
    assert_eq!(
        sets.file("graph-run", "test_predictions.csv"),
        sets.file("split-run", "test_predictions.csv")
    );
}

#[test]
fn rejects_link_flags_that_contradict_the_data_or_each_other() {
    let sets = Sets::new();
    let [graph, split] = ["graph", "split"].map(|set| format!("--data {}", sets.path(set)));
    let remove = "has a split of links: remove --link-split, --link-times, --link-type, --link-direction and --disjoint-train";
    for (flags, expected) in [
        ("--link-split 0.1,0.1", remove),
        ("--link-type 1", remove),
        ("--link-direction directed", remove),
        ("--disjoint-train 0.5", remove),
        ("--decoder-layers 2", "--decoder-layers requires --decoder mlp: add it, or remove --decoder-layers"),
        ("--loss cross-entropy", "--loss is for class labels: use bce or bpr for links"),
        ("--loss huber", "--loss is for regression targets: use bce or bpr for links"),
        ("--metric accuracy", "not defined for links: use one of roc-auc, average-precision, mrr, hits@10"),
        ("--model gin", "--model gin and simplified classify graphs"),
        ("--negatives 0", "expected a whole number from 1 to 1000000"),
        ("--cache-size 1MiB", "--cache-size does not apply to training on links of a whole graph: remove it"),
    ] {
        let error = sets.rejected(&format!("{FLAGS} {split} {flags}"));
        assert!(error.contains(expected), "{flags}: expected {expected}: {error}");
    }
    for (flags, expected) in [
        ("--link-split 0.1", "--link-split: got 1 numbers, expected two: VAL,TEST"),
        ("--link-split 0.6,0.6", "the sum of the shares is 1.2, expected at most 1"),
        ("--link-split 0,0.1 --patience 2", "epochs on the validation split, which has no items: remove"),
        ("--eval-negatives 9 --metric hits@10", "links have 9 negatives each: use one of roc-auc, average-"),
        ("--link-type 7", "the graph has no edge of type 7 between two different nodes"),
    ] {
        let error = sets.rejected(&format!("{FLAGS} {graph} {flags}"));
        assert!(error.contains(expected), "{flags}: expected {expected}: {error}");
    }
}

#[test]
fn rejects_link_flags_without_the_task() {
    let sets = Sets::new();
    for (flag, value) in [("exclude", "none"), ("reject-edges", ""), ("link-type", "1"), ("decoder", "mlp")] {
        let error = sets.rejected(&format!("--task node --data {} --{flag} {value}", sets.path("graph")));
        let expected = format!("--{flag} does not apply to training on nodes of a whole graph: remove it");
        assert!(error.contains(&expected), "expected {expected}: {error}");
    }
}
