//! Ops, features and sampling on any device: that of the environment variable `KILN_DEVICE`.

mod combinations;
mod common;
mod dense;
mod devices;
mod dropout;
mod features;
mod gradient;
mod half_precision;
mod maxima;
mod ops;
mod own;
mod rows;
mod sampler;
mod segments;
