use std::sync::{Arc, Mutex, PoisonError};

use kiln_partition::Part;

use crate::Result;
use crate::edges::Edges;
use crate::lazy_edges::LazyEdges;
use crate::wire::limits::MAX_CUTS;

/// The edges of a partition's relations that were known before some times, each of which is made when it is first requested. Those
/// of the last [`MAX_CUTS`] times are kept.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Mutex<Vec<Cut>>);

/// The edges of the relations that were known before a time.
#[derive(Debug, Clone)]
struct Cut {
    before: i64,
    relations: LazyEdges,
}

impl Cuts {
    /// Returns the edges of a relation that were known before a time. `all` are those of the whole relation.
    ///
    /// # Errors
    /// Returns [`Error::Partition`](crate::Error::Partition) if the partition is damaged.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub(crate) fn get_or_make(
        &self,
        part: &Part,
        relation: usize,
        all: &Arc<Edges>,
        before: i64,
    ) -> Result<Arc<Edges>> {
        let cut = self.find_or_add(part.relations.len(), before);
        cut.relations.get_or_make(relation, || {
            Ok(match part.edges_before(relation, before)? {
                None => Arc::clone(all),
                Some(known) => Arc::new(Edges {
                    graph: known.graph,
                    positions: Some(known.positions),
                    ..Edges::clone(all)
                }),
            })
        })
    }

    /// Returns the edges of a time, which may be empty, as the last one that is kept.
    fn find_or_add(&self, n_relations: usize, before: i64) -> Cut {
        let mut cuts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cuts.iter().position(|cut| cut.before == before);
        let cut = match found {
            Some(position) => cuts.remove(position),
            None => Cut { before, relations: LazyEdges::new(n_relations) },
        };
        if cuts.len() == MAX_CUTS {
            cuts.remove(0);
        }
        cuts.push(cut.clone());
        cut
    }
}
