//! `kiln data import`: makes a heterogeneous dataset from tables (docs/formats.md).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use kiln::data::convert::parse_bytes;
use kiln::store::counted;
use kiln_tables::{Import, ImportOptions, ProposalOptions, propose_spec};
use kiln_usage::bail;

use crate::flags::{GivenFlags, parse};
use crate::out_folder;
use crate::output::{print_note_lines, print_rank_zero, print_result, write_result};

/// The flags of `kiln data import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Spec of the import in YAML: the tables, keys, columns, relations and the target. Paths of tables are relative to its
    /// folder.
    spec: PathBuf,
    /// New or empty output folder.
    #[arg(long, required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Memory limit in bytes, such as 512MiB or 1000000.
    #[arg(long, default_value = "1GiB", value_parser = parse_bytes)]
    memory: u64,
    /// Number of threads. Default: one per core. The result does not depend on it.
    #[arg(long, value_parser = parse::whole(1, 1024))]
    threads: Option<usize>,
    /// Uses the statistics, categories and classes of an earlier import, a dataset that this command wrote, for new tables with the
    /// same columns. Its models can then predict the new rows. Targets may be absent.
    #[arg(long, value_name = "SET", conflicts_with = "dry_run")]
    transforms_of: Option<PathBuf>,
    /// Appends the rows to a dataset that this command wrote, with its statistics: the result has the nodes and edges of both, and
    /// a key of the dataset is its node. Tables without new rows and targets may be absent. `kiln predict --nodes new` predicts
    /// the new nodes.
    #[arg(long, value_name = "SET", conflicts_with = "transforms_of")]
    append: Option<PathBuf>,
    /// Prints the result of an import without reading rows or writing files.
    #[arg(long)]
    dry_run: bool,
}

/// The flags of `kiln data spec`.
#[derive(Debug, Args)]
pub(crate) struct SpecArgs {
    /// Tables: files, folders and patterns, each a table of its own. Files whose paths differ in digits only are one table. A folder
    /// in RelBench's layout has its tables in `db` and its tasks in `tasks`.
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// New file for the spec, whose name is that of the dataset. Default: the standard output.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Memory limit in bytes, such as 512MiB or 1000000. Columns with more different values than fit are compared by a sample.
    #[arg(long, default_value = "1GiB", value_parser = parse_bytes)]
    memory: u64,
}

/// Runs `kiln data spec`.
pub(crate) fn run_spec(args: &SpecArgs) -> anyhow::Result<()> {
    let mut options = ProposalOptions { memory_bytes: args.memory, ..ProposalOptions::default() };
    let Some(out) = &args.out else {
        return write_result(&propose_spec(&args.tables, &options)?.to_string());
    };
    options.spec.clone_from(out);
    options.check_path()?;
    propose_spec(&args.tables, &options)?.write(&options)?;
    print_rank_zero(format_args!("written: {}; check and edit it", out.display()));
    Ok(())
}

/// Runs `kiln data import`.
pub(crate) fn run(args: &ImportArgs, given: &GivenFlags) -> anyhow::Result<()> {
    if args.dry_run {
        let plan = match &args.append {
            Some(set) => kiln_tables::plan_append(&args.spec, set)?,
            None => kiln_tables::plan(&args.spec)?,
        };
        print_note_lines(given.note_unused(&["out", "memory", "threads"], "with --dry-run"));
        print_result(plan.to_string().trim_end())?;
        let errors = counted(plan.errors.len() as u64, "error");
        anyhow::ensure!(plan.errors.is_empty(), "the import would fail: {errors} in the tables");
        return Ok(());
    }
    let Some(out) = &args.out else { bail!("--out is missing: name a new folder") };
    let started = Instant::now();
    out_folder::prepare(out)?;
    let earlier = args.transforms_of.as_ref().map(Import::open).transpose()?;
    let options = ImportOptions {
        memory_bytes: args.memory,
        n_threads: args.threads,
        transforms_of: earlier.map(Arc::new),
        append_to: args.append.clone(),
    };
    let report = kiln_tables::import(&args.spec, out, &options)?;
    // The set is complete, so a closed pipe is no error.
    print_rank_zero(report);
    let seconds = started.elapsed().as_secs_f64();
    print_rank_zero(format_args!("{} written in {seconds:.1} s", out.display()));
    Ok(())
}
