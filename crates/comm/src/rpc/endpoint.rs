use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint, Server};

use crate::failure::error_text;
use crate::process::MasterAddress;
use crate::rpc::listener::{Incoming, listen};
use crate::rpc::{AuthInterceptor, Error, Result, Tls, Token};

/// The maximum time of one connection attempt.
pub const ATTEMPT: Duration = Duration::from_secs(5);

/// The address of a server, with the token and certificates for it. Servers and clients use the same type.
#[derive(Debug, Clone)]
pub struct RpcEndpoint {
    /// The address as `HOST:PORT`.
    pub address: String,
    /// The token that each call carries.
    pub token: Token,
    /// The certificates of this process; `None` for connections without TLS.
    pub tls: Option<Tls>,
}

impl RpcEndpoint {
    /// Returns a gRPC server builder. Add each service with an [`AuthInterceptor`].
    ///
    /// # Errors
    /// Returns [`Error::Tls`] if the certificates cannot be used.
    pub fn server(&self) -> Result<Server> {
        match &self.tls {
            Some(tls) => tls.server(Server::builder()),
            None => Ok(Server::builder()),
        }
    }

    /// Creates the interceptor of a service. Calls without the token are rejected, and the message of their status is
    /// `refusal`.
    pub fn auth_interceptor(&self, refusal: &'static str) -> AuthInterceptor {
        AuthInterceptor::new(self.token.clone(), refusal)
    }

    /// Accepts connections from the listener, at most `max_connections` at once. A connection is closed if the other
    /// side does not authenticate [in time](crate::rpc::AUTHENTICATE_WITHIN). Logs a warning if other machines can
    /// reach the listener and there are no certificates. Must be called within a tokio runtime, which runs the accept
    /// task.
    ///
    /// # Errors
    /// Returns the system's error if the listener cannot be used.
    pub fn incoming(&self, listener: std::net::TcpListener, max_connections: usize) -> io::Result<Incoming> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        if let Some(warning) = self.warning(address) {
            tracing::warn!(name: "no-tls", target: "kiln_comm::tls", %address, "{warning}");
        }
        Ok(listen(tokio::net::TcpListener::from_std(listener)?, max_connections))
    }

    /// Returns a warning if other machines can reach a listener at this address without TLS.
    fn warning(&self, address: SocketAddr) -> Option<String> {
        let is_open = self.tls.is_none() && !address.ip().to_canonical().is_loopback();
        is_open.then(|| {
            format!(
                "{address} is reachable from other machines without TLS: anyone on the network can read the \
                 token and the data; pass certificates (--tls-ca, --tls-cert, --tls-key)"
            )
        })
    }

    /// Returns the client endpoint, which the caller may configure further.
    ///
    /// # Errors
    /// Returns [`Error::BadAddress`] for an invalid address, and [`Error::Tls`] if the certificates cannot be used.
    pub fn endpoint(&self) -> Result<Endpoint> {
        // The library takes an address without a port for one of port 80.
        if self.address.parse::<MasterAddress>().is_err() {
            let reason = "write node1:29400 or [::1]:29400, with a port from 1 to 65535".to_owned();
            return Err(Error::BadAddress { address: self.address.clone(), reason });
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address)).map_err(
            |error: tonic::transport::Error| Error::BadAddress {
                address: self.address.clone(),
                reason: error_text(&error),
            },
        )?;
        let endpoint = endpoint.connect_timeout(ATTEMPT).tcp_nodelay(true);
        match &self.tls {
            Some(tls) => tls.client(endpoint),
            None => Ok(endpoint),
        }
    }

    /// Connects to the other side, and retries until `within` has passed. Calls `waits` every 10 s with the number of
    /// seconds since the start.
    ///
    /// # Errors
    /// Returns [`Error::NoAnswer`] if the time is up, and the errors of [`RpcEndpoint::endpoint`].
    pub async fn connect(&self, within: Duration, waits: impl Fn(u64)) -> Result<Channel> {
        let started = Instant::now();
        let mut told = 0;
        let endpoint = self.endpoint()?;
        loop {
            // The kernel accepts connections even if the server's process is stopped, hence the timeout.
            let reason = match tokio::time::timeout(ATTEMPT, endpoint.connect()).await {
                Ok(Ok(channel)) => return Ok(channel),
                Ok(Err(error)) => error_text(&error),
                Err(_) => format!("no answer for {ATTEMPT:?}"),
            };
            let waited = started.elapsed();
            if within < waited {
                return Err(Error::NoAnswer { address: self.address.clone(), waited, reason });
            }
            if told < waited.as_secs() / 10 {
                told = waited.as_secs() / 10;
                waits(told * 10);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_listeners_without_tls_that_other_machines_reach() {
        let token = Token::new("a-word-of-this-test").unwrap();
        let plain = RpcEndpoint { address: String::new(), token, tls: None };
        let file = std::path::PathBuf::new;
        let tls = Some(Tls { authority: file(), certificate: file(), key: file() });
        let secured = RpcEndpoint { tls, ..plain.clone() };
        for (address, is_open) in [
            ("10.0.0.1:29500", true),
            ("0.0.0.0:29500", true),
            ("[::]:29500", true),
            ("[fe80::1]:29500", true),
            ("127.0.0.1:29500", false),
            ("127.8.0.1:29500", false),
            ("[::1]:29500", false),
            ("[::ffff:127.0.0.1]:29500", false),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(plain.warning(address).is_some(), is_open, "{address}");
            assert_eq!(secured.warning(address), None);
        }
    }
}
