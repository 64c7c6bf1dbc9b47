//! Trains GraphSAGE to classify nodes, on one rank or several: DGL's GraphBolt tutorial on node classification by several
//! GPUs, which has the flags `--ranks 2 --epochs 5 --lr 0.01`.
//!
//! ```text
//! cargo run --release --bin node_classification
//! ```
//!
//! Test accuracy 0.78 after 20 epochs, in 50 s on 2 cores of an Intel Xeon.

use std::path::PathBuf;

use clap::Parser;
use kiln::prelude::*;

/// Activations, gradients and batches are allocated and freed in each step.
#[global_allocator]
static ALLOCATOR: kiln::mem::HugePageAllocator = kiln::mem::HugePageAllocator::new();

/// Trains GraphSAGE on a graph's nodes and keeps the best model. `kiln train` has more flags.
#[derive(Parser)]
struct Args {
    /// Dataset: `debian-packages` (built in), or the path of a folder.
    #[arg(long, default_value = "debian-packages")]
    data: PathBuf,
    /// Ranks that train together: threads of this process, each on a device of its own where there are several.
    #[arg(long, default_value = "1")]
    ranks: usize,
    /// Device that computes: `cpu`, or with the feature of that name `cuda`, `wgpu` or `cube-cpu`.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Passes over the training nodes.
    #[arg(long, default_value = "20")]
    epochs: usize,
    /// Step size of Adam.
    #[arg(long, default_value = "0.003")]
    lr: f64,
    /// New or empty folder for the results.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // A mapped file that another process truncates ends the program with its name.
    kiln::graph::handle_bus_errors()?;
    let data = Dataset::open(&args.data)?.standardize()?;
    let loader = NeighborLoader::new(&data, [10, 10, 10]).batch_size(1024);
    let model = SageConfig::for_data(&data).hidden(256).dropout(0.5);
    launch(RankConfig::from_env_or_threads(args.ranks), |rank| {
        if rank.is_zero() {
            println!("{data}");
        }
        let mut trainer =
            Trainer::new(model.clone(), AdamConfig::new(args.lr)).device(&args.device)?.rank(&rank);
        let mut fit = FitConfig::epochs(args.epochs);
        if let Some(folder) = &args.out {
            fit = fit.out(folder);
        }
        let best = trainer.fit(&loader, fit)?;
        if let Some(summary) = best.write_report(&loader)? {
            println!("{summary}");
        }
        Ok(())
    })?;
    Ok(())
}
