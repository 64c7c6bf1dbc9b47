//! Objectives: the loss of a kind of targets, on a device for training and on the host for evaluation.

use burn::tensor::Tensor;
use kiln_feature::{TargetKind, TargetScaler};
use kiln_nn::{ClassLoss, LinkLoss, LossSum, TargetLoss};

use crate::error::{Error, InputError, Result};
use crate::metric::link_ranks::LinkRanks;
use crate::metric::multi_label::MultiLabelCounts;
use crate::metric::ranking::log_sum_exp;
use crate::step::task::StepOutput;
use crate::step::task::classification::{self, has_class, is_finite, predicted_class};
use crate::step::task::custom_loss::{CustomLoss, LossTargets, LossValue};
use crate::step::task::metric_sums::MetricSums;

/// The kind of targets that a task learns, with their loss.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective {
    /// One class per item, by cross entropy.
    Classes(ClassLoss),
    /// Several labels per item, by binary cross entropy.
    MultiLabel,
    /// One or several numbers per item.
    Regression(TargetLoss),
    /// The scores of links and of their negatives.
    Links(LinkLoss),
    /// Targets of any kind, by a loss of one's own ([`Objective::custom`]).
    Custom(CustomLoss),
}

/// The targets of a batch, which outlive its input. Values are `[n_items, n_outputs]`, row-major, NaN if missing.
#[derive(Debug, Clone)]
pub enum BatchTargets {
    /// The class of each item.
    Classes(Vec<i32>),
    /// The labels of each item, 1 or 0.
    MultiLabel(Vec<f32>),
    /// The number of items of a regression, whose metric sums need no outputs.
    Regression(usize),
    /// Links, whose metric sums need the scores only.
    Links,
}

impl Default for Objective {
    /// Returns the cross entropy of equally weighted classes.
    fn default() -> Self {
        Self::Classes(ClassLoss::default())
    }
}

impl Objective {
    /// Returns the default for targets of this kind: the cross entropy, the binary cross entropy (for several
    /// labels and for links) or the squared error.
    pub fn default_of(kind: TargetKind) -> Self {
        match kind {
            TargetKind::Classes => Self::default(),
            TargetKind::MultiLabel => Self::MultiLabel,
            TargetKind::Regression => Self::Regression(TargetLoss::SquaredError),
            TargetKind::Links => Self::Links(LinkLoss::default()),
        }
    }

    /// Returns the objective of a loss of one's own: a function of the outputs of a batch, `[n_items, n_outputs]`, and its targets,
    /// which returns the loss of each item, `[n_items]`, or a [`LossSum`](kiln_nn::LossSum) with weights. The model trains by its
    /// mean over the items of all ranks, and evaluations have it as loss. Metrics are those of the targets.
    ///
    /// For links, the outputs are scores, `[n_links, 1 + n_negatives]`, with the score of the link in column 0, and there are no
    /// other targets. The name identifies the loss in the settings of a run: a run by another name does not resume it. Give the
    /// loss another name when the function changes.
    ///
    /// The function is called once before training, with a few items, so that a wrong shape is an error of the loader. Losses of an
    /// evaluation by exact neighbours, or by another metric than the accuracy, are computed on the CPU.
    ///
    /// ```
    /// use burn::tensor::activation::log_softmax;
    /// use kiln_feature::TargetKind;
    /// use kiln_train::Objective;
    /// // The focal loss of Lin et al. 2017 with γ = 2: well classified items count less.
    /// let focal = Objective::custom("focal-2", TargetKind::Classes, |outputs, targets| {
    ///     let of_classes = log_softmax(outputs, 1);
    ///     let log_p = of_classes.gather(1, targets.classes().unsqueeze_dim(1)).squeeze_dim::<1>(1);
    ///     log_p.clone().exp().neg().add_scalar(1.0).square() * log_p.neg()
    /// });
    /// assert_eq!(focal.kind(), TargetKind::Classes);
    /// ```
    pub fn custom<R: Into<LossValue>>(
        name: &str,
        kind: TargetKind,
        loss: impl Fn(Tensor<2>, &LossTargets<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(CustomLoss::new(name, kind, loss))
    }

    /// Returns the kind of the targets.
    pub fn kind(&self) -> TargetKind {
        match self {
            Self::Classes(_) => TargetKind::Classes,
            Self::MultiLabel => TargetKind::MultiLabel,
            Self::Regression(_) => TargetKind::Regression,
            Self::Links(_) => TargetKind::Links,
            Self::Custom(loss) => loss.kind(),
        }
    }

    /// Checks that the loss suits the data's targets and the model's number of outputs; for links, their number of
    /// scores, which is 1 plus the number of negatives.
    ///
    /// # Errors
    /// Returns [`InputError::OtherTargets`] for targets of another kind, [`InputError::BinaryLoss`] for a regression by
    /// binary cross entropy, [`Error::Model`] for invalid settings of the loss, and [`InputError::CustomLoss`] for a loss of one's own
    /// that does not return one loss per item.
    pub fn check(&self, kind: TargetKind, n_outputs: usize) -> Result<()> {
        if self.kind() != kind {
            return Err(Error::Input(InputError::OtherTargets { expected: self.kind(), got: kind }));
        }
        match self {
            Self::Classes(loss) => Ok(loss.check(n_outputs)?),
            Self::MultiLabel => Ok(()),
            Self::Regression(TargetLoss::BinaryCrossEntropy) => Err(Error::Input(InputError::BinaryLoss)),
            Self::Regression(loss) => Ok(loss.check()?),
            Self::Links(loss) => Ok(loss.check(n_outputs.saturating_sub(1))?),
            Self::Custom(loss) => loss.check(n_outputs),
        }
    }

    /// Computes the loss of a batch. One of `classes` and `values` has the targets, the other is empty.
    pub(crate) fn forward(&self, outputs: Tensor<2>, classes: &[i32], values: &[f32]) -> StepOutput {
        let LossSum { sum, weight } = match self {
            Self::Classes(loss) if *loss == ClassLoss::default() => {
                return classification::cross_entropy(outputs, classes);
            }
            Self::Classes(loss) => loss.sum(outputs.clone(), classes),
            Self::MultiLabel => TargetLoss::BinaryCrossEntropy.sum(outputs.clone(), values),
            Self::Regression(loss) => loss.sum(outputs.clone(), values),
            Self::Links(loss) => loss.sum(outputs.clone()),
            Self::Custom(loss) => loss.sum(outputs.clone(), classes, values),
        };
        StepOutput { outputs, loss_sum: sum, weight }
    }

    /// Returns the targets of a batch with which its outputs are compared.
    pub(crate) fn targets(&self, classes: &[i32], values: &[f32], n_items: usize) -> BatchTargets {
        match self.kind() {
            TargetKind::Classes => BatchTargets::Classes(classes.to_vec()),
            TargetKind::MultiLabel => BatchTargets::MultiLabel(values.to_vec()),
            TargetKind::Regression => BatchTargets::Regression(n_items),
            TargetKind::Links => BatchTargets::Links,
        }
    }

    /// Returns true if an item with these outputs has a prediction. Items without one count in no metric.
    pub(crate) fn has_prediction(&self, outputs: &[f32]) -> bool {
        has_prediction(self.kind(), outputs)
    }

    /// Computes the metric sums of items on the host, the loss in f64 (one's own in f32), without items whose outputs are not
    /// finite. `outputs` and `values` are `[n_items, n_outputs]`, row-major; one of `classes` and `values` has the targets, the
    /// other is empty, and both are for links. A loss of regression is that of errors on the scale of `scaler`, if it is given.
    pub(crate) fn count_rows(
        &self,
        outputs: &[f32],
        n_outputs: usize,
        classes: &[i32],
        values: &[f32],
        scaler: Option<&TargetScaler>,
    ) -> MetricSums {
        let deviations = scaler.map(TargetScaler::deviations);
        let mut of_custom = CustomRows::default();
        let mut counts = MetricSums::default();
        let mut labels = MultiLabelCounts::new(n_outputs);
        // Without outputs there are no rows, but the chunk length must not be 0.
        for (item, row) in outputs.chunks_exact(n_outputs.max(1)).enumerate() {
            if !self.has_prediction(row) {
                counts.n_not_finite += 1;
                continue;
            }
            let class = classes.get(item).copied().unwrap_or(-1);
            let values = values.get(item * n_outputs..(item + 1) * n_outputs).unwrap_or_default();
            match self.loss_of_item(row, class, values, deviations) {
                Some(ItemLoss { loss, weight }) => {
                    counts.loss_sum += loss;
                    counts.weight += weight;
                }
                None => of_custom.add(row, classes.get(item), values),
            }
            match self.kind() {
                TargetKind::Classes => {
                    counts.hits += u64::from(predicted_class(row) == Some(class as u32));
                    counts.total += 1;
                }
                TargetKind::MultiLabel => labels.add(values, row),
                TargetKind::Regression => counts.total += 1,
                TargetKind::Links => {
                    counts.hits += u64::from(LinkRanks::rank(row) == Some(1.0));
                    counts.total += 1;
                }
            }
        }
        if let Self::Custom(loss) = self {
            let CustomRows { outputs, classes, values } = of_custom;
            (counts.loss_sum, counts.weight) = loss.sum_rows(outputs, n_outputs, &classes, values, scaler);
        }
        counts.hits += labels.n_correct();
        counts.total += labels.n_items();
        counts
    }

    /// Computes the loss of one item on the host, in f64: its weighted loss and its weight. `None` for a loss of one's own, which
    /// is a function of many items.
    fn loss_of_item(
        &self,
        outputs: &[f32],
        class: i32,
        values: &[f32],
        deviations: Option<&[f64]>,
    ) -> Option<ItemLoss> {
        match self {
            Self::Classes(loss) => Some(class_loss(loss, outputs, class as usize)),
            Self::MultiLabel => Some(target_loss(TargetLoss::BinaryCrossEntropy, outputs, values, None)),
            Self::Regression(loss) => Some(target_loss(*loss, outputs, values, deviations)),
            Self::Links(loss) => Some(link_loss(*loss, outputs)),
            Self::Custom(_) => None,
        }
    }
}

/// The items with a prediction, for a loss of one's own.
#[derive(Debug, Default)]
struct CustomRows {
    outputs: Vec<f32>,
    classes: Vec<i32>,
    values: Vec<f32>,
}

impl CustomRows {
    fn add(&mut self, outputs: &[f32], class: Option<&i32>, values: &[f32]) {
        self.outputs.extend_from_slice(outputs);
        self.classes.extend(class);
        self.values.extend_from_slice(values);
    }
}

impl BatchTargets {
    /// Sets the number of items, and the number of items whose class, or all of whose labels, are predicted correctly;
    /// for links, the number of those that score above all their negatives.
    pub(crate) fn count(&self, outputs: &Tensor<2>, counts: &mut MetricSums) {
        match self {
            Self::Classes(classes) => classification::count(outputs, classes, counts),
            Self::Regression(n_items) => counts.total = *n_items as u64,
            Self::Links => {
                let [_, n_scores] = outputs.dims();
                let mut ranks = LinkRanks::new(n_scores);
                let scores = kiln_kernels::to_vec_f32(outputs.clone());
                scores.chunks_exact(n_scores).for_each(|scores| ranks.add(scores));
                (counts.hits, counts.total) = (ranks.n_first(), ranks.n_links());
            }
            Self::MultiLabel(targets) => {
                let [_, n_labels] = outputs.dims();
                let outputs = kiln_kernels::to_vec_f32(outputs.clone());
                let mut labels = MultiLabelCounts::new(n_labels);
                for (targets, outputs) in targets.chunks_exact(n_labels).zip(outputs.chunks_exact(n_labels)) {
                    labels.add(targets, outputs);
                }
                (counts.hits, counts.total) = (labels.n_correct(), labels.n_items());
            }
        }
    }
}

/// Returns true if an item of a task with these targets has a prediction: a class ([`has_class`]), finite outputs for
/// labels and numbers, and finite scores of a link and its negatives.
pub(crate) fn has_prediction(kind: TargetKind, outputs: &[f32]) -> bool {
    match kind {
        TargetKind::Classes => has_class(outputs),
        TargetKind::MultiLabel | TargetKind::Regression | TargetKind::Links => is_finite(outputs),
    }
}

/// The loss of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ItemLoss {
    /// The weighted loss.
    loss: f64,
    /// The weight.
    weight: f64,
}

/// Computes the formula of [`ClassLoss`].
fn class_loss(loss: &ClassLoss, outputs: &[f32], class: usize) -> ItemLoss {
    let log_sum = log_sum_exp(outputs);
    let weight_of =
        |class: usize| loss.class_weights.as_ref().map_or(1.0, |weights| f64::from(weights[class]));
    let of_class = |class: usize| weight_of(class) * (log_sum - f64::from(outputs[class]));
    let smoothing = f64::from(loss.label_smoothing);
    let weight = weight_of(class);
    if smoothing == 0.0 {
        return ItemLoss { loss: of_class(class), weight };
    }
    let spread: f64 = (0..outputs.len()).map(of_class).sum();
    let loss = (1.0 - smoothing) * of_class(class) + smoothing / outputs.len() as f64 * spread;
    ItemLoss { loss, weight }
}

/// Computes the formulas of [`TargetLoss`] for the known targets, with errors in deviations of the columns if they are given.
fn target_loss(loss: TargetLoss, outputs: &[f32], values: &[f32], deviations: Option<&[f64]>) -> ItemLoss {
    let mut sum = ItemLoss { loss: 0.0, weight: 0.0 };
    let known = outputs.iter().zip(values).enumerate().filter(|(_, (_, target))| !target.is_nan());
    for (column, (&output, &target)) in known {
        let output = f64::from(output);
        let target = f64::from(target);
        let deviation = deviations.map_or(1.0, |deviations| deviations[column]);
        let error = (output - target).abs() / deviation;
        sum.weight += 1.0;
        sum.loss += match loss {
            TargetLoss::BinaryCrossEntropy => softplus(output) - output * target,
            TargetLoss::SquaredError => error * error,
            TargetLoss::AbsoluteError => error,
            TargetLoss::Huber { delta } => {
                let within = error.min(f64::from(delta));
                within * (error - within / 2.0)
            }
        };
    }
    sum
}

/// Computes the formulas of [`LinkLoss`] for a link, whose score is the first one, and its negatives.
fn link_loss(loss: LinkLoss, scores: &[f32]) -> ItemLoss {
    let of_link = f64::from(scores[0]);
    let of_negatives = scores[1..].iter().map(|&score| f64::from(score));
    match loss {
        LinkLoss::BinaryCrossEntropy => ItemLoss {
            loss: softplus(-of_link) + of_negatives.map(softplus).sum::<f64>(),
            weight: scores.len() as f64,
        },
        LinkLoss::BayesianPersonalizedRanking => ItemLoss {
            loss: of_negatives.map(|score| softplus(score - of_link)).sum(),
            weight: (scores.len() - 1) as f64,
        },
    }
}

/// Computes `ln(1 + exp(x))` without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
