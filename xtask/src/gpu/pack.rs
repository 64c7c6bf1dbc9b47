//! `cargo xtask gpu pack`: the package for the machine with a GPU.
//!
//! | file | contents |
//! |---|---|
//! | `programs.lzma2` | the stripped programs, as many as fit (`benches/gpu/archive.py`) |
//! | `programs.json` | their names, sizes and hashes |
//! | `commit` | the commit, and whether files differ from it |
//! | `cuda/nvvm/libdevice/libdevice.10.bc` | NVIDIA's library of exponentials, which CubeCL links into kernels |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use cargo_metadata::Artifact;

use super::{PACKAGE, folder, mib};
use crate::{cuda, llvm, test, workspace};

/// All programs as `PACKAGE TARGET` without the prefix `kiln-`, the most important first: the first ones show whether
/// the GPU runs kiln at all. The device tests of a crate are one program.
const ALL: &[&str] =
    &["kernels device", "cli kiln", "benches device", "benches first_step", "nn device", "train device"];

/// Returns the programs that a piece of `benches/gpu/run.sh` runs, or all, the most important first. The programs of all
/// pieces may not fit into one package.
pub(super) fn programs_of(piece: Option<&str>) -> &'static [&'static str] {
    match piece {
        Some("1") => &["kernels device", "cli kiln", "train device"],
        Some("2") => &["benches device", "benches first_step"],
        Some("3") => &["kernels device", "cli kiln", "nn device"],
        Some("4") => &["cli kiln", "kernels device"],
        _ => ALL,
    }
}

/// The path of NVIDIA's library in the folder of a CUDA toolkit.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// Builds all programs and packs `names`. The package has at most `limit` bytes.
///
/// # Errors
/// Returns an error if the build fails, or if not even the first program fits.
pub(super) fn run(limit: u64, names: &[&str]) -> Result<()> {
    let start = Instant::now();
    let (package, stripped) = (folder()?.join(PACKAGE), folder()?.join("stripped"));
    for folder in [&package, &stripped] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    llvm::run()?;
    let programs = ordered(&workspace::build(cargo_build()?)?, names)?;
    println!("built after {} s", start.elapsed().as_secs());
    for (name, path) in &programs {
        workspace::run(Command::new("strip").arg("-o").arg(stripped.join(name)).arg(path))?;
    }
    fs::write(package.join("commit"), commit()?)?;
    copy_libdevice(&package)?;
    let archive_limit = limit.saturating_sub(size(&package)?);
    let mut archive = Command::new("python3");
    archive.arg(workspace::root()?.join("benches/gpu/archive.py")).args(["pack", &archive_limit.to_string()]);
    archive.arg(&package).arg(&stripped).args(programs.iter().map(|(name, _)| name));
    workspace::run(&mut archive)?;
    fs::remove_dir_all(&stripped)?;
    let n_bytes = mib(size(&package)?);
    println!("{}: {n_bytes} after {} s", package.display(), start.elapsed().as_secs());
    Ok(())
}

/// Returns the command that builds all programs.
fn cargo_build() -> Result<Command> {
    let mut cargo = workspace::cargo()?;
    cargo.args("build --release --locked --features cuda".split(' ')).args(test::PACKAGES);
    cargo.args("--bin kiln --bin first_step --test device --bench device".split(' '));
    Ok(cargo)
}

/// Returns the names in the package and the paths of programs, in the order of `names`.
///
/// # Errors
/// Returns an error if the build has not created one of them.
fn ordered(built: &[Artifact], names: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let path_of = |name: &str| {
        let is_named = |artifact: &&Artifact| {
            let package = workspace::package_name(&artifact.package_id.repr);
            format!("{} {}", package.strip_prefix("kiln-").unwrap_or(package), artifact.target.name) == name
        };
        let path = built.iter().find(is_named).and_then(|artifact| artifact.executable.clone());
        let path =
            path.with_context(|| format!("the build has no program of this package and target: {name}"))?;
        Ok((name.replace(' ', "-"), path.into_std_path_buf()))
    };
    names.iter().map(|name| path_of(name)).collect()
}

/// Returns the commit on which the programs are based.
fn commit() -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(workspace::root()?).args([
        "describe",
        "--always",
        "--dirty= with uncommitted changes",
        "--abbrev=7",
    ]);
    git.args(["--exclude", "*"]);
    workspace::stdout_of(&mut git)
}

/// Copies `libdevice` from NVIDIA's wheel, because the GPU machine may have no CUDA toolkit.
fn copy_libdevice(package: &Path) -> Result<()> {
    let toolkit = cuda::install_libdevice()?;
    let copy = package.join("cuda").join(LIBDEVICE);
    fs::create_dir_all(copy.parent().context("the path of libdevice has no folder")?)?;
    fs::copy(toolkit.join(LIBDEVICE), &copy)?;
    Ok(())
}

/// Returns the number of bytes of all files in a folder.
pub(super) fn size(folder: &Path) -> Result<u64> {
    let mut n_bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        n_bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(n_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(package: &str, target: &str) -> Artifact {
        let json = format!(
            r#"{{"package_id":"path+file:///w/crates/{package}#kiln-{package}@0.1.0","manifest_path":"/w/crates/{package}/Cargo.toml",
            "target":{{"name":"{target}","kind":["test"],"crate_types":["bin"],"src_path":"/w/a.rs"}},
            "profile":{{"opt_level":"3","debug_assertions":false,"overflow_checks":false,"test":true}},
            "features":[],"filenames":[],"executable":"/w/target/{package}-{target}-1","fresh":true}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn programs_are_in_the_order_of_their_importance_and_none_may_be_missing() {
        let mut built: Vec<Artifact> =
            ALL.iter().rev().filter_map(|name| name.split_once(' ')).map(|(p, t)| artifact(p, t)).collect();
        built.insert(0, artifact("nccl", "device"));
        let programs = ordered(&built, ALL).unwrap();
        assert_eq!(programs[0], ("kernels-device".into(), "/w/target/kernels-device-1".into()));
        assert_eq!(programs.last().unwrap().0, "train-device");
        let error = ordered(&built[..built.len() - 1], ALL).unwrap_err().to_string();
        assert_eq!(error, "the build has no program of this package and target: kernels device");
    }

    #[test]
    fn each_program_belongs_to_a_piece_and_pieces_have_only_known_programs() {
        let pieces = super::super::dry_run::PIECES;
        let of_pieces: Vec<&str> =
            pieces.iter().flat_map(|piece| programs_of(Some(piece))).copied().collect();
        assert!(ALL.iter().all(|name| of_pieces.contains(name)));
        assert!(of_pieces.iter().all(|name| ALL.contains(name)));
    }

    #[test]
    fn counts_the_bytes_of_nested_folders() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), [0; 5]).unwrap();
        fs::write(folder.path().join("c"), [0; 2]).unwrap();
        assert_eq!(size(folder.path()).unwrap(), 7);
    }
}
