//! Readers of `Packages` indices: from a file, from standard input or from apt.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;

/// A `Packages` index and its origin.
#[derive(Debug)]
pub(crate) struct Index {
    /// The origin of the index: a file, standard input or apt.
    pub(crate) origin: String,
    /// The name of the distribution, or `as in the file` if the name is unknown.
    pub(crate) distribution: &'static str,
    /// The text of the index.
    pub(crate) text: String,
}

impl Index {
    /// Reads a file, or standard input for `-`. Gzip is detected by the first bytes.
    pub(crate) fn from_file(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        } else {
            bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            GzDecoder::new(&bytes[..])
                .read_to_end(&mut plain)
                .with_context(|| format!("cannot decompress {}", path.display()))?;
            bytes = plain;
        }
        let origin = match path.file_name() {
            Some(name) if path != Path::new("-") => format!("the file {}", name.to_string_lossy()),
            _ => "standard input".to_owned(),
        };
        let text = String::from_utf8(bytes).with_context(|| format!("{origin} is not UTF-8"))?;
        Ok(Self { origin, distribution: "as in the file", text })
    }

    /// Reads the index of Debian bookworm main/amd64 that apt stores on this machine.
    ///
    /// `apt-cache dumpavail` is not used, because it mixes in bookworm-updates, bookworm-security and all third-party
    /// repositories, and its stanzas do not contain their origin.
    pub(crate) fn from_apt() -> Result<Self> {
        let filters = [
            "Created-By: Packages",
            "Origin: Debian",
            "Codename: bookworm",
            "Component: main",
            "Architecture: amd64",
        ];
        let mut list = Command::new("apt-get");
        list.args(["indextargets", "--format", "$(FILENAME)"]).args(filters);
        let listed = output(list)?;
        let mut files = listed.lines().filter(|line| !line.is_empty());
        let (Some(file), None) = (files.next(), files.next()) else {
            bail!(
                "expected a single apt index of Debian bookworm main/amd64, got {listed:?}: name an index with --packages"
            );
        };
        let mut cat = Command::new("/usr/lib/apt/apt-helper");
        cat.args(["cat-file", file]);
        Ok(Self {
            origin: "apt's index of Debian bookworm main/amd64".to_owned(),
            distribution: "Debian 12 (bookworm)",
            text: output(cat)?,
        })
    }
}

fn output(mut command: Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}: name an index with --packages"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed with {}: {}", output.status, stderr.trim());
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}
