//! The check of licences, sources and bans: applies the rules of `deny.toml` to all packages that any feature needs.
//!
//! The file has the format of cargo-deny, which can apply the same rules. This check only needs `cargo metadata`. It
//! rejects unknown keys, so the file cannot contain rules that only cargo-deny applies.

use anyhow::{Context, Result};
use cargo_metadata::semver::VersionReq;
use cargo_metadata::{Dependency, Metadata, Package};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::license;
use crate::workspace;

/// The path of the rules, relative to the workspace's folder.
pub(crate) const PATH: &str = "deny.toml";

/// The rules of `deny.toml`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) graph: Graph,
    pub(crate) licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

/// The selection of the packages to check.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Graph {
    /// The target triples for which the programs are built.
    pub(crate) targets: Vec<String>,
    #[serde(rename = "all-features")]
    _all_features: True,
}

/// The licences that packages may have.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Licenses {
    /// The licences that any package may have.
    allow: Vec<String>,
    /// The licences that single packages may have in addition to `allow`.
    #[serde(default)]
    exceptions: Vec<Exception>,
    /// The licences of single packages, which replace those in their manifests.
    #[serde(default)]
    clarify: Vec<Clarification>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Clarification {
    #[serde(rename = "crate")]
    name: String,
    expression: String,
    #[serde(rename = "license-files")]
    _license_files: Vec<IgnoredAny>,
}

/// The banned packages, and the rules for versions of dependencies.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bans {
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Allow,
    #[serde(rename = "wildcards")]
    _wildcards: Deny,
    /// Always true, because dependencies on the test fixtures have a path and no version.
    #[serde(rename = "allow-wildcard-paths")]
    _allow_wildcard_paths: True,
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// The sources that packages may come from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Sources {
    #[serde(rename = "unknown-registry")]
    _unknown_registry: Deny,
    #[serde(rename = "unknown-git")]
    _unknown_git: Deny,
    allow_registry: Vec<String>,
    allow_git: Vec<String>,
}

/// The value of keys for which this check supports only `deny`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Allow {
    Allow,
}

/// The value of boolean keys for which this check supports only `true`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "bool")]
struct True;

impl TryFrom<bool> for True {
    type Error = &'static str;

    fn try_from(is_set: bool) -> std::result::Result<Self, Self::Error> {
        if is_set { Ok(Self) } else { Err("expected `true`: `cargo xtask check` supports no other value") }
    }
}

impl Rules {
    /// Reads the rules of the workspace.
    pub(crate) fn load() -> Result<Self> {
        let path = workspace::root()?.join(PATH);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {PATH}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).with_context(|| {
            format!("{PATH} is invalid or has rules that `cargo xtask check` does not support")
        })
    }
}

impl Licenses {
    /// Returns the licence of a package: its clarification if there is one, otherwise the licence in its manifest.
    pub(crate) fn stated<'a>(&'a self, name: &str, license: Option<&'a str>) -> Option<&'a str> {
        let clarified = self.clarify.iter().find(|clarified| clarified.name == name);
        clarified.map(|clarified| &*clarified.expression).or(license)
    }

    fn problem(&self, package: &Package) -> Option<String> {
        let Package { name, version, .. } = package;
        let Some(expression) = self.stated(name, package.license.as_deref()) else {
            return Some(format!(
                "{name} {version} states no licence: read its files, and add it to [[licenses.clarify]]"
            ));
        };
        let exception = self.exceptions.iter().filter(|exception| *name == exception.name);
        let allowed: Vec<&String> =
            self.allow.iter().chain(exception.flat_map(|exception| &exception.allow)).collect();
        match license::is_met(expression, |license| allowed.iter().any(|allowed| *allowed == license)) {
            Ok(true) => None,
            Ok(false) => Some(format!(
                "{name} {version} has the licence `{expression}`, which [licenses] does not allow"
            )),
            Err(error) => Some(format!("{name} {version} has the invalid licence `{expression}`: {error}")),
        }
    }
}

impl Bans {
    fn problems(&self, package: &Package) -> Vec<String> {
        let Package { name, version, .. } = package;
        let banned = self.deny.iter().filter(|ban| *name == ban.name);
        let mut problems: Vec<String> =
            banned.map(|ban| format!("{name} {version} is banned: {}", ban.reason)).collect();
        let is_wild =
            |dependency: &&Dependency| dependency.req == VersionReq::STAR && dependency.path.is_none();
        for dependency in package.dependencies.iter().filter(is_wild) {
            problems.push(format!(
                "{name} {version} accepts any version of {}: state a version",
                dependency.name
            ));
        }
        problems
    }
}

impl Sources {
    fn problem(&self, package: &Package, is_member: bool) -> Option<String> {
        let Package { name, version, source, .. } = package;
        let Some(source) = source else {
            return (!is_member).then(|| format!("{name} {version} is in a folder outside the workspace"));
        };
        let (kind, address) = source.repr.split_once('+').unwrap_or(("", &source.repr));
        let address = address.split(['?', '#']).next().unwrap_or(address);
        let allowed = match kind {
            "registry" | "sparse" => &self.allow_registry,
            _ => &self.allow_git,
        };
        let is_allowed = allowed.iter().any(|allowed| allowed == address);
        (!is_allowed).then(|| format!("{name} {version} comes from {source}, which [sources] does not allow"))
    }
}

/// Returns a message for each rule that a package violates.
pub(crate) fn problems(metadata: &Metadata, rules: &Rules) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let is_member = metadata.workspace_members.contains(&package.id);
        problems.extend(rules.licenses.problem(package));
        problems.extend(rules.sources.problem(package, is_member));
        problems.extend(rules.bans.problems(package));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workspace::tests::{dependency, metadata_of, package};

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        all-features = true
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ crate = "copyleft", allow = ["MPL-2.0"] }]
        [[licenses.clarify]]
        crate = "silent"
        expression = "MIT"
        license-files = []
        [bans]
        multiple-versions = "allow"
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [{ crate = "openssl-sys", reason = "use rustls" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://example.org/index"]
        allow-git = []
    "#;

    /// Returns the problems of a registry package with these entries, which override the defaults.
    fn check(name: &str, entries: Value) -> Vec<String> {
        let mut entries = entries;
        let defaults = json!({
            "version": "1.2.3", "license": "MIT OR GPL-3.0-only", "source": "registry+https://example.org/index",
        });
        for (key, value) in defaults.as_object().unwrap() {
            entries.as_object_mut().unwrap().entry(key).or_insert(value.clone());
        }
        let within = dependency("ours-too", json!({ "path": "ours-too" }));
        let own = package("ours", json!({ "license": "MIT", "dependencies": [within] }));
        let metadata = metadata_of(vec![own, package(name, entries)], &["ours"], Vec::new());
        problems(&metadata, &Rules::parse(RULES).unwrap())
    }

    #[test]
    fn workspace_packages_satisfy_the_rules() {
        let rules = Rules::load().unwrap();
        let metadata = workspace::metadata_of_all_features(&rules.graph.targets).unwrap();
        assert_eq!(problems(&metadata, &rules), [""; 0]);
    }

    #[test]
    fn allowed_packages_have_no_problems() {
        assert_eq!(check("a", json!({})), [""; 0]);
        assert_eq!(check("copyleft", json!({ "license": "MPL-2.0" })), [""; 0]);
        assert_eq!(check("silent", json!({ "license": null })), [""; 0]);
    }

    #[test]
    fn rejects_unlisted_licenses() {
        let expected =
            |license: &str| format!("a 1.2.3 has the licence `{license}`, which [licenses] does not allow");
        for license in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MPL-2.0", "Apache-2.0 WITH LLVM-exception"] {
            assert_eq!(check("a", json!({ "license": license })), [expected(license)]);
        }
        let stated_none = "a 1.2.3 states no licence: read its files, and add it to [[licenses.clarify]]";
        assert_eq!(check("a", json!({ "license": null })), [stated_none]);
        let invalid = check("a", json!({ "license": "MIT OR" }));
        assert!(
            invalid.len() == 1 && invalid[0].starts_with("a 1.2.3 has the invalid licence `MIT OR`: "),
            "{invalid:?}"
        );
    }

    #[test]
    fn rejects_packages_from_other_registries_repositories_and_folders() {
        for source in [
            "registry+https://example.org/other",
            "sparse+https://example.com/index",
            "git+https://example.org/a?branch=main#0123",
        ] {
            let expected = format!("a 1.2.3 comes from {source}, which [sources] does not allow");
            assert_eq!(check("a", json!({ "source": source })), [expected]);
        }
        assert_eq!(check("a", json!({ "source": null })), ["a 1.2.3 is in a folder outside the workspace"]);
    }

    #[test]
    fn rejects_banned_crates_and_wildcard_versions() {
        assert_eq!(check("openssl-sys", json!({})), ["openssl-sys 1.2.3 is banned: use rustls"]);
        let any = json!({ "dependencies": [dependency("b", json!({}))] });
        assert_eq!(check("a", any), ["a 1.2.3 accepts any version of b: state a version"]);
    }

    #[test]
    fn rejects_unsupported_rules() {
        for (from, to) in [
            ("wildcards = \"deny\"", "wildcards = \"warn\""),
            ("all-features = true", "all-features = false"),
            ("[bans]", "[bans]\nhighlight = \"all\""),
            ("[sources]", "[advisories]\n[sources]"),
        ] {
            assert!(Rules::parse(&RULES.replace(from, to)).is_err(), "{to}");
        }
    }
}
