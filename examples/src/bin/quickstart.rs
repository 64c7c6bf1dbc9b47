//! Trains GraphSAGE on the built-in dataset: the shortest program. It reaches a test accuracy of 0.78 after 20 epochs.
//!
//! ```text
//! cargo run --release --bin quickstart
//! ```

use kiln::prelude::*;

kiln::use_allocator!();

fn main() -> Result<()> {
    kiln::print_log();
    let data = Dataset::open("debian-packages")?.standardize()?;
    let loader = NeighborLoader::new(&data, [10, 10, 10]);
    let mut trainer = Trainer::new(SageConfig::for_data(&data).hidden(256), AdamConfig::new(3e-3));
    let best = trainer.fit(&loader, FitConfig::epochs(20))?;
    println!("test accuracy {:.4}", best.evaluate(&loader, Phase::Test)?.accuracy());
    Ok(())
}
