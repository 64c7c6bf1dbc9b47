//! Tests of layers, models, losses and weights on the device that the environment variable `KILN_DEVICE` selects.

mod common;
mod edge_features;
mod edge_weighting;
mod frame;
mod gcn;
mod gin;
mod gin_init;
mod hetero_model;
mod hgt;
mod input_aggregation;
mod input_encoder;
mod layer_values;
mod link;
mod loss;
mod normalization;
mod parity;
mod parity_attention;
mod portable_attention;
mod portable_isomorphism;
mod portable_weights;
mod rsage;
mod sage;
mod stored_models;
mod time_encoder;
mod transformer;
