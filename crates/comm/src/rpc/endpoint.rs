use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint, Server};

use crate::failure::chain;
use crate::rpc::listener::{Incoming, listen};
use crate::rpc::{AuthInterceptor, Error, Result, Tls, Token, log};

/// How long one attempt to reach the other side takes.
pub const ATTEMPT: Duration = Duration::from_secs(5);

/// The address where a process serves, with the token and certificates that open it.
#[derive(Debug, Clone)]
pub struct RpcEndpoint {
    /// `HOST:PORT`.
    pub address: String,
    /// What each call carries.
    pub token: Token,
    /// Certificates, for both sides.
    pub tls: Option<Tls>,
}

impl RpcEndpoint {
    /// What services are added to, each behind its [`AuthInterceptor`].
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn server(&self) -> Result<Server> {
        match &self.tls {
            Some(tls) => tls.server(Server::builder()),
            None => Ok(Server::builder()),
        }
    }

    /// The interceptor of a service: calls without the token get `refusal`.
    pub fn auth_interceptor(&self, refusal: &'static str) -> AuthInterceptor {
        AuthInterceptor::new(self.token.clone(), refusal)
    }

    /// The connections that come to the listener, at most `max_connections` at once. One whose other side does not
    /// authenticate [in time](crate::rpc::AUTHENTICATE_WITHIN) is closed. Logs a warning where other machines reach the
    /// listener and there are no certificates. Needs a runtime, on which it accepts.
    ///
    /// # Errors
    /// What the system says.
    pub fn incoming(&self, listener: std::net::TcpListener, max_connections: usize) -> io::Result<Incoming> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        if let Some(warning) = self.warning(address) {
            log(&warning);
        }
        Ok(listen(tokio::net::TcpListener::from_std(listener)?, max_connections))
    }

    /// What is to be said of a listener at the address: other machines may reach it, and listen in on it.
    fn warning(&self, address: SocketAddr) -> Option<String> {
        let is_open = self.tls.is_none() && !address.ip().to_canonical().is_loopback();
        is_open.then(|| {
            format!(
                "warning: {address} is reachable from other machines and has no TLS: whoever is on the network reads the \
                 token and the data; give certificates (--tls-ca, --tls-cert, --tls-key)"
            )
        })
    }

    /// The way in, which its user may still configure.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Tls`].
    pub fn endpoint(&self) -> Result<Endpoint> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let bad = |error: tonic::transport::Error| Error::BadAddress {
            address: self.address.clone(),
            reason: chain(&error),
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address)).map_err(bad)?;
        let endpoint = endpoint.connect_timeout(ATTEMPT).tcp_nodelay(true);
        match &self.tls {
            Some(tls) => tls.client(endpoint),
            None => Ok(endpoint),
        }
    }

    /// Tries to get in until the other side answers or the time is up; `waits` is told every 10 s how many seconds that
    /// has taken.
    ///
    /// # Errors
    /// As [`RpcEndpoint::endpoint`], and [`Error::NoAnswer`].
    pub async fn connect(&self, within: Duration, waits: impl Fn(u64)) -> Result<Channel> {
        let (started, mut told) = (Instant::now(), 0);
        let endpoint = self.endpoint()?;
        loop {
            // The system connects in the name of a process that is stopped.
            let reason = match tokio::time::timeout(ATTEMPT, endpoint.connect()).await {
                Ok(Ok(channel)) => return Ok(channel),
                Ok(Err(error)) => chain(&error),
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
