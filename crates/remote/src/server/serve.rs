use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_comm::rpc::{RpcEndpoint, Throttle, Tls, Token, max_open_files};
use kiln_partition::Part;
use tokio::runtime::{Builder, Runtime};
use tonic::service::interceptor::InterceptedService;

use crate::local_part::LocalPart;
use crate::server::leases::Leases;
use crate::server::respond::{REQUEST_BYTES, Responder, n_places, n_samples};
use crate::server::service::Service;
use crate::wire::limits::{BEAT, MAX_QUESTION_BYTES, MAX_QUESTIONS, SILENCE, WINDOW_BYTES};
use crate::wire::proto::GraphServer;
use crate::{Error, Result, RuleRegistry};

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The only address at which the server listens, `HOST:PORT`. With port 0, the system chooses a free port.
    pub address: String,
    /// The token that clients must send.
    pub token: Token,
    /// The certificates of server and clients; `None` for connections without TLS.
    pub tls: Option<Tls>,
    /// The sampling rules that clients can request by name.
    pub rules: RuleRegistry,
    /// The maximum number of responses that are computed concurrently, each on a thread of its own; at least 1. A response that
    /// waits for its client does not count, up to 64 of them and twice as many samples as threads. Threads are shared fairly
    /// between clients: the next one is for the client that has the fewest.
    pub n_threads: usize,
    /// The limit on concurrent connections; a client has [two](crate::ConnectConfig::n_channels). Further connections
    /// wait until one is closed. Connections use at most half of the files that the process may open, even if this
    /// limit is higher. A connection whose client does not authenticate within 5 s is closed.
    pub max_connections: usize,
    /// The time after which the lease of a silent client expires, and that a response waits for its client in all, with a second
    /// more for each MiB that it has sent. It is then dropped, and the client retries the request.
    pub lease: Duration,
    /// The memory limit of one response while it is computed, in bytes. A larger response is sent in ranges of rows; a
    /// single row above the limit is sent alone.
    pub response_bytes: usize,
}

impl ServeConfig {
    /// Creates a configuration with one thread per core, the built-in rules, 1,024 connections, leases of 30 s and
    /// 64 MiB per response, without certificates.
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

    /// Returns the memory limit of all requests and responses together, in bytes. A response can exceed its share if
    /// the sampled edges of a single row, at 47 bytes per edge, take more than `response_bytes`. The buffers of
    /// connections are not included: up to 16 MiB of unread requests per connection, and 1 MiB per response. Neither are the edges
    /// that were known before the last 8 requested times, of data with times: 8 bytes per edge each, and 5 more with weights and
    /// types; and the order of the edges by time, once rows with times are requested: 4 bytes per edge, and 8 more if nodes have times.
    pub fn memory_bytes(&self) -> usize {
        n_samples(self.n_threads) * self.response_bytes + REQUEST_BYTES
    }

    /// Returns the maximum number of concurrent connections. If the process may open few files, half of these files are
    /// left for other uses, such as the partition.
    fn n_connections(&self) -> usize {
        let at_most = max_open_files().map_or(usize::MAX, |n_files| n_files / 2);
        self.max_connections.min(at_most).max(1)
    }
}

/// A gRPC server of one partition. Dropping it stops serving.
///
/// It runs two network threads and `n_threads` threads that compute responses. For its memory limit see
/// [`ServeConfig::memory_bytes`]. A panic while a response is computed, for example in a custom rule, fails only that
/// request. In a rank of a job, as in worker mode, such a panic ends the job, like any other panic.
#[derive(Debug)]
pub struct Server {
    runtime: Option<Runtime>,
    address: SocketAddr,
    pub(super) service: Service,
    wrong_tokens: Arc<Throttle>,
}

impl Server {
    /// Starts a server of a partition.
    ///
    /// # Errors
    /// Returns [`Error::Listen`] if the address cannot be used, [`Error::Rpc`] if the certificates cannot be used, and
    /// [`Error::Threads`] if threads cannot be started.
    pub fn start(part: impl Into<Arc<Part>>, config: ServeConfig) -> Result<Self> {
        let held = LocalPart::new(part.into(), config.rules.clone());
        Self::start_local_part(Arc::new(held), config)
    }

    /// Starts a server of a partition that this process may use, too. The rules are those of the partition.
    pub(crate) fn start_local_part(held: Arc<LocalPart>, config: ServeConfig) -> Result<Self> {
        let n_connections = config.n_connections();
        let ServeConfig { address, token, tls, n_threads, lease, response_bytes, .. } = config;
        let failed = |source| Error::Listen { address: address.clone(), source };
        let listener = TcpListener::bind(&address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(n_places(n_threads))
            .thread_name("kiln-serve")
            .enable_all()
            .build()
            .map_err(Error::Threads)?;
        let service = Service {
            responder: Responder::new(Arc::clone(&held), n_threads, lease),
            held,
            leases: Arc::new(Leases::new(lease, first_lease()?)),
            started: Instant::now(),
            response_bytes,
        };
        let rpc_endpoint = RpcEndpoint { address: address.clone(), token, tls };
        let guard = rpc_endpoint.auth_interceptor(
            "missing or wrong token: use the same token for clients and servers of a graph",
        );
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

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of clients with a lease.
    pub fn n_clients(&self) -> usize {
        self.service.leases.n_held(Instant::now())
    }

    /// Returns the number of calls that were refused because of a missing or wrong token. The server logs such calls at
    /// most once a minute.
    pub fn n_wrong_tokens(&self) -> u64 {
        self.wrong_tokens.n_events()
    }

    /// Returns the time since the last lease ended, or `None` while there are leases, and before the first lease.
    pub fn free_for(&self) -> Option<Duration> {
        self.service.leases.free_for(Instant::now())
    }
}

impl Drop for Server {
    /// Stops the server without waiting for responses. Clients retry their requests.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns a random first lease id, so that a restarted server does not know the leases of its predecessor.
fn first_lease() -> Result<u64> {
    // The text consists of hexadecimal digits, so the parse cannot fail.
    Ok(u64::from_str_radix(&Token::random_text()?[..16], 16).unwrap_or(1))
}
