use clap::{Arg, Command};

/// The longest default that the help by `-h` has, in characters.
const LONGEST_DEFAULT: usize = 50;

/// Shortens the help by `-h` of subcommands to the flags that a first user needs, with the first sentence and the default of each.
/// `--help` shows all flags in their groups, which the end of the short help names. A subcommand has a path of names, and the long
/// names of its flags separated by spaces; one that the program lacks is left out.
///
/// ```
/// use clap::{Arg, Command};
/// let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
/// let lr = flag("lr", "Learning rate. It is constant by default. Default: 0.003");
/// let train = Command::new("train").arg(lr).arg(flag("beta", "A factor")).next_help_heading("Optimizer");
/// let program = kiln_usage::shorten_help(Command::new("program").subcommand(train), &[(&["train"], "lr")]);
/// let help = program.try_get_matches_from(["program", "train", "-h"]).unwrap_err().to_string();
/// assert!(help.contains("Learning rate [default: 0.003]") && !help.contains("--beta"), "{help}");
/// ```
pub fn shorten_help(command: Command, first_flags: &[(&[&str], &str)]) -> Command {
    first_flags.iter().fold(command, |command, (path, flags)| shorten_at(command, path, flags))
}

fn shorten_at(command: Command, path: &[&str], flags: &str) -> Command {
    match path {
        [] => shorten(command, flags),
        // A build without tables has no import.
        [name, ..] if command.find_subcommand(name).is_none() => command,
        [name, rest @ ..] => command.mut_subcommand(name, |command| shorten_at(command, rest, flags)),
    }
}

fn shorten(command: Command, flags: &str) -> Command {
    let mut groups: Vec<String> = Vec::new();
    for heading in command.get_arguments().filter_map(Arg::get_help_heading) {
        // The rest of a heading explains the group.
        let group = heading.split([',', '(']).next().unwrap_or(heading).trim_end();
        if !groups.iter().any(|other| other == group) {
            groups.push(group.to_owned());
        }
    }
    let command = command.mut_args(|flag| match flag.get_long() {
        Some(name) if !flags.split_whitespace().any(|first| first == name) => flag.hide_short_help(true),
        _ => shorten_text(flag),
    });
    if groups.is_empty() {
        return command.after_help("See --help for all flags.").after_long_help("");
    }
    let groups = groups.join(", ");
    command.after_help(format!("See --help for all flags, in groups: {groups}.")).after_long_help("")
}

/// Shortens the help of a flag by `-h` to its first sentence, and its default if that is short.
fn shorten_text(flag: Arg) -> Arg {
    let Some(whole) = flag.get_help().map(ToString::to_string) else { return flag };
    let end = [". ", "; "].iter().filter_map(|end| whole.find(end)).min();
    let mut text = whole[..end.unwrap_or(whole.len())].to_owned();
    let default = whole.split_once("Default: ").map(|(_, default)| default.trim_end_matches('.'));
    if let Some(default) = default.filter(|default| default.chars().count() <= LONGEST_DEFAULT) {
        text.push_str(&format!(" [default: {default}]"));
    }
    flag.help(text).long_help(whole)
}
