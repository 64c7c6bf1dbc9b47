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
    nodes: Option<Arc<NodeGroups>>,
}

/// The arrays of attention layers.
#[derive(Debug)]
struct NodeGroups {
    srcs: DeviceRelationGroups,
    dsts: DeviceRelationGroups,
    /// The entries of each destination, in the order by type, as the rows of a matrix with one row per entry.
    entries_of_dsts: DeviceEdges,
    /// The entries that are own rows, `[n_entries, 1]`: 1 for them, 0 for edges.
    own_entries: Tensor<2>,
}

impl DeviceRelationGroups {
    /// Moves the groups to a device. On Flex, the tensors take over the arrays without a copy.
    ///
    /// # Panics
    /// Panics if there are 2^31 or more sources.
    pub fn new(groups: RelationGroups, device: &Device) -> Self {
        let RelationGroupParts { n_src, types, indptr, indices, weights, order, nodes, transposed } =
            groups.into_parts();
        check_limit(n_src, "sources");
        // As in a block, the tensors carry no gradient.
        let device = &device.clone().inner();
        let (of_segments, of_order) = match transposed {
            Some(TransposedGroups { segments, order }) => (Some(segments), order),
            None => (None, None),
        };
        let n_entries = indices.len();
        let nodes = nodes.map(|nodes| {
            let [srcs, dsts] = nodes.map(|of_nodes| Self::new(of_nodes, device));
            Arc::new(NodeGroups::new([srcs, dsts], &types, &indptr, device))
        });
        let segments = DeviceEdges::new(n_src, indptr, cast_vec(indices), of_segments, device);
        segments.upload_by_source();
        Self {
            types: types.into(),
            segments,
            weights: weights.map(|weights| Tensor::from_data(TensorData::new(weights, [n_entries]), device)),
            order: order.map(|order| DeviceRows::of_permutation(order, of_order, device)),
            nodes,
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

    /// The groups of the block's sources as nodes, or `None` without [`RelationGroups::with_nodes`].
    pub fn srcs(&self) -> Option<&DeviceRelationGroups> {
        self.nodes.as_ref().map(|nodes| &nodes.srcs)
    }

    /// The groups of the block's destinations as nodes, or `None` without [`RelationGroups::with_nodes`].
    pub fn dsts(&self) -> Option<&DeviceRelationGroups> {
        self.nodes.as_ref().map(|nodes| &nodes.dsts)
    }

    /// The number of bytes that the arrays occupy, including the transposed arrays if they have been built.
    pub fn n_bytes(&self) -> usize {
        let of_weights = if self.weights.is_some() { 4 * self.n_entries() } else { 0 };
        let of_nodes = self.nodes.as_ref().map_or(0, |nodes| nodes.n_bytes());
        self.segments.n_bytes() + of_weights + of_nodes + self.order.as_ref().map_or(0, DeviceRows::n_bytes)
    }

    pub(crate) fn shared_types(&self) -> &Arc<[TypeGroup]> {
        &self.types
    }

    pub(crate) fn adjacency(&self) -> Adjacency<Dispatch> {
        self.segments.adjacency()
    }

    /// The entries of each destination, and which of them are own rows.
    ///
    /// # Panics
    /// Panics without the groups of nodes.
    pub(crate) fn entries_of_dsts(&self) -> (Adjacency<Dispatch>, &Tensor<2>) {
        let Some(nodes) = &self.nodes else {
            panic!("the groups lack those of nodes: add them with RelationGroups::with_nodes");
        };
        (nodes.entries_of_dsts.adjacency(), &nodes.own_entries)
    }

    /// The row of each destination of the block in the order by type; `None` if that is the order of the block.
    pub(crate) fn order(&self) -> Option<&DeviceRows> {
        self.order.as_ref()
    }
}

impl NodeGroups {
    fn new(
        [srcs, dsts]: [DeviceRelationGroups; 2],
        types: &[TypeGroup],
        indptr: &[u32],
        device: &Device,
    ) -> Self {
        let mut starts = vec![0];
        let mut segment = 0;
        for group in types {
            for _ in 0..group.n_dst {
                segment += group.n_segments;
                starts.push(indptr[segment]);
            }
        }
        let n_entries = indptr[segment] as usize;
        let mut own = vec![0.0_f32; n_entries];
        starts[..starts.len() - 1].iter().for_each(|&start| own[start as usize] = 1.0);
        let own_entries = Tensor::from_data(TensorData::new(own, [n_entries, 1]), device);
        let entries = (0..n_entries as u32).collect();
        let entries_of_dsts = DeviceEdges::new(n_entries, starts, entries, None, device);
        Self { srcs, dsts, entries_of_dsts, own_entries }
    }

    fn n_bytes(&self) -> usize {
        let of_entries = self.entries_of_dsts.n_bytes() + 4 * self.entries_of_dsts.n_edges;
        self.srcs.n_bytes() + self.dsts.n_bytes() + of_entries
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
