//! The test binaries that cargo has built. Several run concurrently, because most of them wait or compute on one thread
//! for part of their time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Artifact, Metadata, PackageId};

use super::tally::Tally;
use crate::workspace::{self, Built};

/// The maximum number of binaries that run at once. More would slow each other down until tests miss their deadlines.
const MAX_AT_ONCE: usize = 4;

/// A test binary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Binary {
    pub(super) package: String,
    pub(super) target: String,
    /// True if the tests are inside of a library.
    pub(super) is_lib: bool,
    path: PathBuf,
    /// The folder of the package, which is the working directory.
    folder: PathBuf,
}

/// A program of a package, which the tests of the package may start.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The folder of the package.
    pub(super) folder: PathBuf,
}

/// What a build of tests has created.
#[derive(Debug)]
pub(super) struct Tests {
    /// Those that were built last come first: they depend on the most crates and are the slowest.
    pub(super) binaries: Vec<Binary>,
    pub(super) programs: Vec<Program>,
    /// The libraries whose documentation may have examples.
    pub(super) libraries: Vec<PathBuf>,
    pub(super) has_warnings: bool,
}

/// One run of a binary.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) command: Command,
}

impl Binary {
    /// Returns a run of this binary on a device, or on the CPU if `device` is `None`.
    pub(super) fn run(&self, device: Option<&str>) -> Run {
        let Self { package, target, path, folder, .. } = self;
        let mut command = Command::new(path);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        // Runs on the CPU must not inherit the variable, because it enables the device tests.
        command.env_remove("KILN_DEVICE").envs(device.map(|device| ("KILN_DEVICE", device)));
        let on = device.map(|device| format!(" on {device}")).unwrap_or_default();
        Run { name: format!("{package} {target}{on}"), command }
    }

    /// Same as [`run`](Self::run), but runs only the tests whose names contain one of `parts`, or all if there are none.
    ///
    /// # Errors
    /// Returns an error if the binary does not list its tests, or if no test contains one of the parts.
    pub(super) fn run_of(&self, device: Option<&str>, parts: &[&str]) -> Result<Run> {
        self.tests(parts)?;
        let mut run = self.run(device);
        run.command.args(parts);
        if !parts.is_empty() {
            run.name = format!("{} ({})", run.name, parts.join(", "));
        }
        Ok(run)
    }

    /// Returns a run of each test of this binary whose name contains one of `parts`, or of all tests if there are none.
    /// On CubeCL's CPU runtime, a test takes up to nine times as long after others as in its own process. A binary that
    /// lists no tests, such as that of the benches, is one run.
    ///
    /// # Errors
    /// Same as [`run_of`](Self::run_of).
    pub(super) fn run_each(&self, device: Option<&str>, parts: &[&str]) -> Result<Vec<Run>> {
        let tests = self.tests(parts)?;
        Ok(if tests.is_empty() {
            vec![self.run(device)]
        } else {
            tests
                .iter()
                .map(|test: &String| {
                    let Run { name, mut command } = self.run(device);
                    command.args(["--exact", test]);
                    Run { name: format!("{name} {test}"), command }
                })
                .collect()
        })
    }

    /// Returns the names of the tests that contain one of `parts`, or of all tests if there are none.
    fn tests(&self, parts: &[&str]) -> Result<Vec<String>> {
        let list = Command::new(&self.path).args(["--list", "--format", "terse"]).output();
        let list = list.with_context(|| format!("cannot start {}", self.path.display()))?;
        ensure!(list.status.success(), "{} --list: {}", self.path.display(), list.status);
        let list = String::from_utf8_lossy(&list.stdout);
        let mut tests: Vec<String> =
            list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
        for part in parts {
            let is_there = tests.iter().any(|test| test.contains(part));
            ensure!(is_there, "{} {} has no test with `{part}` in its name", self.package, self.target);
        }
        tests.retain(|test| parts.is_empty() || parts.iter().any(|part| test.contains(part)));
        Ok(tests)
    }
}

/// Builds the tests by running `cargo` (a `cargo test` command) with `--no-run`.
///
/// # Errors
/// Returns an error if the build fails.
pub(super) fn build(mut cargo: Command) -> Result<Tests> {
    cargo.arg("--no-run");
    let Built { programs, libraries, has_warnings } = workspace::build(cargo)?;
    let mut tests = Tests { binaries: Vec::new(), programs: Vec::new(), libraries, has_warnings };
    for artifact in programs.into_iter().rev() {
        if artifact.profile.test {
            tests.binaries.extend(binary(artifact));
        } else if let Artifact { executable: Some(path), manifest_path, .. } = artifact {
            let folder = manifest_path.parent().unwrap_or(&manifest_path).as_std_path().to_owned();
            tests.programs.push(Program { path: path.into_std_path_buf(), folder });
        }
    }
    Ok(tests)
}

/// Returns the test binary that an artifact describes, or `None` if the artifact is not a test binary.
fn binary(
    Artifact { package_id, manifest_path, target, profile, executable, .. }: Artifact,
) -> Option<Binary> {
    let path = executable.filter(|_| profile.test)?.into_std_path_buf();
    let folder = manifest_path.parent()?.as_std_path().to_owned();
    Some(Binary {
        package: workspace::package_name(&package_id.repr).to_owned(),
        is_lib: target.is_lib(),
        target: target.name,
        path,
        folder,
    })
}

/// Runs all binaries. The smaller of `at_once` and [`MAX_AT_ONCE`] limits how many run concurrently. Writes a line to
/// `out` for each binary that has exited. If the binary failed, its output precedes the line.
///
/// # Errors
/// Returns an error if a binary cannot be started, or if `out` cannot be written.
pub(super) fn run_all(runs: Vec<Run>, at_once: usize, out: impl Write + Send) -> Result<Tally> {
    let runs: Vec<Mutex<Run>> = runs.into_iter().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    let out = Mutex::new(out);
    std::thread::scope(|scope| {
        let worker = || -> Result<()> {
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut run = run.lock().expect("only one thread should use a run");
                let tally = run_one(&mut run, &out)?;
                total.lock().expect("adding a tally should not panic").add(tally);
            }
            Ok(())
        };
        let workers: Vec<_> = (0..at_once.clamp(1, MAX_AT_ONCE)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker should not panic"))
    })?;
    Ok(total.into_inner().expect("adding a tally should not panic"))
}

fn run_one(Run { name, command }: &mut Run, out: &Mutex<impl Write>) -> Result<Tally> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    let seconds = start.elapsed().as_secs();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut tally = Tally::default();
    text.lines().for_each(|line| tally.read(line));
    let mut out = out.lock().expect("writing the output should not panic");
    if output.status.success() {
        tally.ends_well(name);
        writeln!(out, "ok      {name}: {} passed in {seconds} s", tally.n_passed)?;
    } else {
        out.write_all(&output.stdout)?;
        out.write_all(&output.stderr)?;
        writeln!(out, "FAILED  {name}: {} after {seconds} s", output.status)?;
        // A process that crashed has not reported a failed test, so the binary itself is added to the failures.
        if tally.n_failed == 0 {
            tally.failed.push(format!("{name}: {}", output.status));
        }
    }
    Ok(tally)
}

/// Returns the workspace's packages whose features differ between `default` and `featured`, and their dependents.
pub(super) fn with_other_features<'a>(default: &'a Metadata, featured: &'a Metadata) -> BTreeSet<String> {
    let nodes = |metadata: &'a Metadata| metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let default_features: BTreeMap<_, _> = nodes(default).map(|node| (&node.id, &node.features)).collect();
    let is_member = |id| featured.workspace_members.contains(id);
    let members: Vec<_> = nodes(featured).filter(|node| is_member(&node.id)).collect();
    let mut changed: BTreeSet<&PackageId> = BTreeSet::new();
    loop {
        let n_before = changed.len();
        for node in &members {
            let differs = default_features.get(&node.id) != Some(&&node.features);
            if differs || node.deps.iter().any(|dep| changed.contains(&dep.pkg)) {
                changed.insert(&node.id);
            }
        }
        if changed.len() == n_before {
            return changed.into_iter().map(|id| workspace::package_name(&id.repr).to_owned()).collect();
        }
    }
}

/// Returns the workspace's packages with a target of one of these names.
pub(super) fn with_targets(metadata: &Metadata, names: &[&str]) -> BTreeSet<String> {
    let packages = metadata.workspace_packages().into_iter().filter(|package: &&cargo_metadata::Package| {
        package.targets.iter().any(|target| names.contains(&&*target.name))
    });
    packages.map(|package| package.name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::sink;

    use super::*;

    /// This test program.
    fn own_binary() -> Binary {
        let path = std::env::current_exe().unwrap();
        Binary { package: "xtask".into(), target: "xtask".into(), is_lib: false, path, folder: ".".into() }
    }

    fn artifact(json: &str) -> Option<Binary> {
        binary(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn reads_test_binaries_from_cargo_messages() {
        let json = r#"{"package_id":"path+file:///a/crates/graph#kiln-graph@0.1.0","manifest_path":"/a/crates/graph/Cargo.toml",
            "target":{"name":"suite","kind":["test"],"crate_types":["bin"],"src_path":"/a/crates/graph/tests/suite/main.rs"},
            "profile":{"opt_level":"0","debug_assertions":false,"overflow_checks":false,"test":true},
            "features":[],"filenames":[],"executable":"/a/target/suite-1","fresh":true}"#;
        let expected = Binary {
            package: "kiln-graph".into(),
            target: "suite".into(),
            is_lib: false,
            path: "/a/target/suite-1".into(),
            folder: "/a/crates/graph".into(),
        };
        assert_eq!(artifact(json), Some(expected));
        // Programs and libraries are not test binaries.
        assert_eq!(artifact(&json.replace("\"test\":true", "\"test\":false")), None);
        assert_eq!(artifact(&json.replace("\"/a/target/suite-1\"", "null")), None);
    }

    #[test]
    fn runs_each_test_of_a_binary_in_its_own_process() {
        let binary = own_binary();
        let runs = binary.run_each(Some("cuda"), &[]).unwrap();
        let name = "xtask xtask on cuda test::binaries::tests::reads_test_binaries_from_cargo_messages";
        let run = runs.into_iter().find(|run| run.name == name).unwrap();
        let tally = run_all(vec![run], 1, sink()).unwrap();
        assert_eq!((tally.n_passed, tally.verdict(true)), (1, None));
        // A binary without tests, such as a bench, also runs.
        let bench = Binary { path: "true".into(), ..binary.clone() };
        let names: Vec<_> =
            bench.run_each(Some("cuda"), &[]).unwrap().into_iter().map(|run| run.name).collect();
        assert_eq!(names, ["xtask xtask on cuda"]);
        let missing = Binary { path: "no/such/binary".into(), ..binary };
        assert!(missing.run_each(None, &[]).is_err());
    }

    #[test]
    fn selects_tests_by_parts_of_their_names() {
        let binary = own_binary();
        let part = "reads_test_binaries_from_cargo";
        assert_eq!(binary.run_each(None, &[part]).unwrap().len(), 1);
        let tally = run_all(vec![binary.run_of(None, &[part]).unwrap()], 1, sink()).unwrap();
        assert_eq!(tally.n_passed, 1);
        // A renamed test must not leave a run without tests.
        let error = binary.run_of(None, &[part, "no_such_test"]).unwrap_err().to_string();
        assert_eq!(error, "xtask xtask has no test with `no_such_test` in its name");
    }

    fn shell(name: &str, script: &str) -> Run {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Run { name: name.into(), command }
    }

    #[test]
    fn counts_the_tests_of_all_runs_and_names_processes_that_end_early() {
        let passed = "echo 'test result: ok. 2 passed; 0 failed'";
        let tally =
            run_all(vec![shell("a", passed), shell("b", passed), shell("c", passed)], 2, sink()).unwrap();
        assert_eq!((tally.n_passed, tally.verdict(true)), (6, None));
        let tally = run_all(vec![shell("a", passed), shell("killed", "kill -9 $$")], 1, sink()).unwrap();
        assert_eq!(tally.failed.len(), 1);
        assert!(tally.failed[0].starts_with("killed: signal: 9"), "{:?}", tally.failed);
        assert!(tally.verdict(false).is_some());
        let failed = "echo 'test a ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed'; exit 101";
        let mut out = Vec::new();
        let tally = run_all(vec![shell("a", failed)], 1, &mut out).unwrap();
        assert_eq!((tally.n_failed, &tally.failed[..]), (1, &["a".to_owned()][..]));
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("test a ... FAILED\n"), "{out}");
        assert!(out.ends_with("FAILED  a: exit status: 101 after 0 s\n"), "{out}");
    }

    fn metadata(features_of_b: &str) -> Metadata {
        let node = |name: &str, features: &str, deps: &str| {
            format!(
                r#"{{"id":"path+file:///w/{name}#0.1.0","features":[{features}],"dependencies":[],"deps":[{deps}]}}"#
            )
        };
        let on = |name: &str| format!(r#"{{"name":"{name}","pkg":"path+file:///w/{name}#0.1.0"}}"#);
        let nodes = [node("a", "", ""), node("b", features_of_b, &on("a")), node("c", "", &on("b"))];
        let members = ["a", "b", "c"].map(|name| format!("\"path+file:///w/{name}#0.1.0\""));
        let members = members.join(",");
        let nodes = nodes.join(",");
        let json = format!(
            r#"{{"packages":[],"workspace_members":[{members}],"resolve":{{"nodes":[{nodes}]}},"workspace_root":"/w","target_directory":"/w/target","version":1}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn finds_packages_whose_features_differ_and_their_dependents() {
        let found = with_other_features(&metadata(""), &metadata("\"cuda\""));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["b", "c"]);
        assert!(with_other_features(&metadata("\"cuda\""), &metadata("\"cuda\"")).is_empty());
    }
}
