//! Times of nodes and edges in every form of a set, splits by time, and graphs of what was known before a time.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{
    Dataset, DatasetTimes, Error, LinkSplit, LinkSplitConfig, Note, TimeError, TimeKind, TimeSplit, format,
    npy,
};
use kiln_graph::{
    ColumnError, ColumnValues, EdgeColumn, EdgeColumns, NodeId, NodeTypes, RelationEdges, Relations,
    SelfLoops,
};

use crate::common::{numbers, put};

const TIMES: &str = EdgeColumns::TIMES;

fn times_column(times: &[i64]) -> EdgeColumn {
    EdgeColumn::new(times.to_vec(), 1).unwrap()
}

/// The times of the edges of a relation, in their order.
fn edge_times(graph: &Relations, relation: usize) -> Vec<i64> {
    match graph.relation(relation).graph.columns().get(TIMES).map(EdgeColumn::values) {
        Some(ColumnValues::I64(times)) => times.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Edges 2 -> 1, 0 -> 1 and 1 -> 2, whose times are 20, 10 and before 1970.
fn plain() -> Dataset {
    Dataset::builder(3)
        .edges(&[2, 0, 1], &[1, 1, 2])
        .edge_column(TIMES, times_column(&[20, 10, -5]))
        .features(vec![0.0; 3], 1)
        .labels(vec![0, 1, 0], 2)
        .node_times(vec![1, 2, 3])
        .time_kind(TimeKind::Date)
        .time_split(TimeSplit::new(None, 2, 3).unwrap())
        .build()
        .unwrap()
}

fn typed() -> Dataset {
    let types = NodeTypes::new([("user", 2), ("item", 3)]).unwrap();
    let columns = EdgeColumns::default().with(TIMES, times_column(&[7, 5])).unwrap();
    let buys = RelationEdges {
        columns: Some(&columns),
        ..RelationEdges::new("buys", "user", "item", &[1, 0], &[2, 2])
    };
    Dataset::builder_with_types(types)
        .relation(buys)
        .relation(RelationEdges::new("bought by", "item", "user", &[2, 0], &[1, 1]))
        .nodes("item")
        .features(vec![0.0; 3], 1)
        .node_times(vec![3, 4, 8])
        .build()
        .unwrap()
}

#[test]
fn times_move_with_their_edges_through_files_of_both_layouts() {
    let root = tempfile::tempdir().unwrap();
    for (name, data) in [("plain", plain()), ("typed", typed())] {
        let at = root.path().join(name);
        format::write(&data, &at).unwrap();
        format::verify(&at).unwrap();
        let read = format::open(&at).unwrap();
        assert_eq!(read.times, data.times, "{name}");
        assert_eq!(edge_times(&read.graph, 0), edge_times(&data.graph, 0));
        assert_eq!(read.hash().unwrap(), data.hash().unwrap());
        let copy = root.path().join(format!("{name}-copy"));
        format::write(&read, &copy).unwrap();
        assert_eq!(format::hash(&copy).unwrap(), format::hash(&at).unwrap());
        if name == "plain" {
            convert(&at, root.path().join("converted"), &ConvertOptions::default()).unwrap();
            let converted = format::open(root.path().join("converted")).unwrap();
            assert_eq!(converted.times, data.times);
        }
    }
    // In CSC order, the edges into node 1 come from 0 and 2.
    assert_eq!(edge_times(&plain().graph, 0), [10, 20, -5]);
    let summary = plain().summary().to_string();
    assert!(
        summary
            .contains("times of the edges `edge`: 1969-12-31T23:59:59.999995Z to 1970-01-01T00:00:00.00002Z"),
        "{summary}"
    );
    assert!(
        summary.contains("split by time: validate from 1970-01-01T00:00:00.000002Z, test from"),
        "{summary}"
    );
    assert!(typed().summary().to_string().contains("times of the nodes `item`: 3 to 8"));
}

#[test]
fn damaged_borders_and_kinds_of_times_are_rejected() {
    let root = tempfile::tempdir().unwrap();
    for (name, data) in [("plain", plain()), ("typed", typed())] {
        let at = root.path().join(name);
        let mut data = data;
        data.times.kind = TimeKind::Date;
        data.times.split = Some(TimeSplit::new(Some(1), 2, 3).unwrap());
        format::write(&data, &at).unwrap();
        let path = at.join("kiln.json");
        let json = std::fs::read_to_string(&path).unwrap();
        for (key, from, to) in [
            ("kind", "\"kind\": \"date\"", "\"kind\": \"hour\""),
            ("train", "\"train\": 1", "\"train\": 2"),
            ("val", "\"val\": 2", "\"val\": 4"),
            ("test", "\"test\": 3", "\"test\": 1.5"),
            ("split", "\"split\": {", "\"split\": {\"other\": 1,"),
            ("times", "\"times\": {", "\"times\": {\"zone\": 1,"),
        ] {
            assert!(json.contains(from), "{key}: {json}");
            std::fs::write(&path, json.replacen(from, to, 1)).unwrap();
            format::open(&at).unwrap_err();
        }
        std::fs::write(&path, json).unwrap();
        assert_eq!(format::open(&at).unwrap().times, data.times);
    }
}

#[test]
fn a_changed_time_or_border_changes_the_hashes() {
    let root = tempfile::tempdir().unwrap();
    let other_node = plain().with_node_times(0, vec![1, 2, 5]).unwrap();
    let other_edge = plain().with_edge_column(0, TIMES, times_column(&[10, 20, -6])).unwrap();
    let other_split = plain().with_time_split(TimeSplit::new(Some(1), 2, 3).unwrap()).unwrap();
    let mut other_kind = plain();
    other_kind.times.kind = TimeKind::Integer;
    let mut hashes = Vec::new();
    for (number, data) in [plain(), other_node, other_edge, other_split, other_kind].iter().enumerate() {
        let at = root.path().join(number.to_string());
        format::write(data, &at).unwrap();
        hashes.extend([data.hash().unwrap(), format::hash(&at).unwrap()]);
    }
    let n_hashes = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), n_hashes);
}

#[test]
fn times_beside_an_edge_list_are_permuted_and_those_of_other_types_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "edges.npy", &[2_u32, 0, 1, 1, 1, 2], &[2, 3]);
    put(at, "features.npy", &[0.0_f32; 3], &[3, 1]);
    put(at, "edge_times.npy", &[20_i64, 10, -5], &[3]);
    put(at, "node_times.npy", &[1_i64, 2, 3], &[3]);
    let out = tempfile::tempdir().unwrap();
    convert(at, out.path().join("set"), &ConvertOptions::default()).unwrap();
    for data in [npy::open(at).unwrap(), format::open(out.path().join("set")).unwrap()] {
        let is_note = |note: &&Note| !matches!(note, Note::Converted { .. });
        assert_eq!(data.notes.iter().find(is_note), None);
        // The edge 2 -> 0 at 20 and 0 -> 1 ... in the order of their destinations.
        let graph = &data.graph.relation(0).graph;
        assert_eq!(
            (graph.in_neighbors(NodeId(1)), edge_times(&data.graph, 0)),
            (&[NodeId(0), NodeId(2)][..], vec![10, 20, -5])
        );
        assert_eq!(data.times.node_times(0).unwrap()[..], [1, 2, 3]);
    }
    let with_loops = ConvertOptions { self_loops: SelfLoops::Add, ..ConvertOptions::default() };
    convert(at, out.path().join("loops"), &with_loops).unwrap();
    let loops = format::open(out.path().join("loops")).unwrap();
    let expected = [DatasetTimes::ALWAYS, 10, DatasetTimes::ALWAYS, 20, -5, DatasetTimes::ALWAYS];
    assert_eq!(edge_times(&loops.graph, 0), expected);
    put(at, "edge_times.npy", &[20_i32, 10, -5], &[3]);
    npy::open(at).unwrap_err();
    put(at, "edge_times.npy", &[20_i64, 10], &[2]);
    npy::open(at).unwrap_err();
    put(at, "edge_times.npy", &[20_i64, 10, -5], &[3]);
    for (values, shape) in [(vec![1_i64, 2], vec![2]), (vec![1; 6], vec![3, 2])] {
        put(at, "node_times.npy", &values, &shape);
        npy::open(at).unwrap_err();
        convert(at, out.path().join("bad"), &ConvertOptions::default()).unwrap_err();
    }
}

#[test]
fn other_columns_have_no_integers_and_times_have_nothing_else() {
    let with = |name: &str, column: EdgeColumn| plain().with_edge_column(0, name, column);
    for (name, column) in [
        (TIMES, EdgeColumn::new(vec![0.5_f32; 3], 1).unwrap()),
        (TIMES, EdgeColumn::new(vec![1_i64; 6], 2).unwrap()),
        ("amount", times_column(&[1, 2, 3])),
    ] {
        let error = with(name, column).unwrap_err();
        let Error::Graph(kiln_graph::Error::Column(ColumnError::Values { .. })) = error else {
            panic!("{error}")
        };
    }
    let error = plain().with_node_times(0, vec![1]).unwrap_err();
    assert!(error.to_string().contains("node times"), "{error}");
}

#[test]
fn added_loops_and_relations_without_times_were_always_known() {
    let data = plain().add_self_loops().unwrap();
    let always = DatasetTimes::ALWAYS;
    assert_eq!(edge_times(&data.graph, 0), [always, 10, always, 20, -5, always]);
    assert_eq!(data.edge_time_range(0), Some([-5, 20]));
    let columns = EdgeColumns::default().with(TIMES, times_column(&[7, 5])).unwrap();
    let timed = RelationEdges {
        columns: Some(&columns),
        ..RelationEdges::new("a", "node", "node", &[1, 0], &[2, 2])
    };
    let joined = Dataset::builder_with_types(NodeTypes::new([("node", 3)]).unwrap())
        .relation(timed)
        .relation(RelationEdges::new("b", "node", "node", &[2], &[0]))
        .nodes("node")
        .features(vec![0.0; 3], 1)
        .node_times(vec![1, 2, 3])
        .build()
        .unwrap()
        .to_homogeneous()
        .unwrap();
    assert_eq!(edge_times(&joined.graph, 0), [always, 5, 7]);
    assert_eq!(joined.times.node_times(0).unwrap()[..], [1, 2, 3]);
    assert!(
        joined
            .notes
            .iter()
            .any(|note| note.to_string().contains("`b`") || note.to_string().contains("of b have no times"))
    );
    let split =
        LinkSplit::random(&plain().graph, &LinkSplitConfig { test: 0.4, ..Default::default() }, 1).unwrap();
    for (edge, time) in edge_times(split.message(), 0).into_iter().enumerate() {
        let graph = &split.message().relation(0).graph;
        let expected = match (graph.indices()[edge].0, graph.dsts()[edge].0) {
            (2, 1) => 20,
            (0, 1) => 10,
            _ => -5,
        };
        assert_eq!(time, expected);
    }
}

#[test]
fn items_at_a_border_are_in_the_later_part() {
    let divide = |split: TimeSplit, times: &[i64]| {
        let items = (0..).map(NodeId).zip(times.iter().copied());
        let parts = split.divide(items, TimeKind::Integer)?;
        Ok::<_, TimeError>(
            parts.parts().map(|(_, nodes)| nodes.iter().map(|node| node.0).collect::<Vec<_>>()),
        )
    };
    let split = TimeSplit::new(Some(-3), 0, 5).unwrap();
    assert_eq!(divide(split, &[-4, -3, -1, 0, 4, 5, i64::MAX - 1]), Ok([vec![1, 2], vec![3, 4], vec![5, 6]]));
    assert_eq!((split.cuts(), TimeSplit::new(None, 0, 5).unwrap().cuts()), ([-3, 0, 5], [0, 0, 5]));
    let without_val = TimeSplit::new(None, 5, 5).unwrap();
    assert_eq!(divide(without_val, &[4, 5]), Ok([vec![0], vec![], vec![1]]));
    for (times, expected) in [
        (&[-1, 6][..], "val"),
        (&[1, 6], "train"),
        (&[-1, 1], "test"),
        (&[-9, 1, 6], "train"),
        (&[], "train"),
    ] {
        match divide(split, times) {
            Err(TimeError::EmptyPart { part, .. }) => assert_eq!(part, expected, "{times:?}"),
            other => panic!("{other:?}"),
        }
    }
    for (train, val, test) in [(Some(0), 0, 5), (Some(1), 0, 5), (None, 6, 5)] {
        assert!(matches!(TimeSplit::new(train, val, test), Err(TimeError::Order { .. })));
    }
}

#[test]
fn quantiles_are_times_of_items_and_ties_are_in_the_later_part() {
    let of = |times: &[i64], val, test| TimeSplit::from_quantiles(times, val, test);
    assert_eq!(of(&[9, 1, 5, 3, 7], 0.4, 0.8), TimeSplit::new(None, 5, 9));
    // Four of six items have the time of the border, so the training part has less than its share.
    assert_eq!(of(&[1, 2, 2, 2, 2, 3], 0.5, 0.9), TimeSplit::new(None, 2, 3));
    for (val, test) in [(0.0, 0.5), (0.5, 1.0), (0.6, 0.5), (f64::NAN, 0.5), (0.5, f64::NAN)] {
        assert!(matches!(of(&[1, 2], val, test), Err(TimeError::Quantiles { .. })), "{val} {test}");
    }
    assert!(matches!(of(&[], 0.5, 0.9), Err(TimeError::NoTimes { .. })));
    let ties = of(&[4; 9], 0.5, 0.9).unwrap().divide((0..9).map(|node| (NodeId(node), 4)), TimeKind::Integer);
    assert!(matches!(ties, Err(TimeError::EmptyPart { part: "train", .. })), "{ties:?}");
}

#[test]
fn no_edge_of_a_graph_before_a_time_is_late() {
    let mut number = numbers(3);
    let n_nodes = 30;
    let mut draw = |n: usize| (0..n).map(|_| number(n_nodes) as u32).collect::<Vec<u32>>();
    let [srcs, dsts, times] = [draw(200), draw(200), draw(200)];
    let node_times: Vec<i64> = draw(n_nodes).into_iter().map(i64::from).collect();
    let times: Vec<i64> = times.into_iter().map(i64::from).collect();
    let weights: Vec<f32> = (0..200).map(|edge| edge as f32).collect();
    let build = |has_edge_times: bool, has_node_times: bool| {
        let mut builder = Dataset::builder(n_nodes)
            .edges(&srcs, &dsts)
            .edge_weights(&weights)
            .features(vec![0.0; n_nodes], 1);
        if has_edge_times {
            builder = builder.edge_column(TIMES, times_column(&times));
        }
        if has_node_times {
            builder = builder.node_times(node_times.clone());
        }
        builder.build().unwrap()
    };
    for (has_edge_times, has_node_times) in [(true, true), (true, false), (false, true), (false, false)] {
        let data = build(has_edge_times, has_node_times);
        for cut in [-1, 0, 7, 29, 30] {
            let is_early = |edge: usize| {
                (!has_edge_times || times[edge] < cut)
                    && (!has_node_times || srcs[edge] == dsts[edge] || node_times[srcs[edge] as usize] < cut)
            };
            let mut expected: Vec<(u32, u32, usize)> =
                (0..200).filter(|edge| is_early(*edge)).map(|edge| (dsts[edge], srcs[edge], edge)).collect();
            expected.sort_unstable();
            let graph = data.graph_before(cut).unwrap();
            let csc = &graph.relation(0).graph;
            let mut got: Vec<(u32, u32, usize)> = Vec::new();
            for (edge, dst) in csc.dsts().into_iter().enumerate() {
                got.push((dst.0, csc.indices()[edge].0, csc.weights().unwrap()[edge] as usize));
            }
            got.sort_unstable();
            assert_eq!(got, expected, "cut {cut}");
            assert!(csc.has_sorted_neighbors() && csc.columns().get(TIMES).is_none());
        }
    }
}

#[test]
fn a_relation_is_cut_by_the_times_of_its_edges_and_sources() {
    let data = typed();
    let edges = |cut: i64| {
        let graph = data.graph_before(cut).unwrap();
        [0, 1].map(|relation| {
            graph.relation(relation).graph.indices().iter().map(|src| src.0).collect::<Vec<_>>()
        })
    };
    // Users always existed, items 0 and 2 (nodes 2 and 4) since 3 and 8.
    assert_eq!(edges(3), [vec![0_u32; 0], vec![]]);
    assert_eq!(edges(6), [vec![0], vec![2]]);
    assert_eq!(edges(9), [vec![0, 1], vec![2, 4]]);
    let whole = data.graph_before(9).unwrap();
    assert!(
        std::sync::Arc::ptr_eq(&whole.relation(1).graph, &data.graph.relation(1).graph),
        "a relation is shared"
    );
}

#[test]
fn texts_of_times_have_the_form_of_their_kind() {
    let date = |text: &str| TimeKind::Date.parse(text);
    assert_eq!(date("1969-12-31T23:59:59Z"), Ok(-1_000_000));
    assert_eq!(date("2026-03-29T02:30:00+01:00"), date("2026-03-29T01:30:00Z"));
    for text in ["2026-02-30", "35", "", "2026-03-29T02:30:00 Europe/Berlin"] {
        assert!(matches!(date(text), Err(TimeError::NoTime { .. })), "{text}");
    }
    for text in ["2026-03-01", "1.5", "9223372036854775808", ""] {
        assert!(matches!(TimeKind::Integer.parse(text), Err(TimeError::NoTime { .. })), "{text}");
    }
}
