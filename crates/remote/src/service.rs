use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kiln_feature::FeatureBuffer;
use kiln_graph::EdgeId;
use kiln_partition::PartitionRow;
use kiln_sample::Rule;
use tonic::{Request, Response, Status};

use crate::leases::Leases;
use crate::local_part::LocalPart;
use crate::proto::{
    Array, FetchRequest, GatherEdgesRequest, GatherRequest, Graph, Healthy, Lease, ListRequest, Nothing,
    OpenRequest, Opened, SampleRequest,
};
use crate::ranges::{row_bytes, send_samples};
use crate::respond::{Answer, Chunks, Responder, ResponseSender, refusal};
use crate::row_format::RowFormat;
use crate::wire::{self, CHUNK_BYTES};
use crate::{MAX_DSTS, MAX_ROWS, PROTOCOL};

/// The maximum number of draws with replacement for one request.
const MAX_DRAWS: u64 = 1 << 26;

/// The graph service of one partition. The only state that it keeps between requests is its clients' leases.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) held: Arc<LocalPart>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) started: Instant,
    pub(crate) responder: Responder,
    /// The memory limit of one response, in bytes.
    pub(crate) response_bytes: usize,
}

impl Service {
    fn renew(&self, lease: u64) -> Result<(), Status> {
        match self.leases.renew(lease, Instant::now()) {
            true => Ok(()),
            // Clients that receive this status code open a new lease.
            false => Err(Status::failed_precondition("unknown lease")),
        }
    }

    /// Decodes the rows of a request. Checks that there are at most `most`, and that the partition has them.
    fn rows(&self, bytes: &[u8], most: usize) -> Result<Vec<PartitionRow>, Status> {
        let rows =
            wire::rows(bytes).ok_or_else(|| Status::invalid_argument("rows must have 4 bytes each"))?;
        if most < rows.len() {
            let text = format!("{} rows in one request, expected at most {most}", rows.len());
            return Err(Status::invalid_argument(text));
        }
        self.held.check(&rows).map_err(Status::invalid_argument)?;
        Ok(rows)
    }

    /// Decodes the rows of a request for edges. Rejects duplicates, because the response would contain a row's edges
    /// once for each time that the row is listed, which for a hub would take much memory.
    fn distinct_rows(&self, bytes: &[u8]) -> Result<Vec<PartitionRow>, Status> {
        let rows = self.rows(bytes, MAX_DSTS)?;
        let mut sorted = rows.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let text = format!("duplicate row {} in one request: list each row once", pair[0].0);
                Err(Status::invalid_argument(text))
            }
            None => Ok(rows),
        }
    }
}

#[tonic::async_trait]
impl Graph for Service {
    type FetchStream = Chunks;
    type SampleStream = Chunks;
    type ListStream = Chunks;
    type GatherStream = Chunks;
    type GatherEdgesStream = Chunks;

    async fn open(&self, request: Request<OpenRequest>) -> Answer<Opened> {
        let OpenRequest { protocol, partition_hash, .. } = request.into_inner();
        if protocol != PROTOCOL {
            let text = format!(
                "protocol version {protocol}, expected {PROTOCOL}: use the same version of kiln for clients and servers"
            );
            return Err(Status::unimplemented(text));
        }
        let part = &self.held.part;
        if !partition_hash.is_empty() && partition_hash != part.partition_hash {
            let text = format!(
                "it holds partition {} of another partitioning, {}, expected {partition_hash}: restart it with the \
                 partition of this job",
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
        let array = Array::try_from(request.array).map_err(|_| Status::invalid_argument("unknown array"))?;
        self.responder.respond(0, move |held, response| {
            let part = &held.part;
            let bytes: &[u8] = match array {
                Array::NewIds => bytemuck::cast_slice(part.book.new_ids()),
                Array::Labels => bytemuck::cast_slice(part.labels.as_slice()),
                Array::Train => bytemuck::cast_slice(&part.split.train),
                Array::Validation => bytemuck::cast_slice(&part.split.val),
                Array::Test => bytemuck::cast_slice(&part.split.test),
            };
            let _ = bytes.chunks(CHUNK_BYTES).all(|chunk| response.send(Bytes::copy_from_slice(chunk)));
            Ok(())
        })
    }

    async fn sample(&self, request: Request<SampleRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let rows = self.distinct_rows(&request.rows)?;
        let rule = self.held.rules.get(&request.rule).map_err(|error| refusal(&error))?.clone();
        let hop = wire::hop_request(&request).map_err(Status::invalid_argument)?;
        let excluded = wire::excluded(&request.excluded, rows.len()).map_err(Status::invalid_argument)?;
        // Other rules select each edge at most once, so their samples are limited by the degrees.
        let is_repeated = matches!(rule, Rule::UniformWithReplacement);
        let n_draws = rows.len() as u64 * u64::from(request.fanout.unwrap_or(0));
        if is_repeated && MAX_DRAWS < n_draws {
            let text =
                format!("{n_draws} draws in one request, expected at most {MAX_DRAWS}: lower the fanout");
            return Err(Status::invalid_argument(text));
        }
        let row_bytes = row_bytes(request.fanout.unwrap_or(0) as usize);
        if is_repeated && self.response_bytes < row_bytes {
            let text = format!(
                "{row_bytes} bytes for the draws of one row, expected at most {}: lower the fanout",
                self.response_bytes
            );
            return Err(Status::invalid_argument(text));
        }
        let response_bytes = self.response_bytes;
        let request_bytes = request.rows.len() + request.excluded.len();
        self.responder.respond(request_bytes, move |held, response| {
            let hop = hop.excluding(held.edges.excluded(&rows, &excluded));
            send_samples(held, &rows, &rule, &hop, response_bytes, response)
        })
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let rows = self.distinct_rows(&request.rows)?;
        self.responder.respond(request.rows.len(), move |held, response| {
            let ranges = held.edges.ranges(&rows)?;
            let _ = wire::of_lists(&held.edges, &rows, &ranges).all(|chunk| response.send(chunk));
            Ok(())
        })
    }

    async fn gather(&self, request: Request<GatherRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let rows = self.rows(&request.rows, MAX_ROWS)?;
        self.responder.respond(request.rows.len(), move |held, response| {
            let features = held.features();
            let format = RowFormat { dim: features.dim(), dtype: features.dtype() };
            send_rows(&rows, format, response, |rows, out| held.gather(rows, out))
        })
    }

    async fn gather_edges(&self, request: Request<GatherEdgesRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let edges = wire::edges(&request.rows, &request.edges).map_err(Status::invalid_argument)?;
        self.responder.respond(request.rows.len() + request.edges.len(), move |held, response| {
            let features = held.edge_features()?;
            let positions = edges.iter().map(|&(row, edge)| held.part.edge_position(row, edge));
            let positions: Vec<EdgeId> = positions.collect::<std::result::Result<_, _>>()?;
            let format = RowFormat { dim: features.dim(), dtype: features.dtype() };
            send_rows(&positions, format, response, |rows, out| Ok(features.gather(rows, out)?))
        })
    }

    async fn health(&self, _: Request<Nothing>) -> Answer<Healthy> {
        let now = Instant::now();
        Ok(Response::new(Healthy {
            part: self.held.part.index as u32,
            n_clients: self.leases.n_held(now) as u64,
            uptime_ms: now.saturating_duration_since(self.started).as_millis() as u64,
            oldest_request_ms: self.responder.oldest_request(now).map(|age| age.as_millis() as u64),
        }))
    }
}

/// Gathers rows and sends them in chunks of whole rows, until the client has disconnected.
fn send_rows<R>(
    rows: &[R],
    format: RowFormat,
    response: &ResponseSender,
    gather: impl Fn(&[R], &mut FeatureBuffer) -> crate::Result<()>,
) -> crate::Result<()> {
    for rows in rows.chunks((CHUNK_BYTES / format.row_bytes()).max(1)) {
        if !response.is_open() {
            break;
        }
        let mut values = FeatureBuffer::empty(format.dtype);
        gather(rows, &mut values)?;
        if !wire::bytes_of_rows(values).is_some_and(|chunk| response.send(chunk)) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use kiln_comm::rpc::Token;
    use kiln_feature::EdgeFeatures;
    use tokio::time::timeout;
    use tonic::{Request, Streaming};

    use super::*;
    use crate::local_part::testing::only_part;
    use crate::proto::{Chunk, GraphClient};
    use crate::wire::bytes_of;
    use crate::{MAX_EDGES, ServeConfig, Server};

    /// A client that does not read its response occupies the server's only thread until the timeout.
    #[test]
    fn clients_that_do_not_read_release_their_thread_after_the_timeout() {
        let part = only_part(&kiln_data::synthetic::rmat(10, 2, 512, 0).unwrap());
        let token = Token::new("a-word-of-this-test").unwrap();
        let config = ServeConfig {
            n_threads: 1,
            lease: Duration::from_secs(4),
            ..ServeConfig::new("127.0.0.1:0", token.clone())
        };
        let server = Server::start(part, config).unwrap();
        let address = format!("http://{}", server.address());
        let client = || async {
            let endpoint = tonic::transport::Endpoint::from_shared(address.clone()).unwrap();
            let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
            let mut client = GraphClient::with_interceptor(channel, token.clone());
            let request = OpenRequest { protocol: PROTOCOL, partition_hash: String::new() };
            let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
            // The response has 4 MiB. The window of the stream (64 KiB) and the server's buffer hold less than that
            // until the client reads.
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
        // The chunks that were sent before the timeout arrive, but do not look like a complete response.
        assert!(unread.0 < answer.0 && !unread.1, "{unread:?}");
    }

    /// The thread that waits for the client outlives the server's runtime. It must not panic although the runtime's
    /// timers have ended, because a panic in any thread of a rank ends the job.
    #[test]
    fn dropping_a_server_while_a_response_waits_does_not_panic() {
        static N_PANICS: AtomicUsize = AtomicUsize::new(0);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some("kiln-serve") {
                N_PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
        let part = only_part(&kiln_data::synthetic::rmat(10, 2, 512, 0).unwrap());
        let token = Token::new("a-word-of-this-test").unwrap();
        for _ in 0..4 {
            let server =
                Server::start(Arc::clone(&part), ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
            let address = format!("http://{}", server.address());
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let unread = runtime.block_on(async {
                let endpoint = tonic::transport::Endpoint::from_shared(address).unwrap();
                let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
                let mut client = GraphClient::with_interceptor(channel, token.clone());
                let request = OpenRequest { protocol: PROTOCOL, partition_hash: String::new() };
                let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
                // The response is larger than the buffers, so it waits for the client.
                let rows = bytes_of((0..2048_u32).map(|at| at % 1024).collect::<Vec<_>>());
                client.gather(Request::new(GatherRequest { lease, rows })).await.unwrap().into_inner()
            });
            // During this pause, the server computes the response and starts to wait for the client.
            std::thread::sleep(Duration::from_millis(200));
            drop(server);
            std::thread::sleep(Duration::from_millis(200));
            drop((unread, runtime));
        }
        assert_eq!(N_PANICS.load(Ordering::SeqCst), 0);
    }

    /// The response to a request of 64 KiB that lists one hub 16,384 times would contain the hub's edges 16,384 times.
    #[test]
    fn rejects_requests_with_duplicate_rows() {
        let part = only_part(&kiln_data::synthetic::rmat(10, 2, 4, 0).unwrap());
        let token = Token::new("a-word-of-this-test").unwrap();
        let server = Server::start(part, ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
        let address = format!("http://{}", server.address());
        let rows = bytes_of([vec![7_u32, 3], vec![0; MAX_DSTS - 2]].concat());
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
            let mut client = GraphClient::with_interceptor(channel, token.clone());
            let request = OpenRequest { protocol: PROTOCOL, partition_hash: String::new() };
            let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
            let listed = client.list(ListRequest { lease, rows: rows.clone() }).await.unwrap_err();
            let rule = "uniform".to_owned();
            let request = SampleRequest { lease, rows, rule, ..SampleRequest::default() };
            let sampled = client.sample(request).await.unwrap_err();
            for status in [listed, sampled] {
                assert_eq!(status.message(), "duplicate row 0 in one request: list each row once");
            }
        });
    }

    #[test]
    fn rejects_invalid_requests_for_rows_of_edges() {
        let data = kiln_data::synthetic::ring(10).unwrap();
        let n_edges = data.graph.n_edges();
        let edge_features = EdgeFeatures::new(vec![0.0; n_edges as usize], 1).unwrap();
        let with_rows = kiln_data::Dataset { edge_features: Some(edge_features), ..data.clone() };
        let too_many = vec![0_u64; MAX_EDGES + 1];
        let rows = |n_rows: usize| bytes_of(vec![0_u32; n_rows]);
        for (data, rows, edges, expected) in [
            (&with_rows, rows(1), bytes_of(vec![0_u8; 9]), "edge ids must have 8 bytes each"),
            (&with_rows, bytes_of(vec![0_u8; 5]), bytes_of(vec![0_u64]), "rows must have 4 bytes each"),
            (&with_rows, rows(2), bytes_of(vec![0_u64]), "2 rows for 1 edges, expected one for each"),
            (
                &with_rows,
                rows(too_many.len()),
                bytes_of(too_many),
                "131073 edges in one request, expected at most 131072",
            ),
            (&with_rows, rows(2), bytes_of(vec![0, n_edges]), "row 0 of partition 0 has no edge 20"),
            (
                &with_rows,
                bytes_of(vec![10_u32]),
                bytes_of(vec![0_u64]),
                "row 10 of partition 0 has no edge 0",
            ),
            (&data, rows(1), bytes_of(vec![0_u64]), "the partitions have no edge features"),
        ] {
            let token = Token::new("a-word-of-this-test").unwrap();
            let config = ServeConfig::new("127.0.0.1:0", token.clone());
            let server = Server::start(only_part(data), config).unwrap();
            let address = format!("http://{}", server.address());
            let status = tokio::runtime::Runtime::new().unwrap().block_on(async {
                let channel =
                    tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
                let mut client = GraphClient::with_interceptor(channel, token);
                let request = OpenRequest { protocol: PROTOCOL, partition_hash: String::new() };
                let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
                match client.gather_edges(GatherEdgesRequest { lease, rows, edges }).await {
                    Ok(mut response) => response.get_mut().message().await.unwrap_err(),
                    Err(status) => status,
                }
            });
            assert!(status.message().contains(expected), "{status}");
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
    }
}
