use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor, TensorData};
use bytemuck::cast_vec;
use kiln_graph::{RelationGroupParts, RelationGroups, TransposedGroups, TypeGroup};

use crate::device::block::{Adjacency, DeviceBlock, DeviceEdges, check_limit};
use crate::device::graphs::DeviceRows;

/// The [`RelationGroups`] of a block on a device.
///
/// The ops treat segments as the destinations of an adjacency whose sources are those of the block.
///
/// A clone shares the device's memory.
#[derive(Debug, Clone)]
pub struct DeviceRelationGroups {
    types: Arc<[TypeGroup]>,
    segments: DeviceEdges,
    weights: Option<Tensor<1>>,
    order: Option<DeviceRows>,
}

impl DeviceRelationGroups {
    /// Moves the groups to a device. On Flex, the tensors take over the arrays without a copy.
    ///
    /// # Panics
    /// Panics if there are 2^31 or more sources.
    pub fn new(groups: RelationGroups, device: &Device) -> Self {
        let RelationGroupParts { n_src, types, indptr, indices, weights, order, transposed } =
            groups.into_parts();
        check_limit(n_src, "sources");
        // As in a block, the tensors carry no gradient.
        let device = &device.clone().inner();
        let (of_segments, of_order) = match transposed {
            Some(TransposedGroups { segments, order }) => (Some(segments), order),
            None => (None, None),
        };
        let n_entries = indices.len();
        let segments = DeviceEdges::new(n_src, indptr, cast_vec(indices), of_segments, device);
        segments.upload_by_source();
        Self {
            types: types.into(),
            segments,
            weights: weights.map(|weights| Tensor::from_data(TensorData::new(weights, [n_entries]), device)),
            order: order.map(|order| DeviceRows::of_permutation(order, of_order, device)),
        }
    }

    /// The destinations of each type.
    pub fn types(&self) -> &[TypeGroup] {
        &self.types
    }

    /// The number of sources.
    pub fn n_src(&self) -> usize {
        self.segments.n_src
    }

    /// The number of destinations.
    pub fn n_dst(&self) -> usize {
        self.types.iter().map(|group| group.n_dst).sum()
    }

    /// The number of segments.
    pub fn n_segments(&self) -> usize {
        self.segments.n_dst
    }

    /// The number of entries of all segments: one per edge of the block and one per destination.
    pub fn n_entries(&self) -> usize {
        self.segments.n_edges
    }

    /// The weight of each entry, `[n_entries]`, or `None` if the block has no weights. Those of own rows are 1.
    pub fn weights(&self) -> Option<&Tensor<1>> {
        self.weights.as_ref()
    }

    /// The number of bytes that the arrays occupy, including the transposed arrays if they have been built.
    pub fn n_bytes(&self) -> usize {
        let of_weights = if self.weights.is_some() { 4 * self.n_entries() } else { 0 };
        self.segments.n_bytes() + of_weights + self.order.as_ref().map_or(0, DeviceRows::n_bytes)
    }

    pub(crate) fn shared_types(&self) -> &Arc<[TypeGroup]> {
        &self.types
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.segments.adjacency()
    }

    /// The row of each destination of the block in the order by type; `None` if that is the order of the block.
    pub(crate) fn order(&self) -> Option<&DeviceRows> {
        self.order.as_ref()
    }
}

impl DeviceBlock {
    /// Adds the groups of the edges by relation, which were made from the same block, and moves them to a device.
    ///
    /// # Panics
    /// Panics if the numbers of nodes or edges differ from those of the block.
    #[must_use]
    pub fn with_relation_groups(mut self, groups: RelationGroups, device: &Device) -> Self {
        let got = [groups.parts().n_src, groups.n_dst(), groups.parts().indices.len() - groups.n_dst()];
        let expected = [self.n_src(), self.n_dst(), self.n_edges()];
        assert_eq!(
            got, expected,
            "the sources, destinations and edges of the groups and of the block differ"
        );
        self.relation_groups = Some(DeviceRelationGroups::new(groups, device));
        self
    }

    /// The groups of the edges by relation, or `None` if the block has none.
    pub fn relation_groups(&self) -> Option<&DeviceRelationGroups> {
        self.relation_groups.as_ref()
    }
}
