//! The built-in data sets and the generators of synthetic ones.

/// Returns the name and the bytes of each file of `datasets/FOLDER`, as `embedded!["FOLDER": "file", …]`.
macro_rules! embedded {
    ($folder:literal: $($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../../datasets/", $folder, "/", $name)).as_slice())),*]
    };
}

mod debian;
mod debian_archive;
mod debian_tags;
mod mutag;
pub mod synthetic;

use kiln_store::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::readers::files::Files;

pub use self::debian::{debian_packages, read_debian_packages};
pub use self::debian_archive::{debian_archive, read_debian_archive};
pub use self::debian_tags::{debian_tags, read_debian_tags};
pub use self::mutag::mutag;

/// Reads the manifest of a built-in set, and rejects other versions of its format than `format`.
fn read_manifest<M: DeserializeOwned>(files: &Files<'_>, format: u32) -> Result<M> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let (path, bytes) = (files.path("manifest.json"), files.read("manifest.json")?);
    let parsed = serde_json::from_slice(&bytes).and_then(|version| {
        let Version { format: got } = version;
        Ok((got, (got == format).then(|| serde_json::from_slice(&bytes)).transpose()?))
    });
    match parsed {
        Ok((_, Some(manifest))) => Ok(manifest),
        Ok((got, None)) => Err(Error::Format { path, expected: format, got }),
        Err(source) => Err(Error::Manifest { path, source }),
    }
}
