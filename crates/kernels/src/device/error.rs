use kiln_graph::NodeId;

/// Why a name gave no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name means nothing.
    #[error(
        "`{name}` is no device: expected cpu, cube-cpu, cuda, cuda:N, wgpu or wgpu:N, or several of them separated by commas"
    )]
    Unknown {
        /// What was given.
        name: String,
    },
    /// The build leaves this kind of device out.
    #[error(
        "`{name}` needs the feature `{feature}`, which this build leaves out: build with --features {feature}"
    )]
    NotBuilt {
        /// What was given.
        name: String,
        /// What turns it on.
        feature: &'static str,
    },
    /// The machine has no such device.
    #[error("there is no `{name}`: of {looked_for}, {n_found} found")]
    NotFound {
        /// What was given.
        name: String,
        /// What was asked for devices, and how.
        looked_for: &'static str,
        /// How many there are of that kind; the first is number 0.
        n_found: usize,
    },
    /// The device did not do what it was asked for.
    #[error("the device failed: {reason}")]
    Failed {
        /// What it said.
        reason: String,
    },
}

/// Why a graph or features cannot be brought to a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// The graph's arrays contradict each other.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// The features cannot be read.
    #[error(transparent)]
    Features(#[from] kiln_feature::Error),
    /// A node has more edges than a position counts.
    #[error("node {} has {degree} edges, at most {} can be sampled from", node.0, u32::MAX)]
    DegreeTooLarge {
        /// The node.
        node: NodeId,
        /// Its edges.
        degree: u64,
    },
    /// The device has no 64-bit integers, which edges are counted by.
    #[error("the device has no 64-bit integers: sample on the host")]
    NoWideIntegers,
    /// There is not one number a row that says how often it is asked for.
    #[error("{got} numbers say how hot {n_rows} feature rows are: give one a row")]
    HotnessLength {
        /// How many rows there are.
        n_rows: usize,
        /// How many numbers.
        got: usize,
    },
    /// The device failed on the way.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device has no room for the lists of a hop that is staged.
    #[error(
        "the neighbours of a hop's destinations take {n_bytes} bytes, the device gives at most {most} at once: take smaller \
         batches, or sample on the host"
    )]
    HopTooLarge {
        /// Bytes of the array that has no room.
        n_bytes: u64,
        /// What the device gives.
        most: u64,
    },
    /// The device has no room for an array.
    #[error(
        "{what} take {n_bytes} bytes, the device gives at most {most} at once: leave them on the host, or bring a part"
    )]
    TooLarge {
        /// The array.
        what: &'static str,
        /// Its bytes.
        n_bytes: u64,
        /// What the device gives.
        most: u64,
    },
}
