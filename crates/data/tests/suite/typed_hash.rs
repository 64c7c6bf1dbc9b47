//! Tests of the hashed bytes of heterogeneous sets, which must not change without a new version of the hash.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, format};
use kiln_graph::{NodeTypes, RelationEdges};
use sha2::{Digest, Sha256};

fn set() -> Dataset {
    let rates = RelationEdges {
        name: "rates",
        src_type: "user",
        dst_type: "item",
        srcs: &[0, 1, 1],
        dsts: &[0, 0, 2],
        weights: Some(&[0.5, 1.0, 1.5]),
    };
    let builder =
        Dataset::builder_with_types(NodeTypes::new([("user", 2), ("item", 3)]).unwrap()).relation(rates);
    let builder = builder.nodes("user").features(vec![0.25, 0.75], 1).nodes("item").labels(vec![0, 1, -1], 2);
    builder.split(vec![0], vec![1], Vec::<u32>::new()).nodes("user").node_names(["a", "b"]).build().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn hash_is_that_of_the_documented_bytes() {
    let mut bytes = b"kiln data 1\n".to_vec();
    let mut array = |line: &str, values: &[u8]| {
        bytes.extend(line.bytes().chain(*b"\n"));
        bytes.extend(values);
    };
    let u32s = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let u64s = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    array("type_offsets u32 3", &u32s(&[0, 2, 5]));
    array("node_type u8 4", b"user");
    array("features f32 2x1", &f32s(&[0.25, 0.75]));
    array("node_type u8 4", b"item");
    array("relation u8 5", b"rates");
    array("relation_types u32 2", &u32s(&[0, 1]));
    array("indptr u64 4", &u64s(&[0, 2, 2, 3]));
    array("indices u32 3", &u32s(&[0, 1, 1]));
    array("weights f32 3", &f32s(&[0.5, 1.0, 1.5]));
    array("target_type u32 1", &u32s(&[1]));
    array("labels i32 3x2", &u32s(&[0, 1, u32::MAX]));
    array("train u32 1", &u32s(&[2]));
    array("val u32 1", &u32s(&[3]));
    array("test u32 0", &[]);
    assert_eq!(set().hash().unwrap(), sha256(&bytes));
}

#[test]
fn manifest_hash_is_that_of_the_documented_lines() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    format::write(&set(), &folder).unwrap();
    let mut lines = vec![
        "kiln typed format 1".to_owned(),
        "node_type 2 1 \"user\"".to_owned(),
        "node_type 3 null \"item\"".to_owned(),
        "relation 0 1 \"rates\"".to_owned(),
        "target_type 1 2".to_owned(),
    ];
    for (name, form) in [
        ("features.0.npy", "f32 2x1"),
        ("indices.0.npy", "u32 3"),
        ("indptr.0.npy", "u64 4"),
        ("labels.npy", "i32 3"),
        ("test.npy", "u32 0"),
        ("train.npy", "u32 1"),
        ("val.npy", "u32 1"),
        ("weights.0.npy", "f32 3"),
    ] {
        lines.push(format!("{name} {form} {}", sha256(&std::fs::read(folder.join(name)).unwrap())));
    }
    assert_eq!(format::hash(&folder).unwrap(), sha256(format!("{}\n", lines.join("\n")).as_bytes()));
}
