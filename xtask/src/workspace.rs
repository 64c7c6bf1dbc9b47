//! The workspace as the tasks see it: its folder, its files, its packages, and its `cargo`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// A committed (or about to be committed) text file.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// From the workspace's folder, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// What `cargo metadata` says, as far as the checks read it.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) resolve: Resolve,
}

/// A package and what its manifest asks for.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
    pub(crate) manifest_path: String,
    /// The expression of SPDX, if the manifest states one.
    pub(crate) license: Option<String>,
    /// The kind and the address, joined by a plus; `None` for a folder.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A line of a manifest; `kind` is `None` for a normal dependency, else `dev` or `build`.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    /// The versions that will do.
    #[serde(default)]
    pub(crate) req: String,
    /// The folder of a dependency that has one.
    pub(crate) path: Option<String>,
}

/// The resolved graph of packages, with all features that the workspace turns on.
#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

/// A resolved package and what it is built with.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) features: Vec<String>,
    pub(crate) deps: Vec<NodeDep>,
}

/// An edge of the resolved graph.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeDep {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DepKind>,
}

/// Why an edge is there; as in [`Dependency`].
#[derive(Debug, Deserialize)]
pub(crate) struct DepKind {
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Asks cargo, for this machine's platform only, so that nothing is fetched for others.
    pub(crate) fn load() -> Result<Self> {
        Self::load_with(&["--filter-platform", &host()?])
    }

    /// As [`Metadata::load`], with these features, separated by commas.
    pub(crate) fn load_with_features(features: &str) -> Result<Self> {
        Self::load_with(&["--filter-platform", &host()?, "--features", features])
    }

    /// Asks cargo for the packages of every feature on these targets.
    pub(crate) fn load_all_features(targets: &[String]) -> Result<Self> {
        let targets = targets.iter().flat_map(|target| ["--filter-platform", target]);
        Self::load_with(&["--all-features"].into_iter().chain(targets).collect::<Vec<_>>())
    }

    fn load_with(args: &[&str]) -> Result<Self> {
        let json = stdout_of(cargo()?.args(["metadata", "--format-version", "1", "--locked"]).args(args))?;
        serde_json::from_str(&json).context("`cargo metadata` printed something unexpected")
    }
}

/// This machine's target triple.
pub(crate) fn host() -> Result<String> {
    let version = stdout_of(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// The workspace's folder.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").context("not started by cargo; use `cargo xtask`")?;
    let parent = Path::new(&manifest_dir).parent().context("xtask's folder has no parent")?;
    Ok(parent.to_owned())
}

/// The cargo that started this program, to be run in the workspace's folder.
pub(crate) fn cargo() -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").as_deref().unwrap_or(OsStr::new("cargo")));
    command.current_dir(root()?);
    // What `cargo run` says of this program's own package: a build script of another package that looks at such a name is
    // run again, and all above it built again, where it is set in one command and not in the next.
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(own)) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Runs a command with this program's own output and fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} does not start"))?;
    if !status.success() {
        bail!("{} ended with {status}", short_name(command));
    }
    Ok(())
}

/// Runs a command and gives back what it printed.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} does not start"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", short_name(command), output.status, message.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}

/// `cargo clippy --release …` without the path of cargo.
fn short_name(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Every file that git tracks or would track, by path; ignored files are left out.
pub(crate) fn paths() -> Result<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let list = stdout_of(Command::new("git").current_dir(root()?).args(args))?;
    let root = root()?;
    let mut paths: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
    // A file that was deleted but not yet committed is still in git's list.
    paths.retain(|path| root.join(path).exists());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// The text files among `paths`; what is not UTF-8 is data and left out.
pub(crate) fn text_files(paths: &[String]) -> Result<Vec<SourceFile>> {
    let root = root()?;
    let mut files = Vec::new();
    for path in paths {
        let bytes = std::fs::read(root.join(path)).with_context(|| format!("{path} cannot be read"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile { path: path.clone(), text });
        }
    }
    Ok(files)
}
