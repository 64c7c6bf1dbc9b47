use std::fmt;
use std::time::Duration;

use kiln_comm::Communicator;
use kiln_feature::{FeatureBuffer, FeatureStore, Labels, TargetKind, Targets};
use kiln_graph::{ItemId, NodeId};

use crate::error::{Error, InputError, Result};
use crate::metric::confusion::{Confusion, ConfusionMatrix, Metrics};
use crate::metric::kind::Metric;
use crate::metric::stats::MetricStats;
use crate::step::task::StepOutput;
use crate::step::task::classification::Prediction;
use crate::step::task::classification::predicted_class;
use crate::step::task::metric_sums::{MetricSums, check_finite};
use crate::step::task::task_objective::TaskObjective;

/// The maximum number of nodes whose output rows [`Evaluation::count`] holds in memory at once.
const NODES_AT_ONCE: usize = 4096;

/// A model's outputs for a list of nodes, with the nodes' targets. Predictions and metrics are computed from it. For a
/// task on graphs, the items are graphs, identified by their position in the set; for link prediction, they are links. All
/// outputs are held in memory, with 4 bytes per item and output.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `items` | `u32`, the node's id | `n` | position in the list |
/// | `labels` | `i32` | `n`, or 0 | position in the list; the node's class, from 0 and below `n_outputs` |
/// | `values` | `f32` | `n * n_outputs`, or 0 | position in the list, row-major; target values, NaN if missing |
/// | `outputs` | `f32` | `n * n_outputs` | position in the list, row-major; logits, numbers in the units of the targets, or the scores of a link and its negatives |
/// | `nodes` | `[u32; 2]` | `n`, or 0 | position in the list; the source and the destination of a link |
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    pub(crate) items: Vec<u32>,
    labels: Vec<i32>,
    pub(crate) values: Vec<f32>,
    pub(crate) outputs: Vec<f32>,
    pub(crate) n_outputs: usize,
    pub(crate) nodes: Vec<[u32; 2]>,
    objective: TaskObjective,
    /// The duration of each batch that this rank evaluated, in their order.
    pub(crate) batch_times: BatchTimes,
}

/// The durations of batches. They have no debug form, so that equal outputs have equal forms.
#[derive(Clone, Default)]
pub(crate) struct BatchTimes(pub(crate) Vec<Duration>);

impl fmt::Debug for BatchTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Evaluation {
    /// The number of batches that [`Summary`](crate::Summary) leaves out of the mean time of a batch. The first ones compile
    /// kernels and fill the pools of a device.
    pub const WARM_UP: usize = 10;

    /// Selects these nodes from the outputs for all nodes, which [`LayerWiseInference`](crate::LayerWiseInference)
    /// computes.
    ///
    /// # Errors
    /// Returns [`Error::Feature`] for a node without a row or a label, and [`InputError::ClassOutOfRange`] for a label
    /// that is not below the number of outputs.
    pub fn of(outputs: &dyn FeatureStore, nodes: &[NodeId], labels: &Labels) -> Result<Self> {
        let n_classes = outputs.dim();
        let mut classes = Vec::new();
        labels.gather(nodes, &mut classes)?;
        if let Some(position) = classes.iter().position(|&class| n_classes <= class as usize) {
            let node = nodes[position];
            let label = classes[position];
            return Err(Error::Input(InputError::ClassOutOfRange { node, label, n_outputs: n_classes }));
        }
        let mut rows = FeatureBuffer::empty(outputs.dtype());
        outputs.gather(nodes, &mut rows)?;
        Ok(Self {
            items: nodes.iter().map(|node| node.0).collect(),
            labels: classes,
            outputs: rows.into_f32(),
            n_outputs: n_classes,
            ..Self::default()
        })
    }

    /// Creates an evaluation without items of a task with this objective.
    pub fn new(objective: impl Into<TaskObjective>) -> Self {
        Self { objective: objective.into(), ..Self::default() }
    }

    /// Selects these nodes from the outputs for all nodes, like [`Evaluation::of`], for targets of any kind. The outputs of a
    /// regression are those of the model, on the scale of the objective.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluation::of`], and [`InputError::OutputCount`] if there is not one output per column of
    /// target values.
    pub fn of_targets(
        outputs: &dyn FeatureStore,
        nodes: &[NodeId],
        targets: &Targets,
        objective: &TaskObjective,
    ) -> Result<Self> {
        let objective = objective.clone();
        let targets = match targets {
            Targets::Classes(labels) => return Ok(Self { objective, ..Self::of(outputs, nodes, labels)? }),
            Targets::Values(targets) => targets,
        };
        let n_outputs = outputs.dim();
        let n_columns = targets.n_columns();
        if n_outputs != n_columns {
            return Err(Error::Input(InputError::OutputCount { n_outputs, n_columns }));
        }
        let mut values = Vec::new();
        let mut rows = FeatureBuffer::empty(outputs.dtype());
        targets.gather(nodes, &mut values)?;
        outputs.gather(nodes, &mut rows)?;
        let items = nodes.iter().map(|node| node.0).collect();
        let outputs = objective.restore(rows.into_f32(), n_outputs);
        Ok(Self { items, values, outputs, n_outputs, objective, ..Self::default() })
    }

    /// Computes the [metric sums](Evaluation::counts) of these nodes, without holding the output rows of all of them in
    /// memory at once.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluation::of`] and [`Evaluation::counts`].
    pub fn count(outputs: &dyn FeatureStore, nodes: &[NodeId], labels: &Labels) -> Result<MetricSums> {
        Self::count_each(nodes, |nodes: &[NodeId]| Self::of(outputs, nodes, labels))
    }

    /// Computes the metric sums of these nodes, like [`Evaluation::count`], for targets of any kind.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluation::of_targets`] and [`Evaluation::counts`].
    pub fn count_targets(
        outputs: &dyn FeatureStore,
        nodes: &[NodeId],
        targets: &Targets,
        objective: &TaskObjective,
    ) -> Result<MetricSums> {
        Self::count_each(nodes, |nodes| Self::of_targets(outputs, nodes, targets, objective))
    }

    fn count_each(nodes: &[NodeId], of: impl Fn(&[NodeId]) -> Result<Self>) -> Result<MetricSums> {
        let mut counts = MetricSums::default();
        for nodes in nodes.chunks(NODES_AT_ONCE) {
            counts += of(nodes)?.counts()?;
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
        self.add_batch(items, labels, &[], forward);
    }

    /// Appends a batch like [`Evaluation::add`], with its classes or its target values, whichever the task has; the
    /// other slice is empty.
    ///
    /// # Panics
    /// Panics in the cases of [`Evaluation::add`], and if there is not one value per output.
    pub fn add_batch<I: ItemId>(
        &mut self,
        items: &[I],
        labels: &[i32],
        values: &[f32],
        forward: &StepOutput,
    ) {
        let [n_rows, n_outputs] = forward.outputs.dims();
        let n_labels = match self.kind() {
            TargetKind::Classes => labels.len(),
            TargetKind::MultiLabel | TargetKind::Regression => values.len() / n_outputs.max(1),
            TargetKind::Links => n_rows,
        };
        let n_items = items.len();
        assert!(
            n_items == n_rows && n_labels == n_rows,
            "a batch has {n_items} items, {n_labels} labels and {n_rows} rows of outputs, expected equal numbers"
        );
        let is_first = self.items.is_empty();
        assert!(
            is_first || n_outputs == self.n_outputs,
            "a batch has {n_outputs} classes, expected {} as in earlier batches",
            self.n_outputs
        );
        self.n_outputs = n_outputs;
        self.values.extend_from_slice(values);
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
        let mut all = Self { batch_times: self.batch_times, ..Self::new(self.objective) };
        let received = comm.all_to_all(&send)?;
        drop(send);
        for bytes in received.into_iter().filter(|bytes| !bytes.is_empty()) {
            all.append_bytes(&bytes);
        }
        Ok(all)
    }

    /// Serializes the number of items and the number of outputs as `u64`, then the arrays. Returns no bytes if there
    /// are no items.
    fn to_bytes(&self) -> Vec<u8> {
        if self.items.is_empty() {
            return Vec::new();
        }
        let sizes = [self.items.len() as u64, self.n_outputs as u64];
        let items = bytemuck::cast_slice(&self.items);
        let labels = bytemuck::cast_slice(&self.labels);
        let values = bytemuck::cast_slice(&self.values);
        let outputs = bytemuck::cast_slice(&self.outputs);
        [bytemuck::cast_slice(&sizes), items, labels, values, bytemuck::cast_slice(&self.nodes), outputs]
            .concat()
    }

    fn append_bytes(&mut self, bytes: &[u8]) {
        let (sizes, arrays) = bytes.split_at(2 * size_of::<u64>());
        let sizes: Vec<u64> = bytemuck::pod_collect_to_vec(sizes);
        let n_items = sizes[0] as usize;
        let n_outputs = sizes[1] as usize;
        let (n_labels, n_values, n_links) = match self.kind() {
            TargetKind::Classes => (n_items, 0, 0),
            TargetKind::MultiLabel | TargetKind::Regression => (0, n_items * n_outputs, 0),
            TargetKind::Links => (0, 0, n_items),
        };
        let (items, arrays) = arrays.split_at(n_items * size_of::<u32>());
        let (labels, arrays) = arrays.split_at(n_labels * size_of::<i32>());
        let (values, arrays) = arrays.split_at(n_values * size_of::<f32>());
        let (nodes, outputs) = arrays.split_at(n_links * size_of::<[u32; 2]>());
        self.items.extend(bytemuck::pod_collect_to_vec::<u8, u32>(items));
        self.labels.extend(bytemuck::pod_collect_to_vec::<u8, i32>(labels));
        self.values.extend(bytemuck::pod_collect_to_vec::<u8, f32>(values));
        self.outputs.extend(bytemuck::pod_collect_to_vec::<u8, f32>(outputs));
        self.nodes.extend(bytemuck::pod_collect_to_vec::<u8, [u32; 2]>(nodes));
        self.n_outputs = n_outputs;
    }

    /// Returns the mean time of inference per batch, without the first `warm_up` batches; `None` without further ones, and for exact
    /// evaluation, which has no batches. After [`Evaluation::gather`], it is that of rank 0.
    ///
    /// A batch is timed from its arrival on the device until its outputs are on the host, so that the device has finished it. The
    /// sampling of the batch, and the wait for it, are not part of the time.
    pub fn mean_batch_time(&self, warm_up: usize) -> Option<Duration> {
        let timed = self.batch_times.0.get(warm_up..).filter(|timed| !timed.is_empty())?;
        Some(timed.iter().sum::<Duration>() / timed.len() as u32)
    }

    /// Returns true if no item was evaluated.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of items whose outputs are not finite. They have no prediction and count in no metric.
    pub fn n_not_finite(&self) -> u64 {
        self.rows().filter(|row| !self.has_prediction(row)).count() as u64
    }

    /// Returns true if an item with these outputs has a prediction.
    pub(crate) fn has_prediction(&self, outputs: &[f32]) -> bool {
        self.objective.has_prediction(outputs)
    }

    /// Returns the objective of the task.
    pub fn objective(&self) -> &TaskObjective {
        &self.objective
    }

    /// Returns the kind of the targets.
    pub fn kind(&self) -> TargetKind {
        self.objective.kind()
    }

    /// Returns the summed loss, the hits and the number of all items, except items whose outputs are not finite, which are
    /// counted in [`MetricSums::n_not_finite`] alone. The loss is that of the task's objective, computed in f64. Hits are
    /// items whose class, or all of whose labels, are predicted correctly, and links that score above all their negatives.
    ///
    /// # Errors
    /// Returns [`crate::TrainerError::LossNotFinite`] if the loss is not finite, such as that of a class of the score
    /// -inf.
    pub fn counts(&self) -> Result<MetricSums> {
        let counts = self.objective.count_rows(&self.outputs, self.n_outputs, &self.labels, &self.values);
        check_finite("evaluation", 0, &counts)?;
        Ok(counts)
    }

    /// Returns the prediction for each item, sorted by the item's id, as in `test_predictions.csv`. This order does not
    /// depend on which rank evaluated an item. An item that was added several times is repeated, in the order of the
    /// additions.
    pub fn predictions(&self) -> Vec<Prediction> {
        let said = self.items.iter().zip(&self.labels).zip(self.rows());
        let mut predictions: Vec<Prediction> = said
            .map(|((&item, &label), row)| Prediction {
                item,
                label: label as u32,
                predicted: predicted_class(row),
            })
            .collect();
        predictions.sort_by_key(|said| said.item);
        predictions
    }

    /// Counts labels and predictions per class, without items whose outputs are not finite.
    pub fn confusion(&self) -> Confusion {
        let mut confusion = Confusion::new(self.n_outputs);
        self.pairs().for_each(|(label, predicted)| confusion.add(label, predicted));
        confusion
    }

    /// Counts every pair of label and prediction, without items whose outputs are not finite.
    pub fn confusion_matrix(&self) -> ConfusionMatrix {
        let mut matrix = ConfusionMatrix::new(self.n_outputs);
        self.pairs().for_each(|(label, predicted)| matrix.add(label, predicted));
        matrix
    }

    /// Returns the area under the ROC curve. For two classes, the score is the probability of class 1. For more
    /// classes, it is the mean of the one-vs-rest areas, without classes that have no positive or no negative items.
    /// This is scikit-learn's `roc_auc_score(..., multi_class="ovr", average="macro")`, which raises an error for such
    /// classes. (Provost and Domingos 2003 weight the classes by their sizes; this does not.)
    ///
    /// Items whose outputs are not finite are left out. Returns `None` if no class has both positive and negative items, or
    /// for other targets than classes.
    pub fn roc_auc(&self) -> Option<f64> {
        self.metric_of_classes(Metric::RocAuc)
    }

    /// Returns the average precision. For two classes, the score is the probability of class 1. For more classes, it is
    /// the mean of the one-vs-rest values, which are 0 for a class without items, as in scikit-learn's
    /// `average_precision_score(..., average="macro")`. Items whose outputs are not finite are left out. `None` without items,
    /// or for other targets than classes.
    pub fn average_precision(&self) -> Option<f64> {
        self.metric_of_classes(Metric::AveragePrecision)
    }

    fn metric_of_classes(&self, metric: Metric) -> Option<f64> {
        match self.kind() {
            TargetKind::Classes => self.stats(metric).ok()?.value(),
            TargetKind::MultiLabel | TargetKind::Regression | TargetKind::Links => None,
        }
    }

    /// Returns the statistics of one metric, which the ranks combine.
    ///
    /// # Errors
    /// Returns [`crate::MetricError::OtherMetric`] if the metric is not defined for the targets.
    pub fn stats(&self, metric: Metric) -> Result<MetricStats> {
        let mut stats = MetricStats::new(metric, self.kind(), self.n_outputs)?;
        match self.kind() {
            _ if self.items.is_empty() => {}
            TargetKind::Classes => stats.add_classes(&self.labels, &self.outputs),
            TargetKind::Links => stats.add_links(&self.outputs),
            TargetKind::MultiLabel | TargetKind::Regression => stats.add_targets(&self.values, &self.outputs),
        }
        Ok(stats)
    }

    /// Computes all metrics that are defined for the targets; `None` for an undefined value.
    pub fn all_metrics(&self) -> Vec<(Metric, Option<f64>)> {
        Metric::of_kind(self.kind())
            .map(|metric| (metric, self.stats(metric).ok().and_then(|stats| stats.value())))
            .collect()
    }

    /// Computes the metrics of labels. For regression and links, the accuracy is NaN and others are undefined.
    pub fn metrics(&self) -> Metrics {
        if self.kind() != TargetKind::Classes {
            let value = |metric| self.stats(metric).ok().and_then(|stats| stats.value());
            return Metrics {
                accuracy: value(Metric::Accuracy).unwrap_or(f64::NAN),
                f1_micro: value(Metric::F1Micro),
                f1_macro: value(Metric::F1Macro),
                roc_auc: value(Metric::RocAuc),
            };
        }
        let confusion = self.confusion();
        Metrics {
            accuracy: confusion.accuracy(),
            f1_micro: confusion.f1_micro(),
            f1_macro: confusion.f1_macro(),
            roc_auc: self.roc_auc(),
        }
    }

    /// Iterates over the label and the predicted class of each item that has one.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let rows = self.labels.iter().zip(self.rows());
        rows.filter_map(|(&label, row)| Some((label as u32, predicted_class(row)?)))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[f32]> {
        // Without classes there are no rows, but the chunk length must not be 0.
        self.outputs.chunks_exact(self.n_outputs.max(1))
    }
}
