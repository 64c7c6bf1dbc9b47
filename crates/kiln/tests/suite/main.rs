//! Tests of the crate, in one program that links faster than a program each. A test that changes a setting of the process is a
//! program of its own.

mod batch_times;
mod corpus;
mod custom_sampler;
mod data_hash;
mod edge_columns;
mod edge_features;
mod edge_weighting;
mod edges;
mod empty_splits;
mod fit;
#[cfg(feature = "grpc")]
mod frozen;
mod half_features;
mod heterogeneous;
mod links;
mod meaning;
mod named_models;
mod not_finite;
mod one_answer;
mod own_models;
mod own_parts;
mod ranks;
mod relation;
mod relations_and_attention;
mod saved_model;
mod signals;
mod target_scale;
mod targets;
mod times;
mod training_options;
mod tree;
