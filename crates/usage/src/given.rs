use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use clap::parser::ValueSource;

use crate::words::join_words;

/// The values of a command's flags by their long names, and the names of the flags on its command line.
#[derive(Debug, Clone, Default)]
pub struct GivenFlags {
    /// The value of each flag as text, including defaults. The values of a list are joined by commas.
    pub all: BTreeMap<String, String>,
    /// The long names of the flags that were passed on the command line.
    pub on_command_line: BTreeSet<String>,
}

impl GivenFlags {
    /// Adds a flag to those of the command line, or replaces its value.
    pub fn set(&mut self, flag: &str, value: String) {
        self.all.insert(flag.to_owned(), value);
        self.on_command_line.insert(flag.to_owned());
    }

    /// Makes the values of these flags absolute, as [`make_absolute`] does.
    pub fn make_absolute(&mut self, flags: &[&str]) {
        make_absolute(&mut self.all, flags);
    }

    /// Returns a note about those of these flags that are on the command line and have no effect; `None` if there are none.
    /// `reason` follows on that statement.
    pub fn note_unused(&self, flags: &[&str], reason: &str) -> Option<String> {
        let flags = flags.iter().filter(|flag| self.on_command_line.contains(**flag));
        let unused: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
        let verb = if unused.len() == 1 { "has" } else { "have" };
        let names = join_words(&unused, "and");
        (!unused.is_empty()).then(|| format!("{names} {verb} no effect {reason}"))
    }
}

/// Returns the absolute path of an existing file or folder; `None` for other texts.
fn absolute_path(text: &str) -> Option<String> {
    let path = Path::new(text).exists().then(|| std::path::absolute(text).ok()).flatten()?;
    path.to_str().map(str::to_owned)
}

/// Reads the values of all flags of the innermost subcommand of `command` from the parsed arguments.
///
/// ```
/// use clap::{Arg, Command};
/// let flag = |name: &'static str| Arg::new(name).long(name).default_value("1");
/// let command = Command::new("train").args([flag("ranks"), flag("seed")]);
/// let matches = command.clone().try_get_matches_from(["train", "--seed", "7"])?;
/// let given = kiln_usage::read_given(&command, &matches);
/// assert_eq!((given.all["ranks"].as_str(), given.all["seed"].as_str()), ("1", "7"));
/// let note = given.note_unused(&["ranks", "seed"], "here");
/// assert_eq!(note.as_deref(), Some("--seed has no effect here"));
/// # Ok::<(), clap::Error>(())
/// ```
pub fn read_given(command: &clap::Command, matches: &clap::ArgMatches) -> GivenFlags {
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        return read_given(command, matches);
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

/// Makes the values of these flags absolute that are relative paths of existing files or folders.
///
/// ```
/// let values = [("data", "src"), ("parts", "debian-packages"), ("out", "src")];
/// let mut values = values.map(|(flag, value)| (flag.to_owned(), value.to_owned())).into();
/// kiln_usage::make_absolute(&mut values, &["data", "parts"]);
/// assert_eq!(Some(values["data"].as_str()), std::path::absolute("src")?.to_str());
/// assert_eq!([&*values["parts"], &*values["out"]], ["debian-packages", "src"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn make_absolute(values: &mut BTreeMap<String, String>, flags: &[&str]) {
    for flag in flags {
        if let Some(text) = values.get_mut(*flag)
            && let Some(absolute) = absolute_path(text)
        {
            *text = absolute;
        }
    }
}

/// Returns the long names of a group of flags, in the order of the help text.
pub fn list_names<A: Args>() -> Vec<String> {
    let group = A::augment_args(clap::Command::new("group"));
    group.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
}
