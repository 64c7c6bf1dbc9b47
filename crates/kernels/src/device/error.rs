use kiln_graph::{NodeId, did_you_mean, similar_alias};

/// An error of opening or using a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name is not a valid device name.
    #[error(
        "unknown device `{name}`: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N, or several of them separated \
         by commas{}",
        suggestion(name)
    )]
    Unknown {
        /// The given name.
        name: String,
    },
    /// The build lacks the feature for this kind of device.
    #[error(
        "device `{name}` needs the feature `{feature}`, which this build lacks: build with --features {feature}"
    )]
    NotBuilt {
        /// The given name.
        name: String,
        /// The Cargo feature to enable.
        feature: &'static str,
    },
    /// The machine has no such device.
    #[error("device `{name}` does not exist: found {n_found} {looked_for}; indices start at 0")]
    NotFound {
        /// The given name.
        name: String,
        /// The kind of device, and the interface that was queried for it.
        looked_for: &'static str,
        /// The number of devices of this kind; the first one has the index 0.
        n_found: usize,
    },
    /// The part of the CUDA toolkit that kernels need is not installed.
    #[error(
        "device `{name}` needs libdevice, a file of the CUDA toolkit: nvvm/libdevice/libdevice.10.bc does not exist in \
         {looked_in}. Install the toolkit, or run `pip install nvidia-nvvm`, and set CUDA_PATH to the folder that \
         contains `nvvm`"
    )]
    NoLibdevice {
        /// The given name.
        name: String,
        /// The folders in which it was looked for, separated by commas.
        looked_in: String,
    },
    /// A computation on the device failed.
    #[error("the device failed: {reason}")]
    Failed {
        /// The message of the device's runtime.
        reason: String,
    },
}

/// An error of copying a graph or features to a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// The arrays of the graph are inconsistent.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// The order of the graph's edges by time is damaged.
    #[error(transparent)]
    TimeOrder(#[from] kiln_sample::Error),
    /// The features cannot be read.
    #[error(transparent)]
    Features(#[from] kiln_feature::Error),
    /// A node has more in-edges than a 32-bit position can count.
    #[error("node {} has {degree} edges, expected at most {}: sample on the host", node.0, u32::MAX)]
    DegreeTooLarge {
        /// The node with too many in-edges.
        node: NodeId,
        /// The number of its in-edges.
        degree: u64,
    },
    /// The device does not support 64-bit integers, which edge ids need.
    #[error("the device does not support 64-bit integers: sample on the host")]
    NoWideIntegers,
    /// The hotness array does not have one number per feature row.
    #[error("the hotness array has {got} numbers for {n_rows} feature rows, expected one per row")]
    HotnessLength {
        /// The number of feature rows.
        n_rows: usize,
        /// The length of the hotness array.
        got: usize,
    },
    /// The edge features do not have one row per edge of the graph.
    #[error(
        "the edge features have {n_rows} rows, expected one for each of the {n_edges} edges of the graph"
    )]
    EdgeFeatureRows {
        /// The number of feature rows.
        n_rows: u64,
        /// The number of edges of the graph.
        n_edges: u64,
    },
    /// The device does not have the memory for a table.
    #[error("{what} need {n_bytes} bytes, but {reason}: {instead}")]
    OutOfMemory {
        /// A description of the table, for the message.
        what: &'static str,
        /// The size of the table in bytes.
        n_bytes: u64,
        /// The memory of the device, or the message of its runtime.
        reason: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// The device failed during the copy.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device cannot allocate the neighbour lists of a staged hop.
    #[error(
        "the neighbours of a hop's destinations need {n_bytes} bytes, but the device allocates at most {most} at once: \
         use smaller batches, or sample on the host"
    )]
    HopTooLarge {
        /// The size of the array in bytes.
        n_bytes: u64,
        /// The largest allocation of the device in bytes.
        most: u64,
    },
    /// The device cannot allocate an array.
    #[error(
        "{what} need {n_bytes} bytes, but the device allocates at most {most} at once: keep the graph \
         on the host, or cache fewer feature rows"
    )]
    TooLarge {
        /// A description of the array, for the message.
        what: &'static str,
        /// The size of the array in bytes.
        n_bytes: u64,
        /// The largest allocation of the device in bytes.
        most: u64,
    },
}

/// The names of devices, and other words for them with the name that they stand for.
const ALIASES: [(&str, &str); 12] = [
    ("cpu", "cpu"),
    ("host", "cpu"),
    ("cuda", "cuda"),
    ("wgpu", "wgpu"),
    ("cube-cpu", "cube-cpu"),
    ("gpu", "cuda"),
    ("nvidia", "cuda"),
    ("vulkan", "wgpu"),
    ("metal", "wgpu"),
    ("mps", "wgpu"),
    ("rocm", "wgpu"),
    ("directx", "wgpu"),
];

/// Returns the end of a message about an unknown name.
fn suggestion(name: &str) -> String {
    let kind = name.split(':').next().unwrap_or(name);
    did_you_mean(similar_alias(kind, ALIASES))
}
