//! `cargo xtask sizes`: measures of the crates' sources as a table in Markdown, to compare two states of the code.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;

use crate::cycles;
use crate::names::{is_of_a_crate, lines_outside_tests, public_type};
use crate::workspace::{self, SourceFile};

/// The crates with a row of their own.
const CRATES: [&str; 4] = ["nn", "loader", "train", "kiln"];

/// The keywords in front of the name of a type.
const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

const HEAD: &str = "\
| crate | types `Typed…` | functions `…typed…` | lines of code | public types | cycles (largest) | `grpc` conditions (files) |
|---|---|---|---|---|---|---|";

/// The measures of some source files. Test modules and generated code do not count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sizes {
    /// The number of declared types whose names begin with `Typed`.
    n_typed_types: usize,
    /// The number of functions with `typed` in their names.
    n_typed_functions: usize,
    /// The number of lines that are neither blank nor comments.
    n_lines: usize,
    n_public_types: usize,
    n_cycles: usize,
    /// The number of files of the largest cycle.
    largest_cycle: usize,
    /// The number of conditions on the feature `grpc`.
    n_grpc: usize,
    /// The number of files with such conditions.
    n_grpc_files: usize,
}

/// Prints the table for the sources of the workspace.
pub(crate) fn run() -> Result<()> {
    let files = workspace::text_files(&workspace::paths()?)?;
    println!("{}", table(&files));
    Ok(())
}

fn table(files: &[SourceFile]) -> String {
    let mut lines = vec![HEAD.to_owned()];
    for name in CRATES {
        lines.push(format!("| {name} | {} |", Sizes::of(files, &format!("crates/{name}/src"))));
    }
    lines.push(format!("| all crates | {} |", Sizes::of(files, "crates")));
    lines.join("\n")
}

impl Sizes {
    /// Measures the sources in a folder.
    fn of(files: &[SourceFile], folder: &str) -> Self {
        let prefix = format!("{folder}/");
        let mut sizes = Self::default();
        for file in files.iter().filter(|file| file.path.starts_with(&prefix) && is_of_a_crate(&file.path)) {
            sizes.add(&file.text);
        }
        for (root, cycles) in cycles::sizes(files) {
            if root == folder || root.starts_with(&prefix) {
                sizes.n_cycles += cycles.len();
                sizes.largest_cycle = sizes.largest_cycle.max(cycles.into_iter().max().unwrap_or(0));
            }
        }
        sizes
    }

    /// Adds a file.
    fn add(&mut self, text: &str) {
        let n_before = self.n_grpc;
        for (_, line) in lines_outside_tests(text) {
            let code = line.trim();
            if code.is_empty() || code.starts_with("//") {
                continue;
            }
            self.n_lines += 1;
            self.n_public_types += usize::from(public_type(code).is_some());
            if code.contains("cfg") {
                self.n_grpc += code.matches("feature = \"grpc\"").count();
            }
            match declared(code) {
                Some(("fn", name)) => self.n_typed_functions += usize::from(name.contains("typed")),
                Some((_, name)) => self.n_typed_types += usize::from(name.starts_with("Typed")),
                None => {}
            }
        }
        self.n_grpc_files += usize::from(n_before < self.n_grpc);
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} | {} | {} | {} | {} ({}) | {} ({})",
            self.n_typed_types,
            self.n_typed_functions,
            self.n_lines,
            self.n_public_types,
            self.n_cycles,
            self.largest_cycle,
            self.n_grpc,
            self.n_grpc_files
        )
    }
}

/// Returns the keyword and the name of the type or the function that a line declares.
fn declared(code: &str) -> Option<(&str, &str)> {
    let modifiers = BTreeSet::from(["async", "const", "default", "unsafe"]);
    let mut words = code.split_whitespace();
    let keyword = words.find(|word| !word.starts_with("pub") && !modifiers.contains(word))?;
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (keyword == "fn" || TYPES.contains(&keyword)).then_some((keyword, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn counts_code_outside_of_comments_tests_and_generated_files() {
        let text = "//! Docs of `TypedA`.\n\n/// More.\npub struct TypedA<T>(T);\n    pub(crate) enum TypedB {}\n\
                    pub const fn on_typed_a(value: TypedA<u8>) {}\nfn plain() {} // typed\n\
                    #[cfg(feature = \"grpc\")]\nuse a::B;\n#[cfg(all(doctest, feature = \"grpc\"))]\nstruct C;\n\
                    #[cfg(test)]\nmod tests {\n    pub struct TypedC;\n}\n";
        let files = [
            file("crates/kiln/src/a.rs", text),
            file("crates/kiln/src/proto/generated.rs", text),
            file("crates/kiln/tests/suite/a.rs", text),
            file("xtask/src/a.rs", text),
        ];
        let expected = Sizes {
            n_typed_types: 2,
            n_typed_functions: 1,
            // The attribute in front of the test module counts.
            n_lines: 9,
            n_public_types: 1,
            n_grpc: 2,
            n_grpc_files: 1,
            ..Sizes::default()
        };
        assert_eq!(Sizes::of(&files, "crates/kiln/src"), expected);
        assert_eq!(Sizes::of(&files, "crates"), expected);
        assert_eq!(Sizes::of(&files, "crates/nn/src"), Sizes::default());
    }

    #[test]
    fn the_table_has_the_cycles_of_each_crate_and_of_all() {
        let files = [
            file("crates/nn/src/lib.rs", "mod a;\nmod b;\n"),
            file("crates/nn/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            file("crates/nn/src/b.rs", "use crate::a::A;\npub struct B;\n"),
            file("crates/data/src/lib.rs", "mod c;\nmod d;\nmod e;\n"),
            file("crates/data/src/c.rs", "use crate::d::D;\npub struct C;\n"),
            file("crates/data/src/d.rs", "use crate::e::E;\npub struct D;\n"),
            file("crates/data/src/e.rs", "use crate::c::C;\npub struct E;\n"),
        ];
        let expected = "\
            | nn | 0 | 0 | 6 | 2 | 1 (2) | 0 (0) |\n\
            | loader | 0 | 0 | 0 | 0 | 0 (0) | 0 (0) |\n\
            | train | 0 | 0 | 0 | 0 | 0 (0) | 0 (0) |\n\
            | kiln | 0 | 0 | 0 | 0 | 0 (0) | 0 (0) |\n\
            | all crates | 0 | 0 | 15 | 5 | 2 (3) | 0 (0) |";
        assert_eq!(table(&files), format!("{HEAD}\n{expected}"));
    }
}
