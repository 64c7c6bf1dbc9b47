//! `kiln runs` and `kiln report`.

use std::path::PathBuf;

use clap::Args;
use kiln::train::{RunRecord, RunTable, find_runs};
use kiln_usage::{bail, ensure};

use crate::output::print_result;

/// The arguments of `kiln runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Folder with runs, also in its subfolders, or the folder of a run.
    #[arg(default_value = "runs")]
    folder: PathBuf,
    /// Also writes the table and the curves of the runs to a page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The arguments of `kiln report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folder of the run.
    run: PathBuf,
    /// File of the page. Default: `report.html` in the folder of the run.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs `kiln runs`. Folders of runs that cannot be read are left out, with a warning.
pub(crate) fn list(args: &RunsArgs) -> anyhow::Result<()> {
    let folder = args.folder.display();
    let folders = match find_runs(&args.folder) {
        Err(error) if !args.folder.exists() => bail!("{error}: pass a folder with runs"),
        found => found?,
    };
    ensure!(
        !folders.is_empty(),
        "{folder} has no runs: pass a folder with runs of `kiln train`, or with their parents"
    );
    let mut runs = Vec::new();
    for folder in folders {
        match RunRecord::read(folder) {
            Ok(run) => runs.push(run),
            Err(error) => crate::output::log(&format!("warning: {error}: this run is left out")),
        }
    }
    let table = RunTable::new(runs);
    print_result(&table)?;
    if let Some(file) = &args.html {
        table.write_page(file)?;
        print_result(format_args!("page: {}", file.display()))?;
    }
    Ok(())
}

/// Runs `kiln report`.
pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let run = RunRecord::read(&args.run)?;
    let page = run.write_report(args.html.as_deref())?;
    print_result(format_args!(
        "{} run after {} epochs: {}",
        run.state.name(),
        run.epochs.len(),
        page.display()
    ))
}
