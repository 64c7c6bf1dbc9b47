//! Evaluates a graph isomorphism network by cross-validation, with two accuracies: by the protocol of the GIN paper,
//! and without the bias of that protocol.
//!
//! The paper reports the epoch with the largest mean accuracy over the test folds, so it selects the epoch by the test
//! data. For the second accuracy, the epoch is selected by another held-out fold.
//!
//! ```text
//! cargo run --release --bin cross_validation -- --ranks 2
//! ```

use clap::Parser;
use kiln::prelude::*;
use kiln::train::{CrossValidation, FoldResult};

kiln::use_allocator!();

/// Cross-validates the network of the GIN paper on the graphs of MUTAG. `kiln train --folds` has more flags.
#[derive(Parser)]
struct Args {
    /// Number of ranks, as threads of this process. Each rank trains on a share of the folds.
    #[arg(long, default_value = "1")]
    ranks: usize,
    /// Number of stratified folds.
    #[arg(long, default_value = "10")]
    folds: usize,
    /// Number of epochs.
    #[arg(long, default_value = "350")]
    epochs: usize,
}

fn main() -> Result<()> {
    kiln::print_log();
    let args = Args::parse();
    let graphs = GraphDataset::open("mutag")?;
    let features = graphs.node_features(NodeFeatures::Auto)?;
    let model = GinConfig::paper(features.dim(), 64, graphs.labels().n_classes());
    let adam = AdamConfig::new(0.01).step_decay(50, 0.5);
    let folds = Split::folds(graphs.labels(), args.folds, 0)?;
    let results = launch(RankConfig::threads(args.ranks), |rank| {
        let own = (0..args.folds).filter(|fold| fold % rank.world_size() == rank.index());
        own.map(|fold| {
            let result = FoldResult::of(fold, args.folds, |left_out| {
                let split = Split::leave_out(&folds, left_out);
                let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(32);
                let phases = &[Phase::Test, Phase::Validation][..left_out.len()];
                Trainer::new(model.clone(), adam).learning_curves(&loader, args.epochs, phases)
            })?;
            let best = result.best_accuracy();
            let inner = result.by_inner_validation;
            println!("fold {:2}  best epoch {best:.4}  by inner validation {inner:.4}", fold + 1);
            Ok(result)
        })
        .collect::<Result<Vec<_>>>()
    })?;
    let results: Vec<FoldResult> = results.into_iter().flatten().collect();
    println!("{}", CrossValidation::new(&results));
    Ok(())
}
