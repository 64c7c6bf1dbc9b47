//! The runs of test binaries that have passed. `cargo xtask test` does not repeat a run while nothing has changed that is
//! known to affect its result: the binary, the programs that it may start, the environment, and the files of the repository
//! that it may read. Random cases, installed programs and data outside of the repository are not considered.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};

use serde::{Deserialize, Serialize};

use super::binaries::{Program, Run};
use super::tally::Skip;
use crate::workspace;

/// The name of the run of the documentation's examples.
pub(super) const EXAMPLES: &str = "examples of the documentation";

/// The package whose tests read the Rust sources of all packages.
const READS_SOURCES: &str = "xtask";

/// The package whose tests start programs of other packages, which are beside its own.
const STARTS_OTHERS: &str = "kiln-cli";

/// The starts of the names of the environment variables that tests or the programs that they start read.
const VARIABLES: &[&str] = &[
    "CRITERION",
    "CUBECL",
    "CUDA",
    "KILN_",
    "LD_",
    "LOCAL_",
    "MASTER_",
    "NCCL",
    "OMPI_",
    "PATH",
    "PMI",
    "PROPTEST_",
    "RANK",
    "RAYON_",
    "RUST",
    "SLURM",
    "TMPDIR",
    "WORLD_SIZE",
];

/// The states of what all runs may read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Inputs {
    /// The environment, and the files of the repository that are not Rust sources.
    pub(super) files: String,
    /// The Rust sources.
    pub(super) sources: String,
}

impl Inputs {
    /// Reads the states.
    ///
    /// # Errors
    /// Returns an error if git cannot list the files of the repository.
    pub(super) fn read() -> Result<Self> {
        let root = workspace::root()?;
        let (sources, files): (Vec<String>, Vec<String>) =
            workspace::paths()?.into_iter().partition(|path| path.ends_with(".rs"));
        let states = |paths: &[String]| paths.iter().map(|path| state(&root.join(path))).collect();
        let sources: Vec<String> = states(&sources);
        let mut files: Vec<String> = states(&files);
        let mut variables: Vec<String> = std::env::vars_os()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .filter(|variable| VARIABLES.iter().any(|start| variable.starts_with(start)))
            .collect();
        variables.sort();
        files.extend(variables);
        Ok(Self { files: hash(&files), sources: hash(&sources) })
    }
}

/// A run, or the examples of the documentation, with the state of everything that may affect the result.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    name: String,
    state: String,
}

/// What is recorded of a run that has passed.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    state: String,
    skips: Vec<Skip>,
}

/// The runs that have passed.
#[derive(Debug)]
pub(super) struct Passed {
    path: PathBuf,
    /// By the name of the run.
    records: BTreeMap<String, Record>,
    /// The programs that tests may start.
    programs: Vec<Program>,
    inputs: Inputs,
    /// What has begun since the file was read.
    begun: Vec<Subject>,
}

impl Passed {
    /// Reads what has passed from a file, if it exists.
    pub(super) fn read(path: PathBuf, programs: Vec<Program>, inputs: Inputs) -> Self {
        // A damaged file, or one of another version, counts as missing.
        let records = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
        Self { path, records: records.unwrap_or_default(), programs, inputs, begun: Vec::new() }
    }

    /// Returns the skipped tests of a run that has passed, or `None` if it has not, or something has changed since.
    pub(super) fn skips(&self, subject: &Subject) -> Option<&[Skip]> {
        let record = self.records.get(&subject.name).filter(|record| record.state == subject.state);
        record.map(|record| &*record.skips)
    }

    /// Forgets that these runs have passed, also in the file. If the process ends early, they are repeated.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn begin(&mut self, subjects: Vec<Subject>) -> Result<()> {
        for Subject { name, .. } in &subjects {
            self.records.remove(name);
        }
        self.begun.extend(subjects);
        self.write()
    }

    /// Adds those of the runs that have begun whose names are in `passed`, with their skipped tests, also in the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn end(mut self, mut passed: BTreeMap<String, Vec<Skip>>) -> Result<()> {
        for Subject { name, state } in std::mem::take(&mut self.begun) {
            if let Some(skips) = passed.remove(&name) {
                self.records.insert(name, Record { state, skips });
            }
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.records)?;
        fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Returns a run with its state.
    pub(super) fn run(&self, Run { name, command }: &Run) -> Subject {
        let package = name.split(' ').next().unwrap_or_default();
        let mut states = vec![state(Path::new(command.get_program()))];
        for program in
            self.programs.iter().filter(|program| Some(&*program.folder) == command.get_current_dir())
        {
            states.push(state(&program.path));
            if package == STARTS_OTHERS {
                states.extend(program.path.parent().map(states_in).unwrap_or_default());
            }
        }
        states.push(format!("{:?}", command.get_args().collect::<Vec<_>>()));
        states.push(self.inputs.files.clone());
        if package == READS_SOURCES {
            states.push(self.inputs.sources.clone());
        }
        Subject { name: name.clone(), state: hash(&states) }
    }

    /// Returns the examples in the documentation of these libraries, with their state.
    pub(super) fn examples(&self, libraries: &[PathBuf]) -> Subject {
        let mut states: Vec<String> = libraries.iter().map(|path| state(path)).collect();
        states.push(self.inputs.files.clone());
        Subject { name: EXAMPLES.to_owned(), state: hash(&states) }
    }
}

/// Returns the states of the programs in a folder: the files without an extension, sorted by name.
fn states_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.is_file() && path.extension().is_none()).collect();
    paths.sort();
    paths.iter().map(|path| state(path)).collect()
}

/// Returns the path of a file, its size and the time of its last change.
fn state(path: &Path) -> String {
    let known = fs::metadata(path).and_then(|file| Ok((file.len(), file.modified()?)));
    let changed = known.map(|(n_bytes, at)| {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{n_bytes} {}", since.as_nanos())
    });
    format!("{} {}", path.display(), changed.unwrap_or_default())
}

fn hash(lines: &[String]) -> String {
    workspace::sha256(lines.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::tally::Kind;
    use super::*;

    fn run(name: &str, binary: &Path, folder: &Path) -> Run {
        let mut command = Command::new(binary);
        command.current_dir(folder);
        Run { name: name.into(), command }
    }

    /// Reads the file, and returns what has passed, for tests in `folder` that may start the program `kiln`.
    fn read(folder: &Path) -> Passed {
        let program = Program { path: folder.join("kiln"), folder: folder.into() };
        let inputs = Inputs { files: "files".into(), sources: "sources".into() };
        Passed::read(folder.join("passed.json"), vec![program], inputs)
    }

    #[test]
    fn a_run_is_repeated_if_it_failed_or_its_binary_or_a_program_changed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        for name in ["suite", "other", "kiln", "ranks", "library"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let runs = [
            run("kiln-cli suite", &folder.join("suite"), folder),
            run("kiln-cli other", &folder.join("other"), folder),
            run("kiln-store suite", &folder.join("suite"), &folder.join("elsewhere")),
        ];
        let library = [folder.join("library")];
        let subjects = |passed: &Passed, which: &[usize]| -> Vec<Subject> {
            which
                .iter()
                .map(|&index| runs.get(index).map_or(passed.examples(&library), |run| passed.run(run)))
                .collect()
        };
        let has_passed = || {
            let passed = read(folder);
            subjects(&passed, &[0, 1, 2, 3])
                .iter()
                .map(|subject| passed.skips(subject).is_some())
                .collect::<Vec<_>>()
        };
        let skips = vec![Skip { what: "sums".into(), reason: "no GPU".into(), kind: Kind::Gpu }];
        let ended = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), skips.clone())).collect();
        assert_eq!(has_passed(), [false; 4]);
        let mut passed = read(folder);
        passed.begin(subjects(&passed, &[0, 1, 2, 3])).unwrap();
        // A process that ends here has not passed any test.
        assert_eq!(has_passed(), [false; 4]);
        // The second run failed.
        passed.end(ended(&["kiln-cli suite", "kiln-store suite", EXAMPLES])).unwrap();
        assert_eq!(has_passed(), [true, false, true, true]);
        let passed = read(folder);
        assert_eq!(passed.skips(&passed.run(&runs[0])), Some(&*skips));
        // A run that is repeated and fails has not passed.
        let mut passed = read(folder);
        passed.begin(subjects(&passed, &[0])).unwrap();
        passed.end(ended(&[])).unwrap();
        assert_eq!(has_passed(), [false, false, true, true]);
        let mut passed = read(folder);
        passed.begin(subjects(&passed, &[0, 1])).unwrap();
        passed.end(ended(&["kiln-cli suite", "kiln-cli other"])).unwrap();
        assert_eq!(has_passed(), [true; 4]);
        fs::write(folder.join("other"), "another binary").unwrap();
        assert_eq!(has_passed(), [false, false, true, true], "the file is beside the program");
        fs::write(folder.join("library"), "another library").unwrap();
        assert_eq!(has_passed(), [false, false, true, false]);
        fs::write(folder.join("passed.json"), "{").unwrap();
        assert_eq!(has_passed(), [false; 4]);
    }

    #[test]
    fn the_state_of_a_run_has_its_programs_arguments_files_and_sources() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        for name in ["kiln", "ranks"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let of = |name: &str| run(name, Path::new("suite"), folder);
        let passed = read(folder);
        let [graph, cli, xtask] = ["kiln-graph suite", "kiln-cli jobs", "xtask xtask"].map(of);
        let states = || [&graph, &cli, &xtask].map(|run| passed.run(run).state);
        let before = states();
        assert_eq!(states(), before);
        let mut filtered = of("kiln-graph suite");
        filtered.command.arg("filter");
        assert_ne!(passed.run(&filtered).state, before[0]);
        let is_equal = |passed: &Passed| {
            let states = [&graph, &cli, &xtask].map(|run| passed.run(run).state);
            [0, 1, 2].map(|run| states[run] == before[run])
        };
        let inputs = passed.inputs.clone();
        let with = |inputs| Passed { inputs, ..read(folder) };
        assert_eq!(is_equal(&with(Inputs { files: "others".into(), ..inputs.clone() })), [false; 3]);
        assert_eq!(is_equal(&with(Inputs { sources: "others".into(), ..inputs })), [true, true, false]);
        // The tests of kiln-cli start the program `ranks`, which is beside `kiln`.
        fs::write(folder.join("ranks"), "another program").unwrap();
        assert_eq!(is_equal(&passed), [true, false, true]);
        fs::write(folder.join("kiln"), "another program").unwrap();
        assert_eq!(is_equal(&passed), [false; 3]);
    }

    #[test]
    fn the_inputs_are_those_of_this_repository() {
        let inputs = Inputs::read().unwrap();
        assert_eq!([inputs.files.len(), inputs.sources.len()], [64, 64]);
        assert_ne!(inputs.files, inputs.sources);
    }
}
