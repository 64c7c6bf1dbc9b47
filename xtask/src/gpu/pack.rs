//! `cargo xtask gpu pack`: the package for the machine with a GPU.
//!
//! | file | contents |
//! |---|---|
//! | `programs.lzma2` | the stripped programs (`benches/gpu/archive.py`) |
//! | `programs.json` | their names, sizes and hashes |
//! | `expected/` | results of fixed cases and losses of training, computed on the CPU (`benches/gpu/expect.sh`) |
//! | `commit` | the commit, and whether files differ from it |
//! | `cuda/nvvm/libdevice/libdevice.10.bc` | NVIDIA's library of exponentials, which CubeCL links into kernels |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use cargo_metadata::Artifact;

use super::{PACKAGE, folder, mib};
use crate::{cuda, llvm, workspace};

/// The programs as `PACKAGE TARGET`. Each shares most of its code with the one before it, so that it adds little to the
/// package.
const PROGRAMS: [&str; 2] = ["kiln-gpu-kit device_tests", "kiln-gpu-kit kit"];

/// The name by which `kit` is the program `kiln`.
const KILN: &str = "kiln";

/// The packages and the features of the build. `kernel-cache` makes a process read the kernels that an earlier one has
/// compiled.
const BUILD: &str = "build --release --locked --package kiln-gpu-kit --features cuda,nccl,kernel-cache --bin kit --test device_tests";

/// The path of NVIDIA's library in the folder of a CUDA toolkit.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// Builds the programs, computes the expected results, and packs everything into at most `limit` bytes.
///
/// # Errors
/// Returns an error if the build fails, if the CPU cannot compute an expected result, or if a program does not fit.
pub(super) fn run(limit: u64) -> Result<()> {
    let start = Instant::now();
    let package = folder()?.join(PACKAGE);
    let stripped = folder()?.join("stripped");
    for folder in [&package, &stripped] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    llvm::run()?;
    let mut cargo = workspace::cargo()?;
    cargo.args(BUILD.split_whitespace());
    let programs = ordered(&workspace::build(cargo)?.programs)?;
    println!("built after {} s", start.elapsed().as_secs());
    for (name, path) in &programs {
        workspace::run(Command::new("strip").arg("-o").arg(stripped.join(name)).arg(path))?;
    }
    std::os::unix::fs::symlink("kit", stripped.join(KILN))?;
    fs::write(package.join("commit"), commit()?)?;
    copy_libdevice(&package)?;
    let scripts = workspace::root()?.join("benches/gpu");
    let mut expect = Command::new("bash");
    expect.arg(scripts.join("expect.sh")).arg(&stripped).arg(package.join("expected"));
    workspace::run(workspace::without_own_package(&mut expect))?;
    println!("expected results after {} s", start.elapsed().as_secs());
    let archive_limit = limit.saturating_sub(size(&package)?);
    let mut archive = Command::new("python3");
    archive.arg(scripts.join("archive.py")).args(["pack", &archive_limit.to_string()]);
    archive.arg(&package).arg(&stripped).args(programs.iter().map(|(name, _)| name));
    workspace::run(&mut archive)?;
    fs::remove_dir_all(&stripped)?;
    let n_bytes = mib(size(&package)?);
    println!("{}: {n_bytes} after {} s", package.display(), start.elapsed().as_secs());
    Ok(())
}

/// Returns the names in the package and the paths of [`PROGRAMS`], in their order.
///
/// # Errors
/// Returns an error if the build has not created one of them.
fn ordered(built: &[Artifact]) -> Result<Vec<(String, PathBuf)>> {
    let path_of = |name: &str| {
        let path = built
            .iter()
            .find(|artifact: &&Artifact| {
                let package = workspace::package_name(&artifact.package_id.repr);
                format!("{package} {}", artifact.target.name) == name
            })
            .and_then(|artifact| artifact.executable.clone());
        let path =
            path.with_context(|| format!("the build has no program of this package and target: {name}"))?;
        let target = name.split(' ').next_back().unwrap_or(name);
        Ok((target.to_owned(), path.into_std_path_buf()))
    };
    PROGRAMS.iter().map(|name| path_of(name)).collect()
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
            r#"{{"package_id":"path+file:///w/crates/{package}#{package}@0.1.0","manifest_path":"/w/crates/{package}/Cargo.toml",
            "target":{{"name":"{target}","kind":["test"],"crate_types":["bin"],"src_path":"/w/a.rs"}},
            "profile":{{"opt_level":"3","debug_assertions":false,"overflow_checks":false,"test":true}},
            "features":[],"filenames":[],"executable":"/w/target/{package}-{target}-1","fresh":true}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn programs_are_in_the_order_of_the_package_and_none_may_be_missing() {
        let mut built: Vec<Artifact> = PROGRAMS
            .iter()
            .rev()
            .filter_map(|name| name.split_once(' '))
            .map(|(p, t)| artifact(p, t))
            .collect();
        built.insert(0, artifact("kiln-nccl", "device"));
        let programs = ordered(&built).unwrap();
        let kit = ("kit".to_owned(), PathBuf::from("/w/target/kiln-gpu-kit-kit-1"));
        assert_eq!(programs.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["device_tests", "kit"]);
        assert_eq!(programs[1], kit);
        let error = ordered(&built[..built.len() - 1]).unwrap_err().to_string();
        assert_eq!(error, "the build has no program of this package and target: kiln-gpu-kit device_tests");
    }

    #[test]
    fn the_build_names_the_package_of_each_program() {
        for name in PROGRAMS {
            let (package, target) = name.split_once(' ').unwrap();
            assert!(BUILD.contains(&format!("--package {package} ")), "{package}");
            assert!(
                BUILD.contains(&format!("--bin {target}")) || BUILD.contains(&format!("--test {target}"))
            );
        }
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
