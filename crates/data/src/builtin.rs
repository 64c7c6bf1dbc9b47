//! The sets that come with the program, and made-up ones.

mod debian;
mod mutag;
pub mod synthetic;

pub use self::debian::{debian_packages, read_debian_packages};
pub use self::mutag::mutag;
