//! The extension module of the Python package `kiln`: datasets and loaders, whose arrays are those of NumPy.
//!
//! The module converts between Python and the crate `kiln`, and contains no algorithms. It does not know PyTorch: the package's
//! Python files make PyG's and DGL's objects from its arrays, and give it those of tensors. All work of Rust runs without the
//! interpreter's lock, and no panic reaches Python.
//!
//! Its examples are in Python, in `crates/python/tests`.

mod array;
mod batch;
mod batcher;
mod dataset;
mod error;
mod graph_arrays;
mod guard;
mod links;
mod loader;
mod settings;

use pyo3::prelude::*;

/// The extension module `kiln._kiln`, which the package `kiln` imports.
#[pymodule]
fn _kiln(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("KilnError", py.get_type::<error::KilnError>())?;
    module.add("DataError", py.get_type::<error::DataError>())?;
    module.add("LoaderError", py.get_type::<error::LoaderError>())?;
    module.add("ForkError", py.get_type::<error::ForkError>())?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<loader::NodeLoader>()?;
    module.add_class::<loader::LinkLoader>()?;
    module.add_class::<loader::Batches>()?;
    Ok(())
}
