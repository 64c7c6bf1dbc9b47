//! Tests of commands that a signal ends while they write: the same command then succeeds with the same bytes, and nothing
//! unfinished is left. `KILN_KILLS` is the number of kills of each command.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kiln_testkit::free_port;

use crate::node_classification::event_records;
use crate::predict::{fails, succeeds, text, train};

/// The signals by their turn: one that ends a process without its help is every second one.
const SIGNALS: [&str; 4] = ["KILL", "TERM", "KILL", "INT"];
/// A command that is faster than its kill is repeated this often.
pub(crate) const MOST_TRIES: usize = 200;
const LIMIT: Duration = Duration::from_secs(600);

/// A command that writes a folder, by its arguments without `--out`.
pub(crate) struct Writer {
    args: String,
    out_flag: &'static str,
    n_processes: usize,
}

/// The end of a process: its status, and what it said.
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
}

pub(crate) fn writer(args: impl Into<String>) -> Writer {
    Writer { args: args.into(), out_flag: "--out", n_processes: 1 }
}

impl Writer {
    pub(crate) fn of_processes(self, n_processes: usize) -> Self {
        Self { n_processes, ..self }
    }

    pub(crate) fn start(&self, out: &Path) -> Vec<Child> {
        let port = free_port();
        let start = |rank: usize| {
            let mut command = Command::new("timeout");
            command.args(["--foreground", "--kill-after=5", "600", env!("CARGO_BIN_EXE_kiln")]);
            command.args(self.args.split_whitespace()).arg(self.out_flag).arg(out);
            if self.n_processes > 1 {
                command
                    .args(["--engine", "store", "--deadline", "60"])
                    .env("KILN_JOB_TOKEN", "a-word-of-this-test");
                command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
                command.env("WORLD_SIZE", self.n_processes.to_string());
                command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        (0..self.n_processes).map(start).collect()
    }

    /// Runs the command to its end, which must be a success. Returns what it printed.
    pub(crate) fn finish(&self, out: &Path) -> String {
        let ends = ends(self.start(out));
        let mut printed = String::new();
        for end in ends {
            assert!(end.status.success(), "{}: {}", self.args, end.said);
            let _ = write!(printed, "{}", end.said);
        }
        printed
    }

    /// Sends a signal to one process after the command has begun to write. Returns false if it came too late.
    fn is_killed(&self, out: &Path, signal: &str, delay: Duration, victim: usize) -> bool {
        let mut children = self.start(out);
        let root = out.parent().unwrap();
        wait(&mut children, || is_writing(root));
        thread::sleep(delay);
        send(&children[victim], signal);
        let ends = ends(children);
        let of_victim = &ends[victim];
        if of_victim.status.success() {
            return false;
        }
        let ended_by = of_victim.status.signal().or(of_victim.status.code().map(|code| code - 128));
        let number = match signal {
            "KILL" => 9,
            "TERM" => 15,
            _ => 2,
        };
        // SIGTERM and SIGINT stop a training with a checkpoint.
        let stops = self.out_flag != "--out" && signal != "KILL" && of_victim.status.code() == Some(75);
        assert!(stops || ended_by == Some(number), "{} by {signal}: {}", self.args, of_victim.said);
        assert!(!of_victim.said.contains("Error"), "{} by {signal}: {}", self.args, of_victim.said);
        for (rank, end) in ends.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let code = end.status.code();
            assert!(matches!(code, Some(0 | 75)), "rank {rank} of {}: {code:?} {}", self.args, end.said);
        }
        true
    }
}

/// Waits for an event, or for the end of one of the processes.
pub(crate) fn wait(children: &mut [Child], has_come: impl Fn() -> bool) {
    let started = Instant::now();
    while !has_come() && children.iter_mut().all(|child| child.try_wait().unwrap().is_none()) {
        assert!(started.elapsed() < LIMIT, "the event did not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a signal to the program that `timeout` runs.
pub(crate) fn send(child: &Child, signal: &str) {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    for process in children.split_whitespace() {
        // A process that has ended meanwhile is no failure.
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}")).arg(process).stderr(Stdio::null()).status().unwrap();
    }
}

pub(crate) fn ends(children: Vec<Child>) -> Vec<End> {
    let end = |child: Child| {
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        End { status: output.status, said: said.concat() }
    };
    children.into_iter().map(end).collect()
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the files of a folder and of its folders by their paths.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    drop(found.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(path).unwrap()))
                }
            }
        }
    }
    found
}

/// Returns true if a folder in this one has a file. The unfinished folder that shows that a folder can be created has none.
pub(crate) fn is_writing(root: &Path) -> bool {
    let folders = names(root).into_iter().map(|name| root.join(name));
    folders.filter_map(|folder| fs::read_dir(folder).ok()).any(|mut files| files.next().is_some())
}

pub(crate) fn n_kills() -> usize {
    std::env::var("KILN_KILLS").map_or(2, |kills| kills.parse().unwrap())
}

/// Kills a command again and again, and runs it to its end after each kill. The files that `keep` selects must be those of a command that
/// was not killed.
fn survives(writer: &Writer, keep: impl Fn(&Path) -> bool, check: impl Fn(&Path)) {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let started = Instant::now();
    writer.finish(&out);
    let whole = started.elapsed();
    let compared = |out: &Path| -> BTreeMap<PathBuf, Vec<u8>> {
        files(out).into_iter().filter(|(path, _)| keep(path)).collect()
    };
    let expected = compared(&out);
    assert!(!expected.is_empty(), "{}", writer.args);
    fs::remove_dir_all(&out).unwrap();
    let mut n_killed = 0;
    for attempt in 0..MOST_TRIES {
        if n_killed == n_kills() {
            return;
        }
        let signal = SIGNALS[n_killed % SIGNALS.len()];
        // Moments that are spread over the time of the command, earlier ones first.
        let delay = whole.mul_f64((attempt * 7 % 20) as f64 / 40.0);
        let victim = attempt % writer.n_processes;
        if writer.is_killed(&out, signal, delay, victim) {
            n_killed += 1;
            let left: Vec<String> =
                names(root.path()).into_iter().filter(|name| name.contains("unfinished")).collect();
            let cleans_up = signal != "KILL" && writer.out_flag == "--out";
            assert!(!cleans_up || left.is_empty(), "{} by {signal} left {left:?}", writer.args);
            // A command that ended by a signal may have completed its folder before.
            if !out.exists() || writer.out_flag != "--out" {
                let printed = writer.finish(&out);
                let is_said = printed.contains("which a process that has ended left unfinished");
                let has_folder = left.iter().any(|name| !name.ends_with(".lock"));
                assert!(is_said == has_folder, "{}: {left:?} {printed}", writer.args);
            }
        }
        // The signal may have come between the last file and the end.
        assert_eq!(compared(&out), expected, "{}", writer.args);
        check(&out);
        assert_eq!(names(root.path()), ["out"], "{}", writer.args);
        fs::remove_dir_all(&out).unwrap();
    }
    panic!("{} was too fast to be killed", writer.args);
}

#[test]
fn commands_that_write_data_survive_kills() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let edges: String = (0..60_000_u32).fold(String::from("src,dst\n"), |mut text, edge| {
        let _ = writeln!(text, "{},{}", edge % 5_000, edge.wrapping_mul(2_654_435_761) % 5_000);
        text
    });
    fs::write(at("edges.csv"), &edges).unwrap();
    let set = at("set");
    succeeds(&["data", "split-links", "sbm", "--out", &set]);
    for args in [
        format!("data convert {} --memory 1MiB", at("edges.csv")),
        format!("data convert {set}"),
        format!("data partition {set} --parts 3 --method random"),
        "data split-links sbm --seed 3".to_owned(),
    ] {
        survives(&writer(args), |_| true, |_| ());
    }
}

#[cfg(feature = "tables")]
#[test]
fn imports_survive_kills() {
    let root = tempfile::tempdir().unwrap();
    let mut users = String::from("id,age\n");
    let mut knows = String::from("a,b\n");
    for user in 0..20_000_u32 {
        let _ = writeln!(users, "user {user},{}", user % 90);
        let _ = writeln!(knows, "user {user},user {}", user.wrapping_mul(2_654_435_761) % 20_000);
    }
    fs::write(root.path().join("users.csv"), users).unwrap();
    fs::write(root.path().join("knows.csv"), knows).unwrap();
    let spec = "\
name: people
nodes:
  - name: user
    files: [users.csv]
    key: id
    columns:
      - {column: age, transform: standardize}
relations:
  - name: knows
    files: [knows.csv]
    src: {type: user, column: a}
    dst: {type: user, column: b}
";
    fs::write(root.path().join("spec.yaml"), spec).unwrap();
    let spec = root.path().join("spec.yaml");
    survives(&writer(format!("data import {} --threads 1", spec.display())), |_| true, |_| ());
}

#[test]
fn predictions_survive_kills_and_lost_ranks() {
    let root = tempfile::tempdir().unwrap();
    let run = train(
        root.path(),
        "--data sbm --hidden 8 --fanouts 4,4 --epochs 1 --batch-size 32 --threads-per-rank 1",
    );
    let predict = format!("predict --run {run} --data sbm --nodes all --threads-per-rank 1");
    survives(&writer(&predict), |_| true, |_| ());
    survives(&writer(format!("{predict} --ranks 3 --per-rank")), |_| true, |_| ());
    let args = format!("{predict} --per-rank");
    survives(&writer(args).of_processes(2), |_| true, |_| ());
}

#[test]
fn training_continues_after_kills() {
    let args = "train --data sbm --hidden 8 --fanouts 4,4 --epochs 6 --batch-size 64 --threads-per-rank 1 --checkpoint-every 5 --tensorboard";
    let of_train = Writer { out_flag: "--continue", ..writer(args) };
    // Of the other files, times differ.
    let keep =
        |path: &Path| ["best.safetensors", "test_predictions.csv"].iter().any(|name| path == Path::new(name));
    survives(&of_train, keep, |out| {
        // 6000 nodes in batches of 64.
        let steps: Vec<u64> = (0..6 * 94).collect();
        let epochs: Vec<u64> = (1..=6).map(|epoch| epoch * 94 - 1).collect();
        let events = events(&out.join("tensorboard"));
        let of = |tag: &str| -> Vec<u64> {
            events.iter().filter(|(_, record)| has(record, tag)).map(|(step, _)| *step).collect()
        };
        assert_eq!(of("loss/step"), steps);
        assert_eq!(of("loss/validation"), epochs);
    });
}

/// Returns the events of a folder as TensorBoard shows them, with their steps: a session replaces what earlier ones have from its first
/// step on.
fn events(folder: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut names = names(folder);
    names.sort();
    let mut events: Vec<(u64, Vec<u8>)> = Vec::new();
    for name in names {
        let bytes = fs::read(folder.join(name)).unwrap();
        for record in event_records(&bytes) {
            // The time of the event, the number of the field of its step, and the step in groups of 7 bits.
            let groups =
                record[10..].iter().enumerate().take_while(|(at, _)| *at == 0 || record[9 + at] >> 7 == 1);
            let step = groups.fold(0, |step, (at, group)| step | u64::from(group & 0x7f) << (7 * at));
            match record.ends_with(&[0x3a, 2, 8, 1]) {
                true => events.retain(|(other, _)| *other < step),
                false => events.push((step, record.to_vec())),
            }
        }
    }
    events
}

fn has(record: &[u8], tag: &str) -> bool {
    record.windows(tag.len()).any(|part| part == tag.as_bytes())
}

#[test]
fn a_file_beyond_the_limit_of_the_user_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 8; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kiln")]);
    command.args(["data", "split-links", "sbm", "--out"]).arg(&out);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(names(root.path()), [""; 0]);
}

#[test]
fn too_few_open_files_are_an_error_that_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 8; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kiln")]);
    command.args(["data", "partition", "sbm", "--parts", "8", "--method", "random", "--out"]).arg(&out);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("raise the limit of open files"), "{said}");
    assert!(!out.exists());
}

#[test]
fn threads_that_cannot_start_are_an_error_that_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    for flags in [&["data", "split-links", "sbm", "--out"][..], &["train", "--data", "sbm", "--out"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        // No address space has room for the stack of such a thread.
        command.env("RUST_MIN_STACK", (1_u64 << 52).to_string());
        let output = command.args(flags).arg(&out).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("set RAYON_NUM_THREADS to fewer threads") && !said.contains("panicked"),
            "{said}"
        );
        assert!(!out.exists());
    }
}

#[test]
fn a_signal_that_the_caller_ignores_stays_ignored() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let mut command = Command::new("sh");
    // As `nohup` and shells in the background do. The program has its handlers before it writes.
    command.args(["-c", "trap '' INT HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kiln")]);
    command.args(["data", "partition", "sbm", "--parts", "64", "--method", "random", "--out"]).arg(&out);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !is_writing(root.path()) && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    for signal in ["-INT", "-HUP"] {
        // The command may have ended.
        let mut kill = Command::new("kill");
        kill.args([signal, &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text(&out.join("part63/part.json")).contains("sha256"));
    let error = fails(&["data", "split-links", "sbm", "--out", out.to_str().unwrap()]);
    assert!(error.contains("exists and is not an empty folder"), "{error}");
}
