//! The check of what libraries print: nothing, except in listed files. Their messages are events of `tracing`, which a table documents.

use std::collections::{BTreeMap, BTreeSet};

use crate::exceptions::beyond;
use crate::names::{is_of_a_crate, lines_outside_tests};
use crate::workspace::SourceFile;

/// The files of libraries that print. The list may only shrink.
const PRINTERS: &[&str] = &[
    // The reason why a process ends inside the library, if no subscriber takes it.
    "crates/comm/src/process/watchdog/exit.rs",
    // The handler of SIGBUS, in which no subscriber may run.
    "crates/graph/src/bus_error.rs",
    // `print_log`, which a program calls.
    "crates/kiln/src/log.rs",
    // The lines per epoch, which `FitConfig::quiet` disables.
    "crates/kiln/src/trainer/fit.rs",
    // `ProgressPrinter::stderr`, which a program creates.
    "crates/store/src/progress/printer.rs",
];

/// The ways to print.
const PRINTS: [&str; 10] = [
    "print!(",
    "println!(",
    "eprint!(",
    "eprintln!(",
    "dbg!(",
    "stdout()",
    "stderr()",
    "STDERR_FILENO",
    // Events of kinds that have no line in the table.
    "tracing::event!(",
    "tracing::trace!(",
];

/// The macros that emit events.
const LEVELS: [(&str, &str); 4] = [
    ("tracing::error!(", "ERROR"),
    ("tracing::warn!(", "WARN"),
    ("tracing::info!(", "INFO"),
    ("tracing::debug!(", "DEBUG"),
];

/// The table of events.
const TABLE: &str = "docs/log.md";

/// Returns a message for each file of a library that prints, for each event without a line in the table or with another level or
/// target, for each line without an event, and for each test in the table that does not exist.
pub(crate) fn problems(files: &[SourceFile]) -> Vec<String> {
    let mut problems = beyond(printers(files), PRINTERS, "PRINTERS in xtask/src/log.rs");
    let table = files.iter().find(|file| file.path == TABLE).map_or("", |file| &file.text);
    let rows: BTreeMap<&str, [&str; 2]> = table.lines().filter_map(row).collect();
    let mut names = BTreeSet::new();
    for file in libraries(files) {
        for event in events(&file.text) {
            match rows.get(&*event.name) {
                Some([place, _]) if **place == event.place => {}
                _ => problems
                    .push(format!("{}: {TABLE} has no line `{}` of {}", file.path, event.name, event.place)),
            }
            names.insert(event.name);
        }
    }
    for (name, [_, test]) in rows {
        if !names.contains(name) {
            problems.push(format!("{TABLE}: there is no event `{name}`"));
        }
        let function = format!("fn {test}(");
        if !test.starts_with("none: ")
            && !files.iter().any(|file| file.is_rust() && file.text.contains(&function))
        {
            problems.push(format!("{TABLE}: there is no test `{test}`, of `{name}`"));
        }
    }
    problems
}

/// Returns the sources of libraries: all crates except the program and what only tests use.
fn libraries(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| {
        is_of_a_crate(&file.path)
            && !file.path.starts_with("crates/cli/")
            && !file.path.starts_with("crates/testkit/")
            && !file.path.ends_with("/testing.rs")
    })
}

fn printers(files: &[SourceFile]) -> BTreeMap<String, String> {
    let mut printers = BTreeMap::new();
    for file in libraries(files) {
        let mut code =
            lines_outside_tests(&file.text).filter(|(_, line)| !line.trim_start().starts_with("//"));
        if let Some((line_idx, _)) = code.find(|(_, line)| PRINTS.iter().any(|print| line.contains(print))) {
            let message =
                format!("{}:{}: a library prints: emit an event of `tracing`", file.path, line_idx + 1);
            printers.insert(file.path.clone(), message);
        }
    }
    printers
}

/// An event in a source: its name, and its level and target.
struct Event {
    name: String,
    place: String,
}

fn events(text: &str) -> Vec<Event> {
    let code: Vec<&str> = lines_outside_tests(text)
        .map(|(_, line)| line.trim())
        .filter(|line| !line.starts_with("//"))
        .collect();
    let code = code.join(" ");
    let mut events = Vec::new();
    for (start, level) in LEVELS {
        for call in code.split(start).skip(1) {
            let value = |key: &str| {
                let (_, rest) = call.split_once(';')?.0.split_once(key)?;
                rest.split('"').nth(1).map(str::to_owned)
            };
            let name = value("name:").unwrap_or_else(|| "an event without a name".to_owned());
            let place = format!("{level} `{}`", value("target:").unwrap_or_default());
            events.push(Event { name, place });
        }
    }
    events
}

/// Returns the name of a line of the table, with its level and target, and its test.
fn row(line: &str) -> Option<(&str, [&str; 2])> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.trim_end_matches(" |").split(" | ").collect();
    let [name, place, _, test] = cells[..] else { return None };
    Some((name.trim_end_matches('`'), [place, test.trim_matches('`')]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn finds_libraries_that_print() {
        let code = "/// println!(\"docs\")\nfn f() {\n    println!(\"a\");\n}\n";
        let tests = "#[cfg(test)]\nmod tests {\n    println!(\"a\");\n}\n";
        let files = [
            file("crates/a/src/lib.rs", code),
            file("crates/a/src/b.rs", tests),
            file("crates/cli/src/lib.rs", code),
            file("crates/a/tests/suite/main.rs", code),
        ];
        let expected = "crates/a/src/lib.rs:3: a library prints: emit an event of `tracing`".to_owned();
        assert_eq!(printers(&files), [("crates/a/src/lib.rs".to_owned(), expected)].into());
    }

    #[test]
    fn compares_events_with_the_table() {
        let event = |name: &str| {
            format!("tracing::warn!(\n    name: \"{name}\", target: \"kiln_a\",\n    \"text\"\n);\n")
        };
        let table = "| `known` | WARN `kiln_a` | text | `is_tested` |\n| `gone` | INFO `kiln_a` | text | none: no device |\n\
                     | `lost` | WARN `kiln_a` | text | `is_missing` |\n";
        let files = [
            file("crates/a/src/lib.rs", &(event("known") + &event("new") + &event("lost"))),
            file("crates/a/tests/suite/main.rs", "fn is_tested() {}\n"),
            file(TABLE, table),
        ];
        let problems = problems(&files);
        let found: Vec<&String> = problems.iter().filter(|problem| !problem.contains("PRINTERS")).collect();
        assert_eq!(
            found,
            [
                "crates/a/src/lib.rs: docs/log.md has no line `new` of WARN `kiln_a`",
                "docs/log.md: there is no event `gone`",
                "docs/log.md: there is no test `is_missing`, of `lost`",
            ]
        );
    }
}
