use std::sync::Arc;

use bytemuck::Zeroable;
use kiln_feature::{FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::NodeId;
use kiln_partition::{Cache, PartitionRow};

use crate::fetch_stats::count;
use crate::graph::{DistGraph, Owner, PeerRequest};
use crate::hot::{CacheRow, NodeSet};
use crate::peer::{Peer, Question, ReplyEvent};
use crate::proto::GatherRequest;
use crate::sieve::Sieve;
use crate::wire::bytes_of;
use crate::{Error, MAX_ROWS, Result};

/// The target size in bytes of a response with feature rows. A single row above it is requested alone.
const ANSWER_BYTES: usize = 4 << 20;

/// A feature store of a partitioned graph, indexed by nodes of the whole graph. Its rows are bit-identical to those of
/// the whole graph's features.
///
/// Rows of the local partition are read in place, and cached remote rows from the partition's static cache or the
/// dynamic cache ([`DistFeatureStore::with_dynamic_cache`]). All other rows are requested from their servers, from all
/// servers concurrently and each row once per call.
#[derive(Debug)]
pub struct DistFeatureStore {
    graph: Arc<DistGraph>,
    hot: Option<Hot>,
    sieve: Option<Sieve>,
}

/// The static cache: remote rows that the partition stores.
#[derive(Debug)]
struct Hot {
    nodes: NodeSet,
    rows: Arc<dyn FeatureStore>,
}

impl DistFeatureStore {
    /// Creates a store with the static cache of the local partition, if there is one.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if the partition's list of cached rows is damaged.
    pub fn new(graph: Arc<DistGraph>) -> Result<Self> {
        let cache = graph.own().and_then(|held| held.part.cache.clone());
        match cache {
            Some(cache) => Self::with_cache(graph, cache),
            None => Ok(Self::without_cache(graph)),
        }
    }

    /// Creates a store without a static cache.
    pub fn without_cache(graph: Arc<DistGraph>) -> Self {
        Self { graph, hot: None, sieve: None }
    }

    /// Adds a dynamic cache for `n_bytes` of remote rows, with SIEVE eviction. It takes 16 additional bytes per cached
    /// row and 4 per node of the graph. If not even one row fits, there is no dynamic cache.
    #[must_use]
    pub fn with_dynamic_cache(self, n_bytes: usize) -> Self {
        let sieve = Sieve::new(self.n_rows(), self.row_bytes(), n_bytes);
        Self { sieve, ..self }
    }

    /// Returns the memory limit of the caches, in bytes: the index of the static cache and the whole dynamic cache. The
    /// rows of the static cache are mapped from a file and do not count.
    pub fn memory_bytes(&self) -> usize {
        let hot = self.hot.as_ref().map_or(0, |hot| hot.nodes.memory_bytes());
        hot + self.sieve.as_ref().map_or(0, Sieve::memory_bytes)
    }

    fn with_cache(graph: Arc<DistGraph>, cache: Cache) -> Result<Self> {
        let nodes = NodeSet::new(graph.n_nodes(), &cache.ids);
        let fits = cache.features.n_rows() == cache.ids.len() && cache.features.dim() == graph.dim();
        let damaged = || Error::BadParts {
            reason: "the partition's list of cached rows is damaged: partition the data set again".to_owned(),
        };
        let nodes = nodes.filter(|_| fits).ok_or_else(damaged)?;
        Ok(Self { hot: Some(Hot { nodes, rows: cache.features }), ..Self::without_cache(graph) })
    }

    fn row_bytes(&self) -> usize {
        self.dim() * self.dtype().bytes()
    }

    fn gather_all(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        let mut places = Places::of(&self.graph, self.hot.as_ref(), ids)?;
        let kept = self.find_kept(&mut places, ids);
        let rows_at_once = (ANSWER_BYTES / self.row_bytes()).clamp(1, MAX_ROWS);
        let pieces = places.pieces(&self.graph, rows_at_once);
        let mut asked = self.graph.ask(pieces.iter().map(|piece| piece.asking(self.row_bytes())));
        self.gather_own(&places, ids.len(), out)?;
        self.gather_hot(&places, out)?;
        let all = bytes_mut(out).ok_or_else(|| self.unknown())?;
        kept.put(all);
        let mut n_taken = vec![0; pieces.len()];
        while let Some(told) = asked.next()? {
            match told {
                ReplyEvent::Piece { number, start, bytes } => {
                    let rows = pieces[number].put(start, &bytes, self.row_bytes(), all)?;
                    if let Some(sieve) = &self.sieve {
                        let nodes = rows.iter().map(|positions| ids[positions[0].1 as usize]);
                        sieve.keep(nodes.zip(bytes.chunks_exact(self.row_bytes())));
                    }
                    n_taken[number] = start + bytes.len() as u64;
                }
                ReplyEvent::End { number, .. } => pieces[number].check(n_taken[number], self.row_bytes())?,
            }
        }
        let counters = &self.graph.counters;
        count(&counters.own_rows, places.n_own);
        count(&counters.hot_rows, places.hot.len());
        count(&counters.kept_rows, kept.positions.len());
        count(&counters.remote_rows, pieces.iter().map(|piece| piece.rows.len()).sum());
        Ok(())
    }

    /// Returns the requested rows that the dynamic cache contains, and removes them from the rows to fetch.
    fn find_kept(&self, places: &mut Places, ids: &[NodeId]) -> Kept {
        let mut kept = Kept::default();
        let Some(sieve) = &self.sieve else { return kept };
        for wanted in &mut places.there {
            let found = |(_, position): &(PartitionRow, u32), row: &[u8]| {
                kept.positions.push(*position);
                kept.rows.extend_from_slice(row);
            };
            sieve.find(wanted, |(_, position)| ids[*position as usize], found);
        }
        kept
    }

    /// Resizes the output to `n_rows` rows, and fills in the local ones.
    fn gather_own(&self, places: &Places, n_rows: usize, out: &mut FeatureBuffer) -> Result<()> {
        match self.graph.own().filter(|_| 0 < places.n_own) {
            // One gather is faster than many. It writes arbitrary rows for remote nodes, which are overwritten later.
            Some(held) => held.gather(&places.own, out),
            None => fit(out, self.dtype(), n_rows * self.dim()).ok_or_else(|| self.unknown()),
        }
    }

    fn gather_hot(&self, places: &Places, out: &mut FeatureBuffer) -> Result<()> {
        let Some(hot) = self.hot.as_ref().filter(|_| !places.hot.is_empty()) else { return Ok(()) };
        let (row_bytes, mut rows) = (self.row_bytes(), FeatureBuffer::empty(self.dtype()));
        let cached: Vec<CacheRow> = places.hot.iter().map(|(row, _)| *row).collect();
        hot.rows.gather(CacheRow::local_nodes(&cached), &mut rows)?;
        let (from, to) = (bytes_mut(&mut rows), bytes_mut(out));
        let (Some(from), Some(to)) = (from, to) else { return Err(self.unknown()) };
        for (row, (_, position)) in from.chunks_exact(row_bytes).zip(&places.hot) {
            to[*position as usize * row_bytes..][..row_bytes].copy_from_slice(row);
        }
        Ok(())
    }

    fn unknown(&self) -> Error {
        Error::BadParts { reason: format!("features of {} are not supported", self.dtype()) }
    }
}

impl FeatureStore for DistFeatureStore {
    fn dim(&self) -> usize {
        self.graph.dim()
    }

    fn n_rows(&self) -> usize {
        self.graph.n_nodes()
    }

    fn dtype(&self) -> FeatureDType {
        self.graph.dtype()
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        Ok(self.gather_all(ids, out)?)
    }
}

/// Rows from the dynamic cache, and their positions in the output.
#[derive(Default)]
struct Kept {
    rows: Vec<u8>,
    positions: Vec<u32>,
}

impl Kept {
    fn put(&self, all: &mut [u8]) {
        let row_bytes = self.rows.len().checked_div(self.positions.len()).unwrap_or(0).max(1);
        for (row, position) in self.rows.chunks_exact(row_bytes).zip(&self.positions) {
            all[*position as usize * row_bytes..][..row_bytes].copy_from_slice(row);
        }
    }
}

/// The locations of the requested rows. Positions are those of the output.
struct Places {
    /// The row in the local partition for each position; row 0 if the node is remote.
    own: Vec<PartitionRow>,
    n_own: usize,
    /// The requested rows of the static cache and their positions.
    hot: Vec<(CacheRow, u32)>,
    /// The rows to fetch from each partition and their positions, with equal rows next to each other.
    there: Vec<Vec<(PartitionRow, u32)>>,
}

impl Places {
    fn of(graph: &DistGraph, hot: Option<&Hot>, ids: &[NodeId]) -> Result<Self> {
        let book = graph.book();
        let own_part = graph.own().map(|held| held.part.index);
        let mut places = Self {
            own: Vec::with_capacity(ids.len()),
            n_own: 0,
            hot: Vec::new(),
            there: vec![Vec::new(); book.n_parts()],
        };
        // The ids are looked up in a separate loop, because the CPU then overlaps the cache misses.
        let found: Vec<Option<u32>> = ids.iter().map(|node| book.new_id(*node)).collect();
        for ((position, &node), found) in (0..).zip(ids).zip(found) {
            let n_rows = book.n_nodes();
            let place = found.and_then(|new_id| book.place_of(new_id));
            let place = place.ok_or(kiln_feature::Error::NodeOutOfRange { node, n_rows })?;
            if Some(place.part) == own_part {
                places.n_own += 1;
                places.own.push(place.row);
                continue;
            }
            places.own.push(PartitionRow(0));
            match hot.and_then(|hot| hot.nodes.row(node)) {
                Some(row) => places.hot.push((row, position)),
                None => places.there[place.part].push((place.row, position)),
            }
        }
        for (part, wanted) in places.there.iter_mut().enumerate() {
            // Sorting moves equal rows next to each other. A list that is known to have distinct rows is not sorted, so
            // that the output is written sequentially.
            if !are_distinct(wanted, book.n_owned(part)) {
                wanted.sort_unstable();
            }
        }
        Ok(places)
    }

    /// Divides the remote rows into requests of at most `rows_at_once` distinct rows.
    fn pieces<'a>(&'a self, graph: &'a DistGraph, rows_at_once: usize) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        for (part, wanted) in self.there.iter().enumerate() {
            let Owner::Remote(peer) = graph.owner(part) else { continue };
            let distinct = wanted.chunk_by(|a, b| a.0 == b.0).collect::<Vec<_>>();
            pieces.extend(distinct.chunks(rows_at_once).map(|rows| Piece { peer, rows: rows.to_vec() }));
        }
        pieces
    }
}

/// Returns true only if all rows are distinct. Returns false for a short list that does not ascend, even if its rows
/// are distinct, because sorting it takes less time than the check.
fn are_distinct(wanted: &[(PartitionRow, u32)], n_rows: usize) -> bool {
    if wanted.len() < n_rows / 64 {
        return wanted.is_sorted_by(|a, b| a.0 < b.0);
    }
    let mut seen = vec![0_u64; n_rows.div_ceil(64)];
    wanted.iter().all(|(row, _)| {
        let (word, bit) = (&mut seen[row.index() / 64], 1 << (row.index() % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    })
}

/// The rows of one request, each with all its positions.
struct Piece<'a> {
    peer: &'a Arc<Peer>,
    rows: Vec<&'a [(PartitionRow, u32)]>,
}

impl Piece<'_> {
    fn asking(&self, row_bytes: usize) -> PeerRequest {
        let rows: Vec<PartitionRow> = self.rows.iter().map(|positions| positions[0].0).collect();
        let n_bytes = rows.len() * row_bytes;
        let question = Question::Gather(GatherRequest { lease: 0, rows: bytes_of(rows) });
        PeerRequest { peer: Arc::clone(self.peer), question, n_bytes }
    }

    /// Copies the rows of a chunk to their positions in the output. Returns the chunk's rows with their positions, and
    /// [`Error::BadAnswer`] if the chunk does not consist of whole rows of this request.
    fn put(
        &self,
        start: u64,
        bytes: &[u8],
        row_bytes: usize,
        all: &mut [u8],
    ) -> Result<&[&[(PartitionRow, u32)]]> {
        let start = start as usize;
        let is_whole = start.is_multiple_of(row_bytes) && bytes.len().is_multiple_of(row_bytes);
        let rows = self.rows.get(start / row_bytes..(start + bytes.len()) / row_bytes).filter(|_| is_whole);
        let rows = rows.ok_or_else(|| self.bad(start + bytes.len(), row_bytes))?;
        for (row, positions) in bytes.chunks_exact(row_bytes).zip(rows) {
            for (_, position) in *positions {
                all[*position as usize * row_bytes..][..row_bytes].copy_from_slice(row);
            }
        }
        Ok(rows)
    }

    fn check(&self, n_bytes: u64, row_bytes: usize) -> Result<()> {
        match n_bytes as usize == self.rows.len() * row_bytes {
            true => Ok(()),
            false => Err(self.bad(n_bytes as usize, row_bytes)),
        }
    }

    fn bad(&self, n_bytes: usize, row_bytes: usize) -> Error {
        let expected = format!("{} rows of {row_bytes} bytes, each in one chunk", self.rows.len());
        self.peer.bad_answer("feature rows", expected, format!("{n_bytes} bytes"))
    }
}

/// Sets the element type of the output and resizes it to `n_values` values, which the caller overwrites. Returns `None`
/// if the element type is not supported.
fn fit(out: &mut FeatureBuffer, row_type: FeatureDType, n_values: usize) -> Option<()> {
    if out.dtype() != row_type {
        *out = FeatureBuffer::empty(row_type);
    }
    match out {
        FeatureBuffer::F32(values) => resize(values, n_values),
        FeatureBuffer::F16(values) => resize(values, n_values),
        FeatureBuffer::BF16(values) => resize(values, n_values),
        _ => return None,
    }
    Some(())
}

/// Resizes a vector whose values the caller overwrites. A new allocation is zeroed by the system, not value by value.
fn resize<T: Zeroable + Clone>(values: &mut Vec<T>, n: usize) {
    match n <= values.capacity() {
        true => values.resize(n, T::zeroed()),
        false => *values = bytemuck::zeroed_vec(n),
    }
}

/// Returns the bytes of gathered rows, or `None` if the element type is not supported.
fn bytes_mut(rows: &mut FeatureBuffer) -> Option<&mut [u8]> {
    match rows {
        FeatureBuffer::F32(values) => Some(bytemuck::cast_slice_mut(values)),
        FeatureBuffer::F16(values) => Some(bytemuck::cast_slice_mut(values)),
        FeatureBuffer::BF16(values) => Some(bytemuck::cast_slice_mut(values)),
        _ => None,
    }
}
