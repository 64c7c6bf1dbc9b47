//! Tests of ranks that are threads: collectives, groups and failures. Also tests the detection of launchers for ranks
//! that are processes.

mod collectives;
mod failures;
mod groups;
mod launch;
mod launched;
mod mismatch;
mod ranks;
mod stress;
