//! Tests of `kiln train` with ranks that are processes, started by `mpirun`, by a real Slurm of two nodes on this
//! machine, and by the environment variables of other launchers. The results depend neither on the launcher nor on
//! interruptions.

mod cluster;
mod data;
mod files;
mod mpirun;
#[path = "../partitioned/mod.rs"]
mod partitioned;
mod parts;
mod run;
mod slurm;
mod store;
