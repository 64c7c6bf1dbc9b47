use std::sync::Arc;

use kiln_graph::{LinkId, LinkNegatives, Links, NodeId};

use super::link_values::LinkValues;
use crate::error::LinkSplitError;
use crate::{Result, Split};

/// The links that a model learns and predicts: their list, their split into training, validation and test, and the fixed
/// negatives of the validation and the test, if there are any. Links may also have target values
/// ([`LinkTargets::with_values`]), feature rows ([`LinkTargets::with_features`]) and times ([`LinkTargets::with_times`]). Cloning
/// shares the arrays.
///
/// No link is in two parts of the split, but several links may be the same pair of nodes. The links of a split need not
/// be all links of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTargets {
    links: Links,
    split: Split<LinkId>,
    val_negatives: Option<Arc<LinkNegatives>>,
    test_negatives: Option<Arc<LinkNegatives>>,
    pub(super) values: LinkValues,
}

impl LinkTargets {
    /// Creates targets without fixed negatives.
    ///
    /// # Errors
    /// Returns [`LinkSplitError::LinkOutOfRange`] if the split contains a link that the list lacks, and
    /// [`LinkSplitError::RepeatedLink`] if it contains a link twice.
    pub fn new(links: Links, split: Split<LinkId>) -> Result<Self> {
        check_split(&split, links.len())?;
        Ok(Self::unchecked(links, split, None, None))
    }

    /// Creates targets from the links of each part: those for training get the first ids, then those for validation,
    /// then those for test.
    ///
    /// # Errors
    /// Returns [`kiln_graph::Error::TooMany`] if there are 2^32 links or more.
    pub fn of_parts(train: &Links, val: &Links, test: &Links) -> Result<Self> {
        let parts = [train, val, test];
        let joined = |nodes: fn(&Links) -> &[NodeId]| parts.map(nodes).concat();
        let links = Links::new(joined(|part| part.srcs()), joined(|part| part.dsts()))?;
        let mut end = 0;
        let [train, val, test] = parts.map(|part| {
            let start = end;
            end += part.len() as u32;
            (start..end).map(LinkId).collect()
        });
        let split = Split { train, val, test };
        Ok(Self::unchecked(links, split, None, None))
    }

    /// Sets the fixed negatives of the validation and of the test.
    ///
    /// # Errors
    /// Returns [`LinkSplitError::NoNegatives`] if they lack a link of their part.
    pub fn with_negatives(self, val: Option<LinkNegatives>, test: Option<LinkNegatives>) -> Result<Self> {
        let [val_negatives, test_negatives] = [val, test].map(|of_part| of_part.map(Arc::new));
        let targets = Self { val_negatives, test_negatives, ..self };
        targets.check_negatives()?;
        Ok(targets)
    }

    /// Creates targets that [`LinkTargets::check`] must check before they are used.
    pub(crate) fn unchecked(
        links: Links,
        split: Split<LinkId>,
        val_negatives: Option<LinkNegatives>,
        test_negatives: Option<LinkNegatives>,
    ) -> Self {
        let [val_negatives, test_negatives] =
            [val_negatives, test_negatives].map(|of_part| of_part.map(Arc::new));
        Self { links, split, val_negatives, test_negatives, values: LinkValues::default() }
    }

    /// Checks that the fixed negatives have all links of their parts.
    fn check_negatives(&self) -> Result<()> {
        let [_, held_out @ ..] = self.split.parts();
        let negatives = [&self.val_negatives, &self.test_negatives];
        for ((part, links), negatives) in held_out.into_iter().zip(negatives) {
            let Some(negatives) = negatives else { continue };
            if let Some(link) = links.iter().find(|link| negatives.row(**link).is_none()) {
                return Err(LinkSplitError::NoNegatives { part, link: link.0 }.into());
            }
        }
        Ok(())
    }

    /// Returns all links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the links for training, validation and test.
    pub fn split(&self) -> &Split<LinkId> {
        &self.split
    }

    /// Returns the fixed negatives of the validation links; `None` if they are to be drawn.
    pub fn val_negatives(&self) -> Option<&LinkNegatives> {
        self.val_negatives.as_deref()
    }

    /// Returns the fixed negatives of the test links; `None` if they are to be drawn.
    pub fn test_negatives(&self) -> Option<&LinkNegatives> {
        self.test_negatives.as_deref()
    }

    /// Checks that the nodes of all links and negatives exist in a graph of `n_nodes` nodes, the split, the target values, the
    /// features and the times. The targets of a set in the kiln format are not checked before.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) with the first other node, and the errors of [`LinkTargets::new`],
    /// [`LinkTargets::with_negatives`], [`LinkTargets::with_values`], [`LinkTargets::with_features`] and [`LinkTargets::with_times`].
    pub fn check(&self, n_nodes: usize) -> Result<()> {
        check_split(&self.split, self.links.len())?;
        self.check_negatives()?;
        self.links.check(n_nodes)?;
        for negatives in [&self.val_negatives, &self.test_negatives].into_iter().flatten() {
            negatives.check(n_nodes)?;
        }
        self.check_values()?;
        self.check_features()?;
        self.check_times()
    }
}

/// Checks that each link of a split exists and occurs once.
fn check_split(split: &Split<LinkId>, n_links: usize) -> Result<()> {
    const NONE: u8 = u8::MAX;
    let parts = split.parts();
    let mut part_of = vec![NONE; n_links];
    for (index, (part, ids)) in parts.iter().enumerate() {
        for (position, link) in ids.iter().enumerate() {
            let Some(first) = part_of.get_mut(link.index()) else {
                let link = link.0;
                return Err(LinkSplitError::LinkOutOfRange { part, position, link, n_links }.into());
            };
            if *first != NONE {
                let (link, first, second) = (link.0, parts[usize::from(*first)].0, *part);
                return Err(LinkSplitError::RepeatedLink { position, link, first, second }.into());
            }
            *first = index as u8;
        }
    }
    Ok(())
}
