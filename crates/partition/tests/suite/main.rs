//! Tests of partitions on disk and damaged partitions.

mod checks;
mod common;
mod damage;
mod edge_features;
mod edge_types;
mod frozen;
mod heterogeneous;
mod heterogeneous_links;
mod parts;
mod targets;
mod times;
