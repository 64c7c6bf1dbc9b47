//! Links that have the times of their edges.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use kiln_data::{
    Dataset, DatasetTimes, LinkDirection, LinkSplit, LinkSplitConfig, LinkTargets, TimeSplit, format,
};
use kiln_graph::{EdgeColumn, EdgeColumns, LinkId, NodeTypes, RelationEdges};

const N_NODES: u32 = 12;

/// Edges with repeated pairs, a self loop, an edge without a time, and one that was always known.
fn edges() -> Vec<(u32, u32, i64)> {
    let mut edges: Vec<(u32, u32, i64)> =
        (0..120_u32).map(|edge| (edge % 5, 5 + edge * 3 % 7, i64::from(edge * 37 % 30))).collect();
    edges.extend([(3, 3, 4), (0, 6, DatasetTimes::NEVER), (1, 6, DatasetTimes::ALWAYS)]);
    edges
}

fn column(edges: &[(u32, u32, i64)]) -> EdgeColumn {
    EdgeColumn::new(edges.iter().map(|edge| edge.2).collect::<Vec<i64>>(), 1).unwrap()
}

fn plain() -> Dataset {
    let edges = edges();
    let srcs: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let dsts: Vec<u32> = edges.iter().map(|edge| edge.1).collect();
    Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .edge_column(EdgeColumns::TIMES, column(&edges))
        .features(vec![0.0; N_NODES as usize], 1)
        .build()
        .unwrap()
}

/// The edges from users to items, without the loop, and their reverses, which have times if `reverses_have_times`.
fn typed(reverses_have_times: bool) -> Dataset {
    let edges: Vec<(u32, u32, i64)> = edges().into_iter().filter(|edge| 5 <= edge.1).collect();
    let users: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let items: Vec<u32> = edges.iter().map(|edge| edge.1 - 5).collect();
    let columns = EdgeColumns::default().with(EdgeColumns::TIMES, column(&edges)).unwrap();
    let buys = RelationEdges {
        columns: Some(&columns),
        ..RelationEdges::new("buys", "user", "item", &users, &items)
    };
    let bought_by = RelationEdges {
        columns: reverses_have_times.then_some(&columns),
        ..RelationEdges::new("bought by", "item", "user", &items, &users)
    };
    Dataset::builder_with_types(NodeTypes::new([("user", 5), ("item", 7)]).unwrap())
        .relation(buys)
        .relation(bought_by)
        .build()
        .unwrap()
}

const CONFIG: LinkSplitConfig = LinkSplitConfig {
    val: 0.2,
    test: 0.2,
    direction: Some(LinkDirection::Directed),
    edge_type: None,
    disjoint_train: 0.0,
    with_times: true,
};

/// Returns the links of each part with their times.
fn parts(targets: &LinkTargets) -> [BTreeSet<(u32, u32, i64)>; 3] {
    let times = targets.times().unwrap();
    targets.split().parts().map(|(_, links)| {
        let item = |link: &LinkId| {
            let (src, dst) = targets.links().pair(*link);
            (src.0, dst.0, times[link.index()])
        };
        let items: BTreeSet<(u32, u32, i64)> = links.iter().map(item).collect();
        assert_eq!(items.len(), links.len(), "no link should occur twice");
        items
    })
}

/// The edges that are links: those with a time between two nodes.
fn expected() -> BTreeSet<(u32, u32, i64)> {
    let has_time = |time: i64| time != DatasetTimes::NEVER && time != DatasetTimes::ALWAYS;
    edges().into_iter().filter(|(src, dst, time)| src != dst && has_time(*time)).collect()
}

#[test]
fn each_edge_is_a_link_of_the_part_of_its_time() {
    let times = TimeSplit::new(Some(3), 15, 22).unwrap();
    for (data, relation, reverse) in [(plain(), "edge", None), (typed(true), "buys", Some("bought by"))] {
        let split = LinkSplit::temporal(&data, relation, reverse, times, &CONFIG).unwrap();
        for (part, links) in parts(split.targets()).into_iter().enumerate() {
            let of_part: BTreeSet<_> =
                expected().into_iter().filter(|edge| times.part_of(edge.2) == Some(part)).collect();
            assert_eq!(links, of_part, "part {part}");
        }
        assert_eq!(split.message().n_edges(), data.graph.n_edges());
        // Without times, each pair is a link once, as ever.
        let once = LinkSplitConfig { with_times: false, ..CONFIG };
        let once = LinkSplit::temporal(&data, relation, reverse, times, &once).unwrap();
        assert!(once.targets().times().is_none() && once.links().len() < split.links().len());
    }
}

#[test]
fn a_random_split_divides_pairs_and_keeps_all_edges() {
    for (data, relation, reverse) in [(plain(), "edge", None), (typed(true), "buys", Some("bought by"))] {
        let of = |config: &LinkSplitConfig| {
            LinkSplit::random_relation(&data.graph, relation, reverse, config, 3).unwrap()
        };
        let split = of(&CONFIG);
        let found = parts(split.targets());
        assert_eq!(found.iter().flatten().copied().collect::<BTreeSet<_>>(), expected());
        let pairs =
            found.map(|part| part.into_iter().map(|(src, dst, _)| (src, dst)).collect::<BTreeSet<_>>());
        let once = of(&LinkSplitConfig { with_times: false, ..CONFIG });
        for ((part, links), pairs) in once.split().parts().into_iter().zip(&pairs) {
            let expected: BTreeSet<(u32, u32)> =
                links.iter().map(|link| once.links().pair(*link)).map(|(src, dst)| (src.0, dst.0)).collect();
            assert_eq!(*pairs, expected, "{part} should have the pairs of a split without times");
        }
        assert_eq!(split.message().n_edges(), data.graph.n_edges());
        assert!(once.message().n_edges() < data.graph.n_edges());
    }
    let error = |data: &Dataset, reverse: Option<&str>, config: LinkSplitConfig| {
        let name = if reverse.is_some() { "buys" } else { "edge" };
        LinkSplit::random_relation(&data.graph, name, reverse, &config, 3).unwrap_err().to_string()
    };
    let without = error(&kiln_data::synthetic::ring(9).unwrap(), None, CONFIG);
    assert!(without.contains("the edges of the links have no times"), "{without}");
    let of_reverse = error(&typed(false), Some("bought by"), CONFIG);
    assert!(
        of_reverse.contains("the edges of the reverse relation `bought by` have no times"),
        "{of_reverse}"
    );
    let disjoint = error(&plain(), None, LinkSplitConfig { disjoint_train: 0.5, ..CONFIG });
    assert!(disjoint.contains("0 for links with times"), "{disjoint}");
}

#[test]
fn the_kiln_format_keeps_the_times_of_links() {
    let folder = tempfile::tempdir().unwrap();
    for (data, relation, name) in [(plain(), "edge", "plain"), (typed(true), "buys", "typed")] {
        let of = |with_times: bool| {
            let config = LinkSplitConfig { with_times, ..CONFIG };
            let split = LinkSplit::random_relation(&data.graph, relation, None, &config, 3).unwrap();
            split.into_dataset(data.clone()).unwrap()
        };
        let timed = of(true);
        let path = folder.path().join(name);
        format::write(&timed, &path).unwrap();
        let read = format::open(&path).unwrap();
        let links = |data: &Dataset| data.links.as_ref().unwrap().targets.as_ref().clone();
        assert_eq!(links(&read), links(&timed));
        assert_eq!(read.hash().unwrap(), timed.hash().unwrap());
        format::verify(&path).unwrap();
        let times: Vec<i64> = links(&timed).times().unwrap().to_vec();
        let mut later = times.clone();
        later[4] += 1;
        let other = links(&timed).with_times(later).unwrap();
        assert_ne!(other.hash().unwrap(), links(&timed).hash().unwrap());
        assert_ne!(other, links(&timed));
        let error = other.with_times(times[1..].to_vec()).unwrap_err().to_string();
        assert!(error.contains("times"), "{error}");
        // Sets without times of links do not have the file.
        let untimed = folder.path().join(format!("untimed-{name}"));
        format::write(&of(false), &untimed).unwrap();
        assert!(!untimed.join("link_times.npy").exists() && path.join("link_times.npy").exists());
        let arrays = std::fs::read(path.join("link_times.npy")).unwrap();
        std::fs::write(path.join("link_times.npy"), &arrays[..arrays.len() - 8]).unwrap();
        let error = format::open(&path).and_then(|data| data.check_split()).unwrap_err().to_string();
        assert!(error.contains("link_times.npy"), "{error}");
    }
}
