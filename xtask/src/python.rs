//! `cargo xtask python`: builds the Python package, and runs its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{test, workspace};

/// Options of `cargo xtask python`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Installs PyTorch and PyG, several GB, and runs the tests with them and those of the types instead
    #[arg(long)]
    pyg: bool,
}

/// The folder of the package, relative to the workspace's folder.
const PACKAGE: &str = "crates/python";

/// The folder of the package as it is tested and of what its tests need, relative to the workspace's folder.
const FOLDER: &str = "target/python";

/// Runs the tests with arrays of NumPy, for `cargo xtask check`.
pub(crate) fn check() -> Result<()> {
    run(&Args { pyg: false })
}

/// Builds the package, installs what the tests need, and runs them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    let package = root.join(PACKAGE);
    let modules = stage(&root, &build()?)?;
    if !args.pyg {
        let installed = install(&root, "requirements.txt", &["--require-hashes", "--only-binary=:all:"])?;
        return pytest(&[&modules, &installed], &package.join("tests/numpy"));
    }
    let installed = install(&root, "requirements-pyg.txt", &[])?;
    let paths = [modules.as_path(), installed.as_path()];
    for tests in ["tests/numpy", "tests/pyg"] {
        pytest(&paths, &package.join(tests))?;
    }
    let mut mypy = python(&paths)?;
    mypy.args(["-m", "mypy", "--strict", "--cache-dir", FOLDER, "--package", "kiln"]);
    workspace::run(&mut mypy)?;
    let mut mypy = python(&paths)?;
    mypy.args(["-m", "mypy", "--strict", "--cache-dir", FOLDER]);
    workspace::run(mypy.arg(package.join("tests/typing")))
}

/// Builds the extension module in the profile of the tests, and returns its path. The libraries of the workspace are built
/// together, so that they have the features of `cargo xtask test` and are not compiled again.
fn build() -> Result<PathBuf> {
    let mut cargo = workspace::cargo()?;
    cargo.args("build --profile tests --locked --lib".split(' ')).args(test::PACKAGES);
    cargo.args(["--features", test::DEFAULT_FEATURES]);
    workspace::run(&mut cargo)?;
    let target = workspace::metadata()?.target_directory.into_std_path_buf();
    let library = format!("{}_kiln{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    Ok(target.join("tests").join(library))
}

/// Copies the package and its extension module to one folder, and returns the folder that contains the package.
fn stage(root: &Path, library: &Path) -> Result<PathBuf> {
    let modules = root.join(FOLDER).join("modules");
    let package = modules.join("kiln");
    if package.exists() {
        fs::remove_dir_all(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    fs::create_dir_all(&package).with_context(|| format!("cannot create {}", package.display()))?;
    let sources = root.join(PACKAGE).join("python/kiln");
    for entry in fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            fs::copy(&path, package.join(name))?;
        }
    }
    let module = package.join("_kiln.abi3.so");
    fs::copy(library, &module).with_context(|| format!("cannot copy {}", library.display()))?;
    Ok(modules)
}

/// Installs the packages of a file of the tests, unless that was done before, and returns their folder. They are installed for the
/// interpreter `python3`.
fn install(root: &Path, requirements: &str, options: &[&str]) -> Result<PathBuf> {
    let file = root.join(PACKAGE).join("tests").join(requirements);
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let version =
        workspace::stdout_of(Command::new("python3").args(["-c", "import sys; print(sys.version)"]))
            .context("the tests of the Python package need Python 3.10 or newer")?;
    let key = workspace::sha256(&[version.as_bytes(), &text].concat());
    let folder = root.join(FOLDER).join(&key[..16]);
    if folder.exists() {
        return Ok(folder);
    }
    let part = folder.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(options);
    pip.arg("--target").arg(&part).arg("--requirement").arg(&file);
    workspace::run(&mut pip).context(
        "pip cannot install what the tests need: install Python 3 with pip (Debian: python3-pip), and check the network",
    )?;
    fs::rename(&part, &folder)?;
    Ok(folder)
}

fn pytest(paths: &[&Path], tests: &Path) -> Result<()> {
    ensure!(tests.exists(), "{} does not exist", tests.display());
    let mut pytest = python(paths)?;
    pytest.args([
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error::pytest.PytestUnraisableExceptionWarning",
    ]);
    workspace::run(pytest.arg(tests))
}

/// Returns a command that runs Python in the workspace's folder with modules of these folders, and writes no bytecode.
fn python(paths: &[&Path]) -> Result<Command> {
    let mut command = Command::new("python3");
    command.current_dir(workspace::root()?);
    command.env("PYTHONPATH", std::env::join_paths(paths)?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}
