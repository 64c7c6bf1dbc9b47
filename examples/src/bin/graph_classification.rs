//! Trains a graph isomorphism network to classify graphs, on one rank or several, after DGL's tutorial on graph
//! classification with several GPUs. The default data is the built-in set MUTAG; the tutorial uses IMDB-BINARY.
//!
//! ```text
//! cargo run --release --bin graph_classification -- --ranks 2
//! cargo run --release --bin graph_classification -- --ranks 2 --data IMDBBINARY.txt
//! cargo run --release --features cuda --bin graph_classification -- --device cuda --ranks auto
//! ```

use std::path::PathBuf;

use clap::Parser;
use kiln::prelude::*;

kiln::use_allocator!();

/// Trains a network on many small graphs and keeps the best model. `kiln train` has more flags.
#[derive(Parser)]
struct Args {
    /// Graphs: `mutag` (built in), or the path of a file of DGL's GIN collection or of a folder of the TU collection.
    #[arg(long, default_value = "mutag")]
    data: PathBuf,
    /// Number of ranks, as threads of this process, which use the devices in turn; `auto` is one rank per device.
    #[arg(long, default_value = "1")]
    ranks: RankCount,
    /// Compute devices: `cpu`; or `cuda`, `wgpu` or `cube-cpu`, if the feature of that name is built in.
    #[arg(long, default_value = "cpu")]
    device: Devices,
    /// Number of epochs.
    #[arg(long, default_value = "5")]
    epochs: usize,
    /// Trains the network of the GIN paper instead of the tutorial's, which has two layers with one linear layer each.
    #[arg(long)]
    paper: bool,
    /// New or empty folder for the results.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    kiln::print_log();
    let args = Args::parse();
    let graphs = GraphDataset::open(&args.data)?;
    // `Auto` selects the stored features, else the node labels, else a constant.
    let features = graphs.node_features(NodeFeatures::Auto)?;
    let d_in = features.dim();
    let n_classes = graphs.labels().n_classes();
    let model = match args.paper {
        true => GinConfig::paper(d_in, 64, n_classes),
        false => GinConfig::simplified(d_in, n_classes, n_classes),
    };
    let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    let loader = GraphLoader::new(&graphs, features, &split).batch_size(32);
    launch(args.ranks.config(&args.device), |rank| {
        if rank.is_zero() {
            println!("{graphs}");
        }
        let adam = AdamConfig::new(0.01);
        let mut trainer = Trainer::new(model.clone(), adam).devices(args.device.clone()).rank(&rank);
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
