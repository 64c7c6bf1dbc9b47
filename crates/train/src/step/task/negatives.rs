use std::fmt;
use std::ops::AddAssign;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// The number of negatives in batches of links, and of those that should have been rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NegativeCounts {
    /// The number of negatives.
    pub n_negatives: u64,
    /// The number of negatives that are still rejected after the last draw: they are their link itself, join a node
    /// with itself, or are an edge of the graph of [`Negatives::rejecting`](kiln_sample::Negatives::rejecting).
    pub n_rejected: u64,
}

impl NegativeCounts {
    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.n_negatives, self.n_rejected]
    }

    pub(crate) fn from_words([n_negatives, n_rejected]: [u64; 2]) -> Self {
        Self { n_negatives, n_rejected }
    }
}

impl AddAssign for NegativeCounts {
    fn add_assign(&mut self, other: Self) {
        self.n_negatives += other.n_negatives;
        self.n_rejected += other.n_rejected;
    }
}

/// The negatives of a run of link prediction, over all ranks. All counts of other runs are 0.
///
/// They are those of the batches that the model was trained and evaluated on, so they do not depend on the number of
/// workers, and not on the number of ranks, except for in-batch negatives of evaluations and padded steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RunNegatives {
    /// The negatives of all training steps, including those before a resumption.
    #[serde(rename = "training")]
    pub train: NegativeCounts,
    /// The negatives of the last validation; on ranks other than rank 0 they are 0 if only rank 0 evaluates.
    #[serde(rename = "validation")]
    pub val: NegativeCounts,
    /// The negatives of the evaluation on the test split; on ranks other than rank 0 they are 0 if only rank 0
    /// evaluates.
    pub test: NegativeCounts,
}

impl RunNegatives {
    /// Returns the phases that have negatives.
    fn phases(&self) -> impl Iterator<Item = (&'static str, NegativeCounts)> {
        let phases = [("training", self.train), ("validation", self.val), ("test", self.test)];
        phases.into_iter().filter(|(_, counts)| 0 < counts.n_negatives)
    }

    /// Returns true if no phase has negatives, because the task is not link prediction.
    pub(crate) fn is_empty(&self) -> bool {
        self.phases().next().is_none()
    }
}

/// Writes the counts of the phases that have negatives, by the name of the phase.
impl Serialize for RunNegatives {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (phase, counts) in self.phases() {
            map.serialize_entry(phase, &counts)?;
        }
        map.end()
    }
}

/// Writes a line with a note for each phase in which negatives were rejected after the last draw, each after a line
/// break.
impl fmt::Display for RunNegatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (phase, NegativeCounts { n_negatives, n_rejected }) in self.phases() {
            if 0 < n_rejected {
                write!(
                    f,
                    "\nnote: {n_rejected} of {n_negatives} negatives of the {phase} are edges of the graph, equal their \
                     link or join a node with itself, even after the last draw: use more draws, another distribution of \
                     negatives or, for in-batch negatives, larger batches"
                )?;
            }
        }
        Ok(())
    }
}
