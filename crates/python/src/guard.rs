//! Calls from Python to Rust: without the interpreter's lock, without panics, and only in the process that started threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::error::{ForkError, KilnError};

/// The process whose thread pool the work of Rust uses. A pool does not survive a fork, and nothing that waits for it ends.
static WORKING_PROCESS: OnceLock<u32> = OnceLock::new();

/// A process in which an object was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the process that runs.
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Returns an exception if another process runs.
    pub(crate) fn check(self) -> PyResult<()> {
        match self == Self::current() {
            true => Ok(()),
            false => Err(forked(self.0)),
        }
    }
}

/// Runs work of Rust without the interpreter's lock. A panic becomes an exception.
pub(crate) fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    Process(*WORKING_PROCESS.get_or_init(std::process::id)).check()?;
    // Unwind safety: objects of the package are immutable, and an iterator of batches ends with the error of its loader.
    py.detach(|| catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(internal(&*panic))))
}

fn forked(process: u32) -> PyErr {
    let own = std::process::id();
    ForkError::new_err(format!(
        "kiln was used in process {process} before it forked process {own}, which has none of its threads: start processes with \
         the method \"spawn\" (multiprocessing.set_start_method(\"spawn\")), or use kiln in the new process only. A loader of \
         kiln needs no DataLoader with workers around it, because its own threads prefetch batches (num_workers)"
    ))
}

fn internal(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    KilnError::new_err(format!("internal error, please report it: {text}"))
}
