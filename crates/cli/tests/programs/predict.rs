//! Tests of `kiln predict`: predictions of a moved run folder, on the run's data and on new nodes, in both formats.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln::data::DatasetTargets;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use kiln::prelude::*;
use kiln::store::{ArrayFile, npy};

pub(crate) fn kiln(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiln")).args(flags).output().unwrap()
}

pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command that must succeed, and returns what it prints.
pub(crate) fn succeeds(flags: &[&str]) -> String {
    let output = kiln(flags);
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, and returns its error.
pub(crate) fn fails(flags: &[&str]) -> String {
    let output = kiln(flags);
    assert!(!output.status.success(), "{flags:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Trains with these flags, and moves the run to `moved` in `folder`.
pub(crate) fn train(folder: &Path, flags: &str) -> String {
    let (out, moved) = (folder.join("out"), folder.join("moved"));
    let flags: Vec<&str> = flags.split_whitespace().collect();
    succeeds(&[&["train", "--out", out.to_str().unwrap()], &flags[..]].concat());
    fs::rename(out, &moved).unwrap();
    moved.to_str().unwrap().to_owned()
}

#[test]
fn predictions_of_a_moved_run_are_those_of_the_run_byte_for_byte() {
    let cases = [
        (
            "sbm",
            "--data sbm --hidden 16 --fanouts 4,4 --epochs 1 --ranks 2 --batch-size 200 --standardize true",
        ),
        ("sbm", "--data sbm --hidden 16 --fanouts 4,4 --epochs 1 --model gcn --eval exact --symmetrize"),
        ("mutag", "--data mutag --hidden 8 --epochs 3 --ranks 2"),
        ("mutag", "--data mutag --hidden 8 --epochs 3 --node-features degrees"),
    ];
    for (data, flags) in cases {
        let folder = tempfile::tempdir().unwrap();
        let run = train(folder.path(), flags);
        let out = folder.path().join("predictions");
        let printed = succeeds(&["predict", "--run", &run, "--data", data, "--out", out.to_str().unwrap()]);
        let expected = text(&Path::new(&run).join("test_predictions.csv"));
        assert_eq!(text(&out.join("predictions.csv")), expected, "{flags}");
        assert!(printed.contains("labelled items"), "{printed}");
        if flags.contains("degrees") {
            let flags =
                ["predict", "--run", &run, "--data", data, "--node-features", "labels", "--out", "unused"];
            let error = fails(&flags);
            assert!(error.contains("the model was trained with degrees: remove the flag"), "{error}");
        }
    }
}

#[test]
fn writes_scores_and_embeddings_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let run = train(folder.path(), "--data sbm --hidden 8 --fanouts 4,4 --epochs 1");
    let ids = folder.path().join("ids.npy");
    fs::write(&ids, npy::write(&[5_i32, 3, 5], &[3])).unwrap();
    let (csv, npy) = (folder.path().join("csv"), folder.path().join("npy"));
    let flags = |out: &Path, format: &str| {
        let flags =
            ["predict", "--run", &run, "--data", "sbm", "--nodes", ids.to_str().unwrap(), "--mode", "exact"];
        let flags =
            [&flags[..], &["--embeddings", "--format", format, "--out", out.to_str().unwrap()]].concat();
        succeeds(&flags);
    };
    flags(&csv, "csv");
    flags(&npy, "npy");
    for (name, width) in [("scores", 8), ("embeddings", 8)] {
        let array = ArrayFile::open(npy.join(format!("{name}.npy"))).unwrap();
        assert_eq!(array.shape(), [3, width]);
        let values = array.elements::<f32>().unwrap();
        let lines = text(&csv.join(format!("{name}.csv")));
        let parsed: Vec<f32> = lines
            .lines()
            .skip(1)
            .flat_map(|line| line.split(',').skip(1))
            .map(|value| value.parse().unwrap())
            .collect();
        assert!(parsed[..] == values[..], "{name}");
        assert!(
            parsed[..width] == parsed[2 * width..] && parsed[..width] != parsed[width..2 * width],
            "{name}"
        );
    }
    let items = ArrayFile::open(npy.join("items.npy")).unwrap().elements::<u32>().unwrap();
    assert_eq!(items[..], [5, 3, 5]);
    let classes = text(&csv.join("classes.csv"));
    assert!(classes.starts_with("item,class,class_name,probability\n5,"), "{classes}");
}

#[test]
fn predicts_nodes_of_another_data_set() {
    let folder = tempfile::tempdir().unwrap();
    let run = train(folder.path(), "--data fake:300 --hidden 8 --fanouts 4,4 --epochs 1 --standardize true");
    let config = kiln::data::synthetic::FakeConfig { avg_num_nodes: 500, seed: 9, ..Default::default() };
    let other = kiln::data::synthetic::fake(config).unwrap();
    let (set, out) = (folder.path().join("set"), folder.path().join("predictions"));
    kiln::data::format::write(&other, &set).unwrap();
    let flags = ["predict", "--run", &run, "--data", set.to_str().unwrap(), "--nodes", "all"];
    let printed = succeeds(
        &[&flags[..], &["--mode", "sampled", "--fanouts", "all,all", "--out", out.to_str().unwrap()]]
            .concat(),
    );
    let n_nodes = other.graph.n_nodes();
    assert!(printed.contains(&format!("{n_nodes} nodes predicted in ")), "{printed}");
    let csv = text(&out.join("predictions.csv"));
    // The program's scores are those of the library on the raw features.
    let predictor = SavedModel::open(&run).unwrap().on_nodes(&other).unwrap();
    let nodes: Vec<NodeId> = (0..n_nodes as u32).map(NodeId).collect();
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 0 };
    let classes = predictor.predict(&nodes, &mode).unwrap().classes();
    let expected: Vec<String> = classes.iter().map(|class| class.unwrap().to_string()).collect();
    let predicted: Vec<&str> = csv.lines().skip(1).map(|line| line.rsplit(',').next().unwrap()).collect();
    assert_eq!(predicted, expected);
}

#[test]
fn errors_name_the_flag_the_file_and_the_widths() {
    let folder = tempfile::tempdir().unwrap();
    let run = train(folder.path(), "--data sbm --hidden 8 --fanouts 4 --epochs 1");
    let out = folder.path().join("predictions");
    let out = out.to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["--data", "debian-packages"], "the model reads 32 feature columns, but the data has 128"),
        (&["--data", "sbm", "--fanouts", "3"], "--fanouts and --seed require --mode sampled"),
        (&["--data", "sbm", "--memory", "1GiB"], "--memory requires --mode exact"),
        (
            &["--data", "sbm", "--mode", "sampled", "--fanouts", "3,3"],
            "got 2 fanouts for a model of 1 layers",
        ),
        (&["--data", "sbm", "--nodes", "/missing.npy"], "/missing.npy"),
        (&["--data", "mutag"], "mutag is a set of graphs"),
        // A device has no end.
        (&["--data", "sbm", "--keys", "/dev/zero"], "/dev/zero: not a regular file"),
    ];
    for (flags, expected) in cases {
        let error = fails(&[&["predict", "--run", &run, "--out", out], flags].concat());
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    let error = fails(&["predict", "--run", folder.path().to_str().unwrap(), "--out", out]);
    assert!(error.contains("model.json") && error.contains("expected a run folder"), "{error}");
    assert!(!Path::new(out).exists());
    let endless = folder.path().join("endless");
    fs::create_dir(&endless).unwrap();
    std::os::unix::fs::symlink("/dev/zero", endless.join("model.json")).unwrap();
    let error = fails(&["predict", "--run", endless.to_str().unwrap(), "--out", out]);
    assert!(error.contains("not a regular file"), "{error}");
    fs::create_dir(out).unwrap();
    fs::write(Path::new(out).join("kept"), "").unwrap();
    let error = fails(&["predict", "--run", &run, "--data", "sbm", "--out", out]);
    assert!(error.contains("is not an empty folder"), "{error}");
}

#[test]
fn predictions_of_regression_and_of_several_labels_are_those_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let base = kiln::data::synthetic::fake(kiln::data::synthetic::FakeConfig {
        avg_num_nodes: 300,
        seed: 2,
        ..Default::default()
    })
    .unwrap();
    let n_nodes = base.graph.n_nodes();
    let numbers: Vec<f32> =
        (0..2 * n_nodes).map(|i| if i % 7 == 0 { f32::NAN } else { (i % 11) as f32 }).collect();
    let bits: Vec<u8> = (0..3 * n_nodes).map(|i| (i % 5 == 0) as u8).collect();
    for (name, values) in [
        ("numbers", kiln::feature::TargetValues::regression(numbers, 2).unwrap()),
        ("bits", kiln::feature::TargetValues::multi_label(bits, 3).unwrap()),
    ] {
        let targets = DatasetTargets::new(0, values.into(), base.split().clone());
        let data = Dataset { targets: Some(targets), ..base.clone() };
        let (own, set) = (folder.path().join(name), folder.path().join(format!("{name}-set")));
        fs::create_dir(&own).unwrap();
        kiln::data::format::write(&data, &set).unwrap();
        let set = set.to_str().unwrap();
        let run =
            train(&own, &format!("--data {set} --hidden 8 --fanouts 4,4 --epochs 1 --standardize true"));
        let out = own.join("predictions");
        succeeds(&["predict", "--run", &run, "--data", set, "--out", out.to_str().unwrap()]);
        let expected = text(&Path::new(&run).join("test_predictions.csv"));
        assert_eq!(text(&out.join("predictions.csv")), expected, "{name}");
        assert!(!out.join("classes.csv").exists());
    }
}
