//! `kiln data`: converts, verifies and partitions datasets (docs/format.md).

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use kiln::data::convert::{self, ConvertOptions};
use kiln::data::format::{self, VerifyReport};
use kiln::data::{Dataset, DatasetFormat};
use kiln::graph::{Duplicates, SelfLoops};
use kiln::partition::{
    CacheConfig, Method, PartitionBook, PartitionMeta, PartitionStats, part_dir, partition_nodes, write_parts,
};
use kiln::sample::Fanout;

use crate::flags;
use crate::output::print_rank_zero;
use crate::source::hash;

/// The subcommands of `kiln data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Converts a dataset or an edge list to kiln's format, within a given memory.
    Convert(ConvertArgs),
    /// Reads a whole dataset and checks its hashes and values.
    Verify {
        /// A folder in kiln's format, or of .npy files, which has no hashes.
        folder: PathBuf,
    },
    /// Cuts a dataset into partitions, each a folder that needs no other.
    Partition(PartitionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// A folder of .npy files, with indptr.npy and indices.npy or an edge list (edges.npy, src.npy and dst.npy, edges.csv, edges.csv.gz), a GraphBolt or OGB folder, or an edge list alone.
    input: PathBuf,
    /// The folder to make; it must not exist, or be empty.
    #[arg(long)]
    out: PathBuf,
    /// The most memory to use, such as 512MiB or 1000000.
    #[arg(long, default_value = "1GiB", value_parser = convert::parse_bytes)]
    memory: u64,
    /// Number of nodes; without it the number of labels or feature rows, or the largest id and one.
    #[arg(long)]
    nodes: Option<usize>,
    /// Adds the reverse of each edge.
    #[arg(long)]
    symmetrize: bool,
    /// What to do with parallel edges.
    #[arg(long, default_value = "keep", value_parser = flags::choice([
        ("keep", "", Duplicates::Keep),
        ("remove", "The first in the order of the list is kept", Duplicates::Remove),
    ]))]
    duplicates: Duplicates,
    /// What to do with edges from a node to itself.
    #[arg(long, default_value = "keep", value_parser = flags::choice([
        ("keep", "", SelfLoops::Keep),
        ("remove", "", SelfLoops::Remove),
        ("add", "Each node that has none gets one", SelfLoops::Add),
    ]))]
    self_loops: SelfLoops,
}

#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    /// A dataset of any format that kiln opens, or `debian-packages`.
    source: PathBuf,
    /// The folder to make, with `part0` and so on in it; it must not exist, or be empty.
    #[arg(long)]
    out: PathBuf,
    /// Number of parts.
    #[arg(long, default_value = "2")]
    parts: usize,
    /// What decides which part owns which node.
    #[arg(long, default_value = "auto", value_parser = flags::choice([
        ("auto", "METIS where this program was built with it and the graph fits it and the memory; else Fennel", None),
        ("random", "At random", Some(Method::Random)),
        ("fennel", "In a stream, in a memory that grows with the nodes alone", Some(Method::Fennel)),
        ("metis", "METIS, which takes about 60 bytes of memory an edge (feature `metis`)", Some(Method::Metis)),
    ]))]
    method: std::option::Option<Method>,
    /// The most feature rows of other parts' nodes that a part keeps, as a share of all nodes; 0 to sample nothing ahead.
    #[arg(long, default_value = "0.2")]
    cache_ratio: f64,
    /// How many neighbours to sample ahead at each hop, counted from the seeds, which is the reverse of the order of `kiln train`: numbers or `all`.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "15,10,5")]
    fanouts: Vec<Fanout>,
    /// Training nodes of a batch that is sampled ahead.
    #[arg(long, default_value = "1024")]
    batch_size: usize,
    /// Scales feature columns to mean 0 and standard deviation 1, as `kiln train` does with built-in sets; in memory.
    #[arg(long)]
    standardize: bool,
    /// The seed of whatever is drawn.
    #[arg(long, default_value = "0")]
    seed: u64,
}

/// Runs a subcommand.
pub(crate) fn run(command: &DataCommand) -> anyhow::Result<()> {
    match command {
        DataCommand::Convert(args) => run_convert(args),
        DataCommand::Verify { folder } => run_verify(folder),
        DataCommand::Partition(args) => run_partition(args),
    }
}

fn run_convert(args: &ConvertArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let options = ConvertOptions {
        memory_bytes: args.memory,
        n_nodes: args.nodes,
        symmetrize: args.symmetrize,
        duplicates: args.duplicates,
        self_loops: args.self_loops,
    };
    let converted = convert::convert(&args.input, &args.out, &options)?;
    for note in &converted.notes {
        print_rank_zero(format_args!("note: {note}"));
    }
    print_rank_zero(&converted);
    let seconds = start.elapsed().as_secs_f64();
    print_rank_zero(format_args!("written: {}, in {seconds:.1} s", args.out.display()));
    Ok(())
}

fn run_verify(folder: &PathBuf) -> anyhow::Result<()> {
    let start = Instant::now();
    let VerifyReport { n_nodes, n_edges, n_hashed, notes } = format::verify(folder)?;
    for note in &notes {
        print_rank_zero(format_args!("note: {note}"));
    }
    let hashes = match n_hashed {
        0 => "no kiln.json and so no hashes".to_owned(),
        n => format!("the hashes of {n} files are right"),
    };
    let seconds = start.elapsed().as_secs_f64();
    print_rank_zero(format_args!(
        "{n_nodes} nodes, {n_edges} edges: all values can be; {hashes}; {seconds:.1} s"
    ));
    Ok(())
}

fn run_partition(args: &PartitionArgs) -> anyhow::Result<()> {
    let (data, hash) = open(args)?;
    print_rank_zero(&data);
    let (graph, train) = (&data.graph, &data.split.train);
    let method = args.method.unwrap_or_else(|| Method::auto(graph.n_edges()));
    let start = Instant::now();
    let parts = partition_nodes(graph, train, args.parts, method, args.seed)?;
    print_rank_zero(format_args!("method: {method}, {:.1} s", start.elapsed().as_secs_f64()));
    let stats = PartitionStats::of(graph, train, &parts, args.parts)?;
    print_rank_zero(stats);
    let book = PartitionBook::from_parts(&parts, args.parts)?;
    drop(parts);
    let start = Instant::now();
    let meta = PartitionMeta { hash, method, n_cut_edges: stats.n_cut_edges };
    // Fanouts of samplers begin at the input layer.
    let fanouts = args.fanouts.iter().rev().copied().collect();
    let (ratio, batch_size, seed) = (args.cache_ratio, args.batch_size, args.seed);
    let cache = (ratio != 0.0).then_some(CacheConfig { ratio, fanouts, batch_size, seed });
    let written = write_parts(&data, &book, &meta, cache.as_ref(), &args.out)?;
    for (part, written) in written.iter().enumerate() {
        print_rank_zero(format_args!("part {part}: {written}"));
    }
    let (first, seconds) = (part_dir(&args.out, 0), start.elapsed().as_secs_f64());
    print_rank_zero(format_args!("written: {} and so on, in {seconds:.1} s", first.display()));
    Ok(())
}

/// The dataset and its hash: of one in kiln's own format that which is stored there, as `kiln train` takes it.
fn open(args: &PartitionArgs) -> anyhow::Result<(Dataset, String)> {
    let data = match args.source.to_str() {
        Some("debian-packages") => kiln::data::debian_packages()?,
        _ => kiln::data::open(&args.source)?,
    };
    let data = if args.standardize { data.standardize()? } else { data };
    let is_kiln =
        !args.standardize && matches!(kiln::data::detect_format(&args.source), Ok(DatasetFormat::Kiln));
    let hash = if is_kiln { hash(&args.source, &data)? } else { data.hash()? };
    Ok((data, hash))
}
