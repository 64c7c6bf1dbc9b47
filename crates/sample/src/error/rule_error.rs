use kiln_graph::NodeId;

/// An error in a custom sampling rule, or in its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A custom rule was given to a device sampler.
    #[error("device sampling supports only the built-in rules: use the custom rule on the host")]
    CustomRule,
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
}
