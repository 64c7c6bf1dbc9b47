//! Message passing on a tensor device: sampled blocks as Burn tensors, and differentiable aggregation over them.
//!
//! The crate has the ops ([`ops`]), the arrays that they read ([`DeviceBlock`], [`DeviceSegments`], [`DeviceRows`]),
//! and sampling and feature gathering on a device ([`DeviceSampler`], [`DeviceFeatures`]). It is independent of how a
//! block was sampled, holds no model parameters, and takes all randomness from keys that the caller passes. It is the
//! only crate of the workspace that names a Burn backend.
//!
//! The folders are layers: `device` (values on a device) knows no op, `ops` knows no backend, and `cpu`, `cube` and
//! `sampling` build on them.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
//! use kiln_kernels::ops::{self, Reduction};
//! use kiln_kernels::{DeviceBlock, to_vec_f32};
//! // The edges 7 -> 2 and 9 -> 2 of the destination 2.
//! let block = Block::new(BlockParts {
//!     srcs: vec![NodeId(2), NodeId(7), NodeId(9)],
//!     indptr: vec![0, 2],
//!     indices: vec![LocalId(1), LocalId(2)],
//!     edge_ids: vec![EdgeId(0), EdgeId(1)],
//!     ..BlockParts::default()
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
mod smoke;
pub mod testing;

pub use cpu::features::{FeatureAggregation, aggregate_features};
#[cfg(feature = "nccl")]
pub use cube::nccl::NcclSum;
#[cfg(feature = "cube")]
pub use cube::rule::{CubeRule, DeviceNeighbors, DeviceRule, NeighborLists, NodeDraws};
/// The language of kernels, in which a [`CubeRule`] is written.
#[cfg(feature = "cube")]
pub use cubecl;
pub use device::block::DeviceBlock;
pub use device::block_size::BlockSize;
pub use device::devices::{Devices, NamedDevice, is_cpu, open_device, run_on_load_stream, wait};
pub use device::error::{DeviceError, UploadError};
pub use device::features::{CacheStats, DeviceFeatures};
pub use device::graphs::{DeviceGraphs, DeviceRows, DeviceSegments};
pub use device::list::{DeviceInfo, list_devices};
pub use device::read::to_vec_f32;
pub use device::relation_groups::DeviceRelationGroups;
pub use device::rows::{gather_features, upload_features};
pub use sampling::edge_features::DeviceEdgeColumn;
pub use sampling::graph::DeviceGraph;
pub use sampling::graph_mode::GraphMode;
pub use sampling::sample::{DeviceSample, DeviceSampledBlocks};
pub use sampling::sampler::DeviceSampler;
pub use smoke::smoke_test;

/// The example of the README, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
