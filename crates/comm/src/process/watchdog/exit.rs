//! How a process ends whose job is over.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::rpc::log;

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
