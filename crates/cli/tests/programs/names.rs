//! Tests of paths that are also the names of built-in datasets: each command uses the folder, and prints a note.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::Output;

use kiln::data::{format, synthetic};

use crate::distributed_sage::{command, text};

const NOTE: &str = "is used; the built-in set has the same name";

/// Runs a command in a working directory.
fn run(root: &Path, subcommand: &str, flags: &str) -> (bool, String) {
    let output: Output = command(subcommand, flags).current_dir(root).output().unwrap();
    (output.status.success(), text(&output))
}

fn succeed(root: &Path, subcommand: &str, flags: &str) -> String {
    let (is_done, printed) = run(root, subcommand, flags);
    assert!(is_done, "{subcommand} {flags}: {printed}");
    printed
}

/// Writes a set of 60 nodes as a folder with the name of a built-in set.
fn write_ring(root: &Path, name: &str) {
    format::write(&synthetic::ring(60).unwrap(), root.join(name)).unwrap();
}

#[test]
fn folders_take_precedence_over_names_of_sets_of_nodes() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for name in ["sbm", "fake:100", "debian-packages", "debian-tags"] {
        write_ring(root, name);
        let noted = |subcommand: &str, flags: &str| {
            let printed = succeed(root, subcommand, flags);
            assert_eq!(printed.matches(&format!("the folder `{name}` {NOTE}")).count(), 1, "{printed}");
            assert!(printed.contains("60 nodes"), "{subcommand} {flags}: {printed}");
        };
        let model = "--epochs 1 --layers 2 --fanouts 2 --hidden 4 --batch-size 4";
        noted("train", &format!("--data {name} {model} --standardize false --out run-{name}"));
        noted("data", &format!("inspect {name}"));
        noted("data", &format!("verify {name}"));
        noted("data", &format!("convert {name} --out converted-{name}"));
        noted("data", &format!("split-links {name} --out links-{name}"));
        noted("data", &format!("partition {name} --out parts-{name} --method random"));
        let predict = format!("--run run-{name} --data {name} --nodes all --out predicted-{name}");
        assert!(succeed(root, "predict", &predict).contains("60 nodes"));
        // A file that is named like a selection of nodes is not read, with a note.
        fs::write(root.join("all"), "3\n").unwrap();
        let [of_word, of_file] = ["all", "./all"].map(|nodes| {
            let out = format!("of-{}-{name}", nodes.len());
            let printed = succeed(
                root,
                "predict",
                &format!("--run run-{name} --data {name} --nodes {nodes} --out {out}"),
            );
            assert_eq!(
                printed.contains("note: --nodes all is not the file all"),
                nodes == "all",
                "{printed}"
            );
            fs::read_to_string(root.join(out).join("scores.csv")).unwrap().lines().count()
        });
        assert_eq!([of_word, of_file], [61, 2]);
        // A path that is no name has no note.
        assert!(!succeed(root, "data", &format!("inspect ./{name}")).contains(NOTE));
    }
}

#[test]
fn folders_take_precedence_over_the_names_of_other_kinds_of_sets() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    format::write(&crate::typed::data(), root.join("debian-archive")).unwrap();
    let flags = "--data debian-archive --epochs 1 --fanouts 2 --layers 2 --hidden 4 --batch-size 32";
    for (subcommand, flags) in [("train", flags), ("data", "inspect debian-archive")] {
        let printed = succeed(root, subcommand, flags);
        assert_eq!(printed.matches(&format!("the folder `debian-archive` {NOTE}")).count(), 1, "{printed}");
        assert!(printed.contains("690 nodes"), "{printed}");
    }
    // A folder of nodes with the name of the set of graphs.
    write_ring(root, "mutag");
    let (is_done, printed) = run(root, "train", "--data mutag --task graph --epochs 1");
    assert!(!is_done && printed.contains(NOTE), "{printed}");
    assert!(printed.contains("expected a set of graphs"), "{printed}");
}

#[test]
fn names_without_folders_are_built_in_sets() {
    let root = tempfile::tempdir().unwrap();
    let printed = succeed(root.path(), "data", "inspect sbm");
    assert!(printed.contains("10000 nodes") && !printed.contains(NOTE), "{printed}");
    // A folder that is no dataset is an error, which explains why the built-in set is not used.
    fs::create_dir(root.path().join("sbm")).unwrap();
    let (is_done, printed) = run(root.path(), "train", "--data sbm --epochs 1");
    assert!(!is_done && printed.contains("is not a data set of a known format"), "{printed}");
    assert!(printed.contains(NOTE), "{printed}");
}
