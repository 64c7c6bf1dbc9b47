//! Batches of the links of one relation of a heterogeneous graph: a training step reads neither its links nor their
//! reverses.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_graph::{LinkId, Links, NodeId, NodeTypes, RelationEdges, Relations};
use kiln_loader::{
    BatchError, Batcher, FeatureStores, ItemSampler, ItemSamplerConfig, LinkBatch, LinkBatcher,
    LinkExclusion, MiniBatch, NodeBatcher, Phase, SeedBatch, Shard, StageTimes,
};
use kiln_sample::{
    Fanout, HeteroNeighborSampler, NegativeSampler, Negatives, NodeRng, PositiveLink, RngKey, SamplerConfig,
    Scratch, UniformNegatives,
};

const N_USERS: u32 = 30;
const N_ITEMS: u32 = 20;

type Edges = BTreeSet<(u8, NodeId, NodeId)>;

/// Users buy 4 items each, and view those. The relation 1 has the reverses of the purchases.
fn graph() -> Relations {
    let (users, items): (Vec<u32>, Vec<u32>) =
        (0..N_USERS).flat_map(|user| [0, 3, 4, 9].map(|step| (user, (user * 7 + step) % N_ITEMS))).unzip();
    let of = |name, src_type, dst_type, srcs, dsts| RelationEdges::new(name, src_type, dst_type, srcs, dsts);
    let types = NodeTypes::new([("user", N_USERS as usize), ("item", N_ITEMS as usize)]).unwrap();
    let relations = [
        of("buys", "user", "item", &users, &items),
        of("bought by", "item", "user", &items, &users),
        of("views", "user", "item", &users, &items),
    ];
    Relations::from_edges(types, &relations).unwrap()
}

fn links(graph: &Relations) -> Links {
    let buys = graph.whole_graph(0).unwrap();
    Links::new(buys.indices().to_vec(), buys.dsts()).unwrap()
}

type HeteroLinkBatcher = LinkBatcher<NodeBatcher<HeteroNeighborSampler>>;

fn batcher(exclusion: LinkExclusion, excluding_from: &[usize]) -> HeteroLinkBatcher {
    let graph = graph();
    let fanouts = vec![vec![Fanout::UpTo(3), Fanout::All, Fanout::All], vec![Fanout::All; 3]];
    let config = SamplerConfig::default().with_edge_types();
    let sampler = HeteroNeighborSampler::new(&graph, fanouts, config).unwrap().excluding_from(excluding_from);
    let features = FeatureStores::new(graph.types().clone(), vec![None, None]);
    let nodes = NodeBatcher::without_targets(Arc::new(sampler), features);
    let negatives = UniformNegatives { dsts: N_USERS..N_USERS + N_ITEMS };
    LinkBatcher::new(nodes, links(&graph), Negatives::new(negatives, 2)).exclusion(exclusion)
}

/// Makes a batch with negatives of the validation that are this pair, with items as destinations and users as sources.
fn with_negative(src: u32, dst: u32) -> Result<LinkBatch<MiniBatch>, BatchError> {
    let items = N_USERS..N_USERS + N_ITEMS;
    let batcher = batcher(LinkExclusion::WithReverses, &[0, 1])
        .eval_negatives(Negatives::new(Always(NodeId(src), NodeId(dst)), 2))
        .node_ranges([0..N_USERS, items]);
    let seeds = SeedBatch::new(Phase::Validation, 0, RngKey::new(0), vec![LinkId(3), LinkId(8)]);
    batcher.batch(seeds, &mut Scratch::default(), &mut StageTimes::default())
}

/// Negatives that are always the same pair.
struct Always(NodeId, NodeId);

impl NegativeSampler for Always {
    fn draw(&self, _: PositiveLink<'_>, _: &mut NodeRng) -> (NodeId, NodeId) {
        (self.0, self.1)
    }

    fn name(&self) -> &str {
        "always"
    }
}

#[test]
fn negatives_of_other_types_are_errors() {
    let (first_item, last_item) = (N_USERS, N_USERS + N_ITEMS - 1);
    for (src, dst) in [(0, first_item), (N_USERS - 1, last_item)] {
        let batch = with_negative(src, dst).unwrap();
        assert_eq!(batch.srcs.len(), 6, "{src}, {dst}");
    }
    // An item as source, a user as destination, and a node that does not exist.
    for (src, dst, expected) in [
        (
            first_item,
            last_item,
            "the source of a negative is node 30, expected a node of the relation's source type (0..30)",
        ),
        (
            0,
            N_USERS - 1,
            "the destination of a negative is node 29, expected a node of the relation's destination type (30..50)",
        ),
        (0, last_item + 1, "the destination of a negative is node 50"),
    ] {
        let error = with_negative(src, dst).unwrap_err();
        assert!(matches!(error, BatchError::NegativeOfOtherType { .. }), "{error}");
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("must return ids of this range, as UniformNegatives of this range does"),
            "{error}"
        );
    }
}

fn make(batcher: &HeteroLinkBatcher, phase: Phase, step: usize, rank: usize) -> LinkBatch<MiniBatch> {
    let config =
        ItemSamplerConfig { batch_size: 10, shard: Shard { rank, world_size: 2 }, ..Default::default() };
    let items = ItemSampler::new((0..120).map(LinkId).collect::<Vec<_>>(), config).unwrap();
    let seeds = items.epoch(phase).batch(step);
    batcher.batch(seeds, &mut Scratch::default(), &mut StageTimes::default()).unwrap()
}

/// Returns the edges of all blocks, with their relations.
fn edges(batch: &LinkBatch<MiniBatch>) -> Edges {
    let mut edges = Edges::new();
    for block in &batch.nodes.sampled.blocks {
        for (dst, range) in block.indptr().windows(2).enumerate() {
            for edge in range[0] as usize..range[1] as usize {
                let src = block.srcs()[block.indices()[edge].index()];
                edges.insert((block.edge_types().unwrap()[edge], src, block.dsts()[dst]));
            }
        }
    }
    edges
}

/// Returns the edges of the links of both ranks, and their reverses.
fn edges_of_links(batches: &[LinkBatch<MiniBatch>; 2]) -> [Edges; 2] {
    let links = links(&graph());
    let pairs = || batches.iter().flat_map(|batch| &batch.links).map(|link| links.pair(*link));
    [pairs().map(|(src, dst)| (0, src, dst)).collect(), pairs().map(|(src, dst)| (1, dst, src)).collect()]
}

/// Checks which links of a step are among the edges of its blocks: the links, and their reverses.
fn check(phase: Phase, exclusion: LinkExclusion, excluding_from: &[usize], expected: [bool; 2]) {
    let batcher = batcher(exclusion, excluding_from);
    for step in 0..6 {
        let batches = [0, 1].map(|rank| make(&batcher, phase, step, rank));
        let of_links = edges_of_links(&batches);
        for (rank, batch) in batches.iter().enumerate() {
            let edges = edges(batch);
            let found = of_links.each_ref().map(|of_links| edges.intersection(of_links).next().is_some());
            assert_eq!(found, expected, "{phase:?}, {exclusion:?}, step {step}, rank {rank}");
            // The edges of other relations between the same nodes stay.
            let viewed: Edges = of_links[0].iter().map(|&(_, src, dst)| (2, src, dst)).collect();
            let is_own = |edge: &&(u8, NodeId, NodeId)| {
                let links = links(&graph());
                batch.links.iter().any(|link| links.pair(*link) == (edge.1, edge.2))
            };
            assert!(
                viewed.iter().filter(is_own).all(|edge| edges.contains(edge)),
                "step {step}, rank {rank}"
            );
        }
    }
}

#[test]
fn a_training_step_reads_neither_its_links_nor_their_reverses() {
    let train = Phase::Train { epoch: 1 };
    check(train, LinkExclusion::WithReverses, &[0, 1], [false, false]);
    // Shows that the check can fail.
    check(train, LinkExclusion::WithReverses, &[0], [false, true]);
    check(train, LinkExclusion::Directed, &[0, 1], [false, true]);
    check(train, LinkExclusion::None, &[0, 1], [true, true]);
    check(Phase::Validation, LinkExclusion::WithReverses, &[0, 1], [true, true]);
}

#[test]
fn the_seeds_of_links_have_rows_by_type_and_no_targets() {
    let batch = make(&batcher(LinkExclusion::WithReverses, &[0, 1]), Phase::Train { epoch: 1 }, 0, 0);
    let MiniBatch { sampled, input, .. } = &batch.nodes;
    assert!(sampled.labels.is_empty() && sampled.target_values.is_empty());
    let seeds = sampled.seeds.as_nodes();
    let of_pair =
        |positions: &[u32]| positions.iter().map(|seed| seeds[*seed as usize].0).collect::<Vec<u32>>();
    assert_eq!(batch.srcs.len(), 30);
    assert!(of_pair(&batch.srcs).iter().all(|node| *node < N_USERS));
    assert!(of_pair(&batch.dsts).iter().all(|node| (N_USERS..N_USERS + N_ITEMS).contains(node)));
    assert_eq!(input.node_types.len(), sampled.blocks[0].n_src());
    assert_eq!(input.rows.len(), 2);
}
