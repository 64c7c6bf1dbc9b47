//! The check that `cargo run` and `cargo doc` build packages with the same features as `cargo test`. Otherwise a
//! package whose features differ, and every package that depends on it, is built twice.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::{test, workspace};

/// Returns a message for each package whose features differ between tests and other builds.
pub(crate) fn problems() -> Result<Vec<String>> {
    Ok(differences(&packages("normal,build")?, &packages("normal,build,dev")?))
}

/// Returns `name v1.2.3 [feature,feature]` for each package and feature set that the workspace builds if it follows the
/// kinds of dependencies in `edges`, such as `normal,build`.
fn packages(edges: &str) -> Result<BTreeSet<String>> {
    // `cargo tree` is used, because `cargo metadata` does not list features by kind of dependency.
    let args = ["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]", "--edges", edges];
    let selection = [&test::PACKAGES[..], &["--features", test::DEFAULT_FEATURES]].concat();
    let list = workspace::stdout_of(workspace::cargo()?.args(args).args(selection))?;
    // `cargo tree` marks packages that it has listed before with a star.
    Ok(list.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

fn differences(run: &BTreeSet<String>, test: &BTreeSet<String>) -> Vec<String> {
    run.difference(test)
        .map(|package: &String| {
            format!(
                "{package} is built with these features outside tests only: a dev-dependency adds features"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_packages_with_more_features_in_tests() {
        let set = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<BTreeSet<_>>();
        let run = set(&["either v1.0.0 []", "rayon v1.11.0 []"]);
        let test = set(&["either v1.0.0 [use_std]", "rayon v1.11.0 []", "tempfile v3.0.0 []"]);
        let found = differences(&run, &test);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("either v1.0.0 [] "));
        assert_eq!(differences(&run, &run), [""; 0]);
    }
}
