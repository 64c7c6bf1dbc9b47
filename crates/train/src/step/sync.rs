pub(crate) mod device_all_reduce;
pub(crate) mod files;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;

use std::fmt::Debug;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use kiln_comm::{Communicator, Reduce};

use crate::error::Result;
use crate::step::task::metric_sums::LossWeight;

/// Averages gradients over the ranks, through host memory or between devices. This is the interface between the
/// training loop and the transport of gradients.
pub trait GradientSync<M: Module>: Debug + Send {
    /// Takes the gradients of this rank's mean loss and the weights of the items, and returns the gradients of the mean
    /// loss over all ranks' items, equal on every rank. A rank without items passes no gradients and the weight 0. The
    /// trainer does not call this method if there is only one rank.
    ///
    /// # Errors
    /// Returns the communicator's error.
    fn average(
        &mut self,
        comm: &mut dyn Communicator,
        model: &M,
        gradients: GradientsParams,
        weight: LossWeight,
    ) -> Result<GradientsParams>;
}

/// An all-reduce of gradients through host memory: all gradients form one flat bucket, which is summed in the order of
/// the ranks.
///
/// The average is weighted by the ranks' items, so every item has the same weight. (PyTorch's `Join` divides by the
/// number of ranks, so in uneven steps an item of a small share has more weight.) A parameter for which no rank has a
/// gradient gets none. Frozen parameters are not sent.
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

/// Appends, for each trainable parameter, a flag for the presence of a gradient, and the gradient times this rank's
/// share of the items (zeros if there is none).
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

/// Splits the bucket into the parameters' gradients, in the order in which they were appended.
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

/// Copies the floats that are not trained from rank 0 to every rank: running statistics, which each rank's batches have
/// changed, and frozen parameters, which are equal anyway. A model without such floats costs a visit and a cheap copy.
pub(crate) fn share_buffers<M: Module>(comm: &mut dyn Communicator, model: M) -> Result<M> {
    // Burn defers the last update of running statistics until they are read. `valid` reads them.
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
