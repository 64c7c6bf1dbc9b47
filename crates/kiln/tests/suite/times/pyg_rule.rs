//! Compares the trees of items that have times with a reference program of PyG's rule: `fixtures/pyg_times/make.py`.

use std::collections::HashMap;

use kiln::graph::{Block, EdgeColumn, EdgeColumns, NodeTypes, RelationEdges};
use kiln::prelude::*;
use kiln::sample::{
    FrontierSampler, HeteroNeighborSampler, RngKey, Rule, SamplerConfig, Scratch, Seeds, TimeLimits,
};

const TREES: &str = include_str!("../../fixtures/pyg_times/trees.txt");

/// The number of hops of each tree.
const N_HOPS: usize = 3;

/// The edges of one relation.
#[derive(Default)]
struct Edges {
    src_type: usize,
    dst_type: usize,
    srcs: Vec<u32>,
    dsts: Vec<u32>,
    /// Empty without times.
    times: Vec<i64>,
}

/// The permitted neighbours of one node in the tree of one item.
struct Permitted {
    item: usize,
    hop: usize,
    relation: usize,
    node: u32,
    srcs: Vec<u32>,
}

#[derive(Default)]
struct Case {
    includes_equal: bool,
    /// The number of most recent neighbours; `None` for all.
    count: Option<u32>,
    n_nodes: Vec<usize>,
    /// The times of the nodes of each type, empty without times.
    node_times: Vec<Vec<i64>>,
    relations: Vec<Edges>,
    items: Vec<(u32, i64)>,
    trees: Vec<Permitted>,
}

/// Reads the cases of the file.
fn read_cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in TREES.lines() {
        let mut words = line.split(' ');
        let kind = words.next().unwrap();
        let numbers: Vec<i64> = words.map(|word| word.parse().unwrap()).collect();
        if kind == "case" {
            let count = u32::try_from(numbers[1]).ok();
            cases.push(Case { includes_equal: numbers[0] == 1, count, ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match kind {
            "type" => {
                case.n_nodes.push(numbers[0] as usize);
                case.node_times.push(numbers[1..].to_vec());
            }
            "relation" => case.relations.push(Edges {
                src_type: numbers[0] as usize,
                dst_type: numbers[1] as usize,
                ..Edges::default()
            }),
            "edge" => {
                let edges = case.relations.last_mut().unwrap();
                edges.srcs.push(numbers[0] as u32);
                edges.dsts.push(numbers[1] as u32);
                edges.times.extend(numbers.get(2));
            }
            "item" => case.items.push((numbers[0] as u32, numbers[1])),
            "tree" => case.trees.push(Permitted {
                item: numbers[0] as usize,
                hop: numbers[1] as usize,
                relation: numbers[2] as usize,
                node: numbers[3] as u32,
                srcs: numbers[4..].iter().map(|src| *src as u32).collect(),
            }),
            other => panic!("unknown line {other}"),
        }
    }
    cases
}

impl Case {
    /// Returns the set of the case.
    fn dataset(&self) -> Dataset {
        let type_names: Vec<String> = (0..self.n_nodes.len()).map(|idx| format!("type {idx}")).collect();
        let relation_names: Vec<String> =
            (0..self.relations.len()).map(|idx| format!("relation {idx}")).collect();
        let types = type_names.iter().map(String::as_str).zip(self.n_nodes.iter().copied());
        let columns: Vec<Option<EdgeColumns>> = self.relations.iter().map(Edges::columns).collect();
        let mut builder = Dataset::builder_with_types(NodeTypes::new(types).unwrap());
        for (relation, edges) in self.relations.iter().enumerate() {
            let [src_type, dst_type] = [edges.src_type, edges.dst_type].map(|idx| type_names[idx].as_str());
            builder = builder.relation(RelationEdges {
                columns: columns[relation].as_ref(),
                ..RelationEdges::new(&relation_names[relation], src_type, dst_type, &edges.srcs, &edges.dsts)
            });
        }
        let mut data = builder.build().unwrap();
        for (node_type, times) in self.node_times.iter().enumerate().filter(|(_, times)| !times.is_empty()) {
            data = data.with_node_times(node_type, times.clone()).unwrap();
        }
        data
    }

    /// Samples the trees of all items at once. Relations without times have all neighbours. `None` if no relation has times.
    fn sample(&self, data: &Dataset) -> Option<Vec<Block>> {
        let graph = data.times.graph_by_time(&data.graph).unwrap();
        if graph.iter().all(|relation| relation.graph.edge_times().is_none()) {
            return None;
        }
        let fanouts: Vec<Fanout> = graph
            .iter()
            .map(|relation| match self.count {
                Some(count) if relation.graph.edge_times().is_some() => Fanout::UpTo(count),
                _ => Fanout::All,
            })
            .collect();
        let limits = TimeLimits { includes_equal: self.includes_equal, ..TimeLimits::default() };
        let config = SamplerConfig::new([Fanout::All; N_HOPS])
            .with_rule(Rule::MostRecent)
            .with_time_limits(limits)
            .with_edge_types();
        let sampler = HeteroNeighborSampler::new(&graph, vec![fanouts; N_HOPS], config).unwrap();
        let nodes = self.items.iter().map(|(node, _)| NodeId(*node)).collect();
        let times: Vec<i64> = self.items.iter().map(|(_, time)| *time).collect();
        let seeds = Seeds::nodes(nodes).with_times(times);
        Some(sampler.sample_blocks(&seeds, RngKey::new(3), &mut Scratch::default()).unwrap().blocks)
    }
}

impl Edges {
    fn columns(&self) -> Option<EdgeColumns> {
        if self.times.is_empty() {
            return None;
        }
        let times = EdgeColumn::new(self.times.clone(), 1).unwrap();
        Some(EdgeColumns::default().with(EdgeColumns::TIMES, times).unwrap())
    }
}

/// Returns the sources of each destination, time and relation of a block, in ascending order.
fn srcs_by_dst(block: &Block) -> HashMap<(NodeId, i64, usize), Vec<NodeId>> {
    let mut all: HashMap<_, Vec<NodeId>> = HashMap::new();
    let times = block.src_times().unwrap();
    for (row, dst) in block.dsts().iter().enumerate() {
        for edge in block.indptr()[row] as usize..block.indptr()[row + 1] as usize {
            let src = block.indices()[edge].index();
            assert_eq!(times[src], times[row], "a source should be in the tree of its destination");
            let relation = block.edge_types().unwrap()[edge] as usize;
            all.entry((*dst, times[row], relation)).or_default().push(block.srcs()[src]);
        }
    }
    for srcs in all.values_mut() {
        srcs.sort_unstable();
    }
    all
}

#[test]
fn permitted_neighbors_are_those_of_the_reference_program() {
    let cases = read_cases();
    assert_eq!(cases.len(), 60);
    let mut n_edges = 0;
    let mut n_compared = 0;
    for (number, case) in cases.iter().enumerate() {
        let data = case.dataset();
        let first_of = |node_type: usize| data.graph.types().range(node_type).start;
        let Some(blocks) = case.sample(&data) else { continue };
        // The last block is the first hop.
        let hops: Vec<_> = blocks.iter().rev().map(srcs_by_dst).collect();
        n_compared += 1;
        for tree in &case.trees {
            let relation = &case.relations[tree.relation];
            let dst = NodeId(first_of(relation.dst_type) + tree.node);
            let time = case.items[tree.item].1;
            let expected: Vec<NodeId> =
                tree.srcs.iter().map(|src| NodeId(first_of(relation.src_type) + src)).collect();
            let got = hops[tree.hop].get(&(dst, time, tree.relation)).cloned().unwrap_or_default();
            assert_eq!(
                got, expected,
                "case {number}, item {}, hop {}, {dst:?} at {time}",
                tree.item, tree.hop
            );
            n_edges += got.len();
        }
    }
    assert!(n_compared >= 40, "only {n_compared} cases have times");
    assert!(n_edges > 1_000, "only {n_edges} neighbours were compared");
}
