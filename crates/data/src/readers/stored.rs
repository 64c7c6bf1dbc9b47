//! A set in the format of another library, which is read into memory or, through [`convert`](crate::convert), written
//! in the kiln format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, MAX_DIM, Targets};
use kiln_graph::CscBuilder;
use kiln_store::Error as StoreError;
use kiln_store::text::TextTable;
use kiln_store::{ArrayFile, Npz, check_count};

use crate::arrays::{RowsOf, rows_of};
use crate::edges::{ColumnArray, EdgeList};
use crate::limits::bad_dim;
use crate::readers::edge_means::{EdgeMeans, MeanRows};
use crate::readers::edge_targets::add_edge_task;
use crate::{Dataset, DatasetTargets, LinkTargets, Note, Result, Split};

/// A set whose labels and split have been read. Features and edges are still in their files.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The name of the set.
    pub(crate) name: String,
    /// The targets of each node. Their number is the number of nodes.
    pub(crate) targets: Targets,
    /// The split, which was checked against the targets.
    pub(crate) split: Split,
    /// The links of link prediction, or the edges with targets, if the set has any.
    pub(crate) links: Option<Arc<LinkTargets>>,
    /// The location of the feature rows of all nodes.
    pub(crate) features: Source,
    /// The location of the edges.
    pub(crate) edges: Edges,
    /// The notes about the labels and the split.
    pub(crate) notes: Vec<Note>,
}

/// The location of the edges of a set.
#[derive(Debug)]
pub(crate) struct Edges {
    /// An array `[2, n_edges]`, row-major or column-major, or a table of two columns without a header.
    pub(crate) source: Source,
    /// The expected number of edges, and the file that states it.
    pub(crate) n_stated: Option<(PathBuf, u64)>,
    /// True if the reverse of each edge is added.
    pub(crate) is_symmetrized: bool,
    /// The columns of the edges in arrays.
    pub(crate) columns: Vec<ColumnArray>,
}

/// The location of an array or a table.
#[derive(Debug)]
pub(crate) enum Source {
    /// A mapped array in a separate file.
    Mapped(ArrayFile),
    /// An array in an archive. It is read into memory when it is needed.
    Member {
        /// The archive.
        archive: PathBuf,
        /// The array's name.
        name: String,
    },
    /// A text file.
    Table(PathBuf),
    /// The means of the features of each node's edges, for node features only.
    EdgeMeans(EdgeMeans),
}

impl Stored {
    /// Reads the whole set into memory, except for features that can stay mapped. The edges of a compressed list may
    /// take at most `memory_bytes` while they are read.
    pub(crate) fn read_within(mut self, memory_bytes: u64) -> Result<Dataset> {
        let n_nodes = self.targets.len();
        let edge_task = self.take_edge_task();
        let mut notes = Vec::new();
        let features = read_features(&self.features, n_nodes, &mut notes)?;
        notes.extend(self.notes);
        let mut builder = CscBuilder::new(n_nodes);
        if self.edges.is_symmetrized {
            builder = builder.symmetrize();
        }
        let graph = self.edges.open()?.build(builder, n_nodes, memory_bytes, &mut notes)?;
        let targets = DatasetTargets::new(0, self.targets, self.split);
        let data = Dataset::homogeneous(self.name, graph, Arc::new(features), targets);
        let data = Dataset { notes, ..data };
        match edge_task {
            Some(targets) => add_edge_task(data, 0, targets),
            None => Ok(Dataset { links: self.links.map(Into::into), ..data }),
        }
    }

    /// Removes the edges with targets, if the set has any, and returns them.
    pub(crate) fn take_edge_task(&mut self) -> Option<LinkTargets> {
        self.links.take_if(|links| links.values().is_some()).map(Arc::unwrap_or_clone)
    }
}

impl Edges {
    /// Opens the edges as a list.
    pub(crate) fn open(self) -> Result<EdgeList> {
        let Self { source, n_stated, columns, .. } = self;
        let array = match source {
            Source::Table(path) => return Ok(EdgeList::of_pairs(&path, n_stated)?.with_columns(columns)),
            Source::Mapped(array) => array,
            Source::Member { archive, name } => Npz::open(archive)?.array_in_any_order(&name)?,
            Source::EdgeMeans(means) => return EdgeList::of_pairs(&means.edges, n_stated),
        };
        let path = array.path().to_owned();
        let list = EdgeList::of_rows(array)?;
        if let (Some((_, n_stated)), Some(n_edges)) = (n_stated, list.n_edges()) {
            check_count(&path, "the number of edges", n_stated as usize, n_edges)?;
        }
        Ok(list.with_columns(columns))
    }
}

/// Reads the feature rows of `n_nodes` nodes.
pub(crate) fn read_features(source: &Source, n_nodes: usize, notes: &mut Vec<Note>) -> Result<DenseFeatures> {
    const TO: &str = "memory: convert the folder once (kiln data convert) to have them mapped";
    let (path, rows, from) = match source {
        Source::Mapped(array) => (array.path().to_owned(), rows_of(array, RowsOf::Nodes, notes)?, None),
        Source::Member { archive, name } => {
            let array = Npz::open(archive)?.array(name)?;
            (array.path().to_owned(), rows_of(&array, RowsOf::Nodes, notes)?, Some("rows of an archive"))
        }
        Source::EdgeMeans(means) => {
            let MeanRows { values, dim } = means.read(n_nodes)?;
            let rows = DenseFeatures::from_f32(values, dim)?;
            (means.features.clone(), rows, Some("means of edge features"))
        }
        Source::Table(path) => {
            let mut values = Vec::new();
            let dim = for_each_row(path, n_nodes, |row| {
                if values.is_empty() {
                    reserve(&mut values, n_nodes, row.len(), path)?;
                }
                values.extend_from_slice(row);
                Ok(())
            })?;
            (path.clone(), DenseFeatures::from_f32(values, dim)?, Some("lines of text"))
        }
    };
    check_count(&path, "the number of feature rows", n_nodes, rows.n_rows())?;
    if let Some(from) = from {
        notes.push(Note::Converted { path, from: format!("{n_nodes} {from}"), to: TO.into() });
    }
    Ok(rows)
}

/// Reserves memory for all rows at once, or returns an error. A vector that grows row by row would take up to twice the
/// memory, and the process would abort if the memory does not suffice.
fn reserve(values: &mut Vec<f32>, n_rows: usize, dim: usize, path: &Path) -> Result<()> {
    values.try_reserve_exact(n_rows.saturating_mul(dim)).map_err(|_| {
        let what = format!("{n_rows} rows of {dim} features in {}", path.display());
        StoreError::OutOfMemory { what }.into()
    })
}

/// Calls `visit` with the numbers of each line of a text file that has one line per node, and returns the number of
/// columns. Only one line is in memory at a time.
pub(crate) fn for_each_row(
    path: &Path,
    n_nodes: usize,
    mut visit: impl FnMut(&[f32]) -> Result<()>,
) -> Result<usize> {
    const EXPECTED: &str = "a finite number";
    let mut table = TextTable::open(path)?;
    let (mut values, mut dim, mut n_rows) = (Vec::new(), 1, 0);
    while let Some(row) = table.next_row()? {
        if n_rows == n_nodes {
            return Err(row.bad(0, &format!("no more than {n_nodes} lines, one per node")).into());
        }
        (dim, n_rows) = (row.n_fields(), n_rows + 1);
        if dim > MAX_DIM {
            return Err(bad_dim(path, dim).into());
        }
        values.clear();
        for field in 0..dim {
            let value: f32 = row.parse(field, EXPECTED)?;
            if !value.is_finite() {
                return Err(row.bad(field, EXPECTED).into());
            }
            values.push(value);
        }
        visit(&values)?;
    }
    check_count(path, "the number of lines", n_nodes, n_rows)?;
    Ok(dim)
}
