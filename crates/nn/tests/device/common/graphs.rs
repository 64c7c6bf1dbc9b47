//! Batches of small graphs, and a reference implementation of GIN in f64.

use std::collections::HashMap;

use burn::tensor::Device;
use kiln_graph::{Block, BlockParts, EdgeId, GraphId, LocalId, NodeId};
use kiln_kernels::DeviceGraphs;
use kiln_nn::{Aggregate, Readout};

/// A graph, as the list of sources of each node.
pub(crate) type Graph = Vec<Vec<u32>>;

/// Returns five graphs: a triangle with a pendant node, a single node, a graph without nodes, two nodes of which one
/// has a self-loop and two parallel edges, and three nodes without edges.
pub(crate) fn five() -> Vec<Graph> {
    vec![
        vec![vec![1, 2], vec![0, 2], vec![0, 1, 3], vec![2]],
        vec![vec![]],
        vec![],
        vec![vec![1], vec![0, 0, 1]],
        vec![vec![], vec![], vec![]],
    ]
}

/// Returns the graphs' edges as one block, and the start of each graph's nodes.
pub(crate) fn block_diagonal(graphs: &[Graph]) -> (Block, Vec<u32>) {
    let (mut offsets, mut indptr, mut indices) = (vec![0], vec![0], Vec::new());
    for graph in graphs {
        let start = offsets[offsets.len() - 1];
        for srcs in graph {
            indices.extend(srcs.iter().map(|src| LocalId(start + src)));
            indptr.push(indices.len() as u32);
        }
        offsets.push(start + graph.len() as u32);
    }
    let block = Block::new(BlockParts {
        srcs: (0..offsets[offsets.len() - 1]).map(NodeId).collect(),
        indptr,
        edge_ids: (0..indices.len() as u64).map(EdgeId).collect(),
        indices,
        ..BlockParts::default()
    });
    (block, offsets)
}

/// Uploads the graphs to a device, with the ids 100, 101, and so on.
pub(crate) fn upload(graphs: &[Graph], device: &Device) -> DeviceGraphs {
    let items: Vec<GraphId> = (0..graphs.len() as u32).map(|graph| GraphId(100 + graph)).collect();
    let (block, offsets) = block_diagonal(graphs);
    DeviceGraphs::upload(&block, &offsets, &items, device)
}

/// A matrix as a list of rows.
pub(crate) type Rows = Vec<Vec<f64>>;

/// The reference model: its parameters by name, and its settings.
#[derive(Debug)]
pub(crate) struct PlainGin {
    pub(crate) parameters: HashMap<String, Vec<f64>>,
    /// The epsilon of every layer, if epsilon is not a parameter.
    pub(crate) fixed_epsilon: f64,
    pub(crate) aggregate: Aggregate,
    pub(crate) readout: Readout,
    /// True if rows are normalised by the statistics of the batch, false if by the running statistics.
    pub(crate) by_batch: bool,
}

impl PlainGin {
    /// Returns the scores of each graph.
    pub(crate) fn forward(&self, graphs: &[Graph], x: Rows) -> Rows {
        let (block, offsets) = block_diagonal(graphs);
        let pool = |x: &Rows| -> Rows {
            let of_graph = |range: &[u32]| x[range[0] as usize..range[1] as usize].to_vec();
            let width = x.first().map_or(0, Vec::len);
            offsets.windows(2).map(|range| self.pooled(&of_graph(range), width)).collect()
        };
        let mut hidden = vec![x];
        for i in 0.. {
            let layer = format!("layers.{i}.conv.");
            if !self.has(&format!("{layer}mlp.linears.0.weight")) {
                break;
            }
            let out = self.conv(&layer, &block, &hidden[i]);
            let is_last = !self.has(&format!("layers.{}.conv.mlp.linears.0.weight", i + 1));
            let gives_scores = is_last && !self.has("heads.0.weight");
            let out = self.norm(&format!("layers.{i}.norm."), out);
            hidden.push(if gives_scores { out } else { relu(out) });
        }
        let n_heads = (0..).take_while(|k| self.has(&format!("heads.{k}.weight"))).count();
        if n_heads == 0 {
            return pool(&hidden[hidden.len() - 1]);
        }
        let read = &hidden[hidden.len() - n_heads..];
        let scores = read.iter().enumerate().map(|(k, x)| self.linear(&format!("heads.{k}."), &pool(x)));
        scores.reduce(|one, other| add(&one, &other)).unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    fn conv(&self, layer: &str, block: &Block, x: &Rows) -> Rows {
        let learned = self.parameters.get(&format!("{layer}epsilon"));
        let factor = 1.0 + learned.map_or(self.fixed_epsilon, |epsilon| epsilon[0]);
        let width = x.first().map_or(0, Vec::len);
        let mut rows = Vec::new();
        for (dst, edges) in block.indptr().windows(2).enumerate() {
            let srcs = &block.indices()[edges[0] as usize..edges[1] as usize];
            let gathered: Rows = srcs.iter().map(|src| x[src.index()].clone()).collect();
            let gathered = reduce(&gathered, width, self.aggregate);
            rows.push(x[dst].iter().zip(gathered).map(|(own, others)| factor * own + others).collect());
        }
        for j in 0.. {
            let next = format!("{layer}mlp.linears.{}.weight", j + 1);
            rows = self.linear(&format!("{layer}mlp.linears.{j}."), &rows);
            if !self.has(&next) {
                return rows;
            }
            rows = relu(self.norm(&format!("{layer}mlp.norms.{j}."), rows));
        }
        rows
    }

    fn linear(&self, name: &str, x: &Rows) -> Rows {
        let [weight, bias] = ["weight", "bias"].map(|part| &self.parameters[&format!("{name}{part}")]);
        let cell = |row: &Vec<f64>, column: usize| {
            let products = row.iter().enumerate().map(|(k, value)| value * weight[k * bias.len() + column]);
            products.sum::<f64>() + bias[column]
        };
        x.iter().map(|row| (0..bias.len()).map(|column| cell(row, column)).collect()).collect()
    }

    fn norm(&self, name: &str, x: Rows) -> Rows {
        let part = |part: &str| self.parameters.get(&format!("{name}{part}"));
        let (Some(gamma), Some(beta)) = (part("gamma"), part("beta")) else { return x };
        let n_rows = x.len() as f64;
        let mut out = x.clone();
        for column in 0..gamma.len() {
            let mut mean = part("running_mean").expect("a norm should have a mean")[column];
            let mut variance = part("running_var").expect("a norm should have a variance")[column];
            if self.by_batch {
                mean = x.iter().map(|row| row[column]).sum::<f64>() / n_rows;
                variance = x.iter().map(|row| (row[column] - mean).powi(2)).sum::<f64>() / n_rows;
            }
            for row in &mut out {
                row[column] = (row[column] - mean) / (variance + 1e-5).sqrt() * gamma[column] + beta[column];
            }
        }
        out
    }

    fn pooled(&self, x: &Rows, width: usize) -> Vec<f64> {
        let aggregate = match self.readout {
            Readout::Sum => Aggregate::Sum,
            Readout::Mean => Aggregate::Mean,
            Readout::Max => Aggregate::Max,
        };
        reduce(x, width, aggregate)
    }
}

fn reduce(rows: &Rows, width: usize, aggregate: Aggregate) -> Vec<f64> {
    let column = |column: usize| {
        let values = rows.iter().map(|row| row[column]);
        match aggregate {
            Aggregate::Sum => values.sum(),
            Aggregate::Mean => values.sum::<f64>() / rows.len().max(1) as f64,
            Aggregate::Max => values.reduce(f64::max).unwrap_or(0.0),
        }
    };
    (0..width).map(column).collect()
}

fn relu(x: Rows) -> Rows {
    x.into_iter().map(|row| row.into_iter().map(|value| value.max(0.0)).collect()).collect()
}

fn add(one: &Rows, other: &Rows) -> Rows {
    let row = |(one, other): (&Vec<f64>, &Vec<f64>)| one.iter().zip(other).map(|(a, b)| a + b).collect();
    one.iter().zip(other).map(row).collect()
}
