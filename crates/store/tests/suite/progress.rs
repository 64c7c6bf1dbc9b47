//! Stages and their scopes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::{Arc, Mutex};

use kiln_store::array_folder::{ArrayFolder, ElementType, Entries, FolderWriter};
use kiln_store::progress::{Progress, ProgressReporter, ProgressScope, ProgressStage, ProgressUnit};
use kiln_store::sha256_of_file;

/// A reporter that records the stages in the order of their ends.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    /// Runs work, and returns its finished stages.
    fn record<T>(work: impl FnOnce() -> T) -> Vec<String> {
        let recorder = Arc::new(Self::default());
        ProgressScope::new(recorder.clone()).run(work);
        std::mem::take(&mut *recorder.0.lock().unwrap())
    }
}

impl ProgressReporter for Recorder {
    fn started(&self, stage: &Arc<ProgressStage>) {
        assert_eq!(stage.done(), 0, "{}", stage.name());
    }

    fn finished(&self, stage: &Arc<ProgressStage>) {
        let (name, done, unit) = (stage.name(), stage.done(), stage.unit().name());
        let total = stage.total().map_or("?".to_owned(), |total| total.to_string());
        self.0.lock().unwrap().push(format!("{name}: {done}/{total} {unit}"));
    }
}

fn stage(name: &str) {
    Progress::start(name, ProgressUnit::Rows, None).advance(1);
}

#[test]
fn stages_are_reported_within_a_scope_of_their_thread_only() {
    stage("before");
    let stages = Recorder::record(|| {
        stage("own");
        std::thread::scope(|threads| {
            threads.spawn(|| stage("other thread"));
        });
        ProgressScope::default().run(|| stage("silenced"));
        let scope = ProgressScope::current();
        std::thread::scope(|threads| {
            threads.spawn(|| scope.run(|| stage("carried")));
        });
        assert_eq!(Recorder::record(|| stage("inner scope")), ["inner scope: 1/? rows"]);
        stage("again");
        ProgressScope::leave();
        stage("left");
    });
    assert_eq!(stages, ["own: 1/? rows", "carried: 1/? rows", "again: 1/? rows"]);
    stage("after");
}

#[test]
fn a_scope_ends_with_a_panic() {
    let stages = Recorder::record(|| {
        let recorder = Arc::new(Recorder::default());
        let scope = ProgressScope::new(recorder.clone());
        let run = std::panic::AssertUnwindSafe(|| scope.run(|| panic!("expected by the test")));
        std::panic::catch_unwind(run).unwrap_err();
        stage("after the panic");
        assert!(recorder.0.lock().unwrap().is_empty());
    });
    assert_eq!(stages, ["after the panic: 1/? rows"]);
}

#[test]
fn counters_reach_the_number_of_rows() {
    for n_rows in [0, 1, 65_535, 65_536, 200_001] {
        let stages = Recorder::record(|| {
            let progress = Progress::start("counting", ProgressUnit::Rows, n_rows);
            let mut counter = progress.counter();
            (0..n_rows).for_each(|_| counter.add(1));
            drop(counter);
            progress
        });
        assert_eq!(stages, [format!("counting: {n_rows}/{n_rows} rows")]);
    }
}

#[test]
fn folders_and_hashes_report_their_bytes() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set");
    let entries = Arc::new(Mutex::new(Entries::new()));
    let stages = Recorder::record(|| {
        let mut writer = FolderWriter::create(&target).unwrap();
        writer.put("a.npy", ElementType::U32, &[1_u32; 1000]).unwrap();
        *entries.lock().unwrap() = writer.entries().clone();
        writer.commit().unwrap();
    });
    assert_eq!(stages, ["hashing a.npy: 4128/4128 bytes", "writing set: 4128/? bytes"]);
    let stages = Recorder::record(|| {
        let folder = ArrayFolder::open(&target.join("set.json"), &entries.lock().unwrap()).unwrap();
        folder.verify_hashes().unwrap();
        folder.array("a.npy").unwrap().for_each_integer(|_, _| Ok::<(), kiln_store::Error>(())).unwrap();
        sha256_of_file(&root.path().join("missing")).unwrap_err();
    });
    assert_eq!(
        stages,
        [
            "verifying hashes: 4128/4128 bytes",
            "reading a.npy: 1000/1000 values",
            "hashing missing: 0/0 bytes"
        ]
    );
}
