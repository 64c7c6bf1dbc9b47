use kiln_comm::Communicator;
use kiln_feature::{FeatureBuffer, FeatureStore, Labels};
use kiln_graph::{ItemId, NodeId};

use crate::error::{Error, Result};
use crate::evaluate::metrics::{Confusion, ConfusionMatrix, Metrics, roc_auc};
use crate::step::classification::Prediction;
use crate::step::classification::predicted_class;
use crate::step::metric_sums::MetricSums;
use crate::step::task::StepOutput;

/// Nodes whose rows are held at once where only counts are asked for.
const NODES_AT_ONCE: usize = 4096;

/// The outputs of a classifier for a list of nodes, with the nodes' classes: what predictions and metrics
/// are made from. Where graphs are classified, a graph's position in its set stands in the place of a node's id.
/// It holds every row of outputs, 4 bytes a class.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `items` | `u32`, the node's id | `n` | position in the list |
/// | `labels` | `i32` | `n` | the same; the node's class, from 0 and below `n_classes` |
/// | `outputs` | `f32` | `n * n_classes` | the same, row-major; logits |
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    items: Vec<u32>,
    labels: Vec<i32>,
    outputs: Vec<f32>,
    n_classes: usize,
}

impl Evaluation {
    /// The rows of these nodes among the outputs for all nodes, as
    /// [`LayerWiseInference`](crate::LayerWiseInference) gives them.
    ///
    /// # Errors
    /// [`Error::Feature`] for a node without a row or a label, [`Error::ClassOutOfRange`] for a label that
    /// has no output.
    pub fn of(outputs: &dyn FeatureStore, nodes: &[NodeId], labels: &Labels) -> Result<Self> {
        let n_classes = outputs.dim();
        let mut classes = Vec::new();
        labels.gather(nodes, &mut classes)?;
        if let Some(position) = classes.iter().position(|&class| n_classes <= class as usize) {
            let (node, label) = (nodes[position], classes[position]);
            return Err(Error::ClassOutOfRange { node, label, n_outputs: n_classes });
        }
        let mut rows = FeatureBuffer::empty(outputs.dtype());
        outputs.gather(nodes, &mut rows)?;
        Ok(Self {
            items: nodes.iter().map(|node| node.0).collect(),
            labels: classes,
            outputs: rows.into_f32(),
            n_classes,
        })
    }

    /// The [counts](Evaluation::counts) of these nodes alone, without holding all their rows.
    ///
    /// # Errors
    /// As [`Evaluation::of`] and [`Evaluation::counts`].
    pub fn count(outputs: &dyn FeatureStore, nodes: &[NodeId], labels: &Labels) -> Result<MetricSums> {
        let mut counts = MetricSums::default();
        for nodes in nodes.chunks(NODES_AT_ONCE) {
            counts += Self::of(outputs, nodes, labels)?.counts()?;
        }
        Ok(counts)
    }

    /// Takes a batch: its items, their classes and what the model made of them, as the `visit` of
    /// [`TaskTrainer::evaluate`](crate::TaskTrainer::evaluate) is given them.
    ///
    /// # Panics
    /// When the numbers of items, labels and rows differ, or the outputs have another number of classes
    /// than those before.
    pub fn add<I: ItemId>(&mut self, items: &[I], labels: &[i32], forward: &StepOutput) {
        let [n_rows, n_classes] = forward.outputs.dims();
        let (n_items, n_labels) = (items.len(), labels.len());
        assert!(n_items == n_rows && n_labels == n_rows, "{n_items} items, {n_labels} labels, {n_rows} rows");
        let is_first = self.items.is_empty();
        assert!(is_first || n_classes == self.n_classes, "{n_classes} classes after {}", self.n_classes);
        self.n_classes = n_classes;
        self.items.extend(items.iter().map(|item| item.get()));
        self.labels.extend_from_slice(labels);
        self.outputs.extend(kiln_kernels::to_vec_f32(forward.outputs.clone()));
    }

    /// Brings what all ranks say to the first one, in the order of the ranks; the others are left with nothing.
    /// A meeting of the ranks.
    ///
    /// # Errors
    /// [`Error::Ranks`].
    pub fn gather(self, comm: &mut dyn Communicator) -> Result<Self> {
        let n_ranks = comm.rank_info().world_size;
        if n_ranks == 1 {
            return Ok(self);
        }
        let mut send = vec![Vec::new(); n_ranks];
        send[0] = self.to_bytes();
        drop(self);
        let received = comm.all_to_all(&send)?;
        drop(send);
        let mut all = Self::default();
        for bytes in received.into_iter().filter(|bytes| !bytes.is_empty()) {
            all.append_bytes(&bytes);
        }
        Ok(all)
    }

    /// The number of nodes and of classes as `u64`, then the arrays; empty for no nodes.
    fn to_bytes(&self) -> Vec<u8> {
        if self.items.is_empty() {
            return Vec::new();
        }
        let sizes = [self.items.len() as u64, self.n_classes as u64];
        let (items, labels) = (bytemuck::cast_slice(&self.items), bytemuck::cast_slice(&self.labels));
        [bytemuck::cast_slice(&sizes), items, labels, bytemuck::cast_slice(&self.outputs)].concat()
    }

    fn append_bytes(&mut self, bytes: &[u8]) {
        let (sizes, arrays) = bytes.split_at(2 * size_of::<u64>());
        let sizes: Vec<u64> = bytemuck::pod_collect_to_vec(sizes);
        let n_items = sizes[0] as usize;
        let (items, arrays) = arrays.split_at(n_items * size_of::<u32>());
        let (labels, outputs) = arrays.split_at(n_items * size_of::<i32>());
        self.items.extend(bytemuck::pod_collect_to_vec::<u8, u32>(items));
        self.labels.extend(bytemuck::pod_collect_to_vec::<u8, i32>(labels));
        self.outputs.extend(bytemuck::pod_collect_to_vec::<u8, f32>(outputs));
        self.n_classes = sizes[1] as usize;
    }

    /// Loss and hits of all nodes: the cross entropy of
    /// [`NodeClassification`](crate::NodeClassification) and
    /// [`GraphClassification`](crate::GraphClassification), here in f64.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`].
    pub fn counts(&self) -> Result<MetricSums> {
        let mut counts = MetricSums::default();
        for (row, &label) in self.rows().zip(&self.labels) {
            counts.loss_sum += log_sum_exp(row) - f64::from(row[label as usize]);
            counts.hits += u64::from(predicted_class(row) == label as u32);
        }
        let loss = counts.loss_sum;
        if !loss.is_finite() {
            return Err(Error::LossNotFinite { pass: "evaluation", step: 0, loss });
        }
        counts.weight = self.items.len() as f64;
        counts.total = self.items.len() as u64;
        Ok(counts)
    }

    /// What was said of each node, nodes ascending, so that the order does not depend on who evaluated
    /// which: the order of `test_predictions.csv`. A node that came more than once stands there as often, in
    /// the order in which it came.
    pub fn predictions(&self) -> Vec<Prediction> {
        let said = self.items.iter().zip(self.pairs());
        let mut predictions: Vec<Prediction> =
            said.map(|(&item, (label, predicted))| Prediction { item, label, predicted }).collect();
        predictions.sort_by_key(|said| said.item);
        predictions
    }

    /// Labels against predictions.
    pub fn confusion(&self) -> Confusion {
        let mut confusion = Confusion::new(self.n_classes);
        self.pairs().for_each(|(label, predicted)| confusion.add(label, predicted));
        confusion
    }

    /// Labels against predictions, with every cell: which class was taken for which.
    pub fn confusion_matrix(&self) -> ConfusionMatrix {
        let mut matrix = ConfusionMatrix::new(self.n_classes);
        self.pairs().for_each(|(label, predicted)| matrix.add(label, predicted));
        matrix
    }

    /// The area under the ROC curve: for two classes that of class 1's probability, for more the mean over
    /// the classes of each against the rest, classes without a positive or a negative left out. That is
    /// scikit-learn's `roc_auc_score(..., multi_class="ovr", average="macro")`, which refuses such classes.
    /// (Provost and Domingos 2003 weigh the classes by their sizes; this does not.)
    ///
    /// `None` when no class has both, or an output is not finite.
    pub fn roc_auc(&self) -> Option<f64> {
        // Log-probabilities order a class's scores as probabilities do, and do not round to 1.
        let log_sums: Vec<f64> = self.rows().map(log_sum_exp).collect();
        let of_class = |class: usize| {
            let scores = self.rows().zip(&log_sums).map(|(row, log_sum)| f64::from(row[class]) - log_sum);
            let is_positive: Vec<bool> = self.labels.iter().map(|&label| label as usize == class).collect();
            roc_auc(&scores.collect::<Vec<_>>(), &is_positive)
        };
        if log_sums.iter().any(|log_sum| !log_sum.is_finite()) {
            return None;
        }
        if self.n_classes == 2 {
            return of_class(1);
        }
        let areas: Vec<f64> = (0..self.n_classes).filter_map(of_class).collect();
        (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
    }

    /// All metrics.
    pub fn metrics(&self) -> Metrics {
        let confusion = self.confusion();
        Metrics {
            accuracy: confusion.accuracy(),
            f1_micro: confusion.f1_micro(),
            f1_macro: confusion.f1_macro(),
            roc_auc: self.roc_auc(),
        }
    }

    /// Each node's class and the predicted one.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.labels.iter().zip(self.rows()).map(|(&label, row)| (label as u32, predicted_class(row)))
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        // No classes, no rows: the chunk's length only has to be one.
        self.outputs.chunks_exact(self.n_classes.max(1))
    }
}

/// `ln(sum of exp(row))`, the largest value taken out so that nothing overflows.
fn log_sum_exp(row: &[f32]) -> f64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    largest + row.iter().map(|&value| (f64::from(value) - largest).exp()).sum::<f64>().ln()
}
