//! Trains GraphSAGE on a partitioned graph, after GraphLearn-for-PyTorch's tutorial on distributed training. Each
//! machine holds a partition, and requests remote neighbours and features from the other machines.
//!
//! ```text
//! kiln data partition debian-packages --standardize --parts 2 --out parts
//! mpirun -n 2 target/release/distributed_sage --parts parts
//! target/release/distributed_sage --parts parts --device cuda --ranks auto
//! ```
//!
//! The last command needs a build with the feature `cuda`, and trains in one process on the GPUs of the machine. In
//! worker mode, as above, the ranks hold the partitions; with `--servers HOST:PORT,...` dedicated servers (`kiln
//! serve`) hold them. docs/distributed.md shows both under Slurm, and describes the failure of a server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kiln::comm::rpc::{Token, secret};
use kiln::prelude::*;
use kiln::remote::PartitionsConfig;

kiln::use_allocator!();

/// Trains GraphSAGE on a partitioned graph. `kiln train` has more flags.
#[derive(Parser)]
struct Args {
    /// Folder with `part0`, `part1` and so on. A machine needs only the partitions of its own ranks.
    #[arg(long, required_unless_present = "servers")]
    parts: Option<PathBuf>,
    /// Addresses of the servers of all partitions, instead of --parts. The variable KILN_GRAPH_TOKEN contains their
    /// token.
    #[arg(long, value_delimiter = ',', conflicts_with = "parts")]
    servers: Vec<String>,
    /// Number of ranks, as threads, if no launcher started several processes; `auto` is one rank per device, or
    /// with --parts the largest multiple of the number of partitions that is at most the number of devices.
    #[arg(long, default_value = "1")]
    ranks: RankCount,
    /// Compute devices, which the ranks of a machine use in turn: `cpu`; or `cuda`, `wgpu` or `cube-cpu`, if the
    /// feature of that name is built in.
    #[arg(long, default_value = "cpu")]
    device: Devices,
    /// Number of epochs.
    #[arg(long, default_value = "10")]
    epochs: usize,
}

fn main() -> ExitCode {
    kiln::print_log();
    run(Args::parse()).map_or_else(
        |error| {
            eprintln!("Error: {error:?}");
            ExitCode::from(error.exit_status())
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(args: Args) -> Result<()> {
    // If another process truncates a mapped file, the program exits with an error that names the file.
    kiln::graph::handle_bus_errors()?;
    let word =
        secret("KILN_GRAPH_TOKEN", |name| std::env::var(name).ok()).map_err(kiln::remote::Error::from)?;
    let token = word.map(|word| Token::new(&word)).transpose().map_err(kiln::remote::Error::from)?;
    let config = PartitionsConfig { token, ..PartitionsConfig::default() };
    let graph = match &args.parts {
        Some(folder) => PartitionedGraph::open(folder, config)?,
        None => PartitionedGraph::connect(args.servers, config)?,
    };
    launch(graph.rank_config(args.ranks, &args.device), |rank| {
        if rank.is_zero() {
            println!("{graph}");
        }
        // The fanouts are in the order of the layers, so the last fanout (15) applies to the seeds.
        let loader = NeighborLoader::new(&graph.join(&rank)?, [5, 10, 15]).batch_size(512).workers(8);
        let model = SageConfig::for_data(&graph).hidden(256).dropout(0.0);
        let adam = AdamConfig::new(0.01);
        let mut trainer = Trainer::new(model, adam).devices(args.device.clone()).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(args.epochs))?;
        if let Some(summary) = best.write_report(&loader)? {
            println!("{summary}");
        }
        Ok(())
    })?;
    Ok(())
}
