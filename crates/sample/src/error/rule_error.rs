use kiln_graph::NodeId;

/// An error in a custom sampling rule, or in its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A custom rule without a version for devices was given to a sampler of a graph in a device's memory.
    #[error(
        "the custom rule has no version in CubeCL, which samples from a graph in the device's memory: keep the graph on the host"
    )]
    CustomRule,
    /// The version for devices of a custom rule picked a position that is not below the destination's degree.
    #[error("the sampling rule picked a position of node {} on the device that is not below the node's degree", dst.0)]
    DevicePickOutOfRange {
        /// The destination.
        dst: NodeId,
    },
    /// A custom rule picked a position that is not below the destination's degree.
    #[error("the sampling rule picked position {pick} of node {}, expected a position below the node's degree {degree}", dst.0)]
    PickOutOfRange {
        /// The destination.
        dst: NodeId,
        /// The picked position among the destination's neighbours.
        pick: u32,
        /// The number of the destination's neighbours.
        degree: usize,
    },
    /// A rule or a window is that of a relation, and the graph has no named relations.
    #[error(
        "the relation `{relation}` has a rule or a window of its own, but the sampler is one of a graph without named relations: \
         set them for all edges"
    )]
    OfRelation {
        /// The name of the relation.
        relation: String,
    },
}
