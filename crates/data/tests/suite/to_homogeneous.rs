//! Tests of [`Dataset::to_homogeneous`]: relations of one node type as one graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_data::convert::convert_to_homogeneous;
use kiln_data::{Dataset, Error, Layout, LinkTargets, NotHomogeneousError, Split, format};
use kiln_graph::{EdgeColumn, EdgeColumns, LinkId, Links, NodeId, NodeTypes, RelationEdges};

/// Four items with features, names, classes and a split.
fn items(relations: &[RelationEdges<'_>]) -> Dataset {
    let types = NodeTypes::new([("item", 4)]).unwrap();
    let mut builder = Dataset::builder_with_types(types).name("items");
    for relation in relations {
        builder = builder.relation(*relation);
    }
    let builder = builder.nodes("item").features(vec![0.5, 1.0, 1.5, 2.0], 1);
    let builder = builder.node_names(["a", "b", "c", "d"]).labels(vec![0, 1, 1, -1], 2);
    builder.class_names(["red", "blue"]).split(vec![0], vec![1], vec![2]).build().unwrap()
}

fn edges<'a>(name: &'a str, srcs: &'a [u32], dsts: &'a [u32]) -> RelationEdges<'a> {
    RelationEdges::new(name, "item", "item", srcs, dsts)
}

fn columns(columns: &[(&str, Vec<f32>)]) -> EdgeColumns {
    let column = |values: &Vec<f32>| EdgeColumn::new(values.clone(), 1).unwrap();
    let of_all = columns.iter().map(|(name, values)| (*name, column(values)));
    of_all.fold(EdgeColumns::default(), |all, (name, column)| all.with(name, column).unwrap())
}

#[test]
fn one_relation_is_shared_and_the_nodes_are_kept() {
    let prices = columns(&[("price", vec![2.0, 3.0])]);
    let of_set = RelationEdges { columns: Some(&prices), ..edges("like", &[2, 0], &[1, 3]) };
    let mut data = items(&[of_set]);
    let links = Links::new(vec![NodeId(2)], vec![NodeId(1)]).unwrap();
    let split = Split { train: vec![LinkId(0)].into(), ..Split::default() };
    data.links = Some(LinkTargets::new(links, split).unwrap().into());
    let plain = data.clone().to_homogeneous().unwrap();
    assert!(Arc::ptr_eq(plain.csc().unwrap(), &data.graph.relation(0).graph));
    assert!(Arc::ptr_eq(plain.node_features().unwrap(), data.features[0].as_ref().unwrap()));
    assert_eq!((plain.layout, plain.n_edge_types(), plain.edge_type_names.len()), (Layout::Plain, None, 0));
    assert_eq!(plain.csc().unwrap().columns().names().collect::<Vec<_>>(), ["price"]);
    assert_eq!(plain.split(), data.split());
    assert_eq!([0, 3].map(|node| plain.labels().get(NodeId(node))), [Some(0), None]);
    assert_eq!(plain.links, data.links);
    assert_eq!(plain.node_name(NodeId(3)), Some("d"));
    assert_eq!(plain.class_names(), ["red", "blue"]);
    plain.validate().unwrap();
    assert_eq!(plain.clone().to_homogeneous().unwrap().hash().unwrap(), plain.hash().unwrap());
}

#[test]
fn several_relations_are_the_types_of_the_edges() {
    let of_first = columns(&[("price", vec![1.0, 2.0]), ("day", vec![7.0, 8.0])]);
    let of_second = columns(&[("price", vec![3.0])]);
    let first = RelationEdges {
        weights: Some(&[0.25, 0.5]),
        columns: Some(&of_first),
        ..edges("like", &[3, 0], &[1, 1])
    };
    let second = RelationEdges { columns: Some(&of_second), ..edges("unlike", &[2], &[1]) };
    let plain = items(&[first, second]).to_homogeneous().unwrap();
    let graph = plain.csc().unwrap();
    assert_eq!(graph.indptr(), [0, 0, 3, 3, 3]);
    assert_eq!(graph.in_neighbors(NodeId(1)), [0, 2, 3].map(NodeId));
    assert_eq!(graph.edge_types(), Some(&[0, 1, 0][..]));
    assert_eq!(graph.weights(), Some(&[0.5, 1.0, 0.25][..]));
    let price = graph.columns().get("price").unwrap();
    assert_eq!([0, 1, 2].map(|edge| price.value(edge)), [2.0, 3.0, 1.0]);
    assert!(graph.columns().get("day").is_none());
    assert_eq!(plain.edge_type_names, ["like", "unlike"]);
    let notes: Vec<String> = plain.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("the edges of unlike have no weights, so they have the weight 1"), "{notes:?}");
    assert!(notes[1].contains("the edge columns day are left out"), "{notes:?}");
    plain.validate().unwrap();
}

#[test]
fn a_type_without_relations_and_targets_has_an_empty_graph() {
    let types = NodeTypes::new([("item", 2)]).unwrap();
    let builder = Dataset::builder_with_types(types).nodes("item").features(vec![0.5, 1.0], 1);
    let plain = builder.build().unwrap().to_homogeneous().unwrap();
    assert_eq!(plain.csc().unwrap().indptr(), [0, 0, 0]);
    assert!(!plain.has_targets());
    let root = tempfile::tempdir().unwrap();
    format::write(&plain, root.path().join("plain")).unwrap();
    assert_eq!(Dataset::open(root.path().join("plain")).unwrap().hash().unwrap(), plain.hash().unwrap());
}

#[test]
fn other_types_and_missing_features_are_errors() {
    let types = NodeTypes::new([("user", 2), ("item", 3)]).unwrap();
    let error = Dataset::builder_with_types(types).build().unwrap().to_homogeneous().unwrap_err();
    let Error::NotHomogeneous(NotHomogeneousError::SeveralNodeTypes { types, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(types, "user, item");
    let types = NodeTypes::new([("user", 2)]).unwrap();
    let error = Dataset::builder_with_types(types).build().unwrap().to_homogeneous().unwrap_err();
    let expected =
        NotHomogeneousError::NoFeatures { name: "dataset".to_owned(), node_type: "user".to_owned() };
    assert!(matches!(&error, Error::NotHomogeneous(error) if *error == expected), "{error}");
    assert!(error.to_string().contains("under `columns` of the spec"), "{error}");
}

#[test]
fn a_conversion_writes_the_homogeneous_set_with_its_names() {
    let root = tempfile::tempdir().unwrap();
    let [set, out] = ["set", "plain"].map(|name| root.path().join(name));
    let mut data = items(&[edges("like", &[2, 0], &[1, 3]), edges("unlike", &[2], &[1])]);
    data.first_new = Some(vec![3]);
    format::write(&data, &set).unwrap();
    convert_to_homogeneous(&set, &out, 1 << 30).unwrap();
    let written = Dataset::open(&out).unwrap();
    assert_eq!(written.hash().unwrap(), data.to_homogeneous().unwrap().hash().unwrap());
    assert_eq!((written.node_name(NodeId(2)), written.layout), (Some("c"), Layout::Plain));
    assert_eq!(written.edge_type_names, ["like", "unlike"]);
    assert_eq!(written.new_rows(0), Some(3..4));
    assert!(convert_to_homogeneous(&set, &out, 1 << 30).is_err(), "the output exists");
}
