//! Trains GraphSAGE on a partitioned graph: each machine holds a part, samples across all, and asks the others for
//! features. After GraphLearn-for-PyTorch's tutorial on distributed training.
//!
//! ```text
//! kiln data partition debian-packages --standardize --parts 2 --out parts
//! mpirun -n 2 target/release/distributed_sage --parts parts
//! ```
//!
//! Worker mode, as above, has the ranks hold the parts; with `--servers HOST:PORT,...` the servers `kiln serve` hold them.
//! Both under Slurm, and what happens when a server dies: docs/distributed.md.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kiln::comm::rpc::{Token, secret};
use kiln::prelude::*;
use kiln::remote::PartitionsConfig;

/// Trains GraphSAGE on a partitioned graph. `kiln train` has more flags.
#[derive(Parser)]
struct Args {
    /// Folder with `part0`, `part1` and so on, of which a machine needs those of its own ranks.
    #[arg(long, required_unless_present = "servers")]
    parts: Option<PathBuf>,
    /// The servers of all parts, in the place of --parts. Their token is in KILN_GRAPH_TOKEN.
    #[arg(long, value_delimiter = ',', conflicts_with = "parts")]
    servers: Vec<String>,
    /// Ranks that are threads, where no launcher started several processes.
    #[arg(long, default_value = "1")]
    ranks: usize,
    /// Passes over the training nodes.
    #[arg(long, default_value = "10")]
    epochs: usize,
}

fn main() -> ExitCode {
    run(Args::parse()).map_or_else(
        |error| {
            eprintln!("Error: {error:?}");
            ExitCode::from(error.exit_status())
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(args: Args) -> Result<()> {
    // A mapped file that another process truncates ends the program with its name.
    kiln::graph::handle_bus_errors()?;
    let word =
        secret("KILN_GRAPH_TOKEN", |name| std::env::var(name).ok()).map_err(kiln::remote::Error::from)?;
    let token = word.map(|word| Token::new(&word)).transpose().map_err(kiln::remote::Error::from)?;
    let config = PartitionsConfig { token, ..PartitionsConfig::default() };
    let graph = match &args.parts {
        Some(folder) => PartitionedGraph::open(folder, config)?,
        None => PartitionedGraph::connect(args.servers, config)?,
    };
    launch(RankConfig::from_env_or_threads(args.ranks), |rank| {
        if rank.is_zero() {
            println!("{graph}");
        }
        // The input layer first: 15 neighbours of each seed, 10 of each of those, and 5 of those.
        let loader = NeighborLoader::partitioned(&graph, &rank, [5, 10, 15])?.batch_size(512).workers(8);
        let model = SageConfig::for_data(&graph).hidden(256).dropout(0.0);
        let mut trainer = Trainer::new(model, AdamConfig::new(0.01)).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(args.epochs))?;
        if let Some(summary) = best.write_report(&loader)? {
            println!("{summary}");
        }
        Ok(())
    })?;
    Ok(())
}
