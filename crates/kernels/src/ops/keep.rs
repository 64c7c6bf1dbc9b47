use kiln_graph::NodeId;
use kiln_sample::RngKey;

/// The threshold and the scale of inverted dropout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// The smallest 32-bit draw that keeps a value.
    threshold: u32,
    scale: f32,
}

impl Keep {
    /// Creates the threshold and the scale for the dropout probability `p`, in `[0, 1)`. If `p` is so close to 1 that
    /// no draw would keep a value, the scale is 0.
    pub(crate) fn new(p: f64) -> Self {
        match u32::try_from((p * 4_294_967_296.0).round() as u64) {
            Ok(threshold) => Self { threshold, scale: (1.0 / (1.0 - p)) as f32 },
            Err(_) => Self { threshold: u32::MAX, scale: 0.0 },
        }
    }

    /// The smallest draw that keeps a value.
    #[cfg(feature = "cube")]
    pub(crate) fn threshold(self) -> u32 {
        self.threshold
    }

    /// The factor of a kept value, `1 / (1 - p)`.
    pub(crate) fn scale(self) -> f32 {
        self.scale
    }

    /// Returns true if every value is kept, so that no draw is needed.
    pub(crate) fn is_everything(self) -> bool {
        self.threshold == 0
    }

    /// The factor of a value with the draw `word`: the scale, or 0 if the value is dropped.
    #[inline(always)]
    pub(crate) fn scale_of(self, word: u32) -> f32 {
        if self.threshold <= word { self.scale } else { 0.0 }
    }

    /// Returns the factor by which dropout multiplies one column of a node's row.
    pub(crate) fn factor(self, key: RngKey, node: NodeId, column: u32) -> f32 {
        self.scale_of(key.draw4(0, node.0, column / 4)[column as usize % 4])
    }

    /// Returns the factor by which dropout multiplies one column of an edge's row.
    #[inline(always)]
    pub(crate) fn edge_factor(self, key: RngKey, edge: i64, column: u32) -> f32 {
        let [low, high] = [edge as u32, (edge >> 32) as u32];
        self.scale_of(key.draw4(high, low, column / 4)[column as usize % 4])
    }
}
