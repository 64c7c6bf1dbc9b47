use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kiln_feature::{FeatureBuffer, Targets};
use kiln_graph::{EdgeColumns, EdgeId};
use kiln_partition::PartitionRow;
use kiln_sample::Rule;
use tonic::{Request, Response, Status};

use crate::local_part::LocalPart;
use crate::server::leases::Leases;
use crate::server::ranges::{SampledRows, row_bytes, send_samples};
use crate::server::respond::{Answer, Asked, Chunks, Responder, ResponseSender, refusal};
use crate::wire::encoding::{self, CHUNK_BYTES};
use crate::wire::limits::{MAX_DSTS, MAX_ROWS, PROTOCOL};
use crate::wire::proto::{
    Array, FetchRequest, GatherEdgesRequest, GatherRequest, Graph, Healthy, Lease, ListRequest, Nothing,
    OpenRequest, Opened, RowTimes, SampleRequest,
};
use crate::wire::row_format::RowFormat;
use crate::wire::wanted::ExcludedEdge;
use crate::{ContentError, Error};

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

    /// Decodes the rows of a request. Checks that there are at most `most`, and that they are below `n_rows`.
    fn rows(&self, bytes: &[u8], most: usize, n_rows: usize) -> Result<Vec<PartitionRow>, Status> {
        let rows =
            encoding::rows(bytes).ok_or_else(|| Status::invalid_argument("rows must have 4 bytes each"))?;
        if most < rows.len() {
            let text = format!("{} rows in one request, expected at most {most}", rows.len());
            return Err(Status::invalid_argument(text));
        }
        self.held.check(&rows, n_rows).map_err(Status::invalid_argument)?;
        Ok(rows)
    }

    /// Decodes the rows of a request for edges of a relation, and their times if they have some. Rejects duplicates, because the
    /// response would contain a row's edges once for each time that the row is listed, which for a hub would take much memory.
    fn distinct_rows(
        &self,
        bytes: &[u8],
        relation: u32,
        times: Option<&RowTimes>,
    ) -> Result<SampledRows, Status> {
        let edges = self.held.edges(relation as usize).map_err(|error| refusal(&error))?;
        let rows = self.rows(bytes, MAX_DSTS, edges.nodes.len())?;
        let times = times.map(|times| encoding::times(times, rows.len()));
        let times = times.transpose().map_err(Status::invalid_argument)?;
        let duplicate = match &times {
            None => duplicate_of(rows.clone()).map(|row| format!("duplicate row {} in one request", row.0)),
            Some(times) => duplicate_of(rows.iter().zip(times).collect())
                .map(|(row, time)| format!("duplicate row {} at time {time} in one request", row.0)),
        };
        match duplicate {
            Some(duplicate) => Err(Status::invalid_argument(format!("{duplicate}: list each row once"))),
            None => Ok(SampledRows { rows, times }),
        }
    }
}

/// Returns the number of edges to leave out, summed over the rows: a row leaves out those of its node.
fn excluded_of_rows(rows: &[PartitionRow], excluded: &[ExcludedEdge]) -> u64 {
    let mut of_nodes: HashMap<PartitionRow, u64> = HashMap::new();
    for [position, _] in excluded {
        *of_nodes.entry(rows[*position as usize]).or_default() += 1;
    }
    rows.iter().filter_map(|row| of_nodes.get(row)).sum()
}

/// Returns a value that occurs more than once.
fn duplicate_of<T: Ord>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    let position = values.windows(2).position(|pair| pair[0] == pair[1])?;
    Some(values.swap_remove(position))
}

#[tonic::async_trait]
impl Graph for Service {
    type FetchStream = Chunks;
    type SampleStream = Chunks;
    type ListStream = Chunks;
    type GatherStream = Chunks;
    type GatherEdgesStream = Chunks;

    async fn open(&self, request: Request<OpenRequest>) -> Answer<Opened> {
        let OpenRequest { protocol, partition_hash } = request.into_inner();
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
        Ok(Response::new(Opened { lease: Some(lease), lease_ms, ..self.held.describe() }))
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
        self.responder.respond(copy_of(request.lease, 0), move |held, response| {
            let targets = || held.part.targets.as_ref().ok_or(Error::Content(ContentError::NoTargets));
            let bytes: &[u8] = match array {
                Array::NewIds => bytemuck::cast_slice(held.book(request.node_type as usize)?.new_ids()),
                Array::Targets => value_bytes(&targets()?.values),
                Array::Train => bytemuck::cast_slice(&targets()?.split.train),
                Array::Validation => bytemuck::cast_slice(&targets()?.split.val),
                Array::Test => bytemuck::cast_slice(&targets()?.split.test),
                Array::Keys => held.keys(request.node_type as usize)?,
                Array::Times => bytemuck::cast_slice(held.node_times(request.node_type as usize)?),
            };
            let _ = bytes.chunks(CHUNK_BYTES).all(|chunk| response.send(Bytes::copy_from_slice(chunk)));
            Ok(())
        })
    }

    async fn sample(&self, request: Request<SampleRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let times = request.times.as_ref();
        let message_edges = encoding::message_edges(request.before, times.is_some());
        let message_edges = message_edges.map_err(Status::invalid_argument)?;
        let rows = self.distinct_rows(&request.rows, request.relation, times)?;
        let n_rows = rows.rows.len();
        let rule = self.held.rules.get(&request.rule).map_err(|error| refusal(&error))?.clone();
        let hop = encoding::hop_request(&request).map_err(Status::invalid_argument)?;
        let excluded = encoding::excluded(&request.excluded, n_rows).map_err(Status::invalid_argument)?;
        // Other rules select each edge at most once, so their samples are limited by the degrees.
        let is_repeated = matches!(rule, Rule::UniformWithReplacement);
        let n_draws = n_rows as u64 * u64::from(request.fanout.unwrap_or(0));
        if is_repeated && MAX_DRAWS < n_draws {
            let text =
                format!("{n_draws} draws in one request, expected at most {MAX_DRAWS}: lower the fanout");
            return Err(Status::invalid_argument(text));
        }
        // Each row searches its excluded edges anew, also those of one node at several times.
        let n_searches = excluded_of_rows(&rows.rows, &excluded);
        if times.is_some() && MAX_DRAWS < n_searches {
            let text = format!(
                "{n_searches} excluded edges of rows with times in one request, expected at most {MAX_DRAWS}: request fewer rows"
            );
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
        let n_bytes =
            request.rows.len() + request.excluded.len() + times.map_or(0, |times| times.times.len());
        let asked = Asked { client: request.lease, n_bytes, is_sample: true };
        self.responder.respond(asked, move |held, response| {
            let edges = held.message_edges(request.relation as usize, message_edges)?;
            let hop = hop.excluding(edges.excluded(&rows.rows, &excluded));
            send_samples(&edges, &rows, &rule, &hop, response_bytes, response)
        })
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let message_edges = encoding::message_edges(request.before, request.times);
        let message_edges = message_edges.map_err(Status::invalid_argument)?;
        let rows = self.distinct_rows(&request.rows, request.relation, None)?.rows;
        self.responder.respond(copy_of(request.lease, request.rows.len()), move |held, response| {
            let edges = held.message_edges(request.relation as usize, message_edges)?;
            let ranges = edges.ranges(&rows)?;
            let _ =
                encoding::of_lists(&edges, &rows, &ranges, message_edges).all(|chunk| response.send(chunk));
            Ok(())
        })
    }

    async fn gather(&self, request: Request<GatherRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let node_type = request.node_type as usize;
        let features = self.held.features(node_type).map_err(|error| refusal(&error))?;
        let format = RowFormat { dim: features.dim(), dtype: features.dtype() };
        let rows = self.rows(&request.rows, MAX_ROWS, features.n_rows())?;
        self.responder.respond(copy_of(request.lease, request.rows.len()), move |held, response| {
            send_rows(&rows, format, response, |rows, out| held.gather(node_type, rows, out))
        })
    }

    async fn gather_edges(&self, request: Request<GatherEdgesRequest>) -> Answer<Chunks> {
        let request = request.into_inner();
        self.renew(request.lease)?;
        let relation = request.relation as usize;
        if !EdgeColumns::is_name(&request.column) {
            return Err(Status::invalid_argument("the name of the edge column is not allowed"));
        }
        let edges = encoding::edges(&request.rows, &request.edges).map_err(Status::invalid_argument)?;
        let asked = copy_of(request.lease, request.rows.len() + request.edges.len());
        self.responder.respond(asked, move |held, response| {
            let features = held.edge_column(relation, &request.column)?;
            let positions = edges.iter().map(|&(row, edge)| held.part.edge_position(relation, row, edge));
            let positions: Vec<EdgeId> = positions.collect::<kiln_partition::Result<_>>()?;
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

/// Returns a request of a client for what is copied while it is sent.
fn copy_of(client: u64, n_bytes: usize) -> Asked {
    Asked { client, n_bytes, is_sample: false }
}

/// Returns the bytes of the classes or target values.
fn value_bytes(targets: &Targets) -> &[u8] {
    match targets {
        Targets::Classes(labels) => bytemuck::cast_slice(labels.as_slice()),
        Targets::Values(values) => match values.as_labels() {
            Some(labels) => labels,
            None => bytemuck::cast_slice(values.as_numbers().unwrap_or_default()),
        },
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
        if !encoding::bytes_of_rows(values).is_some_and(|chunk| response.send(chunk)) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod tests;
