//! The examples: what the README shows is what runs, an example learns what `kiln train` learns, and ranks learn the same
//! however they were started.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kiln::data::synthetic;
use kiln::prelude::*;
use kiln_testkit::free_port;

const FIRST_PROGRAM: &str = include_str!("../src/bin/own_edge_list.rs");
const RANKS_PROGRAM: &str = include_str!("../src/bin/ranks.rs");

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The program without its header.
fn body(program: &str) -> &str {
    &program[program.find("use kiln").expect("a program should import kiln")..]
}

#[test]
fn readme_shows_the_first_program() {
    let (first, ranks) = (body(FIRST_PROGRAM), body(RANKS_PROGRAM));
    for readme in [include_str!("../../README.md"), include_str!("../../crates/kiln/README.md")] {
        assert!(readme.contains(first), "README.md and own_edge_list.rs differ");
    }
    assert!(first.lines().count() <= 30 && ranks.lines().count() <= 40);
    for program in [first, ranks] {
        let imports: Vec<&str> = program.lines().filter(|line| line.starts_with("use ")).collect();
        assert_eq!(imports, ["use kiln::prelude::*;"]);
    }
}

#[test]
fn first_program_trains_and_keeps_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_own_edge_list")).current_dir(&folder).output().unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    let last = printed.lines().last().unwrap();
    let accuracy: f64 = last.strip_prefix("test accuracy ").unwrap().parse().unwrap();
    assert!(accuracy > 0.95, "{printed}");
    assert!(printed.contains("epoch  10/10  loss "), "{printed}");
    assert!(folder.path().join("runs/mine/best.safetensors").exists());
}

fn fake() -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 1000, seed: 3, ..Default::default() };
    synthetic::fake(config).unwrap()
}

/// The hash of the weights that a program leaves in a folder.
fn weights_hash(program: &Path, args: &[&str], out: &Path) -> String {
    let output = Command::new(program).args(args).arg("--out").arg(out).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&summary).unwrap()["weights_hash"].as_str().unwrap().to_owned()
}

/// The example and `kiln train` with the same flags, on one rank and on two.
#[test]
fn node_classification_learns_what_kiln_train_learns() {
    let example = Path::new(env!("CARGO_BIN_EXE_node_classification"));
    // The program of another package, which lies beside the examples where the whole workspace was built.
    let kiln = example.with_file_name("kiln");
    if !kiln.exists() {
        skip("kiln-skip: other: the weights of `kiln train`: kiln-cli was not built");
        return;
    }
    let (folder, data) = (tempfile::tempdir().unwrap(), fake());
    let set = folder.path().join("set");
    kiln::data::format::write(&data, &set).unwrap();
    let set = set.to_str().unwrap();
    for ranks in ["1", "2"] {
        let flags = ["--data", set, "--epochs", "2", "--ranks", ranks];
        let of_example = weights_hash(example, &flags, &folder.path().join(format!("example-{ranks}")));
        let flags = [&["train", "--standardize", "true"], &flags[..]].concat();
        let of_kiln = weights_hash(&kiln, &flags, &folder.path().join(format!("kiln-{ranks}")));
        assert_eq!(of_example, of_kiln, "{ranks} ranks");
    }
}

#[test]
fn examples_train_to_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    for (program, args) in [
        (env!("CARGO_BIN_EXE_graph_classification"), &["--epochs", "1", "--ranks", "2"][..]),
        (env!("CARGO_BIN_EXE_graph_classification"), &["--epochs", "1", "--paper"]),
        (env!("CARGO_BIN_EXE_cross_validation"), &["--epochs", "1", "--folds", "3", "--ranks", "2"]),
    ] {
        let output = Command::new(program).args(args).current_dir(&folder).output().unwrap();
        let printed = text(&output);
        assert!(output.status.success(), "{program} {args:?}: {printed}");
        let line = if args.contains(&"--folds") { "inner validation  " } else { "test accuracy   " };
        assert_eq!(printed.matches(line).count(), 1, "{program}: {printed}");
    }
}

#[cfg(feature = "grpc")]
#[test]
fn examples_of_processes_train_on_threads() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(&folder).output().unwrap();
        let printed = text(&output);
        assert!(output.status.success(), "{program} {args:?}: {printed}");
        assert_eq!(printed.matches("test accuracy   ").count(), 1, "{program}: {printed}");
        printed
    };
    let multi_node = env!("CARGO_BIN_EXE_multi_node");
    let args = ["--ranks", "2", "--nodes", "1000", "--epochs", "1", "--continue", "run"];
    run(multi_node, &args);
    // A finished run has nothing left to do but the test.
    run(multi_node, &args);

    let (data, parts) = (fake(), folder.path().join("parts"));
    let owners: Vec<u16> = (0..data.graph.n_nodes() as u16).map(|node| node % 2).collect();
    let book = kiln::partition::PartitionBook::from_parts(&owners, 2).unwrap();
    let (hash, method) = (data.hash().unwrap(), kiln::partition::Method::Random);
    let meta = kiln::partition::PartitionMeta { hash, method, n_cut_edges: 0 };
    kiln::partition::write_parts(&data, &book, &meta, None, &parts).unwrap();
    let args = ["--ranks", "2", "--epochs", "1", "--parts", parts.to_str().unwrap()];
    let printed = run(env!("CARGO_BIN_EXE_distributed_sage"), &args);
    assert!(printed.contains("worker mode, 2 parts"), "{printed}");
}

/// The weights of the run that the program `ranks` leaves in a folder.
fn weights(folder: &Path) -> Vec<u8> {
    let runs = fs::read_dir(folder.join("runs")).unwrap();
    let runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(runs.len(), 1, "only rank 0 writes files: {runs:?}");
    fs::read(runs[0].join("best.safetensors")).unwrap()
}

fn ranks_program(folder: &Path, set: &Path) -> Command {
    fs::create_dir_all(folder).unwrap();
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_ranks")]).arg(set).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn ranks_learn_the_same_as_threads_and_as_processes() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set");
    kiln::data::format::write(&fake(), &set).unwrap();

    let of_threads = folder.path().join("threads");
    let output = ranks_program(&of_threads, &set).output().unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.matches("test accuracy").count(), 1, "only rank 0 prints: {printed}");

    for (name, outputs) in
        [("torchrun", by_variables(folder.path(), &set)), ("mpirun", by_mpirun(folder.path(), &set))]
    {
        let Some(outputs) = outputs else { continue };
        assert!(outputs.iter().all(|output| output.status.success()), "{name}: {outputs:?}");
        let of_processes: String = outputs.iter().map(text).collect();
        let tested = |printed: &str| {
            printed.lines().filter(|line| line.starts_with("test")).collect::<Vec<_>>().join("")
        };
        assert_eq!(tested(&of_processes), tested(&printed), "{name}");
        assert_eq!(weights(&folder.path().join(name)), weights(&of_threads), "{name}");
    }
}

/// As processes that torchrun starts; the second one comes first. In a build with MPI, they would look for it.
fn by_variables(folder: &Path, set: &Path) -> Option<Vec<Output>> {
    if cfg!(any(feature = "mpi", feature = "nccl")) {
        return None;
    }
    let (folder, port) = (folder.join("torchrun"), free_port());
    let start = |rank: usize| {
        let mut command = ranks_program(&folder, set);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("KILN_JOB_TOKEN", "a-word-of-this-test").spawn().unwrap()
    };
    let processes = [1, 0].map(start);
    Some(processes.map(|process| process.wait_with_output().unwrap()).into())
}

/// As processes of Open MPI, where there is one.
fn by_mpirun(folder: &Path, set: &Path) -> Option<Vec<Output>> {
    let found = Command::new("mpirun").arg("--version").output().is_ok_and(|output| output.status.success());
    if !cfg!(feature = "mpi") || !found {
        skip("kiln-skip: other: ranks under mpirun: there is no mpirun, or no feature `mpi`");
        return None;
    }
    let folder = folder.join("mpirun");
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("timeout");
    command.args(["240", "mpirun", "--oversubscribe", "-n", "2", env!("CARGO_BIN_EXE_ranks")]).arg(set);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    Some(vec![command.current_dir(folder).output().unwrap()])
}

/// Says what is skipped, past the capture of the test harness.
fn skip(line: &str) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").unwrap();
}
