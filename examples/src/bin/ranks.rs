//! Trains GraphSAGE on two ranks that are threads, or on the processes that a launcher started.
//!
//! ```text
//! cargo run --release --bin ranks
//! mpirun -n 2 target/release/ranks
//! srun --mpi=pmix -N2 -n2 target/release/ranks
//! torchrun --no-python --nproc-per-node 2 target/release/ranks
//! ```
//!
//! Processes communicate by MPI if the feature `mpi` is built in, and otherwise through rank 0, which authenticates the
//! others by the token in the variable `KILN_JOB_TOKEN` (docs/clusters.md). The optional argument is the path of a
//! dataset.

use kiln::prelude::*;

kiln::use_allocator!();

fn main() -> Result<()> {
    kiln::print_log();
    let name = std::env::args().nth(1).unwrap_or("debian-packages".to_owned());
    let data = Dataset::open(name)?.standardize()?;
    // `launch` starts two threads as ranks, or joins the processes that srun, mpirun or torchrun started.
    launch(RankConfig::from_env_or_threads(2), |rank| {
        let loader = NeighborLoader::new(&data, [10, 10, 10]).batch_size(512);
        let config = SageConfig::for_data(&data).hidden(256);
        let mut trainer = Trainer::new(config, AdamConfig::new(3e-3)).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(5))?;
        let test = best.evaluate(&loader, Phase::Test)?;
        if rank.is_zero() {
            println!("test accuracy {:.4}", test.accuracy());
        }
        Ok(())
    })?;
    Ok(())
}
