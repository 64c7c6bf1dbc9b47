//! Tests of writing a heterogeneous set part by part.

use std::fs;
use std::path::Path;

use kiln_data::convert::{ColumnFormat, ConvertOptions, EdgeChunk, EdgeSource};
use kiln_data::format::{self, RelationTypes, SetWriter};
use kiln_data::{Dataset, Error, Result};
use kiln_graph::{NodeTypes, RelationEdges};
use kiln_store::Error as StoreError;
use kiln_store::array_folder::{ElementType, FolderWriter};

use crate::sets::relation;

/// A weighted edge list in memory.
struct List {
    srcs: Vec<u32>,
    dsts: Vec<u32>,
}

impl EdgeSource for List {
    fn columns(&self) -> Vec<ColumnFormat> {
        vec![ColumnFormat::weights()]
    }

    fn for_each_chunk(&self, _: usize, visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>) -> Result<()> {
        let weights = (0..self.srcs.len()).flat_map(|edge| (edge as f32).to_le_bytes()).collect();
        visit(&mut EdgeChunk { srcs: self.srcs.clone(), dsts: self.dsts.clone(), columns: vec![weights] })
    }
}

fn types() -> NodeTypes {
    NodeTypes::new([("user", 2), ("item", 3)]).expect("the names should be valid")
}

/// Writes a set with features, names, targets, an attachment and a relation.
fn write(out: &Path, edges: &List) -> Result<()> {
    let mut set = SetWriter::new(FolderWriter::create(out)?, "shop", &types());
    let mut rows = set.feature_rows(1, ElementType::F32, 1)?;
    rows.push(&[1.0_f32, 2.0, 3.0])?;
    set.add_features(1, rows, 1)?;
    let [mut text, mut ends] = set.names(0)?;
    text.push(b"abc")?;
    ends.push(&[1_u32, 3])?;
    set.add(text)?;
    set.add(ends)?;
    let mut targets = set.targets(ElementType::I32, 2)?;
    targets.values.push(&[0_i32, 1, -1])?;
    targets.split[0].push(&[2_u32])?;
    targets.split[2].push(&[3_u32])?;
    set.add_targets(1, targets, 2, &["low".to_owned(), "high".to_owned()])?;
    let types_of_rates = RelationTypes { name: "rates", src_type: 1, dst_type: 0 };
    set.write_relation(types_of_rates, edges, &ConvertOptions::default())?;
    set.attach("import.json", b"{\"format\": 1}")?;
    set.commit()
}

#[test]
fn set_written_part_by_part_equals_the_set_in_memory() {
    let root = tempfile::tempdir().unwrap();
    let edges = List { srcs: vec![2, 0, 1, 0], dsts: vec![1, 1, 0, 1] };
    write(&root.path().join("parts"), &edges).unwrap();
    let rates = relation("rates", ["item", "user"], &edges.srcs, &edges.dsts);
    let data = Dataset::builder_with_types(types())
        .relation(RelationEdges { weights: Some(&[0.0, 1.0, 2.0, 3.0]), ..rates })
        .nodes("item")
        .features(vec![1.0, 2.0, 3.0], 1)
        .nodes("user")
        .node_names(["a", "bc"])
        .nodes("item")
        .labels(vec![0, 1, -1], 2)
        .split(vec![0], Vec::<u32>::new(), vec![1])
        .class_names(["low", "high"])
        .name("shop")
        .build()
        .unwrap();
    format::write(&data, root.path().join("whole")).unwrap();
    for entry in fs::read_dir(root.path().join("whole")).unwrap() {
        let name = entry.unwrap().file_name();
        let read = |set: &str| fs::read(root.path().join(set).join(&name)).unwrap();
        assert!(name == "kiln.json" || read("whole") == read("parts"), "{name:?} differs");
    }
    assert_eq!(format::verify(root.path().join("parts")).unwrap().n_hashed, 11);
    assert_eq!(format::verify(root.path().join("whole")).unwrap().n_hashed, 10);
    let set = root.path().join("parts");
    assert_eq!(format::hash(&set).unwrap(), format::hash(root.path().join("whole")).unwrap());
    assert_eq!(format::attachment(&set, "import.json").unwrap().unwrap(), b"{\"format\": 1}");
    assert_eq!(format::attachment(&set, "other.json").unwrap(), None);
}

#[test]
fn conversion_keeps_attachments() {
    let root = tempfile::tempdir().unwrap();
    let [set, copy] = ["set", "copy"].map(|name| root.path().join(name));
    write(&set, &List { srcs: vec![2, 0], dsts: vec![1, 1] }).unwrap();
    kiln_data::convert::convert_heterogeneous(&set, &copy, 1 << 20).unwrap();
    assert_eq!(crate::common::contents(&copy), crate::common::contents(&set));
    assert_eq!(format::attachment(&copy, "import.json").unwrap().unwrap(), b"{\"format\": 1}");
    assert_eq!(format::verify(&copy).unwrap().n_hashed, 11);
    fs::write(set.join("import.json"), "{}").unwrap();
    let error =
        kiln_data::convert::convert_heterogeneous(&set, root.path().join("other"), 1 << 20).unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::HashMismatch { .. })), "{error}");
}

#[test]
fn verify_rejects_a_changed_attachment() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    write(&set, &List { srcs: Vec::new(), dsts: Vec::new() }).unwrap();
    fs::write(set.join("import.json"), "{}").unwrap();
    for error in [
        format::verify(&set).map(drop).unwrap_err(),
        format::attachment(&set, "import.json").map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Store(StoreError::HashMismatch { .. })), "{error}");
    }
    let manifest = fs::read_to_string(set.join("kiln.json")).unwrap();
    fs::write(set.join("kiln.json"), manifest.replace("import.json", "../import.json")).unwrap();
    let error = format::open(&set).unwrap_err().to_string();
    assert!(error.contains("attachments is \"../import.json\", expected a name of"), "{error}");
}

#[test]
fn relation_rejects_ids_outside_their_type() {
    let root = tempfile::tempdir().unwrap();
    for (src, dst, expected) in [(3, 0, "3"), (0, 2, "2")] {
        let edges = List { srcs: vec![src], dsts: vec![dst] };
        let error = write(&root.path().join("set"), &edges).unwrap_err().to_string();
        assert!(error.contains(&format!("node {expected}")), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "an error should remove all files");
    }
}
