use std::time::{Duration, Instant};

use kiln_dist::chain;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::exit::say;
use crate::proto::{RendezvousClient, RendezvousServer};
use crate::{JobError, Server, Tls};

/// The key under which each call carries the job's token.
const TOKEN: &str = "kiln-job-token";

/// The largest message: an exchange's, of which each rank's part is bounded.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// How long one attempt to reach the first process takes.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A call's way to the first process.
pub(crate) type Client = RendezvousClient<InterceptedService<Channel, Token>>;

/// Where the first process is, and what opens it.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    /// `HOST:PORT`.
    pub(crate) address: String,
    pub(crate) token: Token,
    pub(crate) tls: Option<Tls>,
}

/// A job's secret word, which all its processes know.
#[derive(Clone)]
pub(crate) struct Token(MetadataValue<Ascii>);

impl Token {
    /// # Errors
    /// When it is short or cannot be sent.
    pub(crate) fn new(text: &str) -> Result<Self, JobError> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let value = text.parse().ok().filter(|_| is_visible && 8 <= text.len());
        value.map(Self).ok_or(JobError::BadToken)
    }

    /// Whether they are equal; takes as long for any two of one length.
    fn is(&self, other: &MetadataValue<Ascii>) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        let differences = own.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b));
        own.len() == other.len() && differences == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Puts the token on each call.
impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(TOKEN, self.0.clone());
        Ok(request)
    }
}

impl Door {
    /// What serves the processes that know the token.
    pub(crate) fn serve(&self, server: Server) -> Result<Router, JobError> {
        let token = self.token.clone();
        let check = move |request: Request<()>| match request.metadata().get(TOKEN) {
            Some(other) if token.is(other) => Ok(request),
            _ => Err(Status::unauthenticated("another token: all processes of a job have the same")),
        };
        let service = RendezvousServer::new(server)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let service = InterceptedService::new(service, check);
        let builder = tonic::transport::Server::builder();
        let mut builder = match &self.tls {
            Some(tls) => tls.server(builder)?,
            None => builder,
        };
        Ok(builder.add_service(service))
    }

    /// Tries to reach the first process until it answers or the time is up.
    pub(crate) async fn connect(&self, within: Duration) -> Result<Client, JobError> {
        let (started, mut told) = (Instant::now(), 0);
        let endpoint = self.endpoint()?;
        loop {
            // The system connects in the name of a process that is stopped.
            let error = match tokio::time::timeout(ATTEMPT, endpoint.connect()).await {
                Ok(Ok(channel)) => {
                    let client = RendezvousClient::with_interceptor(channel, self.token.clone());
                    let client = client.max_decoding_message_size(MAX_MESSAGE_BYTES);
                    return Ok(client.max_encoding_message_size(MAX_MESSAGE_BYTES));
                }
                Ok(Err(error)) => chain(&error),
                Err(_) => format!("no answer for {ATTEMPT:?}"),
            };
            let (waited, address) = (started.elapsed(), self.address.clone());
            if within < waited {
                return Err(JobError::NoFirst { address, waited, reason: error });
            }
            if told < waited.as_secs() / 10 {
                told = waited.as_secs() / 10;
                say(&format!("waiting for rank 0 at {address}: {} s of {within:?}", told * 10));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn endpoint(&self) -> Result<Endpoint, JobError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let no_address = |error: tonic::transport::Error| JobError::NoAddress {
            host: self.address.clone(),
            reason: chain(&error),
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address)).map_err(no_address)?;
        let endpoint = endpoint.connect_timeout(ATTEMPT).tcp_nodelay(true);
        match &self.tls {
            Some(tls) => tls.client(endpoint),
            None => Ok(endpoint),
        }
    }
}
