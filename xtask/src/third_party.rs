//! `THIRD-PARTY.md`: the packages that the programs contain. `cargo xtask third-party` writes it, and `cargo xtask
//! check` verifies that it matches the lock file.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::workspace;

/// The path of the file, relative to the workspace's folder.
const PATH: &str = "THIRD-PARTY.md";

const HEAD: &str = "# Third-party code

The programs contain kiln's own code and these packages: the normal dependencies of the programs' packages for TARGETS. \
Procedural macros, build scripts and dependencies of tests are not part of the programs. `cargo xtask third-party` \
writes this file, and `cargo xtask check` verifies it. [`deny.toml`](deny.toml) lists the allowed licences.

The programs also contain code that is not in the table: Rust's standard library (MIT OR Apache-2.0); LLVM (Apache-2.0 \
WITH LLVM-exception), which the build of `llvm-sys` links with the features `cuda` and `cube-cpu`; METIS and GKlib \
(Apache-2.0), whose C sources `metis-sys` compiles with the feature `metis`; and the built-in data sets \
([`crates/data/datasets`](crates/data/datasets)). The programs do not contain MPI, NCCL and the CUDA driver, which are \
libraries of the machine.
";

/// The path of the rules of cargo-deny, relative to the workspace's folder.
const RULES_PATH: &str = "deny.toml";

/// What the list needs of the rules of cargo-deny.
#[derive(Debug, Deserialize)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
}

#[derive(Debug, Deserialize)]
struct Graph {
    /// The target triples for which the programs are built.
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    /// The licences of single packages, which replace those in their manifests.
    clarify: Vec<Clarification>,
}

#[derive(Debug, Deserialize)]
struct Clarification {
    #[serde(rename = "crate")]
    name: String,
    expression: String,
}

impl Rules {
    fn load() -> Result<Self> {
        let path = workspace::root()?.join(RULES_PATH);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {RULES_PATH}"))?;
        toml::from_str(&text).with_context(|| format!("{RULES_PATH} is invalid"))
    }

    /// Returns the licence of a package: its clarification if there is one, otherwise the licence in its manifest.
    fn license<'a>(&'a self, name: &str, stated: &'a str) -> Option<&'a str> {
        let clarified = self.licenses.clarify.iter().find(|clarified| clarified.name == name);
        let license = clarified.map_or(stated, |clarified| &clarified.expression);
        Some(license).filter(|license| !license.is_empty())
    }
}

/// A package, as a row of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    name: String,
    version: String,
    license: String,
    repository: String,
}

/// Writes `THIRD-PARTY.md`.
pub(crate) fn run() -> Result<()> {
    let path = workspace::root()?.join(PATH);
    std::fs::write(&path, text()?).with_context(|| format!("cannot write {PATH}"))?;
    println!("written: {PATH}");
    Ok(())
}

/// Returns a message with the first line of `THIRD-PARTY.md` that is out of date, if there is one.
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
        "Additional packages with the other features (`cuda`, `cube-cpu`, `wgpu`, `nccl`, `mpi`, `metis`)",
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

/// Returns the external packages that a package contains when it is built for the targets. Unlike `cargo metadata`,
/// `cargo tree` separates the features of a program from those of its build scripts.
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

/// Parses lines of the form `name v1.2.3|licence|repository|`. Lines with a folder after the version are skipped,
/// because their packages belong to the workspace.
fn rows(rules: &Rules, lines: &str) -> Result<BTreeSet<Row>> {
    let mut rows = BTreeSet::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let bad = || format!("`cargo tree` printed an unexpected line: {line}");
        let [package, license, repository, _] =
            line.split('|').collect::<Vec<_>>().try_into().ok().with_context(bad)?;
        let (name, version) = package.split_once(" v").with_context(bad)?;
        if version.contains(" (") {
            continue;
        }
        let license = rules.license(name, license).with_context(|| format!("{name} states no licence"))?;
        let [name, version, license, repository] = [name, version, license, repository].map(str::to_owned);
        rows.insert(Row { name, version, license, repository });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_external_packages_once_with_licence_and_repository() {
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
    fn reports_the_first_line_that_is_out_of_date() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let said = |found: &str| difference("a\nb\n", found).unwrap();
        assert!(said("a\nc\n").contains("expected \"b\", found \"c\": run `cargo xtask third-party`"));
        assert!(said("a\n").contains("expected \"b\", found \"the end\""));
        assert!(said("a\nb\nc\n").contains("expected \"the end\", found \"c\""));
    }

    #[test]
    fn third_party_file_matches_the_lock_file() {
        assert_eq!(problems().unwrap(), [""; 0]);
    }
}
