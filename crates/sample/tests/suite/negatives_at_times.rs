//! Negatives of links that have times.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Csc, CscBuilder, EdgeColumn, EdgeColumns, LinkId, Links, NodeId};
use kiln_sample::{
    DegreeNegatives, Negatives, PastNegatives, RngKey, SampledNegatives, UniformNegatives,
    UniformPairNegatives,
};
use kiln_testkit::chi_square_p_value;

const N_NODES: u32 = 40;

/// The time of a node. Nodes 0 to 4 exist always.
fn time_of_node(node: u32) -> i64 {
    (i64::from(node) - 5).max(-1) * 3
}

/// A multigraph whose edges have times from 0 on, none before its destination.
fn graph() -> (Csc, Vec<(u32, u32, i64)>) {
    let edges: Vec<(u32, u32, i64)> = (0..600_u32)
        .map(|edge| {
            let [src, dst] = [edge.wrapping_mul(0x9E37_79B9) >> 20, edge.wrapping_mul(0x85EB_CA6B) >> 20];
            let time = i64::from(edge.wrapping_mul(0xC2B2_AE35) >> 16) % 100;
            (src % N_NODES, dst % N_NODES, time.max(time_of_node(dst % N_NODES)))
        })
        .collect();
    let srcs: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let dsts: Vec<u32> = edges.iter().map(|edge| edge.1).collect();
    let times = EdgeColumn::new(edges.iter().map(|edge| edge.2).collect::<Vec<i64>>(), 1).unwrap();
    let columns = EdgeColumns::default().with(EdgeColumns::TIMES, times).unwrap();
    (CscBuilder::new(N_NODES as usize).columns(columns).build(&srcs, &dsts).unwrap(), edges)
}

/// Draws negatives of 200 links at the times 0 to 99, and returns them with the links and their times.
fn draw(negatives: &Negatives) -> (SampledNegatives, Links, Vec<i64>) {
    let links = Links::new(
        (0..200).map(|link| link * 7 % N_NODES).collect::<Vec<u32>>(),
        (0..200).map(|link| (link * 13 + 5) % N_NODES).collect::<Vec<u32>>(),
    )
    .unwrap();
    let times: Vec<i64> = (0..200).map(|link| link * 3 % 100).collect();
    let ids: Vec<LinkId> = (0..200).map(LinkId).collect();
    let key = RngKey::new(3);
    let drawn = negatives.sample_at(&links, &ids, Some(&times), &[], key).unwrap();
    // A part of the links, in another order, has the same negatives.
    let few = [150, 7, 63];
    let of_few = few.map(LinkId);
    let few_times = few.map(|link| times[link as usize]);
    let part = negatives.sample_at(&links, &of_few, Some(&few_times), &[], key).unwrap();
    let n = negatives.n_per_link();
    for (row, link) in few.iter().enumerate() {
        let rows = *link as usize * n..(*link as usize + 1) * n;
        assert_eq!(part.dsts[row * n..(row + 1) * n], drawn.dsts[rows], "{negatives:?}");
    }
    (drawn, links, times)
}

#[test]
fn negatives_exist_before_the_time_of_their_link() {
    let (graph, _) = graph();
    let node_times: Vec<i64> = (0..N_NODES).map(time_of_node).collect();
    let all = 0..N_NODES;
    for (negatives, max_draws) in [
        (Negatives::new(UniformNegatives { dsts: all.clone() }, 4), 16),
        (Negatives::new(UniformPairNegatives { srcs: all.clone(), dsts: all.clone() }, 4), 2_000),
        (Negatives::new(DegreeNegatives::new(&graph).unwrap(), 4), 2_000),
        (Negatives::new(PastNegatives::new(&graph, all.clone()).unwrap(), 4), 2_000),
    ] {
        let negatives = negatives.max_draws(max_draws).existing(node_times.clone());
        let (drawn, links, times) = draw(&negatives);
        for (position, (src, dst)) in drawn.srcs.iter().zip(&drawn.dsts).enumerate() {
            let link = position / 4;
            let (link_src, link_dst) = links.pair(LinkId(link as u32));
            assert!(node_times[dst.index()] < times[link], "{negatives:?}: node {dst:?} at {}", times[link]);
            assert!(*src == link_src || node_times[src.index()] < times[link], "{negatives:?}");
            assert!(src != dst && (*src, *dst) != (link_src, link_dst), "{negatives:?}");
        }
    }
    // Each node that exists has the same probability, and before the first there is none.
    let uniform = Negatives::new(UniformNegatives { dsts: 10..N_NODES }, 3_000).existing(node_times);
    let links = Links::new(vec![0_u32; 2], vec![1_u32; 2]).unwrap();
    let ids = [LinkId(0), LinkId(1)];
    let drawn = uniform.sample_at(&links, &ids, Some(&[46, 15]), &[], RngKey::new(5)).unwrap();
    let mut counts = [0; 11];
    drawn.dsts[..3_000].iter().for_each(|dst| counts[dst.index() - 10] += 1);
    assert!(1e-3 < chi_square_p_value(&counts, &[3_000.0 / 11.0; 11]), "{counts:?}");
    assert_eq!(drawn.n_rejected, 3_000);
}

#[test]
fn past_negatives_are_other_earlier_destinations_of_the_source() {
    let (graph, edges) = graph();
    let negatives = Negatives::new(PastNegatives::new(&graph, 0..N_NODES).unwrap(), 3).max_draws(1_000);
    assert_eq!(negatives.sampler_of_times(), Some("past"));
    let (drawn, links, times) = draw(&negatives);
    let mut n_without = 0;
    for (link, time) in times.iter().enumerate() {
        let (src, own) = links.pair(LinkId(link as u32));
        let mut past: Vec<u32> = edges
            .iter()
            .filter(|(from, to, at)| *from == src.0 && to != from && *to != own.0 && at < time)
            .map(|edge| edge.1)
            .collect();
        past.sort_unstable();
        n_without += 3 * u64::from(past.is_empty());
        for dst in &drawn.dsts[3 * link..3 * link + 3] {
            assert!(past.is_empty() || past.contains(&dst.0), "link {link}: {dst:?} of {past:?}");
            assert!(*dst != own && *dst != src, "link {link}");
        }
    }
    assert!(0 < n_without && n_without < 300, "{n_without}");
    assert_eq!(drawn.n_rejected, n_without);
    let error = negatives.sample(&links, &[LinkId(0)], &[], RngKey::new(0)).unwrap_err().to_string();
    assert!(error.contains("the negatives `past` read the times of links"), "{error}");
    let untimed = CscBuilder::new(2).build(&[0], &[1]).unwrap();
    let error = PastNegatives::new(&untimed, 0..2).unwrap_err().to_string();
    assert!(error.contains("the edges of the graph have no times"), "{error}");
}

#[test]
fn past_destinations_have_equal_probabilities_however_many_edges_there_were() {
    // Nine edges to node 1 and one to each of the nodes 2 and 3; node 4 comes later.
    let dsts: Vec<u32> = [vec![1; 9], vec![2, 3, 4]].concat();
    let times: Vec<i64> = [vec![5; 11], vec![50]].concat();
    let columns =
        EdgeColumns::default().with(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap()).unwrap();
    let graph = CscBuilder::new(6).columns(columns).build(&[0; 12], &dsts).unwrap();
    let negatives = Negatives::new(PastNegatives::new(&graph, 0..6).unwrap(), 3_000);
    let links = Links::new(vec![0_u32], vec![5_u32]).unwrap();
    let drawn = negatives.sample_at(&links, &[LinkId(0)], Some(&[50]), &[], RngKey::new(1)).unwrap();
    let mut counts = [0; 3];
    drawn.dsts.iter().for_each(|dst| counts[dst.index() - 1] += 1);
    assert!(1e-3 < chi_square_p_value(&counts, &[1_000.0; 3]), "{counts:?}");
}

#[test]
fn later_edges_are_negatives() {
    let (graph, edges) = graph();
    let uniform = UniformNegatives { dsts: 0..N_NODES };
    let negatives = Negatives::new(uniform, 20).rejecting(Arc::new(graph)).unwrap().max_draws(1_000);
    let (drawn, links, times) = draw(&negatives);
    let mut n_later = 0;
    for (position, dst) in drawn.dsts.iter().enumerate() {
        let (src, _) = links.pair(LinkId((position / 20) as u32));
        let time = times[position / 20];
        let of_pair = || edges.iter().filter(|(from, to, _)| (*from, *to) == (src.0, dst.0));
        assert!(of_pair().all(|edge| time < edge.2), "an edge at {time} or earlier should be rejected");
        n_later += usize::from(of_pair().next().is_some());
    }
    assert!(100 < n_later, "{n_later} negatives become edges later");
    assert_eq!(drawn.n_rejected, 0);
    // Without times, an edge of any time is rejected.
    let untimed = negatives.sample(&links, &[LinkId(0)], &[], RngKey::new(3)).unwrap();
    let (src, _) = links.pair(LinkId(0));
    let is_edge = |dst: &NodeId| edges.iter().any(|(from, to, _)| (*from, *to) == (src.0, dst.0));
    assert!(!untimed.dsts.iter().any(is_edge));
}
