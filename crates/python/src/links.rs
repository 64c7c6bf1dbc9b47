//! The links of a loader, as Python passes them.

use std::ops::Range;

use kiln::data::Dataset;
use kiln::graph::{Links, NodeId, SharedArray};
use kiln::loader::{LinkExclusion, LinkRelation};
use kiln::sample::{Negatives, UniformNegatives, UniformPairNegatives};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array;
use crate::error;

/// The settings of links: the entries of a dictionary of Python.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct LinkSettings<'py> {
    /// The position of the links' relation.
    relation: usize,
    /// The position of the relation with the reverse of each link; `None` if there is none.
    reverse: Option<usize>,
    /// The sources, numbered within their type.
    srcs: Bound<'py, PyAny>,
    /// The destinations, numbered within their type.
    dsts: Bound<'py, PyAny>,
    /// `none`, `binary` or `triplet`.
    negatives: String,
    n_negatives: usize,
    /// `reverse`, `directed` or `none`.
    exclude: String,
}

impl LinkSettings<'_> {
    /// Returns the links as pairs of nodes of the graph.
    pub(crate) fn links(&self, data: &Dataset) -> PyResult<Links> {
        let [src_range, dst_range] = self.node_ranges(data);
        let srcs = shifted(array::ids(&self.srcs, "the sources of links")?, &src_range, "source")?;
        let dsts = shifted(array::ids(&self.dsts, "the destinations of links")?, &dst_range, "destination")?;
        Links::new(srcs, dsts).map_err(error::data)
    }

    /// Returns the ids of the nodes of the sources' type and of the destinations' type.
    pub(crate) fn node_ranges(&self, data: &Dataset) -> [Range<u32>; 2] {
        data.graph.schema().node_ranges(self.relation)
    }

    /// Returns the negatives of each link.
    pub(crate) fn negatives(&self, data: &Dataset) -> PyResult<Negatives> {
        let [srcs, dsts] = self.node_ranges(data);
        match (&*self.negatives, srcs.is_empty() || dsts.is_empty()) {
            ("none", _) => Ok(Negatives::new(UniformNegatives { dsts }, 0)),
            (_, true) => Err(PyValueError::new_err("there are no nodes from which negatives can be drawn")),
            ("triplet", _) => Ok(Negatives::new(UniformNegatives { dsts }, self.n_negatives)),
            ("binary", _) => Ok(Negatives::new(UniformPairNegatives { srcs, dsts }, self.n_negatives)),
            (other, _) => Err(PyValueError::new_err(format!(
                "neg_sampling is {other:?}, expected \"binary\", \"triplet\" or None"
            ))),
        }
    }

    /// Returns the edges that the messages of a training step leave out.
    pub(crate) fn exclusion(&self, data: &Dataset) -> PyResult<LinkExclusion> {
        match &*self.exclude {
            "reverse" => Ok(self.link_relation().exclusion(data.graph.schema())),
            "directed" => Ok(LinkExclusion::Directed),
            "none" => Ok(LinkExclusion::None),
            other => Err(PyValueError::new_err(format!(
                "exclude is {other:?}, expected \"reverse\", \"directed\" or \"none\""
            ))),
        }
    }

    /// Returns the relations whose edges a training step leaves out.
    pub(crate) fn excluded_relations(&self) -> Vec<usize> {
        self.link_relation().excluded()
    }

    fn link_relation(&self) -> LinkRelation {
        LinkRelation { position: self.relation, reverse: self.reverse }
    }
}

/// Returns the ids in the graph of nodes that are numbered within their type.
fn shifted(numbers: SharedArray<u32>, range: &Range<u32>, what: &str) -> PyResult<SharedArray<NodeId>> {
    let n_nodes = range.len();
    if let Some(position) = numbers.iter().position(|number| n_nodes <= *number as usize) {
        let number = numbers[position];
        return Err(PyValueError::new_err(format!(
            "{what} {position} of the links is node {number}, but its type has {n_nodes} nodes"
        )));
    }
    Ok(match range.start {
        0 => array::cast(numbers),
        start => numbers.iter().map(|number| NodeId(start + number)).collect(),
    })
}
