//! Which crate may depend on which. A new arrow is a design change: it goes through this table.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, Node, PackageId};

/// One crate's allowed arrows, among the workspace's crates and the tensor libraries.
struct Row {
    name: &'static str,
    /// What the crate itself may use.
    normal: &'static [&'static str],
    /// What its tests may use besides, next to [`TESTKIT`].
    dev: &'static [&'static str],
    tensors: Tensors,
}

/// Whether a tensor library may stand anywhere below a crate.
#[derive(Clone, Copy, PartialEq)]
enum Tensors {
    Allowed,
    Forbidden,
}

use Tensors::{Allowed, Forbidden};

/// Fixtures: a dev-dependency of anybody, a normal dependency of nobody.
const TESTKIT: &str = "kiln-testkit";

/// What the umbrella crate, the examples and the benches assemble.
const ALL: &[&str] = &[
    "kiln",
    "kiln-mem",
    "kiln-graph",
    "kiln-sample",
    "kiln-feature",
    "kiln-store",
    "kiln-data",
    "kiln-partition",
    "kiln-loader",
    "kiln-comm",
    "kiln-remote",
    "kiln-nccl",
    "kiln-kernels",
    "kiln-nn",
    "kiln-train",
    "burn",
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "kiln", normal: ALL, dev: &[], tensors: Allowed },
    Row { name: "kiln-mem", normal: &[], dev: &[], tensors: Forbidden },
    Row { name: "kiln-graph", normal: &["kiln-mem"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-sample", normal: &["kiln-mem", "kiln-graph"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-feature", normal: &["kiln-mem", "kiln-graph"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-store", normal: &["kiln-graph"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-data", normal: &["kiln-graph", "kiln-feature", "kiln-store"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-partition", normal: &["kiln-graph", "kiln-feature", "kiln-sample", "kiln-store", "kiln-data"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-loader", normal: &["kiln-graph", "kiln-sample", "kiln-feature"], dev: &["kiln-data"], tensors: Forbidden },
    Row { name: "kiln-comm", normal: &["kiln-nccl"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-nccl", normal: &[], dev: &[], tensors: Forbidden },
    Row { name: "kiln-remote", normal: &["kiln-graph", "kiln-sample", "kiln-feature", "kiln-partition", "kiln-comm"], dev: &["kiln-data", "kiln-loader"], tensors: Forbidden },
    Row { name: "kiln-kernels", normal: &["kiln-mem", "kiln-graph", "kiln-sample", "kiln-feature", "kiln-nccl", "burn", "burn-cubecl", "cubecl", "cubecl-runtime"], dev: &[], tensors: Allowed },
    Row { name: "kiln-nn", normal: &["kiln-kernels", "kiln-sample", "burn"], dev: &["kiln-graph"], tensors: Allowed },
    Row { name: "kiln-train", normal: &["kiln-graph", "kiln-sample", "kiln-store", "kiln-loader", "kiln-feature", "kiln-comm", "kiln-kernels", "kiln-nn", "burn"], dev: &["kiln-data"], tensors: Allowed },
    Row { name: "kiln-testkit", normal: &["kiln-graph", "kiln-sample"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-cli", normal: &["kiln", "kiln-partition"], dev: &[], tensors: Allowed },
    Row { name: "kiln-examples", normal: &["kiln"], dev: &[], tensors: Allowed },
    Row { name: "kiln-benches", normal: ALL, dev: &[], tensors: Allowed },
    Row { name: "debian-packages", normal: &["kiln-data", "kiln-store"], dev: &[], tensors: Forbidden },
    // xtask is built before anything else, so it stays light.
    Row { name: "xtask", normal: &[], dev: &[], tensors: Forbidden },
];

/// A package is a tensor library when its name is one of these or starts with one and a hyphen.
const TENSOR_LIBRARIES: &[&str] = &["burn", "cubecl", "candle", "ndarray", "tch"];

/// The crate that people use from their own training stack, and how many packages it may bring, itself
/// included: as many as `cargo tree -p kiln-sample -e normal` lists at most.
const LIGHT: &str = "kiln-sample";
const LIGHT_MAX_PACKAGES: usize = 39;

/// Everything that contradicts the table, one sentence each.
pub(crate) fn problems(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    let packages = metadata.workspace_packages();
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    for package in packages {
        let Some(row) = ROWS.iter().find(|row| package.name == row.name) else {
            problems.push(format!("{} has no row in xtask/src/arrows.rs", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let (name, kind) = (dependency.name.as_str(), dependency.kind);
            if (ours.contains(name) || is_tensor_library(name)) && !is_allowed(row, name, kind) {
                problems.push(format!("{} -> {name} ({kind}) is not an allowed arrow", row.name));
            }
        }
    }
    for row in ROWS.iter().filter(|row| !ours.contains(row.name)) {
        problems.push(format!("xtask/src/arrows.rs has a row for {}, which is no package", row.name));
    }
    problems.extend(tree_problems(metadata));
    problems
}

/// Whether a tensor library stands anywhere below a package.
pub(crate) fn builds_tensors(metadata: &Metadata, name: &str) -> bool {
    normal_tree(metadata, name).into_iter().any(is_tensor_library)
}

fn is_allowed(row: &Row, name: &str, kind: DependencyKind) -> bool {
    match kind {
        DependencyKind::Normal => row.normal.contains(&name),
        DependencyKind::Development => {
            name == TESTKIT || row.normal.contains(&name) || row.dev.contains(&name)
        }
        _ => false,
    }
}

/// What is wrong further down: a tensor library below a crate that forbids it, or too many packages.
fn tree_problems(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for row in ROWS {
        let tree = normal_tree(metadata, row.name);
        let libraries: Vec<&str> = tree.iter().copied().filter(|name| is_tensor_library(name)).collect();
        if row.tensors == Forbidden && !libraries.is_empty() {
            problems.push(format!("{} builds tensor libraries: {}", row.name, libraries.join(", ")));
        }
        if row.name == LIGHT && LIGHT_MAX_PACKAGES < tree.len() {
            let n_packages = tree.len();
            problems
                .push(format!("{LIGHT} builds {n_packages} packages, at most {LIGHT_MAX_PACKAGES} allowed"));
        }
    }
    problems
}

/// The packages that `name` is built with, itself included, as `cargo tree -e normal` lists them.
fn normal_tree<'a>(metadata: &'a Metadata, name: &str) -> Vec<&'a str> {
    let names: BTreeMap<&PackageId, &str> =
        metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let nodes: BTreeMap<&PackageId, &Node> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let is_member = |id: &&PackageId| names.get(*id) == Some(&name);
    let mut open: Vec<&PackageId> = metadata.workspace_members.iter().filter(is_member).collect();
    let mut seen: BTreeSet<&PackageId> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        let deps = nodes.get(id).map_or(&[][..], |node| &node.deps);
        for dep in
            deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal))
        {
            if seen.insert(&dep.pkg) {
                open.push(&dep.pkg);
            }
        }
    }
    seen.into_iter().filter_map(|id| names.get(id).copied()).collect()
}

fn is_tensor_library(name: &str) -> bool {
    TENSOR_LIBRARIES.iter().any(|library| {
        name.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use cargo_metadata::PackageName;
    use serde_json::json;

    use super::*;
    use crate::workspace;
    use crate::workspace::tests::{dependency, metadata_of, node, package};

    /// A made-up workspace: every row's package, no dependencies; then one more arrow of a kind.
    fn with_arrow(from: &str, to: &str, kind: Option<&str>) -> Metadata {
        let members: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        let mut names = members.clone();
        if !names.contains(&to) {
            names.push(to);
        }
        let of = |name: &str| {
            let arrow = dependency(to, json!({ "kind": kind }));
            let dependencies = if name == from { json!([arrow]) } else { json!([]) };
            let below = if name == from { vec![(to, kind)] } else { Vec::new() };
            (package(name, json!({ "dependencies": dependencies })), node(name, &below))
        };
        let (packages, nodes) = names.iter().map(|name| of(name)).unzip();
        metadata_of(packages, &members, nodes)
    }

    /// Adds an edge of the resolved graph.
    fn add_edge(metadata: &mut Metadata, from: &str, to: &str) {
        let nodes = &mut metadata.resolve.as_mut().unwrap().nodes;
        let added: Node = serde_json::from_value(node(from, &[(to, None)])).unwrap();
        nodes.iter_mut().find(|node| node.id.repr == from).unwrap().deps.extend(added.deps);
    }

    /// Adds a package that is no member.
    fn add_package(metadata: &mut Metadata, name: &str) {
        metadata.packages.push(serde_json::from_value(package(name, json!({}))).unwrap());
        let nodes = &mut metadata.resolve.as_mut().unwrap().nodes;
        nodes.push(serde_json::from_value(node(name, &[])).unwrap());
    }

    #[test]
    fn the_workspace_has_allowed_arrows_only() {
        assert_eq!(problems(&workspace::metadata().unwrap()), [""; 0]);
    }

    #[test]
    fn an_allowed_arrow_is_no_problem() {
        assert_eq!(problems(&with_arrow("kiln-nn", "kiln-kernels", None)), [""; 0]);
        assert_eq!(problems(&with_arrow("kiln-graph", TESTKIT, Some("dev"))), [""; 0]);
        assert_eq!(problems(&with_arrow("kiln-train", "kiln-data", Some("dev"))), [""; 0]);
    }

    #[test]
    fn a_forbidden_arrow_is_found() {
        for (from, to, kind) in [
            ("kiln-graph", "kiln-sample", None),
            ("kiln-loader", TESTKIT, None),
            ("kiln-train", "kiln-data", None),
            ("kiln-sample", "kiln-data", Some("dev")),
            ("kiln-data", "kiln-graph", Some("build")),
        ] {
            let expected = format!("{from} -> {to} ({}) is not an allowed arrow", kind.unwrap_or("normal"));
            assert_eq!(problems(&with_arrow(from, to, kind)), [expected]);
        }
    }

    #[test]
    fn a_tensor_library_below_kernels_is_found_directly() {
        let found = problems(&with_arrow("kiln-loader", "burn", None));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "kiln-loader -> burn (normal) is not an allowed arrow");
        assert_eq!(found[1], "kiln-loader builds tensor libraries: burn");
    }

    #[test]
    fn a_tensor_library_below_kernels_is_found_behind_another_package() {
        let mut metadata = with_arrow("kiln-data", "npy-reader", None);
        add_package(&mut metadata, "ndarray-stats");
        add_edge(&mut metadata, "npy-reader", "ndarray-stats");
        assert_eq!(problems(&metadata), ["kiln-data builds tensor libraries: ndarray-stats"]);
    }

    #[test]
    fn a_heavy_sample_crate_is_found() {
        let mut metadata = with_arrow("kiln-sample", "kiln-graph", None);
        for i in 0..LIGHT_MAX_PACKAGES - 1 {
            let name = format!("small-{i}");
            add_package(&mut metadata, &name);
            add_edge(&mut metadata, "kiln-graph", &name);
        }
        assert_eq!(problems(&metadata), ["kiln-sample builds 40 packages, at most 39 allowed"]);
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
        let mut metadata = with_arrow("kiln-nn", "kiln-kernels", None);
        let data = metadata.packages.iter_mut().find(|package| package.name == "kiln-data").unwrap();
        data.name = PackageName::new("kiln-dota".into());
        assert_eq!(
            problems(&metadata),
            [
                "kiln-dota has no row in xtask/src/arrows.rs",
                "xtask/src/arrows.rs has a row for kiln-data, which is no package"
            ]
        );
    }
}
