use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kiln_feature::RowBuf;
use kiln_graph::NodeId;
use kiln_sample::{Fanout, Frontier, RngKey, Scratch};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::edges::{Draw, EdgeWeights};
use crate::held::Held;
use crate::leases::Leases;
use crate::proto::{
    Array, Chunk, FetchRequest, GatherRequest, Graph, Healthy, Lease, ListRequest, Nothing, OpenRequest,
    Opened, SampleRequest, Weights,
};
use crate::rules::WITH_REPLACEMENT;
use crate::wire::{self, CHUNK_BYTES};
use crate::{Error, MAX_DSTS, MAX_ROWS, PROTOCOL};

/// Pieces of an answer that are made ahead of the network.
const AHEAD: usize = 2;

/// The most draws with replacement of one question.
const MAX_DRAWS: u64 = 1 << 26;

type Answer<T> = Result<Response<T>, Status>;
type Chunks = Pin<Box<dyn Stream<Item = Result<Chunk, Status>> + Send>>;

/// What a server answers. It holds no state of any training, but for who uses it.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) held: Arc<Held>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) started: Instant,
    /// Answers that are made at once; others wait.
    pub(crate) places: Arc<Semaphore>,
}

impl Service {
    fn renew(&self, lease: u64) -> Result<(), Status> {
        match self.leases.renew(lease, Instant::now()) {
            true => Ok(()),
            // Clients take this code to mean that they should open again.
            false => Err(Status::failed_precondition("there is no such lease")),
        }
    }

    /// The rows that were asked for, which are there, and no more than one question may ask for.
    fn rows(&self, bytes: &[u8], most: usize) -> Result<Vec<NodeId>, Status> {
        let rows = wire::ids(bytes).ok_or_else(|| Status::invalid_argument("rows of other than 4 bytes"))?;
        if most < rows.len() {
            let text = format!("{} rows in one question, expected at most {most}", rows.len());
            return Err(Status::invalid_argument(text));
        }
        self.held.check(&rows).map_err(Status::invalid_argument)?;
        Ok(rows)
    }

    /// Has a thread make an answer, piece by piece as far ahead as the network is behind, when there is a place for it. A
    /// client that takes nothing for as long as a lease lasts is given up, so that it keeps no place from others.
    async fn answer(
        &self,
        make: impl FnOnce(&Held, &dyn Fn(Bytes) -> bool) -> crate::Result<()> + Send + 'static,
    ) -> Answer<Chunks> {
        let (say, said) = mpsc::channel(AHEAD);
        let (held, places) = (Arc::clone(&self.held), Arc::clone(&self.places));
        let is_heard = Cell::new(true);
        let telling = Telling { say, runtime: Handle::current(), patience: self.leases.time(), is_heard };
        let make = move || {
            let outcome = make(&held, &|data| telling.tell(Ok(Chunk { data })));
            telling.end(outcome);
        };
        // The client hears at once that its question is here, wherever it stands in the queue.
        tokio::spawn(async move {
            if let Ok(place) = places.acquire_owned().await {
                tokio::task::spawn_blocking(move || {
                    make();
                    drop(place);
                });
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(said))))
    }
}

/// An answer on its way to a client.
struct Telling {
    say: mpsc::Sender<Result<Chunk, Status>>,
    runtime: Handle,
    /// How long a client that takes nothing is waited for.
    patience: Duration,
    /// Whether all was taken so far.
    is_heard: Cell<bool>,
}

impl Telling {
    /// Whether there is a reason to go on.
    fn tell(&self, piece: Result<Chunk, Status>) -> bool {
        let send = || match self.say.try_send(piece) {
            Err(TrySendError::Full(piece)) => {
                let sent =
                    self.runtime.block_on(async { timeout(self.patience, self.say.send(piece)).await });
                sent.is_ok_and(|sent| sent.is_ok())
            }
            done => done.is_ok(),
        };
        self.is_heard.set(self.is_heard.get() && send());
        self.is_heard.get()
    }

    /// Without this, clients take an answer for one that broke off, which it is where a piece was not taken.
    fn end(self, outcome: crate::Result<()>) {
        self.tell(match outcome {
            Ok(()) => Ok(Chunk { data: Bytes::new() }),
            Err(error) => Err(refusal(&error)),
        });
    }
}

/// What a client is told: that the same would fail again.
fn refusal(error: &Error) -> Status {
    match error {
        Error::BadRule { reason } => Status::not_found(reason.clone()),
        other => Status::invalid_argument(kiln_dist::chain(other)),
    }
}

#[tonic::async_trait]
impl Graph for Service {
    type FetchStream = Chunks;
    type SampleStream = Chunks;
    type ListStream = Chunks;
    type GatherStream = Chunks;

    async fn open(&self, request: Request<OpenRequest>) -> Answer<Opened> {
        let OpenRequest { protocol, partition_hash, .. } = request.into_inner();
        if protocol != PROTOCOL {
            let text = format!(
                "protocol {protocol}, this server speaks {PROTOCOL}: use one version of kiln everywhere"
            );
            return Err(Status::unimplemented(text));
        }
        let part = &self.held.part;
        if !partition_hash.is_empty() && partition_hash != part.partition_hash {
            let text = format!(
                "it holds part {} of another partition, {}, expected {partition_hash}: start it with the part that this \
                 job began with",
                part.index, part.partition_hash
            );
            return Err(Status::aborted(text));
        }
        let lease = Lease { id: self.leases.take(Instant::now()) };
        let lease_ms = self.leases.time().as_millis() as u64;
        Ok(Response::new(Opened { lease: Some(lease), lease_ms, ..self.held.told() }))
    }

    async fn renew(&self, request: Request<Lease>) -> Answer<Nothing> {
        self.renew(request.into_inner().id)?;
        Ok(Response::new(Nothing {}))
    }

    async fn close(&self, request: Request<Lease>) -> Answer<Nothing> {
        self.leases.end(request.into_inner().id, Instant::now());
        Ok(Response::new(Nothing {}))
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let array =
            Array::try_from(request.array).map_err(|_| Status::invalid_argument("an unknown array"))?;
        self.answer(move |held, send| {
            let part = &held.part;
            let bytes: &[u8] = match array {
                Array::NewIds => bytemuck::cast_slice(part.book.new_ids()),
                Array::Labels => bytemuck::cast_slice(part.labels.as_slice()),
                Array::Train => bytemuck::cast_slice(&part.split.train),
                Array::Validation => bytemuck::cast_slice(&part.split.val),
                Array::Test => bytemuck::cast_slice(&part.split.test),
            };
            let _ = bytes.chunks(CHUNK_BYTES).all(|piece| send(Bytes::copy_from_slice(piece)));
            Ok(())
        })
        .await
    }

    async fn sample(&self, request: Request<SampleRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let (rows, rule) = (self.rows(&request.rows, MAX_DSTS)?, request.rule);
        let weights = match Weights::try_from(request.weights) {
            Ok(Weights::None) => EdgeWeights::None,
            Ok(Weights::Stored) => EdgeWeights::Stored,
            Ok(Weights::Scaled) => EdgeWeights::Scaled,
            Err(_) => return Err(Status::invalid_argument("unknown weights")),
        };
        let fanout = request.fanout.map_or(Fanout::All, Fanout::UpTo);
        // Other rules pick no edge twice.
        let n_draws = rows.len() as u64 * u64::from(request.fanout.unwrap_or(0));
        if rule == WITH_REPLACEMENT && MAX_DRAWS < n_draws {
            let text =
                format!("{n_draws} draws in one question, expected at most {MAX_DRAWS}: lower the fanout");
            return Err(Status::invalid_argument(text));
        }
        let draw = Draw { key: RngKey::new(request.key), fanout, weights };
        self.answer(move |held, send| {
            let mut frontier = Frontier::default();
            held.sample(&rows, &rule, draw, &mut Scratch::default(), &mut frontier)?;
            let _ = wire::chunks(wire::of_frontier(&held.edges, &rows, frontier)).all(send);
            Ok(())
        })
        .await
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let rows = self.rows(&request.rows, MAX_DSTS)?;
        self.answer(move |held, send| {
            let _ = wire::chunks(wire::of_lists(&held.edges, &rows)).all(send);
            Ok(())
        })
        .await
    }

    async fn gather(&self, request: Request<GatherRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let rows = self.rows(&request.rows, MAX_ROWS)?;
        self.answer(move |held, send| {
            let features = held.features();
            let row_bytes = features.dim() * features.row_type().bytes();
            for rows in rows.chunks((CHUNK_BYTES / row_bytes).max(1)) {
                let mut values = RowBuf::empty(features.row_type());
                held.gather(rows, &mut values)?;
                if !wire::bytes_of_rows(values).is_some_and(send) {
                    break;
                }
            }
            Ok(())
        })
        .await
    }

    async fn health(&self, _: Request<Nothing>) -> Answer<Healthy> {
        let now = Instant::now();
        Ok(Response::new(Healthy {
            part: self.held.part.index as u32,
            n_clients: self.leases.n_held(now) as u64,
            uptime_ms: now.saturating_duration_since(self.started).as_millis() as u64,
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod tests {
    use kiln_partition::{Method, Origin, Part, PartitionBook, part_folder, write_parts};
    use kiln_rpc::Token;
    use tonic::{Request, Streaming};

    use super::*;
    use crate::proto::GraphClient;
    use crate::wire::bytes_of;
    use crate::{ServeConfig, Server};

    /// A client that has taken none of its answer holds the server's only place, until its time is up.
    #[test]
    fn who_does_not_listen_keeps_nobody_waiting() {
        let data = kiln_data::synthetic::rmat(10, 2, 512, 0).unwrap();
        let book = PartitionBook::from_parts(&vec![0; data.graph.n_nodes()], 1).unwrap();
        let origin = Origin { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
        let root = tempfile::tempdir().unwrap();
        write_parts(&data, &book, &origin, None, root.path().join("parts")).unwrap();
        let part = Part::open(part_folder(root.path().join("parts"), 0)).unwrap();
        let token = Token::new("a-word-of-this-test").unwrap();
        let config = ServeConfig {
            n_threads: 1,
            lease: Duration::from_secs(4),
            ..ServeConfig::new("127.0.0.1:0", token.clone())
        };
        let server = Server::start(Arc::new(part), config).unwrap();
        let address = format!("http://{}", server.address());
        let client = || async {
            let endpoint = tonic::transport::Endpoint::from_shared(address.clone()).unwrap();
            let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
            let mut client = GraphClient::with_interceptor(channel, token.clone());
            let request = OpenRequest { protocol: PROTOCOL, partition_hash: String::new() };
            let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
            // 4 MiB, of which a stream takes 64 KiB before somebody reads, and the server's side some more.
            let rows = bytes_of((0..2048_u32).map(|at| at % 1024).collect::<Vec<_>>());
            client.gather(Request::new(GatherRequest { lease, rows })).await.unwrap().into_inner()
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (answer, unread) = runtime.block_on(async {
            let (unread, answer) = (client().await, client().await);
            let read = async |mut answer: Streaming<Chunk>| {
                let (mut n_bytes, mut is_whole) = (0, false);
                while let Some(Chunk { data }) = answer.message().await.unwrap() {
                    n_bytes += data.len();
                    is_whole = data.is_empty();
                }
                (n_bytes, is_whole)
            };
            let within = Duration::from_secs(60);
            let answer = timeout(within, read(answer)).await.unwrap();
            (answer, timeout(within, read(unread)).await.unwrap())
        });
        assert_eq!(answer, (2048 * 512 * 4, true));
        // What had been sent before comes, and does not look like the whole.
        assert!(unread.0 < answer.0 && !unread.1, "{unread:?}");
    }

    /// A client that listens again after a piece was given up hears of no end.
    #[test]
    fn an_answer_of_which_a_piece_is_missing_does_not_end_as_a_whole_one() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (say, mut said) = mpsc::channel(1);
        let (patience, is_heard) = (Duration::from_millis(20), Cell::new(true));
        let telling = Telling { say, runtime: runtime.handle().clone(), patience, is_heard };
        let piece = |data: &'static [u8]| Ok(Chunk { data: Bytes::from_static(data) });
        assert!(telling.tell(piece(b"first")));
        assert!(!telling.tell(piece(b"second")), "nobody takes it");
        assert_eq!(said.blocking_recv().unwrap().unwrap().data, b"first"[..]);
        // There is room again.
        assert!(!telling.tell(piece(b"third")));
        telling.end(Ok(()));
        assert!(said.blocking_recv().is_none());
    }
}
