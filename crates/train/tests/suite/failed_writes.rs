//! Tests of runs on a temporarily full disk. The temporary name of an incomplete checkpoint is a link to `/dev/full`,
//! which is a full disk also for root. A failed write removes the link, so it is created again for each attempt.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::cell::RefCell;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kiln_comm::{Failure, RankError};
use kiln_train::{
    EpochReport, Error, FitConfig, MetricSums, Run, RunError, RunFolder, RunIdentity, StepReport,
    TaskTrainer, TrainCallback, VALIDATION, fit, weights_to_bytes,
};

use crate::common::{data, loader, ranks, shard, trainer};

const CHECKPOINT: &str = "last/checkpoint.safetensors";

/// The disturbances of a run of two epochs of four steps, with a checkpoint after each step and each epoch.
#[derive(Clone)]
struct Case {
    n_ranks: usize,
    /// The files that cannot be written while the disk is full.
    full: Vec<&'static str>,
    /// The disk is full while the number of completed steps is in this range.
    during: Range<usize>,
    /// The duration of a step in minutes, by the test's clock.
    minutes: u64,
    /// The number of steps after which the process crashes.
    killed_after: usize,
    /// The number of steps after which a signal stops the run.
    stopped_after: usize,
}

impl Default for Case {
    fn default() -> Self {
        let full = vec![CHECKPOINT];
        Self {
            n_ranks: 1,
            full,
            during: 0..0,
            minutes: 1,
            killed_after: usize::MAX,
            stopped_after: usize::MAX,
        }
    }
}

/// The callback's state on rank 0.
struct Watch<'a> {
    case: &'a Case,
    folder: &'a Path,
    n_steps: usize,
    minutes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    warnings: Vec<String>,
}

impl Watch<'_> {
    fn fill_disk(&self) {
        fill(self.folder, self.case, self.n_steps);
    }
}

fn fill(folder: &Path, case: &Case, n_steps: usize) {
    for name in case.full.iter().filter(|_| case.during.contains(&n_steps)) {
        let path = folder.join(format!("{name}.unfinished"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink("/dev/full", path).unwrap();
    }
}

/// The callback, whose state is shared with the validation.
struct Shared<'a, 'b>(&'a RefCell<Watch<'b>>);

impl TrainCallback for Shared<'_, '_> {
    fn step(&mut self, _: &StepReport) {
        let mut watch = self.0.borrow_mut();
        watch.n_steps += 1;
        watch.minutes.fetch_add(watch.case.minutes, Ordering::Relaxed);
        watch.stop.store(watch.case.stopped_after <= watch.n_steps, Ordering::Relaxed);
        assert!(watch.n_steps <= watch.case.killed_after, "injected crash");
        watch.fill_disk();
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {
        self.0.borrow().fill_disk();
    }

    fn warning(&mut self, text: &str) {
        self.0.borrow_mut().warnings.push(text.to_owned());
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
struct Left {
    weights: Vec<u8>,
    best: Vec<u8>,
    n_rows: usize,
    n_epochs: usize,
    n_steps: usize,
}

/// Runs the case in the folder, from the start or from its checkpoint. Returns the result and the warnings.
fn train(folder: &Path, case: &Case) -> Result<(Left, Vec<String>), RankError> {
    let data = data(320);
    if !folder.join(CHECKPOINT).exists() {
        fill(folder, case, 0);
    }
    let mut ends = ranks(case.n_ranks).run(|comm| {
        let (shard, stop, minutes) = (shard(&*comm), Arc::default(), Arc::<AtomicU64>::default());
        let [train, val] =
            [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, shard));
        let mut trainer = trainer(&data, comm).with_stop(Arc::clone(&stop));
        let open = || match folder.join(CHECKPOINT).exists() {
            true => RunFolder::open(folder),
            false => RunFolder::create(folder),
        };
        let now = Arc::clone(&minutes);
        let clock = move || Duration::from_secs(60 * now.load(Ordering::Relaxed));
        let mut run = Run::start(&mut trainer, open, RunIdentity::default())?.with_clock(clock);
        let n_steps = 4 * run.n_epochs() + run.n_steps();
        let watch = RefCell::new(Watch { case, folder, n_steps, minutes, stop, warnings: Vec::new() });
        let validate = |trainer: &mut TaskTrainer<_>| {
            if trainer.is_rank_zero() {
                watch.borrow().fill_disk();
            }
            trainer.evaluate(val.epoch(VALIDATION), |_, _| ())
        };
        let config = FitConfig { n_epochs: 2, patience: None, checkpoint_every: Some(1) };
        let mut callback = trainer.is_rank_zero().then_some(Shared(&watch));
        fit(&mut trainer, &train, config, validate, &mut run, &mut callback)?;
        let weights = weights_to_bytes(trainer.model())?;
        let end = (weights, run.n_epochs(), run.n_steps());
        drop(run);
        Ok((end, watch.into_inner().warnings))
    })?;
    let ((weights, n_epochs, n_steps), warnings) = ends.remove(0);
    for ((other, ..), _) in &ends {
        assert_eq!(*other, weights, "all ranks should end with equal weights");
    }
    let metrics = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let best = fs::read(folder.join("best.safetensors")).unwrap();
    Ok((Left { weights, best, n_rows: rows.len(), n_epochs, n_steps }, warnings))
}

fn undisturbed(n_ranks: usize) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let (left, warnings) = train(folder.path(), &Case { n_ranks, ..Case::default() }).unwrap();
    assert_eq!((left.n_epochs, left.n_rows, warnings), (2, 2, vec![]));
    left
}

/// Returns the error of rank 0. Panics unless rank 0 caused the failure of the run.
fn error_of(outcome: Result<(Left, Vec<String>), RankError>) -> Box<Error> {
    match outcome {
        Err(RankError::Rank { rank: 0, failure: Failure::Failed(error), .. }) => error.downcast().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn has_unfinished_files(folder: &Path) -> bool {
    let names = [folder.to_owned(), folder.join("last")].map(|folder| fs::read_dir(folder).unwrap());
    names
        .into_iter()
        .flatten()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with("unfinished"))
}

#[test]
fn a_temporarily_full_disk_causes_one_warning() {
    for n_ranks in [1, 2] {
        let expected = undisturbed(n_ranks);
        // The disk is full at the start, within an epoch, across its end, or at the end of the last epoch, always for
        // less than an hour.
        for during in [0..1, 0..5, 2..3, 3..6, 8..9] {
            let folder = tempfile::tempdir().unwrap();
            let case = Case { n_ranks, during: during.clone(), minutes: 8, ..Case::default() };
            let is_last = during.contains(&8);
            let outcome = train(folder.path(), &case);
            if is_last {
                // The disk is still full after the last epoch, whose checkpoint must be written.
                let error = error_of(outcome);
                assert!(matches!(*error, Error::Run(RunError::Io { .. })) && error.is_transient(), "{error}");
                let (left, _) = train(folder.path(), &Case { n_ranks, ..Case::default() }).unwrap();
                assert_eq!(left, expected, "{n_ranks} ranks, {during:?}");
                continue;
            }
            let (left, warnings) = outcome.unwrap();
            assert_eq!(left, expected, "{n_ranks} ranks, {during:?}");
            let [warning] = &warnings[..] else { panic!("expected one warning, got {warnings:?}") };
            assert!(warning.contains(CHECKPOINT) && warning.contains("No space left on device"), "{warning}");
            assert!(!has_unfinished_files(folder.path()), "{during:?}");
        }
    }
}

#[test]
fn a_run_killed_while_the_disk_is_full_resumes_from_the_last_complete_checkpoint() {
    let expected = undisturbed(1);
    for killed_after in [3, 5] {
        let folder = tempfile::tempdir().unwrap();
        let case = Case { during: 3..7, killed_after, ..Case::default() };
        assert!(train(folder.path(), &case).unwrap_err().to_string().contains("injected crash"));
        let mut trainer = trainer(&data(320), Box::new(kiln_comm::SingleRank));
        let run =
            Run::start(&mut trainer, || RunFolder::open(folder.path()), RunIdentity::default()).unwrap();
        assert_eq!((run.n_epochs(), run.n_steps()), (0, 2));
        drop(run);
        let (left, warnings) = train(folder.path(), &Case::default()).unwrap();
        assert_eq!((left, warnings), (expected.clone(), vec![]));
    }
}

/// All ranks fail with rank 0's error, without waiting for a timeout.
#[test]
fn a_run_fails_when_its_last_checkpoint_is_older_than_an_hour() {
    for n_ranks in [1, 2] {
        let expected = undisturbed(n_ranks);
        // The checkpoint after step 2 is complete; the attempt to write the one after step 5 is 75 minutes later.
        let folder = tempfile::tempdir().unwrap();
        let case = Case { n_ranks, during: 3..100, minutes: 25, ..Case::default() };
        let error = error_of(train(folder.path(), &case));
        let Error::CheckpointOverdue { age, .. } = *error else { panic!("{error}") };
        assert_eq!(age, Duration::from_secs(75 * 60));
        assert!(error.is_transient() && error.to_string().contains("for 75 minutes"), "{error}");
        assert!(!has_unfinished_files(folder.path()));
        let (left, _) = train(folder.path(), &Case { n_ranks, ..Case::default() }).unwrap();
        assert_eq!(left, expected, "resumed on {n_ranks} ranks");
        // Without a complete checkpoint since the start, the folder still counts as empty.
        let folder = tempfile::tempdir().unwrap();
        let case = Case { n_ranks, during: 0..100, minutes: 25, ..Case::default() };
        assert!(matches!(*error_of(train(folder.path(), &case)), Error::CheckpointOverdue { .. }));
        let (left, _) = train(folder.path(), &Case { n_ranks, ..Case::default() }).unwrap();
        assert_eq!(left, expected, "started again on {n_ranks} ranks");
    }
}

/// After a signal, the process exits, so the checkpoint cannot be retried.
#[test]
fn a_run_stopped_while_the_disk_is_full_fails() {
    for n_ranks in [1, 2] {
        let expected = undisturbed(n_ranks);
        let folder = tempfile::tempdir().unwrap();
        let case = Case { n_ranks, during: 3..100, stopped_after: 4, ..Case::default() };
        let error = error_of(train(folder.path(), &case));
        assert!(matches!(*error, Error::Run(RunError::Io { .. })) && error.is_transient(), "{error}");
        let (left, _) = train(folder.path(), &Case { n_ranks, ..Case::default() }).unwrap();
        assert_eq!(left, expected);
    }
}

#[test]
fn unwritten_files_are_written_with_the_next_checkpoint() {
    let expected = undisturbed(1);
    let names = ["metrics.jsonl", "curves.svg", "best.safetensors"];
    for name in names.into_iter().filter(|name| cfg!(feature = "report") || *name != "curves.svg") {
        let folder = tempfile::tempdir().unwrap();
        // The disk is full at the end of the first epoch.
        let case = Case { full: vec![name], during: 4..5, ..Case::default() };
        let (left, warnings) = train(folder.path(), &case).unwrap();
        assert_eq!(left, expected, "{name}");
        assert!(warnings.len() == 1 && warnings[0].contains(name), "{name}: {warnings:?}");
        assert!(folder.path().join(name).is_file() && !has_unfinished_files(folder.path()), "{name}");
    }
}

/// A directory with the name of the file is a permanent error, also for root.
#[test]
fn a_permanent_write_error_ends_the_run_at_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(format!("{CHECKPOINT}.unfinished"))).unwrap();
    let error = error_of(train(folder.path(), &Case::default()));
    assert!(matches!(*error, Error::Run(RunError::Io { .. })) && !error.is_transient(), "{error}");
}
