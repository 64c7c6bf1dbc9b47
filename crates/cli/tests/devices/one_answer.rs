//! Predictions on the device: a node has one answer, whatever else is requested, up to the rounding of sums in another order.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{device, run, text};

/// The largest difference of two scores, as a share of the largest score of the node.
const TOLERANCE: f32 = 1e-6;

/// Predicts, and returns the id and the scores of each line of `scores.csv`.
fn scores(flags: &str, out: &Path) -> Vec<(usize, Vec<f32>)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("predict").args(flags.split_whitespace()).arg("--out").arg(out);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
    let csv = fs::read_to_string(out.join("scores.csv")).unwrap();
    let lines = csv.lines().skip(1).map(|line| {
        let (node, scores) = line.split_once(',').unwrap();
        (node.parse().unwrap(), scores.split(',').map(|score| score.parse().unwrap()).collect())
    });
    lines.collect()
}

#[test]
fn a_node_has_one_answer_in_requests_and_batches_of_any_size() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let flags = "--data fake:600 --hidden 16 --fanouts 5,5 --batch-size 128 --epochs 1";
    let trained = run(&format!("{flags} --device {device} --out {}", out.display()));
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let predict = format!("--run {} --data fake:600 --device {device}", out.display());
    let all = scores(&format!("{predict} --nodes all"), &folder.path().join("all"));
    assert!(600 <= all.len());
    for batch_size in [1, 7, 1000] {
        let path = out.join("model.json");
        let mut info: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        info["evaluation"]["batch_size"] = batch_size.into();
        fs::write(&path, info.to_string()).unwrap();
        let request = folder.path().join(format!("nodes-{batch_size}.txt"));
        let nodes: Vec<usize> = (0..10).map(|number| number * 67 % 600).collect();
        fs::write(&request, nodes.iter().map(|node| format!("{node}\n")).collect::<String>()).unwrap();
        let flags = format!("{predict} --nodes {}", request.display());
        let found = scores(&flags, &folder.path().join(format!("batches-{batch_size}")));
        assert_eq!(found.iter().map(|(node, _)| *node).collect::<Vec<_>>(), nodes);
        for (node, row) in found {
            let expected = &all[node].1;
            let largest = expected.iter().fold(0.0_f32, |largest, score| largest.max(score.abs()));
            for (score, expected) in row.iter().zip(expected) {
                let difference = (score - expected).abs() / largest;
                assert!(difference <= TOLERANCE, "node {node}, batches of {batch_size}: {score}, {expected}");
            }
        }
    }
}
