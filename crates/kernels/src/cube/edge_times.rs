//! The times of a graph's edges and of a hop's destinations in a device's memory.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use kiln_graph::{EdgeTimes, TimeScale};
use kiln_sample::{HopRequest, KeyDomain, RngKey};

use crate::cube::launch;
use crate::device::error::UploadError;

/// The arrays of [`EdgeTimes`] on a device, 12 bytes per edge.
#[derive(Debug)]
pub(super) struct DeviceEdgeTimes {
    pub(super) order: CubeTensor,
    pub(super) times: CubeTensor,
    scale: TimeScale,
}

impl DeviceEdgeTimes {
    /// Copies the arrays to the device of a tensor. The order must have been checked.
    ///
    /// # Errors
    /// Returns [`UploadError::TooLarge`] if the device cannot allocate an array, and [`UploadError::Device`] if it fails.
    pub(super) fn new(like: &CubeTensor, times: &EdgeTimes) -> Result<Self, UploadError> {
        Ok(Self {
            order: launch::upload_large(like, "the order of edges by time", times.order(), DType::U32)?,
            times: launch::upload_large(like, "the times of edges", times.times(), DType::I64)?,
            scale: times.scale(),
        })
    }

    /// Returns the 32-bit number of a time in the order.
    pub(super) fn scaled(&self, time: i64) -> u32 {
        self.scale.scaled(time)
    }
}

/// The times of a hop's destinations.
#[derive(Debug, Clone)]
pub(crate) struct DstTimes {
    /// For each destination, the position of its time among the distinct ones.
    pub(super) index: CubeTensor,
    /// The number of distinct times.
    pub(super) n_times: usize,
    /// For each distinct time, the first known time and the end of the known times.
    pub(super) ranges: CubeTensor,
    /// For each distinct time, the scaled ends of its range, and the two words of its key.
    pub(super) words: CubeTensor,
    pub(super) has_window: bool,
}

impl DstTimes {
    /// Copies the distinct times of a hop to the device of `index`, which has the position of each destination's time among them.
    /// The edges of the hop have the times `edges`.
    pub(super) fn new(
        distinct: &[i64],
        index: CubeTensor,
        edges: Option<&DeviceEdgeTimes>,
        request: &HopRequest,
    ) -> Self {
        let limits = request.time_limits;
        let scaled = |time: i64| edges.map_or(0, |edges| edges.scaled(time));
        let mut ranges = Vec::with_capacity(2 * distinct.len());
        let mut words = Vec::with_capacity(4 * distinct.len());
        for time in distinct {
            let (start, end) = limits.range(*time);
            let start = start.unwrap_or(EdgeTimes::ALWAYS);
            ranges.extend([start, end]);
            words.extend([scaled(start), scaled(end)]);
            words.extend(request.key.fold_in(KeyDomain::Time, *time as u64).words());
        }
        Self {
            n_times: distinct.len(),
            ranges: launch::upload_as(&index, &ranges, DType::I64),
            words: launch::upload_as(&index, &words, DType::U32),
            index,
            has_window: limits.window.is_some(),
        }
    }
}

/// The keys of the draws of a hop's destinations.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keys<'a> {
    OfHop(RngKey),
    /// That of the destination's time.
    OfTimes(&'a DstTimes),
}
