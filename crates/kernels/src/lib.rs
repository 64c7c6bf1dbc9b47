//! Message passing on a tensor device: blocks as tensors, and aggregation over them as Burn ops with
//! gradients.
//!
//! This crate does not know where a block came from, holds no parameter and draws no random number that
//! its caller did not key. It is the only crate that names a Burn backend.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
//! use kiln_kernels::{DeviceBlock, ops, read_f32};
//! // 7 -> 2 and 9 -> 2, for the one destination 2.
//! let block = Block::new(BlockParts {
//!     srcs: vec![NodeId(2), NodeId(7), NodeId(9)],
//!     indptr: vec![0, 2],
//!     indices: vec![LocalId(1), LocalId(2)],
//!     edge_ids: vec![EdgeId(0), EdgeId(1)],
//!     weights: None,
//! });
//! let device = Device::flex();
//! let x = Tensor::<2>::from_data([[1.0], [2.0], [4.0]], &device);
//! let mean = ops::neighbor_mean(&DeviceBlock::upload(&block, &device), x);
//! assert_eq!(read_f32(mean), [3.0]);
//! ```

mod adam;
mod adjoint;
mod autodiff;
mod block;
mod by_source;
#[cfg(feature = "cube")]
mod cube;
mod device;
mod extension;
mod features;
mod flex;
mod graph;
mod graphs;
mod host;
mod launch;
pub mod ops;
mod reference;
mod sampler;
pub mod testing;
mod upload;

pub use block::DeviceBlock;
#[cfg(feature = "nccl")]
pub use cube::NcclSum;
pub use device::{DeviceError, Devices, NamedDevice, finish, is_processor, load_on, open_device};
pub use features::{DeviceFeatures, HitRate};
pub use graph::DeviceGraph;
pub use graphs::{DeviceGraphs, DeviceRows, DeviceSegments};
pub use host::read_f32;
pub use sampler::{DeviceSampled, DeviceSampler};
pub use upload::UploadError;
