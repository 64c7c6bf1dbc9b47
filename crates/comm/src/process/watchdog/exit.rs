//! The exit of a process whose job has ended.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::clean_up;
use crate::terminal::log;

/// Logs `line`, cleans up, and ends the process at once. Does not wait for threads, and runs no destructors, because MPI's would
/// wait for the other ranks.
pub(crate) fn end(status: u8, line: Option<&str>) -> ! {
    let line = line.map(str::to_owned);
    let (done, ended) = mpsc::channel();
    let is_clean = done.clone();
    // Another thread may be blocked while it holds the lock of a stream. Output that would block is dropped.
    // On a loaded machine, the thread that writes may start late.
    let speaking = thread::Builder::new().spawn(move || {
        if let Some(line) = line {
            log(&line);
        }
        let _ = io::stdout().flush();
        let _ = done.send(());
    });
    // Neither waits for the other: a file system may hang as a stream may.
    let cleaning = thread::Builder::new().spawn(move || {
        clean_up();
        let _ = is_clean.send(());
    });
    let until = Instant::now() + Duration::from_secs(3);
    for _ in [speaking, cleaning].iter().filter(|thread| thread.is_ok()) {
        let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    signal_hook::low_level::exit(i32::from(status))
}
