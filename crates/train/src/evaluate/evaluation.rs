use kiln_comm::Communicator;
use kiln_feature::{FeatureBuffer, FeatureStore, Labels, TargetKind};
use kiln_graph::{ItemId, NodeId};

use crate::error::{Error, Result};
use crate::metric::confusion::{Confusion, ConfusionMatrix, Metrics};
use crate::metric::kind::Metric;
use crate::metric::ranking::{average_precision, log_sum_exp, mean_over_classes, roc_auc};
use crate::metric::stats::MetricStats;
use crate::step::classification::Prediction;
use crate::step::classification::predicted_class;
use crate::step::metric_sums::MetricSums;
use crate::step::task::StepOutput;

/// The maximum number of nodes whose output rows [`Evaluation::count`] holds in memory at once.
const NODES_AT_ONCE: usize = 4096;

/// A classifier's outputs for a list of nodes, with the nodes' labels. Predictions and metrics are computed from it.
/// For graph classification, the items are graphs, identified by their position in the set. All outputs are held in
/// memory, with 4 bytes per item and class.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `items` | `u32`, the node's id | `n` | position in the list |
/// | `labels` | `i32` | `n` | position in the list; the node's class, from 0 and below `n_classes` |
/// | `outputs` | `f32` | `n * n_classes` | position in the list, row-major; logits |
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    items: Vec<u32>,
    labels: Vec<i32>,
    outputs: Vec<f32>,
    n_classes: usize,
}

impl Evaluation {
    /// Selects these nodes from the outputs for all nodes, which [`LayerWiseInference`](crate::LayerWiseInference)
    /// computes.
    ///
    /// # Errors
    /// Returns [`Error::Feature`] for a node without a row or a label, and [`Error::ClassOutOfRange`] for a label that
    /// is not below the number of outputs.
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

    /// Computes the [metric sums](Evaluation::counts) of these nodes, without holding the output rows of all of them in
    /// memory at once.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluation::of`] and [`Evaluation::counts`].
    pub fn count(outputs: &dyn FeatureStore, nodes: &[NodeId], labels: &Labels) -> Result<MetricSums> {
        let mut counts = MetricSums::default();
        for nodes in nodes.chunks(NODES_AT_ONCE) {
            counts += Self::of(outputs, nodes, labels)?.counts()?;
        }
        Ok(counts)
    }

    /// Appends a batch: its items, their labels and the model's output, as passed to the `visit` of
    /// [`TaskTrainer::evaluate`](crate::TaskTrainer::evaluate).
    ///
    /// # Panics
    /// Panics if the numbers of items, labels and rows differ, or if the number of classes differs from that of earlier
    /// batches.
    pub fn add<I: ItemId>(&mut self, items: &[I], labels: &[i32], forward: &StepOutput) {
        let [n_rows, n_classes] = forward.outputs.dims();
        let (n_items, n_labels) = (items.len(), labels.len());
        assert!(
            n_items == n_rows && n_labels == n_rows,
            "a batch has {n_items} items, {n_labels} labels and {n_rows} rows of outputs, expected equal numbers"
        );
        let is_first = self.items.is_empty();
        assert!(
            is_first || n_classes == self.n_classes,
            "a batch has {n_classes} classes, expected {} as in earlier batches",
            self.n_classes
        );
        self.n_classes = n_classes;
        self.items.extend(items.iter().map(|item| item.get()));
        self.labels.extend_from_slice(labels);
        self.outputs.extend(kiln_kernels::to_vec_f32(forward.outputs.clone()));
    }

    /// Concatenates the evaluations of all ranks on rank 0, in the order of the ranks; the other ranks get an empty
    /// one. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if a rank fails.
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

    /// Serializes the number of items and the number of classes as `u64`, then the arrays. Returns no bytes if there
    /// are no items.
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

    /// Returns the summed loss, the hits and the number of all items. The loss is the cross entropy of
    /// [`NodeClassification`](crate::NodeClassification) and [`GraphClassification`](crate::GraphClassification),
    /// computed in f64.
    ///
    /// # Errors
    /// Returns [`Error::LossNotFinite`] if the loss is infinite or NaN.
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

    /// Returns the prediction for each item, sorted by the item's id, as in `test_predictions.csv`. This order does not
    /// depend on which rank evaluated an item. An item that was added several times is repeated, in the order of the
    /// additions.
    pub fn predictions(&self) -> Vec<Prediction> {
        let said = self.items.iter().zip(self.pairs());
        let mut predictions: Vec<Prediction> =
            said.map(|(&item, (label, predicted))| Prediction { item, label, predicted }).collect();
        predictions.sort_by_key(|said| said.item);
        predictions
    }

    /// Counts labels and predictions per class.
    pub fn confusion(&self) -> Confusion {
        let mut confusion = Confusion::new(self.n_classes);
        self.pairs().for_each(|(label, predicted)| confusion.add(label, predicted));
        confusion
    }

    /// Counts every pair of label and prediction.
    pub fn confusion_matrix(&self) -> ConfusionMatrix {
        let mut matrix = ConfusionMatrix::new(self.n_classes);
        self.pairs().for_each(|(label, predicted)| matrix.add(label, predicted));
        matrix
    }

    /// Returns the area under the ROC curve. For two classes, the score is the probability of class 1. For more
    /// classes, it is the mean of the one-vs-rest areas, without classes that have no positive or no negative items.
    /// This is scikit-learn's `roc_auc_score(..., multi_class="ovr", average="macro")`, which raises an error for such
    /// classes. (Provost and Domingos 2003 weight the classes by their sizes; this does not.)
    ///
    /// Returns `None` if no class has both positive and negative items, or if an output is not finite.
    pub fn roc_auc(&self) -> Option<f64> {
        mean_over_classes(&self.labels, &self.outputs, self.n_classes, roc_auc)
    }

    /// Returns the average precision. For two classes, the score is the probability of class 1. For more classes, it is
    /// the mean of the one-vs-rest values, which are 0 for a class without items, as in scikit-learn's
    /// `average_precision_score(..., average="macro")`. `None` without items, or if an output is not finite.
    pub fn average_precision(&self) -> Option<f64> {
        mean_over_classes(&self.labels, &self.outputs, self.n_classes, average_precision)
    }

    /// Returns the statistics of one metric, which the ranks combine.
    ///
    /// # Errors
    /// Returns [`Error::OtherMetric`] if the metric is not defined for the targets.
    pub fn stats(&self, metric: Metric) -> Result<MetricStats> {
        let mut stats = MetricStats::new(metric, TargetKind::Classes, self.n_classes)?;
        if !self.items.is_empty() {
            stats.add_classes(&self.labels, &self.outputs);
        }
        Ok(stats)
    }

    /// Computes all metrics that are defined for the targets; `None` for an undefined value.
    pub fn all_metrics(&self) -> Vec<(Metric, Option<f64>)> {
        let value = |metric| (metric, self.stats(metric).ok().and_then(|stats| stats.value()));
        Metric::of_kind(TargetKind::Classes).map(value).collect()
    }

    /// Computes all metrics.
    pub fn metrics(&self) -> Metrics {
        let confusion = self.confusion();
        Metrics {
            accuracy: confusion.accuracy(),
            f1_micro: confusion.f1_micro(),
            f1_macro: confusion.f1_macro(),
            roc_auc: self.roc_auc(),
        }
    }

    /// Iterates over the label and the predicted class of each item.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.labels.iter().zip(self.rows()).map(|(&label, row)| (label as u32, predicted_class(row)))
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        // Without classes there are no rows, but the chunk length must not be 0.
        self.outputs.chunks_exact(self.n_classes.max(1))
    }
}
