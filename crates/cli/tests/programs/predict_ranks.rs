//! Tests of `kiln predict` on several ranks and on partitioned graphs: the files are those of one rank on the whole
//! graph, byte for byte, and appear only when they are complete.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use kiln::data::format;
use kiln::data::synthetic::{FakeConfig, fake};
use kiln::partition::{Method, PartitionBook, PartitionMeta, partition_nodes, write_parts};
use kiln::prelude::*;

use crate::predict::{fails, succeeds, text, train};
use crate::predict_non_finite::spoil;

/// Returns the files of a folder by name.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect()
}

/// Predicts into a new folder, and returns its files.
pub(crate) fn predicted(root: &Path, run: &str, flags: &str) -> BTreeMap<String, Vec<u8>> {
    let out = root.join(format!("out-{}", fs::read_dir(root).unwrap().count()));
    let flags: Vec<&str> = flags.split_whitespace().collect();
    succeeds(&[&["predict", "--run", run, "--out", out.to_str().unwrap()], &flags[..]].concat());
    files(&out)
}

/// Writes a set to `root/NAME`, and its partitions to `root/NAME-parts`. Returns both paths.
pub(crate) fn write(data: &Dataset, n_parts: usize, root: &Path, name: &str) -> [String; 2] {
    let [set, parts] = [root.join(name), root.join(format!("{name}-parts"))];
    format::write(data, &set).unwrap();
    let owners =
        partition_nodes(data.csc().unwrap(), &data.split().train, n_parts, Method::Random, 0).unwrap();
    let book = PartitionBook::from_parts(&owners, n_parts).unwrap();
    let meta = PartitionMeta { hash: format::hash(&set).unwrap(), method: Method::Random, n_cut_edges: 0 };
    write_parts(data, &book, &meta, None, &parts).unwrap();
    spoil(&set);
    spoil(&parts);
    [set, parts].map(|path| path.to_str().unwrap().to_owned())
}

pub(crate) fn raw_data() -> Dataset {
    fake(FakeConfig { avg_num_nodes: 300, num_channels: 16, seed: 4, ..Default::default() }).unwrap()
}

#[test]
fn files_of_several_ranks_are_those_of_one_rank_byte_for_byte() {
    let root = tempfile::tempdir().unwrap();
    // The run had two ranks and batches of 100 nodes, so that three ranks share 100 batches unevenly.
    let flags =
        "--data sbm --hidden 8 --fanouts 4,4 --epochs 1 --ranks 2 --batch-size 100 --standardize true";
    let run = train(root.path(), flags);
    for mode in ["as-evaluated", "exact", "sampled --seed 3 --fanouts 2,5"] {
        for format in ["csv", "npy"] {
            let flags = format!("--data sbm --nodes all --embeddings --format {format} --mode {mode}");
            let expected = predicted(root.path(), &run, &flags);
            assert_eq!(expected.len(), if format == "csv" { 4 } else { 5 });
            assert!(expected == predicted(root.path(), &run, &format!("{flags} --ranks 3")), "{flags}");
        }
    }
}

#[test]
fn graphs_are_shared_by_the_ranks_too() {
    let root = tempfile::tempdir().unwrap();
    let run = train(root.path(), "--data mutag --hidden 8 --epochs 1 --batch-size 10");
    let flags = "--data mutag --nodes all";
    let expected = predicted(root.path(), &run, flags);
    assert!(expected == predicted(root.path(), &run, &format!("{flags} --ranks 4")));
}

#[test]
fn folders_per_rank_contain_consecutive_ranges_of_the_request() {
    let root = tempfile::tempdir().unwrap();
    let run = train(root.path(), "--data sbm --hidden 8 --fanouts 4,4 --epochs 1 --batch-size 300");
    let whole = predicted(root.path(), &run, "--data sbm");
    let out = root.path().join("parts");
    let flags = ["predict", "--run", &run, "--data", "sbm", "--ranks", "3", "--per-rank"];
    let printed = succeeds(&[&flags[..], &["--out", out.to_str().unwrap()]].concat());
    let n_lines = whole["scores.csv"].iter().filter(|&&byte| byte == b'\n').count() - 1;
    assert!(printed.contains(&format!("{n_lines} nodes predicted")), "{printed}");
    assert!(printed.contains(&format!("on {n_lines} labelled items")), "{printed}");
    for name in ["scores.csv", "classes.csv"] {
        let parts = (0..3).map(|rank| text(&out.join(format!("part-{rank:05}-of-00003")).join(name)));
        let rows: Vec<String> =
            parts.flat_map(|part| part.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
        let expected: Vec<&str> = std::str::from_utf8(&whole[name]).unwrap().lines().skip(1).collect();
        assert_eq!(rows, expected, "{name}");
    }
    let index: serde_json::Value = serde_json::from_str(&text(&out.join("index.json"))).unwrap();
    assert_eq!(index["n_items"], n_lines);
    let mut first = 0;
    for (rank, part) in index["parts"].as_array().unwrap().iter().enumerate() {
        assert_eq!(part["folder"], format!("part-{rank:05}-of-00003"));
        assert_eq!(part["first_item"], first);
        let rows = text(&out.join(part["folder"].as_str().unwrap()).join("scores.csv"));
        assert_eq!(part["n_items"], rows.lines().count() - 1);
        first += rows.lines().count() - 1;
    }
    let error = fails(
        &[&flags[..], &["--mode", "exact", "--out", root.path().join("exact").to_str().unwrap()]].concat(),
    );
    assert!(error.contains("rank 0 computes exact predictions alone"), "{error}");
}

#[test]
fn files_of_1_to_4_partitions_are_those_of_the_whole_graph_byte_for_byte() {
    let root = tempfile::tempdir().unwrap();
    let (raw, folder) = (raw_data(), root.path());
    // The run scales the raw features, and the second set contains scaled features.
    let prepared = raw.clone().standardize().unwrap();
    let [set, _] = write(&raw, 1, folder, "raw");
    let run = train(
        folder,
        &format!("--data {set} --hidden 8 --fanouts 4,4 --epochs 1 --batch-size 64 --standardize true"),
    );
    for mode in ["as-evaluated", "sampled --fanouts all,3 --seed 5"] {
        let flags = format!("--nodes all --embeddings --mode {mode}");
        let expected = predicted(folder, &run, &format!("--data {set} {flags}"));
        for n_parts in 1..=4 {
            for (data, name) in [(&raw, "raw"), (&prepared, "prepared")] {
                let name = format!("{name}-{n_parts}-{}", &mode[..1]);
                let [_, parts] = write(data, n_parts, folder, &name);
                let of_parts = format!("--parts {parts} --host 127.0.0.1 --ranks {n_parts} {flags}");
                assert!(expected == predicted(folder, &run, &of_parts), "{name}");
            }
        }
    }
}

#[test]
fn a_model_of_prepared_partitions_prepares_other_data_in_the_same_way() {
    let root = tempfile::tempdir().unwrap();
    let (raw, folder) = (raw_data(), root.path());
    let [set, raw_parts] = write(&raw, 2, folder, "raw");
    let [_, parts] = write(&raw.clone().standardize().unwrap(), 2, folder, "prepared");
    let run = train(
        folder,
        &format!("--parts {parts} --host 127.0.0.1 --ranks 2 --hidden 8 --fanouts 4,4 --epochs 1"),
    );
    let expected = predicted(folder, &run, &format!("--data {set} --nodes all"));
    for parts in [&raw_parts, &parts] {
        let flags = format!("--parts {parts} --host 127.0.0.1 --ranks 2 --nodes all");
        assert!(expected == predicted(folder, &run, &flags), "{parts}");
    }
    // Without the record of the preparation, the data might be prepared twice or not at all.
    for part in ["part0", "part1"] {
        let path = Path::new(&raw_parts).join(part).join("part.json");
        let mut manifest: serde_json::Value = serde_json::from_str(&text(&path)).unwrap();
        manifest["format"] = 1.into();
        manifest.as_object_mut().unwrap().remove("preparation").unwrap();
        fs::write(&path, manifest.to_string()).unwrap();
    }
    let out = folder.join("unknown");
    let flags = ["predict", "--run", &run, "--parts", &raw_parts, "--host", "127.0.0.1", "--ranks", "2"];
    let error = fails(&[&flags[..], &["--out", out.to_str().unwrap()]].concat());
    assert!(
        error.contains("do not record how their data was prepared: partition the data set again"),
        "{error}"
    );
}

#[test]
fn requests_that_partitions_cannot_serve_are_rejected() {
    let root = tempfile::tempdir().unwrap();
    let (raw, folder) = (raw_data(), root.path());
    let [set, parts] = write(&raw, 2, folder, "raw");
    let [_, symmetric] = write(&raw.clone().symmetrize().unwrap(), 2, folder, "symmetric");
    let runs = ["run-sage", "run-gcn", "run-symmetric"].map(|name| folder.join(name));
    let flags = ["", "--model gcn", "--symmetrize"];
    for (folder, flags) in runs.iter().zip(flags) {
        fs::create_dir(folder).unwrap();
        train(folder, &format!("--data {set} --hidden 8 --fanouts 4,4 --epochs 1 {flags}"));
    }
    let [sage, gcn, symmetrizing] = runs.map(|folder| folder.join("moved").to_str().unwrap().to_owned());
    let cases = [
        (&sage, &parts, "--mode exact", "exact mode needs the whole graph"),
        (&gcn, &parts, "", "the normalisation of a GCN needs the whole graph"),
        (&symmetrizing, &parts, "", "adding the reverse of each edge needs the whole graph"),
        (&sage, &symmetric, "", "the data was symmetrized, but the model's training data was not"),
        (&sage, &parts, "--ranks 3", "3 ranks cannot share 2 partitions equally"),
        (&sage, &parts, "--data sbm", "cannot be used with"),
    ];
    for (run, parts, flags, expected) in cases {
        let out = folder.join("out");
        let mut command = vec!["predict", "--run", run, "--parts", parts, "--host", "127.0.0.1"];
        if !flags.contains("--ranks") {
            command.extend(["--ranks", "2"]);
        }
        command.extend(flags.split_whitespace());
        let error = fails(&[&command[..], &["--out", out.to_str().unwrap()]].concat());
        assert!(error.contains(expected), "{flags}: {error}");
        assert!(!out.exists(), "{flags}");
    }
}

/// The limit on the size of a file makes a write fail like a full disk.
#[cfg(unix)]
#[test]
fn files_that_cannot_be_written_are_an_error_and_leave_no_folder() {
    let root = tempfile::tempdir().unwrap();
    let run = train(root.path(), "--data sbm --hidden 8 --fanouts 4,4 --epochs 1");
    for format in ["csv", "npy"] {
        let out = root.path().join("out");
        // The signal would end the process.
        let script = "trap '' XFSZ; ulimit -f 40; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_kiln"), "predict", "--run", &run]);
        command.args(["--data", "sbm", "--nodes", "all", "--format", format, "--out", out.to_str().unwrap()]);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains("File too large"), "{format}: {error}");
        assert!(error.contains(&format!(".{format}")), "{error}");
        let left: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["moved"]);
    }
}
