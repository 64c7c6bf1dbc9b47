//! The built-in data sets and the generators of synthetic ones.

mod debian;
mod mutag;
pub mod synthetic;

pub use self::debian::{debian_packages, read_debian_packages};
pub use self::mutag::mutag;
