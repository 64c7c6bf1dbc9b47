use std::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use kiln_comm::{Communicator, Reduce};

use crate::error::Result;
use crate::step::metric_sums::LossWeight;
use crate::step::sync::GradientSync;

/// An all-reduce of gradients on the device: all of them become one tensor there, which whatever moves tensors between
/// devices sums.
///
/// The average is that of [`HostAllReduce`](crate::HostAllReduce), and so are its bits where the sum is made in the
/// order of the ranks. Through host memory goes which parameters have a gradient on any rank, 8 bytes each.
pub struct DeviceAllReduce<S> {
    sum: S,
}

impl<S: FnMut(Tensor<1>) -> Result<Tensor<1>> + Send> DeviceAllReduce<S> {
    /// With what gives the sum of a tensor over all ranks: equally long on all, which call it once a step.
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
        let (n_values, mut bucket, mut sums) = (bucket.shape().num_elements(), Some(bucket), None);
        comm.device_sum(n_values, &mut || sums = bucket.take().map(&mut self.sum))?;
        let Some(sums) = sums.transpose()? else { return Ok(averaged) };
        let is_any = on_any.collect::<Vec<_>>();
        model.visit(&mut Scatter { sums, start: 0, is_any: is_any.iter(), gradients: &mut averaged });
        Ok(averaged)
    }
}

/// Appends, for each parameter that learns, the gradient times this rank's share of the items as a line of values, zeros
/// where there is none; and whether there is one.
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

/// Registers each parameter's part of the sums, in the order in which they were gathered.
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
