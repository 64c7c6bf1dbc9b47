//! Ranks that are threads: how they meet, what they compute together, and how they end together; and what launchers say
//! of ranks that are processes.

mod collectives;
mod failures;
mod groups;
mod launch;
mod launched;
mod mismatch;
mod ranks;
mod stress;
