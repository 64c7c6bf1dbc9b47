use std::fmt;
use std::sync::Arc;

use kiln_feature::{Dense, FeatureSource, Labels, RowBuf};
use kiln_graph::{Csc, NodeId};

use crate::Names;

/// A graph with all that node classification needs. Cloning shares the arrays, but for the split.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the set is called on a command line.
    pub name: String,
    /// The topology.
    pub graph: Arc<Csc>,
    /// One row a node, `[n_nodes, dim]`.
    pub features: Arc<Dense>,
    /// One class a node, or none.
    pub labels: Arc<Labels>,
    /// Which labelled nodes to train and to judge on.
    pub split: Split,
    /// The nodes' names; empty for sets whose nodes have none.
    pub names: Arc<Names>,
    /// The classes' names, by class.
    pub class_names: Vec<String>,
    /// The edge types' names, by type; empty for graphs without edge types.
    pub edge_type_names: Vec<String>,
}

/// Three disjoint sets of labelled nodes, each ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// The nodes whose labels the loss reads.
    pub train: Vec<NodeId>,
    /// The nodes that choose the epoch and the settings.
    pub val: Vec<NodeId>,
    /// The nodes that are read once, at the end.
    pub test: Vec<NodeId>,
}

impl fmt::Display for Dataset {
    /// One line: the name and the sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, split) = (&self.graph, &self.split);
        write!(
            f,
            "{}: {} nodes, {} edges, {} features, {} classes; {} / {} / {} nodes to train, validate, test",
            self.name,
            graph.n_nodes(),
            graph.n_edges(),
            self.features.dim(),
            self.labels.n_classes(),
            split.train.len(),
            split.val.len(),
            split.test.len(),
        )
    }
}

impl Dataset {
    /// The same set with each feature column shifted and scaled to mean 0 and standard deviation 1, in
    /// 32-bit floats. A column of one value becomes 0.
    ///
    /// Mean and deviation are taken over all nodes, those of the validation and test parts too: features
    /// of all nodes are known when training starts (the transductive setting). No label is read.
    pub fn standardize(self) -> Self {
        let dim = self.features.dim();
        let n_rows = self.features.n_rows();
        let all: Vec<NodeId> = (0..n_rows as u32).map(NodeId).collect();
        let mut rows = RowBuf::empty(self.features.row_type());
        self.features.gather(&all, &mut rows).expect("ids below the number of rows should have rows");
        let mut values = rows.into_f32();
        let scaling = Scaling::of_columns(&values, dim);
        for row in values.chunks_exact_mut(dim) {
            for ((value, mean), factor) in row.iter_mut().zip(&scaling.means).zip(&scaling.factors) {
                *value = ((f64::from(*value) - mean) * factor) as f32;
            }
        }
        let features = Dense::from_f32(values, dim).expect("as many rows as before should be whole rows");
        Self { features: Arc::new(features), ..self }
    }
}

/// What takes each column to mean 0 and standard deviation 1.
struct Scaling {
    means: Vec<f64>,
    /// One over the standard deviation; 0 for a column of one value.
    factors: Vec<f64>,
}

impl Scaling {
    fn of_columns(values: &[f32], dim: usize) -> Self {
        let n_rows = (values.len() / dim).max(1) as f64;
        let mut means = vec![0.0; dim];
        for row in values.chunks_exact(dim) {
            for (mean, &value) in means.iter_mut().zip(row) {
                *mean += f64::from(value) / n_rows;
            }
        }
        let mut variances = vec![0.0; dim];
        for row in values.chunks_exact(dim) {
            for ((variance, &value), mean) in variances.iter_mut().zip(row).zip(&means) {
                *variance += (f64::from(value) - mean).powi(2) / n_rows;
            }
        }
        // Whether a column varies is read from the values: a rounded mean gives it a variance of its own.
        let first: Vec<f32> = values.iter().take(dim).copied().collect();
        let mut varies = vec![false; dim];
        for row in values.chunks_exact(dim) {
            for ((varies, value), first) in varies.iter_mut().zip(row).zip(&first) {
                *varies |= value != first;
            }
        }
        let factor = |(&variance, &varies): (&f64, &bool)| if varies { 1.0 / variance.sqrt() } else { 0.0 };
        let factors = variances.iter().zip(&varies).map(factor).collect();
        Self { means, factors }
    }
}
