//! Tests of sampling: picked edges, excluded edges, edge weights and types, negatives and random numbers.

mod blocks;
mod custom_sampler;
mod damaged_order;
mod distribution;
mod edge_types;
mod excluded;
mod heterogeneous;
mod negative;
mod negatives_at_times;
mod plain;
mod rng;
mod subgraph;
mod times;
mod weights;
