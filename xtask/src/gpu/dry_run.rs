//! `cargo xtask gpu dry-run`: the days of `benches/gpu/run.sh` on the stub of the CUDA driver.
//!
//! Each day starts in a new copy of the files that travel to the machine with a GPU, in a session of its own, without
//! cargo on its path, with only one device and without a CUDA toolkit. `ncu` and `compute-sanitizer` are programs that run
//! their argument and print the real tools' formats, and PyTorch computes on the CPU, so that every part executes.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::{PACKAGE, PROGRAMS, folder, mib, pack};
use crate::cuda::Stub;
use crate::workspace;

/// The names of the days.
pub(super) const DAYS: [&str; 2] = ["day1", "day2"];

/// The programs that stand for NVIDIA's tools, by the names of the tools.
const TOOLS: [(&str, &str); 2] =
    [("ncu", include_str!("fake_ncu.py")), ("compute-sanitizer", include_str!("fake_sanitizer.py"))];

/// The largest number of files that a day may leave in the folder of its results, and the largest size of a file.
const MAX_FILES: usize = 8;
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The largest size of the checkout with the package.
const MAX_CHECKOUT_BYTES: u64 = 64 << 20;

/// The file that a day must create first.
const TABLE: &str = "table.txt";

/// Runs the given days, or all, and prints a line per day. Each day has `budget` seconds.
///
/// # Errors
/// Returns an error that lists the problems of all days.
pub(super) fn run(days: &[String], budget: u64) -> Result<()> {
    let package = folder()?.join(PACKAGE);
    ensure!(
        package.join(PROGRAMS).exists(),
        "{} does not exist: run `cargo xtask gpu pack` first",
        package.join(PROGRAMS).display()
    );
    let days: Vec<&str> =
        if days.is_empty() { DAYS.to_vec() } else { days.iter().map(String::as_str).collect() };
    let path = search_path()?;
    let stub = Stub::build(1)?;
    let mut problems = Vec::new();
    for day in days {
        let checkout = folder()?.join("dry-run/checkout");
        copy_checkout(&package, &checkout)?;
        let n_bytes = pack::size(&checkout)?;
        println!("==> {day}: checkout with package {}", mib(n_bytes));
        let mut found = run_day(&stub, &checkout, day, budget, &path)?;
        if MAX_CHECKOUT_BYTES < n_bytes {
            found.push(format!("the checkout with the package is larger than {}", mib(MAX_CHECKOUT_BYTES)));
        }
        problems.extend(found.into_iter().map(|problem| format!("{day}: {problem}")));
        fs::remove_dir_all(&checkout)?;
    }
    // Fails if the stub ended a process, for example at an access outside of all allocations.
    stub.report(false)?;
    if !problems.is_empty() {
        bail!("{} of the dry run: {}", problems.len(), problems.join("; "));
    }
    Ok(())
}

/// Copies the files that git tracks or would track, and the package, to a new folder.
fn copy_checkout(package: &Path, checkout: &Path) -> Result<()> {
    if checkout.exists() {
        fs::remove_dir_all(checkout)?;
    }
    let root = workspace::root()?;
    let copy = |from: &Path, to: &Path| -> Result<()> {
        fs::create_dir_all(to.parent().context("the copy should be in a folder")?)?;
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    };
    for path in workspace::paths()? {
        copy(&root.join(&path), &checkout.join(&path))?;
    }
    let target = checkout.join(package.strip_prefix(&root)?);
    for file in files_below(package)? {
        copy(&file, &target.join(file.strip_prefix(package)?))?;
    }
    Ok(())
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

/// Returns the search path of a day: the tools, a Python with PyTorch, and `PATH` without cargo.
fn search_path() -> Result<OsString> {
    let tools = folder()?.join("dry-run/tools");
    fs::create_dir_all(&tools)?;
    for (name, program) in TOOLS {
        let path = tools.join(name);
        fs::write(&path, program)?;
        make_executable(&path)?;
    }
    let mut folders = vec![tools];
    folders.extend(torch_folder()?);
    folders.extend(env::split_paths(&path_without_cargo()?));
    Ok(env::join_paths(folders)?)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    bail!("a dry run needs Linux")
}

/// Installs PyTorch and PyG, unless the system's Python has them, and returns the folder of the Python that has them. If
/// they cannot be installed, prints why and returns `None`: their parts then do not run.
fn torch_folder() -> Result<Option<PathBuf>> {
    let imports = |python: &Path| {
        let mut python = Command::new(python);
        python.args(["-c", "import torch, torch_geometric, numpy"]).stderr(Stdio::null());
        python.status().is_ok_and(|status| status.success())
    };
    if imports(Path::new("python3")) {
        return Ok(None);
    }
    let environment = folder()?.join("python");
    let programs = environment.join("bin");
    if !imports(&programs.join("python3")) {
        println!("==> installing PyTorch in {}", environment.display());
        let mut install = Command::new("python3");
        install.arg(workspace::root()?.join("benches/gpu/cpu_torch.py")).arg(&environment);
        if let Err(error) = workspace::run(&mut install) {
            println!("    PyTorch cannot be installed, and its parts do not run: {error:#}");
            return Ok(None);
        }
    }
    Ok(Some(programs))
}

/// Runs a day, prints its sizes and what did not run, and returns its problems.
fn run_day(stub: &Stub, checkout: &Path, day: &str, budget: u64, path: &OsString) -> Result<Vec<String>> {
    let out = folder()?.join("dry-run").join(day);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    // `setsid` replaces itself by the script, so that the session has the id of the process.
    let mut script = Command::new("setsid");
    script.args(["bash", "benches/gpu/run.sh", day]).current_dir(checkout);
    workspace::without_own_package(stub.set(&mut script));
    // The package must contain what kernels need of the toolkit.
    script.env_remove("CUDA_PATH").env("PATH", path);
    script.env("DRY_RUN", "1").env("BUDGET", budget.to_string()).env("OUT", &out);
    script.env("PYTHONDONTWRITEBYTECODE", "1");
    let start = Instant::now();
    let mut child = script.spawn().context("cannot start setsid")?;
    let status = child.wait()?;
    let seconds = start.elapsed().as_secs();
    let survivors = processes_of_session(child.id())?;
    let files = result_files(&out)?;
    println!("    {day}: {status} after {seconds} s");
    for file in &files {
        println!("    {}: {:.1} KiB", file.name, file.n_bytes as f64 / 1024.0);
    }
    for row in omitted(&fs::read_to_string(out.join(TABLE)).unwrap_or_default()) {
        println!("    {row}");
    }
    let mut problems = problems_of(&files);
    if !status.success() {
        problems.push(format!("{status}, see {}", out.join(TABLE).display()));
    }
    if !survivors.is_empty() {
        problems.push(format!("processes still run: {}", survivors.join(", ")));
    }
    Ok(problems)
}

/// Returns the rows of the parts that did not run.
fn omitted(table: &str) -> Vec<String> {
    let rows = table.lines().filter(|row| row.contains("\tnot run: "));
    rows.map(|row| row.replace('\t', ": ")).collect()
}

/// Returns `PATH` without the folders that contain cargo but no shell.
fn path_without_cargo() -> Result<OsString> {
    let path = env::var_os("PATH").context("PATH is not set")?;
    let folders = env::split_paths(&path);
    Ok(env::join_paths(
        folders.filter(|folder| !folder.join("cargo").exists() || folder.join("bash").exists()),
    )?)
}

/// Returns the names of the processes of a session, from Linux's `/proc`.
fn processes_of_session(session: u32) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // The file of a process that has just ended cannot be read.
        let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else { continue };
        names.extend(name_in_session(&stat, session));
    }
    Ok(names)
}

/// Returns the name of a process from the line of `/proc/PID/stat` if the process belongs to the session and is not a
/// zombie. The name is in parentheses and may contain spaces and parentheses.
fn name_in_session(stat: &str, session: u32) -> Option<String> {
    let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let [state, _parent, _group, of_session, ..] = fields[..] else { return None };
    (state != "Z" && of_session == session.to_string()).then(|| name.to_owned())
}

/// A file in the folder of a day's results.
#[derive(Debug, Clone, PartialEq)]
struct ResultFile {
    name: String,
    n_bytes: u64,
}

/// Returns the files of a day, in the order in which they were created.
fn result_files(out: &Path) -> Result<Vec<ResultFile>> {
    let mut files = Vec::new();
    for path in files_below(out)? {
        let metadata = fs::metadata(&path)?;
        let name = path.strip_prefix(out)?.display().to_string();
        let created = metadata.created().context("the file system has no times of creation")?;
        files.push((created, ResultFile { name, n_bytes: metadata.len() }));
    }
    files.sort_by_key(|(created, _)| *created);
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

/// Returns the violations of the limits on the files that a day may leave.
fn problems_of(files: &[ResultFile]) -> Vec<String> {
    let mut problems = Vec::new();
    if files.first().is_none_or(|file| file.name != TABLE) {
        let first = files.first().map_or("no file", |file| &file.name);
        problems.push(format!("the first file is {first}, expected {TABLE}"));
    }
    if MAX_FILES < files.len() {
        problems.push(format!("{} files, expected at most {MAX_FILES}", files.len()));
    }
    for file in files.iter().filter(|file| MAX_FILE_BYTES < file.n_bytes || file.n_bytes == 0) {
        let n_bytes = file.n_bytes;
        problems.push(format!("{} has {n_bytes} bytes, expected 1 to {MAX_FILE_BYTES}", file.name));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, u64)]) -> Vec<ResultFile> {
        files.iter().map(|&(name, n_bytes)| ResultFile { name: name.into(), n_bytes }).collect()
    }

    #[test]
    fn a_day_may_leave_eight_files_of_16_mib_and_the_table_is_the_first() {
        assert_eq!(problems_of(&files(&[(TABLE, 1), ("logs.tar.xz", MAX_FILE_BYTES)])), [""; 0]);
        assert_eq!(problems_of(&[]), ["the first file is no file, expected table.txt"]);
        let late = problems_of(&files(&[("logs.tar.xz", 1), (TABLE, 1)]));
        assert_eq!(late, ["the first file is logs.tar.xz, expected table.txt"]);
        let large = problems_of(&files(&[(TABLE, 1), ("a", MAX_FILE_BYTES + 1)]));
        assert_eq!(large, ["a has 16777217 bytes, expected 1 to 16777216"]);
        assert_eq!(problems_of(&files(&[(TABLE, 0)])).len(), 1);
        assert_eq!(problems_of(&files(&[(TABLE, 1); 9])), ["9 files, expected at most 8"]);
    }

    #[test]
    fn lists_the_parts_that_did_not_run() {
        let table = "kiln\tnot at all\nncu\tnot run: ncu is not on this machine\n  torch\t{}\n";
        assert_eq!(omitted(table), ["ncu: not run: ncu is not on this machine"]);
    }

    #[test]
    fn finds_the_running_processes_of_a_session() {
        assert_eq!(name_in_session("7 (a) b) S 1 7 42 0", 42), Some("a) b".to_owned()));
        assert_eq!(name_in_session("7 (sh) S 1 7 43 0", 42), None);
        assert_eq!(name_in_session("7 (sh) Z 1 7 42 0", 42), None);
        let mut sleep = Command::new("setsid").args(["sleep", "60"]).spawn().unwrap();
        let names = || processes_of_session(sleep.id()).unwrap();
        // The new process has the session's id only after `setsid` has run.
        while names().is_empty() {
            std::thread::yield_now();
        }
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(processes_of_session(sleep.id()).unwrap(), [""; 0]);
    }

    #[test]
    fn the_copy_for_a_day_contains_the_script_and_the_package() {
        let checkout = tempfile::tempdir().unwrap();
        let root = workspace::root().unwrap();
        let package = root.join("target").join(format!("test-package-{}", std::process::id()));
        fs::create_dir_all(package.join("cuda")).unwrap();
        fs::write(package.join("cuda/a"), "").unwrap();
        let result = copy_checkout(&package, &checkout.path().join("copy"));
        fs::remove_dir_all(&package).unwrap();
        result.unwrap();
        let copy = checkout.path().join("copy");
        assert!(copy.join("benches/gpu/run.sh").exists());
        assert!(copy.join(package.strip_prefix(&root).unwrap()).join("cuda/a").exists());
    }
}
