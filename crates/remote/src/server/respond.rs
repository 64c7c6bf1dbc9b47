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
use crate::server::slots::{Slot, Slots};
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

/// The number of responses that wait for their clients, besides those that are computed.
const WAITING: usize = 64;

/// The number of bytes per second that a client reads at least. A client on a crowded network is faster.
const SLOWEST: f64 = (1 << 20) as f64;

/// Computes responses on a limited number of threads, and sends them in chunks.
#[derive(Debug, Clone)]
pub(crate) struct Responder {
    held: Arc<LocalPart>,
    /// One slot for each response that may be computed concurrently. A response has none while it waits for its client.
    threads: Arc<Slots>,
    /// One slot for each response that is computed or waits for its client.
    places: Arc<Slots>,
    /// One slot for each of those responses that keep what was computed: samples.
    samples: Arc<Slots>,
    /// One permit for each KiB of [`REQUEST_BYTES`]. A request holds the permits for its size until its response ends.
    requests: Arc<Semaphore>,
    pending: Arc<Pending>,
    /// The longest time that a response waits for a client that does not read.
    patience: Duration,
}

/// A request to compute a response for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The lease of the client.
    pub(crate) client: u64,
    /// The size of the request in bytes.
    pub(crate) n_bytes: usize,
    /// True if the response is computed before it is sent, and so takes memory while its client reads.
    pub(crate) is_sample: bool,
}

impl Responder {
    pub(crate) fn new(held: Arc<LocalPart>, n_threads: usize, patience: Duration) -> Self {
        let requests = Arc::new(Semaphore::new(REQUEST_BYTES / PERMIT_BYTES));
        Self {
            held,
            threads: Slots::new(n_threads.max(1)),
            places: Slots::new(n_places(n_threads)),
            samples: Slots::new(n_samples(n_threads)),
            requests,
            pending: Arc::default(),
            patience,
        }
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
        asked: Asked,
        compute: impl FnOnce(&LocalPart, &ResponseSender) -> crate::Result<()> + Send + 'static,
    ) -> Answer<Chunks> {
        let n_permits = asked.n_bytes.div_ceil(PERMIT_BYTES).max(1) as u32;
        let Ok(memory) = Arc::clone(&self.requests).try_acquire_many_owned(n_permits) else {
            let text = format!("it is overloaded: it holds at most {REQUEST_BYTES} bytes of requests");
            return Err(Status::resource_exhausted(text));
        };
        let Self { held, threads, places, samples, patience, .. } = self.clone();
        let pending = Pending::start(&self.pending, Instant::now());
        let (sender, chunks) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let slots = async {
                let place = places.take(asked.client).await;
                let sample = match asked.is_sample {
                    true => Some(samples.take(asked.client).await),
                    false => None,
                };
                (place, sample, threads.take(asked.client).await)
            };
            let (place, sample, thread) = tokio::select! {
                slots = slots => slots,
                () = sender.closed() => return,
            };
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || {
                let sender = ResponseSender::new(sender, runtime, patience, asked.client, thread);
                let outcome = catch_unwind(AssertUnwindSafe(|| compute(&held, &sender)));
                sender.finish(outcome);
                drop((place, sample, memory, pending));
            });
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(chunks))))
    }
}

/// Returns the number of responses that are computed or wait for their clients, each on a thread.
pub(crate) fn n_places(n_threads: usize) -> usize {
    n_threads.max(1) + WAITING
}

/// Returns the number of samples that are computed or wait for their clients.
pub(crate) fn n_samples(n_threads: usize) -> usize {
    2 * n_threads.max(1)
}

/// The sending side of one response.
pub(crate) struct ResponseSender {
    sender: mpsc::Sender<Result<Chunk, Status>>,
    runtime: Handle,
    patience: Duration,
    client: u64,
    /// The slot of a thread; `None` while the response waits for its client.
    thread: Cell<Option<Slot>>,
    /// The time that the response has waited for its client, and the number of bytes that were sent.
    waited: Cell<Duration>,
    n_sent: Cell<u64>,
    /// True if no chunk was dropped so far.
    is_open: Cell<bool>,
}

impl ResponseSender {
    fn new(
        sender: mpsc::Sender<Result<Chunk, Status>>,
        runtime: Handle,
        patience: Duration,
        client: u64,
        thread: Slot,
    ) -> Self {
        Self {
            sender,
            runtime,
            patience,
            client,
            thread: Cell::new(Some(thread)),
            waited: Cell::default(),
            n_sent: Cell::default(),
            is_open: Cell::new(true),
        }
    }

    /// Sends a chunk, and waits until there is room for it. Returns false once a chunk was dropped, because the client
    /// did not read in time: the caller must stop, since a response with a gap must not look complete.
    pub(crate) fn send(&self, data: Bytes) -> bool {
        let n_bytes = data.len() as u64;
        let is_sent = self.send_result(Ok(Chunk { data }));
        self.n_sent.set(self.n_sent.get() + n_bytes);
        is_sent
    }

    /// Returns false once a chunk was dropped or the client has disconnected.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get() && !self.sender.is_closed()
    }

    fn send_result(&self, chunk: Result<Chunk, Status>) -> bool {
        let is_sent = self.is_open.get()
            && match self.sender.try_send(chunk) {
                Err(TrySendError::Full(chunk)) => self.wait(chunk),
                sent => sent.is_ok(),
            };
        self.is_open.set(is_sent);
        is_sent
    }

    /// Waits for room for a chunk, without a thread's slot, which another response uses meanwhile.
    fn wait(&self, chunk: Result<Chunk, Status>) -> bool {
        let thread = self.thread.take();
        let slots = thread.as_ref().and_then(|thread| thread.slots().cloned());
        drop(thread);
        let started = Instant::now();
        let sent = async { timeout(self.left(), self.sender.send(chunk)).await };
        let is_sent = self.runtime.block_on(sent).is_ok_and(|sent| sent.is_ok());
        self.waited.set(self.waited.get() + started.elapsed());
        if let (true, Some(slots)) = (is_sent, slots) {
            self.thread.set(Some(self.runtime.block_on(slots.take(self.client))));
        }
        is_sent
    }

    /// Returns the time that the response may still wait for its client. All waits together have the patience, and the time in
    /// which the slowest client reads what was sent.
    fn left(&self) -> Duration {
        let reading = Duration::from_secs_f64(self.n_sent.get() as f64 / SLOWEST);
        (self.patience + reading).saturating_sub(self.waited.get())
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

    /// Returns a sender with the only slot, and the receiver of its chunks.
    fn response(
        runtime: &tokio::runtime::Runtime,
        patience: Duration,
    ) -> (ResponseSender, mpsc::Receiver<Result<Chunk, Status>>, Arc<Slots>) {
        let (sender, chunks) = mpsc::channel(1);
        let slots = Slots::new(1);
        let thread = runtime.block_on(slots.take(1));
        (ResponseSender::new(sender, runtime.handle().clone(), patience, 1, thread), chunks, slots)
    }

    #[test]
    fn response_with_a_dropped_chunk_does_not_look_complete() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sender, mut chunks, _) = response(&runtime, Duration::from_millis(20));
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
    fn patience_is_that_of_the_response_and_grows_with_its_size() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let patience = Duration::from_secs(30);
        let (sender, _chunks, _) = response(&runtime, patience);
        assert_eq!(sender.left(), patience);
        assert!(sender.send(Bytes::from(vec![0; 2 << 20])));
        assert_eq!(sender.left(), patience + Duration::from_secs(2));
        // A chunk does not start the patience again.
        sender.waited.set(Duration::from_secs(31));
        assert_eq!(sender.left(), Duration::from_secs(1));
        sender.waited.set(Duration::from_secs(40));
        assert!(!sender.send(Bytes::from_static(b"late")));
    }

    #[test]
    fn a_response_that_waits_for_its_client_leaves_its_thread_to_others() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sender, mut chunks, slots) = response(&runtime, Duration::from_secs(600));
        assert!(sender.send(Bytes::from_static(b"first")));
        let waiting = std::thread::spawn(move || sender.send(Bytes::from_static(b"second")));
        // The slot is free although the response is not complete.
        let slot = runtime.block_on(slots.take(2));
        assert!(chunks.blocking_recv().is_some() && chunks.blocking_recv().is_some());
        drop(slot);
        assert!(waiting.join().unwrap());
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
