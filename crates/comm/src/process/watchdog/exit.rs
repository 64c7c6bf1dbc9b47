//! The exit of a process whose job has ended.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tracing::dispatcher::{get_default, with_default};
use tracing::{Dispatch, Level};

use crate::exit::clean_up;
use crate::terminal::printable;

/// The time that an ending process waits for its last message, and for its cleaning.
const PATIENCE: Duration = Duration::from_secs(3);

/// Logs `line`, cleans up, and ends the process at once. Does not wait for threads, and runs no destructors, because MPI's would
/// wait for the other ranks.
pub(crate) fn end(status: u8, line: Option<&str>) -> ! {
    let until = Instant::now() + PATIENCE;
    let cleaned = start(clean_up);
    let line = line.map(str::to_owned);
    let subscriber = get_default(Dispatch::clone);
    let written = start(move || {
        if let Some(line) = line {
            with_default(&subscriber, || emit(&line));
        }
        let _ = io::stdout().flush();
    });
    // Neither waits for the other: a file system may hang as a stream may.
    for done in [written, cleaned] {
        let _ = done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    signal_hook::low_level::exit(i32::from(status))
}

/// Logs the reason why this process is about to end the job. A subscriber that blocks delays the end by 3 s at most: a hook of a
/// panic may call this while the panicking thread holds what the subscriber waits for.
pub(crate) fn log_last(line: &str) {
    let line = line.to_owned();
    let subscriber = get_default(Dispatch::clone);
    let _ = start(move || with_default(&subscriber, || emit(&line))).recv_timeout(PATIENCE);
}

/// Runs `work` on a thread of its own. The receiver gets an item, or is closed, when it has ended.
///
/// Another thread may be blocked while it holds the lock of a stream. Output that would block is dropped. On a loaded machine, the
/// thread may start late.
fn start(work: impl FnOnce() + Send + 'static) -> mpsc::Receiver<()> {
    let (done, ended) = mpsc::channel();
    // If the thread cannot be started, the channel is closed.
    let _ = thread::Builder::new().spawn(move || {
        work();
        let _ = done.send(());
    });
    ended
}

/// Emits the last message of this process. Without a subscriber that takes it, it is written to standard error: the process ends
/// inside this library, so that its caller could not report why.
fn emit(line: &str) {
    if tracing::event_enabled!(target: "kiln_comm::job", Level::ERROR) {
        tracing::error!(name: "job-ended", target: "kiln_comm::job", "{line}");
    } else {
        // A closed standard error must not fail the program.
        let _ = io::stderr().write_all(format!("{}\n", printable(line)).as_bytes());
    }
}
