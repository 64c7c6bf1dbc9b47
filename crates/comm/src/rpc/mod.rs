//! Authenticated gRPC connections between the processes of kiln: a token on every call, TLS certificates for shared
//! networks, and limits for connections that do not authenticate. Two services use this module: the rendezvous of a
//! job's ranks in this crate, and the graph servers of `kiln-remote`.
//!
//! ```
//! use kiln_comm::rpc::{RpcEndpoint, Token};
//! let token = Token::new("a-long-random-secret")?;
//! let rpc_endpoint = RpcEndpoint { address: "node1:29500".to_owned(), token, tls: None };
//! assert!(rpc_endpoint.endpoint().is_ok());
//! # Ok::<(), kiln_comm::rpc::Error>(())
//! ```

mod connection;
mod endpoint;
mod error;
mod listener;
mod secret;
mod throttle;
mod tls;
mod token;

pub use connection::{AUTHENTICATE_WITHIN, Admission, Connection};
pub use endpoint::{ATTEMPT, RpcEndpoint};
pub use error::Error;
pub use listener::{Incoming, max_open_files};
pub use secret::{ensure_private, secret};
pub use throttle::Throttle;
pub use tls::{Tls, is_tls_failure};
pub use token::{AuthInterceptor, Token};

/// The result of this module's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns the FNV-1a hash (Fowler, Noll and Vo) of a `.proto` file. Tests compare it with the hash in the generated
/// code, which `generate` computes in the same way.
pub fn proto_digest(proto: &[u8]) -> u64 {
    proto.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte: &u8| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
