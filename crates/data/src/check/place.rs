use std::path::{Path, PathBuf};

use kiln_store::Error as StoreError;
use kiln_store::paths::find;

use crate::arrays::numbered;
use crate::layout::Layout;
use crate::limits::bad_dim;
use crate::{Error, LinkSplitError};

/// The files whose contents determine the number of feature columns: the dense features, or the column indices of a CSR
/// matrix.
const FEATURES: [&str; 2] = ["features.npy", "features_indices.npy"];

/// The location of a value, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A set in memory or a single file. Messages contain the set's name or the file's path.
    Set(&'a Path),
    /// A folder of arrays. Messages contain the path of the array.
    Folder(&'a Path),
    /// The arrays of a node type or of a relation in the folder of a heterogeneous set, such as `indptr.2.npy`.
    Numbered(&'a Path, usize),
}

impl<'a> Place<'a> {
    /// Returns the arrays of the relation at a position in a folder of this layout.
    pub(crate) fn relation(folder: &'a Path, layout: Layout, position: usize) -> Self {
        match layout {
            Layout::Plain => Self::Folder(folder),
            Layout::Numbered => Self::Numbered(folder, position),
        }
    }

    /// Returns the path that an error message contains. In a folder, this is the path of the first of `names` that
    /// exists, or of `names[0]` if none exists.
    pub(super) fn file(&self, names: &[&str]) -> PathBuf {
        match self {
            Self::Set(name) => name.to_path_buf(),
            Self::Folder(folder) => find(folder, names).unwrap_or_else(|| folder.join(names[0])),
            Self::Numbered(folder, number) => {
                let names: Vec<String> = names.iter().map(|name| numbered(name, *number)).collect();
                let found = find(folder, &names.iter().map(String::as_str).collect::<Vec<_>>());
                found.unwrap_or_else(|| folder.join(&names[0]))
            }
        }
    }

    /// Returns the name of an array's file, for messages about another array.
    pub(super) fn name(&self, file: &str) -> String {
        match self {
            Self::Numbered(_, number) => numbered(file, *number),
            Self::Set(_) | Self::Folder(_) => file.to_owned(),
        }
    }

    pub(crate) fn bad(
        &self,
        file: &str,
        what: &'static str,
        position: u64,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Error {
        let (path, expected, found) = (self.file(&[file]), expected.into(), found.to_string());
        StoreError::BadValue { path, what, position, expected, found }.into()
    }

    /// Returns the path of the file that contains a part of the split.
    pub(super) fn part(&self, part: &str) -> PathBuf {
        self.file(&[&format!("{part}.npy"), &format!("{part}_idx.npy")])
    }

    /// Converts the error of an array to one that names the array's file, if the set is in a folder.
    pub(crate) fn located(&self, error: Error) -> Error {
        use kiln_feature::{Error as Feature, SparseError, TargetsError};
        use kiln_graph::{Error as Graph, RelationEdgesError};
        if matches!(self, Self::Set(_)) {
            return error;
        }
        let error = match error {
            Error::Graph(Graph::InFile { source, .. }) => Error::Graph(*source),
            Error::Feature(Feature::InFile { source, .. }) => Error::Feature(*source),
            other => other,
        };
        match error {
            Error::Graph(Graph::NodeOutOfRange { edge, node, n_nodes }) => self.bad(
                "indices.npy",
                "the source of edge",
                edge,
                format!("a node id below {n_nodes}"),
                stored_id(node),
            ),
            Error::Graph(Graph::RelationEdges(RelationEdgesError::NotOfType {
                edge,
                node,
                name,
                start,
                end,
            })) => {
                let expected = format!("a node of type `{name}`, which are {start}..{end}");
                self.bad("indices.npy", "the source of edge", edge, expected, stored_id(node))
            }
            Error::Graph(Graph::LengthMismatch { what, expected, got }) => {
                let file = self.file(&[&format!("{what}.npy")]);
                StoreError::Inconsistent { file, what: "the number of entries", expected, got }.into()
            }
            // This is how the graph reports a first offset that is not 0.
            Error::Graph(Graph::IndptrNotMonotone { node: 0, before: 0, after }) => {
                self.bad("indptr.npy", "entry", 0, "0, where the first node's edges start", after)
            }
            Error::Graph(Graph::IndptrNotMonotone { node, before, after }) => {
                let expected = format!("at least {before}, the entry before it");
                self.bad("indptr.npy", "entry", node + 1, expected, after)
            }
            Error::Feature(Feature::Targets(TargetsError::LabelOutOfRange {
                id, label, n_classes, ..
            })) => {
                let expected = format!("a class below {n_classes} or a negative number");
                self.bad("labels.npy", "the label of node", id.into(), expected, label)
            }
            Error::Feature(Feature::Targets(TargetsError::BadTarget {
                id, column, value, expected, ..
            })) => StoreError::BadValue {
                path: self.file(&["targets.npy", "labels.npy"]),
                what: "a target of node",
                position: id.into(),
                expected: expected.into(),
                found: format!("{value} in column {column}"),
            }
            .into(),
            Error::LinkSplit(LinkSplitError::LinkOutOfRange { part, position, link, n_links }) => {
                let (file, expected) = (format!("{part}_links.npy"), format!("a link id below {n_links}"));
                self.bad(&file, "entry", position as u64, expected, stored_id(link))
            }
            Error::LinkSplit(LinkSplitError::RepeatedLink { position, link, first, second }) => {
                let (file, expected) =
                    (format!("{second}_links.npy"), "a link that occurs once in the split");
                self.bad(
                    &file,
                    "entry",
                    position as u64,
                    expected,
                    format!("{link}, as in {first}_links.npy"),
                )
            }
            Error::Feature(Feature::ZeroDim) => bad_dim(&self.file(&FEATURES), 0).into(),
            Error::Feature(Feature::TooManyColumns { dim, .. }) => bad_dim(&self.file(&FEATURES), dim).into(),
            Error::Feature(Feature::Sparse(SparseError::BadSparse { what, expected, got })) => {
                let file = self.file(&["features_indptr.npy"]);
                StoreError::Inconsistent { file, what, expected, got }.into()
            }
            Error::Feature(Feature::Sparse(SparseError::BadSparseRow { node, start, end, n_values })) => {
                let expected = format!("a range within 0 to {n_values} that does not decrease");
                let found = format!("{start} to {end}");
                self.bad("features_indptr.npy", "the values of row", node.0.into(), expected, found)
            }
            Error::Feature(Feature::Sparse(SparseError::ColumnOutOfRange { node, column, dim })) => {
                let expected = format!("a column below {dim}");
                self.bad("features_indices.npy", "a column of row", node.0.into(), expected, column)
            }
            other => other,
        }
    }
}

/// Formats an id. An id of 2^31 or more is formatted as a signed number, too: 32-bit ids are mapped as unsigned, so a
/// negative id in the file becomes a very large one.
pub(super) fn stored_id(id: u32) -> String {
    match id as i32 {
        signed @ ..0 => format!("{signed} ({id} as <u4)"),
        _ => id.to_string(),
    }
}
