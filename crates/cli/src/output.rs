//! Lines on standard output.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process prints nothing, because the process of rank 0 does.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves printing to another process.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Prints a line, where ranks are processes on rank 0. That nobody reads it any more (`| head`) is no reason to stop a run
/// that writes files.
pub(crate) fn print_rank_zero(line: impl fmt::Display) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        let _ = writeln!(io::stdout(), "{line}");
    }
}
