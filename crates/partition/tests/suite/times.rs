//! The times of the edges and nodes of a partition, and its edges that were known before a time.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, TimeSplit, synthetic};
use kiln_graph::{ColumnValues, EdgeColumn, EdgeColumns, NodeId};
use kiln_partition::{Method, Part, PartitionBooks, PartitionMeta, part_dir, write_parts};

fn write(data: &Dataset, out: &std::path::Path) -> kiln_partition::Result<()> {
    let parts: Vec<u16> = (0..data.graph.n_nodes() as u16).map(|node| node % 2).collect();
    let books = PartitionBooks::from_parts(data.graph.types().clone(), &parts, 2)?;
    let meta = PartitionMeta { hash: data.hash()?, method: Method::Random, n_cut_edges: 0 };
    write_parts(data, &books, &meta, None, out).map(drop)
}

#[test]
fn partitions_have_the_times_of_their_edges_and_the_split_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let times: Vec<i64> = (0..12).map(|edge| edge * edge - 50).collect();
    let column = EdgeColumn::new(times.clone(), 1).unwrap();
    let data = synthetic::ring(6).unwrap().with_edge_column(0, EdgeColumns::TIMES, column).unwrap();
    write(&data, &folder.path().join("parts")).unwrap();
    for part in 0..2 {
        let at = part_dir(folder.path().join("parts"), part);
        Part::verify(&at).unwrap();
        let of_part = Part::open(at).unwrap();
        let column = of_part.relations[0].graph.columns().get(EdgeColumns::TIMES).unwrap();
        let ColumnValues::I64(of_part) = column.values() else { panic!("{column:?}") };
        // The nodes of a part are the even or the odd ones, with two edges each.
        let nodes = (part..6).step_by(2);
        let expected: Vec<i64> = nodes.flat_map(|node| [times[2 * node], times[2 * node + 1]]).collect();
        assert_eq!(of_part[..], expected);
    }
    let data = data.with_node_times(0, vec![0, 1, 2, 3, 4, 5]).unwrap();
    let data = data.with_time_split(TimeSplit::new(None, 3, 4).unwrap()).unwrap();
    write(&data, &folder.path().join("split")).unwrap();
    for part in 0..2 {
        let at = part_dir(folder.path().join("split"), part);
        Part::verify(&at).unwrap();
        let of_part = Part::open(&at).unwrap();
        assert_eq!(of_part.times, data.times);
        check_cuts(&of_part, &data);
        // Borders in another order.
        let manifest = std::fs::read_to_string(at.join("part.json")).unwrap();
        let damaged = manifest.replacen("\"val\": 3", "\"val\": 9", 1);
        std::fs::write(at.join("part.json"), damaged).unwrap();
        let error = Part::open(&at).unwrap_err().to_string();
        assert!(error.contains("times.split") && error.contains("val not after test"), "{error}");
    }
}

/// Compares the edges of a part that were known before each time with those of the whole set.
fn check_cuts(part: &Part, data: &Dataset) {
    let whole = data.csc().unwrap();
    let all = &part.relations[0];
    let mut n_cut = 0;
    for time in -60..80 {
        let cut = data.graph_before(time).unwrap();
        let Some(known) = part.edges_before(0, time).unwrap() else { continue };
        n_cut += 1;
        for (row, node) in (0..).map(NodeId).zip(part.types[0].old_ids.iter()) {
            assert_eq!(known.graph.in_neighbors(row), cut.relation(0).graph.in_neighbors(*node), "{time}");
            let first = known.graph.first_edge(row).index();
            for (src, edge) in known.graph.in_neighbors(row).iter().zip(first..) {
                let position = known.positions[edge] as usize;
                assert_eq!(all.graph.in_neighbors(row)[position], *src);
                let id = all.first_edges[row.index()] as usize + position;
                assert_eq!(whole.indices()[id], *src);
            }
        }
    }
    assert!(50 < n_cut, "{n_cut}");
}
