use kiln_graph::{Csc, EdgeTimes, NodeId};

use crate::known_edges::{bad_order, position_mask};
use crate::{Result, in_edge_range};

/// Checks that the order of a destination's edges by time has each of them once, by time and id, so that a search needs no checks.
/// Edges without an order pass.
///
/// ```
/// use kiln_graph::{CscBuilder, EdgeTimes, NodeId};
/// use kiln_sample::check_time_order;
/// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?.with_edge_times(vec![20, 10])?;
/// check_time_order(&graph, NodeId(2))?;
/// let times = graph.edge_times().unwrap();
/// let twice = EdgeTimes::new(vec![20, 10].into(), vec![1, 1].into(), times.scale())?;
/// assert!(check_time_order(&graph.with_ordered_times(twice)?, NodeId(2)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`DamagedGraphError::BadTimeOrder`](crate::DamagedGraphError::BadTimeOrder) for the first wrong position, and the errors of
/// [`in_edge_range`].
pub fn check_time_order(graph: &Csc, dst: NodeId) -> Result<()> {
    let Some(times) = graph.edge_times() else { return Ok(()) };
    let edges = in_edge_range(graph, dst, 0)?;
    let of_edges = &times.times()[edges.clone()];
    let mask = position_mask(edges.len());
    let bits = EdgeTimes::position_bits(edges.len());
    let mut before = None;
    for entry in &times.order()[edges.clone()] {
        let place = entry & mask;
        let time = of_edges.get(place as usize).ok_or_else(|| bad_order(times, dst, &edges, place))?;
        let key = Some((*time, place));
        if key <= before || entry - place != times.border(*time, bits) {
            return Err(bad_order(times, dst, &edges, place));
        }
        before = key;
    }
    Ok(())
}
