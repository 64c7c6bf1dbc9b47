//! The commands of the book in `docs/book`, run in the order of its pages in one folder.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kiln::data::{format, synthetic};
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

/// Writes the first spec of the book and its tables: 60 papers, each with two citations.
fn write_citations(folder: &Path) {
    let mut papers = "id,year,venue,topic,split\n".to_owned();
    let mut citations = "citing,cited\n".to_owned();
    for paper in 0..60 {
        let topic = ["graphs", "vision"][paper % 2];
        let part = ["train", "val", "test"][paper / 2 % 3];
        papers += &format!("p{paper},{},{},{topic},{part}\n", 1990 + paper % 30, ["ICML", ""][paper % 2]);
        (1..3).for_each(|other| citations += &format!("p{paper},p{}\n", (paper + 2 * other) % 60));
    }
    std::fs::write(folder.join("citations.yaml"), spec("citations")).unwrap();
    std::fs::write(folder.join("papers.csv"), papers).unwrap();
    std::fs::write(folder.join("citations.csv"), citations).unwrap();
}

/// Writes the second spec of the book and its tables: 60 users and some items, each with five ratings.
fn write_shop(folder: &Path, n_items: usize) {
    std::fs::write(folder.join("shop.yaml"), spec("shop")).unwrap();
    let mut tables = [
        ("users.csv", "id,age,plan\n".to_owned()),
        ("items.csv", "id,title,price,kind\n".to_owned()),
        ("ratings.csv", "user,item\n".to_owned()),
    ];
    for user in 0..60 {
        tables[0].1 += &format!("u{user},{},{}\n", 20 + user * 7 % 50, ["free", "paid"][user % 2]);
    }
    for item in 0..n_items {
        tables[1].1 += &format!("i{item},thing {item},{}.5,{}\n", item % 13, ["indoor", "outdoor"][item % 2]);
        (0..5).for_each(|rating| tables[2].1 += &format!("u{},i{item}\n", (item * 7 + rating * 11) % 60));
    }
    tables.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
}

/// Writes the spec of payments and its table: 300 payments between 40 accounts.
fn write_bank(folder: &Path) {
    let mut payments = "from,to,amount,fraud\n".to_owned();
    for payment in 0..300 {
        let fraud = ["no", "no", "no", "yes"][payment % 4];
        payments +=
            &format!("a{},a{},{}.5,{fraud}\n", payment % 37, (payment * 7 + 3) % 40, payment % 4 * 10);
    }
    std::fs::write(folder.join("bank.yaml"), spec("bank")).unwrap();
    std::fs::write(folder.join("payments.csv"), payments).unwrap();
    std::fs::write(folder.join("payments.txt"), "a0\ta3\na1\ta10\n").unwrap();
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
    let config = synthetic::FakeConfig { avg_num_nodes: 300, seed: 3, ..Default::default() };
    format::write(&synthetic::fake(config).unwrap(), folder.path().join("papers")).unwrap();
    write_citations(folder.path());
    write_shop(folder.path(), 90);
    write_bank(folder.path());
    #[cfg(feature = "tables")]
    crate::fraud::Payments::generate(2_000).write(&folder.path().join("payments.parquet"));
    let sweep = block("toml", |text| text.contains("[sweep]"));
    std::fs::write(folder.path().join("sweep.toml"), sweep).unwrap();
    std::fs::create_dir(folder.path().join("new")).unwrap();
    write_shop(&folder.path().join("new"), 92);
    std::fs::write(folder.path().join("keys.txt"), "i3\ni0\n").unwrap();
    std::fs::write(folder.path().join("users.txt"), "u1\nu0\n").unwrap();
    std::fs::write(folder.path().join("pairs.csv"), "0,1\n2,3\n").unwrap();
    std::fs::write(folder.path().join("pair-keys.txt"), "u1\ti3\nu0\ti0\n").unwrap();
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
