//! Flags that are not on the command line, from a file or from an earlier run.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use kiln::train::DESCRIPTION_FILE;
use kiln_usage::{Description, RunFiles, bail, list_names, read_given};

use crate::flags::ranks::LaunchArgs;

/// Returns the arguments that are missing on a command line because a description has them: of `kiln train FILE`, `--like` and
/// `--resume` all flags, and of `kiln predict --run` the data.
pub(crate) fn missing_arguments(command: &Command, matches: &ArgMatches) -> anyhow::Result<Vec<OsString>> {
    let (Some((name, found)), Some(train)) = (matches.subcommand(), command.find_subcommand("train")) else {
        return Ok(Vec::new());
    };
    let path = |id| found.try_get_one::<PathBuf>(id).ok().flatten();
    let given = read_given(command.clone(), matches).on_command_line;
    let sources = ["parts", "servers", "data"];
    let mut description = None;
    if name == "train" {
        if let Some(file) = path("description") {
            description = Some(Description::read(file)?);
        } else if let Some(folder) = path("like").or(path("resume")) {
            description = run_files().read(folder, train)?;
        }
        if let (Some(folder), None) = (path("like"), &description) {
            bail!("{} is no run of kiln train: pass the folder of one", folder.display());
        }
    } else if let (Some(folder), "predict", true) =
        (path("run"), name, given.is_disjoint(&sources.map(Into::into).into()))
        && let Some(mut found) = run_files().read(folder, train)?
    {
        let source = sources.into_iter().find(|flag| found.get(flag).is_some());
        found.retain(|flag, _| Some(flag) == source);
        description = Some(found);
    }
    Ok(description.unwrap_or_default().arguments(train, &given)?)
}

/// Returns the files in which runs of `kiln train` record their flags.
pub(crate) fn run_files() -> RunFiles {
    let mut unrecorded = list_names::<LaunchArgs>();
    unrecorded.extend(["out", "resume", "continue", "like", "log-format"].map(str::to_owned));
    let unrecorded = unrecorded.into_iter().collect();
    RunFiles { description: DESCRIPTION_FILE, settings: "config.json", mark: "task", unrecorded }
}
