//! The messages for flags that do not apply, on plain, heterogeneous and partitioned sets, whole texts that must not change
//! unnoticed.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::data::{format, synthetic};
use kiln_testkit::check_golden;

use crate::distributed_sage::{command, text};

/// The flags of `kiln train` on the set in the folder `plain`.
const PLAIN: &[&str] = &[
    "--task link --relation edge",
    "--task link --reverse-relation edge",
    "--relation edge",
    "--decoder dot",
    "--fanouts 4,4;edge=2,2",
    "--model hgt",
    "--model rgcn",
    "--model gine",
    "--model gin",
    "--model gcn --rule in-degree",
    "--bases 2",
    "--heads 2",
    "--edge-input types",
    "--edge-input features",
    "--model gatv2 --edge-input features",
    "--loss mse",
    "--metric mae",
    "--folds 3",
    "--node-features degrees",
    "--memory 1MiB",
    "--cache-size 1MiB",
    "--no-static-cache",
    "--task graph",
    "--task link --link-type 1",
    "--task link --val-batches 2 --eval exact",
    "--embedding 8",
];

/// The flags of `kiln train` on the set in the folder `shop`.
const HETEROGENEOUS: &[&str] = &[
    "--model gat",
    "--model gcn",
    "--model gin",
    "--model gine --edge-input features",
    "--model hgt --edge-input features",
    "--edge-input features",
    "--bases 2",
    "--model hgt --heads 3",
    "--fanouts rates=1,1;with=1,1",
    "--fanouts 1,1;sells=1,1",
    "--fanouts 1,1;with=1",
    "--standardize true",
    "--row-normalize",
    "--symmetrize",
    "--feature-cache 1000",
    "--optimizer sgd",
    "--eval exact --memory 100",
    "--memory 1MiB",
    "--relation rates",
    "--cache-size 1MiB",
    "--task graph",
    "--task link",
    "--task link --relation sells",
    "--task link --relation rates --reverse-relation with",
    "--task link --relation rates --link-type 1",
    "--task link --relation rates --eval exact --memory 100",
    "--task link --relation rates --standardize true",
    "--task link --reverse-relation with",
];

/// The flags of `kiln train` on partitions, with `NAME` for the name of the set.
const PARTITIONED: &[&str] = &[
    "--data NAME",
    "--standardize true",
    "--in-memory",
    "--eval exact",
    "--val-batches 2",
    "--feature-cache 1000",
    "--hot-by degree",
    "--folds 3",
    "--relation rates",
    "--model gat",
    "--fanouts 1,1;sells=1,1",
    "--task link",
    "--task link --data NAME",
    "--task link --data NAME --standardize true",
    "--task link --data NAME --eval exact",
    "--task link --data NAME --relation with",
    "--servers 127.0.0.1:9",
    "--mode worker --servers 127.0.0.1:9",
];

/// The flags of other commands.
const OTHERS: &[&str] = &[
    "data split-links plain --relation rates --out new",
    "data split-links shop --out new",
    "data split-links shop --relation sells --out new",
    "data partition shop --standardize --parts 1 --out new",
    "data partition shop --add-self-loops --parts 1 --out new",
    "data partition shop --parts 0 --out new",
    "data partition plain --parts 0 --out new",
    "data split-links plain --disjoint-train 1 --out new",
    "data verify none",
    "data convert none --out new",
    "data inspect none",
    "predict --run none --data plain --out new",
    "predict --run plain --data plain --out new",
    "predict --run none --parts plain-parts --data plain --out new",
    "predict --run none --top-k 3 --pairs none.csv --out new",
    "serve --part plain --listen 127.0.0.1:0",
    "train --no-such-flag",
    "train --fanouts 4;4",
    "train --task nodes",
];

/// The flags of commands that fail before they read data or a model.
const EARLY: &[&str] = &[
    "data convert plain --out full",
    "data split-links plain --out full",
    "data partition plain --out full",
    "data partition plain --out file/new",
    "data partition plain --cache-ratio 2 --parts 1 --out new",
    "data partition plain --parts 70000 --out new",
    "data partition plain --batch-size 0 --out new",
    "data split-links plain --link-split 0.6,0.6 --out new",
    "data split-links plain --link-split 0.6 --out new",
    "predict --run none --data plain --out full",
    "train --data plain --out full",
    "train --data plain --resume none",
    "train --data plain --continue full",
    "train --data plain --task link --link-split 0.6,0.6 --out new",
    "train --task graph --data mutag --out full",
];

/// Returns the messages of commands that fail, in a folder whose files they name without it.
fn messages(folder: &Path, lines: impl Iterator<Item = String>) -> String {
    let mut messages = String::new();
    let mut accepted = Vec::new();
    for line in lines {
        let (subcommand, flags) = line.split_once(' ').unwrap();
        let output = command(subcommand, flags).current_dir(folder).output().unwrap();
        // The standard output has times. A command that fails early has not printed its data.
        let is_early = EARLY.contains(&line.as_str());
        assert!(!is_early || output.stdout.is_empty(), "{line}: {}", text(&output));
        let message = String::from_utf8(output.stderr).unwrap().replace(folder.to_str().unwrap(), "ROOT");
        assert!(!message.contains("panicked"), "{line}: {message}");
        messages.push_str(&format!("$ kiln {line}\n{}\n\n", message.trim_end()));
        if output.status.success() {
            // A later command needs a new folder.
            fs::remove_dir_all(folder.join("new")).unwrap();
            accepted.push(line);
        }
    }
    assert_eq!(accepted, [""; 0]);
    messages
}

#[test]
fn messages_for_flags_that_do_not_apply_are_frozen() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    format::write(&synthetic::ring(60).unwrap(), root.join("plain")).unwrap();
    format::write(&crate::typed::data(), root.join("shop")).unwrap();
    for name in ["plain", "shop"] {
        let flags = format!("partition {name} --parts 1 --out {name}-parts");
        let output = command("data", &flags).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
    fs::create_dir(root.join("full")).unwrap();
    fs::write(root.join("full/kept"), "").unwrap();
    fs::write(root.join("file"), "").unwrap();
    let of_data = |name: &'static str, flags: &'static [&str]| {
        flags.iter().map(move |flags| format!("train --data {name} {flags} --out new"))
    };
    let of_parts = |name: &'static str| {
        PARTITIONED.iter().map(move |flags| {
            let flags = flags.replace("NAME", name);
            format!("train --parts {name}-parts --host 127.0.0.1 {flags} --out new")
        })
    };
    let lines = of_data("plain", PLAIN)
        .chain(of_data("shop", HETEROGENEOUS))
        .chain(of_parts("plain"))
        .chain(of_parts("shop"))
        .chain(OTHERS.iter().chain(EARLY).map(|line| (*line).to_owned()));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.txt");
    check_golden(golden, &messages(root, lines));
}
