use std::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use kiln_comm::{Communicator, Reduce};

use crate::error::Result;
use crate::step::sync::GradientSync;
use crate::step::task::metric_sums::LossWeight;

/// An all-reduce of gradients on the device: concatenates them into one tensor there and sums it with a given function,
/// such as NCCL's all-reduce.
///
/// The average is that of [`HostAllReduce`](crate::HostAllReduce), and bit-identical to it if the function sums in the
/// order of the ranks. Only one `u64` per parameter tensor goes through host memory: the number of ranks that have a
/// gradient for it.
pub struct DeviceAllReduce<S> {
    sum: S,
}

impl<S: FnMut(Tensor<1>) -> Result<Tensor<1>> + Send> DeviceAllReduce<S> {
    /// Creates an all-reduce from a function that returns the sum of a tensor over all ranks. In a step with gradients,
    /// all ranks call the function once, with tensors of the same length.
    pub fn new(sum: S) -> Self {
        Self { sum }
    }
}

impl<S> fmt::Debug for DeviceAllReduce<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceAllReduce").finish_non_exhaustive()
    }
}

impl<M: Module, S: FnMut(Tensor<1>) -> Result<Tensor<1>> + Send> GradientSync<M> for DeviceAllReduce<S> {
    fn average(
        &mut self,
        comm: &mut dyn Communicator,
        model: &M,
        gradients: GradientsParams,
        weight: LossWeight,
    ) -> Result<GradientsParams> {
        let share = (weight.own / weight.all) as f32;
        let mut own = Gather { gradients: &gradients, share, parts: Vec::new(), n_with: Vec::new() };
        model.visit(&mut own);
        let Gather { parts, mut n_with, .. } = own;
        comm.all_reduce_sum(Reduce::U64(&mut n_with))?;
        let on_any = n_with.iter().map(|n_with| 0 < *n_with);
        let travel: Vec<Tensor<1>> = parts
            .into_iter()
            .zip(on_any.clone())
            .filter_map(|(part, is_any)| is_any.then_some(part))
            .collect();
        let mut averaged = GradientsParams::new();
        if travel.is_empty() {
            return Ok(averaged);
        }
        let bucket = Tensor::cat(travel, 0);
        let n_values = bucket.shape().num_elements();
        let mut bucket = Some(bucket);
        let mut sums = None;
        comm.device_sum(n_values, &mut || sums = bucket.take().map(&mut self.sum))?;
        let Some(sums) = sums.transpose()? else { return Ok(averaged) };
        let is_any = on_any.collect::<Vec<_>>();
        model.visit(&mut Scatter { sums, start: 0, is_any: is_any.iter(), gradients: &mut averaged });
        Ok(averaged)
    }
}

/// Collects, for each trainable parameter, the flattened gradient times this rank's share of the items (zeros if there
/// is no gradient) and whether there is a gradient.
struct Gather<'a> {
    gradients: &'a GradientsParams,
    share: f32,
    parts: Vec<Tensor<1>>,
    n_with: Vec<u64>,
}

impl ModuleVisitor for Gather<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            return;
        }
        let n_values = value.shape().num_elements();
        let gradient = self.gradients.get::<D>(param.id);
        self.n_with.push(u64::from(gradient.is_some()));
        self.parts.push(match gradient {
            Some(gradient) => gradient.reshape([n_values]).mul_scalar(self.share),
            None => Tensor::zeros([n_values], &value.device().inner()),
        });
    }
}

/// Splits the sums into the parameters' gradients, in the order in which they were collected.
struct Scatter<'a> {
    sums: Tensor<1>,
    start: usize,
    is_any: std::slice::Iter<'a, bool>,
    gradients: &'a mut GradientsParams,
}

impl ModuleVisitor for Scatter<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() || !self.is_any.next().is_some_and(|is_any| *is_any) {
            return;
        }
        let n_values = value.shape().num_elements();
        let gradient: Tensor<D> = self.sums.clone().narrow(0, self.start, n_values).reshape(value.shape());
        self.start += n_values;
        self.gradients.register(param.id, gradient);
    }
}
