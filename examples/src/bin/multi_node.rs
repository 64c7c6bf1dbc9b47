//! Trains a GCN on random data in several processes, on one machine or many, after PyG's tutorial on multi-node
//! training with several GPUs per node. Unlike in the tutorial, training, validation and test nodes do not overlap.
//!
//! ```text
//! cargo build --release --features mpi
//! mpirun -n 4 target/release/multi_node
//! srun --mpi=pmix -N2 -n4 target/release/multi_node
//! target/release/multi_node --device cuda --ranks auto
//! ```
//!
//! The last command needs a build with the feature `cuda`, and trains in one process on all GPUs of the machine.
//! docs/clusters.md lists other launchers, and describes the loss of a process.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kiln::data::synthetic::{FakeConfig, fake};
use kiln::prelude::*;
use kiln::stop_on_signals;

kiln::use_allocator!();

/// Trains a GCN on a graph's nodes; each process of a launcher is a rank. `kiln train` has more flags.
#[derive(Parser)]
struct Args {
    /// Number of ranks, as threads, if no launcher started several processes; `auto` is one rank per device.
    #[arg(long, default_value = "1")]
    ranks: RankCount,
    /// Compute devices, which the ranks of a machine use in turn: `cpu`; or `cuda`, `wgpu` or `cube-cpu`, if the
    /// feature of that name is built in.
    #[arg(long, default_value = "cpu")]
    device: Devices,
    /// Mean number of nodes of the random graph.
    #[arg(long, default_value = "100000")]
    nodes: usize,
    /// Number of epochs.
    #[arg(long, default_value = "3")]
    epochs: usize,
    /// Folder of the run. If the folder contains a checkpoint, as after a restart by a scheduler, the run resumes from
    /// it.
    #[arg(long = "continue")]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    kiln::print_log();
    run(&Args::parse()).map_or_else(
        |error| {
            eprintln!("Error: {error:?}");
            // The exit status states whether the launcher should restart the job.
            ExitCode::from(error.exit_status())
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(args: &Args) -> Result<()> {
    let data = fake(FakeConfig { avg_num_nodes: args.nodes, ..FakeConfig::default() })?;
    let evaluation = EvalMode::FirstRank { n_batches: 100 };
    let loader = NeighborLoader::new(&data, [50, 50]).gcn_norm()?.batch_size(128).evaluation(evaluation);
    let model = GcnConfig::for_data(&data).layers(2).hidden(64).dropout(0.0);
    let adam = AdamConfig::new(0.01).weight_decay(5e-4);
    launch(args.ranks.config(&args.device), |rank| {
        let mut fit = FitConfig::epochs(args.epochs).stop_flag(stop_on_signals()?);
        if let Some(folder) = &args.folder {
            fit = fit.start_or_resume(folder);
        }
        let mut trainer = Trainer::new(model.clone(), adam).devices(args.device.clone()).rank(&rank);
        let best = trainer.fit(&loader, fit)?;
        if let Some(summary) = best.write_report(&loader)? {
            println!("{}\n{summary}", rank.description());
            // `None` if the test has no batches after the warm-up.
            if let Some(time) = summary.mean_batch_time {
                println!("mean inference time per batch: {:.4} s", time.as_secs_f64());
            }
        }
        Ok(())
    })?;
    Ok(())
}
