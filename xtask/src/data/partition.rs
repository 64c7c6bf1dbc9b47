//! `cargo xtask data partition`: a data set in parts, each a folder of its own (docs/format.md).

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use kiln_data::{Dataset, DatasetFormat, format};
use kiln_partition::{
    CacheConfig, Method, PartitionBook, PartitionMeta, PartitionStats, WriteReport, part_dir,
    partition_nodes, write_parts,
};
use kiln_sample::Fanout;

use super::convert::{in_mib, peak_bytes};

/// Arguments of `cargo xtask data partition`.
#[derive(Debug, clap::Args)]
pub(super) struct PartitionArgs {
    /// A data set of any kind that kiln opens, or `debian-packages`.
    source: PathBuf,
    /// The folder to make, with `part0` and so on in it; it must not exist, or be empty.
    #[arg(long)]
    out: PathBuf,
    /// Number of parts.
    #[arg(long, default_value = "2")]
    parts: usize,
    /// What decides which part owns which node.
    #[arg(long, value_enum, default_value_t = Way::Auto)]
    method: Way,
    /// The most feature rows of other parts' nodes that a part keeps, as a share of all nodes; 0 to sample nothing ahead.
    #[arg(long, default_value = "0.2")]
    cache_ratio: f64,
    /// How many neighbours to sample ahead at each hop, counted from the seeds, which is the reverse of the programs' order: numbers or `all`.
    #[arg(long, value_delimiter = ',', value_parser = fanout, default_value = "15,10,5")]
    fanouts: Vec<Fanout>,
    /// Training nodes of a batch that is sampled ahead.
    #[arg(long, default_value = "1024")]
    batch_size: usize,
    /// Scales feature columns to mean 0 and standard deviation 1, as the programs do it with built-in sets; in memory.
    #[arg(long)]
    standardize: bool,
    /// The seed of whatever is drawn.
    #[arg(long, default_value = "0")]
    seed: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Way {
    /// METIS where this program was built with `--features metis` and the graph fits it and the memory; else Fennel.
    Auto,
    /// By chance.
    Random,
    /// In a stream, in a memory that grows with the nodes alone.
    Fennel,
    /// METIS, which takes about 60 bytes of memory an edge.
    Metis,
}

/// Makes the parts, and says how good they are.
pub(super) fn run_partition(args: &PartitionArgs) -> Result<()> {
    let (data, hash) = open(args)?;
    println!("{data}");
    let (graph, train) = (&data.graph, &data.split.train);
    let method = match args.method {
        Way::Auto => Method::auto(graph.n_edges()),
        Way::Random => Method::Random,
        Way::Fennel => Method::Fennel,
        Way::Metis => Method::Metis,
    };
    let start = Instant::now();
    let parts = partition_nodes(graph, train, args.parts, method, args.seed)?;
    println!("method: {method}, {:.1} s", start.elapsed().as_secs_f64());
    let stats = PartitionStats::of(graph, train, &parts, args.parts)?;
    print!("{}", report_stats(&stats));
    let book = PartitionBook::from_parts(&parts, args.parts)?;
    drop(parts);
    let start = Instant::now();
    let meta = PartitionMeta { hash, method, n_cut_edges: stats.n_cut_edges };
    let cache = cache_config(args);
    let written = write_parts(&data, &book, &meta, cache.as_ref(), &args.out)?;
    for (part, written) in written.iter().enumerate() {
        print!("{}", report_part(part, written));
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("written: {} and so on, in {seconds:.1} s", part_dir(&args.out, 0).display());
    let besides = if method == Method::Metis { "mapped files and METIS's own" } else { "mapped files" };
    println!("memory at the peak, besides {besides}: {}", in_mib(peak_bytes()));
    Ok(())
}

/// The data set and its hash: of a set in kiln's own form that which stands there, as the programs take it.
fn open(args: &PartitionArgs) -> Result<(Dataset, String)> {
    let data = match args.source.to_str() {
        Some("debian-packages") => kiln_data::debian_packages()?,
        _ => kiln_data::open(&args.source)?,
    };
    if args.standardize {
        let data = data.standardize()?;
        let hash = data.hash()?;
        return Ok((data, hash));
    }
    let hash = match kiln_data::detect_format(&args.source) {
        Ok(DatasetFormat::Kiln) => format::hash(&args.source)?,
        _ => data.hash()?,
    };
    Ok((data, hash))
}

/// Reads one fanout of a list.
fn fanout(text: &str) -> Result<Fanout, String> {
    match text.trim() {
        "all" => Ok(Fanout::All),
        number => number.parse().map(Fanout::UpTo).map_err(|_| "expected a number or `all`".into()),
    }
}

fn cache_config(args: &PartitionArgs) -> Option<CacheConfig> {
    if args.cache_ratio == 0.0 {
        return None;
    }
    let fanouts = args.fanouts.iter().rev().copied().collect();
    Some(CacheConfig { ratio: args.cache_ratio, fanouts, batch_size: args.batch_size, seed: args.seed })
}

fn report_stats(stats: &PartitionStats) -> String {
    let PartitionStats { n_cut_edges, cut, node_balance, train_balance } = stats;
    let balance = format!("{node_balance:.4} of the nodes, {train_balance:.4} of those for training");
    format!("cut: {cut:.4} of the edges, {n_cut_edges}\nlargest part by an equal share: {balance}\n")
}

fn report_part(part: usize, written: &WriteReport) -> String {
    let WriteReport { n_owned, n_edges, n_cached, n_remote, n_answered, n_bytes } = written;
    let cached = match n_remote {
        0 => String::new(),
        _ => {
            let share = 100.0 * *n_answered as f64 / *n_remote as f64;
            format!(
                ", {n_cached} rows of others for {share:.1} % of the {n_remote} that an epoch asks of others"
            )
        }
    };
    format!("part {part}: {n_owned} nodes, {n_edges} edges, {}{cached}\n", in_mib(*n_bytes))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kiln_partition::Part;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: PartitionArgs,
    }

    fn parse(args: &[&str]) -> Result<PartitionArgs, String> {
        let cli = Cli::try_parse_from([&["partition"], args].concat());
        cli.map(|cli| cli.args).map_err(|error| error.to_string())
    }

    #[test]
    fn fanouts_are_counted_from_the_seeds() {
        let args = parse(&["a", "--out", "b", "--fanouts", "15,10,all", "--seed", "7"]).unwrap();
        let expected = CacheConfig {
            ratio: 0.2,
            fanouts: vec![Fanout::All, Fanout::UpTo(10), Fanout::UpTo(15)],
            batch_size: 1024,
            seed: 7,
        };
        assert_eq!(cache_config(&args), Some(expected));
        assert_eq!(cache_config(&parse(&["a", "--out", "b", "--cache-ratio", "0"]).unwrap()), None);
        assert!(parse(&["a", "--out", "b", "--fanouts", "many"]).unwrap_err().contains("a number or `all`"));
    }

    #[test]
    fn parts_are_made_of_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let (set, out) = (root.path().join("ring"), root.path().join("parts"));
        format::write(&kiln_data::synthetic::ring(60).unwrap(), &set).unwrap();
        let (set, out) = (set.to_str().unwrap(), out.to_str().unwrap());
        let args = parse(&[set, "--out", out, "--parts", "3", "--method", "fennel"]).unwrap();
        run_partition(&args).unwrap();
        let part = Part::open(part_dir(out, 2)).unwrap();
        assert_eq!(part.hash, format::hash(set).unwrap());
        assert_eq!((part.book.n_parts(), part.book.n_nodes()), (3, 60));
        Part::verify(part_dir(out, 2)).unwrap();
    }
}
