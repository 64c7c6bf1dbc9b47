use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_comm::rpc::{RpcEndpoint, Throttle, Tls, Token, max_open_files};
use kiln_partition::Part;
use tokio::runtime::{Builder, Runtime};
use tonic::service::interceptor::InterceptedService;

use crate::leases::Leases;
use crate::local_part::LocalPart;
use crate::proto::GraphServer;
use crate::respond::{REQUEST_BYTES, Responder};
use crate::service::Service;
use crate::{BEAT, Error, MAX_QUESTION_BYTES, MAX_QUESTIONS, Result, RuleRegistry, SILENCE, WINDOW_BYTES};

/// How a part is served.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// `HOST:PORT` of this machine, at which clients are let in, and at no other; port 0 is any that is free.
    pub address: String,
    /// What clients must know.
    pub token: Token,
    /// Certificates, for both sides.
    pub tls: Option<Tls>,
    /// What edges may be picked by.
    pub rules: RuleRegistry,
    /// Answers that are made at once, each by a thread, at least 1.
    pub n_threads: usize,
    /// Connections at once, of which a client has [two](crate::ConnectConfig::n_channels); further ones wait until one is
    /// closed. At most half of the files that the process may have open, whatever is given here. A connection whose other
    /// side does not authenticate within 5 s is closed.
    pub max_connections: usize,
    /// How long a client that says nothing still counts, and how long one that takes nothing of its answer is waited for:
    /// then the answer breaks off, and the client asks again.
    pub lease: Duration,
    /// The most memory, in bytes, that one response takes while it is computed. A response that takes more is sent in
    /// ranges of rows; a single row that takes more is sent alone.
    pub response_bytes: usize,
}

impl ServeConfig {
    /// One thread a core, the built-in rules, 1,024 connections, leases of 30 s, 64 MiB a response.
    pub fn new(address: impl Into<String>, token: Token) -> Self {
        Self {
            address: address.into(),
            token,
            tls: None,
            rules: RuleRegistry::default(),
            n_threads: std::thread::available_parallelism().map_or(1, usize::from),
            max_connections: 1024,
            lease: Duration::from_secs(30),
            response_bytes: 64 << 20,
        }
    }

    /// The most memory, in bytes, that the requests of clients take: the responses that are computed and the requests
    /// that wait. A row whose edges take more than `response_bytes` (44 bytes an edge that is picked) adds its excess.
    /// Besides, each connection has buffers: up to 16 MiB of requests that were not read yet, and 1 MiB a response.
    pub fn memory_bytes(&self) -> usize {
        self.n_threads.max(1) * self.response_bytes + REQUEST_BYTES
    }

    /// As many connections as are accepted at once: where the system allows few files, those of the part come first.
    fn n_connections(&self) -> usize {
        let at_most = max_open_files().map_or(usize::MAX, |n_files| n_files / 2);
        self.max_connections.min(at_most).max(1)
    }
}

/// A part of a graph that other processes use, for as long as this lives.
///
/// It has threads of its own: two that wait for the network, and `n_threads` that compute responses. Its memory is bounded:
/// [`ServeConfig::memory_bytes`]. A panic while a response is computed, in a rule say, ends that request alone; where
/// the process is a rank of a job, as in worker mode, it ends the job, as any panic does.
#[derive(Debug)]
pub struct Server {
    runtime: Option<Runtime>,
    address: SocketAddr,
    service: Service,
    wrong_tokens: Arc<Throttle>,
}

impl Server {
    /// Starts to serve a part.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Rpc`], [`Error::Threads`].
    pub fn start(part: Arc<Part>, config: ServeConfig) -> Result<Self> {
        let n_connections = config.n_connections();
        let ServeConfig { address, token, tls, rules, n_threads, lease, response_bytes, .. } = config;
        let failed = |source| Error::Listen { address: address.clone(), source };
        let listener = TcpListener::bind(&address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(n_threads.max(1))
            .thread_name("kiln-serve")
            .enable_all()
            .build()
            .map_err(Error::Threads)?;
        let held = Arc::new(LocalPart::new(part, rules));
        let service = Service {
            responder: Responder::new(Arc::clone(&held), n_threads, lease),
            held,
            leases: Arc::new(Leases::new(lease, first_lease()?)),
            started: Instant::now(),
            response_bytes,
        };
        let rpc_endpoint = RpcEndpoint { address: address.clone(), token, tls };
        let guard =
            rpc_endpoint.auth_interceptor("another token: clients and servers of a graph have the same");
        let wrong_tokens = guard.wrong_tokens();
        let graph = GraphServer::new(service.clone()).max_decoding_message_size(MAX_QUESTION_BYTES);
        let router = rpc_endpoint
            .server()?
            .http2_keepalive_interval(Some(BEAT))
            .http2_keepalive_timeout(Some(SILENCE))
            .max_concurrent_streams(Some(MAX_QUESTIONS))
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .add_service(InterceptedService::new(graph, guard));
        let _inside = runtime.enter();
        let incoming = rpc_endpoint.incoming(listener, n_connections).map_err(failed)?;
        runtime.spawn(router.serve_with_incoming(incoming));
        drop(_inside);
        Ok(Self { runtime: Some(runtime), address: bound, service, wrong_tokens })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many clients use it.
    pub fn n_clients(&self) -> usize {
        self.service.leases.n_held(Instant::now())
    }

    /// The number of calls without the token or with another one, which were refused. Log lines name the last of them, at
    /// most once a minute.
    pub fn n_wrong_tokens(&self) -> u64 {
        self.wrong_tokens.n_events()
    }

    /// For how long nobody has used it, after somebody did.
    pub fn free_for(&self) -> Option<Duration> {
        self.service.leases.free_for(Instant::now())
    }
}

impl Drop for Server {
    /// Ends it at once: whoever waits for an answer asks again, here or elsewhere.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Leases of a server that takes the place of another have other numbers, and nobody guesses them.
fn first_lease() -> Result<u64> {
    // Hexadecimal digits.
    Ok(u64::from_str_radix(&Token::random_text()?[..16], 16).unwrap_or(1))
}
