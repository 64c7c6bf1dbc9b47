//! Layers, models and their weights on any device: that of the environment variable `KILN_DEVICE`.

mod common;
mod exchange;
mod gcn;
mod gin;
mod gin_init;
mod norm;
mod parity;
mod sage;
