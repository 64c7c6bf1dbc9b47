use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds advice to an error of the command line that clap has none for: about a list whose values are separate words, and about a
/// subcommand of another command. `args` are those that were parsed, with the name of the program, and `lists` the long names of the
/// flags that parse a list from one value, besides those with a delimiter.
///
/// ```
/// use clap::{Arg, Command};
/// let inspect = Command::new("data").subcommand(Command::new("inspect"));
/// let train = Command::new("train").arg(Arg::new("fanouts").long("fanouts"));
/// let program = Command::new("kiln").subcommand(inspect).subcommand(train);
/// let advised = |args: &[&str]| {
///     let error = program.clone().try_get_matches_from(args).unwrap_err();
///     let args: Vec<_> = args.iter().map(Into::into).collect();
///     kiln_usage::advise(error, &program, &args, &["fanouts"]).to_string()
/// };
/// assert!(advised(&["kiln", "inspect"]).contains("did you mean 'kiln data inspect'?"));
/// let text = advised(&["kiln", "train", "--fanouts", "10", "10"]);
/// assert!(text.contains("separate the values of a list with commas: '--fanouts 10,10'"));
/// ```
pub fn advise(mut error: clap::Error, command: &Command, args: &[OsString], lists: &[&str]) -> clap::Error {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let advice = match error.kind() {
        ErrorKind::UnknownArgument => {
            of(ContextKind::InvalidArg).and_then(|word| advise_on_list(&word, command, &args, lists))
        }
        // A word that is no flag may be parsed as the value of a positional argument.
        ErrorKind::ValueValidation
            if of(ContextKind::InvalidArg).is_some_and(|arg| !arg.starts_with('-')) =>
        {
            of(ContextKind::InvalidValue).and_then(|word| advise_on_list(&word, command, &args, lists))
        }
        ErrorKind::InvalidSubcommand => {
            of(ContextKind::InvalidSubcommand).and_then(|name| advise_on_subcommand(&name, command))
        }
        _ => None,
    };
    if let Some(advice) = advice {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    } else if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
        && tips.iter().any(|tip| tip.to_string().contains("as a value, use"))
    {
        // A flag is never meant as the value of an argument without a name.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Returns the message of an error of the command line in one line, without the usage that the parser adds.
///
/// ```
/// use clap::{Arg, Command};
/// let train = Command::new("train").arg(Arg::new("lr").long("lr"));
/// let error = train.try_get_matches_from(["train", "--lrr=1"]).unwrap_err();
/// let message = kiln_usage::error_message(&error);
/// assert_eq!(message, "unexpected argument '--lrr' found; tip: a similar argument exists: '--lr'");
/// ```
pub fn error_message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let message = lines.collect::<Vec<_>>().join("; ");
    message.strip_prefix("error: ").map_or(message.clone(), str::to_owned)
}

/// Returns advice for a word behind a flag whose value is a list.
fn advise_on_list(word: &str, command: &Command, args: &[String], lists: &[&str]) -> Option<String> {
    let position = args.iter().rposition(|arg| arg == word)?;
    let start = args[..position].iter().rposition(|arg| arg.starts_with("--"))?;
    let flag = args[start].trim_start_matches('-');
    let mut command = command;
    for name in &args[1..start] {
        command = command.find_subcommand(name).unwrap_or(command);
    }
    let found = command.get_arguments().find(|arg| arg.get_long() == Some(flag))?;
    let is_list = found.get_value_delimiter().is_some() || lists.contains(&flag);
    let end =
        args[position..].iter().position(|arg| arg.starts_with("--")).map_or(args.len(), |n| position + n);
    let values = args[start + 1..end].join(",");
    is_list.then(|| format!("separate the values of a list with commas: '--{flag} {values}'"))
}

/// Returns advice for a name that is a subcommand of another command.
fn advise_on_subcommand(name: &str, command: &Command) -> Option<String> {
    let parents = command.get_subcommands();
    let parent = parents.into_iter().find(|parent| parent.find_subcommand(name).is_some())?;
    Some(format!("did you mean '{} {} {name}'?", command.get_name(), parent.get_name()))
}
