//! The commands of the book in `docs/book`, run in the order of its pages in one folder.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kiln_testkit::{BookPage, book_pages};

/// Returns the commands after `$ ` in the console blocks of a page, each with the name of the page.
fn commands(page: &BookPage) -> Vec<(&str, &str)> {
    let lines = page.blocks("console").into_iter().flat_map(str::lines);
    lines.filter_map(|line| Some((page.path.as_str(), line.strip_prefix("$ ")?))).collect()
}

/// Returns the first block of code in the book that satisfies a condition.
fn block(language: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let pages = book_pages();
    let mut blocks = pages.iter().flat_map(|page| page.blocks(language));
    blocks.find(|block| is_wanted(block)).unwrap().to_owned()
}

/// Returns the spec of a set in the book.
fn spec(name: &str) -> String {
    block("yaml", |text| text.starts_with(&format!("name: {name}\n")))
}

/// Copies the tables of the book to a folder, and writes the specs and the sweep of its pages.
fn write_tables(folder: &Path) {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/data"), folder);
    for name in ["citations", "shop", "bank"] {
        std::fs::write(folder.join(format!("{name}.yaml")), spec(name)).unwrap();
    }
    std::fs::write(folder.join("new/shop.yaml"), spec("shop")).unwrap();
    let sweep = block("toml", |text| text.contains("[sweep]"));
    std::fs::write(folder.join("sweep.toml"), sweep).unwrap();
    #[cfg(feature = "tables")]
    crate::fraud::Payments::generate(2_000).write(&folder.join("payments.parquet"));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Returns the arguments of `kiln` in a command. Replaces a launcher's processes by the same number of thread ranks,
/// because other tests cover the launchers.
fn arguments(command: &str) -> Vec<String> {
    // Every second part is quoted, and is one word.
    let parts = command.split('\'').enumerate();
    let words: Vec<&str> = parts
        .flat_map(|(part, text)| match part % 2 {
            0 => text.split_whitespace().collect(),
            _ => vec![text],
        })
        .collect();
    let at = words
        .iter()
        .position(|word| *word == "kiln")
        .unwrap_or_else(|| panic!("`{command}` should run kiln"));
    let (launcher, args) = (&words[..at], &words[at + 1..]);
    let n_ranks = launcher.iter().enumerate().find_map(|(i, word)| match word.strip_prefix("-n") {
        Some("") => launcher.get(i + 1).copied(),
        n => n,
    });
    let ranks = n_ranks.into_iter().flat_map(|n| ["--ranks", n]);
    args.iter().copied().chain(ranks).map(str::to_owned).collect()
}

#[test]
fn commands_of_the_book_succeed() {
    let folder = tempfile::tempdir().unwrap();
    write_tables(folder.path());
    let pages = book_pages();
    let commands = pages.iter().flat_map(commands);
    let (install, kiln): (Vec<_>, Vec<_>) = commands.partition(|(_, command)| command.starts_with("cargo "));
    let install: BTreeSet<&str> = install.into_iter().map(|(_, command)| command).collect();
    assert_eq!(
        install.into_iter().collect::<Vec<_>>(),
        [
            "cargo install --path crates/cli",
            "cargo install --path crates/cli --features cuda,kernel-cache",
            "cargo install --path crates/cli --features mpi"
        ]
    );
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).ends_with("crates/cli"));
    assert!(10 <= kiln.len(), "{kiln:?}");
    for (page, command) in kiln {
        let args = arguments(command);
        let output =
            Command::new(env!("CARGO_BIN_EXE_kiln")).args(&args).current_dir(&folder).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: {command}: {printed}");
    }
}

/// Checks the flags only, because the launchers of the scripts are not available in tests.
#[test]
fn launch_scripts_have_valid_flags() {
    let kubernetes = include_str!("../../../../examples/launch/kubernetes.yaml");
    let command = kubernetes.split("command: [").nth(1).unwrap().split(']').next().unwrap();
    let words: Vec<&str> = command.split('"').skip(1).step_by(2).collect();
    let of_kubernetes = words.join(" ").replace("/usr/local/bin/", "");
    let torchrun = include_str!("../../../../examples/launch/torchrun.sh");
    let of_torchrun = torchrun.lines().find_map(|line| line.strip_prefix("#       target/release/")).unwrap();
    for command in [&of_kubernetes, of_torchrun] {
        // The last flag is invalid, and is reported only if all other flags are valid.
        let mut args = arguments(command);
        args.push("--no-such-flag".to_owned());
        let output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(&args).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("unexpected argument '--no-such-flag'"), "{command}: {printed}");
    }
}

#[test]
fn launcher_commands_of_the_book_run_as_thread_ranks() {
    assert_eq!(arguments("mpirun -n 2 kiln train --data a"), ["train", "--data", "a", "--ranks", "2"]);
    assert_eq!(arguments("srun -N2 -n4 kiln serve"), ["serve", "--ranks", "4"]);
    assert_eq!(arguments("kiln help train"), ["help", "train"]);
    assert_eq!(arguments("kiln train --a 'b c' 'd' --e"), ["train", "--a", "b c", "d", "--e"]);
}
