//! Runs of `kiln train` that are killed, at any moment, and go on: what they leave is
//! byte for byte what a run leaves that nobody stopped. And what `--resume` refuses.
//!
//! A run here has 5 epochs of 24 steps on two ranks, with dropout, and writes 66 checkpoints.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const FLAGS: &str =
    "--data sbm --batch-size 128 --hidden 32 --fanouts 5,5 --epochs 5 --ranks 2 --checkpoint-every 2";

/// What a run is given besides [`FLAGS`], or in the place of some of them.
fn command(folder: [&str; 2], others: &[&str]) -> Command {
    let mut flags: Vec<&str> = FLAGS.split_whitespace().collect();
    for pair in others.chunks(2) {
        match flags.iter().position(|flag| flag == &pair[0]) {
            Some(position) => flags[position + 1] = pair[1],
            None => flags.extend(pair),
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("train").args(flags).args(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(folder: [&str; 2], others: &[&str]) -> Output {
    command(folder, others).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Everything that must not depend on stops. Times and memory do.
#[derive(Debug, PartialEq)]
struct Left {
    summary: Value,
    metrics: Vec<Value>,
    predictions: String,
    best: Vec<u8>,
    files: Vec<PathBuf>,
}

fn left(folder: &Path) -> Left {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let lasting = |json: &str| {
        let mut value: Value = serde_json::from_str(json).unwrap();
        value.as_object_mut().unwrap().retain(|name, _| !name.contains("second") && !name.contains("rss"));
        value
    };
    Left {
        summary: lasting(&read("summary.json")),
        metrics: read("metrics.jsonl").lines().map(lasting).collect(),
        predictions: read("test_predictions.csv"),
        best: std::fs::read(folder.join("best.safetensors")).unwrap(),
        files: files(folder).into_keys().collect(),
    }
}

/// All files of a folder, by their paths in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            files.extend(self::files(&path).into_iter().map(|(inner, bytes)| (name.join(inner), bytes)));
        } else {
            files.insert(name, std::fs::read(path).unwrap());
        }
    }
    files
}

/// What a run leaves that nobody stops, and how long it took.
fn whole_run(root: &Path) -> (Left, Duration) {
    let folder = root.join("whole");
    let started = Instant::now();
    let output = output(["--out", path(&folder)], &[]);
    let took = started.elapsed();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left = left(&folder);
    assert_eq!(left.metrics.len(), 5);
    (left, took)
}

/// When a run is killed.
#[derive(Debug, Clone)]
enum Moment {
    /// So long after its start.
    After(Duration),
    /// As soon as this file of its folder appears for the so-manieth time.
    Appears(&'static str, u32),
}

/// Starts or resumes the run and kills it at the moment; `false` if it came to its end before.
fn killed(folder: &Path, moment: &Moment) -> bool {
    let mut child = start(folder, &[]);
    let was_killed = match moment {
        Moment::After(time) => runs_for(&mut child, *time),
        Moment::Appears(name, nth) => runs_until(&mut child, &folder.join(name), *nth),
    };
    // SIGKILL; an error where it has ended.
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert!(was_killed || status.success(), "it ended with {status}");
    was_killed && !status.success()
}

/// Resumes the run of the folder, or starts it there if it had not begun.
fn start(folder: &Path, others: &[&str]) -> Child {
    let flag = if has_begun(folder) { "--resume" } else { "--out" };
    command([flag, path(folder)], others).spawn().unwrap()
}

/// Whether the folder has a checkpoint: the last one, or the one before it while that takes its place.
fn has_begun(folder: &Path) -> bool {
    ["checkpoint", "previous"].iter().any(|name| folder.join(format!("last/{name}.safetensors")).exists())
}

/// Reads what it prints until its end, or for so long; whether it still runs then.
fn runs_for(child: &mut Child, time: Duration) -> bool {
    let (ended, end) = channel::<()>();
    let mut printed = child.stdout.take().unwrap();
    thread::spawn(move || {
        let _ = printed.read_to_end(&mut Vec::new());
        drop(ended);
    });
    end.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

/// Looks at the path until it has appeared so often, or the run is at its end; whether it still runs then.
fn runs_until(child: &mut Child, path: &Path, nth: u32) -> bool {
    let (mut was_there, mut n_seen) = (false, 0);
    while child.try_wait().unwrap().is_none() {
        let is_there = path.exists();
        n_seen += u32::from(is_there && !was_there);
        if n_seen == nth {
            return true;
        }
        was_there = is_there;
        thread::yield_now();
    }
    false
}

/// Whether a file was being written when the run of the folder was killed.
fn is_writing(folder: &Path) -> bool {
    files(folder).keys().any(|name| path(name).ends_with("unfinished"))
}

/// Resumes the run to its end and looks at what it leaves.
fn finish(folder: &Path) -> Left {
    let output = start(folder, &[]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    left(folder)
}

/// A generator of moments, by a linear congruence modulo 2^64 (Knuth's MMIX).
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn part_of(&mut self, time: Duration) -> Duration {
        time * self.below(1000) as u32 / 1000
    }
}

/// Starts a run anew until it could be killed, each time earlier. A file may be there for too short a time to
/// be seen; the folder `last` stays.
fn kill(folder: &Path, mut moment: Moment) {
    while !killed(folder, &moment) {
        std::fs::remove_dir_all(folder).unwrap();
        moment = match moment {
            Moment::After(time) => Moment::After(time / 2),
            Moment::Appears(name, 1) if name.ends_with("unfinished") => Moment::Appears("last", 1),
            Moment::Appears(name, nth) => Moment::Appears(name, nth.div_ceil(2)),
        };
    }
}

/// 12 moments of a run's time, and 8 at which a file is being written.
#[test]
fn runs_that_are_killed_at_20_moments_go_on_to_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let (expected, took) = whole_run(root.path());
    let mut draws = Draws(4);
    let mut moments: Vec<_> = (0..12).map(|_| Moment::After(draws.part_of(took))).collect();
    moments.extend(
        (0..5).map(|_| Moment::Appears("last/checkpoint.safetensors.unfinished", 1 + draws.below(30) as u32)),
    );
    moments.push(Moment::Appears("config.json.unfinished", 1));
    moments.push(Moment::Appears("last", 1));
    moments.push(Moment::Appears("best.safetensors.unfinished", 2));
    let (mut n_with_checkpoint, mut n_writing) = (0, 0);
    for (trial, moment) in moments.into_iter().enumerate() {
        let folder = root.path().join(format!("trial-{trial}"));
        kill(&folder, moment.clone());
        n_with_checkpoint += u32::from(has_begun(&folder));
        n_writing += u32::from(folder.exists() && is_writing(&folder));
        assert!(finish(&folder) == expected, "{moment:?}: {:?}", left(&folder));
    }
    println!(
        "of 20 runs {n_with_checkpoint} had a checkpoint and {n_writing} wrote a file when they were killed"
    );
    assert!(0 < n_with_checkpoint);
}

#[test]
fn a_run_that_is_killed_again_and_again_goes_on_to_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let (expected, took) = whole_run(root.path());
    let folder = root.path().join("run");
    let mut draws = Draws(7);
    for _ in 0..8 {
        killed(&folder, &Moment::After(took / 4 + draws.part_of(took / 4)));
    }
    assert!(finish(&folder) == expected, "{:?}", left(&folder));
}

#[test]
fn a_finished_run_goes_on_for_more_epochs() {
    let root = tempfile::tempdir().unwrap();
    let (long, short) = (root.path().join("long"), root.path().join("short"));
    for (folder, epochs) in [(&long, "4"), (&short, "2")] {
        let output = output(["--out", path(folder)], &["--epochs", epochs]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_ne!(left(&short), left(&long));
    let output = output(["--resume", path(&short)], &["--epochs", "4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("going on after 2 epochs and 0 steps"));
    assert!(left(&short) == left(&long));
    let before = files(&short);
    let output = self::output(["--resume", path(&short)], &["--epochs", "3"]);
    assert!(text(&output.stderr).contains("--epochs 3: the run has done 4"), "{}", text(&output.stderr));
    assert!(files(&short) == before, "a refused run should leave the folder as it is");
}

/// The same seeds, samples and masks; sums round otherwise.
#[test]
fn a_run_goes_on_with_other_ranks_that_have_the_same_batch_together() {
    let root = tempfile::tempdir().unwrap();
    let (expected, _) = whole_run(root.path());
    let folder = root.path().join("run");
    kill(&folder, Moment::Appears("best.safetensors", 1));
    let output = output(["--resume", path(&folder)], &["--ranks", "4", "--batch-size", "64"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("note: on 4 ranks after 2"), "{}", text(&output.stdout));
    let loss = |left: &Left| left.metrics[4]["train_loss"].as_f64().unwrap();
    let (found, expected) = (loss(&left(&folder)), loss(&expected));
    assert!((found - expected).abs() < 1e-3 * expected, "{found} {expected}");
}

/// Flags that say how something is computed, or where, may change.
#[test]
fn a_run_goes_on_with_other_flags_that_the_result_does_not_depend_on() {
    let root = tempfile::tempdir().unwrap();
    let (expected, folder) = (root.path().join("expected"), root.path().join("run"));
    for (folder, epochs) in [(&expected, "2"), (&folder, "1")] {
        let output = output(["--out", path(folder)], &["--epochs", epochs]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let others = "--epochs 2 --graph-mode device --feature-cache 1MiB --hot-by presampling --workers 3 --threads-per-rank 2 \
                  --deadline 500 --join-within 100 --engine store --verify --in-memory --loss-every 5";
    let mut words: Vec<&str> = others.split_whitespace().collect();
    // Those without a value stand at the end.
    words.retain(|word| !["--verify", "--in-memory"].contains(word));
    let mut command = command(["--resume", path(&folder)], &words);
    let output = command.args(["--verify", "--in-memory", "--task", "node"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(left(&folder) == left(&expected));
}

/// Refused with the name of what differs; the folder stays as it is.
#[test]
fn another_run_is_refused_and_its_folder_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    kill(&folder, Moment::Appears("best.safetensors", 1));
    let before = files(&folder);
    let cases: [(&[&str], &str); 10] = [
        (&["--lr", "0.01"], "--lr was 0.003 and is 0.01 now"),
        (&["--hidden", "16"], "--hidden was 32 and is 16 now"),
        (&["--dropout", "0.25"], "--dropout was 0.5 and is 0.25 now"),
        (&["--seed", "1"], "--seed was 0 and is 1 now"),
        (&["--fanouts", "5,4"], "--fanouts was 5,5 and is 5,4 now"),
        (&["--patience", "3"], "--patience was not set and is 3 now"),
        (&["--batch-size", "64"], "--batch-size x --ranks was 256 and is 128 now"),
        (&["--ranks", "1"], "--batch-size x --ranks was 256 and is 128 now"),
        (&["--uneven", "drop"], "--uneven was join and is drop now"),
        (&["--data", "fake:500"], "the hash of the data was "),
    ];
    for (others, expected) in cases {
        let output = output(["--resume", path(&folder)], others);
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{others:?} was taken");
        assert!(said.contains("the checkpoint is of another run") && said.contains(expected), "{said}");
        assert!(files(&folder) == before, "{others:?} changed the folder");
    }
}

#[test]
fn a_folder_of_no_run_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let empty = root.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for folder in [&empty, &root.path().join("nowhere")] {
        let output = output(["--resume", path(folder)], &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success());
        assert!(said.contains("has no checkpoint to go on from"), "{said}");
    }
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    let output = output(["--resume", path(&empty)], &["--out", path(&empty)]);
    assert!(text(&output.stderr).contains("cannot be used with"), "{}", text(&output.stderr));
}
