//! How the processes of kiln let each other in, over gRPC: a token on every call, certificates where networks are
//! shared, and connections that notice when the other side is gone. What they say to each other is defined where it is
//! meant: between the ranks of a job in this crate, between graph servers and their clients in `kiln-remote`.
//!
//! ```
//! use kiln_comm::rpc::{RpcEndpoint, Token};
//! let token = Token::new("a word that nobody guesses".replace(' ', "-").as_str())?;
//! let rpc_endpoint = RpcEndpoint { address: "node1:29500".to_owned(), token, tls: None };
//! assert!(rpc_endpoint.endpoint().is_ok());
//! # Ok::<(), kiln_comm::rpc::Error>(())
//! ```

mod connection;
mod endpoint;
mod error;
mod listener;
mod log;
mod secret;
mod tls;
mod token;

pub use connection::{AUTHENTICATE_WITHIN, Admission, Connection};
pub use endpoint::{ATTEMPT, RpcEndpoint};
pub use error::Error;
pub use listener::{Incoming, max_open_files};
pub use log::{Throttle, log};
pub use secret::{ensure_private, secret};
pub use tls::{Tls, is_tls_failure};
pub use token::{AuthInterceptor, Token};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// FNV-1a (Fowler, Noll and Vo), by which tests look whether generated code is of its `.proto`, as `generate` has it.
pub fn proto_digest(proto: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    proto.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
