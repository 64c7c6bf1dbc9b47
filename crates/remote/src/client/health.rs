use std::time::Duration;

use kiln_comm::rpc::{RpcEndpoint, Tls, Token};
use tokio::runtime::Builder;

use crate::client::peer::Peer;
use crate::{Error, Result};

/// The health of a server, for monitoring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The partition that the server holds.
    pub part: usize,
    /// The number of clients with a lease.
    pub n_clients: usize,
    /// The time since the server was started.
    pub uptime: Duration,
    /// The age of the oldest request whose response is not complete; `None` if all responses are complete. A growing
    /// age indicates that a rule never returns or that the server has too few threads.
    pub oldest_request: Option<Duration>,
}

impl Health {
    /// Requests the health of a server, and retries until it responds or `within` has passed. It takes no lease, so the
    /// caller does not count as a client.
    ///
    /// # Errors
    /// Returns [`Error::Server`] if the server does not respond, or rejects the token or certificate, [`Error::Rpc`] if the
    /// address or certificates cannot be used, and [`Error::Threads`] if the runtime cannot be started.
    ///
    /// # Panics
    /// Panics if it is called in a thread of a tokio runtime, because it blocks.
    pub fn ask(address: impl Into<String>, token: Token, tls: Option<Tls>, within: Duration) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Threads)?;
        let rpc_endpoint = RpcEndpoint { address: address.into(), token, tls };
        let healthy =
            runtime.block_on(async { Peer::new(&rpc_endpoint, 1, within, None)?.health(within).await })?;
        let uptime = Duration::from_millis(healthy.uptime_ms);
        let (part, n_clients) = (healthy.part as usize, healthy.n_clients as usize);
        Ok(Self {
            part,
            n_clients,
            uptime,
            oldest_request: healthy.oldest_request_ms.map(Duration::from_millis),
        })
    }
}
