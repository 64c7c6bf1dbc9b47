use std::sync::Arc;

use kiln_graph::{Csc, NodeTypes, Relation, Relations, SharedArray, TimeScale};

use super::{DatasetTimes, times_of};
/// The orders of the edges by time that a folder in the kiln format stores, so that a start does not compute them
/// ([`DatasetTimes::graph_by_time`]). They belong to the arrays with which they were opened: a set whose edges or times were
/// changed since, for example cut or given self loops, has its edges ordered anew. Sets are equal with and without them.
#[derive(Debug, Clone, Default)]
pub struct StoredOrders(Arc<[Option<StoredOrder>]>);

/// The stored order of a relation.
#[derive(Debug, Clone)]
struct StoredOrder {
    order: SharedArray<u32>,
    scale: TimeScale,
    /// The edges that are ordered.
    edges: Arc<Csc>,
    /// The times of their sources; `None` if they have none.
    of_srcs: Option<SharedArray<i64>>,
    types: Arc<NodeTypes>,
}

impl PartialEq for StoredOrders {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StoredOrders {}

impl StoredOrders {
    /// Collects the orders of the relations of a graph, each an array and the scale of its times, `None` for a relation without a
    /// stored order. `times` has the times of its nodes.
    pub(crate) fn new(
        orders: Vec<Option<(SharedArray<u32>, TimeScale)>>,
        graph: &Relations,
        times: &DatasetTimes,
    ) -> Self {
        let mut all = Vec::with_capacity(orders.len());
        for (order, relation) in orders.into_iter().zip(graph.iter()) {
            all.push(order.map(|(order, scale)| StoredOrder {
                order,
                scale,
                edges: Arc::clone(&relation.graph),
                of_srcs: times.node_times(relation.src_type).cloned(),
                types: Arc::clone(graph.types()),
            }));
        }
        Self(all.into())
    }

    /// Returns true if any relation has a stored order.
    pub fn has_any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Returns the array of the order of a relation and the scale of its times; `None` if there is none, or if it is one of other
    /// edges or times.
    pub(crate) fn get(
        &self,
        graph: &Relations,
        position: usize,
        times: &DatasetTimes,
    ) -> Option<(&SharedArray<u32>, TimeScale)> {
        let stored = self.0.get(position)?.as_ref()?;
        let relation: &Relation = graph.relation(position);
        let [of_stored, own] = [&stored.edges, &relation.graph].map(|edges| times_of(edges.columns()));
        let has_same_edges = is_same(stored.edges.indptr(), relation.graph.indptr())
            && is_same(stored.edges.indices(), relation.graph.indices());
        let has_same_times = are_same(of_stored, own)
            && are_same(stored.of_srcs.as_ref(), times.node_times(relation.src_type));
        let is_own = has_same_edges && has_same_times && stored.types == *graph.types();
        is_own.then_some((&stored.order, stored.scale))
    }

    /// Returns the orders for a copy of a graph in the memory of the process, copied likewise.
    pub(crate) fn in_memory(&self, graph: &Relations, copy: &Relations, times: &DatasetTimes) -> Self {
        let mut orders = Vec::with_capacity(graph.n_relations());
        for position in 0..graph.n_relations() {
            let stored = self.get(graph, position, times);
            orders.push(stored.map(|(order, scale)| (order.in_memory(), scale)));
        }
        Self::new(orders, copy, times)
    }
}

/// Returns true if two slices are the same memory, which does not change.
fn is_same<T>(one: &[T], other: &[T]) -> bool {
    std::ptr::eq(one, other)
}

fn are_same(one: Option<&SharedArray<i64>>, other: Option<&SharedArray<i64>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => is_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}
