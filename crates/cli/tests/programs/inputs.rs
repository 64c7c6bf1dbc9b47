//! Tests of flags of imports, and of flags that need weights of edges.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::store::npy;

use crate::predict::{fails, succeeds};

/// Writes a folder of eight nodes in a ring, with or without weights.
fn ring(folder: &Path, has_weights: bool) -> String {
    fs::create_dir_all(folder).unwrap();
    let put = |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes).unwrap();
    let edges: Vec<i64> = (0..8).chain((1..8).chain([0])).collect();
    put("edges.npy", npy::write(&edges, &[2, 8]));
    put("features.npy", npy::write(&[0.5_f32, 1.0, -1.0, 2.0, 0.0, 1.5, -2.0, 3.0], &[8, 1]));
    put("labels.npy", npy::write(&[0_i64, 1, 0, 1, 0, 1, 0, 1], &[8]));
    put("train.npy", npy::write(&[0_u32, 1, 2, 3], &[4]));
    put("val.npy", npy::write(&[4_u32, 5], &[2]));
    put("test.npy", npy::write(&[6_u32, 7], &[2]));
    if has_weights {
        put("weights.npy", npy::write(&[0.5_f32, 2.0, 1.0, 0.1, 3.0, 1.0, 0.2, 4.0], &[8]));
    }
    folder.display().to_string()
}

#[test]
fn edge_weighting_changes_the_weights_of_the_model_and_needs_those_of_edges() {
    let root = tempfile::tempdir().unwrap();
    let data = ring(&root.path().join("weighted"), true);
    let trained = |out: &str, flags: &str| {
        let out = root.path().join(out);
        let flags =
            format!("train --data {data} --epochs 1 --layers 1 --hidden 4 --out {} {flags}", out.display());
        succeeds(&flags.split_whitespace().collect::<Vec<_>>());
        fs::read(out.join("best.safetensors")).unwrap()
    };
    let without = trained("none", "");
    let scaled = trained("scale", "--edge-weighting scale");
    assert!(without != scaled);
    let data = ring(&root.path().join("plain"), false);
    let error = fails(&["train", "--data", &data, "--edge-weighting", "scale", "--out", "unused"]);
    assert!(error.contains("--edge-weighting needs data whose edges have weights"), "{error}");
}

#[test]
fn an_inspected_folder_has_the_notes_of_its_reader() {
    let root = tempfile::tempdir().unwrap();
    let data = ring(&root.path().join("ring"), false);
    fs::write(root.path().join("ring/weight.npy"), npy::write(&[1.0_f32], &[1])).unwrap();
    let output = succeeds(&["data", "inspect", &data]);
    assert!(output.contains("are not read: weight.npy"), "{output}");

    // So has a run, also on a folder of kiln's format, whose split is checked only then.
    let trained = |data: &str, out: &str| {
        let out = root.path().join(out).display().to_string();
        succeeds(&["train", "--data", data, "--epochs", "1", "--layers", "1", "--out", &out])
    };
    let output = trained(&data, "run");
    assert!(output.contains("are not read: weight.npy"), "{output}");
    let converted = root.path().join("converted");
    succeeds(&["data", "convert", &data, "--out", converted.to_str().unwrap()]);
    fs::write(converted.join("weight.npy"), npy::write(&[1.0_f32], &[1])).unwrap();
    let output = trained(converted.to_str().unwrap(), "converted-run");
    assert!(output.contains("are not read: weight.npy"), "{output}");
}

/// Returns the notes about flags that have no effect.
fn unused(output: &str) -> Vec<&str> {
    let is_about_flags = |line: &&str| line.contains("no effect") || line.contains("no hidden layers");
    output.lines().filter(is_about_flags).collect()
}

#[test]
fn flags_without_effect_have_notes() {
    let root = tempfile::tempdir().unwrap();
    let data = ring(&root.path().join("ring"), false);
    let trained = |flags: &str| {
        let out = root.path().join("out");
        let _ = fs::remove_dir_all(&out);
        let flags = format!("train --data {data} --epochs 1 --out {} {flags}", out.display());
        succeeds(&flags.split_whitespace().collect::<Vec<_>>())
    };
    assert_eq!(unused(&trained("--layers 2 --hidden 4 --dropout 0.1 --norm layer")), [""; 0]);
    let output = trained("--layers 1 --hidden 4 --dropout 0.1 --norm layer");
    let expected = "note: a model of one layer has no hidden layers, for --hidden, --dropout and --norm";
    assert_eq!(unused(&output), [expected]);
    let output = trained("--layers 1 --model gat --heads 2");
    assert_eq!(unused(&output), ["note: a model of one layer has no hidden layers, for --heads"]);
    assert_eq!(unused(&trained("--layers 1 --jumping last --hidden 4")), [""; 0]);
    let output =
        trained("--layers 2 --deadline 9 --uneven pad --join-within 3 --engine store --master 127.0.0.1:1");
    let expected = [
        "note: --master, --engine and --join-within have no effect in a single process",
        "note: --deadline and --uneven have no effect on a single rank",
    ];
    assert_eq!(unused(&output), expected);
    assert_eq!(unused(&trained("--layers 2 --deadline 90 --uneven pad --ranks 2")), [""; 0]);
    let output = trained("--layers 2 --rule uniform-with-replacement --fanouts all");
    assert_eq!(unused(&output), ["note: --rule has no effect with --fanouts all"]);
    assert_eq!(unused(&trained("--layers 2 --rule uniform-with-replacement --fanouts all,3")), [""; 0]);

    let run = root.path().join("out").display().to_string();
    let predicted = root.path().join("predicted").display().to_string();
    let output =
        succeeds(&["predict", "--run", &run, "--data", &data, "--out", &predicted, "--deadline", "9"]);
    assert_eq!(unused(&output), ["note: --deadline has no effect on a single rank"]);

    let parts = root.path().join("parts").display().to_string();
    let flags = ["data", "partition", &data, "--method", "fennel", "--cache-ratio", "0", "--out", &parts];
    let output = succeeds(&[&flags[..], &["--fanouts", "2", "--batch-size", "3", "--seed", "1"]].concat());
    let expected = [
        "note: --fanouts and --batch-size have no effect with --cache-ratio 0",
        "note: --seed has no effect on partitions by Fennel without a cache",
    ];
    assert_eq!(unused(&output), expected);
}

#[cfg(feature = "tables")]
mod imports {
    use kiln::data::format;

    use super::*;
    use crate::predict_typed::{import, imported};

    #[test]
    fn a_dry_run_prints_the_import_and_writes_nothing() {
        let root = tempfile::tempdir().unwrap();
        imported(root.path());
        let spec = root.path().join("spec.yaml").display().to_string();
        let n_before = fs::read_dir(root.path()).unwrap().count();
        let text = succeeds(&["data", "import", &spec, "--dry-run"]);
        assert!(text.contains("item") && text.contains("buys"), "{text}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), n_before);
    }

    #[test]
    fn threads_and_memory_do_not_change_an_import() {
        let root = tempfile::tempdir().unwrap();
        let expected = format::hash(imported(root.path())).unwrap();
        for (position, flags) in
            [["--threads", "1"], ["--threads", "3"], ["--memory", "512MiB"]].iter().enumerate()
        {
            let set = import(root.path(), "spec.yaml", &format!("set{position}"), flags);
            assert_eq!(format::hash(set).unwrap(), expected, "{flags:?}");
        }
    }
}
