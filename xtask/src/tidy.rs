//! Rules of the sources that no compiler checks, read as text.

use std::collections::{BTreeMap, BTreeSet};

use crate::exceptions::beyond;
use crate::workspace::SourceFile;

const EXAMPLE_MAX_LINES: usize = 120;
const FILE_MAX_LINES: usize = 400;
const CRATE_MAX_LINES: usize = 6_000;

/// Crates that are longer. The kernels may stay so; the rest of the list may only shrink.
const LONG_CRATES: &[&str] = &["comm", "data", "kernels", "train"];

/// Crates that may have unsafe code: an allocator and prefetches, mapped files, tensor memory, and handles of MPI and NCCL.
const UNSAFE_CRATES: &[&str] =
    &["crates/mem/", "crates/graph/", "crates/kernels/", "crates/comm/", "crates/nccl/"];

/// Examples that are longer than a page or two. An example in a folder of its own counts as a whole.
pub(crate) fn long_examples(files: &[SourceFile]) -> Vec<String> {
    let mut n_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some(rest) = file.path.strip_prefix("examples/src/bin/") {
            let example = rest.split('/').next().unwrap_or(rest);
            *n_lines.entry(example).or_default() += file.text.lines().count();
        }
    }
    n_lines.retain(|_, n_lines| EXAMPLE_MAX_LINES < *n_lines);
    let say = |(name, n)| format!("example {name} has {n} lines, at most {EXAMPLE_MAX_LINES} allowed");
    n_lines.into_iter().map(say).collect()
}

/// Rust files that are too long and whose first comment does not say why.
pub(crate) fn long_files(files: &[SourceFile]) -> Vec<String> {
    let reason = format!("Longer than {FILE_MAX_LINES} lines because");
    let mut problems = Vec::new();
    for SourceFile { path, text } in files.iter().filter(|file| file.is_rust()) {
        let n_lines = text.lines().count();
        let first_comment = text.lines().take_while(|line| line.starts_with("//"));
        let has_reason = first_comment.collect::<Vec<_>>().join("\n").contains(&reason);
        if FILE_MAX_LINES < n_lines && !has_reason {
            problems.push(format!("{path} has {n_lines} lines and does not begin with \"{reason} …\""));
        }
    }
    problems
}

/// Crates of too many lines of source.
pub(crate) fn long_crates(files: &[SourceFile]) -> Vec<String> {
    beyond(crates_above(files, CRATE_MAX_LINES), LONG_CRATES, "LONG_CRATES in xtask/src/tidy.rs")
}

fn crates_above(files: &[SourceFile], most: usize) -> BTreeMap<String, String> {
    let mut n_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let parts: Vec<&str> = file.path.split('/').collect();
        if let ["crates", name, "src", ..] = parts[..] {
            *n_lines.entry(name).or_default() += file.text.lines().count();
        }
    }
    n_lines.retain(|_, n_lines| most < *n_lines);
    let say = |name, n| format!("crates/{name}/src has {n} lines, at most {most} allowed");
    n_lines.into_iter().map(|(name, n)| (name.to_owned(), say(name, n))).collect()
}

/// Crate roots without docs, and library crates without an example that runs in them.
pub(crate) fn crate_docs(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for SourceFile { path, text } in files {
        let is_lib = path.starts_with("crates/") && path.ends_with("/src/lib.rs");
        let is_main = path.starts_with("examples/src/bin/") || path.starts_with("benches/benches/");
        let docs: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        if (is_lib || is_main && path.ends_with(".rs")) && docs.is_empty() {
            problems.push(format!("{path} does not begin with a `//!` that says what it is for"));
        } else if is_lib && !docs.iter().any(|line| matches!(line.trim(), "```" | "```rust")) {
            problems.push(format!("{path}: the crate's docs have no example that runs"));
        }
    }
    problems
}

/// Unsafe code outside the crates that may have it.
pub(crate) fn stray_unsafe(files: &[SourceFile]) -> Vec<String> {
    let allowed = |path: &str| UNSAFE_CRATES.iter().any(|folder| path.starts_with(folder));
    find_lines(files.iter().filter(|file| file.is_rust() && !allowed(&file.path)), |line| {
        let code = line.split("//").next().unwrap_or(line);
        let is_unsafe = |(at, word): (usize, &str)| {
            let rest = code[at + word.len()..].trim_start();
            let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            is_word
                && ["{", "fn ", "impl", "trait ", "extern ", "("].iter().any(|start| rest.starts_with(start))
        };
        let found = code.match_indices("unsafe").any(is_unsafe);
        found.then(|| "unsafe code belongs in mem, graph, kernels, comm and nccl".into())
    })
}

/// Tests and doc examples that never run. A test that this machine cannot run says so; see `xtask test`.
pub(crate) fn ignored_tests(files: &[SourceFile]) -> Vec<String> {
    find_lines(files.iter().filter(|file| file.is_rust()), |line| {
        let line = line.trim_start();
        let is_doc = line.starts_with("///") || line.starts_with("//!");
        let is_ignored = line.starts_with("#[ignore") || is_doc && line.contains("```ignore");
        is_ignored.then(|| "an ignored test proves nothing".into())
    })
}

/// Paths of one person's machine: home folders and temporary folders.
pub(crate) fn machine_paths(files: &[SourceFile]) -> Vec<String> {
    // Put together here, so that this file does not find itself.
    let folders = ["home", "root", "tmp", "Users", "var/tmp"].map(|folder| format!("/{folder}/"));
    find_lines(files.iter(), |line| {
        let found = folders.iter().find(|folder| {
            line.match_indices(folder.as_str()).any(|(at, _)| {
                // `target/…` or `~/…`: the folder is below another one.
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}$".contains(c))
            })
        });
        found.map(|folder| format!("a path below {folder} exists on one machine only"))
    })
}

/// Relative links of Markdown files, and `docs/…` named in the README, that lead nowhere.
pub(crate) fn dead_links(files: &[SourceFile], paths: &[String]) -> Vec<String> {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        known.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        known.insert(path);
    }
    let mut problems = Vec::new();
    for SourceFile { path, text } in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let inline = text.split('`').skip(1).step_by(2).filter(|word| {
            path == "README.md" && word.starts_with("docs/") && !word.contains(char::is_whitespace)
        });
        for link in links.chain(inline) {
            let target = link.split('#').next().unwrap_or(link);
            let is_elsewhere = target.is_empty() || target.contains(':');
            if !is_elsewhere && !known.contains(joined(folder, target).as_str()) {
                problems.push(format!("{path} names {link}, which does not exist"));
            }
        }
    }
    problems
}

/// `docs` and `../README.md` make `README.md`.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// `path:line: message` for every line that a rule has a message for.
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
        assert_eq!(long_files(&[file("a.rs", lines(400)), file("a.md", lines(401))]), [""; 0]);
        assert_eq!(long_files(&[file("a.rs", lines(401))]).len(), 1);
        let reason = "//! A table.\n//!\n//! Longer than 400 lines because it is a table.\n";
        assert_eq!(long_files(&[file("a.rs", reason.to_owned() + &lines(400))]), [""; 0]);
        assert_eq!(long_files(&[file("a.rs", lines(400) + reason)]).len(), 1);
    }

    #[test]
    fn the_lines_of_a_crates_source_add_up() {
        let files = [
            file(
                "crates/a/src/lib.rs",
                "//! A.
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
        let expected = "crates/nn/src/a.rs:2: unsafe code belongs in mem, graph, kernels, comm and nccl";
        assert_eq!(stray_unsafe(&[file("crates/nn/src/a.rs", code.as_str())]), [expected]);
        assert_eq!(stray_unsafe(&[file("crates/graph/src/a.rs", code)]), [""; 0]);
    }

    #[test]
    fn an_ignored_test_is_found() {
        let text = ["#[test]", "    #[ignore = \"slow\"]", "fn f() {}", "/// ```ignore"].join("\n");
        let found = ignored_tests(&[file("a.rs", text)]);
        assert_eq!(
            found,
            ["a.rs:2: an ignored test proves nothing", "a.rs:4: an ignored test proves nothing"]
        );
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let text = ["/home", "/me/x\nsee `/t", "mp/y`\ntarget/t", "mp/z\nexample.org/ho", "me/\n"].concat();
        let found = machine_paths(&[file("a.md", text)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.md:1:") && found[1].starts_with("a.md:2:"));
    }

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        let paths = ["README.md", "docs/rng.md", "docs/a.svg", "crates/graph/src/lib.rs"].map(String::from);
        let good = "[a](docs/rng.md#keys) [b](https://x.org) [c](#top) [d](crates/graph) `docs/a.svg`";
        assert_eq!(dead_links(&[file("README.md", good)], &paths), [""; 0]);
        assert_eq!(dead_links(&[file("docs/rng.md", "[up](../README.md) ![p](a.svg)")], &paths), [""; 0]);
        assert_eq!(
            dead_links(&[file("README.md", "[a](rng.md) and `docs/none.md`")], &paths),
            [
                "README.md names rng.md, which does not exist",
                "README.md names docs/none.md, which does not exist"
            ]
        );
    }
}
