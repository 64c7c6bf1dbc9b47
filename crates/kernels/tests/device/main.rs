//! Tests of ops, features and sampling on the device that the environment variable `KILN_DEVICE` names, by default the
//! CPU.

mod adam;
mod aggregate_features;
mod attention;
mod combinations;
mod common;
mod cross_entropy;
mod dense;
mod devices;
mod dropout;
mod edge_features;
mod edge_rows;
mod features;
mod gradient;
mod half_features;
mod half_precision;
mod large_graph;
mod maxima;
mod ops;
mod own;
mod rows;
mod sampler;
mod sampler_edge_types;
mod sampler_excluded;
mod scan;
mod segments;
