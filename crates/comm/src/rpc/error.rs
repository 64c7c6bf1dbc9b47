use std::io;
use std::time::Duration;

/// Why a process could not be let in, or let nobody in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A token that is easy to guess or cannot be sent.
    #[error(
        "invalid token: {found}; expected at least 16 visible ASCII characters that are not all the same: make one with \
         `openssl rand -hex 16`"
    )]
    BadToken {
        /// What is wrong, without the token.
        found: String,
    },
    /// No token could be made.
    #[error("the system gives no random numbers for a token: {reason}")]
    NoRandomness {
        /// What it says.
        reason: String,
    },
    /// A file with a secret that cannot be read.
    #[error("{setting}")]
    Secret {
        /// The file, as `NAME=path`.
        setting: String,
        /// The reason that the system gives.
        source: io::Error,
    },
    /// A file with a secret that other users can read.
    #[error("{setting}: others can read it, chmod 600 it")]
    ReadableByOthers {
        /// The file, as `NAME=path`.
        setting: String,
    },
    /// The other side's address is not one.
    #[error("{address} is no address that can be used, expected HOST:PORT: {reason}")]
    BadAddress {
        /// The address.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// The other side was not there in time.
    #[error("nobody answers at {address} within {waited:?}: {reason}")]
    NoAnswer {
        /// Its address.
        address: String,
        /// How long it was tried.
        waited: Duration,
        /// What came of the last try.
        reason: String,
    },
    /// Certificates that cannot be used.
    #[error("certificates: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
}
