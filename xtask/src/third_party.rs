//! `THIRD-PARTY.md`: the packages that the programs contain, written by `cargo xtask third-party` and compared by
//! `cargo xtask check`, so that it is that of the lock file.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::deny::Rules;
use crate::workspace;

/// The file.
const PATH: &str = "THIRD-PARTY.md";

const HEAD: &str = "# Third-party code

What the programs contain besides kiln's own code: the normal dependencies of their packages for TARGETS. \
Procedural macros, build scripts and what only tests use are in no program. `cargo xtask third-party` writes this \
file, `cargo xtask check` compares it; [`deny.toml`](deny.toml) has the licences that are allowed.

Not packages, and in the programs too: Rust's standard library (MIT OR Apache-2.0); with the features `cuda` and \
`cube-cpu` LLVM (Apache-2.0 WITH LLVM-exception), which the build of `llvm-sys` links; with the feature `metis` METIS \
and GKlib (Apache-2.0), whose C sources `metis-sys` brings along; and the built-in data sets \
([`crates/data/datasets`](crates/data/datasets)). MPI, NCCL and the CUDA driver are libraries of the machine.
";

/// A package, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    name: String,
    version: String,
    license: String,
    repository: String,
}

/// Writes the file.
pub(crate) fn run() -> Result<()> {
    let path = workspace::root()?.join(PATH);
    std::fs::write(&path, text()?).with_context(|| format!("{PATH} cannot be written"))?;
    println!("written: {PATH}");
    Ok(())
}

/// How the file differs from what would be written, if it does.
pub(crate) fn problems() -> Result<Vec<String>> {
    let found = std::fs::read_to_string(workspace::root()?.join(PATH)).unwrap_or_default();
    Ok(difference(&text()?, &found).into_iter().collect())
}

fn difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let mut pairs = (0..).map(|line_idx| (expected.lines().nth(line_idx), found.lines().nth(line_idx)));
    let (expected, found) = pairs.find(|(expected, found)| expected != found || expected.is_none())?;
    let [expected, found] = [expected, found].map(|line| line.unwrap_or("the end"));
    Some(format!("{PATH}: expected {expected:?}, found {found:?}: run `cargo xtask third-party`"))
}

fn text() -> Result<String> {
    let rules = Rules::load()?;
    let targets = &rules.graph.targets;
    let default = tree(&rules, targets, "kiln-cli", &[])?;
    let all = tree(&rules, targets, "kiln-cli", &["--all-features"])?;
    let optional: BTreeSet<Row> = all.difference(&default).cloned().collect();
    let head = HEAD.replace("TARGETS", &targets.join(", "));
    let default = table("Programs with the default features", &default);
    let optional = table(
        "Besides, with the other features (`cuda`, `cube-cpu`, `wgpu`, `nccl`, `mpi`, `metis`)",
        &optional,
    );
    Ok(format!("{head}{default}{optional}"))
}

fn table(title: &str, rows: &BTreeSet<Row>) -> String {
    let mut text =
        format!("\n## {title}\n\n| package | version | licence | repository |\n|---|---|---|---|\n");
    for Row { name, version, license, repository } in rows {
        text += &format!("| {name} | {version} | {license} | {repository} |\n");
    }
    text
}

/// What a package is built of for the targets, without the workspace's own. `cargo tree` tells the features of a program
/// from those of its build; `cargo metadata` does not.
fn tree(rules: &Rules, targets: &[String], package: &str, features: &[&str]) -> Result<BTreeSet<Row>> {
    let mut cargo = workspace::cargo()?;
    cargo.args([
        "tree",
        "--locked",
        "--package",
        package,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
    ]);
    cargo.args(["--format", "{p}|{l}|{r}|"]).args(features);
    for target in targets {
        cargo.args(["--target", target]);
    }
    rows(rules, &workspace::stdout_of(&mut cargo)?)
}

/// The packages of `name v1.2.3|licence|repository|` lines, of which those with a folder are ours.
fn rows(rules: &Rules, lines: &str) -> Result<BTreeSet<Row>> {
    let mut rows = BTreeSet::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let bad = || format!("`cargo tree` printed something unexpected: {line}");
        let [package, license, repository, _] =
            line.split('|').collect::<Vec<_>>().try_into().ok().with_context(bad)?;
        let (name, version) = package.split_once(" v").with_context(bad)?;
        if version.contains(" (") {
            continue;
        }
        let license = rules.licenses.stated(name, Some(license).filter(|license| !license.is_empty()));
        let license = license.with_context(|| format!("{name} states no licence"))?;
        let [name, version, license, repository] = [name, version, license, repository].map(str::to_owned);
        rows.insert(Row { name, version, license, repository });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_others_are_listed_once_with_licence_and_repository() {
        let rules = Rules::load().unwrap();
        let lines = "kiln-examples v0.1.0 (/a/examples)|MIT OR Apache-2.0||\n\
            b v1.0.0|MIT|https://example.org/b|\na v0.2.1+c|ISC/MIT||\n\nb v1.0.0|MIT|https://example.org/b| (*)\n";
        let rows = rows(&rules, lines).unwrap();
        let expected = "\n## A\n\n| package | version | licence | repository |\n|---|---|---|---|\n\
            | a | 0.2.1+c | ISC/MIT |  |\n| b | 1.0.0 | MIT | https://example.org/b |\n";
        assert_eq!(table("A", &rows), expected);
    }

    #[test]
    fn rejects_packages_without_a_licence() {
        let rules = Rules::load().unwrap();
        assert_eq!(rows(&rules, "a v0.2.1|||\n").unwrap_err().to_string(), "a states no licence");
        assert!(rows(&rules, "a v0.2.1\n").is_err());
    }

    #[test]
    fn a_stale_file_is_found_with_the_line_that_differs() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let said = |found: &str| difference("a\nb\n", found).unwrap();
        assert!(said("a\nc\n").contains("expected \"b\", found \"c\": run `cargo xtask third-party`"));
        assert!(said("a\n").contains("expected \"b\", found \"the end\""));
        assert!(said("a\nb\nc\n").contains("expected \"the end\", found \"c\""));
    }

    #[test]
    fn the_file_is_that_of_the_lock_file() {
        assert_eq!(problems().unwrap(), [""; 0]);
    }
}
