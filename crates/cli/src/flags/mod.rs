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

/// The values of a command's flags by their long names, and the names of the flags on its command line.
pub(crate) struct GivenFlags {
    /// The value of each flag as text, including defaults. The values of a list are joined by commas.
    pub(crate) all: BTreeMap<String, String>,
    /// The long names of the flags that were passed on the command line.
    pub(crate) on_command_line: BTreeSet<String>,
}

/// Reads the values of all flags of `command` from its parsed arguments.
pub(crate) fn read_given(command: &clap::Command, matches: &clap::ArgMatches) -> GivenFlags {
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
