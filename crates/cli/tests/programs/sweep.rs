//! Tests of `kiln sweep`: a sweep that is killed and started again ends with the same table. `KILN_KILLS` is the number of kills, of which
//! those after the second one come at random moments of 12 runs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln::data::{format, synthetic};
use kiln::graph::NodeId;
use kiln::sample::RngKey;

use crate::distributed_sage::{command, text};
use crate::killed::{n_kills, send, wait};

/// Two cells with two seeds.
const SWEEP: &str = "\
data = \"papers\"
layers = 1
fanouts = 5
batch-size = 32
lr = 0.02
epochs = 8
[sweep]
hidden = [4, 8]
seed = [0, 1]
";

fn prepare(root: &Path) {
    let config = synthetic::FakeConfig { avg_num_nodes: 300, seed: 3, ..Default::default() };
    format::write(&synthetic::fake(config).unwrap(), root.join("papers")).unwrap();
}

fn run(root: &Path, subcommand: &str, flags: &str) -> Output {
    command(subcommand, flags).current_dir(root).output().unwrap()
}

fn start(root: &Path, flags: &str) -> Child {
    let mut sweep = command("sweep", flags);
    sweep.current_dir(root).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the lines of the table of cells, without the time at their ends.
fn cells(output: &Output) -> Vec<String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let table = stdout.lines().skip_while(|line| !line.starts_with("cell  "));
    let table = table.take_while(|line| !line.starts_with("written: "));
    table.map(|line| line.rsplit_once("  ").unwrap().0.trim_end().to_owned()).collect()
}

fn has_epochs(run: &Path) -> bool {
    fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count() >= 2
}

/// Returns the processes whose command line has a text.
fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let command_line = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
        found.extend(command_line.contains(text).then_some(command_line));
    }
    found
}

/// Starts a sweep, and sends it a signal after an event. Returns true if runs were left.
fn is_hit(root: &Path, flags: &str, signal: &str, event: impl Fn() -> bool) -> bool {
    let mut sweep = [start(root, flags)];
    wait(&mut sweep, event);
    send(&sweep[0], signal);
    let [sweep] = sweep;
    let output = sweep.wait_with_output().unwrap();
    // `timeout` ends as its program does. The last run may have ended before the signal.
    let status = output.status.code().unwrap_or(137);
    let ends = [0, if signal == "KILL" { 137 } else { 75 }];
    // A signal that comes before the program handles it ends the program.
    assert!(ends.contains(&status) || status == 143, "{signal}: {status}: {}", text(&output));
    // No run outlives its sweep. The system may take a moment to end them.
    let folder = flags.rsplit(' ').next().unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    while !processes_with(folder).is_empty() {
        assert!(Instant::now() < deadline, "{signal}: {:?}", processes_with(folder));
        std::thread::sleep(Duration::from_millis(10));
    }
    status != 0
}

#[test]
fn a_sweep_that_is_killed_and_started_again_ends_with_the_same_table() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    let n_seeds = if n_kills() <= 2 { 2 } else { 6 };
    let seeds: Vec<String> = (0..n_seeds).map(|seed| seed.to_string()).collect();
    let sweep = SWEEP.replace("[0, 1]", &format!("[{}]", seeds.join(", ")));
    fs::write(root.join("sweep.toml"), sweep).unwrap();
    let listed = run(root, "sweep", "sweep.toml --dry-run");
    let expected = "run              state    hidden  seed\ncell-001-seed-0  waiting  4       0\n";
    assert!(text(&listed).starts_with(expected), "{}", text(&listed));
    assert!(!root.join("runs").exists());

    let started = Instant::now();
    let whole = run(root, "sweep", "sweep.toml --parallel 2 --memory 64GiB --memory-per-run 1GiB");
    let time = started.elapsed();
    assert!(whole.status.success(), "{}", text(&whole));
    let expected = cells(&whole);
    assert_eq!(expected.len(), 3, "{}", text(&whole));
    assert!(expected[1].contains(" ± "), "{expected:?}");
    let page = fs::read_to_string(root.join("runs/sweep/sweep.html")).unwrap();
    let mean = expected[1].split_whitespace().nth(3).unwrap();
    assert!(page.contains("<h2>Cells</h2>") && page.contains(mean), "{mean}");
    let listed = run(root, "runs", "runs/sweep");
    assert_eq!(text(&listed).lines().count(), 1 + 2 * n_seeds, "{}", text(&listed));

    // A killed sweep ends its runs, and one that is asked to stop lets them write checkpoints.
    let folder = root.canonicalize().unwrap().join("killed");
    let flags = format!("sweep.toml --parallel 2 --memory-per-run 1 --out {}", folder.display());
    let mut n_hits = 0;
    for (signal, first) in [("KILL", "cell-001-seed-0"), ("TERM", "cell-002-seed-0")] {
        n_hits += usize::from(is_hit(root, &flags, signal, || has_epochs(&folder.join(first))));
    }
    assert!(0 < n_hits, "all runs ended before both signals");
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let mut draws = RngKey::new(clock.into()).node(NodeId(0)).rng();
    for turn in 2..n_kills() {
        let share = f64::from(draws.next_u32()) / f64::from(u32::MAX);
        let delay = time.mul_f64(share / 8.0);
        let signal = ["KILL", "TERM"][turn % 2];
        let started = Instant::now();
        let is_hit = is_hit(root, &flags, signal, || delay < started.elapsed());
        println!(
            "{signal} {turn} of seed {clock} after {delay:?}: {}",
            if is_hit { "hit" } else { "too late" }
        );
    }
    let again = run(root, "sweep", &flags);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(cells(&again), expected);
    // Finished runs do not start again.
    let log = fs::read(folder.join("logs/cell-002-seed-1.log")).unwrap();
    let finished = run(root, "sweep", &flags);
    assert_eq!(cells(&finished), expected);
    assert_eq!(fs::read(folder.join("logs/cell-002-seed-1.log")).unwrap(), log);
}

#[test]
fn a_run_that_fails_does_not_end_the_sweep() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    // The metric needs targets of a regression, which the command line does not show.
    let sweep = "data = \"papers\"\nlayers = 1\nfanouts = 5\nepochs = 1\n[sweep]\nmetric = [\"rmse\", \"accuracy\"]\n";
    fs::write(root.join("metrics.toml"), sweep).unwrap();
    let output = run(root, "sweep", "metrics.toml");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains(
            "Error: cell-001-seed-0 has failed: exit status: 1: Error: the metric rmse is not defined"
        ),
        "{said}"
    );
    assert!(said.contains("logs/cell-001-seed-0.log"), "{said}");
    assert_eq!(cells(&output).len(), 3, "{said}");
}

#[test]
fn flags_of_a_sweep_are_checked_before_the_first_run() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    prepare(root);
    for (common, varied, expected) in [
        ("", "lrr = [0.1]", "`kiln train` has no flag --lrr (did you mean `lr`?)"),
        (
            "",
            "lr = [0.1, 100]",
            "runs with lr=100: invalid value '100' for '--lr <LR>': expected a number above 0",
        ),
        ("", "model = [\"gat\", \"graphsage\"]", "tip: a similar value exists: 'sage'"),
        ("row-normalize = true", "standardize = [true]", "runs with standardize=true: the argument"),
        ("", "folds = [5]", "--folds is not supported in a sweep"),
        ("rank = 0", "lr = [0.1]", "--rank is not supported in a sweep: its runs are single processes"),
        (
            "data = \"mutag\"",
            "fanouts = [5, 10]",
            "--fanouts does not apply to training on graphs: remove it",
        ),
        ("lr = 0.1", "", "has no table `sweep`"),
    ] {
        let table = if varied.is_empty() { "" } else { "[sweep]" };
        fs::write(root.join("bad.toml"), format!("{common}\n{table}\n{varied}\n")).unwrap();
        let output = run(root, "sweep", "bad.toml");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{varied}: {said}");
        assert!(said.contains("bad.toml") && said.contains(expected), "{varied}: {said}");
    }
    assert!(!root.join("runs").exists());
    fs::write(root.join("sweep.toml"), "[sweep]\nlr = [0.1]\n").unwrap();
    let output = run(root, "sweep", "sweep.toml --memory 1MiB --memory-per-run 2MiB --out limited");
    assert!(text(&output).contains("--memory-per-run 2097152 is above the limit"), "{}", text(&output));
    assert!(!root.join("limited").exists());
    let output = run(root, "sweep", "sweep.toml --out papers");
    assert!(text(&output).contains("papers is not empty and has no sweep"), "{}", text(&output));
}
