use kiln_graph::NodeId;
use kiln_sample::RngKey;

/// Which draws keep a value, and what it is then multiplied by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// The smallest 32-bit draw that keeps.
    threshold: u32,
    scale: f32,
}

impl Keep {
    /// `p` is in `[0, 1)`. So close to 1 that no draw could keep, the scale is 0.
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

    /// What a value that is kept is multiplied by.
    pub(crate) fn scale(self) -> f32 {
        self.scale
    }

    /// Whether nothing is dropped, so that nothing need be drawn.
    pub(crate) fn is_everything(self) -> bool {
        self.threshold == 0
    }

    /// What a value with this draw is multiplied by.
    #[inline(always)]
    pub(crate) fn scale_of(self, word: u32) -> f32 {
        if self.threshold <= word { self.scale } else { 0.0 }
    }

    /// What the value of a node's column is multiplied by.
    pub(crate) fn factor(self, key: RngKey, node: NodeId, column: u32) -> f32 {
        self.scale_of(key.draw4(0, node.0, column / 4)[column as usize % 4])
    }
}
