use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use kiln_graph::{ByRelation, ByRelationError, similar_alias};

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

/// The parser of a choice for all relations of a graph, and of others for some relations, by name ([`ByRelation`]).
#[derive(Debug, Clone)]
pub struct RelationChoices<T>(Choices<T>);

impl<T> Choices<T> {
    /// Returns the parser of choices by relation, such as `mean;buys=sum`.
    ///
    /// ```
    /// use clap::{Arg, Command};
    /// use kiln_graph::ByRelation;
    /// let parser = kiln_usage::choice([("mean", "The mean", 'm'), ("sum", "The sum", 's')]).relation_choices();
    /// let command = Command::new("pool").arg(Arg::new("readout").value_parser(parser));
    /// let matches = command.try_get_matches_from(["pool", "mean;buys=sum"])?;
    /// let readouts = matches.get_one::<ByRelation<char>>("readout").unwrap();
    /// assert_eq!((readouts.of_all, readouts.of_relations[0].1), (Some('m'), 's'));
    /// # Ok::<(), clap::Error>(())
    /// ```
    pub fn relation_choices(self) -> RelationChoices<T> {
        RelationChoices(self)
    }
}

/// An error of one of several choices.
enum RelationChoiceError {
    Choice(clap::Error),
    Form(ByRelationError),
}

impl From<ByRelationError> for RelationChoiceError {
    fn from(error: ByRelationError) -> Self {
        Self::Form(error)
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for RelationChoices<T> {
    type Value = ByRelation<T>;

    fn parse_ref(
        &self,
        command: &Command,
        flag: Option<&Arg>,
        value: &OsStr,
    ) -> Result<ByRelation<T>, clap::Error> {
        let parsed = ByRelation::parse(&value.to_string_lossy(), |text| {
            let choice = self.0.parse_ref(command, flag, OsStr::new(text.trim()));
            choice.map_err(RelationChoiceError::Choice)
        });
        parsed.map_err(|error| match error {
            RelationChoiceError::Choice(error) => error,
            RelationChoiceError::Form(error) => {
                let flag = flag.map_or_else(|| "...".to_owned(), ToString::to_string);
                let text = format!("invalid value '{}' for '{flag}': {error}\n", value.to_string_lossy());
                clap::Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
            }
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
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
