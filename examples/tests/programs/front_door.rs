//! The programs on the crate `kiln` alone: what the README shows is what runs, it learns what `node_classification` learns,
//! and ranks learn the same however they were started.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kiln::prelude::*;
use kiln_data::synthetic;
use kiln_testkit::free_port;

const FIRST_PROGRAM: &str = include_str!("../../src/bin/own_edge_list.rs");
const RANKS_PROGRAM: &str = include_str!("../../src/bin/ranks.rs");

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
    for readme in [include_str!("../../../README.md"), include_str!("../../../crates/kiln/README.md")] {
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

/// The weights' hash of `node_classification` with these flags.
fn hash_of_node_classification(out: &Path, flags: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node_classification"));
    let output = command.args(flags.split_whitespace()).arg("--out").arg(out).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&summary).unwrap()["weights_hash"].as_str().unwrap().to_owned()
}

const FLAGS: &str =
    "--data fake:1000 --epochs 3 --hidden 32 --batch-size 64 --layers 2 --fanouts 5,5 --lr 0.003 --seed 3";

fn fake() -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 1000, seed: 3, ..Default::default() };
    synthetic::fake(config).unwrap()
}

fn fit<C: ModelConfig>(loader: &NeighborLoader, model: C, out: &Path) -> TrainedModel<C::Model> {
    let mut trainer = Trainer::new(model, AdamConfig::new(3e-3)).seed(3).device("cpu").unwrap();
    trainer.fit(loader, FitConfig::epochs(3).out(out).quiet()).unwrap()
}

#[test]
fn learns_what_node_classification_learns() {
    let (folder, data) = (tempfile::tempdir().unwrap(), fake());
    let loader = NeighborLoader::new(&data, [5, 5]).batch_size(64);
    let sage = fit(&loader, SageConfig::for_data(&data).layers(2).hidden(32), &folder.path().join("sage"));
    let expected = hash_of_node_classification(&folder.path().join("program-sage"), FLAGS);
    assert_eq!(sage.best.weights_hash, expected);

    let loader = loader.gcn_norm().unwrap();
    let gcn = fit(&loader, GcnConfig::for_data(&data).layers(2).hidden(32), &folder.path().join("gcn"));
    let flags = format!("{FLAGS} --model gcn");
    let expected = hash_of_node_classification(&folder.path().join("program-gcn"), &flags);
    assert_eq!(gcn.best.weights_hash, expected);
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
    kiln_data::format::write(&fake(), &set).unwrap();

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
        println!("kiln-skip: other: ranks under mpirun: there is no mpirun, or no feature `mpi`");
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
