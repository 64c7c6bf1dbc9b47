//! A set as other libraries store it, on its way to memory or, through [`convert`](crate::convert), to kiln's
//! own form.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, Labels, MAX_DIM};
use kiln_graph::CscBuilder;
use kiln_store::Error as StoreError;
use kiln_store::text::TextTable;
use kiln_store::{ArrayFile, Npz, check_count};

use crate::arrays::rows_of;
use crate::edges::EdgeList;
use crate::limits::{bad_dim, numbers};
use crate::{Dataset, NodeNames, Note, Result, Split};

/// A set of which only what is small was read: features and edges are still in their files.
#[derive(Debug)]
pub(crate) struct Stored {
    /// What the set is called.
    pub(crate) name: String,
    /// One class a node, or none; there are as many nodes.
    pub(crate) labels: Labels,
    /// Checked against the labels.
    pub(crate) split: Split,
    /// Where the rows of all nodes are.
    pub(crate) features: Source,
    /// Where the edges are.
    pub(crate) edges: Edges,
    /// What the user should know so far.
    pub(crate) notes: Vec<Note>,
}

/// Where the edges of a set are.
#[derive(Debug)]
pub(crate) struct Edges {
    /// An array `[2, n_edges]` in any order, or a table of two columns without a header.
    pub(crate) source: Source,
    /// How many there are, and the file that says so.
    pub(crate) n_stated: Option<(PathBuf, u64)>,
    /// Whether the reverse of each is added.
    pub(crate) is_symmetrized: bool,
}

/// Where an array or a table is.
#[derive(Debug)]
pub(crate) enum Source {
    /// An array in a file of its own, mapped.
    Mapped(ArrayFile),
    /// An array in an archive, which is read into memory when its turn comes.
    Member {
        /// The archive.
        archive: PathBuf,
        /// The array's name.
        name: &'static str,
    },
    /// Lines of text.
    Table(PathBuf),
}

impl Stored {
    /// The whole set in memory, but for features that stay mapped. The edges of a compressed list may take `memory_bytes`
    /// as they are read.
    pub(crate) fn read_within(self, memory_bytes: u64) -> Result<Dataset> {
        let n_nodes = self.labels.len();
        let mut notes = Vec::new();
        let features = read_features(&self.features, n_nodes, &mut notes)?;
        notes.extend(self.notes);
        let mut builder = CscBuilder::new(n_nodes);
        if self.edges.is_symmetrized {
            builder = builder.symmetrize();
        }
        let graph = self.edges.open()?.build(n_nodes, builder, memory_bytes)?;
        Ok(Dataset {
            name: self.name,
            graph: Arc::new(graph),
            features: Arc::new(features),
            class_names: numbers(self.labels.n_classes()),
            labels: Arc::new(self.labels),
            split: self.split,
            names: Arc::new(NodeNames::default()),
            edge_type_names: Vec::new(),
            notes,
        })
    }
}

impl Edges {
    /// The edges as a list.
    pub(crate) fn open(self) -> Result<EdgeList> {
        let array = match self.source {
            Source::Table(path) => return EdgeList::of_pairs(&path, self.n_stated),
            Source::Mapped(array) => array,
            Source::Member { archive, name } => Npz::open(archive)?.array_in_any_order(name)?,
        };
        let path = array.path().to_owned();
        let list = EdgeList::of_rows(array)?;
        if let (Some((_, n_stated)), Some(n_edges)) = (self.n_stated, list.n_edges()) {
            check_count(&path, "the number of edges", n_stated as usize, n_edges)?;
        }
        Ok(list)
    }
}

fn read_features(source: &Source, n_nodes: usize, notes: &mut Vec<Note>) -> Result<DenseFeatures> {
    const TO: &str = "memory: convert the folder once (cargo xtask data convert) to have them mapped";
    let (path, rows, from) = match source {
        Source::Mapped(array) => (array.path().to_owned(), rows_of(array, notes)?, None),
        Source::Member { archive, name } => {
            let array = Npz::open(archive)?.array(name)?;
            (array.path().to_owned(), rows_of(&array, notes)?, Some("rows of an archive"))
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

/// Makes room for all rows at once, or says that there is none: growing would take twice as much, and end the
/// process where it fails.
fn reserve(values: &mut Vec<f32>, n_rows: usize, dim: usize, path: &Path) -> Result<()> {
    values.try_reserve_exact(n_rows.saturating_mul(dim)).map_err(|_| {
        let what = format!("{n_rows} rows of {dim} features in {}", path.display());
        StoreError::OutOfMemory { what }.into()
    })
}

/// Calls `visit` with the numbers of each line of a text file that has a line for each node; gives how many
/// there are in a line. One line is in memory at a time.
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
            return Err(row.bad(0, &format!("no more than {n_nodes} lines, one a node")).into());
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
