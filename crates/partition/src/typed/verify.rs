use std::path::Path;

use kiln_data::graph_folder::{FEATURES, numbered, verify_labels_from, verify_relation_weights, verify_rows};

use super::part::TypedPart;
use crate::manifest::CACHE;
use crate::verify::{PartEdges, check_cache, check_edges, check_rows};
use crate::{PartVerifyReport, Result};

/// Verifies a partition; see [`TypedPart::verify`].
pub(super) fn verify(folder: &Path) -> Result<PartVerifyReport> {
    let (part, arrays) = TypedPart::open_with_arrays(folder)?;
    arrays.verify_hashes()?;
    let types = part.schema.types();
    for (node_type, of_type) in part.types.iter().enumerate() {
        let (book, first) = (part.book.of_type(node_type), types.range(node_type).start);
        book.validate()?;
        let file = numbered("old_ids.npy", node_type);
        check_rows(folder, &file, &of_type.old_ids, book.owned(part.index), |node| {
            book.new_id(kiln_graph::NodeId(node.0.checked_sub(first)?))
        })?;
        if let Some(features) = &of_type.features {
            verify_rows(&arrays, &FEATURES.of_type(node_type), features.dim())?;
        }
        if let Some(cache) = &of_type.cache {
            let is_remote = |node| book.place(node).is_some_and(|place| place.part != part.index);
            check_cache(folder, &|name| numbered(name, node_type), cache, is_remote)?;
            verify_rows(&arrays, &CACHE.of_type(node_type), cache.features.dim())?;
        }
    }
    for (position, of_relation) in part.relations.iter().enumerate() {
        let relation = &part.schema.relations()[position];
        check_edges(&PartEdges {
            folder,
            file: &|name| numbered(name, position),
            graph: &of_relation.graph,
            first_edges: &of_relation.first_edges,
            srcs: types.range(relation.src_type),
            n_edges: relation.n_edges,
        })?;
        verify_relation_weights(&arrays, position)?;
    }
    let mut notes = Vec::new();
    let first = types.range(part.target_type).start;
    verify_labels_from(first, &arrays, part.labels.n_classes(), &mut notes)?;
    let (n_owned, n_edges, n_hashed) = (part.n_owned(), part.n_edges(), arrays.entries().len());
    Ok(PartVerifyReport { n_owned, n_edges, n_hashed, notes })
}
