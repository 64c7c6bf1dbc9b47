//! Sampling: which edges are picked, with which weights, and the random numbers behind it.

mod blocks;
mod distribution;
mod plain;
mod rng;
mod weights;
