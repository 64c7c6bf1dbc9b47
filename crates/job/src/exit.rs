//! How a process ends whose job is over.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kiln_rpc::log;

/// Exit status of a process whose peer is lost, that was told to stop and has left a checkpoint, or whose rank has met
/// with a [`TransientError`](crate::TransientError): start the same again (`EX_TEMPFAIL` of BSD's `sysexits.h`).
pub const EXIT_RETRY: u8 = 75;

/// Exit status of a process whose job has failed: an error or a panic of some rank (`EX_SOFTWARE`).
pub const EXIT_FAILED: u8 = 70;

/// Ends the process at once, whatever its threads wait for: without destructors, of which MPI's would wait for
/// the other ranks.
pub(crate) fn end(status: u8, line: Option<&str>) -> ! {
    let (line, (done, said)) = (line.map(str::to_owned), mpsc::channel());
    // A thread may hold the lock of an output that nobody reads: what cannot be said at once is not said.
    let speak = move || {
        if let Some(line) = line {
            log(&line);
        }
        let _ = io::stdout().flush();
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(speak).is_ok() {
        let _ = said.recv_timeout(Duration::from_millis(300));
    }
    signal_hook::low_level::exit(i32::from(status))
}
