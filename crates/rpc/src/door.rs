use std::time::{Duration, Instant};

use kiln_dist::chain;
use tonic::transport::{Channel, Endpoint, Server};

use crate::{Error, Guard, Result, Tls, Token};

/// How long one attempt to reach the other side takes.
pub const ATTEMPT: Duration = Duration::from_secs(5);

/// Where a process serves, and what opens it.
#[derive(Debug, Clone)]
pub struct Door {
    /// `HOST:PORT`.
    pub address: String,
    /// What each call carries.
    pub token: Token,
    /// Certificates, for both sides.
    pub tls: Option<Tls>,
}

impl Door {
    /// What services are added to, each behind its [`Guard`].
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn server(&self) -> Result<Server> {
        match &self.tls {
            Some(tls) => tls.server(Server::builder()),
            None => Ok(Server::builder()),
        }
    }

    /// What stands before a service: calls without the token get `refusal`.
    pub fn guard(&self, refusal: &'static str) -> Guard {
        Guard { token: self.token.clone(), refusal }
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
    /// As [`Door::endpoint`], and [`Error::NoAnswer`].
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
