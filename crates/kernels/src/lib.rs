//! Message passing on a tensor device: blocks as tensors, and aggregation over them as Burn ops with
//! gradients.
//!
//! This crate does not know where a block came from, holds no parameter and draws no random number that
//! its caller did not key. It is the only crate that names a Burn backend.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
//! use kiln_kernels::ops::{self, Reduction};
//! use kiln_kernels::{DeviceBlock, to_vec_f32};
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
//! let mean = ops::aggregate(&DeviceBlock::upload(&block, &device), x, Reduction::Mean);
//! assert_eq!(to_vec_f32(mean), [3.0]);
//! ```

mod counts;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod device;
pub mod ops;
mod sampling;
pub mod testing;

#[cfg(feature = "nccl")]
pub use cube::nccl::NcclSum;
pub use device::block::DeviceBlock;
pub use device::devices::{Devices, NamedDevice, is_cpu, open_device, run_on_load_stream, wait};
pub use device::error::{DeviceError, UploadError};
pub use device::features::{CacheStats, DeviceFeatures};
pub use device::graphs::{DeviceGraphs, DeviceRows, DeviceSegments};
pub use device::read::to_vec_f32;
pub use sampling::graph::DeviceGraph;
pub use sampling::sampler::{DeviceSampledBlocks, DeviceSampler};

/// The example of the README, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
