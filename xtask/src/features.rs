//! One feature set: what `cargo run` and `cargo doc` build must be what `cargo test` builds, or everything
//! above a package that differs is built a second time.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::{test, workspace};

/// Packages that are built with other features outside tests than in them, one sentence each.
pub(crate) fn problems() -> Result<Vec<String>> {
    Ok(differences(&packages("normal,build")?, &packages("normal,build,dev")?))
}

/// `name v1.2.3 [feature,feature]`, one for each way in which a package of the whole workspace is built.
fn packages(edges: &str) -> Result<BTreeSet<String>> {
    // `cargo metadata` has no features by kind of dependency.
    let args = ["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]", "--edges", edges];
    let selection = [&test::PACKAGES[..], &["--features", test::DEFAULT_FEATURES]].concat();
    let list = workspace::stdout_of(workspace::cargo()?.args(args).args(selection))?;
    // A package that was listed before is marked with a star.
    Ok(list.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

fn differences(run: &BTreeSet<String>, test: &BTreeSet<String>) -> Vec<String> {
    let say =
        |package: &String| format!("{package} is built outside tests only: a dev-dependency adds features");
    run.difference(test).map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_with_more_features_in_tests_is_found() {
        let set = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<BTreeSet<_>>();
        let run = set(&["either v1.0.0 []", "rayon v1.11.0 []"]);
        let test = set(&["either v1.0.0 [use_std]", "rayon v1.11.0 []", "tempfile v3.0.0 []"]);
        let found = differences(&run, &test);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("either v1.0.0 [] "));
        assert_eq!(differences(&run, &run), [""; 0]);
    }
}
