use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

use crate::Error;
use crate::local_part::LocalPart;
use crate::wire::proto::Chunk;

/// The number of chunks of a response that are computed ahead of the network.
const AHEAD: usize = 2;

/// The maximum total size in bytes of the requests that a server holds, whether they wait or their responses are being
/// computed.
pub(crate) const REQUEST_BYTES: usize = 256 << 20;

/// The number of request bytes that one permit of `Responder::requests` stands for.
const PERMIT_BYTES: usize = 1 << 10;

pub(crate) type Answer<T> = Result<Response<T>, Status>;
pub(crate) type Chunks = Pin<Box<dyn Stream<Item = Result<Chunk, Status>> + Send>>;

/// Computes responses on a limited number of threads, and sends them in chunks.
#[derive(Debug, Clone)]
pub(crate) struct Responder {
    held: Arc<LocalPart>,
    /// One permit for each response that may be computed concurrently. Further requests wait for a permit.
    threads: Arc<Semaphore>,
    /// One permit for each KiB of [`REQUEST_BYTES`]. A request holds the permits for its size until its response ends.
    requests: Arc<Semaphore>,
    pending: Arc<Pending>,
    /// The longest time that a response waits for a client that does not read.
    patience: Duration,
}

impl Responder {
    pub(crate) fn new(held: Arc<LocalPart>, n_threads: usize, patience: Duration) -> Self {
        let threads = Arc::new(Semaphore::new(n_threads.max(1)));
        let requests = Arc::new(Semaphore::new(REQUEST_BYTES / PERMIT_BYTES));
        Self { held, threads, requests, pending: Arc::default(), patience }
    }

    /// Returns the age of the oldest request whose response is not complete, or `None` if all responses are complete.
    pub(crate) fn oldest_request(&self, now: Instant) -> Option<Duration> {
        self.pending.oldest().map(|start| now.saturating_duration_since(start))
    }

    /// Computes a response on a thread as soon as one is free, and sends it in chunks as fast as the client reads. A
    /// waiting request is dropped when its client disconnects; `compute` must check [`ResponseSender::is_open`].
    ///
    /// # Errors
    /// Returns the status `RESOURCE_EXHAUSTED` if the requests would exceed [`REQUEST_BYTES`]; clients retry.
    pub(crate) fn respond(
        &self,
        request_bytes: usize,
        compute: impl FnOnce(&LocalPart, &ResponseSender) -> crate::Result<()> + Send + 'static,
    ) -> Answer<Chunks> {
        let n_permits = request_bytes.div_ceil(PERMIT_BYTES).max(1) as u32;
        let Ok(memory) = Arc::clone(&self.requests).try_acquire_many_owned(n_permits) else {
            let text = format!("it is overloaded: it holds at most {REQUEST_BYTES} bytes of requests");
            return Err(Status::resource_exhausted(text));
        };
        let (held, threads) = (Arc::clone(&self.held), Arc::clone(&self.threads));
        let pending = Pending::start(&self.pending, Instant::now());
        let (sender, chunks) = mpsc::channel(AHEAD);
        let patience = self.patience;
        tokio::spawn(async move {
            let thread = tokio::select! {
                thread = threads.acquire_owned() => thread,
                () = sender.closed() => return,
            };
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || {
                let sender = ResponseSender { sender, runtime, patience, is_open: Cell::new(true) };
                let outcome = catch_unwind(AssertUnwindSafe(|| compute(&held, &sender)));
                sender.finish(outcome);
                drop((thread, memory, pending));
            });
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(chunks))))
    }
}

/// The sending side of one response.
pub(crate) struct ResponseSender {
    sender: mpsc::Sender<Result<Chunk, Status>>,
    runtime: Handle,
    patience: Duration,
    /// True if no chunk was dropped so far.
    is_open: Cell<bool>,
}

impl ResponseSender {
    /// Sends a chunk, and waits until there is room for it. Returns false once a chunk was dropped, because the client
    /// did not read in time: the caller must stop, since a response with a gap must not look complete.
    pub(crate) fn send(&self, data: Bytes) -> bool {
        self.send_result(Ok(Chunk { data }))
    }

    /// Returns false once a chunk was dropped or the client has disconnected.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get() && !self.sender.is_closed()
    }

    fn send_result(&self, chunk: Result<Chunk, Status>) -> bool {
        let send = || match self.sender.try_send(chunk) {
            Err(TrySendError::Full(chunk)) => {
                let sent = async { timeout(self.patience, self.sender.send(chunk)).await };
                self.runtime.block_on(sent).is_ok_and(|sent| sent.is_ok())
            }
            sent => sent.is_ok(),
        };
        self.is_open.set(self.is_open.get() && send());
        self.is_open.get()
    }

    /// Sends the outcome of the response. An empty chunk marks a complete response; clients retry a response that ends
    /// without one.
    fn finish(self, outcome: std::thread::Result<crate::Result<()>>) {
        self.send_result(match outcome {
            Ok(Ok(())) => Ok(Chunk { data: Bytes::new() }),
            Ok(Err(error)) => Err(refusal(&error)),
            // The panic hook has logged the panic with its location.
            Err(panic) => Err(panicked(&*panic)),
        });
    }
}

/// Returns the status for a request that would fail again in a retry.
pub(crate) fn refusal(error: &Error) -> Status {
    match error {
        Error::BadRule { reason } => Status::not_found(reason.clone()),
        other => Status::invalid_argument(kiln_comm::error_text(other)),
    }
}

/// Returns the status for a request during which the server panicked. No transport uses this code, so clients can
/// distinguish a panic, which a retry would repeat, from a broken connection.
fn panicked(panic: &(dyn Any + Send)) -> Status {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Status::data_loss(text.unwrap_or("no message").to_owned())
}

/// The start times of the requests whose responses are not complete.
#[derive(Debug, Default)]
struct Pending(Mutex<Starts>);

#[derive(Debug, Default)]
struct Starts {
    next: u64,
    /// The start of each request by its number; the first entry is the oldest.
    starts: BTreeMap<u64, Instant>,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Starts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request as pending until the returned value is dropped.
    fn start(pending: &Arc<Self>, now: Instant) -> PendingRequest {
        let mut starts = pending.lock();
        let number = starts.next;
        starts.next += 1;
        starts.starts.insert(number, now);
        drop(starts);
        PendingRequest { pending: Arc::clone(pending), number }
    }

    fn oldest(&self) -> Option<Instant> {
        self.lock().starts.first_key_value().map(|(_, start)| *start)
    }
}

#[derive(Debug)]
struct PendingRequest {
    pending: Arc<Pending>,
    number: u64,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.pending.lock().starts.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_with_a_dropped_chunk_does_not_look_complete() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sender, mut chunks) = mpsc::channel(1);
        let (patience, is_open) = (Duration::from_millis(20), Cell::new(true));
        let sender = ResponseSender { sender, runtime: runtime.handle().clone(), patience, is_open };
        assert!(sender.send(Bytes::from_static(b"first")));
        assert!(
            !sender.send(Bytes::from_static(b"second")),
            "the chunk should be dropped, because the client does not read"
        );
        assert_eq!(chunks.blocking_recv().unwrap().unwrap().data, b"first"[..]);
        // Although there is room again, no chunk may follow the dropped one.
        assert!(!sender.send(Bytes::from_static(b"third")));
        sender.finish(Ok(Ok(())));
        assert!(chunks.blocking_recv().is_none());
    }

    #[test]
    fn oldest_returns_the_start_of_the_oldest_pending_request() {
        let (pending, start) = (Arc::<Pending>::default(), Instant::now());
        assert_eq!(pending.oldest(), None);
        let first = Pending::start(&pending, start);
        let second = Pending::start(&pending, start + Duration::from_secs(1));
        assert_eq!(pending.oldest(), Some(start));
        drop(first);
        assert_eq!(pending.oldest(), Some(start + Duration::from_secs(1)));
        drop(second);
        assert_eq!(pending.oldest(), None);
    }
}
