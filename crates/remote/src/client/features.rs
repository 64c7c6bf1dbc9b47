use std::sync::Arc;

use kiln_feature::{FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::NodeId;
use kiln_partition::{PartitionBook, PartitionRow};

use crate::cache::hot::{CacheRow, NodeSet};
use crate::cache::sieve::Sieve;
use crate::client::fetch_stats::count;
use crate::client::graph::DistGraph;
use crate::client::question::Question;
use crate::client::row_requests::RowRequests;
use crate::wire::encoding::bytes_of;
use crate::wire::limits::MAX_ROWS;
use crate::wire::proto::GatherRequest;
use crate::wire::row_format::RowFormat;
use crate::{ContentError, Error, Result};

/// A feature store of a partitioned graph, indexed by nodes of the whole graph. Its rows are bit-identical to those of
/// the whole graph's features. A store of a heterogeneous graph ([`DistFeatureStore::of_type`]) has the features of one
/// node type, indexed by positions in the type.
///
/// Rows of the local partition are read in place, and cached remote rows from the partition's static cache or the
/// dynamic cache ([`DistFeatureStore::with_dynamic_cache`]). All other rows are requested from their servers, from all
/// servers concurrently and each row once per call.
#[derive(Debug)]
pub struct DistFeatureStore {
    graph: Arc<DistGraph>,
    node_type: usize,
    format: RowFormat,
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
    /// Returns [`Error::BadParts`] if the partition's list of cached rows is damaged, and [`ContentError::Heterogeneous`] for a
    /// heterogeneous graph.
    pub fn new(graph: Arc<DistGraph>) -> Result<Self> {
        match graph.is_heterogeneous() {
            true => Err(Error::Content(ContentError::Heterogeneous { instead: "DistFeatureStore::of_type" })),
            false => Self::of_type(graph, 0),
        }
    }

    /// Creates a store of the features of one node type, whose rows count from 0 within the type, with the static cache of
    /// the local partition, if there is one.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if the partition's list of cached rows is damaged, [`ContentError::NoSuchPosition`] if
    /// there is no such type, and [`ContentError::NoFeaturesOfType`] if it has no features.
    pub fn of_type(graph: Arc<DistGraph>, node_type: usize) -> Result<Self> {
        Self::without_cache(graph, node_type)?.with_static_cache()
    }

    /// Creates a store like [`DistFeatureStore::of_type`] without the static cache, which is not read. The features of a
    /// homogeneous graph are those of type 0.
    ///
    /// # Errors
    /// Returns [`Error::Content`] if there is no such type, or if it has no features.
    pub fn without_cache(graph: Arc<DistGraph>, node_type: usize) -> Result<Self> {
        let format = graph.row_format(node_type)?;
        Ok(Self { graph, node_type, format, hot: None, sieve: None })
    }

    /// Adds the static cache of the local partition, if there is one.
    fn with_static_cache(self) -> Result<Self> {
        let cache = self.graph.own().and_then(|held| held.cache(self.node_type).cloned());
        let Some(cache) = cache else { return Ok(self) };
        let nodes = NodeSet::new(self.n_rows(), &cache.ids);
        let rows = &cache.features;
        let fits = rows.n_rows() == cache.ids.len()
            && (rows.dim(), rows.dtype()) == (FeatureStore::dim(&self), FeatureStore::dtype(&self));
        let damaged = || Error::BadParts {
            reason: "the partition's list of cached rows is damaged: partition the data set again".to_owned(),
        };
        let nodes = nodes.filter(|_| fits).ok_or_else(damaged)?;
        Ok(Self { hot: Some(Hot { nodes, rows: cache.features }), ..self })
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

    fn book(&self) -> &PartitionBook {
        self.graph.books().of_type(self.node_type)
    }

    /// Returns the size of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.format.row_bytes()
    }

    fn gather_all(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        let own_part = self.graph.own().map(|held| held.part.index);
        let mut places = Places::of(self.book(), own_part, self.hot.as_ref(), ids)?;
        let kept = self.find_kept(&mut places, ids);
        let requests =
            RowRequests::new("feature rows", &self.graph, &places.there, self.row_bytes(), MAX_ROWS);
        let node_type = self.node_type as u32;
        let question = |rows| Question::Gather(GatherRequest { lease: 0, rows: bytes_of(rows), node_type });
        let asked = requests.send(question);
        self.gather_own(&places, ids.len(), out)?;
        self.gather_hot(&places, out)?;
        let all = out.as_bytes_mut();
        kept.put(all);
        requests.receive(asked, all, |rows, bytes| {
            if let Some(sieve) = &self.sieve {
                let nodes = rows.iter().map(|positions| ids[positions[0].1 as usize]);
                sieve.keep(nodes.zip(bytes.chunks_exact(self.row_bytes())));
            }
        })?;
        let counters = &self.graph.counters;
        count(&counters.own_rows, places.n_own);
        count(&counters.hot_rows, places.hot.len());
        count(&counters.kept_rows, kept.positions.len());
        count(&counters.remote_rows, requests.n_rows());
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
            Some(held) => held.gather(self.node_type, &places.own, out),
            None => {
                out.resize(self.format.dtype, n_rows * self.format.dim);
                Ok(())
            }
        }
    }

    fn gather_hot(&self, places: &Places, out: &mut FeatureBuffer) -> Result<()> {
        let Some(hot) = self.hot.as_ref().filter(|_| !places.hot.is_empty()) else { return Ok(()) };
        let (row_bytes, mut rows) = (self.row_bytes(), FeatureBuffer::empty(self.dtype()));
        let cached: Vec<CacheRow> = places.hot.iter().map(|(row, _)| *row).collect();
        hot.rows.gather(CacheRow::local_nodes(&cached), &mut rows)?;
        let (from, to) = (rows.as_bytes_mut(), out.as_bytes_mut());
        for (row, (_, position)) in from.chunks_exact(row_bytes).zip(&places.hot) {
            to[*position as usize * row_bytes..][..row_bytes].copy_from_slice(row);
        }
        Ok(())
    }
}

impl FeatureStore for DistFeatureStore {
    fn dim(&self) -> usize {
        self.format.dim
    }

    fn n_rows(&self) -> usize {
        self.book().n_nodes()
    }

    fn dtype(&self) -> FeatureDType {
        self.format.dtype
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
    fn of(book: &PartitionBook, own_part: Option<usize>, hot: Option<&Hot>, ids: &[NodeId]) -> Result<Self> {
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
