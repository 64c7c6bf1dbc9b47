//! Records the commit that the program is built from, for `kiln --version`.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=KILN_COMMIT={commit}");
    // `logs/HEAD` changes with each commit. Without a repository, the commit is never updated.
    match git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        Some(path) => println!("cargo:rerun-if-changed={path}"),
        None => println!("cargo:rerun-if-changed=build.rs"),
    }
}
