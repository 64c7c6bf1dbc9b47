//! Flags that are not on the command line, from a file or from an earlier run.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use kiln::train::DESCRIPTION_FILE;
use kiln_usage::{Description, GivenFlags, RunFiles, list_names, read_given};

use crate::flags::ranks::LaunchArgs;
use crate::output::log;

/// Returns the arguments that are missing on a command line because a description has them: of `kiln train FILE`, `--like` and
/// `--resume` all flags, and of `kiln predict --run` the data.
pub(crate) fn missing_arguments(command: &Command, matches: &ArgMatches) -> anyhow::Result<Vec<OsString>> {
    let (Some((name, found)), Some(train)) = (matches.subcommand(), command.find_subcommand("train")) else {
        return Ok(Vec::new());
    };
    let path = |id| found.try_get_one::<PathBuf>(id).ok().flatten();
    let GivenFlags { all, on_command_line: given } = read_given(command, matches);
    let sources = ["parts", "servers", "data"];
    let has_source = sources.iter().any(|flag| given.contains(*flag));
    let mut description = None;
    if name == "train" {
        description = match (path("description"), path("like"), path("resume")) {
            (Some(file), ..) => Some(Description::read(file)?),
            (_, Some(folder), _) => Some(run_files().read_run(folder, train)?),
            (.., folder) => folder.and_then(|folder| run_files().read_if_intact(folder, train, log)),
        };
        if let Some(found) = description.as_mut().filter(|_| has_source) {
            let is_link = all.get("task").map_or(found.get("task"), |task| Some(task)) == Some("link");
            // The links of a partitioned graph need both the data and its partitions.
            found.retain(|flag, _| is_link || flag != "mode" && !sources.contains(&flag));
        }
    } else if let (Some(folder), "predict", false) = (path("run"), name, has_source)
        && let Some(mut found) = run_files().read_if_intact(folder, train, log)
    {
        let source = sources.into_iter().find(|flag| found.get(flag).is_some());
        found.retain(|flag, _| Some(flag) == source);
        description = Some(found);
    }
    Ok(description.unwrap_or_default().arguments(train, &given)?)
}

/// Returns the files in which runs of `kiln train` record their flags.
pub(crate) fn run_files() -> RunFiles {
    let of_place = ["out", "resume", "continue", "like", "log-format", "host"].map(str::to_owned);
    let unrecorded = list_names::<LaunchArgs>().into_iter().chain(of_place).collect();
    let useless = ("graph", "fanouts");
    RunFiles { description: DESCRIPTION_FILE, settings: "config.json", mark: "task", useless, unrecorded }
}
