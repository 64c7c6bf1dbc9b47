//! Tests of edge lists with headers: columns are found by name, and unknown columns are rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Error, format, read_pairs};
use kiln_graph::Csc;
use kiln_store::Error as StoreError;

use crate::edge_lists::{folder, gzip};

/// Writes the text as `edges.csv` or `edges.csv.gz` of a folder of four nodes.
fn written(text: &str, is_compressed: bool) -> tempfile::TempDir {
    let folder = folder();
    let at = folder.path();
    match is_compressed {
        true => fs::write(at.join("edges.csv.gz"), gzip(text.as_bytes())).unwrap(),
        false => fs::write(at.join("edges.csv"), text).unwrap(),
    }
    folder
}

fn converted(input: &Path) -> Csc {
    let root = tempfile::tempdir().unwrap();
    let options = ConvertOptions { n_nodes: Some(4), ..ConvertOptions::default() };
    convert(input, root.path().join("out"), &options).unwrap();
    format::open_graph(root.path().join("out")).unwrap().in_memory()
}

/// Checks that a table has the edges 2 -> 0, 3 -> 1, 0 -> 1, 3 -> 3 with the weights, by each way of reading it.
fn check(text: &str, weights: Option<&[f32]>) {
    for is_compressed in [false, true] {
        let folder = written(text, is_compressed);
        let data = kiln_data::open(folder.path()).unwrap();
        let name = if is_compressed { "edges.csv.gz" } else { "edges.csv" };
        let graphs = [
            (*data.graph).clone(),
            kiln_graph::Relations::of_graph(converted(folder.path())),
            kiln_graph::Relations::of_graph(converted(&folder.path().join(name))),
        ];
        for graph in graphs {
            assert_eq!(graph.relation(0).graph.indptr(), [0, 1, 3, 3, 4], "{text}");
            assert_eq!(
                graph.relation(0).graph.indices().iter().map(|src| src.0).collect::<Vec<_>>(),
                [2, 0, 3, 3],
                "{text}"
            );
            assert_eq!(graph.relation(0).graph.weights(), weights, "{text}");
        }
    }
}

#[test]
fn columns_of_a_header_are_found_by_name() {
    let lines = "2,0\n3,1\n0,1\n3,3\n";
    let reversed = "0,2\n1,3\n1,0\n3,3\n";
    for header in [
        "src,dst",
        "Source,Target",
        "FROM,TO",
        "u,v",
        "src_id,dst_id",
        "from_id,to_id",
        "source_node_id,target_node_id",
        "src_idx,dst_idx",
        "FromNodeId,ToNodeId",
        "src_ids,dest_index",
        "\"src\",\"dst\"",
        "\u{feff}\"Source\" , \"Destination\"",
        "left,right",
    ] {
        check(&format!("{header}\n{lines}"), None);
    }
    for header in ["dst,src", "target,SOURCE", "\"to\",\"from\"", "v,u"] {
        check(&format!("{header}\n{reversed}"), None);
    }
}

#[test]
fn weights_of_a_header_are_found_by_name() {
    let in_csc_order = Some(&[0.5_f32, -3.0, 100.0, 4.0][..]);
    check("2,0,0.5\n3,1,1e2\n0,1,-3\n3,3,4\n", in_csc_order);
    check("src,dst,Weight\n2,0,0.5\n3,1,1e2\n0,1,-3\n3,3,4\n", in_csc_order);
    check("w,dst,src\n0.5,0,2\n1e2,1,3\n-3,1,0\n4,3,3\n", in_csc_order);
    check("weights,a,b\n0.5,2,0\n1e2,3,1\n-3,0,1\n4,3,3\n", in_csc_order);
    check("\"dst\",\"w\",\"src\"\n\"0\",\"0.5\",\"2\"\n1,1e2,3\n1,-3,0\n3,4,\"3\"\n", in_csc_order);
}

#[test]
fn quoted_fields_without_a_header_are_read() {
    check("\"2\",\"0\"\r\n \"3\",1\r\n0,\"1\"\r\n3,3\r\n", None);
}

#[test]
fn rejects_columns_that_a_header_does_not_explain() {
    for (text, column, expected) in [
        ("src,dst,ts\n0,1,1700000000\n", "ts", "kiln data import"),
        ("\"src\",\"dst\",\"time stamp\"\n0,1,1\n", "time stamp", "kiln data import"),
        ("a,b,c\n0,1,0.5\n", "c", "kiln data import"),
        ("src,dst,weight,ts\n0,1,0.5,1\n", "ts", "rename or remove this column"),
        ("ts,src,dst\n1,0,1\n", "ts", "kiln data import"),
        (",src,dst\n0,0,1\n", "", "kiln data import"),
        ("src,neighbour\n0,1\n", "neighbour", "one column of sources and one of destinations"),
        ("neighbour,dst\n0,1\n", "neighbour", "one column of sources and one of destinations"),
        ("src,source\n0,1\n", "src", "one column of sources and one of destinations"),
        ("src,dst,to\n0,1,2\n", "to", "one column of sources and one of destinations"),
        ("u,w\n0,1\n", "u", "one column of sources and one of destinations"),
    ] {
        for is_compressed in [false, true] {
            let folder = written(text, is_compressed);
            let error = kiln_data::open(folder.path()).unwrap_err();
            let Error::Store(StoreError::BadLine { line: 1, found, .. }) = &error else {
                panic!("{text}: {error}")
            };
            assert_eq!(found.trim_matches('"'), column, "{text}");
            assert!(error.to_string().contains(expected), "{error}");
            let out = folder.path().join("out");
            let other = convert(folder.path(), out, &ConvertOptions::default()).unwrap_err();
            assert_eq!(other.to_string(), error.to_string());
        }
    }
}

#[test]
fn pairs_of_nodes_are_read_by_the_names_of_a_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.csv");
    fs::write(&path, "\"dst\",\"src\"\n4,0\n\"1\",2\n").unwrap();
    let mut notes = Vec::new();
    let links = read_pairs(&path, 5, &mut notes).unwrap();
    let pairs: Vec<_> =
        links.srcs().iter().zip(links.dsts().iter()).map(|(src, dst)| (src.0, dst.0)).collect();
    assert_eq!(pairs, [(0, 4), (2, 1)]);
    let note = notes[0].to_string();
    assert!(note.contains("edges lead from `src` to `dst`") && notes.len() == 1, "{note}");
    fs::write(&path, "src,dst,score\n0,4,1\n").unwrap();
    let error = read_pairs(&path, 5, &mut notes).unwrap_err().to_string();
    assert!(error.contains("\"score\""), "{error}");
}
