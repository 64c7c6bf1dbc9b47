//! Ranks that are threads: how they meet, what they compute together, and how they end together.

mod collectives;
mod failures;
mod groups;
mod mismatch;
mod ranks;
mod stress;
