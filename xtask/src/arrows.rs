//! The check of dependencies between crates. A new dependency is a design change, and must be added to the table below.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, Node, PackageId};

/// The dependencies that a crate may have on crates of the workspace and on tensor libraries.
struct Row {
    name: &'static str,
    /// The allowed normal dependencies.
    normal: &'static [&'static str],
    /// The allowed additional dev-dependencies, besides [`TESTKIT`].
    dev: &'static [&'static str],
    tensors: Tensors,
}

/// The policy for tensor libraries among the direct and transitive dependencies of a crate.
#[derive(Clone, Copy, PartialEq)]
enum Tensors {
    Allowed,
    Forbidden,
}

use Tensors::{Allowed, Forbidden};

/// The crate with test fixtures. Every crate may have it as a dev-dependency, and no crate as a normal dependency.
const TESTKIT: &str = "kiln-testkit";

/// The allowed dependencies of the umbrella crate and the benches.
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
    "kiln-tables",
    "kiln-predictions",
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
    Row { name: "kiln-tables", normal: &["kiln-graph", "kiln-feature", "kiln-store", "kiln-data"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-loader", normal: &["kiln-graph", "kiln-sample", "kiln-feature"], dev: &["kiln-data"], tensors: Forbidden },
    Row { name: "kiln-comm", normal: &["kiln-nccl"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-nccl", normal: &[], dev: &[], tensors: Forbidden },
    Row { name: "kiln-remote", normal: &["kiln-graph", "kiln-sample", "kiln-feature", "kiln-data", "kiln-partition", "kiln-comm"], dev: &["kiln-loader"], tensors: Forbidden },
    Row { name: "kiln-kernels", normal: &["kiln-mem", "kiln-graph", "kiln-sample", "kiln-feature", "kiln-nccl", "burn", "burn-cubecl", "cubecl", "cubecl-runtime"], dev: &[], tensors: Allowed },
    Row { name: "kiln-nn", normal: &["kiln-graph", "kiln-kernels", "kiln-sample", "burn"], dev: &[], tensors: Allowed },
    Row { name: "kiln-train", normal: &["kiln-graph", "kiln-sample", "kiln-store", "kiln-loader", "kiln-feature", "kiln-comm", "kiln-kernels", "kiln-nn", "burn"], dev: &["kiln-data"], tensors: Allowed },
    Row { name: "kiln-predictions", normal: &["kiln-graph", "kiln-feature", "kiln-store", "kiln-data", "kiln-comm", "kiln-train", "kiln-tables"], dev: &[], tensors: Allowed },
    Row { name: "kiln-testkit", normal: &["kiln-graph", "kiln-sample"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-usage", normal: &["kiln-graph", "kiln-store"], dev: &[], tensors: Forbidden },
    Row { name: "kiln-sweep", normal: &["kiln-comm", "kiln-graph", "kiln-sample", "kiln-store", "kiln-tables", "kiln-train", "kiln-usage"], dev: &[], tensors: Allowed },
    Row { name: "kiln-cli", normal: &["kiln", "kiln-partition", "kiln-sweep", "kiln-tables", "kiln-usage"], dev: &[], tensors: Allowed },
    Row { name: "kiln-python", normal: &["kiln"], dev: &[], tensors: Allowed },
    Row { name: "kiln-examples", normal: &["kiln"], dev: &[], tensors: Allowed },
    Row { name: "kiln-benches", normal: ALL, dev: &[], tensors: Allowed },
    Row { name: "kiln-gpu-kit", normal: &["kiln-benches", "kiln-cli", "kiln-graph", "kiln-sample", "kiln-feature", "kiln-store", "kiln-nccl", "kiln-kernels", "kiln-nn", "kiln-train", "burn"], dev: &["kiln-comm", "kiln-data", "kiln-loader"], tensors: Allowed },
    // xtask is built before all other crates, so it depends on none of them.
    Row { name: "xtask", normal: &[], dev: &[], tensors: Forbidden },
];

/// The names of the tensor libraries. Packages whose names start with a listed name and a hyphen, such as
/// `burn-cubecl`, also count as tensor libraries.
const TENSOR_LIBRARIES: &[&str] = &["burn", "cubecl", "candle", "ndarray", "tch"];

/// The crate that must have few dependencies, because other projects use it in their own training stack.
const LIGHT: &str = "kiln-sample";

/// The maximum number of packages in the output of `cargo tree -p kiln-sample -e normal`, `kiln-sample` included.
const LIGHT_MAX_PACKAGES: usize = 39;

/// Returns a message for each dependency that the table forbids, for each crate that must not build tensor libraries
/// but does, for each crate without a row, for each row without a crate, and if [`LIGHT`] has too many dependencies.
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
            let name = dependency.name.as_str();
            let kind = dependency.kind;
            if (ours.contains(name) || is_tensor_library(name)) && !is_allowed(row, name, kind) {
                problems.push(format!("{} -> {name} ({kind}) is not an allowed dependency", row.name));
            }
        }
    }
    for row in ROWS.iter().filter(|row| !ours.contains(row.name)) {
        problems.push(format!("xtask/src/arrows.rs has a row for {}, which is not a package", row.name));
    }
    problems.extend(tree_problems(metadata));
    problems
}

/// Returns true if a package depends on a tensor library, directly or transitively.
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

/// Returns a message for each crate that depends on tensor libraries, directly or transitively, although its row
/// forbids them, and a message if [`LIGHT`] has too many dependencies.
fn tree_problems(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for row in ROWS {
        let tree = normal_tree(metadata, row.name);
        let libraries: Vec<&str> = tree.iter().copied().filter(|name| is_tensor_library(name)).collect();
        if row.tensors == Forbidden && !libraries.is_empty() {
            problems.push(format!("{} must not build tensor libraries: {}", row.name, libraries.join(", ")));
        }
        if row.name == LIGHT && LIGHT_MAX_PACKAGES < tree.len() {
            let n_packages = tree.len();
            problems
                .push(format!("{LIGHT} builds {n_packages} packages, at most {LIGHT_MAX_PACKAGES} allowed"));
        }
    }
    problems
}

/// Returns the package `name` and its direct and transitive normal dependencies, as in `cargo tree -e normal`.
fn normal_tree<'a>(metadata: &'a Metadata, name: &str) -> Vec<&'a str> {
    let names: BTreeMap<&PackageId, &str> =
        metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let nodes: BTreeMap<&PackageId, &Node> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let mut open: Vec<&PackageId> =
        metadata.workspace_members.iter().filter(|id: &&PackageId| names.get(*id) == Some(&name)).collect();
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

    /// Returns the metadata of a made-up workspace with a package for each row. The package `from` depends on `to`, and
    /// no other package has dependencies.
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

    /// Adds a normal dependency of `from` on `to` to the resolved graph.
    fn add_edge(metadata: &mut Metadata, from: &str, to: &str) {
        let nodes = &mut metadata.resolve.as_mut().unwrap().nodes;
        let added: Node = serde_json::from_value(node(from, &[(to, None)])).unwrap();
        nodes.iter_mut().find(|node| node.id.repr == from).unwrap().deps.extend(added.deps);
    }

    /// Adds a package that is not a member of the workspace.
    fn add_package(metadata: &mut Metadata, name: &str) {
        metadata.packages.push(serde_json::from_value(package(name, json!({}))).unwrap());
        let nodes = &mut metadata.resolve.as_mut().unwrap().nodes;
        nodes.push(serde_json::from_value(node(name, &[])).unwrap());
    }

    #[test]
    fn workspace_dependencies_are_allowed() {
        assert_eq!(problems(&workspace::metadata().unwrap()), [""; 0]);
    }

    #[test]
    fn accepts_allowed_dependencies() {
        assert_eq!(problems(&with_arrow("kiln-nn", "kiln-kernels", None)), [""; 0]);
        assert_eq!(problems(&with_arrow("kiln-graph", TESTKIT, Some("dev"))), [""; 0]);
        assert_eq!(problems(&with_arrow("kiln-train", "kiln-data", Some("dev"))), [""; 0]);
    }

    #[test]
    fn finds_forbidden_dependencies() {
        for (from, to, kind) in [
            ("kiln-graph", "kiln-sample", None),
            ("kiln-loader", TESTKIT, None),
            ("kiln-train", "kiln-data", None),
            ("kiln-sample", "kiln-data", Some("dev")),
            ("kiln-data", "kiln-graph", Some("build")),
        ] {
            let expected =
                format!("{from} -> {to} ({}) is not an allowed dependency", kind.unwrap_or("normal"));
            assert_eq!(problems(&with_arrow(from, to, kind)), [expected]);
        }
    }

    #[test]
    fn finds_a_direct_tensor_dependency() {
        let found = problems(&with_arrow("kiln-loader", "burn", None));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "kiln-loader -> burn (normal) is not an allowed dependency");
        assert_eq!(found[1], "kiln-loader must not build tensor libraries: burn");
    }

    #[test]
    fn finds_a_transitive_tensor_dependency() {
        let mut metadata = with_arrow("kiln-data", "npy-reader", None);
        add_package(&mut metadata, "ndarray-stats");
        add_edge(&mut metadata, "npy-reader", "ndarray-stats");
        assert_eq!(problems(&metadata), ["kiln-data must not build tensor libraries: ndarray-stats"]);
    }

    #[test]
    fn finds_too_many_dependencies_of_kiln_sample() {
        let mut metadata = with_arrow("kiln-sample", "kiln-graph", None);
        for i in 0..LIGHT_MAX_PACKAGES - 1 {
            let name = format!("small-{i}");
            add_package(&mut metadata, &name);
            add_edge(&mut metadata, "kiln-graph", &name);
        }
        assert_eq!(problems(&metadata), ["kiln-sample builds 40 packages, at most 39 allowed"]);
    }

    #[test]
    fn finds_crates_without_a_row_and_rows_without_a_crate() {
        let mut metadata = with_arrow("kiln-nn", "kiln-kernels", None);
        let data = metadata.packages.iter_mut().find(|package| package.name == "kiln-data").unwrap();
        data.name = PackageName::new("kiln-dota".into());
        assert_eq!(
            problems(&metadata),
            [
                "kiln-dota has no row in xtask/src/arrows.rs",
                "xtask/src/arrows.rs has a row for kiln-data, which is not a package"
            ]
        );
    }
}
