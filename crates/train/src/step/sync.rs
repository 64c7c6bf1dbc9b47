use std::fmt::Debug;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use kiln_comm::{Communicator, Reduce};

use crate::error::Result;
use crate::step::metric_sums::LossWeight;

/// Averages gradients over the ranks: the one seam between the training loop and whatever moves them,
/// through host memory or between devices.
pub trait GradientSync<M: Module>: Debug + Send {
    /// Takes the gradients of this rank's mean loss and the weight that the mean was taken over; gives
    /// the gradients of the mean over all ranks' items, the same on every rank. A rank without items
    /// comes with no gradients and weight 0. Not called where there is one rank.
    ///
    /// # Errors
    /// Whatever the communicator says.
    fn average(
        &mut self,
        comm: &mut dyn Communicator,
        model: &M,
        gradients: GradientsParams,
        weight: LossWeight,
    ) -> Result<GradientsParams>;
}

/// An all-reduce of gradients through host memory: all of them travel as one flat bucket, which is summed in the order
/// of the ranks.
///
/// The average is weighted by the ranks' items, so that every item counts the same. (PyTorch's `Join` divides
/// by the number of ranks, so that in uneven steps an item of a small share counts more.) A parameter that has
/// a gradient on no rank gets none; frozen parameters do not travel.
#[derive(Debug, Default)]
pub struct HostAllReduce {
    bucket: Vec<f32>,
}

impl<M: Module> GradientSync<M> for HostAllReduce {
    fn average(
        &mut self,
        comm: &mut dyn Communicator,
        model: &M,
        gradients: GradientsParams,
        weight: LossWeight,
    ) -> Result<GradientsParams> {
        self.bucket.clear();
        let share = (weight.own / weight.all) as f32;
        model.visit(&mut Flatten { bucket: &mut self.bucket, gradients: &gradients, share });
        comm.all_reduce_sum(Reduce::F32(&mut self.bucket))?;
        let mut averaged = GradientsParams::new();
        model.visit(&mut Unflatten { rest: &self.bucket, gradients: &mut averaged });
        Ok(averaged)
    }
}

/// Appends, for each parameter that learns, whether it has a gradient here, and the gradient times this
/// rank's share of the items, zeros where there is none.
struct Flatten<'a> {
    bucket: &'a mut Vec<f32>,
    gradients: &'a GradientsParams,
    share: f32,
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
                let values = kiln_kernels::to_vec_f32(gradient);
                self.bucket.extend(values.iter().map(|value| value * self.share));
            }
            None => self.bucket.resize(self.bucket.len() + 1 + value.shape().num_elements(), 0.0),
        }
    }
}

/// Registers each parameter's part of the bucket, in the order in which it was flattened.
struct Unflatten<'a> {
    rest: &'a [f32],
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
        let gradient = TensorData::new(part[1..].to_vec(), value.shape());
        self.gradients.register(param.id, Tensor::<D>::from_data(gradient, &value.device().inner()));
    }
}

/// Gives every rank the first rank's floats that do not learn: running statistics, which each rank's own
/// batches changed, and frozen parameters, which are the same anyway. Costs a visit and a cheap copy where
/// there are none.
pub(crate) fn share_buffers<M: Module>(comm: &mut dyn Communicator, model: M) -> Result<M> {
    // Running statistics keep the last step's update apart until they are asked to settle it.
    drop(model.valid());
    let mut values = Buffers(Vec::new());
    model.visit(&mut values);
    if values.0.is_empty() {
        return Ok(model);
    }
    let mut bytes = bytemuck::cast_slice(&values.0).to_vec();
    comm.broadcast(0, &mut bytes)?;
    if comm.rank_info().rank == 0 {
        return Ok(model);
    }
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
    Ok(model.map(&mut SetBuffers(&values)))
}

struct Buffers(Vec<f32>);

impl ModuleVisitor for Buffers {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            self.0.extend(kiln_kernels::to_vec_f32(value));
        }
    }
}

struct SetBuffers<'a>(&'a [f32]);

impl ModuleMapper for SetBuffers<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = param.val();
        if value.is_require_grad() {
            return param;
        }
        let (own, rest) = self.0.split_at(value.shape().num_elements());
        self.0 = rest;
        let data = TensorData::new(own.to_vec(), value.shape());
        param.map(|value| Tensor::from_data(data, &value.device()))
    }
}
