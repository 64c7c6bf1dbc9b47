//! Packs the program `kiln` as one static executable, for machines that have no Rust and no libraries.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the archive. By default `dist` in the target directory.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also runs the program in a root folder that contains nothing else, which only root may do.
    #[arg(long)]
    try_out: bool,
}

/// The target of the C library that is made to be linked statically.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// The target of the C library of most distributions.
const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// The files beside the program, which come from the workspace's folder.
const DOCUMENTS: [&str; 4] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.md"];

/// The shells with completions, and the names of the files.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "kiln.bash"), ("zsh", "_kiln"), ("fish", "kiln.fish")];

/// Builds the program, checks that it is static, and packs it with its licences and completions.
pub(crate) fn run(args: &Args) -> Result<()> {
    let target = if has_musl()? { MUSL } else { GLIBC };
    let program = build(target)?;
    let executable = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    ensure!(is_static(&executable)?, "{} needs a dynamic loader: the link was not static", program.display());
    let metadata = workspace::metadata()?;
    let cli = metadata.packages.iter().find(|package| package.name.as_str() == "kiln-cli");
    let version = &cli.context("the workspace has no package kiln-cli")?.version;
    let name = format!("kiln-{version}-x86_64-linux");
    let out = match &args.out {
        Some(out) => out.clone(),
        None => metadata.target_directory.join("dist").into_std_path_buf(),
    };
    let folder = out.join(&name);
    write_folder(&folder, &program)?;
    let archive = pack(&out, &name)?;
    println!("{}: {} bytes, for {target}", archive.display(), fs::metadata(&archive)?.len());
    if args.try_out { try_out(&folder) } else { Ok(()) }
}

/// Returns true if the Rust library and the C compiler of [`MUSL`] are installed.
fn has_musl() -> Result<bool> {
    let libraries =
        workspace::stdout_of(Command::new("rustc").args(["--print", "target-libdir", "--target", MUSL]))?;
    let compiler = Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).status();
    Ok(Path::new(libraries.trim()).exists() && compiler.is_ok_and(|status| status.success()))
}

/// Builds the program for a target and returns its path.
fn build(target: &str) -> Result<PathBuf> {
    let mut cargo = workspace::cargo()?;
    cargo.args(["build", "--release", "--locked", "--package", "kiln-cli", "--bin", "kiln"]);
    cargo.args(["--target", target]);
    if target == MUSL {
        cargo.env("CC_x86_64_unknown_linux_musl", "musl-gcc");
    } else {
        // A target of its own keeps the flag from build scripts and procedural macros, which are loaded dynamically.
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    }
    let built = workspace::build(cargo)?;
    let program = built.programs.into_iter().find_map(|artifact| artifact.executable);
    Ok(program.context("the build has no program")?.into_std_path_buf())
}

/// Writes the files of the archive to a new folder.
fn write_folder(folder: &Path, program: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let completions = folder.join("completions");
    fs::create_dir_all(&completions).with_context(|| format!("cannot create {}", completions.display()))?;
    fs::copy(program, folder.join("kiln"))?;
    let root = workspace::root()?;
    for document in DOCUMENTS {
        fs::copy(root.join(document), folder.join(document))
            .with_context(|| format!("cannot copy {document}"))?;
    }
    for (shell, file) in COMPLETIONS {
        let script = workspace::stdout_of(Command::new(program).args(["completions", shell]))?;
        fs::write(completions.join(file), script)?;
    }
    Ok(())
}

/// Packs a folder of `out` beside it, with a checksum for `sha256sum --check`. The same files give the same bytes.
fn pack(out: &Path, name: &str) -> Result<PathBuf> {
    let file = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.current_dir(out);
    tar.args([
        "--create",
        "--gzip",
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    workspace::run(tar.args(["--file", &file, name]))?;
    let archive = out.join(&file);
    let checksum = workspace::sha256(&fs::read(&archive)?);
    let mut list = fs::File::create(out.join(format!("{file}.sha256")))?;
    writeln!(list, "{checksum}  {file}")?;
    Ok(archive)
}

/// Trains in a root folder that contains the program only.
fn try_out(folder: &Path) -> Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let root = folder.with_file_name(format!("{name}-root"));
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(&root)?;
    fs::copy(folder.join("kiln"), root.join("kiln"))?;
    let mut chroot = Command::new("chroot");
    workspace::run(chroot.arg(&root).args(["/kiln", "train", "--data", "debian-packages", "--out", "/run"]))?;
    println!("it trained in {}", root.display());
    Ok(())
}

/// Returns true if an executable of 64 bits names no dynamic loader.
///
/// # Errors
/// Returns an error for other files.
fn is_static(executable: &[u8]) -> Result<bool> {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, n_bytes: usize| -> Result<u64> {
        let bytes = executable.get(at..at + n_bytes).context("the executable is truncated")?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    ensure!(
        executable.starts_with(b"\x7fELF\x02\x01"),
        "the executable is not ELF of 64 bits, little-endian"
    );
    let first_segment = usize::try_from(number(0x20, 8)?)?;
    let segment_bytes = usize::try_from(number(0x36, 2)?)?;
    for segment in 0..usize::try_from(number(0x38, 2)?)? {
        if number(first_segment + segment * segment_bytes, 4)? == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an executable whose segments have these types.
    fn executable(segments: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[0x20] = 64;
        bytes[0x36] = 56;
        bytes[0x38] = segments.len() as u8;
        for segment in segments {
            bytes.extend(segment.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn an_executable_with_an_interpreter_is_dynamic() {
        assert!(is_static(&executable(&[1, 2, 6])).unwrap());
        assert!(!is_static(&executable(&[6, 3, 1])).unwrap());
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own).unwrap());
    }

    #[test]
    fn other_files_are_errors() {
        let whole = executable(&[1]);
        for (bytes, message) in [
            (&b"#!/bin/sh"[..], "the executable is not ELF of 64 bits, little-endian"),
            (&whole[..40], "the executable is truncated"),
            (&whole[..66], "the executable is truncated"),
        ] {
            assert_eq!(is_static(bytes).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_packed_folder_has_the_same_bytes_and_its_checksum() {
        let out = tempfile::tempdir().unwrap();
        fs::create_dir(out.path().join("kiln-1")).unwrap();
        fs::write(out.path().join("kiln-1/kiln"), "program").unwrap();
        let first = fs::read(pack(out.path(), "kiln-1").unwrap()).unwrap();
        fs::write(out.path().join("kiln-1/kiln"), "program").unwrap();
        let second = fs::read(pack(out.path(), "kiln-1").unwrap()).unwrap();
        assert!(first == second);
        let mut check = Command::new("sha256sum");
        check.args(["--check", "--status", "kiln-1.tar.gz.sha256"]).current_dir(out.path());
        assert!(check.status().unwrap().success());
    }
}
