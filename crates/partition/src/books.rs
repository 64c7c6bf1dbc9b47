use std::path::Path;
use std::sync::Arc;

use kiln_graph::{NodeId, NodeTypes, SharedArray};

use crate::{Error, PartitionBook, Place, Result};

/// The partition books of a graph: one for the nodes of each type, which count from 0 within their type.
///
/// All books have the same number of partitions. Cloning shares them. A graph with one type of nodes, `node`, has one book,
/// which converts into its books.
///
/// ```
/// use kiln_graph::{NodeId, NodeTypes};
/// use kiln_partition::{PartitionRow, Place, PartitionBooks};
/// let types = NodeTypes::new([("user", 2), ("item", 3)])?;
/// let book = PartitionBooks::from_parts(types, &[1, 0, 1, 0, 1], 2)?;
/// // Nodes 2 and 4 are the items of partition 1.
/// assert_eq!(book.place(NodeId(4)), Some(Place { part: 1, row: PartitionRow(1) }));
/// assert_eq!(book.of_type(1).n_owned(1), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PartitionBooks {
    types: Arc<NodeTypes>,
    books: Vec<Arc<PartitionBook>>,
    n_parts: usize,
}

impl PartitionBooks {
    /// Creates the books of these types from the book of each.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`] unless there is one book per type, all of them have the same number of partitions,
    /// and each has the number of nodes of its type.
    pub fn new(types: impl Into<Arc<NodeTypes>>, books: Vec<Arc<PartitionBook>>) -> Result<Self> {
        let types = types.into();
        require("the number of partition books", types.n_types(), books.len())?;
        // There is at least one type.
        let n_parts = books[0].n_parts();
        for (node_type, book) in books.iter().enumerate() {
            require("the number of partitions of a node type", n_parts, book.n_parts())?;
            let n_nodes = types.range(node_type).len();
            require("the number of nodes in the partition book of a node type", n_nodes, book.n_nodes())?;
        }
        Ok(Self { types, books, n_parts })
    }

    /// Creates the books in which partition `parts[v]` owns node `v` of the graph.
    ///
    /// # Errors
    /// Returns the errors of [`PartitionBook::from_parts`], and [`Error::BadParameter`] unless there is one entry per node.
    pub fn from_parts(types: impl Into<Arc<NodeTypes>>, parts: &[u16], n_parts: usize) -> Result<Self> {
        let types = types.into();
        require("the number of assigned nodes", types.n_nodes(), parts.len())?;
        let of_type = |node_type| {
            let nodes = types.range(node_type);
            let parts = &parts[nodes.start as usize..nodes.end as usize];
            PartitionBook::from_parts(parts, n_parts).map(Arc::new)
        };
        let books = (0..types.n_types()).map(of_type).collect::<Result<_>>()?;
        Self::new(types, books)
    }

    /// Returns the types of the nodes.
    pub fn types(&self) -> &Arc<NodeTypes> {
        &self.types
    }

    /// Returns the number of partitions, including empty ones.
    pub fn n_parts(&self) -> usize {
        self.n_parts
    }

    /// Returns the book of the nodes of a type.
    ///
    /// # Panics
    /// Panics if there is no such type.
    pub fn of_type(&self, node_type: usize) -> &Arc<PartitionBook> {
        &self.books[node_type]
    }

    /// Returns the partition of a node of the graph and its row among the partition's nodes of its type; `None` if the graph
    /// has no such node, or if a damaged file gives it an invalid new id.
    pub fn place(&self, node: NodeId) -> Option<Place> {
        let node_type = self.types.type_of(node)?;
        self.books[node_type].place(NodeId(node.0 - self.types.range(node_type).start))
    }

    /// Returns the first row of a partition whose node does not have the new id that the book of its type assigns to the
    /// row; `None` if all rows agree with the book. If the book is valid, the nodes then ascend.
    pub(crate) fn first_bad_row(&self, node_type: usize, part: usize, nodes: &[NodeId]) -> Option<BadRow> {
        let book = self.of_type(node_type);
        let first = self.types.range(node_type).start;
        let new_id_of = |node: NodeId| book.new_id(NodeId(node.0.checked_sub(first)?));
        let rows = nodes.iter().zip(book.owned(part)).enumerate();
        let mut rows = rows.map(|(row, (&node, new_id))| BadRow { row, new_id, node });
        rows.find(|BadRow { node, new_id, .. }| new_id_of(*node) != Some(*new_id))
    }

    /// Checks that the nodes of a type in a partition are those of the book, before the partition is sampled.
    pub(crate) fn check_rows(
        &self,
        node_type: usize,
        part: usize,
        nodes: &SharedArray<NodeId>,
    ) -> Result<()> {
        let Some(BadRow { row, new_id, node }) = self.first_bad_row(node_type, part, nodes) else {
            return Ok(());
        };
        Err(Error::BadBook {
            file: nodes.path().map(Path::to_owned),
            what: format!("the node of row {row}"),
            expected: format!("the node whose new id is {new_id}"),
            got: node.0,
        })
    }
}

/// A row whose node does not have the row's new id.
pub(crate) struct BadRow {
    pub(crate) row: usize,
    /// The new id of the row.
    pub(crate) new_id: u32,
    /// The node of the row.
    pub(crate) node: NodeId,
}

impl From<PartitionBook> for PartitionBooks {
    /// Returns the books of a graph with one type of nodes, `node`.
    fn from(book: PartitionBook) -> Self {
        let types = NodeTypes::new([("node", book.n_nodes())]);
        let types = types.expect("a partition book should have fewer than 2^32 nodes");
        Self { types: types.into(), n_parts: book.n_parts(), books: vec![Arc::new(book)] }
    }
}

impl From<&PartitionBook> for PartitionBooks {
    fn from(book: &PartitionBook) -> Self {
        book.clone().into()
    }
}

impl From<&Self> for PartitionBooks {
    fn from(books: &Self) -> Self {
        books.clone()
    }
}

fn require(what: &'static str, expected: usize, got: usize) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(Error::BadParameter { what, expected: expected.to_string(), got: got.to_string() }),
    }
}
