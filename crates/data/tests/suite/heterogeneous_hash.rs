//! Tests of the hashes of heterogeneous sets: the hashed bytes, which must not change without a new version of the hash, and
//! which changes of a set change them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::sync::Arc;

use kiln_data::{Dataset, DatasetBuilder, DatasetTargets, HashedPart, NodeNames, Note, format};
use kiln_feature::{DenseFeatures, FeatureArray, Targets};
use kiln_graph::{NodeTypes, Relation, RelationEdges, Relations};
use sha2::{Digest, Sha256};

use crate::sets::{CITES, PUBLISHES, WRITES, papers, papers_builder, papers_with, relation, sparse, written};

fn set() -> Dataset {
    let rates = relation("rates", ["user", "item"], &[0, 1, 1], &[0, 0, 2]);
    let rates = RelationEdges { weights: Some(&[0.5, 1.0, 1.5]), ..rates };
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
    let (_root, folder) = written(&set());
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

#[test]
fn hash_changes_with_every_change_of_the_data() {
    let sets = changed_sets();
    let all: HashSet<String> = sets.iter().map(|(_, data)| data.hash().unwrap()).collect();
    let sampled: HashSet<String> =
        sets.iter().map(|(_, data)| data.hash_of(HashedPart::Sample).unwrap()).collect();
    assert_eq!((all.len(), sampled.len()), (sets.len(), sets.len()), "two of the sets have the same hash");
    assert!(all.is_disjoint(&sampled));
}

/// Returns sets that differ in one part of the training data each, with the names of the changes.
pub(crate) fn changed_sets() -> Vec<(&'static str, Dataset)> {
    let types = |types: &[(&str, usize)]| {
        let data = papers();
        let types = NodeTypes::new(types.iter().copied()).unwrap();
        let relations: Vec<Relation> = data.graph.iter().cloned().collect();
        Dataset { graph: Arc::new(Relations::new(types, relations).unwrap()), ..data }
    };
    let relation = |change: &dyn Fn(&mut Vec<Relation>)| {
        let data = papers();
        let mut relations: Vec<Relation> = data.graph.iter().cloned().collect();
        change(&mut relations);
        Dataset { graph: Arc::new(Relations::new(data.graph.types().clone(), relations).unwrap()), ..data }
    };
    let more_types = {
        let data = types(&[("author", 3), ("paper", 4), ("venue", 2), ("field", 0)]);
        let (features, names) = (data.features, data.names);
        Dataset {
            features: features.into_iter().chain([None]).collect(),
            names: names.into_iter().chain([Arc::default()]).collect(),
            feature_columns: vec![Vec::new(); 4],
            ..data
        }
    };
    let of_types = |types: [(&str, usize); 2]| Dataset::builder_with_types(NodeTypes::new(types).unwrap());
    let empty = of_types([("a", 2), ("b", 2)]).nodes("a").features(vec![0.5; 2], 1);
    let f16 = FeatureArray::F16(vec![half::f16::ZERO; 2].into());
    let build = |builder: DatasetBuilder<'_>| builder.build().unwrap();
    let weights = Some(&[0.5, 1.0, 1.5, 2.0, 3.0][..]);
    vec![
        ("unchanged", papers()),
        ("a renamed type", types(&[("author", 3), ("article", 4), ("venue", 2)])),
        ("an added type", more_types),
        ("no types of papers", build(empty.clone())),
        (
            "features of another type",
            build(of_types([("a", 2), ("b", 2)]).nodes("b").features(vec![0.5; 2], 1)),
        ),
        (
            "types in another order",
            build(of_types([("b", 2), ("a", 2)]).nodes("a").features(vec![0.5; 2], 1)),
        ),
        ("another element type", build(empty.clone().nodes("a").features(f16, 1))),
        ("features of both types", build(empty.nodes("b").features(vec![0.5; 2], 1))),
        ("a renamed relation", relation(&|relations| relations[1].name = "quotes".into())),
        ("relations in another order", relation(&|relations| relations.swap(0, 1))),
        ("a relation less", relation(&|relations| drop(relations.pop()))),
        ("an added relation", build(papers_builder().relation(RelationEdges { name: "reads", ..WRITES }))),
        ("another type of sources", relation(&|relations| relations[2].src_type = 0)),
        ("an edge", build(papers_with([WRITES, RelationEdges { srcs: &[3, 2, 1], ..CITES }, PUBLISHES]))),
        ("a weight", build(papers_with([RelationEdges { weights, ..WRITES }, CITES, PUBLISHES]))),
        ("no weights", build(papers_with([RelationEdges { weights: None, ..WRITES }, CITES, PUBLISHES]))),
        ("a feature", build(papers_builder().nodes("author").feature_store(sparse(&[0.5, 1.0, 2.0])))),
        ("a label", build(papers_builder().nodes("paper").labels(vec![1, 0, 1, -1], 3))),
        (
            "more classes",
            build(
                papers_builder()
                    .nodes("paper")
                    .labels(vec![1, 0, 2, -1], 4)
                    .class_names(Vec::<String>::new()),
            ),
        ),
        ("the target type", build(papers_builder().nodes("author").labels(vec![1, 0, 2], 3))),
        ("the split", build(papers_builder().split(vec![2], vec![1], vec![0]))),
        ("regression", build(papers_builder().nodes("paper").regression(vec![1.0; 12], 3))),
        ("no targets", Dataset { targets: None, ..papers() }),
    ]
}

#[test]
fn hash_ignores_names_of_nodes_and_copies() {
    let data = papers();
    let renamed = Dataset {
        name: "other".into(),
        names: [["x", "y", "z"].as_slice(), &[], &[]]
            .map(|names| Arc::new(NodeNames::new(names.iter().copied())))
            .into(),
        targets: Some(DatasetTargets { class_names: Vec::new(), ..data.targets.clone().unwrap() }),
        notes: vec![Note::Other("a note".into())],
        ..data.clone()
    };
    let rebuilt = papers();
    let rows = DenseFeatures::from_f32(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2).unwrap();
    let stored = papers_builder().nodes("paper").feature_store(Arc::new(rows)).build().unwrap();
    for same in [renamed, rebuilt, stored] {
        assert_eq!(same.hash().unwrap(), data.hash().unwrap());
    }
    assert!(matches!(data.targets.unwrap().values, Targets::Classes(_)));
}

#[test]
fn manifest_hash_changes_with_every_change_of_the_data() {
    let sets = changed_sets();
    let mut hashes = HashSet::new();
    for (change, data) in &sets {
        let (_root, folder) = written(data);
        assert!(hashes.insert(format::hash(&folder).unwrap()), "{change} should change the hash");
    }
    let mut data = papers();
    data.name = "other".into();
    data.names[0] = Arc::default();
    data.targets.as_mut().unwrap().class_names.clear();
    let (_root, folder) = written(&data);
    assert!(hashes.contains(&format::hash(&folder).unwrap()), "names of nodes and classes should not count");
}
