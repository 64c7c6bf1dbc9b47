use std::sync::Arc;

use kiln_feature::FeatureBuffer;
use kiln_graph::{Block, EdgeColumns, EdgeTimes, GraphSchema, SharedArray};

use crate::{BatchError, EdgeRows};

/// The times of the nodes and edges of a graph, from which batches compute ages: the length of time between a node or an edge and
/// the time of the item in whose tree it is, as a fraction of a unit.
///
/// The time of an edge is that from which it passes messages ([`EdgeTimes`]). A node or an edge without a time has the age
/// [`Ages::UNKNOWN`], and so has one that is later than the item, such as an item that is predicted at an earlier time than its
/// own.
#[derive(Debug, Clone)]
pub struct Ages {
    schema: GraphSchema,
    /// The times of the nodes of each type, `[n_nodes_of_type]`; `None` for a type without ages.
    nodes: Vec<Option<SharedArray<i64>>>,
    /// The times of the edges of each relation, in the order of their ids; `None` for a relation without ages.
    edges: Vec<Option<EdgeTimes>>,
    unit: u64,
}

impl Ages {
    /// The age of a node or an edge without a time.
    pub const UNKNOWN: f32 = -1.0;

    /// Creates the ages of nodes and edges with these times, of each type and relation of a graph. `unit` is a length of time, at
    /// least 1, such as the one between the first and the last of all times.
    ///
    /// ```
    /// use kiln_graph::{CscBuilder, Relations};
    /// use kiln_loader::Ages;
    /// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?.with_edge_times(vec![3_i64, 8])?;
    /// let times = graph.edge_times().cloned();
    /// let schema = Relations::of_graph(graph).schema().clone();
    /// // Nodes have no times.
    /// let ages = Ages::new(schema, vec![None], vec![times], 10);
    /// # let _ = ages;
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if there is not one entry per type and relation, or if the unit is 0.
    pub fn new(
        schema: GraphSchema,
        nodes: Vec<Option<SharedArray<i64>>>,
        edges: Vec<Option<EdgeTimes>>,
        unit: u64,
    ) -> Self {
        let lens = [nodes.len(), edges.len()];
        let expected = [schema.types().n_types(), schema.relations().len()];
        assert_eq!(lens, expected, "got times of {lens:?} types and relations, expected {expected:?}");
        assert_ne!(unit, 0, "the unit of ages is 0");
        Self { schema, nodes, edges, unit }
    }

    /// Returns the ages of the sources of a block for each type, in the order of its nodes in the block; `None` for a type without
    /// ages.
    ///
    /// # Errors
    /// Returns [`BatchError::NoItemTimes`] for a block without the times of its sources, and [`BatchError::NoSuchNode`] for a node
    /// without a row.
    pub(crate) fn node_ages(&self, block: &Block) -> Result<Vec<Option<Vec<f32>>>, BatchError> {
        let src_times = block.src_times().ok_or(BatchError::NoItemTimes)?;
        let types = self.schema.types();
        let mut ages: Vec<Option<Vec<f32>>> = Vec::with_capacity(self.nodes.len());
        ages.extend(self.nodes.iter().map(|times| times.as_ref().map(|_| Vec::new())));
        for (&node, &time) in block.srcs().iter().zip(src_times) {
            let n_nodes = types.n_nodes();
            let (node_type, number) = types.locate(node).ok_or(BatchError::NoSuchNode { node, n_nodes })?;
            let (Some(of_type), Some(times)) = (&mut ages[node_type], &self.nodes[node_type]) else {
                continue;
            };
            let of_node = times.get(number.index()).ok_or(BatchError::NoSuchNode { node, n_nodes })?;
            of_type.push(self.age(*of_node, time));
        }
        Ok(ages)
    }

    /// Returns the ages of the edges of each block as rows of one column; `None` if no relation has ages.
    ///
    /// # Errors
    /// Returns [`BatchError::NoItemTimes`] for a block without the times of its sources, and
    /// [`kiln_feature::Error::EdgeOutOfRange`] for an edge without a time.
    pub(crate) fn edge_ages(&self, blocks: &[Block]) -> Result<Option<EdgeRows>, BatchError> {
        if self.edges.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut of_blocks = Vec::with_capacity(blocks.len());
        for block in blocks {
            of_blocks.push(FeatureBuffer::F32(self.block_ages(block)?));
        }
        Ok(Some(EdgeRows { name: Arc::from(EdgeColumns::AGES), blocks: of_blocks, dim: 1 }))
    }

    fn block_ages(&self, block: &Block) -> Result<Vec<f32>, BatchError> {
        // The destinations of a block are its first sources.
        let dst_times = block.src_times().ok_or(BatchError::NoItemTimes)?;
        let mut ages = Vec::with_capacity(block.n_edges());
        let n_rows = self.schema.n_edges();
        for (bounds, time) in block.indptr().windows(2).zip(dst_times) {
            for &edge in &block.edge_ids()[bounds[0] as usize..bounds[1] as usize] {
                if n_rows <= edge.0 {
                    return Err(kiln_feature::Error::EdgeOutOfRange { edge, n_rows }.into());
                }
                let relation = self.schema.relation_of(edge);
                ages.push(match &self.edges[relation] {
                    Some(times) => {
                        let row = edge.0 - self.schema.first_edge(relation).0;
                        self.age(times.times()[row as usize], *time)
                    }
                    None => Self::UNKNOWN,
                });
            }
        }
        Ok(ages)
    }

    /// Returns the age of a node or an edge at a time.
    fn age(&self, of_event: i64, time: i64) -> f32 {
        let is_known = ![EdgeTimes::ALWAYS, EdgeTimes::NEVER].contains(&of_event) && of_event <= time;
        if is_known { (time.abs_diff(of_event) as f64 / self.unit as f64) as f32 } else { Self::UNKNOWN }
    }
}

#[cfg(test)]
mod tests {
    use kiln_graph::{BlockParts, CscBuilder, EdgeId, LocalId, NodeId, Relations};

    use super::*;

    fn ages() -> Ages {
        let times = vec![3_i64, 8, EdgeTimes::ALWAYS];
        let graph = CscBuilder::new(3).build(&[0, 1, 2], &[2, 2, 2]).unwrap().with_edge_times(times).unwrap();
        let edges = vec![graph.edge_times().cloned()];
        let schema = Relations::of_graph(graph).schema().clone();
        Ages::new(schema, vec![Some(vec![5_i64, EdgeTimes::NEVER, i64::MIN + 1].into())], edges, 10)
    }

    fn block() -> Block {
        Block::new(BlockParts {
            srcs: [2, 0, 1].map(NodeId).to_vec(),
            indptr: vec![0, 3],
            indices: [1, 2, 0].map(LocalId).to_vec(),
            edge_ids: [0, 1, 2].map(EdgeId).to_vec(),
            ..BlockParts::default()
        })
    }

    #[test]
    fn ages_are_fractions_of_the_unit_and_unknown_without_a_time_before_the_item() {
        let at_7 = block().with_src_times(vec![7; 3]);
        let [of_edges] = &ages().edge_ages(std::slice::from_ref(&at_7)).unwrap().unwrap().blocks[..] else {
            panic!("there should be one block")
        };
        assert_eq!(of_edges.clone().into_f32(), [0.4, Ages::UNKNOWN, Ages::UNKNOWN]);
        let of_nodes = ages().node_ages(&at_7).unwrap();
        // The difference of the times of node 2 and the item has more than 63 bits.
        assert_eq!(of_nodes, [Some(vec![2_f32.powi(63) / 10.0, 0.2, Ages::UNKNOWN])]);
    }

    #[test]
    fn blocks_without_times_have_no_ages() {
        assert!(matches!(ages().node_ages(&block()), Err(BatchError::NoItemTimes)));
        assert!(matches!(ages().edge_ages(&[block()]), Err(BatchError::NoItemTimes)));
    }
}
