//! `--task edge`: edges of an imported relation are learned on ranks and partitions, runs resume exactly, and predictions are by
//! edge or by pair.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::store::npy::{self, Element};

use crate::distributed_sage::{Learned, command};
use crate::predict::text;

const SPEC: &str = "name: bank
nodes: [{name: account, from: relations}]
relations:
  - name: pays
    files: [payments.csv]
    src: {type: account, column: from}
    dst: {type: account, column: to}
    edge_columns: [{column: amount, name: features}]
    reverse: paid-by
    target: {class: {column: fraud}}
    split: {random: {seed: 0, train: 0.6, val: 0.2, test: 0.2}}
";

const TRAINING: &str = "--task edge --hidden 16 --embedding 8 --fanouts 4,4 --lr 0.03 --dropout 0.1";

/// Writes 400 payments, of which those of large amounts are frauds, and imports them.
fn imported(root: &Path) -> String {
    let mut payments = "from,to,amount,fraud,rating\n".to_owned();
    for payment in 0..400 {
        let amount = payment * 13 % 10;
        let fraud = if 7 <= amount { "yes" } else { "no" };
        // A key with a comma is in quotes, in files of predictions, too.
        let key = |account: usize| if account == 0 { "\"a, 0\"".to_owned() } else { format!("a{account}") };
        let ends = [payment % 37, (payment * 7 + 3) % 41].map(key);
        payments += &format!("{},{},{amount},{fraud},{}\n", ends[0], ends[1], 2 * amount);
    }
    fs::write(root.join("payments.csv"), payments).unwrap();
    import(root, SPEC, "bank")
}

fn import(root: &Path, spec: &str, name: &str) -> String {
    let [path, out] = [format!("{name}.yaml"), name.to_owned()].map(|file| root.join(file));
    fs::write(&path, spec).unwrap();
    succeeds("data", &format!("import {} --out {}", path.display(), out.display()));
    out.to_str().unwrap().to_owned()
}

fn output(verb: &str, flags: &str) -> (bool, String) {
    let output = command(verb, flags).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), printed.into_owned())
}

fn succeeds(verb: &str, flags: &str) -> String {
    let (is_done, text) = output(verb, flags);
    assert!(is_done, "{verb} {flags}: {text}");
    text
}

fn fails(verb: &str, flags: &str, expected: &str) {
    let (is_done, text) = output(verb, flags);
    assert!(!is_done && text.contains(expected), "{verb} {flags}: {text}");
}

fn train(root: &Path, flags: &str, name: &str) -> Learned {
    let out = root.join(name);
    succeeds("train", &format!("{TRAINING} {flags} --out {}", out.display()));
    Learned::of(&out)
}

#[test]
fn edges_are_learned_on_partitions_and_after_interruptions_and_predicted() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let inspected = succeeds("data", &format!("inspect {set}"));
    assert!(inspected.contains("targets: 2 classes of pays, known for 400 of 400 links"), "{inspected}");
    let flags = format!("--data {set} --batch-size 64 --threads-per-rank 1");
    let out = root.join("whole");
    let printed = succeeds("train", &format!("{TRAINING} {flags} --epochs 12 --out {}", out.display()));
    assert!(printed.contains("accuracy"), "{printed}");
    let whole = Learned::of(&out);
    // Resumed after 4 epochs, and from partitions: the same weights.
    train(root, &format!("{flags} --epochs 4"), "run");
    let resumed = format!("{TRAINING} {flags} --epochs 12 --resume {}", root.join("run").display());
    succeeds("train", &resumed);
    assert_eq!(Learned::of(&root.join("run")).weights_hash, whole.weights_hash);
    let parts = root.join("parts");
    succeeds("data", &format!("partition {set} --parts 1 --out {}", parts.display()));
    let of_parts = format!("{flags} --epochs 12 --parts {} --host 127.0.0.1", parts.display());
    assert_eq!(train(root, &of_parts, "of-parts").weights_hash, whole.weights_hash);
    // Partitions have no keys; the data whose links they train on has them.
    let [expected, of_parts] =
        ["whole", "of-parts"].map(|run| text(&root.join(run).join("test_predictions.csv")));
    assert_eq!(of_parts, expected);
    check_report(&out);
    check_predictions(root, &set, &out);
}

/// Writes the report again from the files of a run, whose predictions have the ends of edges.
fn check_report(run: &Path) {
    let path = run.join("report.html");
    let written = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    succeeds("report", run.to_str().unwrap());
    assert!(fs::read(&path).unwrap() == written, "the pages differ");
}

/// Predicts the test edges, all edges, pairs and the edges of a set without targets.
fn check_predictions(root: &Path, set: &str, run: &Path) {
    let predict = |flags: &str, out: &str| {
        let of_run = format!("--run {} {flags} --out {}", run.display(), root.join(out).display());
        succeeds("predict", &of_run)
    };
    let printed = predict(&format!("--data {set}"), "test");
    assert!(printed.contains("84 edges predicted"), "{printed}");
    assert!(printed.contains("labelled items of the test split"), "{printed}");
    let test = text(&root.join("test/predictions.csv"));
    let header = "item,source,source_name,destination,destination_name,label,predicted";
    assert_eq!(test.lines().next(), Some(header));
    // The edges of the run's own test, with their ends.
    assert_eq!(test, text(&run.join("test_predictions.csv")));
    let classes = text(&root.join("test/classes.csv"));
    assert!(classes.lines().skip(1).all(|line| line.contains(",yes,") || line.contains(",no,")), "{classes}");
    predict(&format!("--data {set} --nodes all --ranks 2 --format npy"), "all");
    assert_eq!(fs::metadata(root.join("all/links.npy")).unwrap().len(), 128 + 400 * 8);
    // Payment 5 joins a5 and a38, as no other one does; payments 0 and 0 + 37 * 41 would be parallel.
    fs::write(root.join("pairs.txt"), "a5\ta38\na1\ta10\n").unwrap();
    let pairs = format!("--pair-keys {}", root.join("pairs.txt").display());
    predict(&format!("--data {set} {pairs}"), "pairs");
    let lines = text(&root.join("pairs/predictions.csv"));
    assert!(lines.lines().nth(1).unwrap().starts_with("5,"), "{lines}");
    assert!(lines.lines().nth(1).unwrap().contains(",a5,") && lines.contains(",a38,"), "{lines}");
    // New payments have no targets: all edges of the graph are predicted.
    let spec =
        SPEC.lines().filter(|line| !line.contains("target:") && !line.contains("split:")).collect::<Vec<_>>();
    let new = import(root, &(spec.join("\n") + "\n"), "new");
    predict(&format!("--data {new} --nodes all"), "new-edges");
    assert_eq!(text(&root.join("new-edges/predictions.csv")).lines().count(), 401);
    let run = format!("--run {} --out {}", run.display(), root.join("refused").display());
    fs::write(root.join("none.txt"), "a5\ta5\n").unwrap();
    fails(
        "predict",
        &format!("{run} --data {set} --pair-keys {}", root.join("none.txt").display()),
        "has no edge in the data",
    );
    let twice = text(&root.join("payments.csv")) + "a5,a38,9,yes,1\n";
    fs::write(root.join("payments.csv"), twice).unwrap();
    let parallel = import(root, SPEC, "parallel");
    fails("predict", &format!("{run} --data {parallel} {pairs}"), "has 2 edges in the data");
    fails("predict", &format!("{run} --data {new}"), "no test split");
    fails("predict", &format!("{run} --data {set} --top-k 3"), "--top-k needs a model of links");
    fails(
        "predict",
        &format!("{run} --data {set} --embeddings"),
        "--embeddings does not apply to a model of edges",
    );
}

#[test]
fn unsuitable_flags_and_data_of_edges_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let train = |flags: &str, expected: &str| {
        fails("train", &format!("{TRAINING} --out {} {flags}", root.join("refused").display()), expected);
    };
    train(
        &format!("--data {set} --negatives 2"),
        "--negatives does not apply to training on edges of a whole graph",
    );
    train(&format!("--data {set} --decoder mlp"), "--decoder does not apply");
    train(&format!("--data {set} --loss bpr"), "class labels");
    train(&format!("--data {set} --metric mrr"), "mrr");
    train(&format!("--data {set} --relation paid-by"), "has a split of the links of `pays`");
    let untargeted = SPEC.lines().filter(|line| !line.contains("target:") && !line.contains("split:"));
    let plain = import(root, &(untargeted.collect::<Vec<_>>().join("\n") + "\n"), "plain");
    train(&format!("--data {plain} --relation pays"), "have no targets, expected a class, labels or numbers");
    train(&format!("--data {plain} --relation owes"), "owes");
    // The links of a set with targets can be predicted as links, which a note says.
    let out = root.join("links");
    let of_links = "--task link --hidden 8 --embedding 8 --fanouts 2 --epochs 1";
    let printed = succeeds("train", &format!("{of_links} --data {set} --out {}", out.display()));
    assert!(printed.contains("the targets of the links are not read"), "{printed}");
}

#[test]
fn numbers_of_edges_are_learned_on_ranks() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    imported(root);
    let spec = SPEC.replace("{class: {column: fraud}}", "{regression: {columns: [rating]}}");
    let set = import(root, &spec, "ratings");
    let out = root.join("run");
    let flags =
        format!("--data {set} --batch-size 32 --ranks 2 --epochs 30 --loss huber --out {}", out.display());
    let printed = succeeds("train", &format!("{TRAINING} {flags}"));
    let summary = text(&out.join("summary.json"));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let rmse = summary["test_metrics"]["rmse"].as_f64().unwrap();
    assert!(rmse < 2.0, "{summary}\n{printed}");
    let predictions = text(&out.join("test_predictions.csv"));
    let header = "item,source,source_name,destination,destination_name,target_0,output_0";
    assert_eq!(predictions.lines().next(), Some(header));
    // The points of a page have the order of the items, which is that of one rank.
    let run = root.join("one-rank");
    let flags = format!("--data {set} --epochs 1 --out {}", run.display());
    succeeds("train", &format!("{TRAINING} {flags}"));
    check_report(&run);
}

const GRAPHBOLT: &str = "\
graph:
  nodes: [{num: 40}]
  edges: [{format: numpy, path: edges.npy}]
feature_data:
- {domain: node, name: feat, format: numpy, path: feat.npy}
- {domain: edge, name: amount, format: numpy, path: amount.npy}
tasks:
- name: fraud
  num_classes: 2
  train_set: [{data: [{name: seeds, format: numpy, path: train.npy}, {name: labels, format: numpy, path: train_labels.npy}]}]
  validation_set: [{data: [{name: seeds, format: numpy, path: val.npy}, {name: labels, format: numpy, path: val_labels.npy}]}]
  test_set: [{data: [{name: seeds, format: numpy, path: test.npy}, {name: labels, format: numpy, path: test_labels.npy}]}]
";

/// A folder of GraphBolt whose labels are determined by the features of the edges alone.
#[test]
fn labels_of_edges_in_a_graphbolt_folder_are_learned() {
    fn put<T: Element>(root: &Path, name: &str, values: &[T], shape: &[usize]) {
        fs::write(root.join(name), npy::write(values, shape)).unwrap();
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::write(root.join("metadata.yaml"), GRAPHBOLT).unwrap();
    let edges: Vec<[i64; 2]> = (0..400).map(|edge| [edge % 40, (edge + 1 + edge / 40) % 40]).collect();
    let amounts: Vec<f32> = (0..400).map(|edge| ((edge * 13 % 10) as f32 - 4.5) / 3.0).collect();
    let labels: Vec<i64> = amounts.iter().map(|amount| i64::from(0.0 < *amount)).collect();
    let ends = [0, 1].map(|end| edges.iter().map(|pair| pair[end]).collect::<Vec<_>>());
    put(root, "edges.npy", &ends.concat(), &[2, 400]);
    put(root, "feat.npy", &[1.0_f32; 40], &[40, 1]);
    put(root, "amount.npy", &amounts, &[400, 1]);
    for (part, rows) in [("train", 0..280), ("val", 280..340), ("test", 340..400)] {
        put(root, &format!("{part}.npy"), &edges[rows.clone()].concat(), &[rows.len(), 2]);
        put(root, &format!("{part}_labels.npy"), &labels[rows.clone()], &[rows.len()]);
    }
    let out = root.join("run");
    let flags = format!("--data {} --batch-size 64 --epochs 12 --out {}", root.display(), out.display());
    succeeds("train", &format!("{TRAINING} {flags}"));
    let summary: serde_json::Value = serde_json::from_str(&text(&out.join("summary.json"))).unwrap();
    let accuracy = summary["test_accuracy"].as_f64().unwrap();
    assert!(0.9 <= accuracy, "{summary}");
}
