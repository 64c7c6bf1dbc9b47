//! Rules of the manifests, read as text: each dependency is named once, in the workspace's manifest,
//! with a word on why, and every crate takes it from there. A package that is a workspace of its own, as the
//! fuzz targets are, says why itself.

use crate::workspace::SourceFile;

/// Everything that is wrong with the workspace's manifest or a crate's, one sentence each.
pub(crate) fn problems(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_own = |file: &&SourceFile| file.text.lines().any(|line| line.trim() == "[workspace]");
    let below = || files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let members: Vec<&SourceFile> = below().filter(|file| !is_own(file)).collect();
    for file in below().filter(is_own) {
        let all = entries(&file.text);
        let dependencies = all.iter().filter(|entry| entry.section.ends_with("dependencies"));
        problems.extend(dependencies.flat_map(|entry| dependency_problems(&file.path, entry)));
    }
    for file in files.iter().filter(|file| file.path == "Cargo.toml") {
        problems.extend(workspace_problems(file, &members));
    }
    for file in members {
        problems.extend(member_problems(file));
    }
    problems
}

/// A dependency line and where it stands.
struct Entry<'a> {
    section: &'a str,
    name: &'a str,
    value: &'a str,
    /// Counted from one.
    line_no: usize,
    /// Whether the line above is a comment.
    has_comment: bool,
}

/// The `name = value` lines of a manifest; a value that goes on over several lines counts as its first.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut found = Vec::new();
    let (mut section, mut has_comment, mut depth) = ("", false, 0);
    for (line_idx, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_comment = line.starts_with('#');
        if depth == 0 && line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if !is_comment {
            if let (0, Some((name, value))) = (depth, line.split_once('=')) {
                let (name, value) = (name.trim(), value.trim());
                found.push(Entry { section, name, value, line_no: line_idx + 1, has_comment });
            }
            let balance =
                |open, close| line.matches(open).count() as i64 - line.matches(close).count() as i64;
            depth += balance('[', ']') + balance('{', '}');
        }
        has_comment = is_comment;
    }
    found
}

fn workspace_problems(manifest: &SourceFile, members: &[&SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    let all = entries(&manifest.text);
    for entry in all.iter().filter(|entry| entry.section == "workspace.dependencies") {
        let Entry { name, line_no, .. } = entry;
        problems.extend(dependency_problems("Cargo.toml", entry));
        let uses =
            |member: &&&SourceFile| entries(&member.text).iter().any(|used| dependency_name(used) == *name);
        if members.iter().find(uses).is_none() {
            problems.push(format!("Cargo.toml:{line_no}: no crate uses {name}"));
        }
    }
    problems
}

/// A dependency of somebody else's needs a version and a reason.
fn dependency_problems(path: &str, entry: &Entry<'_>) -> Vec<String> {
    let Entry { name, value, line_no, .. } = entry;
    let mut problems = Vec::new();
    if value.contains("path =") || value.contains("path=") {
        return problems;
    }
    if !entry.has_comment {
        problems.push(format!("{path}:{line_no}: no comment says why {name} is there"));
    }
    if !version_of(value).is_some_and(|version| version.contains('.')) {
        problems.push(format!("{path}:{line_no}: {name} has no version with a minor number"));
    }
    problems
}

/// The version of `"1.2"` or `{ version = "1.2", … }`.
fn version_of(value: &str) -> Option<&str> {
    let version = match value.split_once("version") {
        Some((_, rest)) => rest.trim_start().strip_prefix('=')?.trim_start(),
        None => value,
    };
    version.strip_prefix('"')?.split('"').next()
}

/// `rayon` for `rayon.workspace = true` as for `rayon = { workspace = true }`.
fn dependency_name<'a>(entry: &Entry<'a>) -> &'a str {
    entry.name.strip_suffix(".workspace").unwrap_or(entry.name)
}

fn member_problems(manifest: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    let path = &manifest.path;
    let all = entries(&manifest.text);
    for entry in &all {
        let Entry { section, name, value, line_no, .. } = entry;
        let inherits = name.ends_with(".workspace") && *value == "true" || value.contains("workspace = true");
        if section.ends_with("dependencies") && !inherits {
            problems.push(format!("{path}:{line_no}: {name} does not come from the workspace's manifest"));
        }
        if section.contains("dependencies.") {
            problems.push(format!("{path}:{line_no}: write a dependency as one line, not as a section"));
        }
    }
    let has = |section: &str, name: &str| {
        all.iter().any(|entry| entry.section == section && entry.name == name && entry.value == "true")
    };
    if !has("lints", "workspace") {
        problems.push(format!("{path}: [lints] does not say `workspace = true`"));
    }
    for name in ["version", "edition", "rust-version", "license", "publish"] {
        if !has("package", &format!("{name}.workspace")) {
            problems.push(format!("{path}: [package] does not say `{name}.workspace = true`"));
        }
    }
    problems
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
        problems(&[file("Cargo.toml", root), file("crates/a/Cargo.toml", member)])
    }

    #[test]
    fn tidy_manifests_have_no_problems() {
        let root = "[workspace.dependencies]\na = { path = \"crates/a\" }\n\n# Loops.\nrayon = \"1.11\"\n\
            # Half floats.\nhalf = { version = \"2.7\", features = [\n    \"std\",\n] }\n\
            [profile.release]\ndebug = 0\n";
        let member = MEMBER.replace("[lints]", "[dev-dependencies]\na.workspace = true\n[lints]");
        assert_eq!(check(root, &member), [""; 0]);
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
        let section = MEMBER.replace("[dependencies]", "[dependencies.rayon]");
        assert!(check("", &section).iter().any(|problem| problem.contains("not as a section")));
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
    }
}
