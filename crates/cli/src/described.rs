//! Flags that are not on the command line, from a file or from an earlier run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use kiln::train::DESCRIPTION_FILE;
use kiln_usage::{Description, GivenFlags, bail, list_names, read_given};

use crate::flags::ranks::LaunchArgs;

/// Flags that say where a run is or what it prints, not what it computes.
const UNRECORDED: [&str; 5] = ["out", "resume", "continue", "like", "log-format"];

/// Returns the arguments that are missing on a command line because a description has them: of `kiln train FILE`, `--like` and
/// `--resume` all flags, and of `kiln predict --run` the data.
pub(crate) fn missing_arguments(command: &Command, matches: &ArgMatches) -> anyhow::Result<Vec<OsString>> {
    let (Some((name, of_command)), Some(train)) = (matches.subcommand(), command.find_subcommand("train"))
    else {
        return Ok(Vec::new());
    };
    let path = |id| of_command.try_get_one::<PathBuf>(id).ok().flatten();
    let given = read_given(command.clone(), matches).on_command_line;
    let description = match name {
        "train" => match (path("description"), path("like"), path("resume")) {
            (Some(file), ..) => Some(Description::read(file)?),
            (_, Some(folder), _) => {
                let description = description_of(folder, train)?;
                let Some(description) = description else {
                    bail!("{} is no run of kiln train: pass the folder of one", folder.display());
                };
                Some(description)
            }
            (.., Some(folder)) => description_of(folder, train)?,
            _ => None,
        },
        "predict" if ["data", "parts", "servers"].iter().all(|flag| !given.contains(*flag)) => {
            let description = path("run").map(|folder| description_of(folder, train)).transpose()?.flatten();
            description.map(|mut description| {
                let sources = ["parts", "servers", "data"];
                let source = sources.into_iter().find(|flag| description.get(flag).is_some());
                description.retain(|flag, _| Some(flag) == source);
                description
            })
        }
        _ => None,
    };
    let arguments = description.map(|description| description.arguments(train, &given)).transpose()?;
    Ok(arguments.unwrap_or_default())
}

/// Returns the flags of a run of `kiln train`; `None` for other folders. A run of an older version has recorded the values of all
/// flags, of which those that are not the defaults are meant.
fn description_of(folder: &Path, train: &Command) -> anyhow::Result<Option<Description>> {
    let file = folder.join(DESCRIPTION_FILE);
    if file.exists() {
        return Ok(Some(Description::read(&file)?));
    }
    let file = folder.join("config.json");
    let Some(mut settings) = file.exists().then(|| Description::read(&file)).transpose()? else {
        return Ok(None);
    };
    if settings.get("task").is_none() {
        return Ok(None);
    }
    let unrecorded = unrecorded();
    settings.retain(|name, value| {
        let flag = train.get_arguments().find(|flag| flag.get_long() == Some(name));
        let default = flag.map(|flag| flag.get_default_values().join(",".as_ref()));
        !unrecorded.contains(name) && value != "false" && default.is_some_and(|default| default != *value)
    });
    Ok(Some(settings))
}

fn unrecorded() -> BTreeSet<String> {
    UNRECORDED.map(str::to_owned).into_iter().chain(list_names::<LaunchArgs>()).collect()
}

/// Returns the text of `run.toml`: the flags that were given, with absolute paths of the data.
pub(crate) fn describe_run(given: &GivenFlags) -> String {
    let mut description = Description::of(given, &unrecorded());
    for name in ["data", "parts"] {
        let path = description.get(name).map(Path::new).filter(|path| path.exists());
        let absolute = path.and_then(|path| std::path::absolute(path).ok());
        if let Some(text) = absolute.as_ref().and_then(|path| path.to_str()) {
            description.set(name, text.to_owned());
        }
    }
    let heading = "`kiln train run.toml` repeats this run, in a new folder";
    format!(
        "# {heading}. kiln {}, commit {}.\n{}",
        env!("CARGO_PKG_VERSION"),
        env!("KILN_COMMIT"),
        description.to_toml()
    )
}

/// Parses the file of `kiln train FILE`.
pub(crate) fn parse_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("toml" | "yaml" | "yml" | "json") if path.is_file() => Ok(path),
        Some("toml" | "yaml" | "yml" | "json") => Err("there is no such file".to_owned()),
        _ if path.is_dir() => Err(format!("it is a folder: to take the flags of a run, use `--like {text}`")),
        _ => Err("expected a file of flags with the extension toml, yaml or json".to_owned()),
    }
}
