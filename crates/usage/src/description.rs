use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use clap::ArgAction;
use kiln_graph::{did_you_mean, similar_name};
use kiln_store::whole_file::read_text;
use serde_json::{Map, Value};

use crate::{UsageError, bail};

/// The flags of a command as a file: a TOML or YAML table of the flags' long names and their values, such as
/// `batch-size = 256`. A flag without a value is `true`; a list is an array, or a text as on the command line.
///
/// ```
/// use clap::{Arg, Command};
/// use kiln_usage::Description;
/// let flag = |name: &'static str| Arg::new(name).long(name);
/// let command = Command::new("train").args([flag("lr"), flag("fanouts")]);
/// let description = Description::parse("lr = 0.01\nfanouts = [10, 5]", "run.toml".as_ref())?;
/// assert_eq!(description.arguments(&command, &Default::default())?, ["--fanouts=10,5", "--lr=0.01"]);
/// # Ok::<(), kiln_usage::UsageError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The file, for errors.
    file: String,
    /// The value of each flag as on the command line.
    values: BTreeMap<String, String>,
}

impl Description {
    /// The extensions of the files.
    pub(crate) const EXTENSIONS: [&str; 4] = ["toml", "yaml", "yml", "json"];

    /// Reads a file: TOML with the extension `toml`, YAML or JSON with `yaml`, `yml` or `json`.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read, has another extension, or is not a table of flags and values.
    pub fn read(path: &Path) -> Result<Self, UsageError> {
        let text = read_text(path).map_err(|e| UsageError(format!("{}: {e}", path.display())))?;
        Self::parse(&text, path)
    }

    /// Same as [`read`](Self::read), but the content is a text.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn parse(text: &str, path: &Path) -> Result<Self, UsageError> {
        let (description, _) = Self::parse_with_tables(text, path, &[])?;
        if description.values.is_empty() {
            bail!("{} has no flags: write some, such as `lr = 0.01`", description.file);
        }
        Ok(description)
    }

    /// Same as [`parse`](Self::parse), but entries with these names are no flags and are returned apart, and flags may be missing.
    ///
    /// ```
    /// use kiln_usage::Description;
    /// let text = "epochs = 5\n[sweep]\nlr = [0.01, 0.003]";
    /// let (flags, tables) = Description::parse_with_tables(text, "sweep.toml".as_ref(), &["sweep"])?;
    /// assert_eq!((flags.get("epochs"), tables["sweep"]["lr"][0].as_f64()), (Some("5"), Some(0.01)));
    /// # Ok::<(), kiln_usage::UsageError>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn parse_with_tables(
        text: &str,
        path: &Path,
        tables: &[&str],
    ) -> Result<(Self, Map<String, Value>), UsageError> {
        let file = path.display().to_string();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let read: Result<Map<String, Value>, String> = match extension {
            "toml" => toml::from_str(text).map_err(|e| e.to_string()),
            "yaml" | "yml" => serde_saphyr::from_str(text).map_err(|e| e.to_string()),
            "json" => serde_json::from_str(text).map_err(|e| e.to_string()),
            _ => bail!("{file} has no extension of a description: expected toml, yaml or json"),
        };
        let table = read.map_err(|e| {
            UsageError(format!("{file} is not a table of flags and values, such as `lr = 0.01`: {e}"))
        })?;
        let mut values = BTreeMap::new();
        let mut apart = Map::new();
        for (name, value) in table {
            if tables.contains(&name.as_str()) {
                apart.insert(name, value);
                continue;
            }
            let Some(text) = value_text(&value) else {
                bail!("{file}: `{name}` is {}, expected a value or a list of values", kind_of(&value));
            };
            values.insert(name, text);
        }
        Ok((Self { file, values }, apart))
    }

    /// Describes flags by their names and values.
    pub fn of(values: BTreeMap<String, String>) -> Self {
        Self { file: String::new(), values }
    }

    /// Sets the file that errors name.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<String>) -> Self {
        self.file = file.into();
        self
    }

    /// Returns the value of each flag as on the command line, by the flag's long name.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Returns the value of a flag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Keeps those flags for which a function of the name and the value returns true.
    pub fn retain(&mut self, keeps: impl Fn(&str, &str) -> bool) {
        self.values.retain(|name, value| keeps(name, value));
    }

    /// Returns the table in TOML. Numbers and switches are not quoted.
    pub fn to_toml(&self) -> String {
        let table: toml::Table =
            self.values.iter().map(|(name, text)| (name.clone(), toml_of(text))).collect();
        table.to_string()
    }

    /// Returns the arguments of a command line with these flags, except for those that are on it already.
    ///
    /// # Errors
    /// Returns an error that names the file and the flag if the command has no such flag, or if a switch is neither `true` nor
    /// `false`.
    pub fn arguments(
        &self,
        command: &clap::Command,
        on_command_line: &BTreeSet<String>,
    ) -> Result<Vec<OsString>, UsageError> {
        let Self { file, values } = self;
        let mut arguments = Vec::new();
        for (name, value) in values {
            let flags = || command.get_arguments().filter_map(|flag| Some((flag.get_long()?, flag)));
            let Some((_, flag)) = flags().find(|(long, _)| long == name) else {
                let advice = did_you_mean(similar_name(name, flags().map(|(long, _)| long)));
                bail!("{file}: `kiln {}` has no flag --{name}{advice}", command.get_name());
            };
            if on_command_line.contains(name) {
                continue;
            }
            match (flag.get_action(), &**value) {
                (ArgAction::SetTrue, "true") => arguments.push(format!("--{name}").into()),
                (ArgAction::SetTrue, "false") => {}
                (ArgAction::SetTrue, other) => {
                    bail!("{file}: `{name}` is {other}, expected true or false");
                }
                _ => arguments.push(format!("--{name}={value}").into()),
            }
        }
        Ok(arguments)
    }
}

/// Returns a value of a description as on a command line; `None` for tables, lists of lists and missing values.
///
/// ```
/// use kiln_usage::value_text;
/// assert_eq!(value_text(&serde_json::json!([10, 5])).as_deref(), Some("10,5"));
/// assert_eq!(value_text(&serde_json::json!([[10], [5]])), None);
/// ```
pub fn value_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_set) => Some(is_set.to_string()),
        Value::Array(values) => {
            let texts: Option<Vec<String>> =
                values.iter().map(|value| if value.is_array() { None } else { value_text(value) }).collect();
            Some(texts?.join(","))
        }
        Value::Null | Value::Object(_) => None,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Object(_) => "a table",
        Value::Array(_) => "a list of lists",
        _ => "a value",
    }
}

/// Returns a text as a value of TOML: a switch or a number if it is written like one, and is read as the same text.
fn toml_of(text: &str) -> toml::Value {
    if let Ok(is_set) = text.parse() {
        return toml::Value::Boolean(is_set);
    }
    let integer = text.parse().map(toml::Value::Integer).ok();
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite()).map(toml::Value::Float);
    match integer.or(number) {
        Some(value) if is_read_as(&value, text) => value,
        _ => toml::Value::String(text.to_owned()),
    }
}

/// Returns true if a description with this value has this text for it.
fn is_read_as(value: &toml::Value, text: &str) -> bool {
    match value {
        toml::Value::Integer(number) => number.to_string() == text,
        toml::Value::Float(number) => value_text(&Value::from(*number)).as_deref() == Some(text),
        _ => false,
    }
}
