//! Which errors of the operating system a later attempt may not have.

use std::io;

use crate::error::{Error, RunError};

/// Unix error codes without an [`io::ErrorKind`]: EIO, ENFILE and EMFILE.
const TRANSIENT_CODES: [i32; 3] = [5, 23, 24];

impl Error {
    /// Returns true if a retry may succeed without a change to the program, its settings or its data: a file could not
    /// be read or written because a disk or a quota is full, memory or file handles are exhausted, or a device or
    /// network file system failed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Run(RunError::Io { source, .. }) | Self::Graph(kiln_graph::Error::Io { source, .. }) => {
                is_transient(source)
            }
            Self::CheckpointOverdue { last, .. } => last.is_transient(),
            Self::Run(RunError::DataHash { source }) => is_transient_cause(&***source),
            _ => false,
        }
    }
}

/// Returns true if a retry may succeed, for example after space was freed on a disk.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull
        | Kind::QuotaExceeded
        | Kind::OutOfMemory
        | Kind::ReadOnlyFilesystem
        | Kind::ResourceBusy
        | Kind::Interrupted
        | Kind::WouldBlock
        | Kind::TimedOut
        | Kind::StaleNetworkFileHandle
        | Kind::NetworkDown
        | Kind::NetworkUnreachable
        | Kind::HostUnreachable => true,
        _ => cfg!(unix) && error.raw_os_error().is_some_and(|code| TRANSIENT_CODES.contains(&code)),
    }
}

/// Returns true if an error of a file in a chain of causes may not recur.
pub(crate) fn is_transient_cause(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_transient)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use crate::error::{Error, RunError};

    /// The error codes of this test are those of Linux.
    #[cfg(target_os = "linux")]
    #[test]
    fn distinguishes_transient_from_permanent_system_errors() {
        let is_transient = |code| {
            let source = io::Error::from_raw_os_error(code);
            Error::Run(RunError::Io { path: PathBuf::new(), source }).is_transient()
        };
        let transient = [5, 12, 16, 23, 24, 28, 30, 110, 116, 122];
        let lasting = [1, 2, 13, 17, 20, 21, 22, 27, 36];
        assert_eq!(transient.map(is_transient), [true; 10]);
        assert_eq!(lasting.map(is_transient), [false; 9]);
        assert!(!Error::Run(RunError::NoEpoch).is_transient());
    }
}
