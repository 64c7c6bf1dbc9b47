//! All-reduce sums of tensors over GPUs with NCCL.

use std::time::Duration;

use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use kiln_nccl::{Buffer, Comm, UniqueId};

use crate::cube::launch::{self, float_tensor};
use crate::device::error::DeviceError;

/// One rank of an NCCL communicator that sums tensors over the GPUs of all ranks. libnccl is loaded at run time.
///
/// NCCL chooses the order of the additions. It is the same in every run with the same number of ranks on the same
/// machines.
#[derive(Debug)]
pub struct NcclSum {
    comm: Comm,
}

impl NcclSum {
    /// Creates the id of a new communicator, which the first rank sends to the others.
    ///
    /// # Errors
    /// Returns [`DeviceError::Failed`] if libnccl is missing or too old, or fails.
    pub fn new_id() -> Result<Vec<u8>, DeviceError> {
        Ok(UniqueId::new().map_err(failed)?.bytes())
    }

    /// Returns the UUID of the GPU that has the CUDA index `index` in this process. UUIDs are unique across machines.
    ///
    /// # Errors
    /// Returns [`DeviceError::Failed`] if NCCL or the GPU is missing.
    pub fn device_uuid(index: usize) -> Result<String, DeviceError> {
        kiln_nccl::check().and_then(|()| kiln_nccl::device_uuid(index)).map_err(failed)
    }

    /// Joins a communicator with the other ranks, which are other processes. All ranks pass the id that the first rank
    /// created. `index` is the CUDA index of the GPU that this process computes on. Joining and each sum wait for the
    /// other ranks for at most `deadline`.
    ///
    /// # Errors
    /// Returns [`DeviceError::Failed`] if NCCL or the GPU is missing, or a rank does not join before the deadline.
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

    /// Creates a communicator whose ranks are all in this process, and returns one value per rank: rank `r` computes on
    /// the GPU `indices[r]`. If a rank fails or is dropped, the sums of the other ranks return an error instead of
    /// waiting for it.
    ///
    /// # Errors
    /// Returns [`DeviceError::Failed`] if NCCL or a GPU is missing, or two ranks have the same GPU.
    pub fn for_devices(indices: &[usize], deadline: Duration) -> Result<Vec<Self>, DeviceError> {
        let comms = Comm::for_devices(indices, deadline).map_err(failed)?;
        Ok(comms.into_iter().map(|comm| Self { comm }).collect())
    }

    /// Returns the sum of the tensors of all ranks, which must have the same length. The result reuses the memory of
    /// `tensor`. Waits until the device has written the tensor, and until the sum is complete.
    ///
    /// # Shapes
    /// `[n] -> [n]`.
    ///
    /// # Errors
    /// Returns [`DeviceError::Failed`] if the tensor is not f32 on a CUDA device, the device or NCCL fails, or another
    /// rank fails or does not call before the deadline.
    pub fn sum(&mut self, tensor: Tensor<1>) -> Result<Tensor<1>, DeviceError> {
        let array = tensor.try_into_primitive::<CubeBackend>().map_err(other_device)?;
        let array = into_contiguous(array);
        let n_values = array.meta.shape()[0];
        let dtype = array.dtype;
        launch::wait(&array)?;
        type Server = <CudaRuntime as Runtime>::Server;
        let memory = array.client.get_resource::<Server>(array.handle.clone()).map_err(other_device)?;
        let n_bytes = memory.resource().size as usize;
        if dtype != DType::F32 || n_bytes < n_values * size_of::<f32>() {
            let reason =
                format!("NCCL cannot sum {n_values} values of {dtype:?} in {n_bytes} bytes: expected f32");
            return Err(DeviceError::Failed { reason });
        }
        let buffer = Buffer { address: memory.resource().ptr, len: n_values };
        // SAFETY: the tensor's memory has this number of values, all of them initialised, and `memory` keeps it alive
        // until the sum is finished. The tensor was passed by value, so nothing else uses it.
        unsafe { self.comm.all_reduce_sum(buffer) }.map_err(failed)?;
        drop(memory);
        Ok(float_tensor(array))
    }
}

fn failed(error: kiln_nccl::Error) -> DeviceError {
    DeviceError::Failed { reason: error.to_string() }
}

fn other_device(error: impl std::fmt::Debug) -> DeviceError {
    DeviceError::Failed {
        reason: format!("NCCL cannot sum a tensor that is not on a CUDA device: {error:?}"),
    }
}
