use crate::{
    Block, Error, LocalId, Metagraph, NodeId, NodeTypes, RelationEdgesError, Result, SchemaError,
    TransposedBlock,
};

/// The edges of a block grouped by the type of the destination, the destination and the relation, so that layers with a
/// matrix per relation aggregate all relations in one pass and multiply them by one matrix per type.
///
/// A destination has one segment for itself, whose only entry is the destination's own row, and one for each relation into
/// its type, in the order of the relations, which may be empty. The destinations are ordered by type and, within a type, as
/// in the block. So the aggregates of the segments of a type are the rows of one matrix, with the own row and the
/// aggregates of all relations of a destination side by side.
///
/// ```text
/// destinations [a0, b0, a1] of the types a and b, relations 0 and 1 into a, none into b:
///   segments   a0 itself, a0 by 0, a0 by 1, a1 itself, a1 by 0, a1 by 1, b0 itself
///   order      [0, 2, 1]
/// ```
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u32` | `n_segments + 1` | segment; its entries are `indptr[s]..indptr[s + 1]` |
/// | `indices` | [`LocalId`] | `n_edges + n_dst` | entry; its source in the block |
/// | `weights` | `f32` | `n_edges + n_dst` | the same; the edge's weight, 1 for own rows; `None` without weights in the block |
/// | `order` | `u32` | `n_dst` | destination of the block; its row in the order by type; `None` if the orders are equal |
#[derive(Debug, Clone, PartialEq)]
pub struct RelationGroups {
    parts: RelationGroupParts,
}

/// The arrays of [`RelationGroups`]; see its table.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationGroupParts {
    /// The number of sources of the block.
    pub n_src: usize,
    /// The destinations of each type.
    pub types: Vec<TypeGroup>,
    /// The offsets of the entries by segment.
    pub indptr: Vec<u32>,
    /// The source of each entry.
    pub indices: Vec<LocalId>,
    /// The weight of each entry; `None` if the block has no weights.
    pub weights: Option<Vec<f32>>,
    /// The row of each destination in the order by type; `None` if that is the order of the block.
    pub order: Option<Vec<u32>>,
    /// The groups of the block's sources and of its destinations as nodes; `None` unless
    /// [`RelationGroups::with_nodes`] has added them.
    pub nodes: Option<Box<[RelationGroups; 2]>>,
    /// The entries and rows by source, once [`RelationGroups::transpose`] has built them.
    pub transposed: Option<TransposedGroups>,
}

/// The destinations of one type in [`RelationGroups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeGroup {
    /// The number of destinations of the type.
    pub n_dst: usize,
    /// The number of segments of each destination: one more than the number of relations into the type.
    pub n_segments: usize,
}

/// The transposed arrays of [`RelationGroups`], for the backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransposedGroups {
    /// The entries by source; segments are the destinations.
    pub segments: TransposedBlock,
    /// The destinations by their row in the order by type; `None` if that is the order of the block.
    pub order: Option<TransposedBlock>,
}

impl RelationGroups {
    /// Groups the edges of a block. Their types in the block are their relations. A block without edge types is accepted if
    /// there is at most one relation. The types of the sources are not checked.
    ///
    /// It takes time proportional to the numbers of edges and segments. Ranges of the block's edges are copied, and only the
    /// destinations are sorted, because samplers return the edges of a destination in the order of the relations.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] if `types` and `metagraph` differ in the number of types,
    /// [`RelationEdgesError::NoEdgeTypes`] if the block has no edge types, [`SchemaError::NodeWithoutType`] for a
    /// destination that is not in `types`, [`RelationEdgesError::RelationOrder`] unless the edges of each destination are
    /// in the order of the relations into its type, and [`Error::TooMany`] for 2^31 or more segments or entries.
    pub fn new(block: &Block, types: &NodeTypes, metagraph: &Metagraph) -> Result<Self> {
        let expected = metagraph.n_types() as u64;
        let got = types.n_types() as u64;
        if expected != got {
            return Err(Error::LengthMismatch { what: "the list of node types", expected, got });
        }
        if block.edge_types().is_none() && 1 < metagraph.n_relations() {
            return Err(RelationEdgesError::NoEdgeTypes.into());
        }
        let relations: Vec<Vec<usize>> =
            (0..types.n_types()).map(|dst_type| metagraph.relations_into(dst_type).collect()).collect();
        let (groups, order) = group_by_type(block.dsts(), types, &relations)?;
        let n_segments: u64 = groups.iter().map(|group| group.n_dst as u64 * group.n_segments as u64).sum();
        let n_entries = block.n_edges() as u64 + block.n_dst() as u64;
        for (what, n) in [("segments of a block", n_segments), ("edges of a block", n_entries)] {
            let max = i32::MAX as u64;
            if max < n {
                return Err(Error::TooMany { what, n, max });
            }
        }
        let mut filled = Filled::new(block, n_segments as usize);
        let mut dsts = order.iter().copied();
        for (group, relations) in groups.iter().zip(&relations) {
            for dst in dsts.by_ref().take(group.n_dst) {
                filled.push(block, dst, relations)?;
            }
        }
        let Filled { indptr, indices, weights } = filled;
        let types = groups;
        let n_src = block.n_src();
        let order = inverse(&order);
        let nodes = None;
        let transposed = None;
        Ok(Self {
            parts: RelationGroupParts { n_src, types, indptr, indices, weights, order, nodes, transposed },
        })
    }

    /// Groups nodes by type: each node has only the segment for itself, so that layers multiply the rows of the nodes by the
    /// matrices of their types. The sources are the nodes, too.
    ///
    /// # Errors
    /// Returns [`SchemaError::NodeWithoutType`] for a node that is not in `types`.
    pub fn of_nodes(nodes: &[NodeId], types: &NodeTypes) -> Result<Self> {
        let (types, by_type) = group_by_type(nodes, types, &vec![Vec::new(); types.n_types()])?;
        let n_src = nodes.len();
        let indptr = (0..=nodes.len() as u32).collect();
        let order = inverse(&by_type);
        let indices = by_type.into_iter().map(LocalId).collect();
        let weights = None;
        let nodes = None;
        let transposed = None;
        Ok(Self {
            parts: RelationGroupParts { n_src, types, indptr, indices, weights, order, nodes, transposed },
        })
    }

    /// Adds the groups of the sources and of the destinations as nodes, which attention layers need. The block is that of
    /// [`RelationGroups::new`].
    ///
    /// # Errors
    /// Returns [`SchemaError::NodeWithoutType`] for a node that is not in `types`.
    pub fn with_nodes(mut self, block: &Block, types: &NodeTypes) -> Result<Self> {
        let [srcs, dsts] = [block.srcs(), block.dsts()].map(|nodes| Self::of_nodes(nodes, types));
        self.parts.nodes = Some(Box::new([srcs?, dsts?]));
        Ok(self)
    }

    /// Returns the number of destinations.
    pub fn n_dst(&self) -> usize {
        self.parts.types.iter().map(|group| group.n_dst).sum()
    }

    /// Returns the number of segments.
    pub fn n_segments(&self) -> usize {
        self.parts.indptr.len() - 1
    }

    /// Returns the arrays.
    pub fn parts(&self) -> &RelationGroupParts {
        &self.parts
    }

    /// Returns the arrays without a copy.
    pub fn into_parts(self) -> RelationGroupParts {
        self.parts
    }

    /// Builds and caches the transposed arrays, unless they are cached already. Loader workers call it in advance, so that
    /// the backward pass does not wait for it.
    pub fn transpose(&mut self) {
        let RelationGroupParts { n_src, indptr, indices, order, nodes, transposed, .. } = &mut self.parts;
        nodes.iter_mut().flat_map(|nodes| nodes.iter_mut()).for_each(Self::transpose);
        transposed.get_or_insert_with(|| {
            let order = order.as_ref().map(|order: &Vec<u32>| {
                let each: Vec<u32> = (0..=order.len() as u32).collect();
                let rows: Vec<_> = order.iter().copied().map(LocalId).collect();
                TransposedBlock::of_edges(&each, &rows, rows.len())
            });
            TransposedGroups { segments: TransposedBlock::of_edges(indptr, indices, *n_src), order }
        });
    }

    /// Returns the memory of the arrays in bytes: the capacities of their vectors, plus the cached transposed arrays.
    pub fn n_bytes(&self) -> usize {
        let RelationGroupParts { types, indptr, indices, weights, order, nodes, transposed, .. } =
            &self.parts;
        types.capacity() * size_of::<TypeGroup>()
            + indptr.capacity() * size_of::<u32>()
            + indices.capacity() * size_of::<LocalId>()
            + weights.as_ref().map_or(0, |weights| weights.capacity() * size_of::<f32>())
            + order.as_ref().map_or(0, |order| order.capacity() * size_of::<u32>())
            + transposed.as_ref().map_or(0, |TransposedGroups { segments, order }: &TransposedGroups| {
                segments.n_bytes() + order.as_ref().map_or(0, TransposedBlock::n_bytes)
            })
            + nodes.iter().flat_map(|nodes| nodes.iter()).map(Self::n_bytes).sum::<usize>()
    }
}

/// Returns the numbers of nodes of each type, and the nodes ordered by type, by a stable counting sort.
fn group_by_type(
    nodes: &[NodeId],
    types: &NodeTypes,
    relations: &[Vec<usize>],
) -> Result<(Vec<TypeGroup>, Vec<u32>)> {
    let group = |relations: &Vec<usize>| TypeGroup { n_dst: 0, n_segments: 1 + relations.len() };
    let mut groups: Vec<TypeGroup> = relations.iter().map(group).collect();
    let mut dst_types = Vec::with_capacity(nodes.len());
    for &node in nodes {
        let unknown = Error::Schema(SchemaError::NodeWithoutType { node: node.0, n_nodes: types.n_nodes() });
        let dst_type = types.type_of(node).ok_or(unknown)?;
        groups[dst_type].n_dst += 1;
        dst_types.push(dst_type);
    }
    let mut n_before = 0;
    let first_rows = groups.iter().map(|group| {
        n_before += group.n_dst;
        n_before - group.n_dst
    });
    let mut next: Vec<usize> = first_rows.collect();
    let mut order = vec![0; dst_types.len()];
    for (dst, &dst_type) in dst_types.iter().enumerate() {
        order[next[dst_type]] = dst as u32;
        next[dst_type] += 1;
    }
    Ok((groups, order))
}

/// Returns the position of each value of a permutation; `None` for the identity.
fn inverse(permutation: &[u32]) -> Option<Vec<u32>> {
    if permutation.is_sorted() {
        return None;
    }
    let mut positions = vec![0; permutation.len()];
    for (position, &value) in permutation.iter().enumerate() {
        positions[value as usize] = position as u32;
    }
    Some(positions)
}

/// The arrays by segment while they are filled.
struct Filled {
    indptr: Vec<u32>,
    indices: Vec<LocalId>,
    weights: Option<Vec<f32>>,
}

impl Filled {
    fn new(block: &Block, n_segments: usize) -> Self {
        let n_entries = block.n_edges() + block.n_dst();
        let mut indptr = Vec::with_capacity(n_segments + 1);
        indptr.push(0);
        let weights = block.weights().map(|_| Vec::with_capacity(n_entries));
        Self { indptr, indices: Vec::with_capacity(n_entries), weights }
    }

    /// Appends the segments of a destination.
    fn push(&mut self, block: &Block, dst: u32, relations: &[usize]) -> Result<()> {
        self.indices.push(LocalId(dst));
        if let Some(weights) = &mut self.weights {
            weights.push(1.0);
        }
        self.indptr.push(self.indices.len() as u32);
        let ends = &block.indptr()[dst as usize..][..2];
        let mut edge = ends[0] as usize;
        let end = ends[1] as usize;
        for &relation in relations {
            let first = edge;
            while edge < end && relation_of(block, edge) == relation {
                edge += 1;
            }
            self.indices.extend_from_slice(&block.indices()[first..edge]);
            if let (Some(weights), Some(of_edges)) = (&mut self.weights, block.weights()) {
                weights.extend_from_slice(&of_edges[first..edge]);
            }
            self.indptr.push(self.indices.len() as u32);
        }
        if edge < end {
            let node = block.dsts()[dst as usize].0;
            let relation = relation_of(block, edge);
            return Err(RelationEdgesError::RelationOrder { edge, relation, node }.into());
        }
        Ok(())
    }
}

fn relation_of(block: &Block, edge: usize) -> usize {
    block.edge_types().map_or(0, |types| usize::from(types[edge]))
}
