//! Relations for heterogeneous sets.

use kiln::graph::RelationEdges;

/// Returns edges without weights from nodes of one type to nodes of one type.
pub(crate) fn relation<'a>(
    name: &'a str,
    [src_type, dst_type]: [&'a str; 2],
    srcs: &'a [u32],
    dsts: &'a [u32],
) -> RelationEdges<'a> {
    RelationEdges::new(name, src_type, dst_type, srcs, dsts)
}
