//! Writing feature rows in their stored element type, in chunks.

use kiln_data::Layout;
use kiln_data::graph_folder::{
    RowFiles, check_gathered, column_element, push_rows, row_element_type, start_column,
};
use kiln_feature::{FeatureBuffer, FeatureStore, SparseFeatures};
use kiln_graph::{Csc, EdgeColumn, NodeId};
use kiln_store::array_folder::{ElementType, FolderWriter};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::Result;

/// The maximum number of elements in a chunk, unless a single row has more.
const VALUES_AT_ONCE: usize = 1 << 16;

/// Writes the feature rows of `nodes`, in the order of `nodes`, which must be finite. `name` is that of the nodes in messages.
pub(crate) fn put_rows(
    folder: &mut FolderWriter,
    files: &RowFiles,
    features: &dyn FeatureStore,
    nodes: &[NodeId],
    name: &str,
) -> Result<()> {
    if let Some(sparse) = features.as_sparse() {
        return put_sparse(folder, files, sparse, nodes, name);
    }
    let progress = Progress::start("writing features", ProgressUnit::Rows, nodes.len() as u64);
    let dim = features.dim();
    let mut array = folder.rows(files.dense.clone(), row_element_type(features.dtype())?, dim)?;
    let mut rows = FeatureBuffer::empty(features.dtype());
    for nodes in nodes.chunks((VALUES_AT_ONCE / dim).max(1)) {
        features.gather(nodes, &mut rows)?;
        check_gathered(&rows, nodes, dim, name)?;
        push_rows(&mut array, &rows)?;
        progress.advance(nodes.len() as u64);
    }
    Ok(folder.add(array)?)
}

/// Writes the rows of the edges into `nodes` in a column, in the order of `nodes`. The graph must be valid.
pub(crate) fn put_column(
    folder: &mut FolderWriter,
    layout: Layout,
    relation: usize,
    name: &str,
    column: &EdgeColumn,
    graph: &Csc,
    nodes: &[NodeId],
) -> Result<()> {
    let element = column_element(column)?;
    let mut array = start_column(folder, layout, relation, name, element, column.width())?;
    let row_bytes = column.row_bytes();
    for &node in nodes {
        let first = graph.first_edge(node).index() * row_bytes;
        array.push_bytes(&column.as_bytes()[first..][..graph.in_degree(node) as usize * row_bytes])?;
    }
    Ok(folder.add(array)?)
}

fn put_sparse(
    folder: &mut FolderWriter,
    files: &RowFiles,
    sparse: &SparseFeatures,
    nodes: &[NodeId],
    name: &str,
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
        let of_node = &sparse.values()[range];
        if of_node.iter().any(|value| !value.is_finite()) {
            check_gathered(&FeatureBuffer::F32(of_node.to_vec()), &[node], of_node.len(), name)?;
        }
        values.push(of_node)?;
    }
    for array in [indptr, columns, values] {
        folder.add(array)?;
    }
    Ok(())
}
