//! The `SIGBUS` handler, which ends a process that reads beyond the end of a truncated mapped file.

use std::io;

/// The exit status of a process that can no longer read a mapped file (`EX_IOERR` of BSD's `sysexits.h`).
pub const EXIT_FILE_LOST: u8 = 74;

/// Installs a process-wide handler for `SIGBUS`. The kernel sends this signal to a thread that reads a page of a mapped
/// file that can no longer be loaded: another process has truncated the file, or its disk or network has failed. The
/// handler prints the path and the remedy to standard error and ends the process with status [`EXIT_FILE_LOST`]. A
/// `SIGBUS` that does not come from a [`MappedFile`](crate::MappedFile) is passed to the previous action.
///
/// Programs call it at startup; libraries do not. Repeated calls have no effect, and on platforms other than Unix it
/// does nothing.
///
/// # Errors
/// Returns the operating system's error if the handler cannot be installed.
pub fn handle_bus_errors() -> io::Result<()> {
    #[cfg(unix)]
    unix::install()?;
    Ok(())
}

#[cfg(unix)]
mod unix {
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::{io, ptr};

    use super::EXIT_FILE_LOST;
    use crate::mapped_file::{MappedRegion, file_at};

    /// The previous action for `SIGBUS`. It is set once, before the handler can run.
    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    /// The maximum length of the message in bytes. A pipe that is ready for writing accepts this number of bytes
    /// without blocking.
    const MOST_BYTES: usize = 4096;

    /// The maximum time in milliseconds that the handler waits for standard error to accept the message.
    const PATIENCE_MS: c_int = 300;

    pub(super) fn install() -> io::Result<()> {
        // SAFETY: all zeros is a value of this plain struct: no handler, no flags, an empty set.
        let (mut previous, mut action): (libc::sigaction, libc::sigaction) =
            unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
        // SAFETY: with a null pointer the call only reads the current action, into a local struct.
        check(unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) })?;
        if PREVIOUS.set(previous).is_err() {
            return Ok(());
        }
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the action is initialised, and its function calls only what is allowed in a signal handler.
        check(unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) })
    }

    fn check(status: c_int) -> io::Result<()> {
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Handles `SIGBUS`. It neither allocates nor blocks on a lock, and calls only functions that POSIX allows in a
    /// handler (and `sched_yield`).
    extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the handler is installed with SA_SIGINFO, so the kernel passes a pointer to a valid `siginfo_t`.
        let info = unsafe { &*info };
        if info.si_code == libc::BUS_ADRERR {
            // SAFETY: a signal with the code `BUS_ADRERR` contains an address.
            let address = unsafe { info.si_addr() } as usize;
            if let Some(file) = file_at(address) {
                end(&file);
            }
        }
        let Some(previous) = PREVIOUS.get() else { return };
        // SAFETY: `previous` is the action that the kernel returned; `raise` accepts any signal.
        unsafe {
            libc::sigaction(signal, previous, ptr::null_mut());
            // A fault occurs again when the handler returns, but a signal that a process sent has to be raised again.
            if info.si_code <= 0 {
                libc::raise(signal);
            }
        }
    }

    fn end(file: &MappedRegion) -> ! {
        static IS_REPORTED: AtomicBool = AtomicBool::new(false);
        // Several threads may read the same file. The first one reports the error; the others wait for the exit.
        while IS_REPORTED.swap(true, Ordering::Relaxed) {
            // SAFETY: the call only suspends the thread.
            unsafe { libc::pause() };
        }
        let line = file.bus_error().as_bytes();
        let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: `poll` gets one valid struct, and `line` lives until the process ends; `_exit` runs no code of this
        // program.
        unsafe {
            if 0 < libc::poll(&mut stderr, 1, PATIENCE_MS) {
                libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len().min(MOST_BYTES));
            }
            libc::_exit(EXIT_FILE_LOST.into())
        }
    }
}
