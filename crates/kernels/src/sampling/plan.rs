//! What a device is asked for in one hop.

#[cfg(feature = "cube")]
use kiln_sample::Frontier;
use kiln_sample::{
    Fanout, Neighbors, NodeKey, PickRule, Picks, RngKey, Uniform, UniformWithLoop, UniformWithReplacement,
};

/// The rules that devices have: those of `kiln_sample` by the same names. A rule of one's own runs on the host
/// ([`NeighborSampler::with_rule`](kiln_sample::NeighborSampler::with_rule)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::enum_variant_names, reason = "they are called so")]
#[non_exhaustive]
pub enum DeviceRule {
    /// [`Uniform`].
    Uniform,
    /// [`UniformWithReplacement`].
    UniformWithReplacement,
    /// [`UniformWithLoop`].
    UniformWithLoop,
}

impl From<Uniform> for DeviceRule {
    fn from(_: Uniform) -> Self {
        Self::Uniform
    }
}

impl From<UniformWithReplacement> for DeviceRule {
    fn from(_: UniformWithReplacement) -> Self {
        Self::UniformWithReplacement
    }
}

impl From<UniformWithLoop> for DeviceRule {
    fn from(_: UniformWithLoop) -> Self {
        Self::UniformWithLoop
    }
}

impl PickRule for DeviceRule {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks) {
        match self {
            Self::Uniform => Uniform.pick(neighbors, key, fanout, picks),
            Self::UniformWithReplacement => UniformWithReplacement.pick(neighbors, key, fanout, picks),
            Self::UniformWithLoop => UniformWithLoop.pick(neighbors, key, fanout, picks),
        }
    }

    fn keeps_self_loops(&self) -> bool {
        *self == Self::UniformWithLoop
    }
}

/// What a sampler's blocks carry for each edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeWeights {
    None,
    Stored,
    Scaled,
}

/// One hop, as a device is asked for it.
#[cfg_attr(not(feature = "cube"), allow(dead_code, reason = "only devices read it"))]
pub(crate) struct HopPlan {
    pub(crate) fanout: Fanout,
    pub(crate) rule: DeviceRule,
    pub(crate) weights: EdgeWeights,
    /// The step's key with the layer folded in.
    pub(crate) key: RngKey,
}

impl HopPlan {
    /// The hop of destinations that have no edge.
    #[cfg(feature = "cube")]
    pub(crate) fn without_edges(&self, n_dst: usize) -> Frontier {
        let weights = (self.weights != EdgeWeights::None).then(Vec::new);
        Frontier { indptr: vec![0; n_dst + 1], weights, ..Frontier::default() }
    }

    /// The fanout as a number.
    #[cfg(feature = "cube")]
    pub(crate) fn limit(&self) -> u32 {
        match self.fanout {
            Fanout::All => u32::MAX,
            Fanout::UpTo(fanout) => fanout,
        }
    }
}
