//! What the readers of heterogeneous sets of other libraries have in common: relations in files, and limits.

use std::path::Path;
use std::sync::Arc;

use kiln_feature::FeatureStore;
use kiln_graph::{NodeTypes, Relation, RelationEdges, Relations};
use kiln_store::Error as StoreError;

use crate::readers::stored::Edges;
use crate::{Error, Note, Result};

/// A relation whose edges are still in their file.
#[derive(Debug)]
pub(crate) struct RelationFiles {
    /// The name, which is unique among the relations of the set.
    pub(crate) name: String,
    /// The type of the sources.
    pub(crate) src_type: usize,
    /// The type of the destinations.
    pub(crate) dst_type: usize,
    /// The location of the edges. Ids count from 0 within their type.
    pub(crate) edges: Edges,
}

impl RelationFiles {
    /// Reads the edges and builds the graph of the relation. `left_bytes` is the memory that is left for edges in compressed
    /// text; arrays and text that is not compressed do not count.
    /// Notes on the arrays of columns are added to `notes`.
    pub(crate) fn read(
        self,
        types: &Arc<NodeTypes>,
        left_bytes: &mut u64,
        notes: &mut Vec<Note>,
    ) -> Result<Relation> {
        let list = self.edges.open()?;
        let [n_srcs, n_dsts] = [self.src_type, self.dst_type].map(|ty| types.range(ty).len());
        let edges = list.read(n_srcs.max(n_dsts), *left_bytes)?;
        if list.path().extension().is_some_and(|extension| extension == "gz") {
            *left_bytes = left_bytes.saturating_sub(8 * edges.srcs.len() as u64);
        }
        for (what, ids, ty) in [
            ("the source of edge", &edges.srcs, self.src_type),
            ("the destination of edge", &edges.dsts, self.dst_type),
        ] {
            let n_nodes = types.range(ty).len();
            if let Some(edge) = ids.iter().position(|&id| n_nodes <= id as usize) {
                let (path, position, found) = (list.path().to_owned(), edge as u64, ids[edge].to_string());
                let name = &types.names()[ty];
                let expected = format!("below {n_nodes}, the number of nodes of type `{name:.60}`");
                return Err(StoreError::BadValue { path, what, position, expected, found }.into());
            }
        }
        let columns = list.columns_of(&edges, notes)?;
        let edges = RelationEdges {
            columns: Some(&columns),
            ..RelationEdges::new(
                &self.name,
                &types.names()[self.src_type],
                &types.names()[self.dst_type],
                &edges.srcs,
                &edges.dsts,
            )
        };
        Ok(Relations::from_edges(types.clone(), &[edges])?.relation(0).clone())
    }
}

/// Returns the name of each relation: its own, or the whole name of its edge type if several relations have the same.
///
/// # Errors
/// Returns a name that is empty or occurs twice.
pub(crate) fn unique_names<'a>(
    names: impl Iterator<Item = (&'a str, &'a str)>,
) -> std::result::Result<Vec<String>, String> {
    let all: Vec<(&str, &str)> = names.collect();
    let is_unique = |name: &str| all.iter().filter(|(other, _)| *other == name).count() == 1;
    let mut unique: Vec<String> = Vec::new();
    for (name, whole) in &all {
        let name = if is_unique(name) { *name } else { *whole };
        if name.is_empty() || unique.iter().any(|other| other == name) {
            return Err(name.to_owned());
        }
        unique.push(name.to_owned());
    }
    Ok(unique)
}

/// Checks that the offsets of the nodes fit the limit, or the size of the features. A few bytes can state any number of
/// nodes without features, and any number of relations into a type. The first relation into a type whose number of nodes is
/// confirmed does not count, because it has as many rows as a file. `path` is the file that states the numbers of nodes.
pub(crate) fn check_offsets(
    path: &Path,
    types: &NodeTypes,
    dst_types: &[usize],
    is_confirmed: &[bool],
    features: &[Option<Arc<dyn FeatureStore>>],
    memory_bytes: u64,
) -> Result<()> {
    const BYTES: u64 = 8;
    let mut n_rows = 0_u64;
    for (node_type, is_confirmed) in is_confirmed.iter().enumerate() {
        let n_relations = dst_types.iter().filter(|dst_type| **dst_type == node_type).count() as u64;
        let n_counted = if *is_confirmed { n_relations.saturating_sub(1) } else { n_relations + 1 };
        n_rows += n_counted * types.range(node_type).len() as u64;
    }
    let bytes_of = |features: &Arc<dyn FeatureStore>| {
        (features.n_rows() * features.dim() * features.dtype().bytes()) as u64
    };
    let budget_bytes = memory_bytes.max(features.iter().flatten().map(bytes_of).sum());
    let needed_bytes = BYTES * n_rows;
    if budget_bytes < needed_bytes {
        let what = format!("{}: the table of offsets that no file confirms", path.display());
        return Err(Error::Memory { what, needed_bytes, budget_bytes });
    }
    Ok(())
}
