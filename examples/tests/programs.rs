//! Tests of the examples: the README and the book contain the code of their examples, an example and `kiln train` give
//! identical weights, and the weights do not depend on how ranks are started.

// Helper functions of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod small;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kiln_testkit::{book_pages, free_port};

const README: &str = include_str!("../../README.md");
const SHORT_PROGRAM: &str = include_str!("../src/bin/quickstart.rs");
const FIRST_PROGRAM: &str = include_str!("../src/bin/own_edge_list.rs");
const RANKS_PROGRAM: &str = include_str!("../src/bin/ranks.rs");

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the source of a program without its module docs.
fn body(program: &str) -> &str {
    &program[program.find("use kiln").expect("a program should import kiln")..]
}

#[test]
fn readmes_contain_the_short_programs() {
    let first = body(FIRST_PROGRAM);
    let short = body(SHORT_PROGRAM);
    let ranks = body(RANKS_PROGRAM);
    assert!(README.contains(short), "the README should contain the code of quickstart.rs");
    let of_crate = include_str!("../../crates/kiln/README.md");
    assert!(of_crate.contains(first), "the README of kiln should contain the code of own_edge_list.rs");
    assert!(short.lines().count() <= 15 && first.lines().count() <= 30 && ranks.lines().count() <= 40);
    for program in [short, first, ranks] {
        let imports: Vec<&str> = program.lines().filter(|line| line.starts_with("use ")).collect();
        assert_eq!(imports, ["use kiln::prelude::*;"]);
    }
}

/// The commands of the book run in a test of the program.
#[test]
fn commands_of_the_readme_are_those_of_the_book() {
    let pages = book_pages();
    let book: Vec<&str> = pages.iter().flat_map(|page| page.text.lines()).collect();
    let commands: Vec<&str> = README.lines().filter(|line| line.starts_with("$ kiln ")).collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        assert!(book.contains(&command), "docs/book lacks the README's command {command}");
    }
}

#[test]
fn first_program_trains_and_writes_its_files() {
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

/// Writes the spec of the book and CSV files of a graph with two communities of papers. One of the two columns, which is noisy,
/// shows the community.
fn write_csv_files(folder: &Path, spec: &str) {
    let mut citations = "citing,cited\n".to_owned();
    let mut papers = "id,year,venue,topic,split\n".to_owned();
    let n_papers = 2000;
    for paper in 0..n_papers {
        let topic = ["graphs", "vision"][paper % 2];
        let split = ["train", "train", "val", "test"][paper / 2 % 4];
        let venue = ["", "ICML", "KDD"][paper * 11 % 3];
        let year = 1990 + paper * 37 % 20 + paper % 2 * 10;
        papers += &format!("p{paper},{year},{venue},{topic},{split}\n");
        for other in [2, 8] {
            citations += &format!("p{paper},p{}\n", (paper + other) % n_papers);
        }
    }
    fs::write(folder.join("papers.csv"), papers).unwrap();
    fs::write(folder.join("citations.csv"), citations).unwrap();
    fs::write(folder.join("citations.yaml"), spec).unwrap();
}

#[test]
fn book_contains_the_csv_program_and_it_trains_on_two_ranks() {
    let pages = book_pages();
    let page = pages.iter().find(|page| page.path == "tutorials/tables.md").unwrap();
    let program = include_str!("../src/bin/csv_files.rs");
    assert!(page.text.contains(body(program)), "{} should contain the code of csv_files.rs", page.path);
    let folder = tempfile::tempdir().unwrap();
    write_csv_files(folder.path(), page.blocks("yaml")[0]);
    let run = |out: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_csv_files"));
        command.args(["citations.yaml", out]).current_dir(&folder).output().unwrap()
    };
    let output = run("citations");
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    let accuracy = printed.lines().find_map(|line| line.strip_prefix("test accuracy ")).unwrap();
    assert!(accuracy.parse::<f64>().unwrap() > 0.9, "{printed}");
    assert!(printed.ends_with("p0: graphs\np1: vision\n"), "{printed}");
    let table = folder.path().join("citations.csv");
    fs::write(&table, "citing,cited\np0,p1\np0,stranger\n").unwrap();
    let failed = text(&run("other"));
    assert!(
        failed.contains("citations.csv") && failed.contains("row 2") && failed.contains("stranger"),
        "{failed}"
    );
}

/// Runs a program, and returns the hash of the weights that it has trained.
fn weights_hash(program: &Path, args: &[&str], out: &Path) -> String {
    let output = Command::new(program).args(args).arg("--out").arg(out).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&summary).unwrap()["weights_hash"].as_str().unwrap().to_owned()
}

/// Compares the weights of the example with those of `kiln train` with the same flags, on one rank and on two.
#[test]
fn node_classification_weights_match_kiln_train() {
    let example = Path::new(env!("CARGO_BIN_EXE_node_classification"));
    // `kiln` belongs to another package. Its binary is beside the examples if the whole workspace was built.
    let kiln = example.with_file_name("kiln");
    if !kiln.exists() {
        skip("kiln-skip: other: the weights of `kiln train`: kiln-cli was not built");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = small::write(1000, folder.path());
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
fn examples_print_a_summary() {
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
fn process_examples_train_on_threads() {
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
    // A finished run is not trained again, but its model is tested again.
    run(multi_node, &args);

    let parts = small::write_parts(1000, folder.path());
    let args = ["--ranks", "2", "--epochs", "1", "--parts", parts.to_str().unwrap()];
    let printed = run(env!("CARGO_BIN_EXE_distributed_sage"), &args);
    assert!(printed.contains("worker mode, 2 parts"), "{printed}");
}

/// Runs a program that must succeed, and returns the line with the hash of its weights.
#[cfg(feature = "grpc")]
fn weights_line(program: &str, args: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{program} {args:?}: {printed}");
    let mut lines = printed.lines().filter(|line| line.starts_with("weights  "));
    lines.next().unwrap_or_else(|| panic!("{program}: {printed}")).to_owned()
}

/// A device that is named twice counts as two.
#[cfg(feature = "grpc")]
#[test]
fn ranks_auto_is_one_rank_per_device() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |program: &str, args: &[&str], of_ranks: &[&str]| {
        weights_line(program, &[args, &["--epochs", "1"], of_ranks].concat(), folder.path())
    };
    let (multi_node, args) = (env!("CARGO_BIN_EXE_multi_node"), &["--nodes", "500"][..]);
    let of_two = weights(multi_node, args, &["--ranks", "2"]);
    assert_eq!(weights(multi_node, args, &["--ranks", "auto", "--device", "cpu,cpu"]), of_two);
    let of_one = weights(multi_node, args, &["--ranks", "1"]);
    assert_eq!(weights(multi_node, args, &["--ranks", "auto"]), of_one);
    assert_ne!(of_one, of_two);

    // Of three devices, the ranks use two, because they must share two partitions equally.
    let parts = small::write_parts(500, folder.path());
    let (distributed, args) =
        (env!("CARGO_BIN_EXE_distributed_sage"), &["--parts", parts.to_str().unwrap()][..]);
    let of_two = weights(distributed, args, &["--ranks", "2"]);
    assert_eq!(weights(distributed, args, &["--ranks", "auto", "--device", "cpu,cpu,cpu"]), of_two);
    let output = Command::new(distributed).args(args).args(["--ranks", "auto"]).output().unwrap();
    let printed = text(&output);
    let expected = "1 ranks cannot share 2 partitions equally";
    assert!(!output.status.success() && printed.contains(expected), "{printed}");
}

/// The errors precede those of the data, which does not exist.
#[test]
fn invalid_ranks_and_devices_are_errors_before_data_is_loaded() {
    let no_data = ["--data", "/nowhere"];
    let programs = [
        (env!("CARGO_BIN_EXE_node_classification"), &no_data[..]),
        (env!("CARGO_BIN_EXE_graph_classification"), &no_data),
        (env!("CARGO_BIN_EXE_custom_sampler"), &no_data),
        #[cfg(feature = "grpc")]
        (env!("CARGO_BIN_EXE_multi_node"), &[]),
        #[cfg(feature = "grpc")]
        (env!("CARGO_BIN_EXE_distributed_sage"), &["--parts", "/nowhere"]),
    ];
    let missing = match cfg!(feature = "cuda") {
        true => ("cuda:99", "device `cuda:99` does not exist"),
        false => ("cuda", "device `cuda` needs the feature `cuda`"),
    };
    for (program, args) in programs {
        for (flag, value, expected) in [
            ("--ranks", "0", "expected a whole number from 1 to 1024, or `auto`, got `0`"),
            ("--ranks", "many", "expected a whole number from 1 to 1024, or `auto`, got `many`"),
            ("--device", "nonsense", "unknown device `nonsense`"),
            ("--device", missing.0, missing.1),
        ] {
            let output = Command::new(program).args(args).args([flag, value]).output().unwrap();
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(2), "{program} {flag} {value}: {printed}");
            assert!(printed.contains(expected), "{program} {flag} {value}: {printed}");
        }
    }
}

/// Reads the weights of the only run that the program `ranks` has written in a folder.
fn weights(folder: &Path) -> Vec<u8> {
    let runs = fs::read_dir(folder.join("runs")).unwrap();
    let runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(runs.len(), 1, "only rank 0 should write files: {runs:?}");
    fs::read(runs[0].join("best.safetensors")).unwrap()
}

fn ranks_program(folder: &Path, set: &Path) -> Command {
    fs::create_dir_all(folder).unwrap();
    let mut command = Command::new("timeout");
    command.args(["600", env!("CARGO_BIN_EXE_ranks")]).arg(set).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn process_ranks_match_thread_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let set = small::write(1000, folder.path());

    let of_threads = folder.path().join("threads");
    let output = ranks_program(&of_threads, &set).output().unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.matches("test accuracy").count(), 1, "only rank 0 should print: {printed}");

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

/// Runs the program `ranks` as two processes with the environment variables of torchrun, and starts rank 1 first.
/// Returns `None` in builds with MPI or NCCL, because the processes would then select MPI or NCCL.
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

/// Runs the program `ranks` as two processes under Open MPI. Returns `None` if the feature `mpi` is not built in or
/// `mpirun` is not installed.
fn by_mpirun(folder: &Path, set: &Path) -> Option<Vec<Output>> {
    if !cfg!(feature = "mpi") {
        skip("kiln-skip: run: ranks under mpirun: this was built without the feature `mpi`");
        return None;
    }
    let found = Command::new("mpirun").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip("kiln-skip: other: ranks under mpirun: there is no mpirun");
        return None;
    }
    let folder = folder.join("mpirun");
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("timeout");
    command.args(["600", "mpirun", "--oversubscribe", "-n", "2", env!("CARGO_BIN_EXE_ranks")]).arg(set);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    Some(vec![command.current_dir(folder).output().unwrap()])
}

/// Prints a line about a skipped test. The test harness would capture the output of `println!`.
fn skip(line: &str) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").unwrap();
}
