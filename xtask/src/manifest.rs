//! The rules for manifests: the workspace's manifest lists each dependency once, with a comment that gives the reason,
//! and every crate inherits it. A package that is its own workspace, such as the fuzz targets, states the reasons
//! itself.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::{Spanned, Table};

use crate::workspace::SourceFile;

/// The dependencies of a section by name. Each name also contains its position in the text.
type Dependencies = BTreeMap<Spanned<String>, Dependency>;

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Dependency {
    Version(String),
    Table {
        version: Option<String>,
        path: Option<String>,
        #[serde(default)]
        workspace: bool,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Sections {
    dependencies: Dependencies,
    dev_dependencies: Dependencies,
    build_dependencies: Dependencies,
    target: BTreeMap<String, Sections>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tables {
    package: Table,
    lints: Table,
    workspace: Option<Workspace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Workspace {
    dependencies: Dependencies,
}

struct Manifest<'a> {
    file: &'a SourceFile,
    sections: Sections,
    tables: Tables,
}

/// Returns a message for each problem of the workspace's manifest and of the crates' manifests.
///
/// # Errors
/// Returns an error if a manifest is not valid TOML.
pub(crate) fn problems(files: &[SourceFile]) -> Result<Vec<String>> {
    let is_manifest = |path: &str| path == "Cargo.toml" || path.ends_with("/Cargo.toml");
    let manifests: Vec<Manifest<'_>> =
        files.iter().filter(|file| is_manifest(&file.path)).map(Manifest::read).collect::<Result<_>>()?;
    let (workspaces, members): (Vec<_>, Vec<_>) =
        manifests.into_iter().partition(|manifest| manifest.tables.workspace.is_some());
    let mut problems = Vec::new();
    for workspace in &workspaces {
        let shared = workspace.tables.workspace.iter().flat_map(|workspace| &workspace.dependencies);
        for (name, dependency) in in_order(shared.chain(workspace.sections.all())) {
            problems.extend(workspace.reasons_and_versions(name, dependency));
            if workspace.file.path == "Cargo.toml"
                && !members
                    .iter()
                    .any(|member: &Manifest<'_>| member.sections.all().iter().any(|(used, _)| *used == name))
            {
                problems.push(format!("{}: no crate uses {name}", workspace.place(name)));
            }
        }
    }
    problems.extend(members.iter().flat_map(Manifest::member_problems));
    Ok(problems)
}

impl Sections {
    /// Returns the normal, dev- and build dependencies, including those of single targets.
    fn all(&self) -> Vec<(&Spanned<String>, &Dependency)> {
        let own = self.dependencies.iter().chain(&self.dev_dependencies).chain(&self.build_dependencies);
        own.chain(self.target.values().flat_map(Self::all)).collect()
    }
}

/// Sorts dependencies by position in the text.
fn in_order<'a>(
    dependencies: impl Iterator<Item = (&'a Spanned<String>, &'a Dependency)>,
) -> Vec<(&'a Spanned<String>, &'a Dependency)> {
    let mut sorted: Vec<_> = dependencies.collect();
    sorted.sort_by_key(|(name, _)| name.span().start);
    sorted
}

impl<'a> Manifest<'a> {
    fn read(file: &'a SourceFile) -> Result<Self> {
        let bad = || format!("cannot parse {} as a manifest", file.path);
        let sections = toml::from_str(&file.text).with_context(bad)?;
        let tables = toml::from_str(&file.text).with_context(bad)?;
        Ok(Self { file, sections, tables })
    }

    /// Returns the position of a name as `path:line`.
    fn place(&self, name: &Spanned<String>) -> String {
        let line_idx = self.file.text[..name.span().start].matches('\n').count();
        format!("{}:{}", self.file.path, line_idx + 1)
    }

    /// Checks that a dependency on an external package has a version and a reason.
    fn reasons_and_versions(&self, name: &Spanned<String>, dependency: &Dependency) -> Vec<String> {
        let version = match dependency {
            Dependency::Table { path: Some(_), .. } => return Vec::new(),
            Dependency::Table { version, .. } => version.as_deref().unwrap_or_default(),
            Dependency::Version(version) => version,
        };
        let mut problems = Vec::new();
        let place = self.place(name);
        let above = self.file.text[..name.span().start].lines().next_back();
        if !above.is_some_and(|line| line.trim_start().starts_with('#')) {
            problems.push(format!("{place}: no comment above {name} gives the reason for the dependency"));
        }
        if !version.contains('.') {
            problems.push(format!("{place}: {name} has no version with a minor number"));
        }
        problems
    }

    fn member_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, dependency) in in_order(self.sections.all().into_iter()) {
            if !matches!(dependency, Dependency::Table { workspace: true, .. }) {
                let place = self.place(name);
                problems.push(format!("{place}: {name} does not come from the workspace's manifest"));
            }
        }
        let path = &self.file.path;
        let package = &self.tables.package;
        if self.tables.lints.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
            problems.push(format!("{path}: [lints] lacks `workspace = true`"));
        }
        for name in ["version", "edition", "rust-version", "license"] {
            if !inherits(package, name) {
                problems.push(format!("{path}: [package] lacks `{name}.workspace = true`"));
            }
        }
        let publish = package.get("publish").and_then(toml::Value::as_bool);
        if publish != Some(false) && !inherits(package, "publish") {
            problems.push(format!(
                "{path}: [package] has neither `publish.workspace = true` nor `publish = false`"
            ));
        }
        problems
    }
}

/// Returns true if a package inherits a field from the workspace's manifest.
fn inherits(package: &Table, name: &str) -> bool {
    let value = package.get(name).and_then(|value| value.get("workspace"));
    value.and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: &str = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [dependencies]\nrayon.workspace = true\nhalf = { workspace = true, features = [\"std\"] }\n\
        [lints]\nworkspace = true\n";

    fn check(root: &str, member: &str) -> Vec<String> {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let root = format!("{root}\n[workspace]\n");
        problems(&[file("Cargo.toml", &root), file("crates/a/Cargo.toml", member)]).unwrap()
    }

    #[test]
    fn accepts_manifests_that_follow_the_rules() {
        let root = "[workspace.dependencies]\na = { path = \"crates/a\" }\n\n# Loops.\nrayon = \"1.11\"\n\
            # Half floats.\nhalf = { version = \"2.7\", features = [\n    \"std\",\n] }\n\
            [profile.release]\ndebug = 0\n";
        let member = MEMBER.replace("[lints]", "[dev-dependencies]\na.workspace = true\n[lints]");
        assert_eq!(check(root, &member), [""; 0]);
        assert_eq!(check(root, &member.replace("publish.workspace = true", "publish = false")), [""; 0]);
    }

    #[test]
    fn finds_dependencies_without_reason_version_or_use() {
        let root =
            "[workspace.dependencies]\n# Loops.\nrayon = \"1\"\nhalf = \"2.7\"\n# Trees.\ntree = \"0.1\"\n";
        assert_eq!(
            check(root, MEMBER),
            [
                "Cargo.toml:3: rayon has no version with a minor number",
                "Cargo.toml:4: no comment above half gives the reason for the dependency",
                "Cargo.toml:6: no crate uses tree",
            ]
        );
    }

    #[test]
    fn finds_dependencies_outside_the_workspace_manifest() {
        let expected = "crates/a/Cargo.toml:9: rayon does not come from the workspace's manifest";
        assert_eq!(check("", &MEMBER.replace("rayon.workspace = true", "rayon = \"1.11\"")), [expected]);
        let on_linux = "[target.'cfg(target_os = \"linux\")'.dependencies]\nlibc = \"0.2\"\n[lints]";
        let expected = "crates/a/Cargo.toml:12: libc does not come from the workspace's manifest";
        assert_eq!(check("", &MEMBER.replace("[lints]", on_linux)), [expected]);
        let section = "[dependencies.libc]\nversion = \"0.2\"\n[lints]";
        let expected = "crates/a/Cargo.toml:11: libc does not come from the workspace's manifest";
        assert_eq!(check("", &MEMBER.replace("[lints]", section)), [expected]);
    }

    #[test]
    fn checks_dependencies_of_a_package_that_is_its_own_workspace() {
        let own = "[workspace]\n[package]\nname = \"fuzz\"\n[dependencies]\n# Loops.\nrayon = \"1.11\"\n\
            a = { path = \"..\" }\nhalf = \"2\"\n";
        assert_eq!(
            check("", own),
            [
                "crates/a/Cargo.toml:8: no comment above half gives the reason for the dependency",
                "crates/a/Cargo.toml:8: half has no version with a minor number",
            ]
        );
    }

    #[test]
    fn finds_crates_that_do_not_inherit_lints_or_edition() {
        let own = MEMBER.replace("[lints]\nworkspace = true\n", "").replace("edition.workspace = true\n", "");
        assert_eq!(
            check("", &own),
            [
                "crates/a/Cargo.toml: [lints] lacks `workspace = true`",
                "crates/a/Cargo.toml: [package] lacks `edition.workspace = true`",
            ]
        );
        let expected =
            "crates/a/Cargo.toml: [package] has neither `publish.workspace = true` nor `publish = false`";
        assert_eq!(check("", &MEMBER.replace("publish.workspace = true", "publish = true")), [expected]);
    }

    #[test]
    fn workspace_manifests_satisfy_the_rules() {
        let files = crate::workspace::text_files(&crate::workspace::paths().unwrap()).unwrap();
        assert_eq!(problems(&files).unwrap(), [""; 0]);
    }
}
