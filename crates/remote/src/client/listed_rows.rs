use std::collections::HashMap;

use kiln_graph::NodeId;
use kiln_partition::PartitionRow;

use crate::client::requests::Rows;

/// The rows of a request for neighbour lists. A destination at several times is one row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedRows {
    /// The rows, in the order of their first appearance.
    pub(crate) rows: Vec<PartitionRow>,
    /// The node of each row.
    pub(crate) nodes: Vec<NodeId>,
    /// The position of each destination among the rows, which is its row in the response.
    pub(crate) places: Vec<PartitionRow>,
}

impl ListedRows {
    pub(crate) fn of(rows: &Rows<'_>) -> Self {
        let mut listed = Self::default();
        let mut known = HashMap::with_capacity(rows.rows.len());
        for (row, node) in rows.rows.iter().zip(rows.dsts.nodes()) {
            let place = *known.entry(row).or_insert(PartitionRow(listed.rows.len() as u32));
            if place.index() == listed.rows.len() {
                listed.rows.push(*row);
                listed.nodes.push(*node);
            }
            listed.places.push(place);
        }
        listed
    }
}
