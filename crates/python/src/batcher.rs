//! Batchers whose batches are the arrays of Python: graphs, rows and targets, which the loader's threads make.

use std::sync::Arc;
use std::time::Instant;

use kiln::data::Dataset;
use kiln::feature::{EdgeFeatures, FeatureBuffer, FeatureStore, Targets};
use kiln::graph::{ColumnValues, EdgeColumns, EdgeId, GraphSchema, NodeId, Relations, SharedArray};
use kiln::loader::{BatchError, Batcher, FeatureRows, LinkBatch, LinkBatcher, SeedBatch, StageTimes};
use kiln::sample::{FrontierSampler, SampledBlocks, Scratch};

use crate::graph_arrays::{EdgesOfRelation, GraphArrays};

/// The arrays of a batch.
#[derive(Debug)]
pub(crate) struct BatchArrays {
    /// The subgraph, or the block of each layer, input layer first.
    pub(crate) graphs: Vec<GraphArrays>,
    /// The features of the nodes of the first graph by type, `[n_types]`; `None` for a type without features.
    pub(crate) x: Vec<Option<FeatureRows>>,
    /// The targets of nodes; `None` for a dataset without targets.
    pub(crate) y: Option<TargetRows>,
    /// The columns of the edges of each relation of each graph, `[n_graphs][n_relations]`.
    pub(crate) columns: Vec<Vec<Vec<ColumnRows>>>,
    /// The ids of the edges of each relation of each graph, `[n_graphs][n_relations]`.
    pub(crate) e_id: Vec<Vec<Vec<i64>>>,
    /// The positions of the batch's items in the list of the loader's items.
    pub(crate) input_id: Vec<i64>,
    /// For each seed, its node among the first nodes of the seeds' type.
    pub(crate) seed_index: Vec<i64>,
    /// The number of distinct seeds.
    pub(crate) n_seeds: usize,
    /// The pairs of links; `None` for loaders of nodes.
    pub(crate) pairs: Option<Pairs>,
}

/// The targets of nodes of the type that has targets.
#[derive(Debug)]
pub(crate) enum TargetRows {
    /// The class of each node; negative for a node without a class.
    Classes(Vec<i64>),
    /// The labels or numbers of each node, `[n, n_columns]`; NaN if missing.
    Values(Vec<f32>, usize),
}

/// The rows of edges in one column.
#[derive(Debug)]
pub(crate) struct ColumnRows {
    pub(crate) name: String,
    pub(crate) rows: ColumnBuffer,
    pub(crate) dim: usize,
}

/// The values of rows of edges.
#[derive(Debug)]
pub(crate) enum ColumnBuffer {
    Ints(Vec<i64>),
    Floats(FeatureBuffer),
}

/// The pairs of a batch of links, as positions of their nodes among the seeds of their types.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// The source of each pair: those of a link are the link itself, then its negatives.
    pub(crate) srcs: Vec<i64>,
    /// The destination of each pair.
    pub(crate) dsts: Vec<i64>,
    pub(crate) n_negatives: usize,
}

/// Makes the arrays of batches of nodes.
pub(crate) struct SubgraphBatcher {
    pub(crate) sampler: Arc<dyn FrontierSampler>,
    pub(crate) graph: Arc<Relations>,
    features: Vec<Option<Arc<dyn FeatureStore>>>,
    targets: Option<(usize, Targets)>,
    /// The given number of each edge, by relation; `None` for a relation whose edges have the order of their adjacency.
    origins: Vec<Option<SharedArray<i64>>>,
    /// True if the blocks of a batch are one graph.
    is_subgraph: bool,
}

impl SubgraphBatcher {
    pub(crate) fn new(
        data: &Dataset,
        origins: Vec<Option<SharedArray<i64>>>,
        sampler: Arc<dyn FrontierSampler>,
        is_subgraph: bool,
    ) -> Self {
        let targets = data.targets.as_ref().filter(|targets| targets.values.n_outputs() != 0);
        Self {
            sampler,
            graph: Arc::clone(&data.graph),
            features: data.features.clone(),
            targets: targets.map(|targets| (targets.node_type, targets.values.clone())),
            origins,
            is_subgraph,
        }
    }

    fn schema(&self) -> &GraphSchema {
        self.graph.schema()
    }

    fn sample(&self, seeds: SeedBatch, scratch: &mut Scratch) -> Result<BatchArrays, BatchError> {
        let key = seeds.key;
        let seeds = seeds.into_seeds(None)?;
        let SampledBlocks { blocks, seed_index } = self.sampler.sample_blocks(&seeds, key, scratch)?;
        let distinct = seeds.distinct(&seed_index);
        let graphs: Vec<GraphArrays> = match self.is_subgraph {
            true => vec![GraphArrays::new(&blocks, &distinct, self.schema())],
            false => {
                blocks.chunks(1).map(|block| GraphArrays::new(block, &distinct, self.schema())).collect()
            }
        };
        // The rows of seeds among all nodes are those among the nodes of their types if there is one type.
        let rows = rows_within_types(&distinct, self.schema());
        Ok(BatchArrays {
            graphs,
            x: Vec::new(),
            y: None,
            columns: Vec::new(),
            e_id: Vec::new(),
            input_id: Vec::new(),
            seed_index: seed_index.iter().map(|row| rows[row.index()]).collect(),
            n_seeds: distinct.len(),
            pairs: None,
        })
    }

    fn gather(&self, batch: &mut BatchArrays) -> Result<(), BatchError> {
        let first = &batch.graphs[0];
        for (store, nodes) in self.features.iter().zip(&first.nodes) {
            let rows = store.as_ref().map(|store| FeatureRows::gather(&**store, &nodes.numbers));
            batch.x.push(rows.transpose()?);
        }
        let last = &batch.graphs[batch.graphs.len() - 1];
        if let Some((node_type, targets)) = &self.targets {
            let nodes = &last.nodes[*node_type];
            // The targets of blocks are those of the last destinations.
            let n_rows = if self.is_subgraph { nodes.numbers.len() } else { nodes.n_of_hop[0] };
            batch.y = Some(target_rows(targets, &nodes.numbers[..n_rows])?);
        }
        for graph in &batch.graphs {
            let mut columns = Vec::with_capacity(graph.edges.len());
            let mut ids = Vec::with_capacity(graph.edges.len());
            for (relation, edges) in graph.edges.iter().enumerate() {
                columns.push(column_rows(self.graph.relation(relation).graph.columns(), edges)?);
                ids.push(given_ids(self.origins[relation].as_ref(), edges));
            }
            batch.columns.push(columns);
            batch.e_id.push(ids);
        }
        Ok(())
    }
}

impl Batcher for SubgraphBatcher {
    type Item = NodeId;
    type Batch = BatchArrays;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<BatchArrays, BatchError> {
        let start = Instant::now();
        let mut batch = self.sample(seeds, scratch)?;
        let sampled_at = Instant::now();
        self.gather(&mut batch)?;
        times.sample += sampled_at - start;
        times.gather += sampled_at.elapsed();
        Ok(batch)
    }

    fn n_bytes(batch: &BatchArrays) -> usize {
        let of_graphs = batch.graphs.iter().map(GraphArrays::n_bytes).sum::<usize>();
        let of_nodes = batch.x.iter().flatten().map(|rows| rows.x.n_bytes()).sum::<usize>();
        let of_edges = batch.columns.iter().flatten().flatten().map(|column| match &column.rows {
            ColumnBuffer::Ints(values) => size_of_val(&values[..]),
            ColumnBuffer::Floats(values) => values.n_bytes(),
        });
        of_graphs + of_nodes + of_edges.sum::<usize>()
    }
}

/// Makes batches of the nodes of a list. Their items are positions in the list, so that a batch knows them.
pub(crate) struct InputBatcher {
    pub(crate) nodes: SubgraphBatcher,
    pub(crate) inputs: SharedArray<NodeId>,
}

impl Batcher for InputBatcher {
    type Item = NodeId;
    type Batch = BatchArrays;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<BatchArrays, BatchError> {
        let positions = seeds.seeds;
        let nodes = positions.iter().map(|position| self.inputs[position.index()]).collect();
        let mut batch = self.nodes.batch(SeedBatch { seeds: nodes, ..seeds }, scratch, times)?;
        batch.input_id = positions.iter().map(|position| i64::from(position.0)).collect();
        Ok(batch)
    }

    fn n_bytes(batch: &BatchArrays) -> usize {
        SubgraphBatcher::n_bytes(batch)
    }
}

/// Makes batches of links.
pub(crate) struct PairBatcher {
    pub(crate) links: LinkBatcher<SubgraphBatcher>,
}

impl Batcher for PairBatcher {
    type Item = kiln::graph::LinkId;
    type Batch = BatchArrays;
    type Scratch = Scratch;

    fn batch(
        &self,
        links: SeedBatch<Self::Item>,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<BatchArrays, BatchError> {
        let LinkBatch { nodes, links, srcs, dsts, n_negatives, .. } =
            self.links.batch(links, scratch, times)?;
        let mut batch = nodes;
        batch.input_id = links.iter().map(|link| i64::from(link.0)).collect();
        let srcs = srcs.iter().map(|seed| batch.seed_index[*seed as usize]).collect();
        let dsts = dsts.iter().map(|seed| batch.seed_index[*seed as usize]).collect();
        batch.pairs = Some(Pairs { srcs, dsts, n_negatives });
        Ok(batch)
    }

    fn n_bytes(batch: &BatchArrays) -> usize {
        SubgraphBatcher::n_bytes(batch)
    }
}

/// Returns the position of each node among those of its type.
fn rows_within_types(nodes: &[NodeId], schema: &GraphSchema) -> Vec<i64> {
    let mut n_of_type = vec![0; schema.types().n_types()];
    let mut rows = Vec::with_capacity(nodes.len());
    for node in nodes {
        let node_type = schema.types().type_of(*node).expect("a sampler should return nodes of the graph");
        rows.push(n_of_type[node_type]);
        n_of_type[node_type] += 1;
    }
    rows
}

fn target_rows(targets: &Targets, nodes: &[NodeId]) -> Result<TargetRows, BatchError> {
    match targets {
        Targets::Classes(labels) => {
            let classes = labels.as_slice();
            Ok(TargetRows::Classes(nodes.iter().map(|node| i64::from(classes[node.index()])).collect()))
        }
        Targets::Values(values) => {
            let n_columns = values.n_columns();
            let mut rows = vec![f32::NAN; nodes.len() * n_columns];
            let mut row_of_one = Vec::new();
            for (row, node) in rows.chunks_mut(n_columns).zip(nodes) {
                if values.has_any(*node) {
                    values.gather(&[*node], &mut row_of_one)?;
                    row.copy_from_slice(&row_of_one);
                }
            }
            Ok(TargetRows::Values(rows, n_columns))
        }
    }
}

fn column_rows(columns: &EdgeColumns, edges: &EdgesOfRelation) -> Result<Vec<ColumnRows>, BatchError> {
    let mut all = Vec::new();
    for (name, column) in columns.iter() {
        let rows = match column.values() {
            ColumnValues::U8(values) => ColumnBuffer::Ints(picked(values, edges)),
            ColumnValues::I64(values) => ColumnBuffer::Ints(picked(values, edges)),
            _ => {
                let features = EdgeFeatures::try_from(column)?;
                let ids: Vec<EdgeId> = edges.numbers.iter().map(|number| EdgeId(*number)).collect();
                let mut rows = FeatureBuffer::empty(features.dtype());
                features.gather(&ids, &mut rows)?;
                ColumnBuffer::Floats(rows)
            }
        };
        all.push(ColumnRows { name: name.to_owned(), rows, dim: column.width() });
    }
    Ok(all)
}

fn picked<T: Copy + Into<i64>>(values: &[T], edges: &EdgesOfRelation) -> Vec<i64> {
    edges.numbers.iter().map(|number| values[*number as usize].into()).collect()
}

/// Returns the numbers of edges in the order in which they were given.
fn given_ids(origins: Option<&SharedArray<i64>>, edges: &EdgesOfRelation) -> Vec<i64> {
    match origins {
        Some(origins) => picked(origins, edges),
        None => edges.numbers.iter().map(|number| *number as i64).collect(),
    }
}
