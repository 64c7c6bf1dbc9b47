use burn::tensor::{Tensor, TensorData};
use kiln_feature::{TargetKind, TargetScaler};
use kiln_nn::Mode;

use crate::step::task::StepOutput;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::objective::{BatchTargets, Objective};

/// An objective with the scale on which a regression compares outputs with targets. The model's outputs are on this scale
/// within a training step. Everything else has outputs in the units of the targets.
///
/// A task does not read the targets of the training split, so the program that creates it passes the scaler of
/// [`TargetScale::scaler`](crate::TargetScale::scaler); without one, the targets are learned as they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskObjective {
    objective: Objective,
    scaler: Option<TargetScaler>,
}

impl From<Objective> for TaskObjective {
    /// Returns the objective on the scale of the targets themselves.
    fn from(objective: Objective) -> Self {
        Self { objective, scaler: None }
    }
}

impl TaskObjective {
    /// Sets the scale of regression targets; `None` for the units of the targets. It does not change other objectives.
    #[must_use]
    pub fn with_target_scaler(self, scaler: Option<TargetScaler>) -> Self {
        let scaler = scaler.filter(|_| self.kind() == TargetKind::Regression);
        Self { scaler, ..self }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &Objective {
        &self.objective
    }

    /// Returns the scale of regression targets; `None` for the units of the targets, and for other objectives.
    pub fn target_scaler(&self) -> Option<&TargetScaler> {
        self.scaler.as_ref()
    }

    /// Returns the kind of the targets.
    pub fn kind(&self) -> TargetKind {
        self.objective.kind()
    }

    /// Returns the name of a loss of one's own.
    pub(crate) fn loss_name(&self) -> Option<&str> {
        match &self.objective {
            Objective::Custom(loss) => Some(loss.name()),
            Objective::Classes(_)
            | Objective::MultiLabel
            | Objective::Regression(_)
            | Objective::Links(_) => None,
        }
    }

    /// Computes the loss of a batch. One of `classes` and `values` has the targets, the other is empty. In evaluations, the
    /// outputs are returned in the units of the targets; a training step does not wait for them.
    pub(crate) fn forward(
        &self,
        outputs: Tensor<2>,
        classes: &[i32],
        values: &[f32],
        mode: Mode,
    ) -> StepOutput {
        let Some(scaler) = &self.scaler else { return self.objective.forward(outputs, classes, values) };
        let mut scaled = values.to_vec();
        scaler.scale(&mut scaled);
        let output = self.objective.forward(outputs, classes, &scaled);
        match mode {
            Mode::Train => output,
            Mode::Eval => StepOutput { outputs: restored(scaler, output.outputs), ..output },
        }
    }

    /// Returns a model's outputs, `[n, width]`, row-major, in the units of the targets.
    pub(crate) fn restore(&self, mut outputs: Vec<f32>, width: usize) -> Vec<f32> {
        if let Some(scaler) = &self.scaler {
            scaler.restore(&mut outputs, width.max(1));
        }
        outputs
    }

    /// Returns the targets of a batch with which its outputs are compared.
    pub(crate) fn targets(&self, classes: &[i32], values: &[f32], n_items: usize) -> BatchTargets {
        self.objective.targets(classes, values, n_items)
    }

    /// Returns true if an item with these outputs has a prediction. Items without one count in no metric.
    pub(crate) fn has_prediction(&self, outputs: &[f32]) -> bool {
        self.objective.has_prediction(outputs)
    }

    /// Computes the metric sums of a batch like [`TaskObjective::count_rows`], from a tensor `[n_items, n_outputs]`; `None`
    /// if all items have a prediction.
    pub(crate) fn count_finite(
        &self,
        outputs: &Tensor<2>,
        classes: &[i32],
        values: &[f32],
    ) -> Option<MetricSums> {
        let [_, n_outputs] = outputs.dims();
        let outputs = kiln_kernels::to_vec_f32(outputs.clone());
        let is_complete = outputs.chunks_exact(n_outputs.max(1)).all(|row| self.has_prediction(row));
        (!is_complete).then(|| self.count_rows(&outputs, n_outputs, classes, values))
    }

    /// Computes the metric sums of items with outputs and targets in the units of the targets, as
    /// [`Objective::count_rows`] does.
    pub(crate) fn count_rows(
        &self,
        outputs: &[f32],
        n_outputs: usize,
        classes: &[i32],
        values: &[f32],
    ) -> MetricSums {
        self.objective.count_rows(outputs, n_outputs, classes, values, self.scaler.as_ref())
    }
}

/// Returns outputs, `[n, width]`, in the units of the targets. They are computed on the host in f64, as those of saved
/// models are, because targets may be out of the range in which f32 has precise products.
fn restored(scaler: &TargetScaler, outputs: Tensor<2>) -> Tensor<2> {
    let [n_rows, width] = outputs.dims();
    if width == 0 {
        return outputs;
    }
    let device = outputs.device();
    let mut values = kiln_kernels::to_vec_f32(outputs);
    scaler.restore(&mut values, width);
    Tensor::from_data(TensorData::new(values, [n_rows, width]), &device)
}
