//! Tests of partitions on disk and damaged partitions.

mod common;
mod damage;
mod edge_features;
mod edge_types;
mod frozen;
mod parts;
mod typed;
mod typed_links;
