use crate::{Csc, CscBuilder, Duplicates, Result};

/// Returns the graph with the reverse of each edge added and duplicate edges removed, in memory. The reverse of an edge
/// has its weight and edge type. [`CscBuilder::symmetrize`] does the same for an edge list.
///
/// ```
/// use kiln_graph::{CscBuilder, NodeId, symmetrize};
/// let path = CscBuilder::new(3).build(&[0, 1], &[1, 2])?;
/// assert_eq!(symmetrize(&path)?.in_neighbors(NodeId(1)), [NodeId(0), NodeId(2)]);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`Csc::validate`], which is called because a mapped graph may not have been validated yet.
pub fn symmetrize(graph: &Csc) -> Result<Csc> {
    graph.validate()?;
    let srcs = graph.indices();
    let dsts = graph.dsts();
    let mut builder = CscBuilder::new(graph.n_nodes())
        .symmetrize()
        .duplicates(Duplicates::Remove)
        .columns(graph.columns().rows());
    if let Some(weights) = graph.weights() {
        builder = builder.weights(weights);
    }
    if let Some(types) = graph.edge_types() {
        builder = builder.edge_types(types);
    }
    builder.build(bytemuck::cast_slice(srcs), bytemuck::cast_slice(&dsts))
}
