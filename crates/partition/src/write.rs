use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use kiln_data::graph_folder::{FEATURES, RowFiles, check_class_names, class_names_to_write};
use kiln_data::{Dataset, Split};
use kiln_feature::{EdgeFeatures, FeatureStore, TargetKind};
use kiln_graph::{Csc, NodeId};
use kiln_store::array_folder::{ElementType, Entries, Entry, FolderWriter};

use crate::assign::check_train;
use crate::hotness::{CacheConfig, CacheList, Presampler};
use crate::manifest::{self, CACHE, Manifest};
use crate::rows::{put_edge_rows, put_rows};
use crate::{Error, Method, PartitionBook, Result, part_dir};

/// The metadata of a partitioned data set, which each partition stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMeta {
    /// The hash of the whole data set: [`Dataset::hash`], or [`kiln_data::format::hash`] if it is in the kiln format.
    pub hash: String,
    /// The algorithm that assigned nodes to partitions.
    pub method: Method,
    /// The number of edges whose ends are in different partitions; [`PartitionStats`](crate::PartitionStats) counts
    /// them.
    pub n_cut_edges: u64,
}

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

/// Writes the partitions of a data set to a new folder. Each is a subfolder, `part0` and so on, that opens as a
/// [`Part`](crate::Part). If `cache` is given, each also stores the remote feature rows that an epoch of its training
/// nodes reads most often.
///
/// The folder is written atomically, like that of [`kiln_data::format::write`]. The same data set and book give
/// identical files.
///
/// # Memory
/// In addition to the data set and the book: 4 bytes per node. A cache takes 12 more bytes per node for counts and the
/// sampler's table, 4 per training node of a partition, and the blocks of one batch. Mapped arrays are streamed.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`], before anything is written, if the folder exists and is not empty;
/// [`Error::BadParameter`] if the graph, the features, the labels and the book differ in their number of nodes, if the
/// edges and their features differ in number, or if a training node or a value of `cache` is out of range;
/// [`Error::UnsortedNeighbors`] if the set has links and the neighbours of its graph do not ascend; [`Error::BadBook`]
/// if the book is invalid; [`Error::Graph`], [`Error::Feature`] or [`Error::Sample`] if the data set is damaged;
/// [`Error::Store`] if the number of columns, classes or class names is invalid, or if files cannot be written.
pub fn write_parts(
    data: &Dataset,
    book: &PartitionBook,
    meta: &PartitionMeta,
    cache: Option<&CacheConfig>,
    out: impl AsRef<Path>,
) -> Result<Vec<WriteReport>> {
    check_set(data, book, out.as_ref())?;
    if let Some(cache) = cache {
        cache.check()?;
    }
    let whole = FolderWriter::create(out)?;
    data.csc()?.validate()?;
    if data.links.is_some() && !data.csc()?.has_sorted_neighbors() {
        return Err(Error::UnsortedNeighbors);
    }
    let set = Set { data, book, meta, old_ids: book.old_ids()?, n_edge_types: data.n_edge_types() };
    let presampler = cache.map(|config| Presampler::new(data, config)).transpose()?;
    let mut written = Vec::with_capacity(book.n_parts());
    for part in 0..book.n_parts() {
        let list = match &presampler {
            Some(presampler) => {
                let owned = book.owned(part);
                let is_own = |node| book.new_id(node).is_some_and(|new_id| owned.contains(&new_id));
                presampler.cache_list(is_own, |_| true)?
            }
            None => CacheList::default(),
        };
        let folder = FolderWriter::create(part_dir(whole.folder(), part))?;
        written.push(set.write_part(part, &list, folder)?);
    }
    whole.commit()?;
    Ok(written)
}

/// The inputs from which partitions are written.
struct Set<'a> {
    data: &'a Dataset,
    book: &'a PartitionBook,
    meta: &'a PartitionMeta,
    /// All nodes in the order of their new ids: the result of [`PartitionBook::old_ids`].
    old_ids: Vec<NodeId>,
    /// The result of [`Dataset::n_edge_types`].
    n_edge_types: Option<usize>,
}

impl Set<'_> {
    fn write_part(&self, part: usize, list: &CacheList, mut folder: FolderWriter) -> Result<WriteReport> {
        let Self { data, book, .. } = self;
        let owned = book.owned(part);
        let nodes = &self.old_ids[owned.start as usize..owned.end as usize];
        put_whole(&mut folder, data, book)?;
        folder.put("old_ids.npy", ElementType::U32, nodes)?;
        put_edges(&mut folder, data.csc()?, nodes, Cow::Borrowed)?;
        if let Some(features) = &data.edge_features {
            put_edge_rows(&mut folder, features, data.csc()?, nodes)?;
        }
        let features = data.node_features()?;
        put_rows(&mut folder, &FEATURES, &**features, nodes)?;
        put_cache(&mut folder, list, &**features, &CACHE, Cow::Borrowed)?;
        let manifest = self.manifest(part, features.dim(), folder.entries());
        folder.commit_with(manifest::FILE_NAME, &manifest)?;
        Ok(written(&manifest.files, nodes.len(), list))
    }

    fn manifest(&self, part: usize, dim: usize, files: &Entries) -> Manifest {
        let Self { data, book, meta, .. } = self;
        let n_classes = data.labels().n_classes();
        Manifest {
            format: manifest::VERSION,
            name: data.name.clone(),
            hash: meta.hash.clone(),
            n_nodes: book.n_nodes(),
            n_edges: data.graph.n_edges(),
            dim,
            n_classes,
            class_names: class_names_to_write(data.class_names(), n_classes),
            edge_type_names: data.edge_type_names.clone(),
            n_edge_types: self.n_edge_types,
            edge_dim: data.edge_features.as_ref().map(EdgeFeatures::dim),
            preparation: Some(data.preparation.clone()),
            method: meta.method,
            n_cut_edges: meta.n_cut_edges,
            offsets: book.offsets().to_vec(),
            part,
            files: files.clone(),
        }
    }
}

/// Writes the arrays of the whole data set, which are the same in each partition.
fn put_whole(folder: &mut FolderWriter, data: &Dataset, book: &PartitionBook) -> Result<()> {
    folder.put("new_ids.npy", ElementType::U32, book.new_ids())?;
    folder.put("labels.npy", ElementType::I32, data.labels().as_slice())?;
    put_split(folder, data.split())
}

/// Writes the split of the whole data set.
pub(crate) fn put_split(folder: &mut FolderWriter, split: &Split) -> Result<()> {
    for ((_, nodes), file) in split.parts().into_iter().zip(["train.npy", "val.npy", "test.npy"]) {
        folder.put(file, ElementType::U32, nodes)?;
    }
    Ok(())
}

/// Writes the in-edges of `nodes`. The graph must be valid. `name` returns the name of an array's file.
pub(crate) fn put_edges(
    folder: &mut FolderWriter,
    graph: &Csc,
    nodes: &[NodeId],
    name: impl Fn(&'static str) -> Cow<'static, str>,
) -> Result<()> {
    let mut indptr = folder.vector(name("indptr.npy"), ElementType::U64)?;
    let mut first_edges = folder.vector(name("first_edges.npy"), ElementType::U64)?;
    let mut indices = folder.vector(name("indices.npy"), ElementType::U32)?;
    let mut end = 0_u64;
    indptr.push(&[end])?;
    for &node in nodes {
        end += graph.in_degree(node);
        indptr.push(&[end])?;
        first_edges.push(&[graph.first_edge(node).0])?;
        indices.push(graph.in_neighbors(node))?;
    }
    for array in [indptr, first_edges, indices] {
        folder.add(array)?;
    }
    if let Some(weights) = graph.weights() {
        put_edge_data(folder, name("weights.npy"), ElementType::F32, weights, graph, nodes)?;
    }
    if let Some(types) = graph.edge_types() {
        put_edge_data(folder, name("edge_types.npy"), ElementType::U8, types, graph, nodes)?;
    }
    Ok(())
}

/// Writes the cached rows of remote nodes, which are rows of `features`, unless the list is empty. `name` returns the name
/// of an array's file, and `files` are those of the rows.
pub(crate) fn put_cache(
    folder: &mut FolderWriter,
    list: &CacheList,
    features: &dyn FeatureStore,
    files: &RowFiles,
    name: impl Fn(&'static str) -> Cow<'static, str>,
) -> Result<()> {
    if list.ids.is_empty() {
        return Ok(());
    }
    folder.put(name("cache_ids.npy"), ElementType::U32, &list.ids)?;
    folder.put(name("cache_counts.npy"), ElementType::U32, &list.counts)?;
    put_rows(folder, files, features, &list.ids)
}

fn put_edge_data<T: bytemuck::Pod>(
    folder: &mut FolderWriter,
    file: Cow<'static, str>,
    dtype: ElementType,
    values: &[T],
    graph: &Csc,
    nodes: &[NodeId],
) -> Result<()> {
    let mut array = folder.vector(file, dtype)?;
    for &node in nodes {
        let first = graph.first_edge(node).index();
        array.push(&values[first..first + graph.in_degree(node) as usize])?;
    }
    Ok(folder.add(array)?)
}

/// Returns the report of a partition with these files.
pub(crate) fn written(files: &Entries, n_owned: usize, list: &CacheList) -> WriteReport {
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

/// Returns the error for a set with other targets than class labels.
pub(crate) fn labels_expected(got: impl ToString) -> Error {
    let (what, expected) = ("the kind of targets", "class labels: train on the whole graph instead");
    Error::BadParameter { what, expected: expected.into(), got: got.to_string() }
}

fn check_set(data: &Dataset, book: &PartitionBook, out: &Path) -> Result<()> {
    let n_nodes = data.graph.n_nodes();
    let labels = data.labels();
    match data.targets.as_ref().map(|targets| targets.values.kind()) {
        Some(TargetKind::Classes) | None => {}
        Some(kind) => return Err(labels_expected(kind)),
    }
    let n_edges = data.graph.n_edges();
    if let Some(n_rows) = data.edge_features.as_ref().map(EdgeFeatures::n_edges).filter(|n| *n != n_edges) {
        let expected = format!("{n_edges}, the number of edges in the graph");
        return Err(Error::BadParameter {
            what: "the number of edge feature rows",
            expected,
            got: n_rows.to_string(),
        });
    }
    let counts = [
        ("the number of nodes in the partition book", book.n_nodes()),
        ("the number of feature rows", data.node_features()?.n_rows()),
        ("the number of labels", labels.len()),
    ];
    for (what, got) in counts {
        if got != n_nodes {
            let expected = format!("{n_nodes}, the number of nodes in the graph");
            return Err(Error::BadParameter { what, expected, got: got.to_string() });
        }
    }
    check_train(n_nodes, &data.split().train)?;
    let names = class_names_to_write(data.class_names(), labels.n_classes());
    check_class_names(out, Some(data.node_features()?.dim()), labels.n_classes(), &names)?;
    Ok(())
}
