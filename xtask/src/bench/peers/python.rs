//! The peer: its Python, its data, and its scripts in `benches/peers`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use kiln_data::{format, synthetic};
use serde::Deserialize;

use super::Options;
use super::rows::Row;
use crate::workspace;

/// A data set that both sides read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Set {
    Arxiv,
    Products,
    Imdb,
    /// Random edges, made by our own generator and written for the peer.
    Fake,
}

/// A script of the peer's and the result of it that is read.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) set: Set,
    /// In `benches/peers`.
    pub(super) file: &'static str,
    pub(super) args: &'static [&'static str],
    /// Which of the results that it prints.
    pub(super) what: &'static str,
}

/// Where the peer and the data are.
#[derive(Debug)]
pub(super) struct Peers {
    python: PathBuf,
    scripts: PathBuf,
    data: BTreeMap<Set, PathBuf>,
    /// Whether our benches copy the sets into memory.
    pub(super) in_memory: bool,
}

/// What scripts printed in one round, by command line: one run gives several results.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<String, BTreeMap<String, f64>>);

/// A line that a script prints.
#[derive(Debug, Deserialize)]
struct Line {
    what: String,
    value: f64,
}

impl Set {
    /// The name of its folder, and in a bench's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arxiv => "arxiv-like",
            Self::Products => "products-like",
            Self::Imdb => "imdb-like",
            Self::Fake => "fake",
        }
    }

    /// What the peer's generator calls it.
    fn generated(self) -> &'static str {
        self.name().trim_end_matches("-like")
    }
}

impl Peers {
    /// Finds or makes what these rows need: below `target/peers`, where it is kept for the next run.
    pub(super) fn prepare(options: &Options, rows: &[&Row]) -> Result<Self> {
        let root = workspace::root()?;
        let (scripts, kept) = (root.join("benches").join("peers"), root.join("target").join("peers"));
        let python = match &options.python {
            Some(python) => python.clone(),
            None => environment(&kept.join("venv"), &scripts)?,
        };
        let mut peers = Self { python, scripts, data: BTreeMap::new(), in_memory: options.in_memory };
        let sets: BTreeSet<Set> = rows.iter().map(|row| row.ours.set()).collect();
        for set in sets {
            let given = options.data.iter().find(|folder| folder.ends_with(set.name()));
            let folder = match given {
                Some(folder) => folder.clone(),
                None => peers.make(set, &kept.join("data"))?,
            };
            peers.data.insert(set, folder);
        }
        Ok(peers)
    }

    /// Makes a set in a folder, unless it is there.
    fn make(&self, set: Set, data: &Path) -> Result<PathBuf> {
        let folder = data.join(set.name());
        if folder.exists() {
            return Ok(folder);
        }
        println!("making {}", folder.display());
        fs::create_dir_all(data).with_context(|| format!("{} cannot be made", data.display()))?;
        if set == Set::Fake {
            // As `kiln_benches::fake` makes it.
            let config = synthetic::FakeConfig { avg_num_nodes: 100_000, ..Default::default() };
            format::write(&synthetic::fake(config)?, &folder)?;
        } else {
            // Made under another name: a set that was not made to its end is not taken for one.
            let unfinished = data.join("unfinished");
            let script = self.scripts.join("generate.py");
            workspace::run(Command::new(&self.python).arg(script).arg(&unfinished).arg(set.generated()))?;
            let made = unfinished.join(set.name());
            fs::rename(&made, &folder).with_context(|| format!("{} cannot be renamed", made.display()))?;
        }
        Ok(folder)
    }

    /// What `KILN_BENCH_DATA` is to be for a set: its folder, or the name of one that the benches make.
    pub(super) fn bench_data(&self, set: Set) -> PathBuf {
        match set {
            Set::Fake => set.name().into(),
            _ => self.data.get(&set).cloned().unwrap_or_default(),
        }
    }

    /// The median of one result of a script, which is run unless it was in this round.
    pub(super) fn value(&self, script: &Script, said: &mut Said) -> Result<f64> {
        let Script { set, file, args, what } = script;
        let key = format!("{file} {set:?} {}", args.join(" "));
        if !said.0.contains_key(&key) {
            let mut command = Command::new(&self.python);
            command.arg(self.scripts.join(file)).arg(self.data.get(set).context("a set is made before")?);
            command.args(*args).env("PYTHONDONTWRITEBYTECODE", "1");
            let text = workspace::stdout_of(&mut command)?;
            said.0.insert(key.clone(), parse(&text).with_context(|| format!("reading what {file} printed"))?);
        }
        let results = said.0.get(&key).into_iter().flatten();
        let found = results.filter(|(name, _)| name == what).map(|(_, value)| *value).next();
        found.with_context(|| format!("{file} printed no {what}"))
    }
}

/// The results among a script's lines; libraries print others.
fn parse(text: &str) -> Result<BTreeMap<String, f64>> {
    let mut results = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let Line { what, value } =
            serde_json::from_str(line).with_context(|| format!("no result: {line}"))?;
        results.insert(what, value);
    }
    Ok(results)
}

/// A virtual environment with the packages of `requirements.txt`, made unless it is there.
fn environment(folder: &Path, scripts: &Path) -> Result<PathBuf> {
    let python = folder.join("bin").join("python");
    // Written last, so that an environment that was given up half way is made anew.
    let is_whole = folder.join("installed");
    if !is_whole.exists() {
        println!("making {}, which fetches 2 GB of packages", folder.display());
        workspace::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let install = ["-m", "pip", "install", "--quiet", "--requirement"];
        workspace::run(Command::new(&python).args(install).arg(scripts.join("requirements.txt")))?;
        fs::write(&is_whole, "").with_context(|| format!("{} cannot be written", is_whole.display()))?;
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn results_are_read_among_other_lines() {
        let text = "a warning\n{\"what\": \"edges\", \"value\": 2.5, \"min\": 1, \"max\": 3, \"unit\": \"edges/s\"}\n";
        assert_eq!(parse(text).unwrap(), BTreeMap::from([("edges".to_owned(), 2.5)]));
        assert!(parse("{\"what\": 1}").is_err());
    }

    #[test]
    fn every_script_of_a_row_is_there_and_names_its_result() {
        let scripts = workspace::root().unwrap().join("benches").join("peers");
        for Script { file, what, args, .. } in ROWS.iter().flat_map(|row| row.peers) {
            let text = fs::read_to_string(scripts.join(file)).unwrap();
            assert!(text.contains(&format!("report(\"{what}\"")), "{file} reports no {what}");
            let flags = args.iter().filter_map(|arg| arg.strip_prefix("--"));
            for flag in flags.filter(|&flag| flag != "threads") {
                assert!(text.contains(&format!("{flag}=")), "{file} has no --{flag}");
            }
        }
    }

    #[test]
    fn a_result_is_read_once_a_round() {
        let folder = tempfile::tempdir().unwrap();
        let data = BTreeMap::from([(Set::Imdb, folder.path().to_owned())]);
        // A shell in the place of Python: it prints its run's results and leaves a mark.
        let mark = folder.path().join("mark");
        fs::write(
            folder.path().join("a.sh"),
            format!("echo run >> {}\necho '{{\"what\": \"a\", \"value\": 2}}'\n", mark.display()),
        )
        .unwrap();
        let peers = Peers { python: "sh".into(), scripts: folder.path().to_owned(), data, in_memory: false };
        let script = Script { set: Set::Imdb, file: "a.sh", args: &[], what: "a" };
        let mut said = Said::default();
        assert_eq!(peers.value(&script, &mut said).unwrap(), 2.0);
        let other = Script { what: "b", ..script };
        let error = peers.value(&other, &mut said).unwrap_err().to_string();
        assert_eq!(error, "a.sh printed no b");
        assert_eq!(fs::read_to_string(mark).unwrap(), "run\n");
    }
}
