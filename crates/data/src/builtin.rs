//! The built-in data sets and the generators of synthetic ones.

/// Returns the name and the bytes of each file of `datasets/FOLDER`, as `embedded!["FOLDER": "file", …]`.
macro_rules! embedded {
    ($folder:literal: $($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../../datasets/", $folder, "/", $name)).as_slice())),*]
    };
}

mod debian;
mod debian_tags;
mod mutag;
pub mod synthetic;

pub use self::debian::{debian_packages, read_debian_packages};
pub use self::debian_tags::{debian_tags, read_debian_tags};
pub use self::mutag::mutag;
