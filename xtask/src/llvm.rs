//! `cargo xtask llvm`: the LLVM that CubeCL's compilers for CPU and CUDA link.
//!
//! The build of `tracel-llvm-bundler` downloads it from its project's releases into the data folder, which
//! `.cargo/config.toml` sets to `target/llvm`. Where those cannot be reached, the same libraries, of the same version of
//! LLVM, stand in two wheels of the Python package index.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::workspace;

/// The folder that the bundler looks for, below the data folder.
const BUNDLE: &str = "tracel/tracel-llvm-23.1.0-4";

/// What it finds in a folder that is whole.
const SENTINEL: &str = ".tracel-llvm-installed";

/// The smallest file that the bundler downloads.
const RELEASE: &str =
    "https://github.com/tracel-ai/tracel-llvm/releases/download/v23.1.0-4/linux-x64.checksums.json";

/// A wheel of the package index.
struct Wheel {
    requirement: &'static str,
    file: &'static str,
    sha256: &'static str,
}

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
    let made = download(&unfinished).and_then(|()| {
        let parts = unfinished.join("bundle");
        for wheel in &WHEELS {
            unpack(&unfinished.join(wheel.file), &parts).with_context(|| wheel.file.to_owned())?;
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

fn download(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let args = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let mut pip = Command::new("python3");
    // Wheels only: a package in source form would run its build before its hash is looked at.
    pip.args(args)
        .args(["--only-binary=:all:", "--dest"])
        .arg(folder)
        .args(WHEELS.map(|wheel| wheel.requirement));
    workspace::run(&mut pip).context("pip cannot download LLVM's wheels")?;
    for wheel in &WHEELS {
        let bytes =
            fs::read(folder.join(wheel.file)).with_context(|| format!("{} did not come", wheel.file))?;
        let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if sha256 != wheel.sha256 {
            bail!("{} has SHA-256 {sha256}, expected {}: it is not used", wheel.file, wheel.sha256);
        }
    }
    Ok(())
}

/// Takes the bundle's part out of a wheel, which is a zip archive.
fn unpack(wheel: &Path, bundle: &Path) -> Result<()> {
    let mut archive = zip::ZipArchive::new(fs::File::open(wheel)?)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let path = entry.enclosed_name().context("a name that leads out of the archive")?;
        let Ok(path) = path.strip_prefix(INSIDE) else { continue };
        let path = bundle.join(path);
        if entry.is_dir() {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(bundle))?;
        io::copy(&mut entry, &mut fs::File::create(&path)?)?;
        #[cfg(unix)]
        if path.parent().is_some_and(|folder| folder.ends_with("bin")) {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}
