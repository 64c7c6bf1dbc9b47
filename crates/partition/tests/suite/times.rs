//! The times of the edges of a partition, and sets whose messages partitions cannot limit.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, TimeSplit, synthetic};
use kiln_graph::{ColumnValues, EdgeColumn, EdgeColumns};
use kiln_partition::{Error, Method, Part, PartitionBooks, PartitionMeta, part_dir, write_parts};

fn write(data: &Dataset, out: &std::path::Path) -> kiln_partition::Result<()> {
    let parts: Vec<u16> = (0..data.graph.n_nodes() as u16).map(|node| node % 2).collect();
    let books = PartitionBooks::from_parts(data.graph.types().clone(), &parts, 2)?;
    let meta = PartitionMeta { hash: data.hash()?, method: Method::Random, n_cut_edges: 0 };
    write_parts(data, &books, &meta, None, out).map(drop)
}

#[test]
fn partitions_have_the_times_of_their_edges_and_no_split_by_time() {
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
    let error = write(&data, &folder.path().join("split")).unwrap_err();
    assert!(matches!(error, Error::TimeSplit), "{error}");
    assert!(error.to_string().contains("--messages all"), "{error}");
    assert!(!folder.path().join("split").exists());
}
