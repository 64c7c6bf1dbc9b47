//! Sums of tensors over the GPUs of several processes.

use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::{CudaContext, CudaStream};
use cudarc::nccl::{Comm, Id, ReduceOp};

use super::{CubeBackend, float_tensor, launch};
use crate::DeviceError;

/// A communicator's secret.
const ID_BYTES: usize = 128;

/// This process's GPU among those of other processes, one each, as NCCL connects them: it is loaded when a program runs.
///
/// NCCL sums in an order of its own, which is the same in every run of as many ranks on the same machines.
#[derive(Debug)]
pub struct NcclSum {
    comm: Mutex<Handle>,
    stream: Arc<CudaStream>,
}

#[derive(Debug)]
struct Handle(Comm);

// SAFETY: NCCL lets any thread use a communicator, if no two do at the same time, which the mutex sees to.
unsafe impl Send for Handle {}

impl NcclSum {
    /// A new secret: that of the first process, which tells the others.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] where there is no libnccl.
    pub fn new_id() -> Result<Vec<u8>, DeviceError> {
        is_there()?;
        let id = Id::new().map_err(failed)?;
        Ok(id.internal().iter().map(|byte| *byte as u8).collect())
    }

    /// Meets the other processes: each gives its own rank, and the secret of the first one. `index` is the number of the
    /// GPU that this process computes on.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn new(index: usize, rank: usize, world_size: usize, id: &[u8]) -> Result<Self, DeviceError> {
        is_there()?;
        let bytes: [u8; ID_BYTES] = id.try_into().map_err(|_| DeviceError::Failed {
            reason: format!("an id of NCCL has {ID_BYTES} bytes, not {}", id.len()),
        })?;
        let stream = CudaContext::new(index).and_then(|context| context.new_stream()).map_err(failed)?;
        let id = Id::uninit(bytes.map(|byte| byte as c_char));
        let comm = Comm::from_rank(Arc::clone(&stream), rank, world_size, id).map_err(failed)?;
        Ok(Self { comm: Mutex::new(Handle(comm)), stream })
    }

    /// The sum of the ranks' tensors, which are equally long, in the place of this one. Waits until what the device was
    /// asked for before is done, and for the sum.
    ///
    /// # Errors
    /// [`DeviceError::Failed`], and for tensors of other devices than CUDA's.
    pub fn sum(&self, tensor: Tensor<1>) -> Result<Tensor<1>, DeviceError> {
        let array = tensor.try_into_primitive::<CubeBackend>().map_err(failed)?;
        let array = into_contiguous(array);
        let (n_values, dtype) = (array.meta.shape()[0], array.dtype);
        launch::finish(&array)?;
        type Server = <CudaRuntime as Runtime>::Server;
        let memory = array.client.get_resource::<Server>(array.handle.clone()).map_err(failed)?;
        let n_bytes = memory.resource().size as usize;
        if dtype != DType::F32 || n_bytes < n_values * size_of::<f32>() {
            let reason = format!("NCCL sums values of f32, not {n_values} of {dtype:?} in {n_bytes} bytes");
            return Err(DeviceError::Failed { reason });
        }
        let handle = self.comm.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the tensor's memory holds as many values, written by now, and is held by `memory` until this has
        // waited for the sum; it is given back to nobody, as the slice is never dropped.
        let slice = unsafe { self.stream.upgrade_device_ptr::<f32>(memory.resource().ptr, n_values) };
        let mut slice = ManuallyDrop::new(slice);
        handle.0.all_reduce_in_place(&mut *slice, &ReduceOp::Sum).map_err(failed)?;
        self.stream.synchronize().map_err(failed)?;
        Ok(float_tensor(array))
    }
}

/// The library is loaded by its first call, which panics where there is none.
fn is_there() -> Result<(), DeviceError> {
    // SAFETY: it opens libraries by their names and closes them; NCCL's own initialisers are safe to run.
    match unsafe { cudarc::nccl::sys::is_culib_present() } {
        true => Ok(()),
        false => Err(DeviceError::Failed { reason: "there is no libnccl on this machine".to_owned() }),
    }
}

fn failed(error: impl std::fmt::Debug) -> DeviceError {
    DeviceError::Failed { reason: format!("NCCL: {error:?}") }
}
