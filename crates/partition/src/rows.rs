//! Writing feature rows in their stored element type, in chunks.

use std::borrow::Cow;

use kiln_data::graph_folder::{RowFiles, push_rows, row_element_type};
use kiln_feature::{EdgeFeatures, FeatureBuffer, FeatureStore, SparseFeatures};
use kiln_graph::{Csc, EdgeId, NodeId};
use kiln_store::array_folder::{ElementType, FolderWriter};

use crate::Result;

/// The maximum number of elements in a chunk, unless a single row has more.
const VALUES_AT_ONCE: usize = 1 << 16;

/// Writes the feature rows of `nodes`, in the order of `nodes`.
pub(crate) fn put_rows(
    folder: &mut FolderWriter,
    files: &RowFiles,
    features: &dyn FeatureStore,
    nodes: &[NodeId],
) -> Result<()> {
    if let Some(sparse) = features.as_sparse() {
        return put_sparse(folder, files, sparse, nodes);
    }
    let dim = features.dim();
    let mut array = folder.rows(files.dense.clone(), row_element_type(features.dtype())?, dim)?;
    let mut rows = FeatureBuffer::empty(features.dtype());
    for nodes in nodes.chunks((VALUES_AT_ONCE / dim).max(1)) {
        features.gather(nodes, &mut rows)?;
        push_rows(&mut array, &rows)?;
    }
    Ok(folder.add(array)?)
}

/// Writes the feature rows of the edges into `nodes`, in the order of `nodes`.
pub(crate) fn put_edge_rows(
    folder: &mut FolderWriter,
    file: Cow<'static, str>,
    features: &EdgeFeatures,
    graph: &Csc,
    nodes: &[NodeId],
) -> Result<()> {
    let dim = features.dim();
    let mut array = folder.rows(file, row_element_type(features.dtype())?, dim)?;
    let (mut edges, mut rows) = (Vec::new(), FeatureBuffer::empty(features.dtype()));
    let edges_at_once = (VALUES_AT_ONCE / dim).max(1);
    let mut put = |edges: &mut Vec<EdgeId>| -> Result<()> {
        features.gather(edges, &mut rows)?;
        edges.clear();
        Ok(push_rows(&mut array, &rows)?)
    };
    for &node in nodes {
        let first = graph.first_edge(node).0;
        for edge in first..first + graph.in_degree(node) {
            edges.push(EdgeId(edge));
            if edges.len() == edges_at_once {
                put(&mut edges)?;
            }
        }
    }
    put(&mut edges)?;
    Ok(folder.add(array)?)
}

fn put_sparse(
    folder: &mut FolderWriter,
    files: &RowFiles,
    sparse: &SparseFeatures,
    nodes: &[NodeId],
) -> Result<()> {
    let [indptr_file, columns_file, values_file] = files.sparse.clone();
    let mut indptr = folder.vector(indptr_file, ElementType::U64)?;
    let mut columns = folder.vector(columns_file, ElementType::U32)?;
    let mut values = folder.vector(values_file, ElementType::F32)?;
    let mut end = 0_u64;
    indptr.push(&[end])?;
    for &node in nodes {
        let range = sparse.value_range(node)?;
        end += range.len() as u64;
        indptr.push(&[end])?;
        columns.push(&sparse.columns()[range.clone()])?;
        values.push(&sparse.values()[range])?;
    }
    for array in [indptr, columns, values] {
        folder.add(array)?;
    }
    Ok(())
}
