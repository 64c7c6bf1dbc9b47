//! Processes that end with the process that started them: a pipe connects them.
//!
//! The standard input of a run is a pipe that the sweep holds open. A byte asks the run to stop after its step, with a checkpoint. The
//! end of the pipe, which the system closes when the sweep ends, however it ends, ends the run at once.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kiln_comm::EXIT_RETRY;

/// The environment variable of a process whose standard input is the pipe of a sweep.
pub const SUPERVISED: &str = "KILN_SUPERVISED";

/// The time that a process has to end after its pipe was closed: it frees its device.
const END_WAIT: Duration = Duration::from_secs(10);

/// The pause between two looks at a process that should end.
const PAUSE: Duration = Duration::from_millis(5);

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

    /// Closes the pipe, and kills the process if it does not end in time.
    fn end(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        self.pipe = None;
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(PAUSE);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

/// Ends the process, and leaves none that the system keeps for its status.
impl Drop for SupervisedChild {
    fn drop(&mut self) {
        // Nothing is left to do for a process that the system does not let go.
        let _ = self.end(END_WAIT);
    }
}

/// Lets the sweep stop this process, one of its runs: `stop` is set when the sweep asks the run to stop, and the process ends with the sweep.
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
            // The run can be continued. No destructor runs: a driver's could wait for work that does not end.
            Ok(0) | Err(_) => signal_hook::low_level::exit(i32::from(EXIT_RETRY)),
            Ok(_) => stop.store(true, Ordering::SeqCst),
        }
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod tests {
    use super::*;

    fn start(script: &str) -> SupervisedChild {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::null());
        SupervisedChild::start(command).unwrap()
    }

    #[test]
    fn the_end_of_the_pipe_ends_a_process_that_reads_it_and_a_signal_the_others() {
        let status = start("cat; exit 3").end(END_WAIT).unwrap();
        assert_eq!(status.code(), Some(3));
        let status = start("exec sleep 1000").end(Duration::ZERO).unwrap();
        assert_eq!(status.code(), None, "{status}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_dropped_process_has_ended() {
        let child = start("cat");
        let process = std::path::PathBuf::from(format!("/proc/{}", child.id()));
        assert!(process.exists());
        drop(child);
        assert!(!process.exists());
    }
}
