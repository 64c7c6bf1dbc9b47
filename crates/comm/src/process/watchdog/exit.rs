//! The exit of a process whose job has ended.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::exit::clean_up;
use crate::terminal::log;

/// Logs `line`, cleans up, and ends the process at once. Does not wait for threads, and runs no destructors, because MPI's would
/// wait for the other ranks.
pub(crate) fn end(status: u8, line: Option<&str>) -> ! {
    let line = line.map(str::to_owned);
    let (done, said) = mpsc::channel();
    // Another thread may be blocked while it holds the lock of a stream. Output that would block is dropped.
    // On a loaded machine, the thread that writes may start late.
    let speak = move || {
        if let Some(line) = line {
            log(&line);
        }
        let _ = io::stdout().flush();
        clean_up();
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(speak).is_ok() {
        let _ = said.recv_timeout(Duration::from_secs(3));
    }
    signal_hook::low_level::exit(i32::from(status))
}
