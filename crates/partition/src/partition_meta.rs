use crate::Method;

/// The metadata of a partitioned data set, which each partition stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMeta {
    /// The hash of the whole data set: [`kiln_data::Dataset::hash`], or [`kiln_data::format::hash`] if it is in the kiln format.
    pub hash: String,
    /// The algorithm that assigned nodes to partitions.
    pub method: Method,
    /// The number of edges whose ends are in different partitions; [`PartitionStats`](crate::PartitionStats) counts
    /// them.
    pub n_cut_edges: u64,
}
