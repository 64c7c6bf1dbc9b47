/// An error in the fanouts of a sampler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FanoutsError {
    /// The fanout is larger than device sampling supports.
    #[error(
        "layer {layer}: device sampling supports fanouts up to {most}: reduce the fanout, use all neighbours, or sample on the host"
    )]
    FanoutTooLarge {
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The largest supported fanout.
        most: u64,
    },
    /// A text is not a list of fanouts.
    #[error("{reason}")]
    InvalidFanouts {
        /// The expected form, or the repeated list.
        reason: String,
    },
    /// A relation has no fanouts, and there are none for all relations.
    #[error(
        "there are no fanouts for the relation `{relation}`: add a list for it, or one without a name for all other relations"
    )]
    NoFanouts {
        /// The name of the relation.
        relation: String,
    },
    /// A relation has another number of fanouts than there are layers.
    #[error("the relation `{relation}` has {got} fanouts, expected {expected}, one per layer")]
    LayerFanouts {
        /// The name of the relation.
        relation: String,
        /// The number of fanouts.
        got: usize,
        /// The number of layers.
        expected: usize,
    },
    /// More edges of a heterogeneous graph were requested than the sampler's fanouts.
    #[error(
        "layer {layer} was requested with a larger fanout than the sampler's: create a sampler with larger fanouts"
    )]
    LargerFanout {
        /// The requested layer.
        layer: usize,
    },
    /// A layer without fanouts was requested.
    #[error("layer {layer} was requested from a sampler of {n_layers} layers, numbered from 0")]
    LayerOutOfRange {
        /// The requested layer.
        layer: usize,
        /// The number of layers.
        n_layers: usize,
    },
    /// The fanouts of a heterogeneous graph do not match its relations.
    #[error(
        "layer {layer} has fanouts for {got} relations, expected one for each of the {expected} relations"
    )]
    RelationFanouts {
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The number of fanouts.
        got: usize,
        /// The number of relations.
        expected: usize,
    },
}
