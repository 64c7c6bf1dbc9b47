use std::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

/// The error of a communicator, whichever it is.
type SyncError = Box<dyn std::error::Error + Send + Sync>;

/// Averages gradients over the ranks: the one seam between the training loop and whatever moves them,
/// through host memory or between devices.
///
/// Every rank calls it once a step: a rank without items with weight 0, and a rank that cannot go on with
/// no gradients and a weight that is not a number, so that the others end with an error and wait for
/// nothing.
pub trait GradientSync<M: Module> {
    /// Takes the gradients of this rank's mean loss and the weight that the mean was taken over; gives
    /// the gradients of the mean over all ranks' items, the same on every rank.
    ///
    /// # Errors
    /// Whatever the communicator says.
    fn average(
        &mut self,
        model: &M,
        gradients: GradientsParams,
        weight: f64,
    ) -> Result<GradientsParams, SyncError>;
}

/// One rank: its gradients are the average.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleRank;

impl<M: Module> GradientSync<M> for SingleRank {
    fn average(&mut self, _: &M, gradients: GradientsParams, _: f64) -> Result<GradientsParams, SyncError> {
        Ok(gradients)
    }
}

/// Several ranks, through host memory: all gradients travel as one flat bucket that `all_reduce_sum`
/// replaces by its sum over the ranks.
///
/// A parameter that has a gradient on no rank gets none; frozen parameters do not travel.
pub struct BucketSync<F> {
    all_reduce_sum: F,
    bucket: Vec<f32>,
}

impl<F> BucketSync<F> {
    /// Averages through this sum over ranks.
    pub fn new(all_reduce_sum: F) -> Self {
        Self { all_reduce_sum, bucket: Vec::new() }
    }
}

impl<F> fmt::Debug for BucketSync<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketSync").field("bucket_len", &self.bucket.len()).finish_non_exhaustive()
    }
}

impl<M, F> GradientSync<M> for BucketSync<F>
where
    M: Module,
    F: FnMut(&mut [f32]) -> Result<(), SyncError>,
{
    fn average(
        &mut self,
        model: &M,
        gradients: GradientsParams,
        weight: f64,
    ) -> Result<GradientsParams, SyncError> {
        self.bucket.clear();
        let weight = weight as f32;
        model.visit(&mut Flatten { bucket: &mut self.bucket, gradients: &gradients, weight });
        self.bucket.push(weight);
        (self.all_reduce_sum)(&mut self.bucket)?;
        let total = self.bucket.pop().unwrap_or(0.0);
        if !total.is_finite() {
            return Err("another rank could not go on".into());
        }
        let mut averaged = GradientsParams::new();
        if total == 0.0 {
            return Ok(averaged);
        }
        model.visit(&mut Unflatten { rest: &self.bucket, scale: 1.0 / total, gradients: &mut averaged });
        Ok(averaged)
    }
}

/// Appends, for each parameter that learns, whether it has a gradient here, and the gradient times the
/// weight, zeros where there is none.
struct Flatten<'a> {
    bucket: &'a mut Vec<f32>,
    gradients: &'a GradientsParams,
    weight: f32,
}

impl ModuleVisitor for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            return;
        }
        match self.gradients.get::<D>(param.id) {
            Some(gradient) => {
                self.bucket.push(1.0);
                let values = kiln_kernels::read_f32(gradient);
                self.bucket.extend(values.iter().map(|value| value * self.weight));
            }
            None => self.bucket.resize(self.bucket.len() + 1 + value.shape().num_elements(), 0.0),
        }
    }
}

/// Registers each parameter's part of the bucket, scaled, in the order in which it was flattened.
struct Unflatten<'a> {
    rest: &'a [f32],
    scale: f32,
    gradients: &'a mut GradientsParams,
}

impl ModuleVisitor for Unflatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            return;
        }
        let (part, rest) = self.rest.split_at(1 + value.shape().num_elements());
        self.rest = rest;
        if part[0] == 0.0 {
            return;
        }
        let scaled: Vec<f32> = part[1..].iter().map(|sum| sum * self.scale).collect();
        let gradient = TensorData::new(scaled, value.shape());
        self.gradients.register(param.id, Tensor::<D>::from_data(gradient, &value.device().inner()));
    }
}
