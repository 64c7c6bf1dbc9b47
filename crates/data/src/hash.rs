//! The SHA-256 of a set's content, with which a resumed run checks that its data has not changed, and ranks that theirs
//! is the same.

use std::fmt;

use bytemuck::Pod;
use kiln_feature::{FeatureBuffer, FeatureDType, FeatureStore, Labels, Targets};
use kiln_graph::{Csc, EdgeColumn, EdgeColumns, GraphId, ItemId, NodeId};
use kiln_store::Hasher;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::check::for_each_rows;
use crate::graph_folder::column_file;
use crate::layout::Layout;
use crate::{
    Dataset, DatasetLinks, DatasetTimes, Error, GraphDataset, LinkTargets, Result, Split, TaskTable,
    TimeKind, TimeSplit,
};

/// The first hashed bytes. Any change of the hashed content must change the version number in them.
const START: &str = "kiln data 1\n";

/// The first hashed bytes of a sample.
const SAMPLE_START: &str = "kiln data sample 1\n";

/// The number of bytes that are hashed between two checks: a millisecond of work.
const BYTES_PER_CHECK: usize = 1 << 21;

/// The size in bytes of a sampled page, and the maximum number of pages of an array in a sample. Pages that no one has
/// read yet cost a read from the disk each.
const PAGE_BYTES: usize = 1 << 12;
const SAMPLED_PAGES: usize = 32;

/// The part of each array that a hash reads.
pub enum HashedPart<'a> {
    /// All values. The hash calls the check at its start, after every 2 to 4 MiB and at its end, and fails with its error.
    All(&'a mut dyn FnMut() -> Result<()>),
    /// A sample: at most 32 pages of 4 KiB of each array, evenly spaced, with the first and the last. It takes
    /// milliseconds for any set. Names, element types and lengths of the arrays are hashed too, and the hash starts with
    /// another line than that of all values.
    Sample,
}

impl fmt::Debug for HashedPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::All(_)) { "All" } else { "Sample" })
    }
}

impl Dataset {
    /// Returns the SHA-256, in lower-case hexadecimal, of all training data: topology, features of nodes and edges with
    /// their stored element type, targets and split. Every change of a value changes the hash. The name, the notes and the names
    /// of nodes, classes and edge types are not hashed, and mapped and in-memory arrays have the same hash.
    ///
    /// The hashed bytes are the line `kiln data 1`, and then for each of these arrays a line of its name, element
    /// type and lengths, and its values, little-endian: `indptr u64 N+1`, `indices u32 M`, if present `weights f32 M`,
    /// `edge_types u8 M`, `edge_times i64 M`, and for each other column of the edges, by name, `edge_NAME f32 MxE` (or `f16`, `bf16`), such as
    /// `edge_features`; then `features f32 NxD` (or `f16`, `bf16`), or for sparse ones `features_indptr u64
    /// N+1`, `features_indices u32 K` and `features_data f32 KxD` (D is the number of columns), then `labels i32 NxC`
    /// (C is the number of classes), or `targets u8 NxK` for K labels per node, or `targets f32 NxK` for regression,
    /// then `train u32 P`, `val u32 Q`, `test u32 R`. If the set has links, `link_srcs u32 L`, `link_dsts u32 L` and the
    /// ids of each part, `train_links u32 P`, `val_links u32 Q`, `test_links u32 R`, follow, and for each part with fixed
    /// negatives, `negative_links u32 P`, if present `negative_srcs u32 PxK`, and `negative_dsts u32 PxK`; then, if links have
    /// them, their `labels` or `targets` as those of nodes, `link_features f32 LxD` (or `f16`, `bf16`) and `link_times i64 L`. For each
    /// task table follow `task u8 L`, its name, `task_type u32 1`, `task_nodes u32 N`, `task_times i64 N`, its `labels` or `targets`
    /// and its split. If present, the times of
    /// nodes follow, `node_times i64 N, type T`, then `time_kind u8 1` for dates, and the borders of a split by time, `time_split
    /// i64 2` or `3`.
    ///
    /// For a heterogeneous set, the names, the order and the sizes of node types and relations are hashed, too: after the line
    /// `kiln data 1` follow `type_offsets u32 T+1`, and for each node type `node_type u8 L`, its name in UTF-8, and its
    /// features, if it has any; for each relation `relation u8 L`, its name, `relation_types u32 2`, the types of its sources
    /// and destinations, and its `indptr`, `indices` and columns; if there are targets, `target_type u32 1`, the targets and
    /// the split; and if there are links, `link_relations u32 1` or `2`, their relation and its reverse, and the links.
    ///
    /// This reads the whole set once, with constant memory, and is several times faster on a CPU with SHA instructions.
    /// For a set in the kiln format, [`format::hash`](crate::format::hash) returns a different hash without reading the
    /// arrays.
    ///
    /// # Errors
    /// Returns [`Error::Feature`] if rows cannot be read and [`Error::BadParameter`] if their element type is not
    /// `f32`, `f16` or `bf16`. Values are not checked.
    pub fn hash(&self) -> Result<String> {
        self.hash_of(HashedPart::All(&mut || Ok(())))
    }

    /// Returns the hash of all values as [`Dataset::hash`] does, but with checks on the way, or the hash of a sample.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`] and of the check.
    pub fn hash_of(&self, part: HashedPart<'_>) -> Result<String> {
        hash_arrays(part, |hasher| match self.layout {
            Layout::Plain => self.hash_homogeneous(hasher),
            Layout::Numbered => self.hash_heterogeneous(hasher),
        })
    }

    fn hash_homogeneous(&self, hasher: &mut ArrayHasher<'_>) -> Result<()> {
        hasher.graph(self.csc()?)?;
        hasher.features(&**self.node_features()?)?;
        if let Some(targets) = &self.targets {
            hasher.targets(&targets.values)?;
            hasher.split(&targets.split)?;
        }
        if let Some(links) = &self.links {
            hasher.links(&links.targets)?;
        }
        self.tasks.iter().try_for_each(|table| hasher.task_table(table))?;
        hasher.times(&self.times)
    }

    fn hash_heterogeneous(&self, hasher: &mut ArrayHasher<'_>) -> Result<()> {
        let types = self.graph.types();
        hasher.array("type_offsets", "u32", types.offsets().len(), types.offsets())?;
        for (name, features) in types.names().iter().zip(&self.features) {
            hasher.array("node_type", "u8", name.len(), name.as_bytes())?;
            if let Some(features) = features {
                hasher.features(&**features)?;
            }
        }
        for relation in self.graph.iter() {
            hasher.array("relation", "u8", relation.name.len(), relation.name.as_bytes())?;
            let types = [relation.src_type as u32, relation.dst_type as u32];
            hasher.array("relation_types", "u32", types.len(), &types)?;
            hasher.graph(&relation.graph)?;
        }
        if let Some(targets) = &self.targets {
            hasher.array("target_type", "u32", 1, &[targets.node_type as u32])?;
            hasher.targets(&targets.values)?;
            hasher.split(&targets.split)?;
        }
        if let Some(DatasetLinks { relation, reverse, targets }) = &self.links {
            let relations: Vec<u32> =
                [Some(*relation), *reverse].into_iter().flatten().map(|at| at as u32).collect();
            hasher.array("link_relations", "u32", relations.len(), &relations)?;
            hasher.links(targets)?;
        }
        self.tasks.iter().try_for_each(|table| hasher.task_table(table))?;
        hasher.times(&self.times)
    }
}

impl LinkTargets {
    /// Returns the SHA-256 of the links, their split and their negatives, in the form of [`Dataset::hash`].
    ///
    /// # Errors
    /// Returns no error: no value is computed to be hashed.
    pub fn hash(&self) -> Result<String> {
        self.hash_of(HashedPart::All(&mut || Ok(())))
    }

    /// Returns the hash of all values as [`LinkTargets::hash`] does, but with checks on the way, or that of a sample.
    ///
    /// # Errors
    /// Returns the error of the check.
    pub fn hash_of(&self, part: HashedPart<'_>) -> Result<String> {
        hash_arrays(part, |hasher| hasher.links(self))
    }
}

impl GraphDataset {
    /// Returns the SHA-256 of the set in the form of [`Dataset::hash`]. The hashed bytes are the line `kiln data 1`,
    /// the graph, `node_offsets u32 G+1` (G is the number of graphs), the features if present, `labels i32 GxC` or
    /// `targets`, and `node_labels i32 NxC` if present. Features that are computed from these arrays, such as
    /// [`one_hot_degrees`](GraphDataset::one_hot_degrees), are not included unless they were added to the set; a split
    /// is never included.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`].
    pub fn hash(&self) -> Result<String> {
        self.hash_of(None, HashedPart::All(&mut || Ok(())))
    }

    /// Returns the SHA-256 of all data of a training run: the set, the given features of its nodes and a split.
    /// Features and split are hashed as by [`Dataset::hash`].
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`].
    pub fn hash_with(&self, features: &dyn FeatureStore, split: &Split<GraphId>) -> Result<String> {
        self.hash_of(Some((features, split)), HashedPart::All(&mut || Ok(())))
    }

    /// Returns the hash of all values as [`GraphDataset::hash`] does, or [`GraphDataset::hash_with`] for given features
    /// and a split, but with checks on the way, or the hash of a sample.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`] and of the check.
    pub fn hash_of(
        &self,
        of_run: Option<(&dyn FeatureStore, &Split<GraphId>)>,
        part: HashedPart<'_>,
    ) -> Result<String> {
        hash_arrays(part, |hasher| {
            hasher.graph(self.graph())?;
            hasher.array("node_offsets", "u32", self.node_offsets().len(), self.node_offsets())?;
            if let Some(features) = self.features() {
                hasher.features(&**features)?;
            }
            hasher.targets(&self.targets())?;
            if let Some(labels) = self.node_labels() {
                hasher.labels("node_labels", labels)?;
            }
            if let Some((features, split)) = of_run {
                hasher.features(features)?;
                hasher.split(split)?;
            }
            Ok(())
        })
    }
}

/// Returns the hash of the arrays that `add` passes to the hasher.
fn hash_arrays(part: HashedPart<'_>, add: impl Fn(&mut ArrayHasher<'_>) -> Result<()>) -> Result<String> {
    let mut hasher = ArrayHasher::new(match part {
        HashedPart::Sample => Work::Sample,
        HashedPart::All(check) => {
            let n_bytes = measured_bytes(&add)?;
            Work::All { check, progress: Progress::start("hashing data", ProgressUnit::Bytes, n_bytes) }
        }
    });
    add(&mut hasher)?;
    hasher.finish()
}

/// Returns the number of bytes of the arrays that `add` passes to the hasher, without reading their values.
fn measured_bytes(add: impl Fn(&mut ArrayHasher<'_>) -> Result<()>) -> Result<u64> {
    let mut measured = ArrayHasher::new(Work::Measure { n_bytes: 0 });
    add(&mut measured)?;
    let Work::Measure { n_bytes } = measured.work else { unreachable!("the work should be unchanged") };
    Ok(n_bytes)
}

/// What an [`ArrayHasher`] does with the values of an array.
enum Work<'a> {
    Measure { n_bytes: u64 },
    All { check: &'a mut dyn FnMut() -> Result<()>, progress: Progress },
    Sample,
}

/// A hasher of named arrays. A line with its name, type and lengths precedes each array, so that different lists of
/// arrays never produce the same bytes.
struct ArrayHasher<'a> {
    hasher: Hasher,
    work: Work<'a>,
    /// The number of bytes since the last check.
    n_unchecked: usize,
}

impl<'a> ArrayHasher<'a> {
    fn new(work: Work<'a>) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(if matches!(work, Work::All { .. }) { START } else { SAMPLE_START });
        // The first piece is checked too.
        Self { hasher, work, n_unchecked: BYTES_PER_CHECK }
    }

    fn line(&mut self, name: &str, element_type: &str, lengths: impl fmt::Display) {
        self.hasher.update(format!("{name} {element_type} {lengths}\n"));
    }

    fn values<T: Pod>(&mut self, values: &[T]) -> Result<()> {
        let bytes = bytemuck::cast_slice::<T, u8>(values);
        match &mut self.work {
            Work::Measure { n_bytes } => *n_bytes += bytes.len() as u64,
            Work::All { check, progress } => {
                for piece in bytes.chunks(BYTES_PER_CHECK) {
                    self.n_unchecked += piece.len();
                    if BYTES_PER_CHECK <= self.n_unchecked {
                        check()?;
                        self.n_unchecked = 0;
                    }
                    self.hasher.update(piece);
                    progress.advance(piece.len() as u64);
                }
            }
            Work::Sample => {
                for page in sampled(bytes.len().div_ceil(PAGE_BYTES)) {
                    let start = page * PAGE_BYTES;
                    self.hasher.update(&bytes[start..bytes.len().min(start + PAGE_BYTES)]);
                }
            }
        }
        Ok(())
    }

    fn array<T: Pod>(
        &mut self,
        name: &str,
        element_type: &str,
        lengths: impl fmt::Display,
        values: &[T],
    ) -> Result<()> {
        self.line(name, element_type, lengths);
        self.values(values)
    }

    fn graph(&mut self, graph: &Csc) -> Result<()> {
        self.array("indptr", "u64", graph.indptr().len(), graph.indptr())?;
        self.array("indices", "u32", graph.n_edges(), graph.indices())?;
        for (name, column) in graph.columns().iter() {
            let file = column_file(name);
            let what = file.trim_end_matches(".npy");
            match name {
                EdgeColumns::WEIGHTS | EdgeColumns::TYPES | EdgeColumns::TIMES => {
                    self.line(what, column.element_type(), column.n_rows())
                }
                _ => self.line(what, column.element_type(), lengths_of(column)),
            }
            self.values(column.as_bytes())?;
        }
        Ok(())
    }

    fn times(&mut self, times: &DatasetTimes) -> Result<()> {
        for (node_type, of_type) in times.nodes.iter().enumerate() {
            let Some(of_type) = of_type else { continue };
            self.array("node_times", "i64", format_args!("{}, type {node_type}", of_type.len()), of_type)?;
        }
        if times.kind == TimeKind::Date {
            self.array("time_kind", "u8", 1, &[1_u8])?;
        }
        match times.split {
            Some(TimeSplit { train, val, test }) => {
                let borders: Vec<i64> = train.into_iter().chain([val, test]).collect();
                self.array("time_split", "i64", borders.len(), &borders)
            }
            None => Ok(()),
        }
    }

    fn features(&mut self, features: &dyn FeatureStore) -> Result<()> {
        let dim = features.dim();
        if let Some(sparse) = features.as_sparse() {
            self.array("features_indptr", "u64", sparse.indptr().len(), sparse.indptr())?;
            self.array("features_indices", "u32", sparse.columns().len(), sparse.columns())?;
            let n_values = sparse.n_values();
            return self.array("features_data", "f32", format_args!("{n_values}x{dim}"), sparse.values());
        }
        let (row_type, n_rows) = (features.dtype(), features.n_rows());
        self.line("features", row_type.name(), format_args!("{n_rows}x{dim}"));
        match &mut self.work {
            Work::Measure { n_bytes } => {
                *n_bytes =
                    n_bytes.saturating_add((n_rows as u64).saturating_mul((dim * row_type.bytes()) as u64));
                return Ok(());
            }
            Work::All { .. } => {
                return for_each_rows("hashing features", features, |_, rows| self.rows(row_type, rows));
            }
            Work::Sample => {}
        }
        // The pages are rows here, because a store may compute its rows.
        let per_page = (PAGE_BYTES / size_of::<f32>() / dim.max(1)).max(1);
        let mut rows = FeatureBuffer::empty(row_type);
        for page in sampled(n_rows.div_ceil(per_page)) {
            let start = page * per_page;
            let end = n_rows.min(start + per_page);
            let nodes: Vec<NodeId> = (start as u32..end as u32).map(NodeId).collect();
            features.gather(&nodes, &mut rows)?;
            self.rows(row_type, &rows)?;
        }
        Ok(())
    }

    fn rows(&mut self, row_type: FeatureDType, rows: &FeatureBuffer) -> Result<()> {
        match rows {
            other if other.dtype() != row_type => Err(Error::unknown_row_type(other.dtype())),
            FeatureBuffer::F32(values) => self.values(values),
            FeatureBuffer::F16(values) => self.values(values),
            FeatureBuffer::BF16(values) => self.values(values),
            other => Err(Error::unknown_row_type(other.dtype())),
        }
    }

    fn targets<I: ItemId>(&mut self, targets: &Targets<I>) -> Result<()> {
        let lengths = format!("{}x{}", targets.len(), targets.n_outputs());
        match targets {
            Targets::Classes(labels) => self.labels("labels", labels),
            Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
                (Some(labels), _) => self.array("targets", "u8", lengths, labels),
                (None, numbers) => self.array("targets", "f32", lengths, numbers.unwrap_or_default()),
            },
        }
    }

    fn labels<I: ItemId>(&mut self, name: &str, labels: &Labels<I>) -> Result<()> {
        let lengths = format!("{}x{}", labels.len(), labels.n_classes());
        self.array(name, "i32", lengths, labels.as_slice())
    }

    fn split<I: ItemId>(&mut self, split: &Split<I>) -> Result<()> {
        for (name, items) in split.parts() {
            self.array(name, "u32", items.len(), items)?;
        }
        Ok(())
    }

    fn task_table(&mut self, table: &TaskTable) -> Result<()> {
        self.array("task", "u8", table.name.len(), table.name.as_bytes())?;
        self.array("task_type", "u32", 1, &[table.targets.node_type as u32])?;
        self.array("task_nodes", "u32", table.n_rows(), &table.nodes)?;
        self.array("task_times", "i64", table.times.len(), &table.times)?;
        self.targets(&table.targets.values)?;
        self.split(&table.targets.split)
    }

    fn links(&mut self, targets: &LinkTargets) -> Result<()> {
        let links = targets.links();
        self.array("link_srcs", "u32", links.len(), links.srcs())?;
        self.array("link_dsts", "u32", links.len(), links.dsts())?;
        for ((_, links), name) in
            targets.split().parts().into_iter().zip(["train_links", "val_links", "test_links"])
        {
            self.array(name, "u32", links.len(), links)?;
        }
        for negatives in [targets.val_negatives(), targets.test_negatives()].into_iter().flatten() {
            let n_links = negatives.links().len();
            let lengths = format!("{n_links}x{}", negatives.n_per_link());
            self.array("negative_links", "u32", n_links, negatives.links())?;
            if let Some(srcs) = negatives.srcs() {
                self.array("negative_srcs", "u32", &lengths, srcs)?;
            }
            self.array("negative_dsts", "u32", &lengths, negatives.dsts())?;
        }
        if let Some(values) = targets.values() {
            self.targets(values)?;
        }
        if let Some(features) = targets.features() {
            let column = features.to_column();
            self.line("link_features", column.element_type(), lengths_of(&column));
            self.values(column.as_bytes())?;
        }
        match targets.times() {
            Some(times) => self.array("link_times", "i64", times.len(), times),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<String> {
        if let Work::All { check, .. } = self.work {
            check()?;
        }
        Ok(self.hasher.finish())
    }
}

/// Returns the lengths of the rows of a column.
fn lengths_of(column: &EdgeColumn) -> String {
    format!("{}x{}", column.n_rows(), column.width())
}

/// Returns the sampled ones of `n_pages` pages, in ascending order.
fn sampled(n_pages: usize) -> impl Iterator<Item = usize> {
    let n = n_pages.min(SAMPLED_PAGES);
    (0..n).map(move |page| if n < 2 { page } else { page * (n_pages - 1) / (n - 1) })
}
