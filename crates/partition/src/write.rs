use std::fmt;
use std::path::Path;

use kiln_data::Dataset;
use kiln_data::graph_folder::{FEATURES, NODE_TIMES, write_targets};
use kiln_feature::FeatureStore;
use kiln_graph::{Csc, NodeId};
use kiln_store::array_folder::{ElementType, Entries, Entry, FolderWriter};
use kiln_store::name_key;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::hotness::{CacheConfig, CacheList, Presampler};
use crate::manifest::{CACHE, KEY_BYTES, KEYS, Manifest};
use crate::rows::{put_column, put_rows};
use crate::whole_set::WholeSet;
use crate::{PartitionBooks, PartitionMeta, Result, part_dir};

/// The number of node ids that are converted at once.
const IDS_AT_ONCE: usize = 1 << 14;

/// The report of writing one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteReport {
    /// The number of nodes that the partition owns.
    pub n_owned: usize,
    /// The number of edges into the nodes that the partition owns.
    pub n_edges: u64,
    /// The number of cached rows of remote nodes.
    pub n_cached: usize,
    /// The number of reads of remote feature rows in the presampled epoch; 0 if no epoch was presampled.
    pub n_remote: u64,
    /// The number of reads of remote feature rows in the presampled epoch that the cache serves.
    pub n_answered: u64,
    /// The size of the partition's arrays in bytes.
    pub n_bytes: u64,
}

/// Writes one line: the partition's size and its cache.
impl fmt::Display for WriteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_owned, n_edges, n_cached, n_remote, n_answered, n_bytes } = self;
        let mib = *n_bytes as f64 / f64::from(1 << 20);
        write!(f, "{n_owned} nodes, {n_edges} edges, {mib:.1} MiB")?;
        if *n_remote == 0 {
            return Ok(());
        }
        let share = 100.0 * *n_answered as f64 / *n_remote as f64;
        write!(
            f,
            ", {n_cached} cached rows for {share:.1} % of the {n_remote} remote rows that an epoch reads"
        )
    }
}

/// Writes the partitions of a data set, to a new folder. Each is a subfolder, `part0` and
/// so on, that opens as a [`Part`](crate::Part). If `cache` is given, each also stores the remote feature rows of all node types
/// that an epoch of its training nodes reads most often. `books` may be a [`PartitionBook`](crate::PartitionBook) if there is one
/// node type.
///
/// A heterogeneous set that has links and no targets is partitioned without targets. The links themselves and task
/// tables are not in partitions.
///
/// The folder is written atomically, like that of [`kiln_data::format::write`]. The same data set and books give
/// identical files.
///
/// # Memory
/// In addition to the data set and the books: 4 bytes per node. A cache takes 12 more bytes per node for counts and the
/// sampler's table, 4 per training node of a partition, and the blocks of one batch. Mapped arrays are streamed.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`], before anything is written, if the folder exists and is not empty;
/// [`Error::BadParameter`](crate::Error::BadParameter) if the graph, the features, the targets and the books differ in their node types or in their number
/// of nodes, if the edges and their features differ in number, if the set has neither targets nor links, or if a node of
/// the split or a value of `cache` is out of range; [`Error::UnsortedNeighbors`](crate::Error::UnsortedNeighbors) if the set has links and the neighbours in
/// their relation or its reverse do not ascend, or in one that may be the reverse if the links name none; [`Error::BadBook`](crate::Error::BadBook) if
/// a book is invalid; [`Error::Graph`](crate::Error::Graph), [`Error::Feature`](crate::Error::Feature), [`Error::Sample`](crate::Error::Sample) or [`Error::Data`](crate::Error::Data) if the data set is damaged;
/// [`Error::Store`](crate::Error::Store) if the number of columns, classes or class names is invalid, or if files cannot be written.
pub fn write_parts(
    data: &Dataset,
    books: impl Into<PartitionBooks>,
    meta: &PartitionMeta,
    cache: Option<&CacheConfig>,
    out: impl AsRef<Path>,
) -> Result<Vec<WriteReport>> {
    write(&WholeSet::new(data)?, &books.into(), meta, cache, out.as_ref())
}

fn write(
    set: &WholeSet<'_>,
    books: &PartitionBooks,
    meta: &PartitionMeta,
    cache: Option<&CacheConfig>,
    out: &Path,
) -> Result<Vec<WriteReport>> {
    set.check(books, out)?;
    if let Some(cache) = cache {
        cache.check()?;
    }
    let whole = FolderWriter::create(out)?;
    set.validate()?;
    set.check_sorted()?;
    let n_types = books.types().n_types();
    let rows = (0..n_types).map(|node_type| books.of_type(node_type).old_ids()).collect::<Result<_>>()?;
    let presampler = match (cache, set.data.times.split) {
        (Some(config), None) => Some(Presampler::new(set.data, config)?),
        // The batches of training have no messages over later edges.
        (Some(config), Some(split)) => {
            let graph = set.data.graph_before(split.cuts()[0])?;
            Some(Presampler::new(&Dataset { graph, ..set.data.clone() }, config)?)
        }
        (None, _) => None,
    };
    let manifest = set.manifest(books, meta);
    let parts = Parts { set, books, rows, manifest };
    let mut written = Vec::with_capacity(books.n_parts());
    let n_nodes = set.data.graph.n_nodes() as u64;
    let progress = Progress::start("writing partitions", ProgressUnit::Nodes, n_nodes);
    for part in 0..books.n_parts() {
        let list = match &presampler {
            Some(presampler) => parts.cache_list(presampler, part)?,
            None => CacheList::default(),
        };
        let folder = FolderWriter::create(part_dir(whole.folder(), part))?;
        let of_part = parts.write(part, &list, folder)?;
        progress.advance(of_part.n_owned as u64);
        written.push(of_part);
    }
    whole.commit()?;
    Ok(written)
}

/// The inputs from which partitions are written.
struct Parts<'a> {
    set: &'a WholeSet<'a>,
    books: &'a PartitionBooks,
    /// The nodes of each type, counted from 0 within the type, in the order of their new ids.
    rows: Vec<Vec<NodeId>>,
    /// The manifest of the first partition, without files.
    manifest: Manifest,
}

impl Parts<'_> {
    /// Returns the nodes of a type that a partition owns, counted from 0 within the type.
    fn rows(&self, node_type: usize, part: usize) -> &[NodeId] {
        let owned = self.books.of_type(node_type).owned(part);
        &self.rows[node_type][owned.start as usize..owned.end as usize]
    }

    fn cache_list(&self, presampler: &Presampler<'_>, part: usize) -> Result<CacheList> {
        let types = self.set.data.graph.types();
        let is_own = |node| self.books.place(node).is_some_and(|place| place.part == part);
        let has_features =
            |node| types.type_of(node).is_some_and(|node_type| self.set.data.features[node_type].is_some());
        presampler.cache_list(is_own, has_features)
    }

    fn write(&self, part: usize, list: &CacheList, mut folder: FolderWriter) -> Result<WriteReport> {
        let mut n_owned = 0;
        for node_type in 0..self.rows.len() {
            let rows = self.rows(node_type, part);
            self.put_type(&mut folder, node_type, rows, list)?;
            n_owned += rows.len();
        }
        for (position, relation) in self.set.data.graph.iter().enumerate() {
            let rows = self.rows(relation.dst_type, part);
            self.put_relation(&mut folder, position, &relation.graph, rows)?;
        }
        write_targets(&mut folder, &self.set.targets.values, &self.set.targets.split)?;
        let manifest = Manifest { part, files: folder.entries().clone(), ..self.manifest.clone() };
        manifest.commit(folder)?;
        Ok(written(&manifest.files, n_owned, list))
    }

    /// Writes the nodes of a type: the book and the times of the whole type, the ids and the features or keys of `rows`, and the cached
    /// rows of the type.
    fn put_type(
        &self,
        folder: &mut FolderWriter,
        node_type: usize,
        rows: &[NodeId],
        list: &CacheList,
    ) -> Result<()> {
        let Dataset { layout, graph, features, .. } = self.set.data;
        let nodes = graph.types().range(node_type);
        let new_ids = self.books.of_type(node_type).new_ids();
        folder.put(layout.file("new_ids.npy", node_type), ElementType::U32, new_ids)?;
        if let Some(times) = self.set.data.times.node_times(node_type) {
            folder.put(layout.file(NODE_TIMES, node_type), ElementType::I64, times)?;
        }
        let mut old_ids = folder.vector(layout.file("old_ids.npy", node_type), ElementType::U32)?;
        for rows in rows.chunks(IDS_AT_ONCE) {
            let ids: Vec<NodeId> = rows.iter().map(|row| NodeId(nodes.start + row.0)).collect();
            old_ids.push(&ids)?;
        }
        folder.add(old_ids)?;
        if let Some(features) = &features[node_type] {
            let name = self.set.name_of_type(node_type);
            put_rows(folder, &layout.rows(&FEATURES, node_type), &**features, rows, &name)?;
            return self.put_cache(folder, node_type, &list.within(nodes), &**features);
        }
        if let Some(names) = self.set.names_of_rows(node_type) {
            let mut keys = folder.rows(layout.file(KEYS, node_type), ElementType::U8, KEY_BYTES)?;
            for row in rows {
                keys.push(&name_key(names.get(*row).unwrap_or_default()))?;
            }
            folder.add(keys)?;
        }
        Ok(())
    }

    /// Writes the cached rows of remote nodes of a type, which are rows of `features`, unless the list is empty.
    fn put_cache(
        &self,
        folder: &mut FolderWriter,
        node_type: usize,
        list: &CacheList,
        features: &dyn FeatureStore,
    ) -> Result<()> {
        if list.ids.is_empty() {
            return Ok(());
        }
        let layout = self.set.data.layout;
        folder.put(layout.file("cache_ids.npy", node_type), ElementType::U32, &list.ids)?;
        folder.put(layout.file("cache_counts.npy", node_type), ElementType::U32, &list.counts)?;
        let name = self.set.name_of_type(node_type);
        put_rows(folder, &layout.rows(&CACHE, node_type), features, &list.ids, &name)
    }

    /// Writes the edges of a relation into the nodes of `rows`. The graph must be valid.
    fn put_relation(
        &self,
        folder: &mut FolderWriter,
        position: usize,
        graph: &Csc,
        rows: &[NodeId],
    ) -> Result<()> {
        let name = |name| self.set.data.layout.file(name, position);
        let mut indptr = folder.vector(name("indptr.npy"), ElementType::U64)?;
        let mut first_edges = folder.vector(name("first_edges.npy"), ElementType::U64)?;
        let mut indices = folder.vector(name("indices.npy"), ElementType::U32)?;
        let mut end = 0_u64;
        indptr.push(&[end])?;
        let progress = Progress::start("writing edges", ProgressUnit::Nodes, rows.len() as u64);
        let mut counter = progress.counter();
        for &row in rows {
            counter.add(1);
            end += graph.in_degree(row);
            indptr.push(&[end])?;
            first_edges.push(&[graph.first_edge(row).0])?;
            indices.push(graph.in_neighbors(row))?;
        }
        for array in [indptr, first_edges, indices] {
            folder.add(array)?;
        }
        for (name, column) in graph.columns().iter() {
            put_column(folder, self.set.data.layout, position, name, column, graph, rows)?;
        }
        Ok(())
    }
}

/// Returns the report of a partition with these files.
fn written(files: &Entries, n_owned: usize, list: &CacheList) -> WriteReport {
    let n_values = |entry: &Entry| entry.shape.iter().product::<usize>();
    // There are the edges of a graph, or of each relation.
    let indices = files.iter().filter(|(name, _)| name.starts_with("indices."));
    let n_bytes = |entry: &Entry| (n_values(entry) * entry.dtype.stored_as().bytes()) as u64;
    WriteReport {
        n_owned,
        n_edges: indices.map(|(_, entry)| n_values(entry) as u64).sum(),
        n_cached: list.ids.len(),
        n_remote: list.n_remote,
        n_answered: list.counts.iter().map(|&count| u64::from(count)).sum(),
        n_bytes: files.values().map(n_bytes).sum(),
    }
}
