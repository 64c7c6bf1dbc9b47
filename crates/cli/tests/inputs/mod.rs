//! The registry of inputs: `docs/inputs.md` has a line for each argument, environment variable, field of a file, name of a
//! file and name within a file that the program reads, with its effect or message and the test that shows it. The tests of
//! this module derive the inputs from the code and compare them with the lines, in both directions.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod arguments;
mod fields;
mod literals;
mod rust_source;
mod table;

use std::collections::BTreeSet;

use self::rust_source::RustSource;
use self::table::InputTable;

/// The table.
const TABLE: &str = include_str!("../../../../docs/inputs.md");

/// An input: a name in a section of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Input {
    section: String,
    name: String,
}

impl Input {
    fn new(section: impl Into<String>, name: impl Into<String>) -> Self {
        Self { section: section.into(), name: name.into() }
    }
}

/// Returns the inputs of a command line and of sources.
fn derive_inputs(command: &clap::Command, sources: &[RustSource]) -> BTreeSet<Input> {
    let mut inputs = BTreeSet::new();
    arguments::add(command, "", &mut inputs);
    for source in sources {
        add_source(source, &mut inputs);
    }
    inputs
}

fn add_source(source: &RustSource, inputs: &mut BTreeSet<Input>) {
    fields::add(source, inputs);
    literals::add(source, inputs);
}

/// Returns the differences between the table and the inputs: a text for each input without a line and each line without an
/// input.
fn compare(table: &InputTable, inputs: &BTreeSet<Input>) -> Vec<String> {
    let lines: BTreeSet<Input> = table.lines.iter().map(|line| line.input.clone()).collect();
    let missing = inputs.difference(&lines).map(|Input { section, name }| {
        format!("`{name}` of `{section}` is an input without a line: add its effect or message, and a test that shows it")
    });
    let unknown = lines
        .difference(inputs)
        .map(|Input { section, name }| format!("`{name}` of `{section}` is a line, but no input: remove it"));
    missing.chain(unknown).collect()
}

mod tests {
    use std::sync::LazyLock;

    use clap::Arg;

    use super::rust_source::read_sources;
    use super::table::TestIndex;
    use super::*;

    /// The inputs of the program.
    static INPUTS: LazyLock<BTreeSet<Input>> =
        LazyLock::new(|| derive_inputs(&crate::command(), &read_sources()));

    fn table() -> InputTable {
        InputTable::parse(TABLE).unwrap()
    }

    /// Checks that the only difference is that `name` has no line.
    fn check_found(inputs: &BTreeSet<Input>, section: &str, name: &str) {
        let problems = compare(&table(), inputs);
        let expected = format!("`{name}` of `{section}` is an input without a line");
        assert!(problems.len() == 1 && problems[0].starts_with(&expected), "{problems:#?}");
    }

    #[test]
    fn every_input_has_a_line_in_the_table() {
        let problems = compare(&table(), &INPUTS);
        assert!(problems.is_empty(), "docs/inputs.md:\n{}", problems.join("\n"));
    }

    #[test]
    fn every_line_names_a_test_that_has_its_input() {
        let tests = TestIndex::read();
        let problems: Vec<String> = table().lines.iter().filter_map(|line| tests.problem(line)).collect();
        assert!(problems.is_empty(), "docs/inputs.md:\n{}", problems.join("\n"));
    }

    #[test]
    fn an_added_argument_is_found() {
        let add = |train: clap::Command| train.arg(Arg::new("extra").long("extra").hide(true));
        let mut inputs = INPUTS.clone();
        arguments::add(&crate::command().mut_subcommand("train", add), "", &mut inputs);
        check_found(&inputs, "kiln train", "--extra");
    }

    #[test]
    fn an_added_field_file_name_or_variable_is_found() {
        let field = "#[derive(Deserialize)] #[serde(deny_unknown_fields)] struct Added { extra: u32 }";
        let variant = "#[derive(Deserialize)] #[serde(rename_all = \"snake_case\", deny_unknown_fields)] \
            enum Added { OneKind { #[serde(rename = \"extra\")] other: Vec<(u8, u8)> }, Plain }";
        for (path, text, section, name) in [
            ("crates/tables/src/added.rs", field, "kiln-tables Added", "extra"),
            ("crates/tables/src/added.rs", variant, "kiln-tables Added", "one_kind.extra"),
            ("crates/data/src/added.rs", "const ADDED: &str = \"extra.npy\";", "kiln-data", "extra.npy"),
            (
                "crates/data/src/readers/ogb/added.rs",
                "fn f() { g(archive.array(\"extra\")) }",
                "kiln-data ogb",
                "extra",
            ),
            ("crates/cli/src/added.rs", "const ADDED: &str = \"KILN_EXTRA\";", "environment", "KILN_EXTRA"),
        ] {
            let mut inputs = INPUTS.clone();
            add_source(&RustSource::parse(path, text), &mut inputs);
            check_found(&inputs, section, name);
        }
    }

    #[test]
    fn a_type_that_ignores_keys_needs_a_line() {
        let text =
            "#[derive(Deserialize)] struct Added { #[serde(skip)] skipped: u8 } #[cfg(test)] mod tests {}";
        let mut inputs = INPUTS.clone();
        add_source(&RustSource::parse("crates/data/src/added.rs", text), &mut inputs);
        assert_eq!(compare(&table(), &inputs), [""; 0]);
        let text = "#[derive(Deserialize)] struct Header { version: u8 }";
        add_source(&RustSource::parse("crates/train/src/added.rs", text), &mut inputs);
        assert_eq!(compare(&table(), &inputs), [""; 0]);
        let text = "#[derive(Deserialize)] struct ModelInfo { kiln: String }";
        add_source(&RustSource::parse("crates/train/src/added.rs", text), &mut inputs);
        check_found(&inputs, "kiln-train ModelInfo", "other keys");
    }

    #[test]
    fn a_removed_input_is_found() {
        let mut inputs = INPUTS.clone();
        inputs.remove(&Input::new("kiln-tables ImportSpec", "name"));
        let expected = "`name` of `kiln-tables ImportSpec` is a line, but no input: remove it";
        assert_eq!(compare(&table(), &inputs), [expected]);
    }

    #[test]
    fn a_line_without_its_test_is_found() {
        let index = TestIndex::of("fn shows_it() {\n    run(\"--extra 3\");\n}\n");
        let text = "## `kiln train`\n\n| input | effect | test |\n|---|---|---|\n| `--extra` | none | `shows_it` |\n\
            | `--extra` | none | `no_such_test` |\n| `--ext` | none | `shows_it` |\n\
            | `<EXTRA>` | none | `shows_it` as `--extra` |\n";
        let table = InputTable::parse(text).unwrap();
        let problems: Vec<Option<String>> = table.lines.iter().map(|line| index.problem(line)).collect();
        let expected = [
            None,
            Some("`--extra` of `kiln train`: no test is named no_such_test".to_owned()),
            Some("`--ext` of `kiln train`: the file of shows_it does not contain \"--ext\"".to_owned()),
            None,
        ];
        assert_eq!(problems, expected);
        let error = InputTable::parse("| `--extra` | | `shows_it` |").unwrap_err();
        assert!(error.starts_with("expected | `input` | effect | `test` |"), "{error}");
    }
}
