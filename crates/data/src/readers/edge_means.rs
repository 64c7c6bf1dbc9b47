//! Node features that are the means of the features of each node's edges, for OGB's sets without node features
//! (ogbn-proteins). OGB's example programs compute them in the same way.

use std::path::{Path, PathBuf};

use kiln_store::Error as StoreError;
use kiln_store::check_count;
use kiln_store::text::TextTable;

use crate::Result;

/// The maximum number of features of an edge, so that the memory is limited by the number of nodes.
const MAX_COLUMNS: usize = 256;

/// The files of edges and of their features, which have a line for each edge in the same order.
#[derive(Debug, Clone)]
pub(crate) struct EdgeMeans {
    /// The file of the edges, `src,dst`.
    pub(crate) edges: PathBuf,
    /// The file of the edges' features.
    pub(crate) features: PathBuf,
    /// True if each edge counts for both of its ends, and otherwise for its destination only.
    pub(crate) is_symmetrized: bool,
}

/// The features of all nodes, row-major.
#[derive(Debug)]
pub(crate) struct MeanRows {
    pub(crate) values: Vec<f32>,
    pub(crate) dim: usize,
}

impl EdgeMeans {
    /// Returns the heap memory that [`EdgeMeans::read`] takes.
    pub(crate) fn heap_bytes(&self, n_nodes: usize) -> Result<u64> {
        let mut table = TextTable::open(&self.features)?;
        let dim = table.next_row()?.map_or(1, |row| row.n_fields()).min(MAX_COLUMNS);
        // A sum of 8 bytes and a feature of 4 for each value, and a count for each node.
        Ok(n_nodes as u64 * (12 * dim as u64 + 8))
    }

    /// Reads both files line by line. The row of a node without edges is zero.
    pub(crate) fn read(&self, n_nodes: usize) -> Result<MeanRows> {
        let (mut edges, mut rows) = (TextTable::open(&self.edges)?, TextTable::open(&self.features)?);
        let (mut sums, mut counts) = (Vec::new(), vec![0_u64; n_nodes]);
        let (mut dim, mut n_edges) = (1, 0_usize);
        while let Some(row) = rows.next_row()? {
            let Some(edge) = edges.next_row()? else {
                return Err(row.bad(0, &format!("no more than {n_edges} lines, one per edge")).into());
            };
            let expected = format!("two node ids below {n_nodes}");
            let end = |field| -> Result<usize> {
                let node: usize = edge.parse(field, &expected)?;
                match node < n_nodes && edge.n_fields() == 2 {
                    true => Ok(node),
                    false => Err(edge.bad(field, &expected).into()),
                }
            };
            let (src, dst) = (end(0)?, end(1)?);
            if n_edges == 0 {
                dim = row.n_fields();
                if MAX_COLUMNS < dim {
                    return Err(row
                        .bad(MAX_COLUMNS, &format!("at most {MAX_COLUMNS} features per edge"))
                        .into());
                }
                reserve(&mut sums, n_nodes * dim, &self.features)?;
            }
            let is_for_both = self.is_symmetrized && src != dst;
            let nodes = [Some(dst), is_for_both.then_some(src)];
            for node in nodes.iter().flatten() {
                counts[*node] += 1;
            }
            for field in 0..dim {
                const EXPECTED: &str = "a finite number";
                let value: f32 = row.parse(field, EXPECTED)?;
                if !value.is_finite() {
                    return Err(row.bad(field, EXPECTED).into());
                }
                for node in nodes.iter().flatten() {
                    sums[node * dim + field] += f64::from(value);
                }
            }
            n_edges += 1;
        }
        if edges.next_row()?.is_some() {
            check_count(&self.features, "the number of lines", n_edges + 1, n_edges)?;
        }
        reserve(&mut sums, n_nodes * dim, &self.features)?;
        let rows = sums.chunks_exact(dim).zip(&counts);
        let mean = |(row, count): (&[f64], &u64)| {
            let n = (*count).max(1) as f64;
            row.iter().map(move |sum| (sum / n) as f32).collect::<Vec<f32>>()
        };
        Ok(MeanRows { values: rows.flat_map(mean).collect(), dim })
    }
}

/// Extends the sums with zeros to `n_values`, or returns an error if they do not fit in memory.
fn reserve(sums: &mut Vec<f64>, n_values: usize, path: &Path) -> Result<()> {
    sums.try_reserve_exact(n_values - sums.len()).map_err(|_| {
        let what = format!("{n_values} sums of the edge features in {}", path.display());
        StoreError::OutOfMemory { what }
    })?;
    sums.resize(n_values, 0.0);
    Ok(())
}
