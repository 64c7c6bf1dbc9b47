//! Sums of tensors over GPUs.

use std::time::Duration;

use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use kiln_nccl::{Buffer, Comm, UniqueId};

use crate::cube::launch::{self, float_tensor};
use crate::device::error::DeviceError;

/// One rank's GPU among those of the other ranks, connected by NCCL, which is loaded at run time.
///
/// NCCL sums in an order of its own, which is the same in every run of as many ranks on the same machines.
#[derive(Debug)]
pub struct NcclSum {
    comm: Comm,
}

impl NcclSum {
    /// A new id, made by the first rank and sent to the others.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] where there is no libnccl.
    pub fn new_id() -> Result<Vec<u8>, DeviceError> {
        Ok(UniqueId::new().map_err(failed)?.bytes())
    }

    /// The name of a GPU of this process that no other GPU has; an error where NCCL or the GPU is missing.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn device_uuid(index: usize) -> Result<String, DeviceError> {
        kiln_nccl::check().and_then(|()| kiln_nccl::device_uuid(index)).map_err(failed)
    }

    /// Joins the other ranks, which are other processes: each gives its own rank and the id of the first one. `index` is
    /// the number of the GPU that this process computes on. A sum waits for the other ranks at most for `deadline`.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn join(
        index: usize,
        rank: usize,
        world_size: usize,
        id: &[u8],
        deadline: Duration,
    ) -> Result<Self, DeviceError> {
        let id = UniqueId::from_bytes(id).map_err(failed)?;
        Ok(Self { comm: Comm::join(index, rank, world_size, &id, deadline).map_err(failed)? })
    }

    /// One for each rank of this process, by rank: rank `r` computes on the GPU `indices[r]`. When one of them fails or
    /// is dropped, the sums of the others end with an error instead of waiting for it.
    ///
    /// # Errors
    /// [`DeviceError::Failed`], also where two ranks have the same GPU.
    pub fn for_devices(indices: &[usize], deadline: Duration) -> Result<Vec<Self>, DeviceError> {
        let comms = Comm::for_devices(indices, deadline).map_err(failed)?;
        Ok(comms.into_iter().map(|comm| Self { comm }).collect())
    }

    /// Returns the sum of the ranks' tensors, which are equally long, in the memory of this one. Waits until the device
    /// has finished what was launched before, and for the sum.
    ///
    /// # Shapes
    /// `[n] -> [n]`.
    ///
    /// # Errors
    /// [`DeviceError::Failed`], and for tensors of other devices than CUDA's.
    pub fn sum(&mut self, tensor: Tensor<1>) -> Result<Tensor<1>, DeviceError> {
        let array = tensor.try_into_primitive::<CubeBackend>().map_err(other_device)?;
        let array = into_contiguous(array);
        let (n_values, dtype) = (array.meta.shape()[0], array.dtype);
        launch::wait(&array)?;
        type Server = <CudaRuntime as Runtime>::Server;
        let memory = array.client.get_resource::<Server>(array.handle.clone()).map_err(other_device)?;
        let n_bytes = memory.resource().size as usize;
        if dtype != DType::F32 || n_bytes < n_values * size_of::<f32>() {
            let reason = format!("NCCL sums values of f32, not {n_values} of {dtype:?} in {n_bytes} bytes");
            return Err(DeviceError::Failed { reason });
        }
        let buffer = Buffer { address: memory.resource().ptr, len: n_values };
        // SAFETY: the tensor's memory holds as many values, written by now, and is held by `memory` until the sum is
        // finished; the tensor was given away, so that nobody else uses it.
        unsafe { self.comm.all_reduce_sum(buffer) }.map_err(failed)?;
        drop(memory);
        Ok(float_tensor(array))
    }
}

fn failed(error: kiln_nccl::Error) -> DeviceError {
    DeviceError::Failed { reason: error.to_string() }
}

fn other_device(error: impl std::fmt::Debug) -> DeviceError {
    DeviceError::Failed { reason: format!("NCCL sums tensors of CUDA devices: {error:?}") }
}
