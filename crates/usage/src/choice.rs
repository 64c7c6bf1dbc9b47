use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use kiln_graph::similar_alias;

/// The parser of an enumeration. An error lists the choices, and suggests one with a similar name.
#[derive(Debug, Clone)]
pub struct Choices<T> {
    /// The name of each choice, a help text (which may be empty) and the value.
    choices: Vec<(&'static str, &'static str, T)>,
    /// Other names, with the name of the choice that they stand for. Errors translate them.
    aliases: Vec<(&'static str, &'static str)>,
}

/// Returns a parser of an enumeration, whose choices are triples of a name, a help text (which may be empty) and a
/// value.
///
/// ```
/// use clap::{Arg, Command};
/// let parser = kiln_usage::choice([("mean", "The mean", 'm'), ("sum", "The sum", 's')]);
/// let command = Command::new("pool").arg(Arg::new("readout").value_parser(parser));
/// let matches = command.try_get_matches_from(["pool", "sum"])?;
/// assert_eq!(matches.get_one::<char>("readout"), Some(&'s'));
/// # Ok::<(), clap::Error>(())
/// ```
pub fn choice<T>(choices: impl IntoIterator<Item = (&'static str, &'static str, T)>) -> Choices<T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let aliases = choices.iter().map(|(name, ..)| (*name, *name)).collect();
    Choices { choices, aliases }
}

impl<T> Choices<T> {
    /// Adds other names, each with the name of the choice that it stands for.
    #[must_use]
    pub fn aliases(mut self, aliases: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        self.aliases.extend(aliases);
        self
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Choices<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let text = value.to_string_lossy();
        if let Some((.., value)) = self.choices.iter().find(|(name, ..)| *name == text) {
            return Ok(value.clone());
        }
        let names = self.choices.iter().map(|(name, ..)| (*name).to_owned()).collect();
        let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        let flag = flag.map_or_else(|| "...".to_owned(), ToString::to_string);
        error.insert(ContextKind::InvalidArg, ContextValue::String(flag));
        error.insert(ContextKind::InvalidValue, ContextValue::String(text.to_string()));
        error.insert(ContextKind::ValidValue, ContextValue::Strings(names));
        if let Some(similar) = similar_alias(&text, self.aliases.iter().copied()) {
            error.insert(ContextKind::SuggestedValue, ContextValue::String(similar.to_owned()));
        }
        Err(error)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.choices.iter().map(|(name, help, _)| match help.is_empty() {
            true => PossibleValue::new(name),
            false => PossibleValue::new(name).help(*help),
        })))
    }
}

/// Returns the name of a value among the choices of [`choice`].
pub fn name_of<T: PartialEq>(choices: &[(&'static str, &'static str, T)], value: &T) -> &'static str {
    choices.iter().find(|(.., other)| other == value).map_or("", |(name, ..)| name)
}
