//! `cargo xtask data convert` and `verify`: kiln's own form of a data set (docs/format.md).

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use kiln_data::convert::{self, ConvertOptions, ConvertReport};
use kiln_data::format::{self, VerifyReport};
use kiln_graph::{Duplicates, SelfLoops};

/// Arguments of `cargo xtask data convert`.
#[derive(Debug, clap::Args)]
pub(super) struct ConvertArgs {
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
    #[arg(long, value_enum, default_value_t = Parallel::Keep)]
    duplicates: Parallel,
    /// What to do with edges from a node to itself.
    #[arg(long, value_enum, default_value_t = Loops::Keep)]
    self_loops: Loops,
}

/// Arguments of `cargo xtask data verify`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// A folder in kiln's form, or of .npy files, which has no hashes.
    folder: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Parallel {
    Keep,
    /// The first in the order of the list is kept.
    Remove,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Loops {
    Keep,
    Remove,
    /// Each node that has none gets one.
    Add,
}

/// Converts, and says what was done.
pub(super) fn run_convert(args: &ConvertArgs) -> Result<()> {
    let start = Instant::now();
    let converted = convert::convert(&args.input, &args.out, &options(args))?;
    let seconds = start.elapsed().as_secs_f64();
    print!("{}", report(&converted));
    println!(
        "written: {}, in {seconds:.1} s, {} of memory at the peak",
        args.out.display(),
        in_mib(peak_bytes())
    );
    Ok(())
}

/// Verifies, and says what was found.
pub(super) fn run_verify(args: &VerifyArgs) -> Result<()> {
    let start = Instant::now();
    let VerifyReport { n_nodes, n_edges, n_hashed, notes } = format::verify(&args.folder)?;
    for note in &notes {
        println!("note: {note}");
    }
    let hashes = match n_hashed {
        0 => "no kiln.json and so no hashes".to_owned(),
        n => format!("the hashes of {n} files are right"),
    };
    let seconds = start.elapsed().as_secs_f64();
    println!("{n_nodes} nodes, {n_edges} edges: all values can be; {hashes}; {seconds:.1} s");
    Ok(())
}

fn options(args: &ConvertArgs) -> ConvertOptions {
    ConvertOptions {
        memory_bytes: args.memory,
        n_nodes: args.nodes,
        symmetrize: args.symmetrize,
        duplicates: match args.duplicates {
            Parallel::Keep => Duplicates::Keep,
            Parallel::Remove => Duplicates::Remove,
        },
        self_loops: match args.self_loops {
            Loops::Keep => SelfLoops::Keep,
            Loops::Remove => SelfLoops::Remove,
            Loops::Add => SelfLoops::Add,
        },
    }
}

/// What a conversion did, a line each.
fn report(converted: &ConvertReport) -> String {
    let ConvertReport { n_nodes, n_coo_edges, n_edges, n_buckets, n_readings, notes } = converted;
    let mut text = String::new();
    let mut line = |said: String| writeln!(text, "{said}").expect("a string takes text");
    for note in notes {
        line(format!("note: {note}"));
    }
    line(match (n_readings, n_buckets) {
        (0, _) => format!("{n_nodes} nodes, {n_edges} edges, copied as they are"),
        (_, 0) => format!("{n_nodes} nodes, {n_edges} edges: the list is empty"),
        (_, n) => format!(
            "{n_nodes} nodes, {n_edges} edges of a list of {n_coo_edges}, sorted in {n} part{}, read {n_readings} times",
            if *n == 1 { "" } else { "s" }
        ),
    });
    text
}

pub(super) fn in_mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The most heap that this process has had.
pub(super) fn peak_bytes() -> u64 {
    crate::HEAP.peak_usage() as u64
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::Parser;
    use kiln_graph::NodeId;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: ConvertArgs,
    }

    fn parse(args: &[&str]) -> Result<ConvertArgs, String> {
        Cli::try_parse_from([&["convert"], args].concat())
            .map(|cli| cli.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_says_what_to_do_with_edges() {
        let default = options(&parse(&["a", "--out", "b"]).unwrap());
        assert_eq!(default, ConvertOptions::default());
        let args = "a --out b --memory 1MiB --nodes 7 --symmetrize --duplicates remove --self-loops add";
        let all = options(&parse(&args.split(' ').collect::<Vec<_>>()).unwrap());
        let expected = ConvertOptions {
            memory_bytes: 1 << 20,
            n_nodes: Some(7),
            symmetrize: true,
            duplicates: Duplicates::Remove,
            self_loops: SelfLoops::Add,
        };
        assert_eq!(all, expected);
        assert!(parse(&["a"]).unwrap_err().contains("--out"));
        assert!(
            parse(&["a", "--out", "b", "--memory", "1GB"])
                .unwrap_err()
                .contains("expected a number of bytes, as in 1000000, 512MiB")
        );
        assert!(parse(&["a", "--out", "b", "--self-loops", "double"]).is_err());
    }

    fn run(input: &Path, out: &Path, more: &[&str]) -> Result<()> {
        let paths = [input, Path::new("--out"), out].map(|path| path.to_str().unwrap());
        run_convert(&parse(&[&paths[..], more].concat()).unwrap())
    }

    #[test]
    fn an_edge_list_is_converted_and_verified() {
        let root = tempfile::tempdir().unwrap();
        let (input, out) = (root.path().join("edges.csv"), root.path().join("out"));
        fs::write(&input, "src,dst\n0,1\n2,1\n2,1\n").unwrap();
        run(&input, &out, &["--duplicates", "remove", "--symmetrize"]).unwrap();
        let graph = format::open_graph(&out).unwrap();
        assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(2)]);
        assert_eq!(graph.n_edges(), 4);
        run_verify(&VerifyArgs { folder: out.clone() }).unwrap();
        let error = run(&input, &out, &[]).unwrap_err().to_string();
        assert!(error.contains("exists and is not an empty folder"), "{error}");
        let error = run(&input, &root.path().join("no"), &["--memory", "1KiB"]).unwrap_err().to_string();
        assert!(error.contains("1024 are allowed: raise the limit"), "{error}");
        let mut bytes = fs::read(out.join("indices.npy")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(out.join("indices.npy"), bytes).unwrap();
        let error = run_verify(&VerifyArgs { folder: out }).unwrap_err().to_string();
        assert!(error.contains("indices.npy: its SHA-256 is"), "{error}");
    }

    #[test]
    fn the_report_says_how_the_edges_were_sorted() {
        let converted = ConvertReport {
            n_nodes: 4,
            n_coo_edges: 5,
            n_edges: 10,
            n_buckets: 3,
            n_readings: 2,
            notes: vec![kiln_data::Note::Other("a header".into())],
        };
        let sorted = "4 nodes, 10 edges of a list of 5, sorted in 3 parts, read 2 times\n";
        assert_eq!(report(&converted), format!("note: a header\n{sorted}"));
        let copied = ConvertReport { n_buckets: 0, n_readings: 0, notes: Vec::new(), ..converted };
        assert_eq!(report(&copied), "4 nodes, 10 edges, copied as they are\n");
        let empty = report(&ConvertReport { n_nodes: 0, n_edges: 0, n_readings: 1, ..copied });
        assert_eq!(empty, "0 nodes, 0 edges: the list is empty\n");
    }
}
