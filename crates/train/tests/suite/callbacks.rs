//! Callbacks that consist of others pass each call to all of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kiln_comm::SingleRank;
use kiln_train::{
    EpochReport, FitConfig, MetricSums, Run, RunConfig, RunDir, StepReport, TaskTrainer, TrainCallback,
    Validation, ValidationEnd,
};

use crate::common::{NodeLoader, data, loader, shard, trainer};

/// The names of the calls, each with the name of the callback.
type Calls = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

/// Records each call.
struct Record(&'static str, Calls);

impl Record {
    fn add(&mut self, call: &'static str) {
        self.1.lock().unwrap().push((self.0, call));
    }
}

impl TrainCallback for Record {
    fn wants_outputs(&mut self) -> bool {
        self.add("wants_outputs");
        true
    }

    fn started(&mut self, _: &Run, _: usize) {
        self.add("started");
    }

    fn step(&mut self, _: &StepReport) {
        self.add("step");
    }

    fn epoch_trained(&mut self, _: &EpochReport) {
        self.add("epoch_trained");
    }

    fn validated(&mut self, _: &Validation) {
        self.add("validated");
    }

    fn validation_end(&mut self, _: &mut ValidationEnd<'_>) {
        self.add("validation_end");
    }

    fn logged(&mut self, _: &[(String, f64)]) {
        self.add("logged");
    }

    fn saving(&mut self) {
        self.add("saving");
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {
        self.add("epoch");
    }

    fn note(&mut self, _: &str) {
        self.add("note");
    }

    fn warning(&mut self, _: &str) {
        self.add("warning");
    }

    fn file_replaced(&mut self, _: &Path) {
        self.add("file_replaced");
    }
}

/// The methods that forward, in the order of the trait.
const CALLS: [&str; 12] = [
    "wants_outputs",
    "started",
    "step",
    "epoch_trained",
    "validated",
    "validation_end",
    "logged",
    "saving",
    "epoch",
    "note",
    "warning",
    "file_replaced",
];

/// Logs a value, so that [`TrainCallback::logged`] is called.
struct Log;

impl TrainCallback for Log {
    fn validation_end(&mut self, end: &mut ValidationEnd<'_>) {
        end.log("one", 1.0);
    }
}

/// Calls all methods: those of a run, and those that a short run does not call.
fn call_all(callback: &mut impl TrainCallback) {
    let data = data(120);
    let folder = tempfile::tempdir().unwrap();
    let comm = SingleRank::new();
    let shard = shard(&comm);
    let [train, val] = [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, shard));
    let fit = FitConfig { n_epochs: 1, patience: None, checkpoint_every: None };
    let run = RunConfig::new(RunDir::New(folder.path().to_owned()), fit);
    let validate = |trainer: &mut TaskTrainer<_>, val: &NodeLoader, phase| {
        TaskTrainer::evaluate(trainer, val.epoch(phase), |_, _| ())
    };
    assert!(callback.wants_outputs());
    let trainer = trainer(&data, Box::new(comm));
    run.fit(trainer, &train, &val, validate, &mut (Log, Forward(callback))).unwrap();
    callback.warning("text");
    callback.note("text");
    callback.file_replaced(Path::new("file"));
}

/// Passes all calls to a borrowed callback.
struct Forward<'a>(&'a mut dyn TrainCallback);

impl TrainCallback for Forward<'_> {
    fn for_each(&mut self, visit: &mut dyn FnMut(&mut dyn TrainCallback)) {
        visit(self.0);
    }
}

fn record(name: &'static str, calls: &Calls) -> Record {
    Record(name, Arc::clone(calls))
}

#[test]
fn pairs_options_and_boxes_forward_all_methods() {
    let calls = Calls::default();
    let boxed: Box<dyn TrainCallback> = Box::new(record("boxed", &calls));
    let mut all = ((Some(record("some", &calls)), None::<Record>), (boxed, ((), record("last", &calls))));
    call_all(&mut all);
    let calls = calls.lock().unwrap();
    for name in CALLS {
        let of_name: Vec<&str> = calls.iter().filter(|(_, call)| *call == name).map(|(of, _)| *of).collect();
        let of_each: BTreeSet<&str> = of_name.iter().copied().collect();
        assert_eq!(of_each.len(), 3, "{name}: {of_name:?}");
        assert_eq!(of_name[..3], ["some", "boxed", "last"], "{name}");
        assert_eq!(of_name.len() % 3, 0, "{name}: {of_name:?}");
    }
}

/// The list of this test would miss a method that is added to the trait.
#[test]
fn the_list_has_all_methods() {
    let source = include_str!("../../src/run/callback.rs");
    let of_trait = source.split("pub trait TrainCallback").nth(1).unwrap().split("\n}\n").next().unwrap();
    let names = of_trait.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
    assert_eq!(names.filter(|name| *name != "for_each").collect::<Vec<_>>(), CALLS);
}
