use kiln_graph::{Links, NodeId};

use super::LinkTargets;
use crate::Result;

/// The links of a part of a split, ascending by their keys and then by their times.
#[derive(Debug, Default)]
pub(super) struct PartLinks {
    /// The key of the source and the destination of each link.
    pub(super) keys: Vec<u64>,
    /// The time of each link; empty for links without times.
    pub(super) times: Vec<i64>,
}

impl PartLinks {
    /// Returns links from their keys and times, each once.
    pub(super) fn timed(mut links: Vec<(u64, i64)>) -> Self {
        links.sort_unstable();
        links.dedup();
        let (keys, times) = links.into_iter().unzip();
        Self { keys, times }
    }

    /// Returns the links whose nodes are taken.
    pub(super) fn filter(&self, is_taken: impl Fn(NodeId, NodeId) -> bool) -> Self {
        let mut taken = Self::default();
        for (position, key) in self.keys.iter().enumerate() {
            let (src, dst) = nodes_of(*key);
            if is_taken(src, dst) {
                taken.keys.push(*key);
                taken.times.extend(self.times.get(position));
            }
        }
        taken
    }

    fn to_links(&self) -> Result<Links> {
        let (srcs, dsts): (Vec<NodeId>, Vec<NodeId>) = self.keys.iter().map(|key| nodes_of(*key)).unzip();
        Ok(Links::new(srcs, dsts)?)
    }
}

/// Returns the source and the destination of a key.
pub(super) fn nodes_of(key: u64) -> (NodeId, NodeId) {
    (NodeId(key as u32), NodeId((key >> 32) as u32))
}

/// Returns the links of the three parts, with their times if `have_times`.
pub(super) fn targets_of_parts(parts: [PartLinks; 3], have_times: bool) -> Result<LinkTargets> {
    let [train, val, test] = parts.each_ref().map(PartLinks::to_links);
    let targets = LinkTargets::of_parts(&train?, &val?, &test?)?;
    match have_times {
        true => targets.with_times(parts.map(|part| part.times).concat()),
        false => Ok(targets),
    }
}
