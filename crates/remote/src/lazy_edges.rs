use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::edges::Edges;

/// Edges of each relation of a partition, `[n_relations]`, which are made when they are first requested. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct LazyEdges(Arc<[Mutex<Option<Arc<Edges>>>]>);

impl LazyEdges {
    pub(crate) fn new(n_relations: usize) -> Self {
        Self((0..n_relations).map(|_| Mutex::default()).collect())
    }

    /// Returns the edges of a relation, which `make` makes unless they were made before.
    ///
    /// # Errors
    /// Returns the errors of `make`.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub(crate) fn get_or_make(
        &self,
        relation: usize,
        make: impl FnOnce() -> Result<Arc<Edges>>,
    ) -> Result<Arc<Edges>> {
        // Requests for other relations do not wait while the edges are made.
        let mut edges = self.0[relation].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(edges) = &*edges {
            return Ok(Arc::clone(edges));
        }
        Ok(Arc::clone(edges.insert(make()?)))
    }
}
