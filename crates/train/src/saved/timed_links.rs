use std::sync::Arc;

use kiln_graph::{Links, NodeId};

use super::timed_nodes::TimedNodes;
use crate::error::{InputError, Result};

/// Links whose scores or outputs are predicted, at the time of each for a model that was trained at the times of items. Links without
/// times convert to it.
///
/// ```no_run
/// # use kiln_graph::Links;
/// # use kiln_train::{LinkPredictor, PredictMode, TimedLinks};
/// # fn example(predictor: LinkPredictor) -> kiln_train::Result<()> {
/// // Node 3 and node 80, by what was known at the times 100 and 200.
/// let links = Links::new(vec![3, 3], vec![80, 80])?;
/// let scores = predictor.score_links(TimedLinks::at(&links, vec![100, 200])?, &PredictMode::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TimedLinks {
    links: Links,
    times: Option<Arc<[i64]>>,
}

impl TimedLinks {
    /// Returns links at the time of each, `[n_links]`.
    ///
    /// # Errors
    /// Returns [`InputError::LinkTimes`] unless there is one time per link.
    pub fn at(links: &Links, times: impl Into<Arc<[i64]>>) -> Result<Self> {
        let times = times.into();
        match times.len() == links.len() {
            true => Ok(Self { links: links.clone(), times: Some(times) }),
            false => Err(InputError::LinkTimes { n_times: times.len(), n_links: links.len() }.into()),
        }
    }

    /// Returns the links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the time of each link; `None` for links without times.
    pub fn times(&self) -> Option<&[i64]> {
        self.times.as_deref()
    }

    /// Returns the nodes of the links, each at the times of its links.
    pub fn nodes(&self) -> TimedNodes {
        let nodes: Vec<NodeId> = self.links.srcs().iter().chain(self.links.dsts()).copied().collect();
        match &self.times {
            Some(times) => TimedNodes::at(nodes, &[&times[..], &times[..]].concat()),
            None => nodes.into(),
        }
    }

    /// Returns other links at the same times.
    pub(crate) fn with_links(&self, links: Links) -> Self {
        Self { links, times: self.times.clone() }
    }
}

impl From<&Links> for TimedLinks {
    fn from(links: &Links) -> Self {
        Self { links: links.clone(), times: None }
    }
}
