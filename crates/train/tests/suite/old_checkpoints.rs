//! Tests of resuming checkpoints of an older kiln, another version of the determinism contract or another machine, and
//! folders whose metrics were lost.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use kiln_comm::SingleRank;
use kiln_train::{DETERMINISM_CONTRACT, Error, Resumed, Run, RunError, RunFolder};
use safetensors::SafeTensors;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::resume::{data, identity, train, trainer};

/// Returns a copy of a folder of `tests/fixtures`: of a run that an earlier commit stopped in its seventh step, by
/// `train(1, .., Some(1), 7)`.
fn fixture(name: &str) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let to = tempfile::tempdir().unwrap();
    fs::create_dir(to.path().join("last")).unwrap();
    for name in ["last/checkpoint.safetensors", "metrics.jsonl"] {
        fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    to
}

/// Returns the instruction sets of the CPU that wrote a folder's checkpoint. CPUs with others may round matrix products
/// differently.
fn instruction_sets(folder: &Path) -> String {
    let bytes = fs::read(folder.join("last/checkpoint.safetensors")).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let header: Value = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["run"]).unwrap();
    let cpu = header["provenance"]["cpu"].as_str().unwrap();
    cpu.split(',').next().unwrap().to_owned()
}

#[test]
fn resumes_a_checkpoint_of_an_earlier_commit_to_the_same_weights() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(1, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
    let folder = fixture("checkpoint-contract-2");
    let rounds_alike = instruction_sets(folder.path()) == instruction_sets(whole.path());
    let (found, resumed) = train(1, || RunFolder::open(folder.path()), None, usize::MAX).unwrap();
    assert_eq!(resumed, Some(Resumed { epoch: 1, step: 2, n_ranks: 1, damage: None }));
    assert_eq!(found.metrics.len(), 3);
    if rounds_alike {
        assert_eq!(found, expected);
    }
}

/// That commit drew other neighbours in evaluations: a resumed run would mix both.
#[test]
fn rejects_a_checkpoint_of_commit_9350b4b() {
    let folder = fixture("checkpoint-9350b4b");
    let error = start(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Run(RunError::OtherContract { version: 1, .. })), "{error}");
    let expected = "resume the run with the version of kiln that wrote it, or start a new run";
    assert!(error.to_string().contains(expected), "{error}");
}

fn start(folder: &Path) -> kiln_train::Result<Run> {
    Run::start(&mut trainer(&data(), Box::new(SingleRank)), || RunFolder::open(folder), identity())
}

fn truncate(path: &Path, n_bytes: usize) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..n_bytes.min(bytes.len())]).unwrap();
}

/// Returns the folder of a run that was stopped after two epochs and one step.
fn stopped() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    train(1, || RunFolder::create(folder.path()), Some(1), 10).unwrap_err();
    folder
}

#[test]
fn a_missing_or_truncated_metrics_file_is_rewritten_from_the_checkpoint() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(1, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
    // The file is missing, empty, or truncated within the first row (50 bytes), at about its end (446), or within the
    // second row (500).
    for n_bytes in [None, Some(0), Some(50), Some(446), Some(500)] {
        let folder = stopped();
        let metrics = folder.path().join("metrics.jsonl");
        let rows = fs::read(&metrics).unwrap();
        match n_bytes {
            None => fs::remove_file(&metrics).unwrap(),
            Some(n_bytes) => truncate(&metrics, n_bytes),
        }
        let mut run = start(folder.path()).unwrap();
        assert_eq!((run.n_epochs(), run.take_warnings()), (2, vec![]), "{n_bytes:?}");
        assert_eq!(fs::read(&metrics).unwrap(), rows, "{n_bytes:?}");
        drop(run);
        let (found, _) = train(1, || RunFolder::open(folder.path()), None, usize::MAX).unwrap();
        assert_eq!(found, expected, "{n_bytes:?}");
    }
}

#[test]
fn a_changed_metrics_file_is_rewritten_with_a_warning() {
    let folder = stopped();
    let metrics = folder.path().join("metrics.jsonl");
    let rows = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, rows.replace("\"epoch\":2", "\"epoch\":7")).unwrap();
    let [warning] = &start(folder.path()).unwrap().take_warnings()[..] else {
        panic!("expected one warning")
    };
    assert!(
        warning.contains("metrics.jsonl") && warning.contains("rewritten from the checkpoint"),
        "{warning}"
    );
    assert_eq!(fs::read_to_string(&metrics).unwrap(), rows);
}

/// Changes the header of the folder's last checkpoint, and its hash.
fn change_header(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("last/checkpoint.safetensors");
    let bytes = fs::read(&path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let mut header: Value = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["run"]).unwrap();
    change(&mut header);
    let header = header.to_string();
    let hash = Sha256::digest(header.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let metadata = HashMap::from([("run".to_owned(), header), ("run_hash".to_owned(), hash)]);
    let entries = SafeTensors::deserialize(&bytes).unwrap();
    fs::write(&path, safetensors::serialize(entries.tensors(), Some(metadata)).unwrap()).unwrap();
}

#[test]
fn rejects_a_checkpoint_of_another_version_of_the_contract() {
    for version in [0, DETERMINISM_CONTRACT + 1] {
        let folder = stopped();
        change_header(folder.path(), |header| {
            header["provenance"]["contract"] = version.into();
            header["provenance"]["kiln"] = "7.1.0".into();
        });
        let path = folder.path().join("last/checkpoint.safetensors");
        let error = start(folder.path()).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Run(RunError::OtherContract { path: named, version: found, .. }) if (&named, found) == (&path, version))
        );
        assert!(text.contains(&format!("version {version} of the determinism contract")), "{text}");
        assert!(text.contains("resume the run with kiln 7.1.0, or start a new run"), "{text}");
    }
}

#[test]
fn warns_of_a_checkpoint_of_another_kiln_or_cpu() {
    let folder = stopped();
    assert_eq!(start(folder.path()).unwrap().take_warnings(), [""; 0]);
    change_header(folder.path(), |header| {
        header["provenance"]["kiln"] = "0.0.1".into();
        header["provenance"]["cpu"] = "a CPU of another kind".into();
    });
    let mut run = start(folder.path()).unwrap();
    let [kiln, cpu] = &run.take_warnings()[..] else { panic!("expected two warnings") };
    assert!(kiln.contains("another kiln (0.0.1, now "), "{kiln}");
    assert!(cpu.contains("another CPU (a CPU of another kind, now "), "{cpu}");
    assert_eq!((run.n_epochs(), run.n_steps()), (2, 1));
}

/// The settings of the earlier run are flags, so no difference of one of them says why it cannot be resumed.
#[test]
fn a_run_of_an_earlier_version_of_the_program_is_named() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut of_flags = identity();
    of_flags.settings.insert("the program".into(), "kiln train".into());
    let solo = || trainer(&data, Box::new(SingleRank));
    Run::start(&mut solo(), || RunFolder::create(folder.path()), of_flags).unwrap();
    let error = Run::start(&mut solo(), || RunFolder::open(folder.path()), identity()).unwrap_err();
    assert!(
        matches!(&error, Error::Run(RunError::RunOfEarlierVersion { program }) if program == "kiln train"),
        "{error}"
    );
}
