//! Tests of `kiln train --resume`: runs that are killed at any moment and resumed leave the same files, byte for byte,
//! as an uninterrupted run; a run with other settings is rejected.
//!
//! A run has 3 epochs of 24 steps on two ranks, with dropout, and writes 40 checkpoints.
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
    "--data sbm --batch-size 128 --hidden 8 --fanouts 3,2 --epochs 3 --ranks 2 --checkpoint-every 2";

/// Returns a `kiln train` command with [`FLAGS`]. The pairs of `others` replace flags of the same name or are added.
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

/// The results that interruptions must not change. Times and memory are left out.
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

/// Reads all files of a folder, by their relative paths.
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

/// Runs without interruption, and returns the results and the duration.
fn whole_run(root: &Path) -> (Left, Duration) {
    let folder = root.join("whole");
    let started = Instant::now();
    let output = output(["--out", path(&folder)], &[]);
    let took = started.elapsed();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left = left(&folder);
    assert_eq!(left.metrics.len(), 3);
    (left, took)
}

/// The moment at which a run is killed.
#[derive(Debug, Clone)]
enum Moment {
    /// The run is killed this long after its start.
    After(Duration),
    /// The run is killed when this file appears in its folder for the nth time.
    Appears(&'static str, u32),
}

/// Starts or resumes the run and kills it at the given moment. Returns false if the run finished before that moment.
fn killed(folder: &Path, moment: &Moment) -> bool {
    let mut child = start(folder, &[]);
    let was_killed = match moment {
        Moment::After(time) => runs_for(&mut child, *time),
        Moment::Appears(name, nth) => runs_until(&mut child, &folder.join(name), *nth),
    };
    // The run may have exited already; its status below shows whether it was killed.
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert!(was_killed || status.success(), "the run exited with {status}");
    was_killed && !status.success()
}

/// Resumes the run in the folder, or starts it if the folder has no checkpoint.
fn start(folder: &Path, others: &[&str]) -> Child {
    let flag = if has_begun(folder) { "--resume" } else { "--out" };
    command([flag, path(folder)], others).spawn().unwrap()
}

/// Returns true if the folder has a checkpoint: the last one, or the previous one while the last one is replaced.
fn has_begun(folder: &Path) -> bool {
    ["checkpoint", "previous"].iter().any(|name| folder.join(format!("last/{name}.safetensors")).exists())
}

/// Reads the output of the run until it exits or `time` has passed. Returns true if the run is still running.
fn runs_for(child: &mut Child, time: Duration) -> bool {
    let (ended, end) = channel::<()>();
    let mut printed = child.stdout.take().unwrap();
    thread::spawn(move || {
        let _ = printed.read_to_end(&mut Vec::new());
        drop(ended);
    });
    end.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

/// Polls the path until it has appeared `nth` times or the run has exited. Returns true if it is still running.
fn runs_until(child: &mut Child, path: &Path, nth: u32) -> bool {
    let (mut was_there, mut n_seen) = (false, 0);
    while child.try_wait().unwrap().is_none() {
        let is_there = path.exists();
        n_seen += u32::from(is_there && !was_there);
        if n_seen == nth {
            return true;
        }
        was_there = is_there;
        // A checkpoint takes longer to write, and a loop without a pause would take as long as the run.
        thread::sleep(Duration::from_micros(100));
    }
    false
}

/// Returns true if the run of the folder was killed while it was writing a file.
fn is_writing(folder: &Path) -> bool {
    files(folder).keys().any(|name| path(name).ends_with("unfinished"))
}

/// Resumes the run until it finishes, and reads its results.
fn finish(folder: &Path) -> Left {
    let output = start(folder, &[]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    left(folder)
}

/// A random number generator: a linear congruence modulo 2^64 (Knuth's MMIX).
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

/// Starts a run and kills it at the given moment. If the run finishes before, starts it again with an earlier moment. A
/// file may exist too briefly to be noticed, so the last attempt waits for the folder `last`, which stays.
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

/// 12 moments are random times, and 8 are moments at which a file is being written.
#[test]
fn runs_killed_at_20_moments_resume_to_identical_files() {
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
    println!("of 20 killed runs, {n_with_checkpoint} had a checkpoint and {n_writing} were writing a file");
    assert!(0 < n_with_checkpoint);
}

#[test]
fn a_run_killed_repeatedly_resumes_to_identical_files() {
    let root = tempfile::tempdir().unwrap();
    let (expected, _) = whole_run(root.path());
    let folder = root.path().join("run");
    let mut draws = Draws(7);
    // Each of the runs writes at least one of the 40 checkpoints.
    for _ in 0..8 {
        let nth = 2 + draws.below(4) as u32;
        killed(&folder, &Moment::Appears("last/checkpoint.safetensors.unfinished", nth));
    }
    assert!(has_begun(&folder));
    assert!(finish(&folder) == expected, "{:?}", left(&folder));
}

#[test]
fn a_finished_run_resumes_for_more_epochs() {
    let root = tempfile::tempdir().unwrap();
    let (long, short) = (root.path().join("long"), root.path().join("short"));
    for (folder, epochs) in [(&long, "4"), (&short, "2")] {
        let output = output(["--out", path(folder)], &["--epochs", epochs]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_ne!(left(&short), left(&long));
    let output = output(["--resume", path(&short)], &["--epochs", "4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("resumed after 2 epochs and 0 steps"));
    assert!(left(&short) == left(&long));
    let before = files(&short);
    let output = self::output(["--resume", path(&short)], &["--epochs", "3"]);
    let said = text(&output.stderr);
    assert!(said.contains("--epochs 3: expected at least the 4 epochs already done"), "{said}");
    assert!(files(&short) == before, "a rejected run should not change the folder");
}

/// Seeds, samples and dropout masks are identical, but sums round differently.
#[test]
fn a_run_resumes_on_more_ranks_with_the_same_global_batch() {
    let root = tempfile::tempdir().unwrap();
    let (expected, _) = whole_run(root.path());
    let folder = root.path().join("run");
    kill(&folder, Moment::Appears("best.safetensors", 1));
    let output = output(["--resume", path(&folder)], &["--ranks", "4", "--batch-size", "64"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("note: resumed on 4 ranks, previously 2"),
        "{}",
        text(&output.stdout)
    );
    let loss = |left: &Left| left.metrics[2]["train_loss"].as_f64().unwrap();
    let (found, expected) = (loss(&left(&folder)), loss(&expected));
    assert!((found - expected).abs() < 1e-3 * expected, "{found} {expected}");
}

/// Flags that only affect how or where something is computed may change.
#[test]
fn a_run_resumes_with_changed_flags_that_do_not_affect_the_result() {
    let root = tempfile::tempdir().unwrap();
    let (expected, folder) = (root.path().join("expected"), root.path().join("run"));
    for (folder, epochs) in [(&expected, "2"), (&folder, "1")] {
        let output = output(["--out", path(folder)], &["--epochs", epochs]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let others = "--epochs 2 --graph-mode device --feature-cache 1MiB --hot-by presampling --workers 3 --threads-per-rank 2 \
                  --deadline 500 --join-within 100 --engine store --verify --in-memory --loss-every 5";
    let mut words: Vec<&str> = others.split_whitespace().collect();
    // `command` takes pairs, so flags without a value are added at the end.
    words.retain(|word| !["--verify", "--in-memory"].contains(word));
    let mut command = command(["--resume", path(&folder)], &words);
    let output = command.args(["--verify", "--in-memory", "--task", "node"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(left(&folder) == left(&expected));
}

/// The error names the setting that differs.
#[test]
fn rejects_resuming_with_other_settings_and_keeps_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    kill(&folder, Moment::Appears("best.safetensors", 1));
    let before = files(&folder);
    let cases: [(&[&str], &str); 10] = [
        // Other flags than those of the result may change, and are not named.
        (&["--lr", "0.01", "--workers", "3"], "run: --lr was 0.003 and is 0.01 now; restore"),
        (&["--hidden", "24"], "--hidden was 8 and is 24 now"),
        (&["--dropout", "0.25"], "--dropout was 0.5 and is 0.25 now"),
        (&["--seed", "1"], "--seed was 0 and is 1 now"),
        (&["--fanouts", "3,3"], "--fanouts was 3,2 and is 3,3 now"),
        (&["--patience", "3"], "--patience was not set and is 3 now"),
        (&["--batch-size", "64"], "--batch-size x --ranks was 256 and is 128 now"),
        (&["--ranks", "1"], "--batch-size x --ranks was 256 and is 128 now"),
        (&["--uneven", "drop"], "--uneven was join and is drop now"),
        (&["--data", "fake:500"], "items was "),
    ];
    for (others, expected) in cases {
        let output = output(["--resume", path(&folder)], others);
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{others:?} was accepted");
        assert!(said.contains("the checkpoint belongs to another run") && said.contains(expected), "{said}");
        assert!(files(&folder) == before, "{others:?} changed the folder");
    }
}

#[test]
fn rejects_resuming_a_folder_without_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let empty = root.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let nowhere = root.path().join("nowhere");
    for (folder, expected) in [(&empty, "has no checkpoint to resume from"), (&nowhere, "does not exist")] {
        let output = output(["--resume", path(folder)], &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success());
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    let output = output(["--resume", path(&empty)], &["--out", path(&empty)]);
    assert!(text(&output.stderr).contains("cannot be used with"), "{}", text(&output.stderr));
}
