//! The exceptions of the package, with the messages of Rust's errors.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(kiln, KilnError, PyException, "The base class of all errors of kiln.");
create_exception!(kiln, DataError, KilnError, "A dataset cannot be opened, built or written.");
create_exception!(
    kiln,
    LoaderError,
    KilnError,
    "A batch cannot be made, or a loader's settings do not fit the data."
);
create_exception!(
    kiln,
    ForkError,
    KilnError,
    "An object of kiln is used in a process that was forked after its creation."
);

/// Makes the exception of an error of datasets.
pub(crate) fn data(error: impl Into<kiln::data::Error>) -> PyErr {
    DataError::new_err(error.into().to_string())
}

/// Makes the exception of an error of loaders or samplers.
pub(crate) fn loader(error: impl std::fmt::Display) -> PyErr {
    LoaderError::new_err(error.to_string())
}
