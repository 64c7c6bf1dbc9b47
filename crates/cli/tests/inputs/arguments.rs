use std::collections::BTreeSet;

use clap::{Arg, Command};

use super::Input;

/// The identifiers of the arguments that clap adds.
const OF_CLAP: [&str; 2] = ["help", "version"];

/// Adds the arguments of a command and of its subcommands, with those that its help does not show. Values of enumerations
/// have no lines of their own.
pub(super) fn add(command: &Command, parent: &str, inputs: &mut BTreeSet<Input>) {
    let name = format!("{parent} {}", command.get_name());
    let name = name.trim_start();
    for argument in command.get_arguments().filter(|argument| !OF_CLAP.contains(&argument.get_id().as_str()))
    {
        inputs.extend(names_of(argument).into_iter().map(|argument| Input::new(name, argument)));
    }
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        add(subcommand, name, inputs);
    }
}

/// Returns the names of an argument: those of a flag, or that of a positional value.
fn names_of(argument: &Arg) -> Vec<String> {
    let long = argument.get_long().into_iter().chain(argument.get_all_aliases().into_iter().flatten());
    let long = long.map(|name| format!("--{name}"));
    let short =
        argument.get_short().into_iter().chain(argument.get_all_short_aliases().into_iter().flatten());
    let flags: Vec<String> = long.chain(short.map(|name| format!("-{name}"))).collect();
    match argument.is_positional() {
        true => vec![format!("<{}>", argument.get_id().as_str().to_uppercase())],
        false => flags,
    }
}
