//! Layers, models and their weights on any device: that of the environment variable `KILN_DEVICE`.

mod common;
mod gcn;
mod gin;
mod gin_init;
mod normalization;
mod parity;
mod portable_weights;
mod sage;
