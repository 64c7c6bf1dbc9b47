//! The end of a process that reads what was cut off a mapped file.

use std::io;

/// The exit status of a process that could not read a mapped file any more (`EX_IOERR` of BSD's `sysexits.h`).
pub const EXIT_FILE_LOST: u8 = 74;

/// Installs a handler of `SIGBUS` for the whole process, which the system sends to a thread that reads a mapped file
/// beyond its end, because another process has truncated it, or whose disk or network has failed. The handler prints
/// the file and what to do on standard error, and ends the process with [`EXIT_FILE_LOST`]. A `SIGBUS` of anything but a
/// [`MappedFile`](crate::MappedFile) is left to the action that was there before.
///
/// Programs call it when they start; libraries do not. Further calls change nothing. Where there are no signals (outside
/// of unix) it does nothing.
///
/// # Errors
/// That of the system.
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

    /// The action that was there before, set once, before the handler can run.
    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    /// What a pipe takes without blocking, when it takes anything.
    const MOST_BYTES: usize = 4096;

    /// Milliseconds that the handler waits for a standard error that nobody reads.
    const PATIENCE_MS: c_int = 300;

    pub(super) fn install() -> io::Result<()> {
        // SAFETY: all zeros is a value of this plain struct: no handler, no flags, an empty set.
        let (mut previous, mut action): (libc::sigaction, libc::sigaction) =
            unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
        // SAFETY: a null pointer asks for the action alone, which is written to a struct of this function.
        check(unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) })?;
        if PREVIOUS.set(previous).is_err() {
            return Ok(());
        }
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the action is filled in, and its function calls nothing that a handler must not.
        check(unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) })
    }

    fn check(status: c_int) -> io::Result<()> {
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// It takes no memory and no lock, and calls functions only that POSIX allows in a handler (and `sched_yield`).
    extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: with SA_SIGINFO the system passes a valid pointer.
        let info = unsafe { &*info };
        if info.si_code == libc::BUS_ADRERR {
            // SAFETY: a fault of this code has an address.
            let address = unsafe { info.si_addr() } as usize;
            if let Some(file) = file_at(address) {
                end(&file);
            }
        }
        let Some(previous) = PREVIOUS.get() else { return };
        // SAFETY: the struct is the one that the system gave; `raise` takes any signal.
        unsafe {
            libc::sigaction(signal, previous, ptr::null_mut());
            // A fault happens again after the return, a signal that a process has sent does not.
            if info.si_code <= 0 {
                libc::raise(signal);
            }
        }
    }

    fn end(file: &MappedRegion) -> ! {
        static IS_REPORTED: AtomicBool = AtomicBool::new(false);
        // Several threads read the same file. The first one reports it and ends the others.
        while IS_REPORTED.swap(true, Ordering::Relaxed) {
            // SAFETY: it only waits.
            unsafe { libc::pause() };
        }
        let line = file.bus_error().as_bytes();
        let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one struct, and bytes that live until the end of the process; `_exit` runs nothing of this program.
        unsafe {
            if 0 < libc::poll(&mut stderr, 1, PATIENCE_MS) {
                libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len().min(MOST_BYTES));
            }
            libc::_exit(EXIT_FILE_LOST.into())
        }
    }
}
