use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Command};

use crate::{Description, UsageError};

/// The files in which runs of a command record their flags, for other runs.
///
/// ```
/// use clap::{Arg, Command};
/// use std::collections::BTreeMap;
/// use kiln_usage::RunFiles;
/// let files = RunFiles {
///     description: "run.toml",
///     settings: "config.json",
///     mark: "task",
///     useless: ("graph", "fanouts"),
///     unrecorded: ["out".to_owned()].into(),
/// };
/// let values = [("lr", "0.01"), ("out", "runs/a"), ("task", "node"), ("seed", "0")];
/// let values = BTreeMap::from(values.map(|(name, value)| (name.to_owned(), value.to_owned())));
/// let given = ["lr".to_owned(), "out".to_owned()].into();
/// assert_eq!(files.describe(&given, &values).to_toml(), "lr = 0.01\ntask = \"node\"\n");
/// let train = Command::new("train").arg(Arg::new("lr").long("lr"));
/// assert_eq!(files.read("runs/without".as_ref(), &train)?, None);
/// # Ok::<(), kiln_usage::UsageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunFiles {
    /// The name of the description in the folder of a run.
    pub description: &'static str,
    /// The name of a file with the values of all flags, which older versions recorded.
    pub settings: &'static str,
    /// A flag that these settings have, and those of other programs lack.
    pub mark: &'static str,
    /// A value of [`mark`](Self::mark), and a flag whose recorded value then means nothing.
    pub useless: (&'static str, &'static str),
    /// Flags that a run does not record: where it is and what it prints, not what it computes.
    pub unrecorded: BTreeSet<String>,
}

impl RunFiles {
    /// Returns the flags of the run in a folder; `None` for folders of other programs. Of the values of all flags, which an older
    /// version has recorded, those are meant that are not the defaults of `command`.
    ///
    /// # Errors
    /// Returns the errors of [`Description::read`].
    pub fn read(&self, folder: &Path, command: &Command) -> Result<Option<Description>, UsageError> {
        let file = folder.join(self.description);
        if file.exists() {
            return Ok(Some(Description::read(&file)?));
        }
        let file = folder.join(self.settings);
        if !file.exists() {
            return Ok(None);
        }
        let mut settings = Description::read(&file)?;
        let Some(mark) = settings.get(self.mark).map(str::to_owned) else { return Ok(None) };
        settings.retain(|name, value| {
            let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name));
            let default = flag.map(|flag| flag.get_default_values().join(",".as_ref()));
            // A switch that was not given is false.
            let is_unset =
                value == "false" && flag.is_some_and(|flag| matches!(flag.get_action(), ArgAction::SetTrue));
            let is_given = !is_unset && default.is_some_and(|default| default != *value);
            is_given && !self.unrecorded.contains(name) && (&*mark, name) != self.useless
        });
        Ok(Some(settings))
    }

    /// Same as [`read`](Self::read), but other folders are an error.
    ///
    /// # Errors
    /// Same as [`read`](Self::read), and an error for a folder without a run.
    pub fn read_run(&self, folder: &Path, command: &Command) -> Result<Description, UsageError> {
        self.read(folder, command)?.ok_or_else(|| {
            let name = command.get_name();
            UsageError(format!("{} is no run of kiln {name}: pass the folder of one", folder.display()))
        })
    }

    /// Same as [`read`](Self::read), but a file that cannot be read is a warning.
    pub fn read_if_intact(
        &self,
        folder: &Path,
        command: &Command,
        warn: impl FnOnce(&str),
    ) -> Option<Description> {
        self.read(folder, command).unwrap_or_else(|error| {
            warn(&format!("warning: the flags of the run could not be read, repeat them: {error}"));
            None
        })
    }

    /// Describes a run by the flags that were given and by [`mark`](Self::mark), from the values of all flags.
    pub fn describe(&self, given: &BTreeSet<String>, values: &BTreeMap<String, String>) -> Description {
        let names = given.difference(&self.unrecorded).map(String::as_str).chain([self.mark]);
        let recorded = names.filter_map(|name| Some((name.to_owned(), values.get(name)?.clone())));
        Description::of(recorded.collect())
    }
}

/// Parses an argument that names a [`Description`]. `alternative` is the flag for the folder of a run.
///
/// ```
/// let error = kiln_usage::description_file("10", "--like").unwrap_err();
/// assert_eq!(error, "expected a file of flags with the extension toml, yaml or json");
/// ```
///
/// # Errors
/// Returns a message unless it is the path of an existing file with one of the extensions.
pub fn description_file(text: &str, alternative: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() => {
            Err(format!("it is a folder: to take the flags of a run, use `{alternative} {text}`"))
        }
        Some(extension) if Description::EXTENSIONS.contains(&extension) => match path.is_file() {
            true => Ok(path),
            false => Err("there is no such file".to_owned()),
        },
        _ => Err("expected a file of flags with the extension toml, yaml or json".to_owned()),
    }
}
