use std::fmt;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use kiln_feature::{TargetKind, TargetScaler};
use kiln_nn::LossSum;

use crate::error::Result;
use crate::step::task::custom_loss_error::CustomLossError;

/// The maximum number of items whose loss is computed at once from outputs on the host.
const ITEMS_AT_ONCE: usize = 4096;

/// The number of items for which a loss is computed before training, to check its result.
const N_CHECKED: usize = 3;

/// A loss of one's own: a function of the outputs and the targets of a batch, with a name that identifies it
/// ([`Objective::custom`](crate::Objective::custom)).
///
/// The function is called with the outputs of each training step, on the device of the model, and with those of an evaluation,
/// which may be on the CPU: tensors that it creates belong on the device of the outputs. The loss of several batches is the sum of their
/// losses, so that the result for an item should not depend on the other items of the batch.
#[derive(Clone)]
pub struct CustomLoss {
    name: Arc<str>,
    kind: TargetKind,
    function: Arc<LossFunction>,
}

type LossFunction = dyn Fn(Tensor<2>, &LossTargets<'_>) -> LossValue + Send + Sync;

/// The result of a loss of one's own. `Tensor<1>` and [`LossSum`] convert to it.
#[derive(Debug)]
pub enum LossValue {
    /// The loss of each item, `[n_items]`. Each item has the weight 1, and the loss of a step is the mean.
    Items(Tensor<1>),
    /// The weighted sum of the losses and the sum of the weights. The loss of a step is their quotient.
    Sum(LossSum),
}

impl LossValue {
    /// Returns the sum over `n_items` items. `name` is that of the loss, for the error.
    pub(crate) fn into_sum(self, name: &str, n_items: usize) -> Result<LossSum> {
        match self {
            Self::Sum(LossSum { weight, .. }) if !weight.is_finite() || weight < 0.0 => {
                Err(CustomLossError::Weight { name: name.to_owned(), got: weight }.into())
            }
            Self::Sum(sum) => Ok(sum),
            Self::Items(losses) => match losses.dims() {
                [got] if got != n_items => {
                    Err(CustomLossError::Shape { name: name.to_owned(), n_items, got }.into())
                }
                _ => Ok(LossSum::of_items(losses)),
            },
        }
    }
}

impl From<Tensor<1>> for LossValue {
    fn from(losses: Tensor<1>) -> Self {
        Self::Items(losses)
    }
}

impl From<LossSum> for LossValue {
    fn from(sum: LossSum) -> Self {
        Self::Sum(sum)
    }
}

/// The targets of a batch, for a loss of one's own.
#[derive(Debug, Clone)]
pub struct LossTargets<'a> {
    /// The class of each item, `[n_items]`; empty for other targets.
    pub classes: &'a [i32],
    /// The target values, `[n_items, n_outputs]`, row-major: 1 or 0 for labels, or numbers on the scale of the model's outputs
    /// ([`TargetScale`](crate::TargetScale)), NaN if missing. Empty for classes and links.
    pub values: &'a [f32],
    n_outputs: usize,
    device: Device,
}

impl<'a> LossTargets<'a> {
    /// Returns the targets of a batch with these outputs, `[n_items, n_outputs]`: one of `classes` and `values` has them, the other is
    /// empty, and both are for links.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use kiln_train::LossTargets;
    /// let outputs = Tensor::zeros([2, 3], &Device::flex());
    /// assert_eq!(LossTargets::new(&outputs, &[0, 2], &[]).classes().dims(), [2]);
    /// ```
    pub fn new(outputs: &Tensor<2>, classes: &'a [i32], values: &'a [f32]) -> Self {
        let [_, n_outputs] = outputs.dims();
        Self { classes, values, n_outputs, device: outputs.device() }
    }

    /// Returns the class of each item as a tensor, `[n_items]`, on the device of the outputs; an empty one for other targets.
    ///
    /// ```
    /// use kiln_feature::TargetKind;
    /// use kiln_train::Objective;
    /// // The negative log-likelihood of outputs that are log-probabilities.
    /// let loss = Objective::custom("nll", TargetKind::Classes, |outputs, targets| {
    ///     let classes = targets.classes().unsqueeze_dim(1);
    ///     outputs.gather(1, classes).neg().squeeze_dim::<1>(1)
    /// });
    /// ```
    pub fn classes(&self) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(self.classes.to_vec(), [self.classes.len()]), &self.device)
    }

    /// Returns the target values as a tensor, `[n_items, n_outputs]`, on the device of the outputs; an empty one for classes and
    /// links.
    ///
    /// ```
    /// use kiln_feature::TargetKind;
    /// use kiln_train::Objective;
    /// // The squared error in percent of the target, of one number per item.
    /// let loss = Objective::custom("percentage", TargetKind::Regression, |outputs, targets| {
    ///     let values = targets.values();
    ///     ((outputs - values.clone()) / values).square().squeeze_dim::<1>(1)
    /// });
    /// ```
    pub fn values(&self) -> Tensor<2> {
        let n_items = self.values.len() / self.n_outputs.max(1);
        Tensor::from_data(TensorData::new(self.values.to_vec(), [n_items, self.n_outputs]), &self.device)
    }
}

impl CustomLoss {
    pub(crate) fn new<R: Into<LossValue>>(
        name: &str,
        kind: TargetKind,
        function: impl Fn(Tensor<2>, &LossTargets<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        let function = move |outputs: Tensor<2>, targets: &LossTargets<'_>| function(outputs, targets).into();
        Self { name: name.into(), kind, function: Arc::new(function) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of targets that it learns.
    pub fn kind(&self) -> TargetKind {
        self.kind
    }

    /// Checks the name, and the loss of a few items with the output 0 and the target 0.
    pub(crate) fn check(&self, n_outputs: usize) -> Result<()> {
        let name = self.name.to_string();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(CustomLossError::Name { name }.into());
        }
        if n_outputs == 0 {
            // Without outputs, there is nothing to learn, and no class 0.
            return Ok(());
        }
        let outputs = Tensor::zeros([N_CHECKED, n_outputs], &Device::flex());
        let classes = vec![0; if self.kind == TargetKind::Classes { N_CHECKED } else { 0 }];
        let has_values = matches!(self.kind, TargetKind::MultiLabel | TargetKind::Regression);
        let mut values = vec![0.0; if has_values { N_CHECKED * n_outputs } else { 0 }];
        self.value(outputs.clone(), &classes, &values).into_sum(&name, N_CHECKED)?;
        if let Some(missing) = values.first_mut() {
            *missing = f32::NAN;
            // A loss of items without a target may be anything, but it is one per item.
            if let LossValue::Items(losses) = self.value(outputs, &classes, &values) {
                LossValue::Items(losses).into_sum(&name, N_CHECKED)?;
            }
        }
        Ok(())
    }

    /// Computes the loss of a batch. One of `classes` and `values` has the targets, the other is empty; both are for links.
    ///
    /// # Panics
    /// Panics if the function returns another number of losses than in [`CustomLoss::check`].
    pub(crate) fn sum(&self, outputs: Tensor<2>, classes: &[i32], values: &[f32]) -> LossSum {
        let [n_items, _] = outputs.dims();
        let sum = self.value(outputs, classes, values).into_sum(&self.name, n_items);
        sum.unwrap_or_else(|error| panic!("{error}"))
    }

    fn value(&self, outputs: Tensor<2>, classes: &[i32], values: &[f32]) -> LossValue {
        let targets = LossTargets::new(&outputs, classes, values);
        (self.function)(outputs, &targets)
    }

    /// Computes the loss of items on the host, from outputs and values in the units of the targets, `[n_items, n_outputs]`: the
    /// weighted sum and the weight. The function gets those on the scale of the model.
    pub(crate) fn sum_rows(
        &self,
        mut outputs: Vec<f32>,
        n_outputs: usize,
        classes: &[i32],
        mut values: Vec<f32>,
        scaler: Option<&TargetScaler>,
    ) -> (f64, f64) {
        if let Some(scaler) = scaler {
            scaler.scale(&mut outputs);
            scaler.scale(&mut values);
        }
        let width = n_outputs.max(1);
        let device = Device::flex();
        let mut loss = 0.0;
        let mut weight = 0.0;
        for (chunk, rows) in outputs.chunks(ITEMS_AT_ONCE * width).enumerate() {
            let first = chunk * ITEMS_AT_ONCE;
            let n_items = rows.len() / width;
            let classes = classes.get(first..first + n_items).unwrap_or_default();
            let values = values.get(first * width..(first + n_items) * width).unwrap_or_default();
            let outputs = Tensor::from_data(TensorData::new(rows.to_vec(), [n_items, n_outputs]), &device);
            let of_chunk = self.sum(outputs, classes, values);
            loss += kiln_kernels::to_vec_f32(of_chunk.sum).iter().map(|&sum| f64::from(sum)).sum::<f64>();
            weight += of_chunk.weight;
        }
        (loss, weight)
    }
}

/// Compares the names and the kinds of the targets: functions cannot be compared.
impl PartialEq for CustomLoss {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.kind) == (&other.name, other.kind)
    }
}

/// Writes the name, by which a run is compared when it is resumed.
impl fmt::Debug for CustomLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}
