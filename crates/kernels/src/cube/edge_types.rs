//! The edge types of a graph in a device's memory, and those of the edges that a hop picked.

use std::sync::{Mutex, OnceLock, PoisonError};

use burn::tensor::{Bytes, DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_graph::SharedArray;

use crate::cube::launch::{self, launch_units};
use crate::device::error::UploadError;

/// The number of types in a word of the packed array. Not all devices support 8-bit integers.
const PER_WORD: usize = 4;

/// The edge types of a graph, which are copied to the device once a sampler needs them.
#[derive(Debug)]
pub(crate) struct EdgeTypes {
    /// The type of each edge in the host's memory, until it is copied.
    on_host: Mutex<Option<SharedArray<u8>>>,
    /// The types on the device, as u32, four in each word, the first one in the lowest bits.
    packed: OnceLock<CubeTensor>,
}

/// Looks up the types of edges.
#[cube(launch, address_type = "dynamic")]
fn pick_edge_types(packed: &[u32], edge_ids: &[i64], edge_types: &mut [i32]) {
    if ABSOLUTE_POS >= edge_ids.len() {
        terminate!();
    }
    let edge = u64::cast_from(edge_ids[ABSOLUTE_POS]);
    let word = packed[usize::cast_from(edge >> 2u64)];
    let shift = u32::cast_from(edge & 3u64) * 8u32;
    edge_types[ABSOLUTE_POS] = i32::cast_from((word >> shift) & 255u32);
}

impl EdgeTypes {
    pub(super) fn new(edge_types: SharedArray<u8>) -> Self {
        Self { on_host: Mutex::new(Some(edge_types)), packed: OnceLock::new() }
    }

    /// Copies the types to the device of a tensor, unless they are there.
    ///
    /// # Errors
    /// Returns [`UploadError::TooLarge`] if the device cannot allocate them, and [`UploadError::Device`] if it fails.
    pub(super) fn store(&self, like: &CubeTensor) -> Result<(), UploadError> {
        // The lock is held during the copy, so that other threads wait and share it.
        let mut on_host = self.on_host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(edge_types) = &*on_host {
            let packed = upload_packed(like, edge_types)?;
            self.packed.set(packed).expect("the edge types should be copied once");
            *on_host = None;
        }
        Ok(())
    }

    pub(super) fn is_stored(&self) -> bool {
        self.packed.get().is_some()
    }

    /// Returns the types of edges, as i32.
    ///
    /// # Panics
    /// Panics unless [`EdgeTypes::store`] was called.
    pub(super) fn of(&self, edge_ids: &CubeTensor) -> CubeTensor {
        let packed = self.packed.get().expect("the edge types should have been copied to the device");
        let n_edges = launch::length(edge_ids);
        let edge_types = launch::new_array(edge_ids, n_edges);
        launch_units!(
            pick_edge_types,
            edge_ids,
            n_edges,
            launch::buffer(packed),
            launch::buffer(edge_ids),
            launch::buffer(&edge_types)
        );
        edge_types
    }
}

fn upload_packed(like: &CubeTensor, edge_types: &[u8]) -> Result<CubeTensor, UploadError> {
    let pieces = edge_types.chunks(launch::PIECE_BYTES).map(|piece| {
        let mut bytes = piece.to_vec();
        bytes.resize(piece.len().next_multiple_of(PER_WORD), 0);
        Ok(Bytes::from_bytes_vec(bytes))
    });
    let shape = Shape::new([edge_types.len().div_ceil(PER_WORD)]);
    launch::upload_pieces(like, "the edge types", shape, DType::U32, pieces)
}
