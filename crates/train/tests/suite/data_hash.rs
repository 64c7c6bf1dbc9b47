//! Runs whose data is hashed while they train: the first checkpoint waits for the hash, and ranks compare theirs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kiln_comm::Communicator;
use kiln_loader::Phase;
use kiln_nn::Sage;
use kiln_train::{
    DataHash, EpochReport, Error, Evaluator, FitConfig, InputError, MetricSums, NodeClassification, Outcome,
    RunConfig, RunDir, RunError, RunIdentity, StepReport, TaskTrainer, TrainCallback,
};

use crate::common::{NodeLoader, data, loader, ranks, shard, trainer};

/// Runs one epoch of four steps, with a checkpoint after this many steps.
fn run(
    folder: &Path,
    comm: Box<dyn Communicator>,
    hash: DataHash,
    every: Option<usize>,
    callback: &mut impl TrainCallback,
) -> kiln_train::Result<Outcome<NodeClassification<Sage>>> {
    run_with_stop(folder, comm, hash, every, callback, false)
}

/// Runs like [`run`], but stops after the first step if `stop` is true.
fn run_with_stop(
    folder: &Path,
    comm: Box<dyn Communicator>,
    hash: DataHash,
    every: Option<usize>,
    callback: &mut impl TrainCallback,
    stop: bool,
) -> kiln_train::Result<Outcome<NodeClassification<Sage>>> {
    let (data, shard) = (data(320), shard(&*comm));
    let [train, val] = [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, shard));
    let fit = FitConfig { n_epochs: 1, patience: None, checkpoint_every: every };
    let identity = RunIdentity { settings: BTreeMap::new(), data_hash: hash };
    let config = RunConfig { identity, ..RunConfig::new(RunDir::StartOrResume(folder.to_owned()), fit) };
    let validate = |trainer: &mut TaskTrainer<NodeClassification<Sage>>, val: &NodeLoader, phase: Phase| {
        Evaluator::Sampled.count(trainer, val, phase)
    };
    let trainer = trainer(&data, comm).with_stop(Arc::new(AtomicBool::new(stop)));
    config.fit(trainer, &train, &val, validate, callback)
}

fn solo() -> Box<dyn Communicator> {
    Box::new(kiln_comm::SingleRank)
}

/// Returns true if the run's folder has a checkpoint, with this hash.
fn has_checkpoint(folder: &Path, hash: &str) -> bool {
    let Ok(bytes) = std::fs::read(folder.join("last/checkpoint.safetensors")) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(&format!(r#"\"data_hash\":\"{hash}\""#)), "the checkpoint should have the hash");
    true
}

/// Releases a hash after step 1, and records after which steps there is a checkpoint.
struct Watch<'a> {
    folder: &'a Path,
    release: Option<Sender<()>>,
    hash: DataHash,
    has_checkpoint: Vec<bool>,
}

impl TrainCallback for Watch<'_> {
    fn step(&mut self, report: &StepReport) {
        self.has_checkpoint.push(has_checkpoint(self.folder, "slow"));
        if report.step == 1 {
            self.release.take();
            self.hash.wait().unwrap();
        }
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

/// The time after which a hash that no one releases fails, so that a test fails instead of waiting forever.
const RELEASED_WITHIN: Duration = Duration::from_secs(60);

/// Returns a hash that waits until the other end of the channel is dropped.
fn slow() -> (DataHash, Sender<()>) {
    let (release, released): (_, Receiver<()>) = channel();
    let hash = DataHash::later(move |_| -> Result<_, String> {
        assert_eq!(released.recv_timeout(RELEASED_WITHIN), Err(RecvTimeoutError::Disconnected));
        Ok("slow".to_owned())
    });
    (hash, release)
}

#[test]
fn the_first_checkpoint_waits_for_the_hash_and_no_step_does() {
    // A checkpoint that is due while the data is hashed does not wait either.
    for (n_ranks, every) in [(1, None), (2, None), (1, Some(1)), (2, Some(1))] {
        let folder = tempfile::tempdir().unwrap();
        let (hash, release) = slow();
        let release = Mutex::new(Some(release));
        let seen = ranks(n_ranks).run(|comm| {
            let release = if comm.rank_info().rank == 0 { release.lock().unwrap().take() } else { None };
            let is_zero = release.is_some();
            let mut watch =
                Watch { folder: folder.path(), release, hash: hash.clone(), has_checkpoint: Vec::new() };
            run(folder.path(), comm, hash.clone(), every, &mut watch)?;
            Ok(is_zero.then_some(watch.has_checkpoint))
        });
        let seen = seen.unwrap().remove(0).unwrap();
        // Whether the ranks knew of the hash after step 1 or 2 depends on the order of their callbacks.
        assert_eq!((seen.len(), seen[1], seen[3]), (4, false, true), "{seen:?}");
        assert!(has_checkpoint(folder.path(), "slow"));
    }
}

/// Releases a hash when the run warns that it waits for it.
struct ReleaseOnWarning {
    release: Option<Sender<()>>,
    n_warnings: usize,
}

impl TrainCallback for ReleaseOnWarning {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}

    fn warning(&mut self, text: &str) {
        assert!(text.contains("waits for the hash of the data") && text.contains("Ctrl-C"), "{text}");
        self.release.take();
        self.n_warnings += 1;
    }
}

#[test]
fn a_stop_and_the_end_of_an_epoch_warn_that_they_wait_for_the_hash() {
    for (n_ranks, stop) in [(1, true), (1, false), (2, true), (2, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (hash, release) = slow();
        let release = Mutex::new(Some(release));
        let n_warnings = ranks(n_ranks).run(|comm| {
            let release = if comm.rank_info().rank == 0 { release.lock().unwrap().take() } else { None };
            let mut callback = ReleaseOnWarning { release, n_warnings: 0 };
            let outcome = run_with_stop(folder.path(), comm, hash.clone(), None, &mut callback, stop)?;
            assert_eq!(matches!(outcome, Outcome::Interrupted(_)), stop);
            Ok(callback.n_warnings)
        });
        assert_eq!(n_warnings.unwrap(), [1, 0][..n_ranks]);
        assert!(has_checkpoint(folder.path(), "slow"));
    }
}

#[test]
fn ranks_with_different_hashes_fail_before_the_first_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let result = ranks(2).run(|comm| {
        let own = format!("hash {}", comm.rank_info().rank);
        let outcome = run(folder.path(), comm, DataHash::later(|_| Ok::<_, String>(own)), None, &mut ());
        match outcome {
            Err(Error::Input(InputError::DataDiffers { first: 0, rank: 1, expected, got, .. })) => {
                assert_eq!((&expected[..], &got[..]), ("hash 0", "hash 1"));
                Ok(())
            }
            other => panic!("expected an error, got {other:?}"),
        }
    });
    result.unwrap();
    assert!(!folder.path().join("last").exists() && !folder.path().join("config.json").exists());
}

#[test]
fn a_hash_that_fails_ends_the_run_before_the_first_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    for (hash, expected) in [
        (DataHash::later(|_| Err("the file is shorter")), "could not be hashed: the file is shorter"),
        (
            DataHash::later(|_| -> Result<String, String> { panic!("a bug") }),
            "could not be hashed: a panic: a bug",
        ),
    ] {
        let error = run(folder.path(), solo(), hash, None, &mut ()).unwrap_err();
        assert!(
            matches!(error, Error::Run(RunError::DataHash { .. })) && error.to_string().contains(expected),
            "{error}"
        );
        assert!(!folder.path().join("last").exists());
    }
}

/// The callback panics if a step of the run with other data is trained.
#[test]
fn a_resumed_run_compares_the_hash_before_it_trains() {
    struct NoStep;
    impl TrainCallback for NoStep {
        fn step(&mut self, _: &StepReport) {
            panic!("no step should be trained");
        }
        fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
    }
    let folder = tempfile::tempdir().unwrap();
    let hash = |hash: &'static str| DataHash::later(move |_| Ok::<_, String>(hash.to_owned()));
    run(folder.path(), solo(), hash("slow"), None, &mut ()).unwrap();
    run(folder.path(), solo(), hash("slow"), None, &mut NoStep).unwrap();
    let error = run(folder.path(), solo(), hash("other"), None, &mut NoStep).unwrap_err();
    assert!(
        matches!(error, Error::Run(RunError::OtherRun { then, now, .. }) if then == "slow" && now == "other")
    );
    assert!(has_checkpoint(folder.path(), "slow"));
}

#[test]
fn dropping_the_last_clone_cancels_the_computation() {
    let (ended, ends) = channel();
    let hash = DataHash::later(move |is_unwanted| -> Result<String, String> {
        while !is_unwanted.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::yield_now();
        }
        ended.send(()).unwrap();
        Err("cancelled".to_owned())
    });
    let other = hash.clone();
    hash.start();
    drop(hash);
    assert!(!other.is_ready() && other.known().is_none());
    drop(other);
    ends.recv().unwrap();
}

/// A job that a momentary failure of a network file system ends can be started again.
#[test]
fn a_transient_failure_of_the_data_is_a_transient_error_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, expected) in [(std::io::ErrorKind::TimedOut, true), (std::io::ErrorKind::NotFound, false)] {
        let failed = move || {
            kiln_data::Error::from(kiln_graph::Error::Io {
                path: "features.npy".into(),
                source: std::io::Error::from(kind),
            })
        };
        let hash = DataHash::later(move |_| Err(failed()));
        let error = run(folder.path(), solo(), hash, None, &mut ()).unwrap_err();
        assert_eq!(error.is_transient(), expected, "{error}");
    }
}
