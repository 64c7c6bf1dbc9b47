use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kiln_comm::rpc::{RpcEndpoint, is_tls_failure};
use kiln_comm::{GroupWatch, error_text};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tonic::{Code, Response, Status};

use crate::client::question::{Client, Question};
use crate::local_part::LocalPart;
use crate::wire::limits::{BEAT, MAX_MESSAGE_BYTES, PROTOCOL, SILENCE, WINDOW_BYTES};
use crate::wire::proto::{Chunk, GraphClient, Healthy, Lease, Nothing, OpenRequest, Opened};
use crate::{Error, Result, ServerError};

/// The pause before the first retry. Each further pause is twice as long, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause before a retry.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// A server and this client's connections to it.
///
/// Requests are retried on any connection until the response is complete or has made no progress within the deadline,
/// so the server may be restarted meanwhile. A response makes progress when a byte arrives that no earlier attempt has
/// received, so a server that accepts requests and never responds counts as lost. Responses depend only on the request,
/// so attempts can be combined.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: String,
    /// The server's partition and rules, once known. A restarted server must hold the same partition.
    holds: OnceLock<Holds>,
    clients: Vec<Client>,
    next: AtomicUsize,
    lease: AtomicU64,
    /// Locked while a new lease is taken.
    opening: Mutex<()>,
    deadline: Duration,
    watch: Option<GroupWatch>,
}

/// The partition and the rules of a server.
#[derive(Debug)]
struct Holds {
    part: usize,
    partition_hash: String,
    /// The names of the rules that the server knows.
    rules: Vec<String>,
}

/// The owner of a partition: this process or a server.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    Local(Arc<LocalPart>),
    Remote(Arc<Peer>),
}

/// An event in the response to a request. The events of a response are in order of receipt.
pub(crate) enum ReplyEvent {
    /// A chunk of a response. If an attempt fails, the retry sends the response again from offset 0.
    Piece {
        /// The index of the request among those that were sent together, from 0.
        number: usize,
        /// The offset of the chunk in the response.
        start: u64,
        bytes: Bytes,
    },
    /// The end of a response, successful or not.
    End { number: usize, outcome: Result<()> },
}

/// The failure of one attempt of a call.
enum Failure {
    /// A transient failure. The call is retried.
    Again(String),
    /// The server does not know the lease, because it was restarted or the lease has expired.
    Unknown,
    Refused(String),
    /// The server panicked while it computed the response. A retry would panic, too.
    Panicked(String),
}

/// The progress of the response to one request, over all attempts.
struct Progress {
    /// The offset of the first byte that no attempt has received.
    furthest: u64,
    /// The start of the time without progress. It moves forward while this process accepts repeated chunks.
    at: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { furthest: 0, at: Instant::now() }
    }

    /// Records that bytes up to `end` were received. The time `accepting`, which this process took to accept them, does
    /// not count towards the deadline.
    fn received(&mut self, end: u64, accepting: Duration) {
        if self.furthest < end {
            (self.furthest, self.at) = (end, Instant::now());
        } else {
            self.at += accepting;
        }
    }

    /// Returns the time that is left for the server to make progress.
    fn rest(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.at.elapsed())
    }
}

impl Peer {
    /// Creates connections to a server, which connect on first use. Must be called inside the runtime that drives them.
    pub(crate) fn new(
        rpc_endpoint: &RpcEndpoint,
        n_channels: usize,
        deadline: Duration,
        watch: Option<GroupWatch>,
    ) -> Result<Self> {
        let way = || -> Result<Client> {
            let endpoint = rpc_endpoint
                .endpoint()?
                .http2_keep_alive_interval(BEAT)
                .keep_alive_timeout(SILENCE)
                .keep_alive_while_idle(true)
                .max_frame_size(1 << 20)
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES);
            let client = GraphClient::with_interceptor(endpoint.connect_lazy(), rpc_endpoint.token.clone());
            Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
        };
        Ok(Self {
            address: rpc_endpoint.address.clone(),
            holds: OnceLock::new(),
            clients: (0..n_channels.max(1)).map(|_| way()).collect::<Result<_>>()?,
            next: AtomicUsize::new(0),
            lease: AtomicU64::new(0),
            opening: Mutex::new(()),
            deadline,
            watch,
        })
    }

    fn client(&self) -> Client {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.clients[next % self.clients.len()].clone()
    }

    pub(crate) fn n_channels(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn knows(&self, rule: &str) -> bool {
        self.holds.get().is_some_and(|holds| holds.rules.iter().any(|name| name == rule))
    }

    pub(crate) fn part(&self) -> Option<usize> {
        self.holds.get().map(|holds| holds.part)
    }

    /// Takes a lease as soon as the server has started. Returns a description of its partition.
    pub(crate) async fn open(&self, within: Duration) -> Result<Opened> {
        self.insist("a lease", within, || self.try_open()).await
    }

    /// Requests the server's health as soon as it has started.
    pub(crate) async fn health(&self, within: Duration) -> Result<Healthy> {
        let try_once = || async {
            let answer = self.client().health(Nothing {}).await;
            answer.map(Response::into_inner).map_err(|status| failure(&status))
        };
        self.insist("its health", within, try_once).await
    }

    /// Retries a call until it succeeds or `within` has passed. Each attempt may take the remaining time.
    async fn insist<T, Try>(
        &self,
        asked: &'static str,
        within: Duration,
        try_once: impl Fn() -> Try + Send,
    ) -> Result<T>
    where
        Try: Future<Output = std::result::Result<T, Failure>> + Send,
    {
        let (started, mut pause, mut before) = (Instant::now(), FIRST_PAUSE, None);
        loop {
            let rest = within.saturating_sub(started.elapsed());
            let reason = match timeout(rest, try_once()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Failure::Refused(reason))) => return Err(self.refused(reason)),
                Ok(Err(Failure::Again(reason) | Failure::Panicked(reason))) => reason,
                // These calls carry no lease, so graph servers do not return the status for an unknown lease.
                Ok(Err(Failure::Unknown)) => "it unexpectedly requires a lease".to_owned(),
                // A timeout is less informative than the reason why the previous attempt failed.
                Err(_) => before.unwrap_or_else(|| "it does not respond".to_owned()),
            };
            self.wait(&mut pause, asked, started, within, reason.clone()).await?;
            before = Some(reason);
        }
    }

    async fn try_open(&self) -> std::result::Result<Opened, Failure> {
        let partition_hash = self.holds.get().map(|holds| holds.partition_hash.clone()).unwrap_or_default();
        let request = OpenRequest { protocol: PROTOCOL, partition_hash };
        let opened = self.client().open(request).await.map_err(|status| failure(&status))?.into_inner();
        self.lease.store(opened.lease.map_or(0, |lease| lease.id), Ordering::Relaxed);
        let (part, partition_hash) = (opened.part as usize, opened.partition_hash.clone());
        // The server may have been restarted, but only with the same partition.
        let rules = opened.rules.clone();
        let expected = self.holds.get_or_init(|| Holds { part, partition_hash, rules }).part;
        if expected != part {
            let found = part;
            return Err(Failure::Refused(format!(
                "it holds partition {found}, expected partition {expected}: restart it with the partition of this job"
            )));
        }
        Ok(opened)
    }

    /// Replaces a lease that the server does not know, unless another task has done so already. Also returns `Ok` if
    /// `within` passes while another task takes a lease; the caller checks its deadline.
    async fn open_again(&self, unknown: u64, within: Duration) -> Result<()> {
        let started = Instant::now();
        let Ok(_opening) = timeout(within, self.opening.lock()).await else { return Ok(()) };
        if self.lease.load(Ordering::Relaxed) == unknown {
            self.open(within.saturating_sub(started.elapsed())).await?;
            tracing::debug!(
                name: "lease-replaced", target: "kiln_remote::client", server = self.address,
                "the server at {} did not know the lease of this client, which has a new one", self.address
            );
        }
        Ok(())
    }

    /// Sends a request, retries it until the response is complete, and sends its events to `tell`.
    pub(crate) async fn ask(&self, question: Question, number: usize, tell: &mpsc::Sender<ReplyEvent>) {
        let outcome = self.ask_again(question, number, tell).await;
        // The send fails if the receiver was dropped, and then nothing needs the response.
        let _ = tell.send(ReplyEvent::End { number, outcome }).await;
    }

    async fn ask_again(
        &self,
        question: Question,
        number: usize,
        tell: &mpsc::Sender<ReplyEvent>,
    ) -> Result<()> {
        let (mut progress, mut pause) = (Progress::new(), FIRST_PAUSE);
        let asked = question.name();
        loop {
            let (before, lease) = (progress.furthest, self.lease.load(Ordering::Relaxed));
            let tried = self.try_ask(question.clone(), lease, number, tell, &mut progress).await;
            let Err(failure) = tried else { return Ok(()) };
            if before < progress.furthest {
                pause = FIRST_PAUSE;
            }
            let reason = match failure {
                Failure::Again(reason) => reason,
                Failure::Unknown => {
                    self.open_again(lease, progress.rest(self.deadline)).await?;
                    "it does not know this client's lease".to_owned()
                }
                Failure::Refused(reason) => return Err(self.refused(reason)),
                Failure::Panicked(reason) => {
                    let server = self.address.clone();
                    return Err(ServerError::ServerPanicked { server, asked, reason }.into());
                }
            };
            self.wait(&mut pause, asked, progress.at, self.deadline, reason).await?;
        }
    }

    async fn try_ask(
        &self,
        question: Question,
        lease: u64,
        number: usize,
        tell: &mpsc::Sender<ReplyEvent>,
        progress: &mut Progress,
    ) -> std::result::Result<(), Failure> {
        let silent = |_| Failure::Again(format!("it has made no progress for {:?}", self.deadline));
        let mut client = self.client();
        let answer = timeout(progress.rest(self.deadline), question.ask(&mut client, lease)).await;
        let mut chunks = answer.map_err(silent)?.map_err(|status| failure(&status))?.into_inner();
        let mut start = 0;
        loop {
            let chunk = timeout(progress.rest(self.deadline), chunks.message()).await.map_err(silent)?;
            let chunk = chunk.map_err(|status| failure(&status))?;
            let broken = || Failure::Again("its response is incomplete".to_owned());
            let bytes = chunk.map(|Chunk { data }| data).ok_or_else(broken)?;
            // An empty chunk ends a complete response, and the end of the stream follows. The stream is read to its
            // end, because dropping it earlier counts as an error of the connection.
            if bytes.is_empty() {
                let _ = timeout(progress.rest(self.deadline), chunks.message()).await;
                return Ok(());
            }
            let (n_bytes, received) = (bytes.len() as u64, Instant::now());
            if tell.send(ReplyEvent::Piece { number, start, bytes }).await.is_err() {
                return Ok(());
            }
            start += n_bytes;
            progress.received(start, received.elapsed());
        }
    }

    /// Pauses before the next attempt. Returns [`ServerError::JobEnded`] if no attempt can succeed, and
    /// [`ServerError::PeerLost`] if `within` would pass during the pause.
    async fn wait(
        &self,
        pause: &mut Duration,
        asked: &'static str,
        started: Instant,
        within: Duration,
        reason: String,
    ) -> Result<()> {
        if let Some(cause) = self.watch.as_ref().and_then(GroupWatch::cause) {
            return Err(ServerError::JobEnded { server: self.address.clone(), asked, cause }.into());
        }
        let waited = started.elapsed();
        if within <= waited + *pause {
            let (server, part) = (self.address.clone(), self.part());
            return Err(ServerError::PeerLost { server, part, asked, waited, reason }.into());
        }
        tracing::debug!(
            name: "request-retried", target: "kiln_remote::client", server = self.address, request = asked,
            "the server at {} is asked again for {asked}: {reason}", self.address
        );
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LAST_PAUSE);
        Ok(())
    }

    fn refused(&self, reason: String) -> Error {
        Error::Server(ServerError::Refused { server: self.address.clone(), reason })
    }

    pub(crate) fn bad_answer(&self, asked: &'static str, expected: String, found: String) -> Error {
        Error::Server(ServerError::BadAnswer { server: self.address.clone(), asked, expected, found })
    }

    /// Renews the lease until the peer is dropped.
    pub(crate) async fn keep(peer: std::sync::Weak<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            let Some(peer) = peer.upgrade() else { return };
            let id = peer.lease.load(Ordering::Relaxed);
            let renewed = timeout(every, async { peer.client().renew(Lease { id }).await }).await;
            // The server was restarted, or the lease expired while this process was suspended. Other failures are left
            // to the next request, which reports them.
            if let Ok(Err(status)) = renewed
                && matches!(failure(&status), Failure::Unknown)
            {
                let _ = peer.open_again(id, every).await;
            }
        }
    }

    /// Ends the lease. If the call fails, the lease expires on the server.
    pub(crate) async fn close(self: Arc<Self>) {
        let id = self.lease.load(Ordering::Relaxed);
        if id == 0 {
            return;
        }
        let _ = timeout(FIRST_PAUSE * 10, self.client().close(Lease { id })).await;
    }
}

/// Classifies the status of a server or of the transport.
fn failure(status: &Status) -> Failure {
    let text = match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), error_text(source)),
        None => status.message().to_owned(),
    };
    match status.code() {
        _ if is_tls_failure(status) => Failure::Refused(format!("a certificate was rejected: {text}")),
        Code::FailedPrecondition => Failure::Unknown,
        Code::DataLoss => Failure::Panicked(text),
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::InvalidArgument
        | Code::NotFound
        | Code::OutOfRange
        | Code::Aborted
        | Code::Unimplemented => Failure::Refused(text),
        _ => Failure::Again(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a server with another version of the protocol.
    #[test]
    fn a_server_of_another_version_refuses_without_retries() {
        let text = "protocol version 5, expected 4: use the same version of kiln for clients and servers";
        assert!(matches!(failure(&Status::unimplemented(text)), Failure::Refused(reason) if reason == text));
    }
}
