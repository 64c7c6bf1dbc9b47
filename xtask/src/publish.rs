//! Checks that every library crate can be published: its manifest has the metadata of a registry, `cargo package`
//! accepts it, and it builds without the rest of the workspace.

use std::collections::BTreeMap;

use anyhow::Result;
use cargo_metadata::{DependencyKind, Metadata, Package};

use crate::exceptions::beyond;
use crate::{arrows, workspace};

/// The crates whose manifests may be incomplete. The list may only shrink.
const INCOMPLETE: &[&str] = &[];

/// Returns a message for each published crate whose manifest is incomplete, and for each dependency of a published
/// crate on a private crate. Dev-dependencies may be private.
pub(crate) fn problems(metadata: &Metadata) -> Vec<String> {
    let mut problems = beyond(incomplete(metadata), INCOMPLETE, "INCOMPLETE in xtask/src/publish.rs");
    let packages = metadata.workspace_packages();
    let private: Vec<&str> = packages
        .iter()
        .filter(|package| !is_published(package))
        .map(|package| package.name.as_str())
        .collect();
    for package in packages.iter().filter(|package| is_published(package)) {
        // Cargo removes development dependencies without a version from published manifests.
        let needed = package.dependencies.iter().filter(|other| other.kind != DependencyKind::Development);
        for other in needed.filter(|other| private.contains(&other.name.as_str())) {
            problems.push(format!(
                "{} is published but needs {}, which is not published",
                package.name, other.name
            ));
        }
    }
    problems
}

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

fn incomplete(metadata: &Metadata) -> BTreeMap<String, String> {
    let mut incomplete = BTreeMap::new();
    for package in metadata.workspace_packages().into_iter().filter(|package| is_published(package)) {
        let fields = [
            ("description", package.description.is_some()),
            ("keywords", !package.keywords.is_empty()),
            ("categories", !package.categories.is_empty()),
            ("README.md", package.readme.is_some()),
        ];
        let missing: Vec<&str> =
            fields.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            let message = format!("{} has no {}", package.name, missing.join(", no "));
            incomplete.insert(package.name.to_string(), message);
        }
    }
    incomplete
}

/// Runs `cargo package` for every published crate, without building the crates.
pub(crate) fn package(metadata: &Metadata) -> Result<()> {
    let mut cargo = workspace::cargo()?;
    cargo.args("package --quiet --locked --offline --no-verify --allow-dirty".split(' '));
    for package in metadata.workspace_packages().into_iter().filter(|package| is_published(package)) {
        cargo.args(["--package", package.name.as_str()]);
    }
    workspace::run(&mut cargo)
}

/// Builds each published crate in a cargo command of its own, except the crates that depend on a tensor library, which
/// the other steps build with all features. A crate is built with its default features and, if it has default features,
/// also without them.
pub(crate) fn build_alone(metadata: &Metadata) -> Result<()> {
    for package in metadata.workspace_packages().into_iter().filter(|package| is_published(package)) {
        if arrows::builds_tensors(metadata, &package.name) {
            continue;
        }
        for flags in feature_flags(package) {
            let mut check = workspace::cargo()?;
            check.args([
                "check",
                "--quiet",
                "--profile",
                "tests",
                "--locked",
                "--package",
                package.name.as_str(),
            ]);
            workspace::run(check.args(flags))?;
        }
    }
    Ok(())
}

/// Returns cargo's flag for each feature set to build: no flag for the default features and, if there are default
/// features, `--no-default-features`.
fn feature_flags(package: &Package) -> Vec<Option<&'static str>> {
    let has_default = package.features.get("default").is_some_and(|default| !default.is_empty());
    if has_default { vec![None, Some("--no-default-features")] } else { vec![None] }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workspace::tests::{dependency, metadata_of, package};

    fn complete(name: &str, mut entries: Value) -> Value {
        let fields = json!({ "description": "A", "keywords": ["a"], "categories": ["science"], "readme": "README.md" });
        for (key, value) in fields.as_object().unwrap() {
            entries.as_object_mut().unwrap().entry(key).or_insert(value.clone());
        }
        package(name, entries)
    }

    #[test]
    fn the_manifests_of_the_workspace_are_complete() {
        assert_eq!(problems(&workspace::metadata().unwrap()), [""; 0]);
    }

    #[test]
    fn finds_incomplete_manifests_of_published_crates() {
        let lacking = json!({ "keywords": [], "readme": null });
        let private = package("c", json!({ "publish": [] }));
        let packages = vec![complete("a", json!({})), complete("b", lacking), private];
        let metadata = metadata_of(packages, &["a", "b", "c"], Vec::new());
        assert_eq!(incomplete(&metadata), [("b".into(), "b has no keywords, no README.md".into())].into());
    }

    #[test]
    fn finds_published_crates_that_need_private_ones() {
        let on = |kind: Option<&str>| json!({ "dependencies": [dependency("c", json!({ "kind": kind }))] });
        let private = package("c", json!({ "publish": [] }));
        let packages = vec![complete("a", on(None)), complete("b", on(Some("dev"))), private];
        let problems = problems(&metadata_of(packages, &["a", "b", "c"], Vec::new()));
        let of_c: Vec<&String> = problems.iter().filter(|problem| problem.contains(" needs c")).collect();
        assert_eq!(of_c, ["a is published but needs c, which is not published"]);
    }

    #[test]
    fn builds_crates_with_and_without_default_features() {
        let flags = |features: Value| {
            let package = serde_json::from_value(package("a", json!({ "features": features }))).unwrap();
            feature_flags(&package)
        };
        assert_eq!(flags(json!({ "tls": [] })), [None]);
        assert_eq!(flags(json!({ "default": ["tls"], "tls": [] })), [None, Some("--no-default-features")]);
    }
}
