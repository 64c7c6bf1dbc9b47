//! Checks of the sources, as text, for rules that the compiler does not check.

use std::collections::BTreeMap;

use crate::exceptions::beyond;
use crate::workspace::SourceFile;

const EXAMPLE_MAX_LINES: usize = 120;
/// The limit for an HTTP server, most of whose lines handle connections and invalid requests.
const SERVER_EXAMPLE: (&str, usize) = ("serve_predictions.rs", 250);
/// The limit for sources: a type stands in one file, with its whole implementation.
const SOURCE_MAX_LINES: usize = 600;
/// The limit for tests, benches and build scripts.
const FILE_MAX_LINES: usize = 400;
const CRATE_MAX_LINES: usize = 6_000;

/// The crates that may exceed [`CRATE_MAX_LINES`]. No crate may be added. `kernels` may stay; the others must shrink.
const LONG_CRATES: &[&str] =
    &["cli", "comm", "data", "kernels", "kiln", "nn", "remote", "sample", "tables", "train"];

/// The folders of the crates that may have unsafe code: for the allocator and prefetches (mem), mapped files (graph),
/// tensor memory (kernels), handles of MPI (comm) and NCCL (nccl), and arrays of NumPy (python).
const UNSAFE_CRATES: &[&str] =
    &["crates/mem/", "crates/graph/", "crates/kernels/", "crates/comm/", "crates/nccl/", "crates/python/"];

/// Returns a message for each example that is too long. The files of an example in its own folder are counted together.
pub(crate) fn long_examples(files: &[SourceFile]) -> Vec<String> {
    let mut n_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some(rest) = file.path.strip_prefix("examples/src/bin/") {
            let example = rest.split('/').next().unwrap_or(rest);
            *n_lines.entry(example).or_default() += file.text.lines().count();
        }
    }
    let limit = |name: &str| if name == SERVER_EXAMPLE.0 { SERVER_EXAMPLE.1 } else { EXAMPLE_MAX_LINES };
    n_lines.retain(|name, n_lines| limit(name) < *n_lines);
    n_lines
        .into_iter()
        .map(|(name, n)| format!("example {name} has {n} lines, at most {} allowed", limit(name)))
        .collect()
}

/// Returns a message for each Rust file that is too long and whose first comment does not give the reason.
pub(crate) fn long_files(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for SourceFile { path, text } in files.iter().filter(|file| file.is_rust()) {
        let most = if path.contains("/src/") { SOURCE_MAX_LINES } else { FILE_MAX_LINES };
        let reason = format!("Longer than {most} lines because");
        let n_lines = text.lines().count();
        let first_comment = text.lines().take_while(|line| line.starts_with("//"));
        let has_reason = first_comment.collect::<Vec<_>>().join("\n").contains(&reason);
        if most < n_lines && !has_reason {
            problems.push(format!("{path} has {n_lines} lines and does not begin with \"{reason} …\""));
        }
    }
    problems
}

/// Returns a message for each crate with too many lines of source. Generated code does not count, because it is not read,
/// nor do the examples in docs, because they are read with the documentation.
pub(crate) fn long_crates(files: &[SourceFile]) -> Vec<String> {
    beyond(crates_above(files, CRATE_MAX_LINES), LONG_CRATES, "LONG_CRATES in xtask/src/tidy.rs")
}

fn crates_above(files: &[SourceFile], most: usize) -> BTreeMap<String, String> {
    let mut n_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_generated()) {
        let parts: Vec<&str> = file.path.split('/').collect();
        if let ["crates", name, "src", ..] = parts[..] {
            *n_lines.entry(name).or_default() += n_lines_without_examples(&file.text);
        }
    }
    n_lines.retain(|_, n_lines| most < *n_lines);
    let say = |name, n| format!("crates/{name}/src has {n} lines, at most {most} allowed");
    n_lines.into_iter().map(|(name, n)| (name.to_owned(), say(name, n))).collect()
}

fn n_lines_without_examples(text: &str) -> usize {
    let mut is_example = false;
    let counts = text.lines().filter(|line| {
        let line = line.trim_start();
        let is_fence = line.starts_with("/// ```") || line.starts_with("//! ```");
        let counts = !is_example && !is_fence;
        is_example ^= is_fence;
        counts
    });
    counts.count()
}

/// The library whose examples are in Python, because no Rust program can link it.
const EXTENSION: &str = "crates/python/src/lib.rs";

/// Returns a message for each library, example and bench that does not begin with docs, and for each library whose docs
/// have no example that a doctest runs.
pub(crate) fn crate_docs(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for SourceFile { path, text } in files {
        let is_lib = path.starts_with("crates/") && path.ends_with("/src/lib.rs");
        let is_main = path.starts_with("examples/src/bin/") || path.starts_with("benches/benches/");
        let docs: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        if (is_lib || is_main && path.ends_with(".rs")) && docs.is_empty() {
            problems.push(format!("{path} does not begin with a `//!` comment that states its purpose"));
        } else if is_lib
            && path != EXTENSION
            && !docs.iter().any(|line| matches!(line.trim(), "```" | "```rust"))
        {
            problems.push(format!("{path}: the crate's docs have no example that a doctest runs"));
        }
    }
    problems
}

/// Returns a message for each use of unsafe code outside the crates that may have it.
pub(crate) fn stray_unsafe(files: &[SourceFile]) -> Vec<String> {
    let allowed = |path: &str| UNSAFE_CRATES.iter().any(|folder| path.starts_with(folder));
    find_lines(files.iter().filter(|file| file.is_rust() && !allowed(&file.path)), |line| {
        let code = line.split("//").next().unwrap_or(line);
        let found = code.match_indices("unsafe").any(|(at, word): (usize, &str)| {
            let rest = code[at + word.len()..].trim_start();
            let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            is_word
                && ["{", "fn ", "impl", "trait ", "extern ", "("].iter().any(|start| rest.starts_with(start))
        });
        found.then(|| "unsafe code belongs in mem, graph, kernels, comm, nccl and python".into())
    })
}

/// Returns a message for each ignored test and doc example. A test that the machine cannot run prints a skip line
/// instead; see `xtask test`.
pub(crate) fn ignored_tests(files: &[SourceFile]) -> Vec<String> {
    find_lines(files.iter().filter(|file| file.is_rust()), |line| {
        let line = line.trim_start();
        let is_doc = line.starts_with("///") || line.starts_with("//!");
        let is_ignored = line.starts_with("#[ignore") || is_doc && line.contains("```ignore");
        is_ignored.then(|| "an ignored test is not allowed, because it never runs".into())
    })
}

/// Returns a message for each path that exists on one machine only: home folders and temporary folders.
pub(crate) fn machine_paths(files: &[SourceFile]) -> Vec<String> {
    // The names are assembled at run time, so that this file does not match.
    let folders = ["home", "root", "tmp", "Users", "var/tmp"].map(|folder| format!("/{folder}/"));
    find_lines(files.iter(), |line| {
        let found = folders.iter().find(|folder| {
            line.match_indices(folder.as_str()).any(|(at, _)| {
                // After these characters the path is relative to another folder, as in `target/…` or `~/…`.
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}$".contains(c))
            })
        });
        found.map(|folder| format!("a path below {folder} exists on one machine only"))
    })
}

/// Returns `path:line: message` for each line that violates a rule. The rule returns the message, or `None`.
fn find_lines<'a>(
    files: impl Iterator<Item = &'a SourceFile>,
    rule: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut found = Vec::new();
    for SourceFile { path, text } in files {
        for (line_idx, line) in text.lines().enumerate() {
            if let Some(message) = rule(line) {
                found.push(format!("{path}:{}: {message}", line_idx + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: impl Into<String>) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    fn lines(n: usize) -> String {
        "fn f() {}\n".repeat(n)
    }

    #[test]
    fn an_example_of_121_lines_is_too_long() {
        assert_eq!(long_examples(&[file("examples/src/bin/a.rs", lines(120))]), [""; 0]);
        let expected = "example a.rs has 121 lines, at most 120 allowed";
        assert_eq!(long_examples(&[file("examples/src/bin/a.rs", lines(121))]), [expected]);
        assert_eq!(long_examples(&[file("examples/src/bin/serve_predictions.rs", lines(250))]), [""; 0]);
        assert_eq!(long_examples(&[file("examples/src/bin/serve_predictions.rs", lines(251))]).len(), 1);
    }

    #[test]
    fn the_files_of_one_example_count_together() {
        let parts = [
            file("examples/src/bin/a/main.rs", lines(100)),
            file("examples/src/bin/a/args.rs", lines(21)),
            file("examples/src/bin/b.rs", lines(120)),
        ];
        assert_eq!(long_examples(&parts), ["example a has 121 lines, at most 120 allowed"]);
    }

    #[test]
    fn a_long_file_needs_a_reason_in_its_first_comment() {
        for (path, most) in [("crates/a/tests/suite/b.rs", 400), ("crates/a/src/b.rs", 600)] {
            assert_eq!(long_files(&[file(path, lines(most)), file("a.md", lines(most + 1))]), [""; 0]);
            assert_eq!(long_files(&[file(path, lines(most + 1))]).len(), 1, "{path}");
            let reason = format!("//! A table.\n//!\n//! Longer than {most} lines because it is a table.\n");
            assert_eq!(long_files(&[file(path, reason.clone() + &lines(most))]), [""; 0]);
            assert_eq!(long_files(&[file(path, lines(most) + &reason)]).len(), 1, "{path}");
        }
    }

    #[test]
    fn sums_the_lines_of_all_source_files_of_a_crate_without_examples() {
        let files = [
            file(
                "crates/a/src/lib.rs",
                "//! A.
//! ```
//! a::f();
//! ```
",
            ),
            file(
                "crates/a/src/b/c.rs",
                "

",
            ),
            file(
                "crates/a/tests/t.rs",
                "


",
            ),
            file("crates/d/src/proto/generated.rs", "\n\n\n\n"),
            file(
                "crates/d/src/lib.rs",
                "

",
            ),
        ];
        let expected = "crates/a/src has 3 lines, at most 2 allowed";
        assert_eq!(crates_above(&files, 2), [("a".to_owned(), expected.to_owned())].into());
    }

    #[test]
    fn a_crate_without_docs_or_without_an_example_is_found() {
        let lib = |text: &str| crate_docs(&[file("crates/a/src/lib.rs", text)]);
        assert_eq!(lib("//! Does things.\n//! ```\n//! a::b();\n//! ```\n"), [""; 0]);
        assert!(lib("mod a;\n")[0].contains("does not begin"));
        assert!(lib("//! Does things.\n//! ```text\n//! picture\n//! ```text\n")[0].contains("no example"));
        assert_eq!(crate_docs(&[file("examples/src/bin/a.rs", "fn main() {}\n")]).len(), 1);
    }

    #[test]
    fn unsafe_code_is_found_outside_its_crates() {
        let code = format!("// {0} {{ }} in words\nlet x = {0} {{ f() }};\nis_{0}(1);\n", "unsafe");
        let expected =
            "crates/nn/src/a.rs:2: unsafe code belongs in mem, graph, kernels, comm, nccl and python";
        assert_eq!(stray_unsafe(&[file("crates/nn/src/a.rs", code.as_str())]), [expected]);
        assert_eq!(stray_unsafe(&[file("crates/graph/src/a.rs", code)]), [""; 0]);
    }

    #[test]
    fn an_ignored_test_is_found() {
        let text = ["#[test]", "    #[ignore = \"slow\"]", "fn f() {}", "/// ```ignore"].join("\n");
        let found = ignored_tests(&[file("a.rs", text)]);
        assert_eq!(
            found,
            [
                "a.rs:2: an ignored test is not allowed, because it never runs",
                "a.rs:4: an ignored test is not allowed, because it never runs"
            ]
        );
    }

    #[test]
    fn finds_paths_that_exist_on_one_machine_only() {
        let text = ["/home", "/me/x\nsee `/t", "mp/y`\ntarget/t", "mp/z\nexample.org/ho", "me/\n"].concat();
        let found = machine_paths(&[file("a.md", text)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.md:1:") && found[1].starts_with("a.md:2:"));
    }
}
