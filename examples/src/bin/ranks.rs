//! Trains GraphSAGE on two ranks that are threads, or on the processes that a launcher started.
//!
//! ```text
//! cargo run --release --bin ranks
//! mpirun -n 2 target/release/ranks
//! srun --mpi=pmix -N2 -n2 target/release/ranks
//! torchrun --no-python --nproc-per-node 2 target/release/ranks
//! ```
//!
//! Processes use MPI in a build with the feature `mpi`; without it everything goes through the first process, which knows
//! the others by the variable `KILN_JOB_TOKEN` (docs/clusters.md). An argument is the path of another dataset.

use kiln::prelude::*;

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or("debian-packages".to_owned());
    let data = Dataset::open(name)?.standardize()?;
    // Threads of this process, or one rank of the processes that srun, mpirun or torchrun started.
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
