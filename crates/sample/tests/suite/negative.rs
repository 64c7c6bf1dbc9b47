//! Negatives of links.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Csc, CscBuilder, Error as GraphError, LinkId, LinkNegatives, Links, NodeId};
use kiln_sample::{
    DamagedGraphError, DegreeNegatives, Error, InBatchNegatives, NegativeSampler, Negatives, NegativesError,
    NodeRng, PositiveLink, RngKey, UniformNegatives, UniformPairNegatives,
};
use kiln_testkit::{chi_square_p_value, hub, ring};

const UNIFORM: UniformNegatives = UniformNegatives { dsts: 0..50 };

/// 40 links of 50 nodes.
fn links() -> Links {
    let srcs: Vec<u32> = (0..40).collect();
    let dsts: Vec<u32> = (0..40).map(|link| (link * 7 + 3) % 50).collect();
    Links::new(srcs, dsts).unwrap()
}

fn ids(range: std::ops::Range<u32>) -> Vec<LinkId> {
    range.map(LinkId).collect()
}

#[test]
fn negatives_depend_on_the_link_and_not_on_the_batch() {
    let (links, all, key) = (links(), ids(0..40), RngKey::new(3));
    for sampler in [Negatives::new(UNIFORM, 3), Negatives::new(InBatchNegatives, 3)] {
        let whole = sampler.sample(&links, &all, &all, key).unwrap();
        for start in [0, 10, 25] {
            let part = sampler.sample(&links, &ids(start..start + 7), &all, key).unwrap();
            let rows = 3 * start as usize..3 * (start as usize + 7);
            assert_eq!(part.srcs, whole.srcs[rows.clone()], "{sampler:?}");
            assert_eq!(part.dsts, whole.dsts[rows], "{sampler:?}");
        }
        let other = sampler.sample(&links, &all, &all, RngKey::new(4)).unwrap();
        assert_ne!(other, whole, "{sampler:?}");
    }
    // The first negatives of a link do not depend on the number of its negatives.
    let [few, many] = [1, 5].map(|n| Negatives::new(UNIFORM, n).sample(&links, &all, &all, key).unwrap());
    assert_eq!(few.dsts, many.dsts.iter().copied().step_by(5).collect::<Vec<_>>());
}

#[test]
fn negatives_match_documented_vectors() {
    let links = Links::new(vec![8_u32, 9], vec![9_u32, 8]).unwrap();
    let uniform = Negatives::new(UniformNegatives { dsts: 0..1_000_000 }, 2);
    let sampled = uniform.sample(&links, &ids(0..2), &ids(0..2), RngKey::new(0x0123_4567_89ab_cdef)).unwrap();
    assert_eq!(sampled.srcs, [8, 8, 9, 9].map(NodeId));
    assert_eq!(sampled.dsts, DOCUMENTED.map(NodeId));
}

/// Computed by an independent program from the text of `docs/rng.md`.
const DOCUMENTED: [u32; 4] = [189_691, 942_649, 829_315, 926_061];

#[test]
fn in_batch_negatives_are_destinations_of_the_step() {
    let links = links();
    let step = ids(5..17);
    let of_step: Vec<NodeId> = step.iter().map(|link| links.pair(*link).1).collect();
    let sampled =
        Negatives::new(InBatchNegatives, 20).sample(&links, &step[3..5], &step, RngKey::new(1)).unwrap();
    assert!(sampled.dsts.iter().all(|dst| of_step.contains(dst)));
    for (row, link) in step[3..5].iter().enumerate() {
        let (src, dst) = links.pair(*link);
        assert!(sampled.dsts[20 * row..20 * (row + 1)].iter().all(|negative| *negative != dst));
        assert!(sampled.srcs[20 * row..20 * (row + 1)].iter().all(|negative| *negative == src));
    }
}

#[test]
fn pairs_replace_both_nodes() {
    let sampled = Negatives::new(UniformPairNegatives { srcs: 0..50, dsts: 0..50 }, 25)
        .sample(&links(), &ids(0..40), &ids(0..40), RngKey::new(2))
        .unwrap();
    let mut counts = [0; 50];
    sampled.srcs.iter().chain(&sampled.dsts).for_each(|node| counts[node.index()] += 1);
    assert!(1e-3 < chi_square_p_value(&counts, &[40.0; 50]), "{counts:?}");
    assert!(sampled.srcs.iter().zip(&sampled.dsts).all(|(src, dst)| src != dst));
}

#[test]
fn negatives_are_nodes_of_their_types() {
    let (srcs, dsts) = (Links::new(vec![3_u32; 40], vec![25_u32; 40]).unwrap(), 20..50);
    let sample = |sampler: Negatives| sampler.sample(&srcs, &ids(0..40), &[], RngKey::new(2)).unwrap();
    let of_dsts = sample(Negatives::new(UniformNegatives { dsts: dsts.clone() }, 30));
    assert!(of_dsts.srcs.iter().all(|src| src.0 == 3));
    let of_pairs = sample(Negatives::new(UniformPairNegatives { srcs: 0..20, dsts }, 30));
    let mut counts = [[0; 50]; 2];
    of_dsts.dsts.iter().for_each(|node| counts[0][node.index()] += 1);
    of_pairs.srcs.iter().chain(&of_pairs.dsts).for_each(|node| counts[1][node.index()] += 1);
    // No negative is the link itself.
    assert_eq!((&counts[0][..20], counts[0][25]), (&[0; 20][..], 0));
    let others: Vec<u64> = (20..50).filter(|node| *node != 25).map(|node| counts[0][node]).collect();
    assert!(1e-3 < chi_square_p_value(&others, &[1_200.0 / 29.0; 29]), "{counts:?}");
    let expected = |n: usize| vec![1_200.0 / n as f64; n];
    assert!(1e-3 < chi_square_p_value(&counts[1][..20], &expected(20)), "{counts:?}");
    assert!(1e-3 < chi_square_p_value(&counts[1][20..], &expected(30)), "{counts:?}");
}

#[test]
fn degree_negatives_follow_the_power_of_the_degree() {
    // In-degrees 0, 1, 4, 9, 16 and 0; the power 0.75 of each.
    let degrees = [0_u32, 1, 4, 9, 16, 0];
    let dsts: Vec<u32> = (0..6).flat_map(|dst| vec![dst; degrees[dst as usize] as usize]).collect();
    let graph = CscBuilder::new(6).build(&vec![5; dsts.len()], &dsts).unwrap();
    let sampler = DegreeNegatives::new(&graph).unwrap();
    let n = 100_000;
    let mut counts = [0; 4];
    for link in 0..n {
        let positive = PositiveLink { src: NodeId(5), dst: NodeId(0), time: None, step_dsts: &[] };
        let (src, dst) = sampler.draw(positive, &mut RngKey::new(1).link(LinkId(link)).rng());
        assert_eq!(src, NodeId(5));
        counts[dst.index() - 1] += 1;
    }
    let powers: Vec<f64> = degrees[1..5].iter().map(|degree| f64::from(*degree).powf(0.75)).collect();
    let sum: f64 = powers.iter().sum();
    let expected: Vec<f64> = powers.iter().map(|power| power / sum * f64::from(n)).collect();
    assert!(1e-3 < chi_square_p_value(&counts, &expected), "{counts:?}, expected {expected:?}");
    let error = DegreeNegatives::new(&CscBuilder::new(3).build(&[], &[]).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Negatives(NegativesError::NoEdges)), "{error}");
}

#[test]
fn rejects_edges_of_a_graph() {
    // Every other node is a neighbour of each node of a ring of 5, except two.
    let graph = ring(5);
    let links = Links::new(vec![0_u32; 200], vec![1_u32; 200]).unwrap();
    let uniform = UniformNegatives { dsts: 0..5 };
    let sample = |negatives: &Negatives| negatives.sample(&links, &ids(0..200), &[], RngKey::new(0)).unwrap();
    let sampled =
        sample(&Negatives::new(uniform.clone(), 1).rejecting(graph.clone()).unwrap().max_draws(100));
    assert_eq!(sampled.n_rejected, 0);
    assert!(sampled.dsts.iter().all(|dst| [2, 3].contains(&dst.0)));
    // One draw may be wrong, and is counted: the link itself, the self pair, and the other neighbour.
    let once = Negatives::new(uniform, 1).rejecting(graph).unwrap().max_draws(1);
    let sampled = sample(&once);
    let n_wrong = sampled.dsts.iter().filter(|dst| [0, 1, 4].contains(&dst.0)).count();
    assert_eq!(sampled.n_rejected, n_wrong as u64);
    assert_eq!(once.n_rejected(), n_wrong as u64);
    assert!((90..150).contains(&n_wrong), "{n_wrong}");
}

/// A binary search for 3 among the neighbours 7 and 3 misses it.
#[test]
fn rejects_edges_of_a_graph_with_unsorted_neighbors() {
    let indptr = [0, 2, 2, 2, 2, 2, 2, 2, 2].to_vec();
    let graph = Arc::new(Csc::new(indptr.into(), vec![7_u32, 3].into()).unwrap());
    struct Known;
    impl NegativeSampler for Known {
        fn draw(&self, link: PositiveLink<'_>, _: &mut NodeRng) -> (NodeId, NodeId) {
            (link.src, NodeId(0))
        }

        fn name(&self) -> &str {
            "known"
        }
    }
    let links = Links::new(vec![7_u32, 3, 5], vec![1_u32, 1, 1]).unwrap();
    let negatives = Negatives::new(Known, 1).rejecting(graph).unwrap();
    for (link, n_rejected) in [(0, 1), (1, 1), (2, 0)] {
        let sampled = negatives.sample(&links, &[LinkId(link)], &[], RngKey::new(0)).unwrap();
        assert_eq!(sampled.n_rejected, n_rejected, "link {link}");
    }
}

#[test]
fn negatives_of_damaged_graphs_are_an_error() {
    let falls = Arc::new(Csc::new(vec![0, 2, 1, 3].into(), vec![0_u32, 1, 2].into()).unwrap());
    let error = Negatives::new(UNIFORM, 1).rejecting(falls.clone()).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::IndptrNotMonotone { node: 1, .. })), "{error}");
    let error = DegreeNegatives::new(&falls).unwrap_err();
    let expected = (NodeId(1), 2, 1);
    assert!(
        matches!(error, Error::DamagedGraph(DamagedGraphError::BadEdgeRange { node, start, end, .. }) if (node, start, end) == expected),
        "{error}"
    );
}

#[test]
fn reports_nodes_that_do_not_exist() {
    struct Beyond;
    impl NegativeSampler for Beyond {
        fn draw(&self, link: PositiveLink<'_>, _: &mut NodeRng) -> (NodeId, NodeId) {
            (link.src, NodeId(99))
        }

        fn name(&self) -> &str {
            "beyond"
        }
    }
    let negatives = Negatives::new(Beyond, 1).rejecting(hub(60)).unwrap();
    let error = negatives.sample(&links(), &ids(0..1), &ids(0..1), RngKey::new(0)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Negatives(NegativesError::NegativeOutOfRange { node: NodeId(99), n_nodes: 61 })
        ),
        "{error}"
    );
}

#[test]
fn fixed_negatives_are_returned_as_given() {
    let (links, key) = (links(), RngKey::new(0));
    let (srcs, dsts) = (vec![4_u32, 5, 6, 7], vec![9_u32, 9, 6, 1]);
    let ids = vec![LinkId(3), LinkId(8)];
    let of_dsts = Negatives::fixed(LinkNegatives::of_dsts(ids.clone(), 2, dsts.clone()).unwrap());
    let of_pairs = Negatives::fixed(LinkNegatives::of_pairs(ids, 2, srcs, dsts).unwrap());
    let wanted = [LinkId(8), LinkId(3), LinkId(8)];
    for (negatives, expected) in [(&of_dsts, [8, 8, 3, 3, 8, 8]), (&of_pairs, [6, 7, 4, 5, 6, 7])] {
        let sampled = negatives.sample(&links, &wanted, &wanted, key).unwrap();
        assert_eq!(sampled.srcs, expected.map(NodeId));
        // The destination of link 8 is node 9, and 6 -> 6 is a self loop: neither is rejected.
        assert_eq!(sampled.dsts, [6, 1, 9, 9, 6, 1].map(NodeId));
        assert_eq!((sampled.n_rejected, negatives.n_rejected(), negatives.n_per_link()), (0, 0, 2));
    }
    assert_eq!(format!("{of_dsts:?}"), "2 fixed of 2 links");
    let error = of_dsts.sample(&links, &[LinkId(4)], &[], key).unwrap_err();
    assert!(
        matches!(error, Error::Negatives(NegativesError::NoFixedNegatives { link: LinkId(4) })),
        "{error}"
    );
}
