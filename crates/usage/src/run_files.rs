use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Command;

use crate::{Description, GivenFlags, UsageError};

/// The files in which runs of a command record their flags, for other runs.
///
/// ```
/// use clap::{Arg, Command};
/// use kiln_usage::{GivenFlags, RunFiles};
/// let files = RunFiles {
///     description: "run.toml",
///     settings: "config.json",
///     mark: "task",
///     unrecorded: ["out".to_owned()].into(),
/// };
/// let mut given = GivenFlags::default();
/// for (name, value) in [("lr", "0.01"), ("out", "runs/a")] {
///     given.all.insert(name.to_owned(), value.to_owned());
///     given.on_command_line.insert(name.to_owned());
/// }
/// assert_eq!(files.describe(&given, &[]).to_toml(), "lr = 0.01\n");
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
        if settings.get(self.mark).is_none() {
            return Ok(None);
        }
        settings.retain(|name, value| {
            let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name));
            let default = flag.map(|flag| flag.get_default_values().join(",".as_ref()));
            let is_given = value != "false" && default.is_some_and(|default| default != *value);
            is_given && !self.unrecorded.contains(name)
        });
        Ok(Some(settings))
    }

    /// Describes a run by the flags that were given. Existing `paths` are made absolute.
    pub fn describe(&self, given: &GivenFlags, paths: &[&str]) -> Description {
        let mut description = Description::of(given, &self.unrecorded);
        for name in paths {
            let path = description.get(name).map(Path::new).filter(|path| path.exists());
            let absolute = path.and_then(|path| std::path::absolute(path).ok());
            if let Some(text) = absolute.as_deref().and_then(Path::to_str) {
                description.set(name, text.to_owned());
            }
        }
        description
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
        Some("toml" | "yaml" | "yml" | "json") if path.is_file() => Ok(path),
        Some("toml" | "yaml" | "yml" | "json") => Err("there is no such file".to_owned()),
        _ => Err("expected a file of flags with the extension toml, yaml or json".to_owned()),
    }
}
