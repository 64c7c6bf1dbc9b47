//! Rules of the manifests: each dependency is named once, in the workspace's manifest, with a comment that gives the
//! reason, and every crate takes it from there. A package that is a workspace of its own, as the fuzz targets are, gives
//! the reasons itself.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::{Spanned, Table};

use crate::workspace::SourceFile;

/// The dependencies of a section, by name and by the place of the name in the text.
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

/// Everything that is wrong with the workspace's manifest or a crate's, one sentence each.
///
/// # Errors
/// For a manifest that is no TOML.
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
            let is_used = |member: &Manifest<'_>| member.sections.all().iter().any(|(used, _)| *used == name);
            if workspace.file.path == "Cargo.toml" && !members.iter().any(is_used) {
                problems.push(format!("{}: no crate uses {name}", workspace.place(name)));
            }
        }
    }
    problems.extend(members.iter().flat_map(Manifest::member_problems));
    Ok(problems)
}

impl Sections {
    /// The dependencies of all kinds and targets.
    fn all(&self) -> Vec<(&Spanned<String>, &Dependency)> {
        let own = self.dependencies.iter().chain(&self.dev_dependencies).chain(&self.build_dependencies);
        own.chain(self.target.values().flat_map(Self::all)).collect()
    }
}

/// Sorts by the place in the text.
fn in_order<'a>(
    dependencies: impl Iterator<Item = (&'a Spanned<String>, &'a Dependency)>,
) -> Vec<(&'a Spanned<String>, &'a Dependency)> {
    let mut sorted: Vec<_> = dependencies.collect();
    sorted.sort_by_key(|(name, _)| name.span().start);
    sorted
}

impl<'a> Manifest<'a> {
    fn read(file: &'a SourceFile) -> Result<Self> {
        let bad = || format!("{} cannot be read as a manifest", file.path);
        let sections = toml::from_str(&file.text).with_context(bad)?;
        let tables = toml::from_str(&file.text).with_context(bad)?;
        Ok(Self { file, sections, tables })
    }

    /// `path:line` of a name.
    fn place(&self, name: &Spanned<String>) -> String {
        let line_idx = self.file.text[..name.span().start].matches('\n').count();
        format!("{}:{}", self.file.path, line_idx + 1)
    }

    /// A dependency on somebody else's package needs a version and a reason.
    fn reasons_and_versions(&self, name: &Spanned<String>, dependency: &Dependency) -> Vec<String> {
        let version = match dependency {
            Dependency::Table { path: Some(_), .. } => return Vec::new(),
            Dependency::Table { version, .. } => version.as_deref().unwrap_or_default(),
            Dependency::Version(version) => version,
        };
        let (mut problems, place) = (Vec::new(), self.place(name));
        let above = self.file.text[..name.span().start].lines().next_back();
        if !above.is_some_and(|line| line.trim_start().starts_with('#')) {
            problems.push(format!("{place}: no comment says why {name} is there"));
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
        let (path, package) = (&self.file.path, &self.tables.package);
        if self.tables.lints.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
            problems.push(format!("{path}: [lints] does not say `workspace = true`"));
        }
        for name in ["version", "edition", "rust-version", "license"] {
            if !inherits(package, name) {
                problems.push(format!("{path}: [package] does not say `{name}.workspace = true`"));
            }
        }
        let publish = package.get("publish").and_then(toml::Value::as_bool);
        if publish != Some(false) && !inherits(package, "publish") {
            problems.push(format!(
                "{path}: [package] says neither `publish.workspace = true` nor `publish = false`"
            ));
        }
        problems
    }
}

/// Whether a package takes a field from the workspace's manifest.
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
    fn tidy_manifests_have_no_problems() {
        let root = "[workspace.dependencies]\na = { path = \"crates/a\" }\n\n# Loops.\nrayon = \"1.11\"\n\
            # Half floats.\nhalf = { version = \"2.7\", features = [\n    \"std\",\n] }\n\
            [profile.release]\ndebug = 0\n";
        let member = MEMBER.replace("[lints]", "[dev-dependencies]\na.workspace = true\n[lints]");
        assert_eq!(check(root, &member), [""; 0]);
        assert_eq!(check(root, &member.replace("publish.workspace = true", "publish = false")), [""; 0]);
    }

    #[test]
    fn an_unexplained_a_vague_and_an_unused_dependency_are_found() {
        let root =
            "[workspace.dependencies]\n# Loops.\nrayon = \"1\"\nhalf = \"2.7\"\n# Trees.\ntree = \"0.1\"\n";
        assert_eq!(
            check(root, MEMBER),
            [
                "Cargo.toml:3: rayon has no version with a minor number",
                "Cargo.toml:4: no comment says why half is there",
                "Cargo.toml:6: no crate uses tree",
            ]
        );
    }

    #[test]
    fn a_dependency_beside_the_workspace_manifest_is_found() {
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
    fn a_package_that_is_its_own_workspace_says_why_itself() {
        let own = "[workspace]\n[package]\nname = \"fuzz\"\n[dependencies]\n# Loops.\nrayon = \"1.11\"\n\
            a = { path = \"..\" }\nhalf = \"2\"\n";
        assert_eq!(
            check("", own),
            [
                "crates/a/Cargo.toml:8: no comment says why half is there",
                "crates/a/Cargo.toml:8: half has no version with a minor number",
            ]
        );
    }

    #[test]
    fn a_crate_with_its_own_lints_or_version_is_found() {
        let own = MEMBER.replace("[lints]\nworkspace = true\n", "").replace("edition.workspace = true\n", "");
        assert_eq!(
            check("", &own),
            [
                "crates/a/Cargo.toml: [lints] does not say `workspace = true`",
                "crates/a/Cargo.toml: [package] does not say `edition.workspace = true`",
            ]
        );
        let expected =
            "crates/a/Cargo.toml: [package] says neither `publish.workspace = true` nor `publish = false`";
        assert_eq!(check("", &MEMBER.replace("publish.workspace = true", "publish = true")), [expected]);
    }

    #[test]
    fn the_manifests_of_the_workspace_keep_the_rules() {
        let files = crate::workspace::text_files(&crate::workspace::paths().unwrap()).unwrap();
        assert_eq!(problems(&files).unwrap(), [""; 0]);
    }
}
