//! Samples one hop in a graph on a device.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use kiln_sample::{EdgeWeights, Fanout, Frontier, HopRequest, Rule};

use crate::cube::by_source::SourceCounts;
use crate::cube::edge_times::{DstTimes, Keys};
use crate::cube::graph::{Graph, HopNodes};
use crate::cube::known_lists::{self, KnownLists};
use crate::cube::launch;
use crate::cube::neighborhood::{How, Picked};
use crate::cube::pick::Picking;
use crate::cube::pick_timed::KnownOfHop;
use crate::cube::relabel::{Relabelled, relabel};
use crate::cube::rule::DeviceRule;

/// The arrays of the block of one hop.
pub(crate) struct HopArrays {
    pub(crate) indptr: CubeTensor,
    pub(crate) indices: CubeTensor,
    pub(crate) edge_ids: CubeTensor,
    pub(crate) weights: Option<CubeTensor>,
    pub(crate) edge_types: Option<CubeTensor>,
    pub(crate) srcs: CubeTensor,
    /// For each source, the position of its time among those of the hop; `None` without times.
    pub(crate) src_times: Option<CubeTensor>,
    /// An upper bound on the number of edges of a destination.
    pub(crate) most_in_edges: usize,
    /// The counts of the edges by source, if there are edges.
    pub(crate) counts: Option<SourceCounts>,
}

/// The largest bound on a hop's edges for which memory is allocated without reading the actual number first. A block
/// then occupies at most 67 MB (16 bytes per edge).
const MOST_ROOM: usize = 1 << 22;

/// The largest number of neighbours that are drawn for one node, because one unit draws them sequentially.
pub(crate) const MOST_DRAWN: u64 = 1024;

/// An error of sampling a hop.
pub(crate) enum HopError {
    /// The hop has at least `n_edges` edges, more than a block can have.
    TooLarge { n_edges: u64 },
    /// The fanout exceeds `most`, the largest number of neighbours that a device draws for a node.
    FanoutTooLarge { most: u64 },
    /// A custom rule picked a position of this node that is not below its degree.
    PickOutOfRange { dst: u32 },
}

impl Graph {
    /// Samples one hop, whose block stays on the device. The host only reads the numbers of edges and sources and the
    /// largest number of edges of a source, in one transfer. If the bound on the number of edges exceeds [`MOST_ROOM`], the host also reads the number of edges
    /// before it allocates memory.
    ///
    /// # Errors
    /// Returns a [`HopError`] if the hop has too many edges, the fanout is too large, or a custom rule picks out of range.
    pub(crate) fn sample_hop(
        &self,
        hop: &HopNodes,
        request: &HopRequest,
        rule: &Rule,
    ) -> Result<HopArrays, HopError> {
        let nodes = &hop.nodes;
        let Some(picked) = self.pick_hop(hop, request, rule)? else {
            return Ok(HopArrays::without_edges(hop, request));
        };
        let n_dst = launch::length(nodes);
        let Relabelled { indices, nodes: srcs, times, counts, arrivals, totals } =
            relabel(nodes, hop.times.as_ref(), &picked.edges.srcs, &picked.offsets, self.n_rows);
        let [totals] = launch::read([&totals]);
        let [longest, n_edges, n_new] = [0, 1, 2].map(|total| totals[total] as usize);
        let counts = SourceCounts {
            counts: launch::prefix(&counts, n_dst + n_new),
            arrivals: launch::prefix(&arrivals, n_edges),
            longest,
        };
        let edge_ids = launch::prefix(&picked.edges.edge_ids, n_edges);
        Ok(HopArrays {
            indices: launch::prefix(&indices, n_edges),
            srcs: launch::prefix(&srcs, n_dst + n_new),
            src_times: times.map(|times| launch::prefix(&times, n_dst + n_new)),
            weights: picked.weights(&edge_ids, request.weights),
            edge_types: self.types_of(&edge_ids, request),
            most_in_edges: picked.most_in_edges as usize,
            counts: (0 < n_edges).then_some(counts),
            indptr: picked.offsets,
            edge_ids,
        })
    }

    /// Same as [`Graph::sample_hop`], but copies the selected edges to the host, in global ids.
    ///
    /// # Errors
    /// Same as [`Graph::sample_hop`].
    pub(crate) fn read_hop(
        &self,
        hop: &HopNodes,
        request: &HopRequest,
        rule: &Rule,
        out: &mut Frontier,
    ) -> Result<(), HopError> {
        let n_dst = launch::length(&hop.nodes);
        *out = without_edges(n_dst, request);
        let Some(picked) = self.pick_hop(hop, request, rule)? else { return Ok(()) };
        let [indptr] = launch::read([&picked.offsets]);
        out.indptr = indptr;
        let n_edges = out.indptr[n_dst] as usize;
        if n_edges == 0 {
            return Ok(());
        }
        let edge_ids = launch::prefix(&picked.edges.edge_ids, n_edges);
        let weights = picked.weights(&edge_ids, request.weights);
        let edge_types = self.types_of(&edge_ids, request);
        let srcs = launch::prefix(&picked.edges.srcs, n_edges);
        let arrays = [&srcs, &edge_ids].into_iter().chain(&weights).chain(&edge_types);
        let bytes = launch::read_bytes(&arrays.collect::<Vec<_>>());
        out.srcs = launch::values(&bytes[0], &srcs);
        out.edge_ids = launch::values(&bytes[1], &edge_ids);
        out.weights = weights.map(|weights| launch::values(&bytes[2], &weights));
        out.edge_types = edge_types.map(|types| {
            let types: Vec<i32> = launch::values(&bytes[bytes.len() - 1], &types);
            types.into_iter().map(|edge_type| edge_type as u8).collect()
        });
        Ok(())
    }

    /// Returns the types of edges, or `None` if the request asks for no types.
    ///
    /// # Panics
    /// Panics if the request asks for types that [`Graph::store_edge_types`] has not copied.
    fn types_of(&self, edge_ids: &CubeTensor, request: &HopRequest) -> Option<CubeTensor> {
        let types =
            || self.edge_types.as_ref().expect("a graph without edge types should have been rejected");
        request.edge_types.then(|| types().of(edge_ids))
    }

    /// Picks the edges of a hop. The arrays are allocated for an upper bound on the number of edges. Returns `None` if
    /// this bound is 0.
    fn pick_hop<'a>(
        &'a self,
        hop: &'a HopNodes,
        request: &HopRequest,
        rule: &'a Rule,
    ) -> Result<Option<PickedHop<'a>>, HopError> {
        let n_dst = launch::length(&hop.nodes);
        let fanout = match request.fanout {
            Fanout::All => u32::MAX,
            Fanout::UpTo(fanout) => fanout,
        };
        let has_times = hop.times.is_some() && self.times.is_some();
        let how = match How::new(request.fanout, rule, has_times) {
            // No node has more neighbours than the fanout, so all edges are taken, with one unit per edge.
            How::Uniform | How::WithLoop | How::MostRecent if self.largest_degree <= fanout => How::All,
            how => how,
        };
        let device_rule = match rule {
            Rule::Custom { rule, .. } if how == How::ByRule => DeviceRule::of(&**rule),
            _ => None,
        };
        let picking = Picking { graph: self, hop, how, rule: device_rule, fanout };
        if self.draws_too_many(how, fanout) {
            return Err(HopError::FanoutTooLarge { most: MOST_DRAWN });
        }
        let most_in_edges = self.most_picks(how, fanout);
        if n_dst as u64 * most_in_edges == 0 {
            return Ok(None);
        }
        let picked = match &hop.times {
            None => self.pick_from_all(picking, most_in_edges, request)?,
            Some(times) => self.pick_at_times(picking, times, most_in_edges, request)?,
        };
        if let Some(invalid) = &picked.edges.invalid {
            let [invalid] = launch::read([invalid]);
            if invalid[0] != u32::MAX {
                return Err(HopError::PickOutOfRange { dst: invalid[0] });
            }
        }
        Ok(Some(picked))
    }

    /// Picks from all edges of the destinations.
    fn pick_from_all<'a>(
        &self,
        picking: Picking<'a>,
        most_in_edges: u64,
        request: &HopRequest,
    ) -> Result<PickedHop<'a>, HopError> {
        let offsets = picking.offsets();
        let most_edges = room(most_in_edges, &offsets)?;
        let edges = picking.edges(&offsets, most_edges, Keys::OfHop(request.key));
        Ok(PickedHop { picking, from: PickedFrom::All, offsets, edges, most_in_edges })
    }

    /// Picks from the edges that the destinations know at their times.
    fn pick_at_times<'a>(
        &self,
        picking: Picking<'a>,
        times: &DstTimes,
        most_in_edges: u64,
        request: &HopRequest,
    ) -> Result<PickedHop<'a>, HopError> {
        let Picking { how, fanout, .. } = picking;
        let known = KnownOfHop::new(&picking, times);
        let offsets = known.offsets(fanout, how);
        if !matches!(how, How::All | How::WithLoop | How::ByRule) {
            let most_edges = room(most_in_edges, &offsets)?;
            let edges = known.edges(&picking, times, &offsets, most_edges);
            let from = PickedFrom::Known(known);
            return Ok(PickedHop { picking, from, offsets, edges, most_in_edges });
        }
        let most_known = u64::from(self.largest_degree);
        let all_offsets = known_lists::all_offsets(&picking);
        let most_all = room(most_known, &all_offsets)?;
        let listed =
            known_lists::listed(&picking, times, &all_offsets, most_all, room(most_known, &offsets)?);
        if how == How::All {
            let from = PickedFrom::All;
            return Ok(PickedHop { picking, from, offsets, edges: listed, most_in_edges });
        }
        let lists = KnownLists::new(&picking, listed, &offsets, request.weights);
        let from_lists = lists.picking(&picking);
        let offsets = from_lists.offsets();
        let most_edges = room(most_in_edges, &offsets)?;
        let mut edges = from_lists.edges(&offsets, most_edges, Keys::OfTimes(times));
        let edge_ids = lists.edge_ids(&edges.edge_ids, &offsets);
        let positions = std::mem::replace(&mut edges.edge_ids, edge_ids);
        let from = PickedFrom::Lists(Box::new(lists), positions);
        Ok(PickedHop { picking, from, offsets, edges, most_in_edges })
    }

    /// An upper bound on the number of edges that are picked for a destination.
    fn most_picks(&self, how: How, fanout: u32) -> u64 {
        let degree = u64::from(self.largest_degree);
        let fanout = u64::from(fanout);
        match how {
            How::All => degree,
            How::Uniform | How::MostRecent => degree.min(fanout),
            How::WithReplacement | How::ByRule => degree.min(1) * fanout,
            How::WithLoop => degree.min(fanout + u64::from(self.most_loops)),
        }
    }

    /// Returns true if more than [`MOST_DRAWN`] neighbours might be drawn for a node.
    fn draws_too_many(&self, how: How, fanout: u32) -> bool {
        how != How::All && 0 < self.largest_degree && MOST_DRAWN < u64::from(fanout)
    }
}

/// Returns the number of edges for which a hop allocates memory. `most_in_edges` is an upper bound on the number of edges of a
/// destination, and `offsets` has the first edge of each. The host reads the number of edges if its bound exceeds [`MOST_ROOM`].
fn room(most_in_edges: u64, offsets: &CubeTensor) -> Result<usize, HopError> {
    let n_dst = launch::length(offsets) - 1;
    let bound = n_dst as u64 * most_in_edges;
    if bound <= MOST_ROOM as u64 {
        return Ok(bound as usize);
    }
    let n_edges = launch::read_last(offsets);
    // The sums saturate, so a sum near the limit means that there are at least that many edges.
    if i32::MAX as usize - n_dst < n_edges as usize {
        return Err(HopError::TooLarge { n_edges: u64::from(n_edges) });
    }
    Ok(n_edges.max(1) as usize)
}

/// A hop whose edges have been picked.
struct PickedHop<'a> {
    picking: Picking<'a>,
    from: PickedFrom,
    /// The first edge of each destination; the last entry is the number of edges.
    offsets: CubeTensor,
    /// The picked edges, in arrays that may be longer than the number of picked edges.
    edges: Picked,
    /// An upper bound on the number of edges of a destination.
    most_in_edges: u64,
}

/// The edges among which a hop has picked.
enum PickedFrom {
    All,
    Known(KnownOfHop),
    /// The lists of the known edges, in which picks have positions.
    Lists(Box<KnownLists>, CubeTensor),
}

impl PickedHop<'_> {
    /// Returns the weights of the picked edges, or `None` if the request asks for no weights.
    fn weights(&self, edge_ids: &CubeTensor, weights: EdgeWeights) -> Option<CubeTensor> {
        let Self { picking, from, offsets, .. } = self;
        let is_scaled = match weights {
            EdgeWeights::None => return None,
            EdgeWeights::Stored => false,
            EdgeWeights::Unbiased => true,
        };
        Some(match from {
            PickedFrom::All => picking.weights(offsets, edge_ids, is_scaled),
            PickedFrom::Known(known) => {
                let factors = is_scaled.then(|| known.weight_factors(offsets));
                picking.weights_times(offsets, edge_ids, factors.as_ref())
            }
            PickedFrom::Lists(lists, positions) => {
                let positions = launch::prefix(positions, launch::length(edge_ids));
                lists.picking(picking).weights(offsets, &positions, is_scaled)
            }
        })
    }
}

/// Returns a hop whose destinations have no edges.
pub(crate) fn without_edges(n_dst: usize, request: &HopRequest) -> Frontier {
    let weights = (request.weights != EdgeWeights::None).then(Vec::new);
    let edge_types = request.edge_types.then(Vec::new);
    Frontier { indptr: vec![0; n_dst + 1], weights, edge_types, ..Frontier::default() }
}

impl HopArrays {
    fn without_edges(hop: &HopNodes, request: &HopRequest) -> Self {
        let nodes = &hop.nodes;
        let has_weights = request.weights != EdgeWeights::None;
        Self {
            indptr: launch::upload(nodes, &vec![0; launch::length(nodes) + 1]),
            indices: launch::upload(nodes, &[]),
            edge_ids: launch::upload_as::<i64>(nodes, &[], DType::I64),
            weights: has_weights.then(|| launch::upload_as::<f32>(nodes, &[], DType::F32)),
            edge_types: request.edge_types.then(|| launch::upload(nodes, &[])),
            srcs: nodes.clone(),
            src_times: hop.times.as_ref().map(|times| times.index.clone()),
            most_in_edges: 0,
            counts: None,
        }
    }
}
