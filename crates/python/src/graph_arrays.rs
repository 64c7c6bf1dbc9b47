//! Sampled blocks as graphs of the form that PyG and DGL have: lists of nodes per type and of edges per relation.

use kiln::graph::{Block, GraphSchema, NodeId};

/// A sampled graph: one block, or the blocks of a subgraph together. Nodes and edges are in the order of the hops.
#[derive(Debug)]
pub(crate) struct GraphArrays {
    /// The nodes of each type, `[n_types]`.
    pub(crate) nodes: Vec<NodesOfType>,
    /// The edges of each relation, `[n_relations]`.
    pub(crate) edges: Vec<EdgesOfRelation>,
}

/// The nodes of one type.
#[derive(Debug, Default)]
pub(crate) struct NodesOfType {
    /// The nodes, numbered from 0 within the type. Destinations come first.
    pub(crate) numbers: Vec<NodeId>,
    /// The number of nodes that are destinations of the first hop, then those that each hop adds.
    pub(crate) n_of_hop: Vec<usize>,
}

/// The edges of one relation.
#[derive(Debug, Default)]
pub(crate) struct EdgesOfRelation {
    /// The position of each edge's source among the nodes of its type, then that of each edge's destination: `[2, n_edges]`.
    pub(crate) edge_index: Vec<i64>,
    /// The edges, numbered from 0 within the relation in the order of its adjacency.
    pub(crate) numbers: Vec<u64>,
    /// The number of edges that each hop picks.
    pub(crate) n_of_hop: Vec<usize>,
}

impl GraphArrays {
    /// Returns the graph of blocks, input layer first, each of whose sources are the destinations of the one before. `seeds` are
    /// the distinct seeds, for a graph without blocks.
    pub(crate) fn new(blocks: &[Block], seeds: &[NodeId], schema: &GraphSchema) -> Self {
        let srcs = blocks.first().map_or(seeds, Block::srcs);
        let bounds: Vec<usize> = match blocks.last() {
            Some(last) => {
                std::iter::once(last.n_dst()).chain(blocks.iter().rev().map(Block::n_src)).collect()
            }
            None => vec![seeds.len()],
        };
        let Numbered { nodes, locals } = number(srcs, &bounds, schema);
        let n_relations = schema.relations().len();
        let mut edges: Vec<EdgesOfRelation> = Vec::with_capacity(n_relations);
        edges.extend(n_edges(blocks, n_relations).into_iter().map(EdgesOfRelation::with_capacity));
        for block in blocks.iter().rev() {
            add_sources(block, &locals, schema, &mut edges);
        }
        for block in blocks.iter().rev() {
            add_destinations(block, &locals, &mut edges);
        }
        Self { nodes, edges }
    }

    /// Returns the size of the arrays in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        let of_nodes = self.nodes.iter().map(|nodes| size_of_val(&nodes.numbers[..])).sum::<usize>();
        let of_edges = self.edges.iter().map(|edges| size_of_val(&edges.edge_index[..]) / 2 * 3);
        of_nodes + of_edges.sum::<usize>()
    }
}

impl EdgesOfRelation {
    fn with_capacity(n_edges: usize) -> Self {
        Self {
            edge_index: Vec::with_capacity(2 * n_edges),
            numbers: Vec::with_capacity(n_edges),
            n_of_hop: Vec::new(),
        }
    }
}

/// Nodes by type.
struct Numbered {
    nodes: Vec<NodesOfType>,
    /// The position of each node among those of its type.
    locals: Vec<i64>,
}

fn number(srcs: &[NodeId], bounds: &[usize], schema: &GraphSchema) -> Numbered {
    let types = schema.types();
    let mut nodes: Vec<NodesOfType> = Vec::new();
    nodes.resize_with(types.n_types(), NodesOfType::default);
    let mut locals = Vec::with_capacity(srcs.len());
    let mut start = 0;
    for &end in bounds {
        for node in &srcs[start..end] {
            let (node_type, number) =
                types.locate(*node).expect("a sampler should return nodes of the graph");
            let of_type = &mut nodes[node_type].numbers;
            locals.push(of_type.len() as i64);
            of_type.push(number);
        }
        for of_type in &mut nodes {
            let n_before: usize = of_type.n_of_hop.iter().sum();
            of_type.n_of_hop.push(of_type.numbers.len() - n_before);
        }
        start = end;
    }
    Numbered { nodes, locals }
}

/// Returns the number of edges of each relation in all blocks.
fn n_edges(blocks: &[Block], n_relations: usize) -> Vec<usize> {
    let mut counts = vec![0; n_relations];
    for block in blocks {
        match block.edge_types() {
            Some(relations) if 1 < n_relations => {
                relations.iter().for_each(|relation| counts[usize::from(*relation)] += 1);
            }
            _ => counts[0] += block.n_edges(),
        }
    }
    counts
}

/// Returns the relation of an edge of a block. The types of the edges of a graph with one relation are others.
fn relation_of(block: &Block, edge: usize, n_relations: usize) -> usize {
    match block.edge_types() {
        Some(relations) if 1 < n_relations => usize::from(relations[edge]),
        _ => 0,
    }
}

/// Adds the sources and the numbers of a block's edges to those of their relations.
fn add_sources(block: &Block, locals: &[i64], schema: &GraphSchema, edges: &mut [EdgesOfRelation]) {
    let n_relations = edges.len();
    let n_before: Vec<usize> = edges.iter().map(|edges| edges.numbers.len()).collect();
    for (edge, (src, id)) in block.indices().iter().zip(block.edge_ids()).enumerate() {
        let relation = relation_of(block, edge, n_relations);
        let of_relation = &mut edges[relation];
        of_relation.edge_index.push(locals[src.index()]);
        of_relation.numbers.push(id.0 - schema.first_edge(relation).0);
    }
    for (of_relation, n_before) in edges.iter_mut().zip(n_before) {
        of_relation.n_of_hop.push(of_relation.numbers.len() - n_before);
    }
}

/// Adds the destinations of a block's edges behind the sources of all blocks.
fn add_destinations(block: &Block, locals: &[i64], edges: &mut [EdgesOfRelation]) {
    let n_relations = edges.len();
    for (dst, bounds) in block.indptr().windows(2).enumerate() {
        for edge in bounds[0] as usize..bounds[1] as usize {
            edges[relation_of(block, edge, n_relations)].edge_index.push(locals[dst]);
        }
    }
}
