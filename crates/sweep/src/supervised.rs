//! Processes that end with the process that started them: a pipe connects them.
//!
//! The standard input of a run is a pipe that the sweep holds open. A byte asks the run to stop after its step, with a checkpoint. The
//! end of the pipe, which the system closes when the sweep ends, however it ends, ends the run at once.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The environment variable of a process whose standard input is the pipe of a sweep.
pub const SUPERVISED: &str = "KILN_SUPERVISED";

/// The exit status of a run whose sweep has ended: the run can be continued (`EX_TEMPFAIL` of BSD's `sysexits.h`).
const EXIT_ORPHANED: i32 = 75;

/// A process that ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct SupervisedChild {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl SupervisedChild {
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.env(SUPERVISED, "1").stdin(Stdio::piped()).spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Asks the process to stop.
    pub(crate) fn request_stop(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            // A process that has ended needs no request.
            let _ = pipe.write_all(b"\n");
        }
    }

    /// Returns the status of a process that has ended.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Makes this process, a run of a sweep, obey the sweep: `stop` is set when it asks the run to stop, and the process ends with the sweep.
/// For a process with the variable [`SUPERVISED`] in its environment, at its start.
///
/// ```no_run
/// use std::sync::Arc;
/// let stop = Arc::default();
/// if std::env::var_os(kiln_sweep::SUPERVISED).is_some() {
///     kiln_sweep::stop_with_sweep(Arc::clone(&stop))?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the operating system's error if a thread cannot be started.
pub fn stop_with_sweep(stop: Arc<AtomicBool>) -> io::Result<()> {
    thread::Builder::new().name("sweep".to_owned()).spawn(move || watch_pipe(&stop)).map(drop)
}

/// Sets a flag at each byte of the standard input, and ends the process at its end.
fn watch_pipe(stop: &AtomicBool) {
    let mut stdin = io::stdin().lock();
    let mut byte = [0];
    loop {
        match stdin.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // No destructor runs: a driver's could wait for work that does not end.
            Ok(0) | Err(_) => signal_hook::low_level::exit(EXIT_ORPHANED),
            Ok(_) => stop.store(true, Ordering::SeqCst),
        }
    }
}
