//! Losses of a batch's outputs, summed over its items, so that batches and ranks weigh every target the same.

use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Tensor, TensorData};
use kiln_kernels::DeviceSegments;
use kiln_kernels::ops::{self, Reduction, segment_reduce};

use crate::{Error, LossError, Result};

/// The loss of a batch: the mean loss is `sum / weight`.
#[derive(Debug)]
pub struct LossSum {
    /// The weighted sum of the losses, `[1]`.
    pub sum: Tensor<1>,
    /// The sum of the weights: of the items' classes, or the number of known targets.
    pub weight: f64,
}

impl LossSum {
    /// Adds the losses of items, each of weight 1, in a fixed order.
    ///
    /// # Shapes
    /// `losses` are `[n_items]`.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use kiln_nn::LossSum;
    /// let losses = Tensor::<1>::from_floats([0.5, 1.5], &Device::flex());
    /// let LossSum { sum, weight } = LossSum::of_items(losses);
    /// assert_eq!((sum.into_scalar::<f32>(), weight), (2.0, 2.0));
    /// ```
    pub fn of_items(losses: Tensor<1>) -> Self {
        let [n_items] = losses.dims();
        Self { sum: sum_all(losses.reshape([n_items, 1])), weight: n_items as f64 }
    }
}

/// The cross entropy of class labels (PyTorch's `CrossEntropyLoss`), with optional class weights and label smoothing.
///
/// With weights `w` and smoothing `s`, the loss of an item of class `y` with the log-probabilities `p` of `n` classes is
/// `-(1 - s) w[y] p[y] - s / n * sum over c of w[c] p[c]`, and its weight is `w[y]`. Smoothing is that of Szegedy et al.
/// 2016, section 7, with the weights of PyTorch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassLoss {
    /// One weight per class; `None` weighs all classes equally.
    pub class_weights: Option<Vec<f32>>,
    /// The share of each label that is distributed over all classes, at least 0 and below 1.
    pub label_smoothing: f32,
}

impl ClassLoss {
    /// Checks the settings for a model with `n_classes` outputs.
    ///
    /// # Errors
    /// Returns [`LossError::ClassWeights`] unless there is one weight per class, all finite, none negative and one of
    /// them positive, and [`LossError::LabelSmoothing`] if the smoothing is not in `[0, 1)`.
    pub fn check(&self, n_classes: usize) -> Result<()> {
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return Err(Error::Loss(LossError::LabelSmoothing { got: self.label_smoothing }));
        }
        let Some(weights) = &self.class_weights else { return Ok(()) };
        match weights.len() == n_classes
            && weights.iter().all(|weight: &f32| weight.is_finite() && 0.0 <= *weight)
            && weights.iter().any(|w| 0.0 < *w)
        {
            true => Ok(()),
            false => Err(Error::Loss(LossError::ClassWeights { n_classes, got: weights.clone() })),
        }
    }

    /// Computes the loss of the items' classes.
    ///
    /// Without class weights and smoothing, it is [`ops::cross_entropy`]. Otherwise it is composed of Burn's operations
    /// and a `[n, n_classes]` tensor is created; the losses are added in a fixed order.
    ///
    /// # Shapes
    /// `outputs` are logits, `[n, n_classes]`, and `classes` has `n` classes.
    ///
    /// # Panics
    /// Panics if there is not one class per row, if a class has no column, or if [`ClassLoss::check`] fails.
    pub fn sum(&self, outputs: Tensor<2>, classes: &[i32]) -> LossSum {
        if *self == Self::default() {
            return LossSum { sum: ops::cross_entropy(outputs, classes), weight: classes.len() as f64 };
        }
        let [n_rows, n_classes] = outputs.dims();
        self.check(n_classes).expect("the loss should have been checked for the model's outputs");
        assert_eq!(classes.len(), n_rows, "expected one class per row");
        let smoothing = self.label_smoothing;
        let weight_of = |class: usize| self.class_weights.as_ref().map_or(1.0, |weights| weights[class]);
        let spread: Vec<f32> =
            (0..n_classes).map(|class| smoothing / n_classes as f32 * weight_of(class)).collect();
        let mut shares = spread.repeat(n_rows);
        let mut weight = 0.0;
        for (row, &class) in shares.chunks_exact_mut(n_classes).zip(classes) {
            let class = class as usize;
            assert!(class < n_classes, "a row has class {class}, expected one below {n_classes}");
            row[class] += (1.0 - smoothing) * weight_of(class);
            weight += f64::from(weight_of(class));
        }
        let shares = Tensor::from_data(TensorData::new(shares, [n_rows, n_classes]), &outputs.device());
        LossSum { sum: sum_all((ops::log_softmax(outputs) * shares).neg()), weight }
    }
}

/// The loss of target values `[n, k]`, several per item. Missing targets (NaN) have no loss and no gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetLoss {
    /// The binary cross entropy of logits (PyTorch's `BCEWithLogitsLoss`), for targets from 0 to 1.
    BinaryCrossEntropy,
    /// The squared error (PyTorch's `MSELoss`).
    SquaredError,
    /// The absolute error (PyTorch's `L1Loss`), whose gradient is 0 where the error is 0.
    AbsoluteError,
    /// The squared error, halved, up to an error of `delta`, and beyond linear (Huber 1964; PyTorch's `HuberLoss`).
    Huber {
        /// The error at which the loss becomes linear, above 0.
        delta: f32,
    },
}

impl TargetLoss {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`LossError::HuberDelta`] if `delta` is not a finite number above 0.
    pub fn check(&self) -> Result<()> {
        match *self {
            Self::Huber { delta } if !delta.is_finite() || delta <= 0.0 => {
                Err(Error::Loss(LossError::HuberDelta { got: delta }))
            }
            _ => Ok(()),
        }
    }

    /// Computes the loss of the known targets. The weight is their number. The losses are added in a fixed order.
    ///
    /// # Shapes
    /// `outputs` are `[n, k]`, and `targets` has `n * k` values, row-major, NaN if missing.
    ///
    /// # Panics
    /// Panics if there is not one target per output, or if [`TargetLoss::check`] fails.
    pub fn sum(&self, outputs: Tensor<2>, targets: &[f32]) -> LossSum {
        let [n_rows, n_columns] = outputs.dims();
        let n_targets = targets.len();
        assert_eq!(n_rows * n_columns, n_targets, "{n_targets} targets for {n_rows} x {n_columns} outputs");
        self.check().expect("the loss should have been checked");
        let device = outputs.device();
        let upload =
            |values: Vec<f32>| Tensor::<2>::from_data(TensorData::new(values, [n_rows, n_columns]), &device);
        let n_known = targets.iter().filter(|target| !target.is_nan()).count();
        let known = targets.iter().map(|target| if target.is_nan() { 0.0 } else { *target });
        let known = upload(known.collect());
        if n_known == n_targets {
            return LossSum { sum: sum_all(self.elementwise(outputs, known)), weight: n_known as f64 };
        }
        let is_missing = targets.iter().map(|target| f32::from(u8::from(target.is_nan())));
        let is_missing = upload(is_missing.collect()).greater_elem(0.5);
        // The outputs are replaced, too: the slope at an infinite output times 0 would be NaN.
        let outputs = outputs.mask_fill(is_missing.clone(), 0.0);
        let losses = self.elementwise(outputs, known).mask_fill(is_missing, 0.0);
        LossSum { sum: sum_all(losses), weight: n_known as f64 }
    }

    /// Returns the loss of each target.
    fn elementwise(self, outputs: Tensor<2>, targets: Tensor<2>) -> Tensor<2> {
        match self {
            // -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)), where the second logarithm is that of the first minus x.
            Self::BinaryCrossEntropy => {
                let share = targets.neg().add_scalar(1.0);
                outputs.clone() * share - log_sigmoid(outputs)
            }
            Self::SquaredError => (outputs - targets).square(),
            Self::AbsoluteError => (outputs - targets).abs(),
            Self::Huber { delta } => {
                let error = (outputs - targets).abs();
                let within = error.clone().clamp_max(delta);
                within.clone() * (error - within.mul_scalar(0.5))
            }
        }
    }
}

/// Adds all values in a fixed order: of each column, then of the columns' sums. Burn's sum of a tensor may add in
/// another order on a GPU.
pub(crate) fn sum_all(values: Tensor<2>) -> Tensor<1> {
    let [n_rows, n_columns] = values.dims();
    let device = values.device();
    let all = |n: usize| DeviceSegments::upload(&[0, n as u32], &device);
    let of_columns = segment_reduce(&all(n_rows), values, Reduction::Sum);
    segment_reduce(&all(n_columns), of_columns.reshape([n_columns, 1]), Reduction::Sum).reshape([1])
}
