//! Tests of `kiln predict` with models of the links of a relation: scores belong to ids and names within the types of sources and
//! destinations, are the same on any number of ranks and for keys in other files, and the best destinations are the best of all.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use kiln::data::Dataset;
use kiln::graph::NodeId;

use crate::predict::{fails, succeeds, text};
use crate::predict_typed::{imported, predict, shuffled};

/// The flags that name the links.
const PURCHASES: [&str; 4] = ["--relation", "buys", "--reverse-relation", "bought by"];

/// Trains on the purchases of a set, and returns the folder of the run.
pub(crate) fn trained(root: &Path, set: &str) -> String {
    trained_with(root, set, "run", &PURCHASES)
}

fn trained_with(root: &Path, set: &str, out: &str, flags: &[&str]) -> String {
    let out = root.join(out).to_str().unwrap().to_owned();
    let of_model = "--task link --hidden 8 --embedding 8 --layers 1 --fanouts all --epochs 2";
    let of_model: Vec<&str> = of_model.split_whitespace().collect();
    succeeds(&[&["train", "--data", set, "--out", &out], &of_model[..], flags].concat());
    out
}

/// The lines of `links.csv`: the ids and names of source and destination, and the score.
fn lines(folder: &Path) -> Vec<Vec<String>> {
    let csv = text(&folder.join("links.csv"));
    let (header, lines) = csv.split_once('\n').unwrap();
    assert_eq!(header, "source,source_name,destination,destination_name,score");
    lines.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// Returns the score of each pair of names.
fn by_key(folder: &Path) -> BTreeMap<[String; 2], f64> {
    let score = |fields: Vec<String>| ([fields[1].clone(), fields[3].clone()], fields[4].parse().unwrap());
    lines(folder).into_iter().map(score).collect()
}

#[test]
fn scores_of_keys_do_not_depend_on_files_order_and_ranks() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let run = trained(root, &set);
    let data = Dataset::open(&set).unwrap();
    let name = |node_type: usize, node: usize| data.names[node_type].get(NodeId(node as u32)).unwrap();
    let pairs: Vec<[usize; 2]> =
        (0..50).map(|pair| [pair * 7 % data.names[0].len(), pair * 11 % 120]).collect();
    let [ids, keys] = ["pairs.csv", "pairs.txt"].map(|file| root.join(file));
    let lines_of =
        |line: &dyn Fn([usize; 2]) -> String| pairs.iter().map(|pair| line(*pair)).collect::<String>();
    fs::write(&ids, lines_of(&|[src, dst]| format!("{src},{dst}\n"))).unwrap();
    fs::write(&keys, lines_of(&|[src, dst]| format!("{}\t{}\n", name(0, src), name(1, dst)))).unwrap();
    let scored = |out: &str, data: &str, flags: &str| {
        predict(&run, data, &root.join(out), flags);
        text(&root.join(out).join("links.csv"))
    };
    let of_ids = scored("ids", &set, &format!("--pairs {}", ids.display()));
    for ((line, [src, dst]), row) in of_ids.lines().skip(1).zip(&pairs).zip(lines(&root.join("ids"))) {
        assert!(line.starts_with(&format!("{src},{},{dst},{},", name(0, *src), name(1, *dst))), "{line}");
        assert!(row[4].parse::<f64>().unwrap().is_finite());
    }
    let of_keys = format!("--pair-keys {}", keys.display());
    assert_eq!(scored("keys", &set, &of_keys), of_ids);
    assert_eq!(scored("ranks", &set, &format!("{of_keys} --ranks 2")), of_ids);
    let other = shuffled(root, &set);
    scored("of-other", &other, &of_keys);
    let (one, other) = (by_key(&root.join("ids")), by_key(&root.join("of-other")));
    assert!(one.keys().eq(other.keys()));
    for (pair, score) in &one {
        assert!((score - other[pair]).abs() < 1e-4, "{pair:?}: {score} {}", other[pair]);
    }
    // Equal scores would also be the same.
    let scores: Vec<f64> = one.into_values().collect();
    assert!(scores.iter().any(|score| 1e-3 < (score - scores[0]).abs()));
    // The run numbers the nodes of its links within their types, too.
    let of_run = text(&Path::new(&run).join("test_predictions.csv"));
    for line in of_run.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [src, dst]: [usize; 2] = [fields[1], fields[3]].map(|id| id.parse().unwrap());
        assert!(src < data.names[0].len() && dst < 120, "{line}");
        assert_eq!([fields[2], fields[4]], [name(0, src), name(1, dst)]);
    }
    // A Parquet file has a row for each pair.
    scored_parquet(root, &run, &set, &of_keys, pairs.len());
}

fn scored_parquet(root: &Path, run: &str, set: &str, flags: &str, n_pairs: usize) {
    let out = root.join("parquet");
    predict(run, set, &out, &format!("{flags} --format parquet"));
    let spec = format!(
        "name: scores
nodes:
  - {{name: buyer, from: relations}}
  - {{name: item, from: relations}}
relations:
  - name: scored
    files: [{}]
    src: {{type: buyer, column: source_name}}
    dst: {{type: item, column: destination_name}}
",
        out.join("links.parquet").display()
    );
    fs::write(root.join("scores.yaml"), spec).unwrap();
    let set = crate::predict_typed::import(root, "scores.yaml", "scores", &[]);
    assert_eq!(Dataset::open(set).unwrap().graph.n_edges(), n_pairs as u64);
}

#[test]
fn top_k_are_destinations_of_the_relation_and_known_links_can_be_left_out() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let run = trained(root, &set);
    let data = Dataset::open(&set).unwrap();
    let buyer = |node: u32| data.names[0].get(NodeId(node)).unwrap().to_owned();
    let keys = root.join("buyers.txt");
    fs::write(&keys, format!("{}\n{}\n", buyer(3), buyer(0))).unwrap();
    let relation = data.graph.iter().position(|relation| relation.name == "buys").unwrap();
    let graph = data.graph.whole_graph(relation).unwrap();
    let items = data.graph.types().range(1);
    let is_known = |src: u32, dst: u32| graph.in_neighbors(NodeId(items.start + dst)).contains(&NodeId(src));
    for (out, flags) in [("all", ""), ("new", "--exclude-edges")] {
        let of_buyers = format!("--top-k 120 --keys {} {flags}", keys.display());
        predict(&run, &set, &root.join(out), &of_buyers);
        let found = lines(&root.join(out));
        let mut n_expected = 0;
        for src in [3, 0] {
            let known: HashSet<u32> = (0..120).filter(|dst| is_known(src, *dst)).collect();
            assert!(!known.is_empty());
            let of_src: Vec<_> = found.iter().filter(|row| row[1] == buyer(src)).collect();
            let dsts: HashSet<u32> = of_src.iter().map(|row| row[2].parse().unwrap()).collect();
            let expected: HashSet<u32> =
                (0..120).filter(|dst| flags.is_empty() || !known.contains(dst)).collect();
            assert_eq!(dsts, expected);
            let scores: Vec<f64> = of_src.iter().map(|row| row[4].parse().unwrap()).collect();
            assert!(scores.is_sorted_by(|a, b| b <= a));
            n_expected += expected.len();
        }
        assert_eq!(found.len(), n_expected);
    }
    let npy = root.join("npy");
    predict(&run, &set, &npy, "--top-k 2 --nodes all --format npy");
    let links = kiln::store::ArrayFile::open(npy.join("links.npy")).unwrap();
    assert_eq!(links.shape(), [2 * data.names[0].len(), 2]);
    let ids = links.elements::<u32>().unwrap();
    assert!(ids.chunks(2).all(|pair| pair[0] < data.names[0].len() as u32 && pair[1] < 120));
    let unsuitable = |flags: &str| {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let out = root.join("none");
        fails(
            &[&["predict", "--run", &run, "--data", &set, "--out", out.to_str().unwrap()], &flags[..]]
                .concat(),
        )
    };
    for (text, flag, message) in [
        ("0,120\n", "--pairs", "line 1: \"120\", expected a node id below 120"),
        ("0,0\n100,0\n", "--pairs", "the source of pair 1, counted from 0, is 100: expected an id below"),
        ("b0 i0\n", "--pair-keys", "line 1: expected two names and a tab between them"),
        ("stranger\ti0\n", "--pair-keys", "line 1: no node is named \"stranger\""),
    ] {
        let file = root.join("bad.csv");
        fs::write(&file, text).unwrap();
        let error = unsuitable(&format!("{flag} {}", file.display()));
        assert!(error.contains(message), "{error}");
    }
    let all = root.join("all-sources");
    let printed =
        succeeds(&["predict", "--run", &run, "--data", &set, "--top-k", "2", "--out", all.to_str().unwrap()]);
    let note = format!("--top-k ranks the destinations of all {} sources", data.names[0].len());
    assert!(printed.contains(&note), "{printed}");
    let error = unsuitable("--top-k 2 --nodes test");
    assert!(error.contains("give --nodes all, a file of ids, or --keys"), "{error}");
    let error = unsuitable("--nodes all");
    assert!(error.contains("add --pairs FILE, --pair-keys FILE or --top-k K"), "{error}");
    let error = unsuitable(&format!("--pair-keys {} --exclude-edges", keys.display()));
    assert!(error.contains("cannot be used with"), "{error}");
    let error = unsuitable("--top-k 2 --nodes all --mode exact --memory 10");
    assert!(error.contains("for the sampler alone"), "{error}");
}

#[test]
fn a_split_that_is_written_first_has_the_weights_and_scores_of_the_run() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let written = root.join("split").to_str().unwrap().to_owned();
    let split = ["data", "split-links", &set, "--out", &written];
    let printed = succeeds(&[&split[..], &PURCHASES].concat());
    assert!(printed.contains("links           "), "{printed}");
    let inspected = succeeds(&["data", "inspect", &written]);
    assert!(inspected.contains("links: "), "{inspected}");
    succeeds(&["data", "verify", &written]);
    let direct = trained(root, &set);
    // The split states the relation and its reverse.
    let run = trained_with(root, &written, "of-split", &[]);
    for file in ["best.safetensors", "test_predictions.csv"] {
        let [one, other] = [&direct, &run].map(|run| fs::read(Path::new(run).join(file)).unwrap());
        assert!(one == other, "{file}");
    }
    // The graph of the split lacks the test links, as the graph of the run's evaluation does.
    let of_run = text(&Path::new(&run).join("test_predictions.csv"));
    let rows: Vec<Vec<&str>> = of_run.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let pairs: String = rows.iter().map(|row| format!("{},{}\n", row[1], row[3])).collect();
    fs::write(root.join("pairs.csv"), pairs).unwrap();
    predict(&run, &written, &root.join("pairs"), &format!("--pairs {}", root.join("pairs.csv").display()));
    let found = lines(&root.join("pairs"));
    assert_eq!(found.len(), rows.len());
    for (found, row) in found.iter().zip(&rows) {
        let [score, expected]: [f64; 2] = [&*found[4], row[5]].map(|score| score.parse().unwrap());
        assert!((score - expected).abs() < 1e-4, "{found:?} {row:?}");
    }
    predict(&run, &written, &root.join("top"), "--top-k 1 --nodes test");
    let srcs: HashSet<String> = lines(&root.join("top")).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(srcs, rows.iter().map(|row| row[1].to_owned()).collect());
    // A link that does not exist is an error of requests that read the test links, and of no other.
    let damaged = root.join("damaged");
    fs::create_dir(&damaged).unwrap();
    for file in fs::read_dir(&written).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&file, damaged.join(file.file_name().unwrap())).unwrap();
    }
    let path = damaged.join("test_links.npy");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() = 1;
    fs::write(&path, bytes).unwrap();
    let damaged = damaged.to_str().unwrap();
    let out = root.join("of-damaged");
    let of_test =
        ["predict", "--run", &run, "--data", damaged, "--top-k", "1", "--out", out.to_str().unwrap()];
    let error = fails(&of_test);
    assert!(error.contains("the test split contains link") && !error.contains("panicked"), "{error}");
    predict(&run, damaged, &out, &format!("--pairs {}", root.join("pairs.csv").display()));
    assert_eq!(lines(&out), lines(&root.join("pairs")));
    // The split keeps the statistics of the import, so that new rows are transformed in the same way.
    let other = shuffled(root, &written);
    assert!(Path::new(&other).join("kiln.json").exists());
    let new = format!("{other}-new");
    for (args, message) in [
        (vec!["data", "split-links", &written, "--out", &new], "already has a split of links"),
        (vec!["data", "split-links", &set, "--out", &new], "need --relation"),
        (
            vec!["train", "--task", "link", "--data", &written, "--link-split", "0.1,0.1"],
            "remove --link-split",
        ),
        (vec!["train", "--task", "link", "--data", &written, "--relation", "bought by"], "remove --relation"),
        (
            vec!["train", "--task", "link", "--data", &written, "--reverse-relation", "buys"],
            "remove --reverse-relation",
        ),
    ] {
        let error = fails(&args);
        assert!(error.contains(message), "{error}");
    }
    let error = fails(&[
        "data",
        "split-links",
        "debian-packages",
        "--out",
        &format!("{other}-new"),
        "--relation",
        "buys",
    ]);
    assert!(error.contains("need a heterogeneous dataset"), "{error}");
}
