//! Edge lists as other libraries store them: an array `[2, n_edges]`, or a table of two columns.

use std::path::{Path, PathBuf};

use kiln_graph::{Csc, CscBuilder};

use crate::arrays::Array;
use crate::npy::Order;
use crate::text::Table;
use crate::{Error, Result};

/// The edges of one graph. Every id is below the number of nodes that the list was read for.
#[derive(Debug, Default)]
pub(crate) struct Coo {
    /// Where each edge comes from, `[n_edges]`.
    srcs: Vec<u32>,
    /// Where each edge goes, `[n_edges]`.
    dsts: Vec<u32>,
}

impl Coo {
    /// The edges of an array whose first row is the sources and whose second row is the destinations. It may
    /// lie in any order: pairs that were transposed lie edge by edge.
    pub(crate) fn from_array(array: &Array, n_nodes: usize) -> Result<Self> {
        let &[2, n_edges] = array.shape() else {
            let what = format!("an edge list of shape {:?}", array.shape());
            let instead = "save it as (2, n_edges), the sources first".into();
            return Err(Error::Unsupported { path: array.path().to_owned(), what, instead });
        };
        let mut edges = Self { srcs: Vec::with_capacity(n_edges), dsts: Vec::with_capacity(n_edges) };
        array.for_each_integer(|position, id| {
            let (row, edge) = match array.order() {
                Order::Rows => (position / n_edges, position % n_edges),
                Order::Columns => (position % 2, position / 2),
            };
            let (ids, what) = match row {
                0 => (&mut edges.srcs, "the source of edge"),
                _ => (&mut edges.dsts, "the destination of edge"),
            };
            let Some(id) = node(id, n_nodes) else {
                return Err(array.bad_value(what, edge, expected_node(n_nodes), id));
            };
            ids.push(id);
            Ok(())
        })?;
        Ok(edges)
    }

    /// The edges of a text file with a line `src,dst` for each and no header.
    pub(crate) fn from_table(path: impl Into<PathBuf>, n_nodes: usize) -> Result<Self> {
        const EXPECTED: &str = "the two nodes of an edge, without a header";
        let mut table = Table::open(path)?;
        let mut edges = Self::default();
        while let Some(row) = table.next_row()? {
            if row.n_fields() != 2 {
                return Err(row.bad(row.n_fields(), EXPECTED));
            }
            for (field, ids) in [&mut edges.srcs, &mut edges.dsts].into_iter().enumerate() {
                let id = row.parse::<i64>(field, EXPECTED)?;
                let id = node(id.into(), n_nodes);
                ids.push(id.ok_or_else(|| row.bad(field, &expected_node(n_nodes)))?);
            }
        }
        Ok(edges)
    }

    /// Number of edges.
    pub(crate) fn n_edges(&self) -> usize {
        self.srcs.len()
    }

    /// The graph of these edges, in the order in which they stand. Parallel edges are kept.
    pub(crate) fn build(&self, builder: CscBuilder<'_>) -> Result<Csc> {
        Ok(builder.build(&self.srcs, &self.dsts)?)
    }
}

/// Checks that so many nodes have ids. `path` is what states the number.
pub(crate) fn check_n_nodes(path: &Path, n_nodes: u64) -> Result<usize> {
    let is_usable = n_nodes < u64::from(u32::MAX);
    usize::try_from(n_nodes).ok().filter(|_| is_usable).ok_or_else(|| Error::Metadata {
        path: path.to_owned(),
        key: "the number of nodes".into(),
        expected: format!("below {}: ids have 32 bits", u32::MAX),
        found: n_nodes.to_string(),
    })
}

fn node(id: i128, n_nodes: usize) -> Option<u32> {
    u32::try_from(id).ok().filter(|&id| (id as usize) < n_nodes)
}

fn expected_node(n_nodes: usize) -> String {
    format!("a node, 0 to {n_nodes} - 1")
}
