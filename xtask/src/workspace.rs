//! Access to the workspace for the tasks: its folder, its files, its packages and its `cargo`.

use std::ffi::OsStr;
use std::io::{BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::diagnostic::DiagnosticLevel;
use cargo_metadata::{Artifact, CompilerMessage, Message, Metadata, MetadataCommand};
use sha2::{Digest, Sha256};

/// A text file that git tracks or would track.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// The path relative to the workspace's folder, with `/` as the separator.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns true if a program wrote the file.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.ends_with("/generated.rs")
    }
}

/// Returns the packages that the default features need on this machine's platform. Packages that only other platforms
/// need are left out, so that cargo does not download them.
pub(crate) fn metadata() -> Result<Metadata> {
    metadata_with(&["--filter-platform", &host()?])
}

/// Same as [`metadata`], but with these features, separated by commas.
pub(crate) fn metadata_of_features(features: &str) -> Result<Metadata> {
    metadata_with(&["--filter-platform", &host()?, "--features", features])
}

fn metadata_with(args: &[&str]) -> Result<Metadata> {
    let json = stdout_of(cargo()?.args(["metadata", "--format-version", "1", "--locked"]).args(args))?;
    MetadataCommand::parse(json).context("cannot parse the output of `cargo metadata`")
}

/// Returns this machine's target triple.
pub(crate) fn host() -> Result<String> {
    let version = stdout_of(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` printed no host")?.to_owned())
}

/// Returns the workspace's folder.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("this program was not started by cargo: use `cargo xtask`")?;
    let parent = Path::new(&manifest_dir).parent().context("xtask's folder has no parent")?;
    Ok(parent.to_owned())
}

/// Returns a command that runs cargo in the workspace's folder, so that it selects the default members. It is the cargo
/// that started this program.
pub(crate) fn cargo() -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").as_deref().unwrap_or(OsStr::new("cargo")));
    without_own_package(command.current_dir(root()?));
    Ok(command)
}

/// Removes the variables that `cargo run` sets for this program's package from a command's environment. If the build
/// script of another package reads one of them, cargo runs the script again and rebuilds its dependents whenever the
/// variable is set in one command and not in the next.
pub(crate) fn without_own_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| {
        name.to_str()
            .is_some_and(|name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    }) {
        command.env_remove(name);
    }
    command
}

/// What a build has created.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// The artifacts that are programs, in the order in which they were built.
    pub(crate) programs: Vec<Artifact>,
    /// The libraries of the workspace whose documentation may have examples.
    pub(crate) libraries: Vec<PathBuf>,
    /// True if the compiler warned of the code of the workspace.
    pub(crate) has_warnings: bool,
}

/// Runs a build (`cargo build`, or `cargo test --no-run`). Prints what the compiler says to standard error.
///
/// # Errors
/// Returns an error if the build fails.
pub(crate) fn build(mut cargo: Command) -> Result<Built> {
    let format = match std::io::stderr().is_terminal() {
        true => "json-diagnostic-rendered-ansi",
        false => "json",
    };
    cargo.args(["--message-format", format]).stdout(Stdio::piped());
    let mut child = cargo.spawn().with_context(|| format!("cannot start {cargo:?}"))?;
    let output = BufReader::new(child.stdout.take().expect("stdout should be piped"));
    let mut built = Built::default();
    for message in Message::parse_stream(output) {
        match message.context("cargo printed an unexpected message")? {
            Message::CompilerArtifact(artifact) if artifact.executable.is_some() => {
                built.programs.push(artifact);
            }
            Message::CompilerArtifact(artifact) if artifact.target.doctest && is_member(&artifact) => {
                built.libraries.extend(artifact.filenames.into_iter().map(|path| path.into_std_path_buf()));
            }
            Message::CompilerMessage(CompilerMessage { message, .. }) => {
                eprint!("{}", message.rendered.unwrap_or(message.message));
                // Cargo silences the warnings of other packages.
                built.has_warnings |= message.level == DiagnosticLevel::Warning;
            }
            _ => {}
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed with {status}", short_name(&cargo));
    }
    Ok(built)
}

/// Returns true if the package is in the workspace, not from a registry.
fn is_member(artifact: &Artifact) -> bool {
    artifact.package_id.repr.starts_with("path+")
}

/// Returns `name` from a package id of the form `path+file:///folder/name#0.1.0` or `path+file:///folder#name@0.1.0`.
pub(crate) fn package_name(id: &str) -> &str {
    let (url, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => url.rsplit('/').next().unwrap_or(url),
    }
}

/// Runs a command that inherits the standard streams, and returns an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{} failed with {status}", short_name(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed with {}: {}", short_name(command), output.status, message.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}

/// Returns the command line without the folder of the program: `cargo clippy --release …`.
fn short_name(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Returns the sorted paths of all files that git tracks or would track. Ignored files are left out.
pub(crate) fn paths() -> Result<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let list = stdout_of(Command::new("git").current_dir(root()?).args(args))?;
    let root = root()?;
    let mut paths: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
    // git still lists files whose deletion is not committed.
    paths.retain(|path| root.join(path).exists());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the text files among `paths`. Files that are not UTF-8 are data, and are left out.
pub(crate) fn text_files(paths: &[String]) -> Result<Vec<SourceFile>> {
    let root = root()?;
    let mut files = Vec::new();
    for path in paths {
        let bytes = std::fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile { path: path.clone(), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn finds_the_name_in_both_forms_of_package_ids() {
        assert_eq!(package_name("path+file:///a/xtask#0.1.0"), "xtask");
        assert_eq!(package_name("path+file:///a/crates/graph#kiln-graph@0.1.0"), "kiln-graph");
    }

    #[test]
    fn a_failed_build_is_an_error_with_its_command() {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--manifest-path", "no/such/Cargo.toml"]).stderr(Stdio::null());
        let error = build(cargo).unwrap_err().to_string();
        assert!(error.starts_with("cargo build --manifest-path no/such/Cargo.toml"), "{error}");
        assert!(error.contains("failed with exit status"), "{error}");
    }

    /// Returns the JSON of a package with these entries, which override the defaults. By default it has no
    /// dependencies.
    pub(crate) fn package(name: &str, entries: Value) -> Value {
        let package = json!({
            "id": name, "name": name, "version": "0.1.0", "manifest_path": format!("{name}/Cargo.toml"),
            "dependencies": [], "targets": [], "features": {},
        });
        merged(package, entries)
    }

    /// Returns the JSON of a dependency with these entries, which override the defaults. By default it accepts any
    /// version.
    pub(crate) fn dependency(name: &str, entries: Value) -> Value {
        let dependency = json!({
            "name": name, "kind": null, "req": "*", "optional": false, "uses_default_features": true, "features": [],
        });
        merged(dependency, entries)
    }

    /// Returns the JSON of a package's node in the resolved graph, with its dependencies and their kinds.
    pub(crate) fn node(name: &str, below: &[(&str, Option<&str>)]) -> Value {
        json!({ "id": name, "dependencies": [], "deps": below.iter().map(|&(name, kind): &(&str, Option<&str>)| json!({ "name": name, "pkg": name, "dep_kinds": [{ "kind": kind, "target": null }] })).collect::<Vec<_>>() })
    }

    /// Returns the metadata that cargo would print for these packages.
    pub(crate) fn metadata_of(packages: Vec<Value>, members: &[&str], nodes: Vec<Value>) -> Metadata {
        let metadata = json!({
            "packages": packages, "workspace_members": members, "resolve": { "nodes": nodes, "root": null },
            "workspace_root": "", "target_directory": "target", "version": 1,
        });
        serde_json::from_value(metadata).unwrap()
    }

    fn merged(mut value: Value, entries: Value) -> Value {
        for (key, entry) in entries.as_object().unwrap() {
            value[key] = entry.clone();
        }
        value
    }
}
