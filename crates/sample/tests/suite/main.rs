//! Tests of sampling: picked edges, edge weights and random numbers.

mod blocks;
mod distribution;
mod plain;
mod rng;
mod weights;
