//! Printing to standard output.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// True if this process prints nothing, because the process of rank 0 prints for all.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Silences this process, because the process of rank 0 prints for all.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Prints a line, unless this process was silenced. Errors are ignored: a closed pipe (`| head`) must not stop a run
/// that writes files.
pub(crate) fn print_rank_zero(line: impl fmt::Display) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        let _ = writeln!(io::stdout(), "{line}");
    }
}
