//! `kiln train` as its users run it, its ranks being processes: by `mpirun`, by a real Slurm of two nodes
//! on this machine, and by variables that any launcher sets. What they learn does not depend on who started them, nor
//! on what became of them in between.

mod cluster;
mod files;
mod mpirun;
#[path = "../parted/mod.rs"]
mod parted;
mod parts;
mod run;
mod slurm;
mod store;
