use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kiln_comm::rpc::{RpcEndpoint, Token, is_tls_failure};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use crate::error::chain;
use crate::proto::{
    Chunk, FetchRequest, GatherRequest, GraphClient, Healthy, Lease, ListRequest, Nothing, OpenRequest,
    Opened, SampleRequest,
};
use crate::{BEAT, Error, MAX_MESSAGE_BYTES, PROTOCOL, Result, SILENCE, WINDOW_BYTES};

type Client = GraphClient<InterceptedService<Channel, Token>>;

/// The first pause before a question is asked again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// A server, and the ways to it.
///
/// Requests are retried, on any connection, until the response is complete or has made no progress for the deadline: the
/// server may have been restarted in between. Progress is a byte of the response beyond the furthest that was received
/// so far, so that a server which accepts requests and never responds is lost, too. Responses depend on nothing but the
/// request, so that it does not matter which attempt they come from.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: String,
    /// What it must hold, once it is known.
    holds: OnceLock<Holds>,
    clients: Vec<Client>,
    next: AtomicUsize,
    lease: AtomicU64,
    /// Held by who takes a lease.
    opening: Mutex<()>,
    deadline: Duration,
}

/// What a server holds.
#[derive(Debug)]
struct Holds {
    part: usize,
    partition_hash: String,
    /// Names of the rules that it knows.
    rules: Vec<String>,
}

/// What can be asked.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    Fetch(FetchRequest),
    Sample(SampleRequest),
    List(ListRequest),
    Gather(GatherRequest),
}

impl Question {
    fn name(&self) -> &'static str {
        match self {
            Self::Fetch(_) => "an array",
            Self::Sample(_) => "a sample",
            Self::List(_) => "lists of neighbours",
            Self::Gather(_) => "rows of features",
        }
    }

    async fn ask(
        self,
        client: &mut Client,
        lease: u64,
    ) -> std::result::Result<Response<Streaming<Chunk>>, Status> {
        match self {
            Self::Fetch(request) => client.fetch(FetchRequest { lease, ..request }).await,
            Self::Sample(request) => client.sample(SampleRequest { lease, ..request }).await,
            Self::List(request) => client.list(ListRequest { lease, ..request }).await,
            Self::Gather(request) => client.gather(GatherRequest { lease, ..request }).await,
        }
    }
}

/// An event of a reply, in the order in which they come.
pub(crate) enum ReplyEvent {
    /// Of an answer that may still fail, and be told again from its start.
    Piece {
        /// Of the question.
        number: usize,
        /// The byte of the answer that it starts at.
        start: u64,
        bytes: Bytes,
    },
    End {
        number: usize,
        outcome: Result<()>,
    },
}

/// What follows on a call that went wrong.
enum Failure {
    /// It may go well another time.
    Again(String),
    /// The server does not know this client: it was started anew.
    Unknown,
    Refused(String),
    /// The server panicked while it computed the response, as it would again.
    Panicked(String),
}

/// How far the response to one request has come, over all attempts.
struct Progress {
    /// The end of what was received.
    furthest: u64,
    /// When that was received, or the request was first sent.
    at: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { furthest: 0, at: Instant::now() }
    }

    /// Counts what was received up to this byte. The time that this process took to accept it is not the server's.
    fn received(&mut self, end: u64, accepting: Duration) {
        if self.furthest < end {
            (self.furthest, self.at) = (end, Instant::now());
        } else {
            self.at += accepting;
        }
    }

    /// How long the server may still take.
    fn rest(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.at.elapsed())
    }
}

impl Peer {
    /// Ways to a server, of which none is tried yet. Needs the runtime whose threads wait for them.
    pub(crate) fn new(rpc_endpoint: &RpcEndpoint, n_channels: usize, deadline: Duration) -> Result<Self> {
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

    /// Takes a lease, as soon as the server is there, and says what it holds.
    pub(crate) async fn open(&self, within: Duration) -> Result<Opened> {
        self.insist("a lease", within, || self.try_open()).await
    }

    /// What it says of itself, as soon as it is there.
    pub(crate) async fn health(&self, within: Duration) -> Result<Healthy> {
        let try_once = || async {
            let answer = self.client().health(Nothing {}).await;
            answer.map(Response::into_inner).map_err(|status| failure(&status))
        };
        self.insist("its health", within, try_once).await
    }

    /// Tries until there is an answer or the time is up, of which each try is given what is left.
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
                // Nothing was said of a lease.
                Ok(Err(Failure::Unknown)) => "it asks for a lease, as no graph server does".to_owned(),
                // A try that the end of the time has cut short says less than the one before.
                Err(_) => before.unwrap_or_else(|| "it says nothing".to_owned()),
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
        // It may have been started again, but with the same.
        let rules = opened.rules.clone();
        let expected = self.holds.get_or_init(|| Holds { part, partition_hash, rules }).part;
        if expected != part {
            let found = part;
            return Err(Failure::Refused(format!(
                "it holds part {found}, expected part {expected}: start it with the part that this job began with"
            )));
        }
        Ok(opened)
    }

    /// Takes a lease in the place of one that the server does not know, unless somebody has done so meanwhile.
    /// The caller finds out where the time is up.
    async fn open_again(&self, unknown: u64, within: Duration) -> Result<()> {
        let started = Instant::now();
        let Ok(_opening) = timeout(within, self.opening.lock()).await else { return Ok(()) };
        if self.lease.load(Ordering::Relaxed) == unknown {
            self.open(within.saturating_sub(started.elapsed())).await?;
        }
        Ok(())
    }

    /// Asks until there is a whole answer, and tells what comes.
    pub(crate) async fn ask(&self, question: Question, number: usize, tell: &mpsc::Sender<ReplyEvent>) {
        let outcome = self.ask_again(question, number, tell).await;
        // Who does not listen any more needs no answer.
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
                    return Err(Error::ServerPanicked { server: self.address.clone(), asked, reason });
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
        let silent = |_| Failure::Again(format!("it has sent nothing new for {:?}", self.deadline));
        let mut client = self.client();
        let answer = timeout(progress.rest(self.deadline), question.ask(&mut client, lease)).await;
        let mut chunks = answer.map_err(silent)?.map_err(|status| failure(&status))?.into_inner();
        let mut start = 0;
        loop {
            let chunk = timeout(progress.rest(self.deadline), chunks.message()).await.map_err(silent)?;
            let chunk = chunk.map_err(|status| failure(&status))?;
            let broken = || Failure::Again("its answer has broken off".to_owned());
            let bytes = chunk.map(|Chunk { data }| data).ok_or_else(broken)?;
            // That is the end of a whole answer; the stream's own comes right after it. Streams that are given up before it
            // count as errors of the connection.
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

    /// Pauses before the next try, unless the time is up.
    async fn wait(
        &self,
        pause: &mut Duration,
        asked: &'static str,
        started: Instant,
        within: Duration,
        reason: String,
    ) -> Result<()> {
        let waited = started.elapsed();
        if within <= waited + *pause {
            let (server, part) = (self.address.clone(), self.part());
            return Err(Error::PeerLost { server, part, asked, waited, reason });
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LAST_PAUSE);
        Ok(())
    }

    fn refused(&self, reason: String) -> Error {
        Error::Refused { server: self.address.clone(), reason }
    }

    pub(crate) fn bad_answer(&self, asked: &'static str, expected: String, found: String) -> Error {
        Error::BadAnswer { server: self.address.clone(), asked, expected, found }
    }

    /// Keeps the lease for as long as somebody holds the peer.
    pub(crate) async fn keep(peer: std::sync::Weak<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            let Some(peer) = peer.upgrade() else { return };
            let id = peer.lease.load(Ordering::Relaxed);
            let renewed = timeout(every, async { peer.client().renew(Lease { id }).await }).await;
            // A server that was started anew, or has forgotten this process while it stood still. Of all else, who really
            // asks something finds out what is wrong.
            if let Ok(Err(status)) = renewed
                && matches!(failure(&status), Failure::Unknown)
            {
                let _ = peer.open_again(id, every).await;
            }
        }
    }

    /// Gives the lease back; a server that does not hear it will find out.
    pub(crate) async fn close(self: Arc<Self>) {
        let id = self.lease.load(Ordering::Relaxed);
        if id == 0 {
            return;
        }
        let _ = timeout(FIRST_PAUSE * 10, self.client().close(Lease { id })).await;
    }
}

/// What follows on what a server or the way to it says.
fn failure(status: &Status) -> Failure {
    let text = match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None => status.message().to_owned(),
    };
    match status.code() {
        _ if is_tls_failure(status) => Failure::Refused(format!("certificates: {text}")),
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
