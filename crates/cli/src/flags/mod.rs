//! The groups of flags that commands have in common or that one command has, with the values that they set.

pub(crate) mod device;
pub(crate) mod fit;
pub(crate) mod link_split;
pub(crate) mod links;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod optimizer;
pub(crate) mod parse;
pub(crate) mod partitions;
pub(crate) mod ranks;
pub(crate) mod sampling;
pub(crate) mod source;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use clap::parser::ValueSource;

use crate::output::print_rank_zero;

/// The values of a command's flags by their long names, and the names of the flags on its command line.
pub(crate) struct GivenFlags {
    /// The value of each flag as text, including defaults. The values of a list are joined by commas.
    pub(crate) all: BTreeMap<String, String>,
    /// The long names of the flags that were passed on the command line.
    pub(crate) on_command_line: BTreeSet<String>,
}

impl GivenFlags {
    /// Prints a note about those of these flags that are on the command line and have no effect. `reason` follows on that
    /// statement.
    pub(crate) fn note_unused(&self, flags: &[&str], reason: &str) {
        let flags = flags.iter().filter(|flag| self.on_command_line.contains(**flag));
        let unused: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
        if !unused.is_empty() {
            let verb = if unused.len() == 1 { "has" } else { "have" };
            let flags = parse::join_words(unused.iter().map(String::as_str), "and");
            print_rank_zero(format_args!("note: {flags} {verb} no effect {reason}"));
        }
    }
}

/// Reads the values of all flags of the innermost subcommand of `command` from the parsed arguments.
pub(crate) fn read_given(command: clap::Command, matches: &clap::ArgMatches) -> GivenFlags {
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        return read_given(command.clone(), matches);
    }
    let mut all = BTreeMap::new();
    let mut on_command_line = BTreeSet::new();
    for flag in command.get_arguments() {
        let Some(name) = flag.get_long() else { continue };
        let id = flag.get_id().as_str();
        if matches.contains_id(id) {
            let values = matches.get_raw(id).into_iter().flatten();
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            all.insert(name.to_owned(), values.join(","));
        }
        if matches.value_source(id) == Some(ValueSource::CommandLine) {
            on_command_line.insert(name.to_owned());
        }
    }
    GivenFlags { all, on_command_line }
}

/// Returns the long names of a group of flags, in the order of the help text.
pub(crate) fn list_names<A: Args>() -> Vec<String> {
    let group = A::augment_args(clap::Command::new("group"));
    group.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
}
