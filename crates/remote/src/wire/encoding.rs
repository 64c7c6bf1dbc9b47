//! Encoding and decoding of ids, edges and rows, as `proto/graph.proto` specifies.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, pod_collect_to_vec};
use bytes::Bytes;
use kiln_feature::FeatureBuffer;
use kiln_graph::{Csc, EdgeId, NodeId, SharedArray};
use kiln_partition::PartitionRow;
use kiln_sample::{DstTimes, EdgeWeights, Fanout, Frontier, HopRequest, RngKey, TimeLimits};

use crate::edges::Edges;
use crate::wire::limits::{MAX_EDGES, MAX_EXCLUDED};
use crate::wire::proto::{RowTimes, SampleRequest, Weights};
use crate::wire::wanted::{EdgeOfRow, ExcludedEdge, MessageEdges};

/// The largest chunk in bytes, unless a single row is larger. It fits in CPU caches, and is too small for allocators to
/// map and unmap memory for each chunk.
pub(crate) const CHUNK_BYTES: usize = 1 << 16;

/// Returns the values as bytes, without a copy.
pub(crate) fn bytes_of<T: Pod + Send>(values: Vec<T>) -> Bytes {
    Bytes::from_owner(Owner(values))
}

/// Returns gathered rows as bytes, without a copy, or `None` if the element type is not supported.
pub(crate) fn bytes_of_rows(rows: FeatureBuffer) -> Option<Bytes> {
    match rows {
        FeatureBuffer::F32(values) => Some(bytes_of(values)),
        FeatureBuffer::F16(values) => Some(bytes_of(values)),
        FeatureBuffer::BF16(values) => Some(bytes_of(values)),
        _ => None,
    }
}

struct Owner<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Decodes rows. Returns `None` if the last row is incomplete.
pub(crate) fn rows(bytes: &[u8]) -> Option<Vec<PartitionRow>> {
    bytes.len().is_multiple_of(size_of::<PartitionRow>()).then(|| pod_collect_to_vec(bytes))
}

/// Decodes edges and the rows of their destinations. The error is a message if they differ in number, if there are more
/// than [`MAX_EDGES`], or if the last one is incomplete.
pub(crate) fn edges(rows: &[u8], edges: &[u8]) -> Result<Vec<EdgeOfRow>, String> {
    let rows = self::rows(rows).ok_or("rows must have 4 bytes each")?;
    if !edges.len().is_multiple_of(size_of::<EdgeId>()) {
        return Err("edge ids must have 8 bytes each".to_owned());
    }
    let (n_rows, n_edges) = (rows.len(), edges.len() / size_of::<EdgeId>());
    match n_edges {
        _ if n_rows != n_edges => Err(format!("{n_rows} rows for {n_edges} edges, expected one for each")),
        _ if MAX_EDGES < n_edges => {
            Err(format!("{n_edges} edges in one request, expected at most {MAX_EDGES}"))
        }
        _ => Ok(rows.into_iter().zip(pod_collect_to_vec::<u8, EdgeId>(edges)).collect()),
    }
}

/// Encodes a request to sample edges of these rows, which are those of a relation's destinations, without a lease and without
/// times of the rows. `excluded` are the edges of the rows to leave out, and edges that were not known before a time are left out,
/// too.
pub(crate) fn sample_request(
    request: &HopRequest,
    rule: &str,
    relation: usize,
    rows: Bytes,
    excluded: Vec<ExcludedEdge>,
    before: Option<i64>,
) -> SampleRequest {
    let weights = match request.weights {
        EdgeWeights::None => Weights::None,
        EdgeWeights::Stored => Weights::Stored,
        EdgeWeights::Unbiased => Weights::Scaled,
    };
    let fanout = match request.fanout {
        Fanout::All => None,
        Fanout::UpTo(fanout) => Some(fanout),
    };
    let (key, rule) = (request.key.to_u64(), rule.to_owned());
    let excluded = bytes_of(excluded);
    let (weights, edge_types, relation) = (weights.into(), request.edge_types, relation as u32);
    SampleRequest {
        lease: 0,
        rows,
        key,
        rule,
        fanout,
        weights,
        excluded,
        edge_types,
        relation,
        before,
        times: None,
    }
}

/// Encodes the times of rows, and what is known at them.
pub(crate) fn row_times(times: DstTimes<'_>, limits: TimeLimits) -> RowTimes {
    let TimeLimits { includes_equal, window } = limits;
    let times = times.index().iter().map(|index| times.distinct()[*index as usize]);
    RowTimes { times: bytes_of(times.collect::<Vec<i64>>()), includes_equal, window }
}

/// Decodes the times of `n_rows` rows.
///
/// # Errors
/// Returns a message unless there is one for each row.
pub(crate) fn times(times: &RowTimes, n_rows: usize) -> Result<Vec<i64>, String> {
    let n_bytes = times.times.len();
    match n_rows.checked_mul(size_of::<i64>()) == Some(n_bytes) {
        true => Ok(pod_collect_to_vec(&times.times)),
        false => Err(format!("{n_bytes} bytes of times for {n_rows} rows, expected 8 for each row")),
    }
}

/// Decodes the edges over which messages pass.
///
/// # Errors
/// Returns a message if a request has a time for all rows, and times of rows or edges besides.
pub(crate) fn message_edges(before: Option<i64>, has_times: bool) -> Result<MessageEdges, &'static str> {
    match (before, has_times) {
        (None, false) => Ok(MessageEdges::All),
        (None, true) => Ok(MessageEdges::ByTime),
        (Some(before), false) => Ok(MessageEdges::Before(before)),
        (Some(_), true) => {
            Err("one time before which edges are known, and times of rows or edges: request only one of both")
        }
    }
}

/// Decodes the edges to leave out in a request for `n_rows` rows.
///
/// # Errors
/// Returns a message if there are more than [`MAX_EXCLUDED`], if the last one is incomplete, or if a position is out of
/// range.
pub(crate) fn excluded(bytes: &[u8], n_rows: usize) -> Result<Vec<ExcludedEdge>, String> {
    if !bytes.len().is_multiple_of(size_of::<ExcludedEdge>()) {
        return Err("edges to leave out must have 8 bytes each".to_owned());
    }
    let edges: Vec<ExcludedEdge> = pod_collect_to_vec(bytes);
    if MAX_EXCLUDED < edges.len() {
        let n_edges = edges.len();
        return Err(format!("{n_edges} edges to leave out in one request, expected at most {MAX_EXCLUDED}"));
    }
    match edges.iter().find(|[position, _]| n_rows <= *position as usize) {
        Some([position, _]) => {
            Err(format!("an edge to leave out of row {position} of a request for {n_rows} rows"))
        }
        None => Ok(edges),
    }
}

/// Decodes a request to sample edges, without those to leave out. The layer is not sent, because samples do not depend
/// on it.
///
/// # Errors
/// Returns a message if the kind of weights is unknown.
pub(crate) fn hop_request(request: &SampleRequest) -> Result<HopRequest, &'static str> {
    let weights = match Weights::try_from(request.weights) {
        Ok(Weights::None) => EdgeWeights::None,
        Ok(Weights::Stored) => EdgeWeights::Stored,
        Ok(Weights::Scaled) => EdgeWeights::Unbiased,
        Err(_) => return Err("unknown kind of edge weights"),
    };
    let fanout = request.fanout.map_or(Fanout::All, Fanout::UpTo);
    let (key, edge_types) = (RngKey::new(request.key), request.edge_types);
    let time_limits = request
        .times
        .as_ref()
        .map(|times| TimeLimits { includes_equal: times.includes_equal, window: times.window });
    let time_limits = time_limits.unwrap_or_default();
    Ok(HopRequest { key, layer: 0, fanout, weights, edge_types, excluded: None, time_limits })
}

/// Divides arrays into chunks of at most [`CHUNK_BYTES`]. Chunks of longer arrays are copies, so a chunk that waits for
/// a slow client does not keep the whole array in memory.
pub(crate) fn chunks(arrays: impl IntoIterator<Item = Bytes>) -> impl Iterator<Item = Bytes> {
    arrays.into_iter().flat_map(|mut bytes| {
        std::iter::from_fn(move || match bytes.len() {
            0 => None,
            1..=CHUNK_BYTES => Some(std::mem::take(&mut bytes)),
            _ => Some(Bytes::copy_from_slice(&bytes.split_to(CHUNK_BYTES))),
        })
    })
}

/// The sampled edges of a range of rows, in the arrays of the response.
#[derive(Debug, Default)]
pub(crate) struct SampledRange {
    counts: Vec<u32>,
    firsts: Vec<u64>,
    srcs: Vec<NodeId>,
    positions: Vec<u32>,
    weights: Vec<f32>,
    edge_types: Vec<u8>,
}

impl SampledRange {
    /// Appends the sampled edges of further rows.
    pub(crate) fn push(&mut self, edges: &Edges, rows: &[PartitionRow], picked: &Frontier) {
        let Frontier { indptr, srcs, edge_ids, weights, edge_types } = picked;
        for (row, bounds) in rows.iter().zip(indptr.windows(2)) {
            let first = edges.first_edges[row.index()];
            self.counts.push(bounds[1] - bounds[0]);
            self.firsts.push(first);
            let ids = &edge_ids[bounds[0] as usize..bounds[1] as usize];
            self.positions.extend(ids.iter().map(|edge| (edge.0 - first) as u32));
        }
        self.srcs.extend_from_slice(srcs);
        if let Some(weights) = weights {
            self.weights.extend_from_slice(weights);
        }
        if let Some(edge_types) = edge_types {
            self.edge_types.extend_from_slice(edge_types);
        }
    }

    /// Returns the size of the arrays in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        12 * self.counts.len() + 8 * self.srcs.len() + 4 * self.weights.len() + self.edge_types.len()
    }

    /// Encodes the range: the number of its rows as u32, and the arrays.
    pub(crate) fn into_arrays(self) -> [Bytes; 7] {
        let n_rows = self.counts.len() as u32;
        [
            bytes_of(vec![n_rows]),
            bytes_of(self.counts),
            bytes_of(self.firsts),
            bytes_of(self.srcs),
            bytes_of(self.positions),
            bytes_of(self.weights),
            bytes_of(self.edge_types),
        ]
    }
}

/// Decodes the response to a request for edges of `n_dst` nodes, in one or more ranges. The error describes the expected
/// contents.
pub(crate) fn frontier(bytes: &[u8], n_dst: usize, request: &HopRequest) -> Result<Frontier, String> {
    let mut rest = Reader(bytes);
    let weights = (request.weights != EdgeWeights::None).then(Vec::new);
    let edge_types = request.edge_types.then(Vec::new);
    let mut all = Frontier { indptr: vec![0], weights, edge_types, ..Frontier::default() };
    while all.n_dst() < n_dst {
        let n_rows = rest.take::<u32>(1)?[0] as usize;
        let n_missing = n_dst - all.n_dst();
        if !(1..=n_missing).contains(&n_rows) {
            return Err(format!("a range of 1 to {n_missing} rows"));
        }
        rest.append_range(n_rows, &mut all)?;
    }
    rest.end()?;
    Ok(all)
}

/// Encodes the edges of these rows in chunks, which are of this kind: with their positions among all in-edges if later ones may be
/// left out, or with their times if they are ordered by them. `ranges` contains the positions of each row's edges. The edges are copied chunk by chunk
/// while the iterator advances.
pub(crate) fn of_lists<'a>(
    edges: &'a Edges,
    rows: &[PartitionRow],
    ranges: &'a [Range<usize>],
    kind: MessageEdges,
) -> impl Iterator<Item = Bytes> + 'a {
    let graph = &edges.graph;
    let counts: Vec<u32> = ranges.iter().map(|range| range.len() as u32).collect();
    let firsts: Vec<u64> = rows.iter().map(|row| edges.first_edges[row.index()]).collect();
    let weights = graph.weights().into_iter().flat_map(|weights| values_of(ranges, weights));
    let types = graph.edge_types().into_iter().flat_map(|types| values_of(ranges, types));
    let positions = edges.positions.iter().flat_map(|positions| values_of(ranges, positions));
    // A partition that has no later edges has the positions of all edges.
    let all_positions = (matches!(kind, MessageEdges::Before(_)) && edges.positions.is_none())
        .then(|| bytes_of(ranges.iter().flat_map(|range| 0..range.len() as u32).collect::<Vec<u32>>()));
    let times = graph.edge_times().filter(|_| kind == MessageEdges::ByTime);
    let times = times.into_iter().flat_map(|times| values_of(ranges, times.times()));
    let srcs = values_of(ranges, graph.indices());
    chunks([bytes_of(counts), bytes_of(firsts)])
        .chain(srcs)
        .chain(weights)
        .chain(types)
        .chain(positions)
        .chain(chunks(all_positions))
        .chain(times)
}

/// Copies the values at these positions, range by range, in chunks.
fn values_of<'a, T: Pod + Send>(
    ranges: &'a [Range<usize>],
    values: &'a [T],
) -> impl Iterator<Item = Bytes> + 'a {
    let mut n_left: usize = ranges.iter().map(Range::len).sum();
    let (mut ranges, mut range) = (ranges.iter().cloned(), 0..0);
    std::iter::from_fn(move || {
        let n_values = n_left.min(CHUNK_BYTES / size_of::<T>());
        let mut chunk = Vec::with_capacity(n_values);
        while chunk.len() < n_values {
            if range.is_empty() {
                range = ranges.next()?;
            }
            let end = range.end.min(range.start + n_values - chunk.len());
            chunk.extend_from_slice(&values[range.start..end]);
            range.start = end;
        }
        n_left -= n_values;
        (0 < n_values).then(|| bytes_of(chunk))
    })
}

/// The arrays of neighbour lists besides the sources.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListedArrays {
    pub(crate) weights: bool,
    pub(crate) types: bool,
    /// The positions of edges among all in-edges, if later ones were left out.
    pub(crate) positions: bool,
    /// The times from which edges pass messages.
    pub(crate) times: bool,
}

/// Decodes all edges of these nodes, ordered by time if they have times. The error describes the expected contents.
pub(crate) fn lists(bytes: &[u8], nodes: &[NodeId], arrays: ListedArrays) -> Result<Edges, String> {
    let mut rest = Reader(bytes);
    let (indptr, firsts) = rest.ranges(nodes.len())?;
    let n_edges = indptr[nodes.len()] as usize;
    let indptr: Vec<u64> = indptr.into_iter().map(u64::from).collect();
    let indices: Vec<NodeId> = rest.take(n_edges)?;
    let weights = arrays.weights.then(|| rest.take::<f32>(n_edges)).transpose()?;
    let types = arrays.types.then(|| rest.take::<u8>(n_edges)).transpose()?;
    let positions = arrays.positions.then(|| rest.take::<u32>(n_edges)).transpose()?;
    let times = arrays.times.then(|| rest.take::<i64>(n_edges)).transpose()?;
    rest.end()?;
    let told = |error: kiln_graph::Error| error.to_string();
    let mut graph = Csc::new(indptr.into(), indices.into()).map_err(told)?;
    if let Some(weights) = weights {
        graph = graph.with_weights(weights.into()).map_err(told)?;
    }
    if let Some(types) = types {
        graph = graph.with_edge_types(types.into()).map_err(told)?;
    }
    if let Some(times) = times {
        graph = graph.with_edge_times(times).map_err(told)?;
    }
    Ok(Edges {
        graph: Arc::new(graph),
        nodes: SharedArray::from(nodes.to_vec()),
        first_edges: firsts.into(),
        positions: positions.map(Arc::from),
    })
}

/// The expected contents, in the error for a response with too many edges for an index of 32 bits.
const TOO_MANY: &str = "at most 2^32 - 1 edges";

/// Appends values to `all`. If `all` is empty, they are moved instead of copied.
fn append<T: Clone>(all: &mut Vec<T>, values: Vec<T>) {
    match all.is_empty() {
        true => *all = values,
        false => all.extend_from_slice(&values),
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Reads `n` values.
    fn take<T: Pod>(&mut self, n: usize) -> Result<Vec<T>, String> {
        let n_bytes = n.saturating_mul(size_of::<T>());
        let short = || format!("{n_bytes} bytes where only {} are left", self.0.len());
        let (values, rest) = self.0.split_at_checked(n_bytes).ok_or_else(short)?;
        self.0 = rest;
        Ok(pod_collect_to_vec(values))
    }

    /// Reads a range of `n_rows` rows and appends its edges.
    fn append_range(&mut self, n_rows: usize, all: &mut Frontier) -> Result<(), String> {
        let (indptr, firsts) = self.ranges(n_rows)?;
        let n_edges = indptr[n_rows] as usize;
        append(&mut all.srcs, self.take(n_edges)?);
        let positions: Vec<u32> = self.take(n_edges)?;
        if let Some(weights) = &mut all.weights {
            append(weights, self.take(n_edges)?);
        }
        if let Some(edge_types) = &mut all.edge_types {
            append(edge_types, self.take(n_edges)?);
        }
        all.edge_ids.reserve(n_edges);
        for (bounds, first) in indptr.windows(2).zip(firsts) {
            let picked = &positions[bounds[0] as usize..bounds[1] as usize];
            let ids = picked.iter().map(|position| EdgeId(first.wrapping_add(u64::from(*position))));
            all.edge_ids.extend(ids);
        }
        let start = all.indptr[all.indptr.len() - 1];
        for end in &indptr[1..] {
            all.indptr.push(start.checked_add(*end).ok_or(TOO_MANY)?);
        }
        Ok(())
    }

    /// Reads the number of edges and the first edge of each node. Returns the prefix sums of the numbers,
    /// `[n_nodes + 1]`, and the ids of the first edges in the whole graph.
    fn ranges(&mut self, n_nodes: usize) -> Result<(Vec<u32>, Vec<u64>), String> {
        let counts: Vec<u32> = self.take(n_nodes)?;
        let mut indptr = Vec::with_capacity(n_nodes + 1);
        indptr.push(0_u32);
        for count in counts {
            let end = indptr[indptr.len() - 1].checked_add(count);
            indptr.push(end.ok_or(TOO_MANY)?);
        }
        Ok((indptr, self.take(n_nodes)?))
    }

    fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{} bytes fewer", self.0.len())) }
    }
}

#[cfg(test)]
mod tests;
