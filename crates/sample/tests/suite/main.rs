//! Tests of sampling: picked edges, excluded edges, edge weights, negatives and random numbers.

mod blocks;
mod distribution;
mod excluded;
mod negative;
mod plain;
mod rng;
mod weights;
