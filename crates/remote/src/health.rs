use std::time::Duration;

use kiln_comm::rpc::{RpcEndpoint, Tls, Token};
use tokio::runtime::Builder;

use crate::peer::Peer;
use crate::{Error, Result};

/// What a server says of itself, to whoever looks after servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The part that it holds.
    pub part: usize,
    /// Clients that use it.
    pub n_clients: usize,
    /// How long it has been there.
    pub uptime: Duration,
    /// The age of the oldest request whose response is not complete; `None` where there is none. An age that grows shows a
    /// server that does not get on: a rule that never returns, or too few threads.
    pub oldest_request: Option<Duration>,
}

impl Health {
    /// Asks a server, which may be about to start: until it answers, or the time is up. Takes no lease, so that who asks
    /// does not count as a client.
    ///
    /// # Errors
    /// [`Error::PeerLost`] where it does not answer, [`Error::Refused`] for another token or certificate; [`Error::Rpc`],
    /// [`Error::Threads`].
    ///
    /// # Panics
    /// In a thread of a tokio runtime, since it waits.
    pub fn ask(address: impl Into<String>, token: Token, tls: Option<Tls>, within: Duration) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Threads)?;
        let rpc_endpoint = RpcEndpoint { address: address.into(), token, tls };
        let healthy =
            runtime.block_on(async { Peer::new(&rpc_endpoint, 1, within)?.health(within).await })?;
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
