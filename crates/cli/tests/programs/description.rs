//! Tests of flags from files: a run is repeated by its description, changed by `--like`, resumed and used for predictions without
//! its flags.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::data::{format, synthetic};
use serde_json::Value;

use crate::distributed_sage::{command, text};

const FLAGS: &str =
    "--data papers --layers 2 --fanouts 5,3 --hidden 8 --batch-size 64 --lr 0.01 --residual --jumping cat";

fn prepare(root: &Path) {
    let config = synthetic::FakeConfig { avg_num_nodes: 300, seed: 3, ..Default::default() };
    format::write(&synthetic::fake(config).unwrap(), root.join("papers")).unwrap();
}

/// Returns the standard output.
fn succeed(folder: &Path, subcommand: &str, flags: &str) -> String {
    let output = command(subcommand, flags).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{subcommand} {flags}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn fail(folder: &Path, subcommand: &str, flags: &str) -> (i32, String) {
    let output = command(subcommand, flags).current_dir(folder).output().unwrap();
    (output.status.code().unwrap(), text(&output))
}

fn weights_hash(run: impl AsRef<Path>) -> String {
    let summary = fs::read_to_string(run.as_ref().join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    summary["weights_hash"].as_str().unwrap().to_owned()
}

/// A run, its description in another working directory, in YAML, and from the settings that older versions recorded.
#[test]
fn a_description_repeats_the_weights_of_its_run() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    succeed(root, "train", &format!("{FLAGS} --epochs 2 --seed 4 --out runs/first"));
    let expected = weights_hash(root.join("runs/first"));
    let elsewhere = root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    succeed(&elsewhere, "train", "../runs/first/run.toml --out again");
    assert_eq!(weights_hash(elsewhere.join("again")), expected);
    assert_eq!(
        fs::read_to_string(elsewhere.join("again/run.toml")).unwrap(),
        fs::read_to_string(root.join("runs/first/run.toml")).unwrap()
    );

    let yaml = "data: papers\nlayers: 2\nfanouts: [5, 3]\nhidden: 8\nbatch-size: 64\nlr: 0.01\nresidual: true\n\
                jumping: cat\nepochs: 2\nseed: 4\n";
    fs::write(root.join("run.yaml"), yaml).unwrap();
    succeed(root, "train", "run.yaml --out runs/yaml");
    assert_eq!(weights_hash(root.join("runs/yaml")), expected);

    // A seed that is no number of TOML.
    succeed(root, "train", "run.yaml --epochs 1 --seed 18446744073709551615 --out runs/seed");
    succeed(root, "train", "runs/seed/run.toml --out runs/seed-again");
    assert_eq!(weights_hash(root.join("runs/seed-again")), weights_hash(root.join("runs/seed")));

    fs::remove_file(root.join("runs/first/run.toml")).unwrap();
    succeed(root, "train", "--like runs/first --out runs/older");
    assert_eq!(weights_hash(root.join("runs/older")), expected);
}

/// The settings that older versions recorded for sets of graphs have fanouts, which they do not read.
#[test]
fn a_run_of_graphs_of_an_older_version_is_resumed_and_repeated() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    succeed(root, "train", "--data mutag --hidden 4 --epochs 1 --out old");
    fs::remove_file(root.join("old/run.toml")).unwrap();
    succeed(root, "train", "--like old --out again");
    assert_eq!(weights_hash(root.join("again")), weights_hash(root.join("old")));
    succeed(root, "train", "--resume old --epochs 2");
    // Flags that cannot be read are a warning if they need not be.
    fs::write(root.join("old/run.toml"), "data = \"mu").unwrap();
    succeed(root, "train", "--resume old --data mutag --hidden 4 --epochs 3");
}

/// Partitions on the command line take the place of the data of a run.
#[test]
fn a_source_of_the_command_line_replaces_that_of_the_description() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    succeed(root, "train", &format!("{FLAGS} --epochs 1 --out whole"));
    succeed(root, "data", "partition papers --parts 2 --method random --out parts");
    succeed(
        root,
        "train",
        "--like whole --parts parts --host 127.0.0.1 --ranks 2 --batch-size 32 --out split",
    );
    succeed(root, "train", "--like split --data papers --ranks 1 --batch-size 64 --out back");
    assert_eq!(weights_hash(root.join("back")), weights_hash(root.join("whole")));
}

#[test]
fn a_run_like_another_differs_in_the_changed_setting_only() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    succeed(root, "train", &format!("{FLAGS} --epochs 1 --out runs/first"));
    succeed(root, "train", "--like runs/first --lr 0.02 --out runs/second");
    assert_ne!(weights_hash(root.join("runs/first")), weights_hash(root.join("runs/second")));
    let table = succeed(root, "runs", "");
    let heading: Vec<&str> = table.lines().next().unwrap().split("  ").map(str::trim).collect();
    let heading: Vec<&str> = heading.into_iter().filter(|cell| !cell.is_empty()).collect();
    let expected =
        ["run", "validation accuracy", "test accuracy", "best epoch", "epochs", "time", "state", "lr"];
    assert_eq!(heading, expected, "{table}");
}

#[test]
fn a_run_starts_from_the_weights_of_another() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    let config = synthetic::FakeConfig { avg_num_nodes: 300, num_classes: 4, seed: 3, ..Default::default() };
    format::write(&synthetic::fake(config).unwrap(), root.join("others")).unwrap();
    succeed(root, "train", &format!("{FLAGS} --epochs 2 --out first"));
    succeed(root, "train", &format!("{FLAGS} --epochs 1 --init-from first --out second"));
    // The description has the run, and so does a resumed run.
    succeed(root, "train", "second/run.toml --out third");
    assert_eq!(weights_hash(root.join("third")), weights_hash(root.join("second")));
    succeed(root, "train", "--resume third --epochs 2");
    let (_, message) = fail(root, "train", &format!("{FLAGS} --resume third --epochs 3 --init-from second"));
    assert!(message.contains("init-from was"), "{message}");
    // Another number of classes is another head.
    let flags = FLAGS.replace("papers", "others");
    let printed = succeed(root, "train", &format!("{flags} --epochs 1 --init-from first --out fourth"));
    assert!(printed.contains("note: the model has 4 outputs, the initial weights have "), "{printed}");
    let (status, message) = fail(
        root,
        "train",
        &format!("{} --epochs 1 --init-from first --out fifth", FLAGS.replace("--hidden 8", "--hidden 16")),
    );
    assert!(
        message.contains("first/best.safetensors: the tensor `") && !root.join("fifth").exists(),
        "{message}"
    );
    assert_eq!(status, 1);
    let (status, message) = fail(root, "train", &format!("{FLAGS} --epochs 1 --init-from frist --out fifth"));
    assert!(status == 1 && message.contains("did you mean `first`?"), "{status}: {message}");
}

#[test]
fn a_run_is_resumed_and_predicts_without_its_flags() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    succeed(root, "train", &format!("{FLAGS} --epochs 3 --out whole"));
    succeed(root, "train", &format!("{FLAGS} --epochs 2 --out part"));
    succeed(root, "train", "--resume part --epochs 3");
    assert_eq!(weights_hash(root.join("part")), weights_hash(root.join("whole")));
    let (status, message) = fail(root, "train", "--resume part --hidden 16 --epochs 4");
    assert!(message.contains("--hidden was 8 and is 16 now"), "{status}: {message}");

    succeed(root, "predict", "--run whole --out predicted");
    succeed(root, "predict", "--run whole --data papers --out expected");
    let file = |folder: &str| fs::read(root.join(folder).join("predictions.csv")).unwrap();
    assert_eq!(file("predicted"), file("expected"));
}

#[test]
fn mistakes_in_descriptions_are_named_with_their_file() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    for (name, content, expected) in [
        ("a.toml", "hiden = 3", "a.toml: `kiln train` has no flag --hiden (did you mean `hidden`?)"),
        ("b.toml", "hidden = ", "b.toml is not a table of flags and values, such as `lr = 0.01`"),
        ("c.yaml", "[1, 2]", "c.yaml is not a table of flags and values, such as `lr = 0.01`"),
        ("d.toml", "[model]\nhidden = 3", "d.toml: `model` is a table, expected a value or a list of values"),
        ("i.toml", "", "i.toml has no flags: write some, such as `lr = 0.01`"),
        ("e.yaml", "hidden:", "e.yaml: `hidden` is empty, expected a value or a list of values"),
        ("f.toml", "residual = 2", "f.toml: `residual` is 2, expected true or false"),
        ("g.toml", "hidden = -3", "invalid value '-3' for '--hidden <HIDDEN>'"),
        ("h.toml", "data = 'mutag'\ntask = 'graph'\nlink-split = '0.1,0.1'", "--link-split does not apply"),
    ] {
        fs::write(root.join(name), content).unwrap();
        let (status, message) = fail(root, "train", name);
        assert!(status == 2 && message.contains(expected), "{name}: {status}, {message}");
    }
    for (flags, expected) in [
        ("papers", "it is a folder: to take the flags of a run, use `--like papers`"),
        ("other.toml", "there is no such file"),
        ("10", "expected a file of flags with the extension toml, yaml or json"),
        ("--like papers", "papers is no run of kiln train: pass the folder of one"),
        ("a.toml --like runs", "cannot be used with"),
    ] {
        let (status, message) = fail(root, "train", flags);
        assert!(status == 2 && message.contains(expected), "{flags}: {status}, {message}");
    }
}
