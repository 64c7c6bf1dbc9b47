//! The book's example of frauds on one table of 200,000 payments: keys, counts, features and parts of the split are those that
//! `fixtures/payments/expected.py` computes with pandas, and the metrics have the definitions of scikit-learn. That script compares
//! the files of a run with both programs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::Command;

use kiln::data::{Dataset, LinkTargets};
use kiln::feature::{FeatureBuffer, Targets};
use kiln::graph::{EdgeId, LinkId};
use kiln::prelude::NodeId;
use kiln::store::csv;
use kiln::tables::{OutputColumn, RowWriter};
use serde_json::Value;

use crate::predict::text;

const EXPECTED: &str = include_str!("../fixtures/payments/expected.json");

/// The rounding of features to f32, of values below 8.
const ROUNDING: f64 = 1e-6;

const TRAINING: &str = "--task edge --layers 1 --fanouts 5 --hidden 8 --embedding 8 --batch-size 4096 --epochs 1 \
    --class-weights 1,10 --metric average-precision";

/// The payments of `fixtures/payments/generate.py`.
pub(crate) struct Payments {
    payers: Vec<String>,
    payees: Vec<String>,
    times: Vec<u32>,
    amounts: Vec<f32>,
    kinds: Vec<&'static str>,
    frauds: Vec<u32>,
}

impl Payments {
    pub(crate) fn generate(n_payments: u64) -> Self {
        let mut payments = Self {
            payers: Vec::new(),
            payees: Vec::new(),
            times: Vec::new(),
            amounts: Vec::new(),
            kinds: Vec::new(),
            frauds: Vec::new(),
        };
        for payment in 0..n_payments {
            let below = |limit: u64, number: u64| draw(payment, number) % limit;
            let payer = below(5_000, 0);
            let payee = (payer + 1 + below(4_999, 1)) % 5_000;
            let cents = 100 + below(50_000, 3);
            let kind = below(3, 4);
            let is_suspicious = (kind == 2 && 40_000 <= cents) || payee % 50 == 7;
            let is_fraud = (is_suspicious && below(4, 5) < 3) || below(500, 6) == 0;
            payments.payers.push(format!("a{payer}"));
            payments.payees.push(format!("a{payee}"));
            payments.times.push((1_767_225_600 + 39 * payment + below(39, 2)) as u32);
            payments.amounts.push(cents as f32 / 100.0);
            payments.kinds.push(["card", "cash", "transfer"][kind as usize]);
            payments.frauds.push(is_fraud.into());
        }
        payments
    }

    pub(crate) fn write(&self, path: &Path) {
        let texts =
            [&self.payers, &self.payees].map(|keys| keys.iter().map(String::as_str).collect::<Vec<_>>());
        let mut writer = RowWriter::create(path).unwrap();
        let columns = [
            ("payer", OutputColumn::Text(&texts[0])),
            ("payee", OutputColumn::Text(&texts[1])),
            ("time", OutputColumn::U32(&self.times)),
            ("amount", OutputColumn::F32(&self.amounts)),
            ("kind", OutputColumn::Text(&self.kinds)),
            ("fraud", OutputColumn::U32(&self.frauds)),
        ];
        writer.write(&columns).unwrap();
        writer.finish().unwrap();
    }
}

/// SplitMix64 of the payment and the number of the draw.
pub(crate) fn draw(payment: u64, number: u64) -> u64 {
    let mut z = (payment * 16 + number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

pub(crate) fn run(folder: &Path, command: &str) -> String {
    let mut kiln = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let output = kiln.args(command.split_whitespace()).current_dir(folder).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {printed}");
    printed.into_owned()
}

#[test]
fn three_commands_from_one_table_of_payments_to_predictions_with_keys() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let payments = Payments::generate(expected["n_payments"].as_u64().unwrap());
    payments.write(&root.join("payments.parquet"));
    run(root, "data spec payments.parquet --out fraud.yaml");
    let printed = run(root, "data import fraud.yaml --out fraud");
    let links = &expected["links"];
    let parts = format!("{} train, {} val, {} test", links["train"], links["val"], links["test"]);
    assert!(printed.contains(&format!("split of payments: {parts}")), "{printed}");
    check_set(&Dataset::open(root.join("fraud")).unwrap(), &expected);
    let printed = run(root, &format!("train --data fraud {TRAINING} --out run"));
    let keys = check_predictions(&text(&root.join("run/test_predictions.csv")), &payments);
    assert_eq!(keys, expected["links"]["test"].as_u64().unwrap());
    // The scores of the same payments, with which the metrics are computed.
    run(root, "predict --run run --out predictions");
    let of_predict = text(&root.join("predictions/predictions.csv"));
    assert!(of_predict == text(&root.join("run/test_predictions.csv")), "the predictions differ");
    check_metrics(root, &payments, &printed);
}

/// Compares keys, edges, features, labels and parts of the set with those of pandas.
fn check_set(data: &Dataset, expected: &Value) {
    let n_payments = expected["n_payments"].as_u64().unwrap();
    let n_accounts = expected["n_accounts"].as_u64().unwrap();
    assert_eq!(data.graph.n_nodes() as u64, n_accounts);
    // Each payment and its reverse: a split by time leaves all of them in the graph.
    assert_eq!(data.graph.n_edges(), 2 * n_payments);
    for (node, key) in expected["accounts"].as_array().unwrap().iter().enumerate() {
        assert_eq!(data.node_name(NodeId(node as u32)), key.as_str());
    }
    let graph = &data.graph.relation(0).graph;
    let most_received = (0..n_accounts as u32).map(|node| graph.in_neighbors(NodeId(node)).len()).max();
    assert_eq!(most_received.map(|n| n as u64), expected["most_received"].as_u64());
    let targets = &data.links.as_ref().unwrap().targets;
    let Some(Targets::Classes(labels)) = targets.values() else { panic!("the links should have classes") };
    let split = targets.split();
    for (part, links) in [("train", &split.train), ("val", &split.val), ("test", &split.test)] {
        let n_frauds = links.iter().filter(|link| labels.get(**link) == Some(1)).count();
        assert_eq!(links.len() as u64, expected["links"][part].as_u64().unwrap(), "{part}");
        assert_eq!(n_frauds as u64, expected["frauds"][part].as_u64().unwrap(), "{part}");
        assert!(links.is_sorted());
    }
    assert_eq!(split.test.last(), Some(&LinkId(n_payments as u32 - 1)));
    check_features(targets, expected);
}

fn check_features(targets: &LinkTargets, expected: &Value) {
    let features = targets.features().unwrap();
    let sums = expected["sums"].as_array().unwrap();
    assert_eq!(features.dim(), sums.len());
    let ids: Vec<EdgeId> = (0..targets.links().len() as u64).map(EdgeId).collect();
    let mut rows = FeatureBuffer::empty(features.dtype());
    features.gather(&ids, &mut rows).unwrap();
    let rows = rows.into_f32();
    for (column, sum) in sums.iter().enumerate() {
        let found: f64 = rows.iter().skip(column).step_by(sums.len()).map(|value| f64::from(*value)).sum();
        let rounding = ROUNDING * ids.len() as f64;
        assert!((found - sum.as_f64().unwrap()).abs() < rounding, "column {column}: {found}, not {sum}");
    }
    for (payment, values) in expected["rows"].as_object().unwrap() {
        let row = payment.parse::<usize>().unwrap() * sums.len();
        for (found, value) in rows[row..].iter().zip(values.as_array().unwrap()) {
            let difference = f64::from(*found) - value.as_f64().unwrap();
            assert!(difference.abs() < ROUNDING, "payment {payment}: {found}, not {value}");
        }
    }
}

/// Checks the keys and the labels of predictions, and returns their number.
fn check_predictions(predictions: &str, payments: &Payments) -> u64 {
    let mut rows = csv::lines(predictions).map(|line| csv::fields(line).collect::<Vec<_>>());
    let header = "item,source,source_name,destination,destination_name,label,predicted";
    assert_eq!(rows.next().unwrap().join(","), header);
    let mut n_rows = 0;
    for row in rows {
        let payment: usize = row[0].parse().unwrap();
        let keys = [payments.payers[payment].as_str(), payments.payees[payment].as_str()];
        assert_eq!([row[2], row[4]], keys, "payment {payment}");
        assert_eq!(row[5].parse(), Ok(payments.frauds[payment]), "payment {payment}");
        n_rows += 1;
    }
    n_rows
}

/// Compares the metrics of the run with those of the scores.
fn check_metrics(root: &Path, payments: &Payments, printed: &str) {
    let scores = text(&root.join("predictions/scores.csv"));
    // The difference of the logits, and the label.
    let mut scored: Vec<(f64, bool)> = Vec::new();
    for line in csv::lines(&scores).skip(1) {
        let fields: Vec<&str> = csv::fields(line).collect();
        let payment: usize = fields[0].parse().unwrap();
        let [honest, fraud]: [f64; 2] = [fields[5], fields[6]].map(|score| score.parse().unwrap());
        scored.push((fraud - honest, payments.frauds[payment] == 1));
    }
    let summary: Value = serde_json::from_str(&text(&root.join("run/summary.json"))).unwrap();
    for (name, value) in metrics(scored) {
        let found = summary["test_metrics"][name].as_f64().unwrap();
        assert!((found - value).abs() < 1e-9, "{name}: {found}, expected {value}");
        let shown = format!("{value:.4}");
        assert!(printed.contains(&shown), "{name}: {shown}\n{printed}");
    }
}

/// Returns the metrics of binary classes by the definitions of scikit-learn.
fn metrics(mut scored: Vec<(f64, bool)>) -> [(&'static str, f64); 4] {
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let n_items = scored.len() as f64;
    let count = |is_counted: &dyn Fn(f64, bool) -> bool| {
        scored.iter().filter(|(score, label)| is_counted(*score, *label)).count() as f64
    };
    let n_frauds = count(&|_, label| label);
    let n_found = count(&|score, label| 0.0 < score && label);
    let n_false = count(&|score, label| 0.0 < score && !label);
    let f1_of_frauds = 2.0 * n_found / (n_frauds + n_found + n_false);
    let n_honest_found = n_items - n_frauds - n_false;
    let f1_of_honest = 2.0 * n_honest_found / (n_items - n_frauds + n_items - n_found - n_false);
    let (mut area, mut average_precision) = (0.0, 0.0);
    let (mut n_above, mut n_frauds_above) = (0.0, 0.0);
    for tied in scored.chunk_by(|(one, _), (other, _)| one == other) {
        let n_frauds_tied = tied.iter().filter(|(_, label)| *label).count() as f64;
        let n_honest_tied = tied.len() as f64 - n_frauds_tied;
        area += n_honest_tied * (n_frauds_above + n_frauds_tied / 2.0);
        n_above += tied.len() as f64;
        n_frauds_above += n_frauds_tied;
        average_precision += n_frauds_tied / n_frauds * n_frauds_above / n_above;
    }
    let roc_auc = area / n_frauds / (n_items - n_frauds);
    // Large transfers are found by their own features.
    assert!(0.75 < roc_auc, "{roc_auc}");
    [
        ("accuracy", (n_found + n_honest_found) / n_items),
        ("average-precision", average_precision),
        ("f1-macro", (f1_of_frauds + f1_of_honest) / 2.0),
        ("roc-auc", roc_auc),
    ]
}
