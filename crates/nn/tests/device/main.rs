//! Tests of layers, models and weights on the device that the environment variable `KILN_DEVICE` selects.

mod common;
mod gcn;
mod gin;
mod gin_init;
mod normalization;
mod parity;
mod portable_weights;
mod sage;
