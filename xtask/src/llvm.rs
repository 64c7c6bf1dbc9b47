//! `cargo xtask llvm`: installs the LLVM that CubeCL's CPU and CUDA compilers link.
//!
//! The build of `tracel-llvm-bundler` downloads LLVM from that project's releases into the data folder, which
//! `.cargo/config.toml` sets to `target/llvm`. If the releases cannot be reached, this task installs the same libraries
//! of the same version from two wheels of the Python package index.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::wheel::{self, Wheel};

/// The folder in which the bundler expects LLVM, relative to the data folder.
const BUNDLE: &str = "tracel/tracel-llvm-23.1.0-4";

/// The file by which the bundler recognizes a complete folder.
const SENTINEL: &str = ".tracel-llvm-installed";

/// The smallest file that the bundler downloads, which is used to test the connection.
const RELEASE: &str =
    "https://github.com/tracel-ai/tracel-llvm/releases/download/v23.1.0-4/linux-x64.checksums.json";

const WHEELS: [Wheel; 2] = [
    Wheel {
        requirement: "mlc-llvm-static==23.1.1.post0",
        file: "mlc_llvm_static-23.1.1.post0-py3-none-manylinux_2_28_x86_64.whl",
        sha256: "dcfec888abfaa418be77d41af585805f31463584cf9c90582992c00f392c1ac5",
    },
    Wheel {
        requirement: "mlc-llvm-static-extra-targets==23.1.1.post0",
        file: "mlc_llvm_static_extra_targets-23.1.1.post0-py3-none-manylinux_2_28_x86_64.whl",
        sha256: "c36e834d9a4e9cf9759f27fece65711ece7a2fc2b5a96dbb15d66f5e9e787929",
    },
];

/// The folder of the bundle inside the wheels.
const INSIDE: &str = "mlc_llvm_static/static/";

/// Installs LLVM if one of these features needs it. `features` is a list that is separated by commas.
pub(crate) fn run_for(features: &str) -> Result<()> {
    if features.split(',').any(|feature| ["cuda", "cube-cpu"].contains(&feature)) { run() } else { Ok(()) }
}

/// Installs LLVM for builds with `cube-cpu` or `cuda`, unless it is installed or the build can download it.
///
/// # Errors
/// Returns an error if `XDG_DATA_HOME` is not set, or if the installation from the package index fails.
pub(crate) fn run() -> Result<()> {
    let data_home = data_home()?;
    let bundle = data_home.join(BUNDLE);
    if bundle.join(SENTINEL).exists() {
        println!("LLVM is in {}", bundle.display());
        return Ok(());
    }
    if releases_can_be_reached() {
        println!("LLVM is not installed yet: the build will download it");
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!(
            "LLVM: {RELEASE} cannot be reached, and the Python package index has LLVM only for Linux on x86-64"
        );
        return Ok(());
    }
    println!("LLVM: the releases cannot be reached, installing from the Python package index");
    install(&data_home, &bundle)?;
    println!("LLVM is in {}", bundle.display());
    Ok(())
}

/// Returns the data folder: `XDG_DATA_HOME`, which `.cargo/config.toml` sets for cargo's processes.
fn data_home() -> Result<PathBuf> {
    let data_home = std::env::var_os("XDG_DATA_HOME").filter(|path| !path.is_empty());
    data_home.map(PathBuf::from).context("XDG_DATA_HOME is not set: run this as `cargo xtask llvm`")
}

fn releases_can_be_reached() -> bool {
    let args = ["--fail", "--silent", "--head", "--location", "--max-time", "20", RELEASE];
    let status = Command::new("curl").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Installs LLVM from the wheels. The bundle is assembled under a temporary name, so that no build finds an incomplete
/// bundle.
fn install(data_home: &Path, bundle: &Path) -> Result<()> {
    let unfinished = data_home.join(format!("unfinished-{}", std::process::id()));
    let made = wheel::download(&WHEELS, &unfinished).and_then(|()| {
        let parts = unfinished.join("bundle");
        for wheel in &WHEELS {
            wheel.unpack(&unfinished, INSIDE, &parts)?;
        }
        fs::write(parts.join(SENTINEL), "")?;
        fs::create_dir_all(bundle.parent().expect("the bundle's path should have a parent folder"))?;
        if bundle.exists() && !bundle.join(SENTINEL).exists() {
            // The folder lacks the sentinel, so an earlier download was interrupted.
            fs::remove_dir_all(bundle).with_context(|| format!("cannot remove {}", bundle.display()))?;
        }
        match fs::rename(&parts, bundle) {
            // Another process has installed LLVM in the meantime.
            Err(_) if bundle.join(SENTINEL).exists() => Ok(()),
            renamed => renamed.with_context(|| format!("cannot create {}", bundle.display())),
        }
    });
    // A leftover folder is harmless, because the next attempt uses another one.
    let _ = fs::remove_dir_all(&unfinished);
    made
}
