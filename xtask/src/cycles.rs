//! The check for import cycles: files of a crate that all import each other can only be read and changed together.
//!
//! A file has an edge to each file of its crate that it names with `crate::`, `super::`, `self::` or a `use`
//! declaration. A re-export (`pub use`) is not an edge, so a `lib.rs` or `mod.rs` that only lists items is in no cycle.
//! A path through such a file leads to the file that defines the item if `use` declarations name the item, and
//! otherwise to the file of the module. Code under `#[cfg(test)]` and files outside `src` are left out.

mod imports;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

pub(crate) use self::imports::tokens;
use self::imports::{Imports, Path};
use crate::workspace::{self, SourceFile};

/// The maximum number of files that may import each other in a cycle.
const MAX_FILES: usize = 3;

/// The number of cycles of all crates. It may only fall.
const MAX_CYCLES: usize = 7;

/// The folders that may have larger cycles until they are restructured.
const EXEMPT: &[&str] = &["examples"];

/// The maximum number of re-exports that are followed to resolve one path.
const MAX_RE_EXPORTS: usize = 16;

/// Prints all cycles of the workspace with the imports inside them, as a list in Markdown.
pub(crate) fn run() -> Result<()> {
    let files = workspace::text_files(&workspace::paths()?)?;
    println!("{}", list(&files));
    Ok(())
}

/// Returns a list of all cycles with the imports inside them.
fn list(files: &[SourceFile]) -> String {
    let mut lines = Vec::new();
    for (root, tree) in trees(files) {
        for cycle in tree.cycles() {
            lines.push(format!("* {root}: {}", cycle.join(", ")));
            lines.extend(tree.imports_inside(&cycle).into_iter().map(|import| format!("  * {import}")));
        }
    }
    lines.join("\n")
}

/// Returns a message for each cycle of more than [`MAX_FILES`] files, and one if there are more or fewer cycles than
/// [`MAX_CYCLES`].
pub(crate) fn problems(files: &[SourceFile]) -> Vec<String> {
    let trees: BTreeMap<String, Tree<'_>> =
        trees(files).into_iter().filter(|(root, _)| !is_exempt(root)).collect();
    let mut problems = large_cycles(&trees);
    problems.extend(problem_of_number(trees.values().map(|tree| tree.cycles().len()).sum()));
    problems
}

/// Returns a message for each cycle of more than [`MAX_FILES`] files.
fn large_cycles(trees: &BTreeMap<String, Tree<'_>>) -> Vec<String> {
    let mut problems = Vec::new();
    for (root, tree) in trees {
        for cycle in tree.cycles().into_iter().filter(|cycle| MAX_FILES < cycle.len()) {
            problems.push(format!(
                "{root}: {} files import each other in a cycle, at most {MAX_FILES} allowed: {}; move what they share to \
                 files that import none of them",
                cycle.len(),
                cycle.join(", ")
            ));
        }
    }
    problems
}

fn problem_of_number(n_cycles: usize) -> Option<String> {
    match n_cycles.cmp(&MAX_CYCLES) {
        Ordering::Greater => Some(format!(
            "files import each other in {n_cycles} cycles, at most {MAX_CYCLES} allowed: `cargo xtask cycles` lists them; \
             move what they share to files that import none of them"
        )),
        Ordering::Less => {
            Some(format!("{n_cycles} cycles: lower MAX_CYCLES, {MAX_CYCLES}, in xtask/src/cycles.rs"))
        }
        Ordering::Equal => None,
    }
}

/// Returns the number of files of each cycle, by the folder of the library or program, such as `crates/data/src`.
pub(crate) fn sizes(files: &[SourceFile]) -> BTreeMap<String, Vec<usize>> {
    trees(files)
        .into_iter()
        .map(|(root, tree)| (root, tree.cycles().iter().map(Vec::len).collect()))
        .collect()
}

fn is_exempt(root: &str) -> bool {
    EXEMPT.iter().any(|folder| root == *folder || root.starts_with(&format!("{folder}/")))
}

/// The modules of one library or of one program.
#[derive(Debug, Default)]
struct Tree<'a> {
    /// The modules by their paths, without the leading `crate`. The path of the root is empty.
    modules: BTreeMap<Path, Module<'a>>,
}

#[derive(Debug)]
struct Module<'a> {
    /// The path of the file, relative to the tree's folder.
    file: &'a str,
    imports: Imports,
}

/// Returns the trees of all libraries and programs, by the folder of their root, such as `crates/data/src`.
fn trees(files: &[SourceFile]) -> BTreeMap<String, Tree<'_>> {
    let mut trees: BTreeMap<String, Tree<'_>> = BTreeMap::new();
    for SourceFile { path, text } in files.iter().filter(|file| file.is_rust()) {
        let Some((folder, file)) = path.split_once("/src/") else { continue };
        let (root, file) = match file.strip_prefix("bin/").map(|program| program.split_once('/')) {
            None => (format!("{folder}/src"), file),
            Some(Some((program, file))) => (format!("{folder}/src/bin/{program}"), file),
            // A program in a single file has no cycles.
            Some(None) => continue,
        };
        let module = Module { file, imports: Imports::of(text) };
        trees.entry(root).or_default().modules.insert(path_of(file), module);
    }
    trees
}

/// Returns the path of the module in a file: `["format", "copy"]` for `format/copy.rs`.
fn path_of(file: &str) -> Path {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "main" | "mod" => Path::new(),
        _ => path.split('/').map(str::to_owned).collect(),
    }
}

impl Tree<'_> {
    /// Returns the groups of at least two files that import each other, directly or through other files. The files of a
    /// group are sorted by module.
    fn cycles(&self) -> Vec<Vec<&str>> {
        let edges: BTreeMap<&Path, BTreeSet<&Path>> =
            self.modules.keys().map(|module| (module, self.edges(module))).collect();
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            edges.keys().map(|module| (*module, reachable(module, &edges))).collect();
        let mut cycles = Vec::new();
        let mut seen = BTreeSet::new();
        for (module, others) in &reached {
            let cycle: Vec<&Path> =
                others.iter().copied().filter(|other| reached[other].contains(module)).collect();
            if 2 <= cycle.len() && seen.insert(cycle.clone()) {
                cycles.push(cycle.into_iter().map(|module| self.modules[module].file).collect());
            }
        }
        cycles
    }

    /// Returns the imports of the files of a cycle from each other.
    fn imports_inside(&self, cycle: &[&str]) -> Vec<String> {
        let mut imports = Vec::new();
        for (module, Module { file, imports: Imports { uses, .. } }) in &self.modules {
            for path in uses.iter().filter(|_| cycle.contains(file)) {
                let target =
                    self.resolve(module, path, MAX_RE_EXPORTS).map(|target| self.modules[target].file);
                if let Some(target) = target.filter(|target| target != file && cycle.contains(target)) {
                    imports.push(format!("{file} -> {target}: {}", path.join("::")));
                }
            }
        }
        imports
    }

    /// Returns the other modules that a module imports from.
    fn edges(&self, module: &Path) -> BTreeSet<&Path> {
        let uses = self.modules[module].imports.uses.iter();
        let mut edges: BTreeSet<&Path> =
            uses.filter_map(|path| self.resolve(module, path, MAX_RE_EXPORTS)).collect();
        edges.remove(module);
        edges
    }

    /// Returns the module that defines the item that `path` names inside `module`, after at most `n_left` re-exports.
    /// Returns `None` for items of other crates.
    fn resolve(&self, module: &Path, path: &[String], n_left: usize) -> Option<&Path> {
        let (first, mut rest) = path.split_first()?;
        let mut at = module.clone();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop()?;
            }
            _ => {
                let names = &self.modules.get(module)?.imports.names;
                let is_ours = self.child(module, first).is_some()
                    || names.get(first).is_some_and(|target| target.first() != Some(first));
                if !is_ours {
                    return None;
                }
                rest = path;
            }
        }
        while let Some((segment, after)) = rest.split_first() {
            if segment == "super" {
                at.pop()?;
            } else if let Some(child) = self.child(&at, segment) {
                at = child;
            } else {
                return self.definer(&at, segment, n_left).or_else(|| self.key(&at));
            }
            rest = after;
        }
        self.key(&at)
    }

    /// Returns the module that defines an item of `module`, after at most `n_left` re-exports. Returns `None` if
    /// neither `module` nor its `use` declarations name the item.
    fn definer(&self, module: &Path, item: &str, n_left: usize) -> Option<&Path> {
        let (key, Module { imports, .. }) = self.modules.get_key_value(module)?;
        if imports.items.contains(item) || n_left == 0 {
            return Some(key);
        }
        if let Some(target) = imports.names.get(item) {
            return self.resolve(module, target, n_left - 1);
        }
        let mut globs = imports.globs.iter().filter_map(|glob| self.resolve(module, glob, n_left - 1));
        globs.find(|glob| {
            let imports = &self.modules[*glob].imports;
            imports.items.contains(item) || imports.names.contains_key(item)
        })
    }

    fn child(&self, module: &Path, name: &str) -> Option<Path> {
        let child: Path = module.iter().map(String::as_str).chain([name]).map(str::to_owned).collect();
        self.modules.contains_key(&child).then_some(child)
    }

    fn key(&self, module: &Path) -> Option<&Path> {
        self.modules.get_key_value(module).map(|(key, _)| key)
    }
}

/// Returns all modules that are reachable from `start`, including itself.
fn reachable<'a>(start: &'a Path, edges: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::from([start]);
    let mut open = vec![start];
    while let Some(module) = open.pop() {
        open.extend(edges[module].iter().filter(|next| reached.insert(**next)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<SourceFile> {
        texts
            .iter()
            .map(|(path, text): &(&str, &str)| SourceFile { path: (*path).into(), text: (*text).into() })
            .collect()
    }

    /// Returns the cycles of a crate with these files.
    fn cycles(texts: &[(&str, &str)]) -> Vec<Vec<String>> {
        let paths: Vec<(String, &str)> =
            texts.iter().map(|(file, text)| (format!("crates/made-up/src/{file}"), *text)).collect();
        let files = files(&paths.iter().map(|(path, text)| (path.as_str(), *text)).collect::<Vec<_>>());
        let trees = trees(&files);
        trees
            .values()
            .flat_map(Tree::cycles)
            .map(|cycle: Vec<&str>| cycle.into_iter().map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn finds_files_that_import_each_other() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B(super::c::C);"),
            ("c.rs", "use super::a; pub struct C(Box<a::A>);"),
            ("d.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn follows_re_exports_to_the_definition() {
        let lib = "mod error; mod graph; mod read;\npub use error::{Error, Result};\npub use graph::*;\npub use read::read;";
        let none = cycles(&[
            ("lib.rs", lib),
            ("error.rs", "pub enum Error {} pub type Result<T> = std::result::Result<T, Error>;"),
            ("graph.rs", "use crate::{Error, Result}; pub struct Graph;"),
            (
                "read.rs",
                "use crate::{Graph, Result}; pub fn read() -> Result<Graph> { Err(crate::Error::Bad) }",
            ),
        ]);
        assert!(none.is_empty(), "{none:?}");
        let through_the_root = cycles(&[
            ("lib.rs", lib),
            ("error.rs", "use crate::read; pub enum Error {}"),
            ("graph.rs", "pub struct Graph;"),
            ("read.rs", "use crate::{Error, Graph}; pub fn read() {}"),
        ]);
        assert_eq!(through_the_root, [["error.rs", "read.rs"]]);
    }

    #[test]
    fn resolves_an_item_that_no_file_defines_to_its_module() {
        let found = cycles(&[
            ("lib.rs", "mod a; use a::A; made_by_a_macro!(B);"),
            ("a.rs", "use crate::B; pub struct A;"),
        ]);
        assert_eq!(found, [["lib.rs", "a.rs"]]);
    }

    #[test]
    fn separates_programs_and_submodules() {
        let found = cycles(&[
            ("bin/server/main.rs", "mod part; use part::Part; pub struct Args;"),
            ("bin/server/part.rs", "use crate::Args; pub struct Part;"),
            ("part.rs", "mod inner; pub use inner::Inner; pub struct Part;"),
            ("part/inner.rs", "use super::Part; pub struct Inner;"),
        ]);
        assert_eq!(found, [["main.rs", "part.rs"]]);
    }

    #[test]
    fn lists_the_imports_inside_a_cycle() {
        let listed = list(&files(&[
            ("crates/made-up/src/lib.rs", "mod a; mod b; mod c;"),
            ("crates/made-up/src/a.rs", "use crate::b::B; use crate::c::C; pub struct A;"),
            ("crates/made-up/src/b.rs", "use super::a::{A, of_b}; pub struct B(A);"),
            ("crates/made-up/src/c.rs", "pub struct C;"),
        ]));
        let expected = "\
            * crates/made-up/src: a.rs, b.rs\n  \
              * a.rs -> b.rs: crate::b::B\n  \
              * b.rs -> a.rs: super::a::A\n  \
              * b.rs -> a.rs: super::a::of_b";
        assert_eq!(listed, expected);
    }

    #[test]
    fn reports_a_cycle_of_four_files() {
        let file = |n: usize| format!("crates/made-up/src/f{n}.rs");
        let ring = |n_files: usize| {
            let text = |n: usize| format!("use crate::f{}::F;", (n + 1) % n_files);
            let texts: Vec<(String, String)> = (0..n_files).map(|n| (file(n), text(n))).collect();
            let files = files(&texts.iter().map(|(path, text)| (&**path, &**text)).collect::<Vec<_>>());
            large_cycles(&trees(&files))
        };
        assert_eq!(ring(3), [""; 0]);
        assert_eq!(
            ring(4),
            [
                "crates/made-up/src: 4 files import each other in a cycle, at most 3 allowed: f0.rs, f1.rs, f2.rs, f3.rs; \
              move what they share to files that import none of them"
            ]
        );
    }

    #[test]
    fn reports_more_and_fewer_cycles_than_stated() {
        assert_eq!(problem_of_number(MAX_CYCLES), None);
        let more = problem_of_number(MAX_CYCLES + 1).unwrap();
        assert!(more.contains("`cargo xtask cycles` lists them"), "{more}");
        let fewer = problem_of_number(MAX_CYCLES - 1).unwrap();
        assert!(fewer.contains("lower MAX_CYCLES"), "{fewer}");
    }
}
