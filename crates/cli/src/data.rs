//! `kiln data`: converts, verifies, inspects and partitions datasets (docs/formats.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, Subcommand};
use kiln::data::Dataset;
use kiln::data::convert::{self, ConvertOptions};
use kiln::data::format::{self, VerifyReport};
use kiln::graph::{Csc, Duplicates, NodeId, SelfLoops};
use kiln::partition::{
    CacheConfig, MAX_PARTS, Method, PartitionBooks, PartitionMeta, PartitionStats, WriteReport, part_dir,
    partition_nodes, write_parts,
};
use kiln::sample::Fanout;
use kiln::store::io_error;
use kiln_usage::{bail, ensure};

use crate::flags::GivenFlags;
use crate::flags::link_split::LinkSplitArgs;
use crate::flags::parse;
use crate::flags::source::{DataSource, print_name_note};
use crate::out_folder;
use crate::output::{print_note_lines, print_notes, print_rank_zero, print_result};

/// The subcommands of `kiln data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Converts a dataset or an edge list to the kiln format, within a memory limit.
    Convert(ConvertArgs),
    /// Verifies the hashes and validates the values of a dataset.
    Verify {
        /// Folder in the kiln format, of nodes of one or several types, or folder of .npy files. The latter has no hashes;
        /// only its values are validated.
        folder: PathBuf,
    },
    /// Imports tables (Parquet, Arrow, CSV or JSON lines) as a heterogeneous dataset in the kiln format, within a memory limit.
    #[cfg(feature = "tables")]
    Import(crate::import::ImportArgs),
    /// Proposes a spec of the import of tables, with a comment on each choice: node types, relations, transforms and targets.
    #[cfg(feature = "tables")]
    Spec(crate::import::SpecArgs),
    /// Prints node types, relations with their degrees, features, targets and split of a dataset.
    Inspect {
        /// Dataset of nodes, as for `kiln train` with seed 0: a path, which takes precedence, or a name.
        source: PathBuf,
    },
    /// Splits the edges of a dataset into links for training, validation and test, and writes the kiln format: the graph
    /// without the links for validation and test, and the links.
    SplitLinks(SplitLinksArgs),
    /// Partitions a dataset into self-contained folders.
    Partition(PartitionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Dataset or edge list to convert: a folder of .npy files, a folder in the kiln, GraphBolt or OGB format, or an
    /// edge list file. A folder of .npy files contains either indptr.npy and indices.npy, or an edge list: edges.npy,
    /// edges.csv, edges.csv.gz, or the pair src.npy and dst.npy. The graphs of a folder with several node types must fit in
    /// memory.
    input: PathBuf,
    /// New or empty output folder.
    #[arg(long)]
    out: PathBuf,
    /// Memory limit in bytes, such as 512MiB or 1000000.
    #[arg(long, default_value = "1GiB", value_parser = convert::parse_bytes)]
    memory: u64,
    /// Joins the relations of a dataset with one node type into one graph, whose edge types they become.
    #[arg(long, conflicts_with_all = ["nodes", "symmetrize", "duplicates", "self_loops"])]
    homogeneous: bool,
    /// Number of nodes. Default: the number of labels or feature rows, or else the largest node id plus 1.
    #[arg(long)]
    nodes: Option<usize>,
    /// Adds the reverse of each edge.
    #[arg(long)]
    symmetrize: bool,
    /// Treatment of parallel edges.
    #[arg(long, default_value = "keep", value_parser = parse::choice([
        ("keep", "", Duplicates::Keep),
        ("remove", "Keeps only the first one in the edge list", Duplicates::Remove),
    ]))]
    duplicates: Duplicates,
    /// Treatment of self-loops.
    #[arg(long, default_value = "keep", value_parser = parse::choice([
        ("keep", "", SelfLoops::Keep),
        ("remove", "", SelfLoops::Remove),
        ("add", "Adds one to each node that has none", SelfLoops::Add),
    ]))]
    self_loops: SelfLoops,
}

#[derive(Debug, Args)]
pub(crate) struct SplitLinksArgs {
    /// Dataset of nodes, as for `kiln train`: a path, which takes precedence, or a name.
    #[arg(value_parser = DataSource::parser())]
    source: DataSource,
    /// New or empty output folder.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    split: LinkSplitArgs,
    /// Makes each edge a link at its own time, for `kiln train --messages item-time`. The graph then has all edges.
    #[arg(long)]
    with_times: bool,
    /// Seed of the split, and of synthetic data: `kiln train --task link` with the same seed splits the data in the same way.
    #[arg(long, default_value = "0")]
    seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    /// Dataset of nodes with targets or links, as for `kiln train`: a path, which takes precedence, or a name.
    #[arg(value_parser = DataSource::parser())]
    source: DataSource,
    /// New or empty output folder, which receives `part0`, `part1`, and so on.
    #[arg(long)]
    out: PathBuf,
    /// Number of partitions.
    #[arg(long, default_value = "2", value_parser = parse::whole(1, MAX_PARTS))]
    parts: usize,
    /// Algorithm that assigns nodes to partitions.
    #[arg(long, default_value = "auto", value_parser = parse::choice([
        ("auto", "METIS if it is built in and the graph fits its limits and the memory, else Fennel", None),
        ("random", "Random assignment", Some(Method::Random)),
        ("fennel", "Streaming partitioning; memory grows with the number of nodes only", Some(Method::Fennel)),
        ("metis", "METIS; needs about 60 bytes of memory per edge (feature `metis`)", Some(Method::Metis)),
    ]))]
    method: std::option::Option<Method>,
    /// Size limit of each partition's static cache of remote feature rows, as a share of all nodes; 0 disables the
    /// cache and the presampling that fills it.
    #[arg(long, default_value = "0.2")]
    cache_ratio: f64,
    /// Fanouts for presampling, of all relations: a number per layer, input layer first, as for `kiln train`; `all` or -1 is all
    /// neighbours.
    #[arg(long, value_delimiter = ',', default_value = "5,10,15", allow_hyphen_values = true)]
    fanouts: Vec<Fanout>,
    /// Batch size for presampling.
    #[arg(long, default_value = "1024", value_parser = parse::size)]
    batch_size: usize,
    /// Scales feature columns to mean 0 and standard deviation 1 (in memory), as `kiln train` does for debian-packages.
    #[arg(long)]
    standardize: bool,
    /// Adds a self-loop to each node that has none, for `kiln train --model gat` on the partitions (in memory).
    #[arg(long)]
    add_self_loops: bool,
    /// Seed of the assignment, of presampling, and of synthetic data.
    #[arg(long, default_value = "0")]
    seed: u64,
}

/// Runs a subcommand of `kiln data`.
pub(crate) fn run(command: &DataCommand, given: &GivenFlags) -> anyhow::Result<()> {
    match command {
        DataCommand::Convert(args) => run_convert(args),
        DataCommand::Verify { folder } => run_verify(folder),
        #[cfg(feature = "tables")]
        DataCommand::Import(args) => crate::import::run(args, given),
        #[cfg(feature = "tables")]
        DataCommand::Spec(args) => crate::import::run_spec(args),
        DataCommand::Inspect { source } => run_inspect(source),
        DataCommand::SplitLinks(args) => run_split_links(args),
        DataCommand::Partition(args) => run_partition(args, given),
    }
}

fn run_convert(args: &ConvertArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    out_folder::prepare(&args.out)?;
    print_name_note(&args.input);
    let options = ConvertOptions {
        memory_bytes: args.memory,
        n_nodes: args.nodes,
        symmetrize: args.symmetrize,
        duplicates: args.duplicates,
        self_loops: args.self_loops,
    };
    let is_heterogeneous = is_heterogeneous(&args.input)?;
    if args.homogeneous {
        let input = args.input.display();
        ensure!(is_heterogeneous, "{input} has no relation names: remove --homogeneous");
        let data = convert::convert_to_homogeneous(&args.input, &args.out, args.memory)?;
        print_notes(&data.notes);
        print_rank_zero(&data);
    } else if is_heterogeneous {
        let unset = ConvertOptions { memory_bytes: args.memory, ..Default::default() };
        ensure!(
            options == unset,
            "{} has several node types: --nodes, --symmetrize, --duplicates and --self-loops apply to edge lists of one type",
            args.input.display()
        );
        let converted = convert::convert_heterogeneous(&args.input, &args.out, args.memory)?;
        print_notes(&converted.notes);
        print_rank_zero(&converted);
    } else {
        let converted = convert::convert(&args.input, &args.out, &options)?;
        print_notes(&converted.notes);
        print_rank_zero(&converted);
    }
    let seconds = start.elapsed().as_secs_f64();
    print_rank_zero(format_args!("written: {}, in {seconds:.1} s", args.out.display()));
    Ok(())
}

/// Returns true for a dataset with several node types. A path whose format is not recognised may be an edge list; its reader
/// reports what is wrong with it.
fn is_heterogeneous(path: &Path) -> anyhow::Result<bool> {
    match kiln::data::detect_format(path) {
        Err(_) if path.exists() => Ok(false),
        _ => Ok(kiln::data::is_heterogeneous(path)?),
    }
}

fn run_verify(folder: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    // The reader of arrays would report the files that a missing folder lacks.
    std::fs::metadata(folder).map_err(io_error(folder))?;
    print_name_note(folder);
    let VerifyReport { n_nodes, n_edges, n_hashed, notes } = format::verify(folder)?;
    print_notes(&notes);
    let hashes = match n_hashed {
        0 => "no kiln.json, so no hashes to verify".to_owned(),
        n => format!("the hashes of {n} files match"),
    };
    let seconds = start.elapsed().as_secs_f64();
    print_rank_zero(format_args!(
        "{n_nodes} nodes, {n_edges} edges: all values are valid; {hashes}; {seconds:.1} s"
    ));
    Ok(())
}

fn run_inspect(source: &Path) -> anyhow::Result<()> {
    if let Err(expected) = DataSource::parse(source.as_os_str()) {
        bail!("{} does not exist: {expected}", source.display());
    }
    print_name_note(source);
    let data = Dataset::open(source)?;
    #[cfg_attr(not(feature = "tables"), expect(unused_mut, reason = "the record of an import changes it"))]
    let mut summary = data.summary();
    #[cfg(feature = "tables")]
    print_note_lines(kiln_tables::Import::describe_set(source, &mut summary));
    print_result(summary)?;
    print_notes(&data.notes);
    // The kiln format opens without reading the split, whose notes the readers of other formats made.
    let of_split = data.check_split().context("the split could not be checked")?;
    print_note_lines(of_split.iter().filter(|note| !data.notes.contains(note)));
    Ok(())
}

fn run_split_links(args: &SplitLinksArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    out_folder::prepare(&args.out)?;
    args.split.check(args.with_times)?;
    let data = args.source.load(args.seed)?;
    anyhow::ensure!(data.links.is_none(), "{} already has a split of links: use it as it is", data.name);
    print_rank_zero(&data);
    print_notes(&data.notes);
    let split = args.split.split_links(&data, args.seed, args.with_times)?;
    let data = split.into_dataset(data)?;
    match &args.source {
        DataSource::Path(path) if data.is_heterogeneous() => {
            format::write_with_attachments(&data, &args.out, path)?
        }
        _ => format::write(&data, &args.out)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    print_rank_zero(format_args!("written: {}, in {seconds:.1} s", args.out.display()));
    Ok(())
}

fn run_partition(args: &PartitionArgs, given: &GivenFlags) -> anyhow::Result<()> {
    out_folder::prepare(&args.out)?;
    let cache = cache_of(args);
    cache.as_ref().map_or(Ok(()), CacheConfig::check)?;
    if args.cache_ratio == 0.0 {
        print_note_lines(given.note_unused(&["fanouts", "batch-size"], "with --cache-ratio 0"));
    }
    if args.source.is_heterogeneous()? {
        let given = [("standardize", args.standardize), ("add-self-loops", args.add_self_loops)];
        if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            bail!("--{flag} does not apply to a heterogeneous dataset: remove it");
        }
    }
    let (data, hash) = open_to_partition(args)?;
    print_rank_zero(&data);
    print_notes(&data.notes);
    let without = "partitions have no task tables: train on their rows with --data".to_owned();
    print_note_lines((!data.tasks.is_empty()).then_some(without));
    let graph = match data.csc() {
        Ok(graph) => graph.clone(),
        Err(_) => Arc::new(data.graph.to_homogeneous()?),
    };
    let (parts, meta) = assign(args, &graph, &data.training_nodes()?, hash)?;
    // METIS and random assignments have a seed, and so have presampling and synthetic data.
    if meta.method == Method::Fennel && args.cache_ratio == 0.0 && matches!(args.source, DataSource::Path(_))
    {
        print_note_lines(given.note_unused(&["seed"], "on partitions by Fennel without a cache"));
    }
    let books = PartitionBooks::from_parts(data.graph.types().clone(), &parts, args.parts)?;
    drop((graph, parts));
    let start = Instant::now();
    print_written(args, &write_parts(&data, &books, &meta, cache.as_ref(), &args.out)?, start);
    Ok(())
}

/// Returns the configuration of the static cache; `None` if it is disabled.
fn cache_of(args: &PartitionArgs) -> Option<CacheConfig> {
    let is_symmetric = args.fanouts.iter().eq(args.fanouts.iter().rev());
    if !is_symmetric && args.fanouts != [5, 10, 15].map(Fanout::UpTo) {
        print_rank_zero(
            "note: --fanouts begins at the input layer, as for `kiln train`; earlier versions began at the seeds",
        );
    }
    let config = CacheConfig {
        ratio: args.cache_ratio,
        fanouts: args.fanouts.clone(),
        batch_size: args.batch_size,
        seed: args.seed,
    };
    (config.ratio != 0.0).then_some(config)
}

/// Assigns the nodes of a graph to partitions, and prints the method and its statistics.
fn assign(
    args: &PartitionArgs,
    graph: &Csc,
    train: &[NodeId],
    hash: String,
) -> anyhow::Result<(Vec<u16>, PartitionMeta)> {
    let method = args.method.unwrap_or_else(|| Method::auto(graph.n_edges()));
    let start = Instant::now();
    let parts = partition_nodes(graph, train, args.parts, method, args.seed)?;
    print_rank_zero(format_args!("method: {method}, {:.1} s", start.elapsed().as_secs_f64()));
    let stats = PartitionStats::of(graph, train, &parts, args.parts)?;
    print_rank_zero(stats);
    Ok((parts, PartitionMeta { hash, method, n_cut_edges: stats.n_cut_edges }))
}

fn print_written(args: &PartitionArgs, written: &[WriteReport], start: Instant) {
    for (part, written) in written.iter().enumerate() {
        print_rank_zero(format_args!("part {part}: {written}"));
    }
    let (first, seconds) = (part_dir(&args.out, 0), start.elapsed().as_secs_f64());
    print_rank_zero(format_args!("written: {} and the other parts, in {seconds:.1} s", first.display()));
}

/// Opens the dataset, standardizes its features if `--standardize` was given, and adds self loops if `--add-self-loops`
/// was given. Returns it with the hash by which `kiln train` would identify it.
fn open_to_partition(args: &PartitionArgs) -> anyhow::Result<(Dataset, String)> {
    let data = args.source.load(args.seed)?;
    // The assignment may take hours: values that the partitions may not have are an error before it, and before a preparation
    // spreads them.
    data.check_features()?;
    data.check_edge_columns()?;
    let data = if args.standardize { data.standardize()? } else { data };
    let data = match args.add_self_loops {
        true => {
            let (data, lost) = data.add_self_loops_dropping_columns()?;
            if !lost.is_empty() {
                print_rank_zero(format_args!(
                    "note: added self loops have no rows in the edge columns {}, so they are left out",
                    lost.join(", ")
                ));
            }
            data
        }
        false => data,
    };
    let is_as_stored = !args.standardize && !args.add_self_loops;
    let recorded = if is_as_stored { args.source.recorded_hash()? } else { None };
    let hash = recorded.map_or_else(|| data.hash(), Ok)?;
    Ok((data, hash))
}
