//! The number of edge types in the manifest of a partition.

use std::fs;

use kiln_data::Dataset;
use kiln_partition::{Part, part_dir};
use kiln_testkit::CooGraph;

use crate::common::{Stored, set, write};

fn data(names: &[&str]) -> Dataset {
    let coo = CooGraph { n_nodes: 4, srcs: vec![0, 1, 2], dsts: vec![1, 2, 3] };
    let edge_type_names = names.iter().map(|name| (*name).to_owned()).collect();
    Dataset { edge_type_names, ..set(&coo, Stored::F32) }
}

#[test]
fn partitions_record_the_number_of_edge_types_of_the_whole_graph() {
    let untyped = data(&[]);
    let graph = untyped.csc().unwrap();
    let plain =
        kiln_graph::Csc::new(graph.indptr().to_vec().into(), graph.indices().to_vec().into()).unwrap();
    let untyped = Dataset { graph: plain.into(), ..untyped };
    // The second partition has no edge of type 1. An older version of kiln did not write the number.
    for (data, expected, of_older) in [
        (data(&[]), Some(2), None),
        (data(&["near", "far", "unused"]), Some(3), Some(3)),
        (untyped, None, None),
    ] {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("parts");
        write(&data, &[0, 0, 0, 1], 2, None, &out);
        for part in 0..2 {
            let folder = part_dir(&out, part);
            assert_eq!(Part::open(&folder).unwrap().relations[0].n_edge_types, expected);
            let path = folder.join("part.json");
            let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            manifest.as_object_mut().unwrap().remove("n_edge_types");
            fs::write(&path, manifest.to_string()).unwrap();
            assert_eq!(Part::open(&folder).unwrap().relations[0].n_edge_types, of_older);
            manifest["n_edge_types"] = 257.into();
            fs::write(&path, manifest.to_string()).unwrap();
            let error = Part::open(&folder).unwrap_err().to_string();
            assert!(error.contains("n_edge_types") && error.contains("at most 256"), "{error}");
        }
    }
}
