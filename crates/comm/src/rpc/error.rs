use std::io;
use std::time::Duration;

/// An error of a connection, or of its token or certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The token is easy to guess or cannot be sent.
    #[error(
        "invalid token: {found}; expected at least 16 visible ASCII characters that are not all the same: generate one \
         with `openssl rand -hex 16`"
    )]
    BadToken {
        /// The problem, without the token itself.
        found: String,
    },
    /// No random token could be generated.
    #[error("cannot generate a token: the system provides no random numbers: {reason}")]
    NoRandomness {
        /// The error of the system.
        reason: String,
    },
    /// The file with a secret cannot be read.
    #[error("cannot read the file in {setting}")]
    Secret {
        /// The file, as `NAME=path`.
        setting: String,
        /// The reason that the system gives.
        source: io::Error,
    },
    /// Users other than the owner have permissions for the file with a secret.
    #[error("{setting}: other users can read the file: run `chmod 600` on it")]
    ReadableByOthers {
        /// The file, as `NAME=path`.
        setting: String,
    },
    /// The address of the other side is invalid.
    #[error("invalid address {address}, expected HOST:PORT: {reason}")]
    BadAddress {
        /// The address.
        address: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// The other side did not accept a connection in time.
    #[error("no answer from {address} within {waited:?}: {reason}")]
    NoAnswer {
        /// The address of the other side.
        address: String,
        /// The time since the first attempt.
        waited: Duration,
        /// The error of the last attempt.
        reason: String,
    },
    /// The certificates cannot be used.
    #[error("the certificates cannot be used: {reason}")]
    Tls {
        /// The reason why they cannot be used.
        reason: String,
    },
}
