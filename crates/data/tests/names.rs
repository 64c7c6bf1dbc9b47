//! Opens files and folders with the names of built-in sets. A program of its own, because it changes the working directory.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::env;
use std::fs;

use kiln_data::{
    Dataset, DatasetLocation, DatasetName, Error, GraphDataset, Note, format, locate, synthetic,
};
use kiln_graph::{NodeTypes, RelationEdges};

/// Returns the name in the only note of this kind.
fn noted(notes: &[Note]) -> DatasetName {
    let names = notes.iter().filter_map(|note| match note {
        Note::HasNameOfDataset { name, .. } => DatasetName::of(name),
        _ => None,
    });
    let names: Vec<DatasetName> = names.collect();
    assert_eq!(names.len(), 1, "{notes:?}");
    names[0]
}

#[test]
fn files_and_folders_take_precedence_over_names() {
    let root = tempfile::tempdir().unwrap();
    env::set_current_dir(root.path()).unwrap();
    assert_eq!(locate("sbm"), DatasetLocation::Name(DatasetName::Sbm));
    assert_eq!(locate("fake:9"), DatasetLocation::Path("fake:9".into()));
    assert_eq!(Dataset::open("sbm").unwrap().graph.n_nodes(), 10_000);
    assert!(kiln_data::is_heterogeneous("debian-archive").unwrap());
    check_other_kinds();
    for (name, expected) in [
        ("sbm", DatasetName::Sbm),
        ("debian-tags", DatasetName::DebianTags),
        ("debian-packages", DatasetName::DebianPackages),
        ("fake:100", DatasetName::Fake(100)),
    ] {
        format::write(&synthetic::ring(60).unwrap(), name).unwrap();
        assert_eq!(locate(name), DatasetLocation::Path(name.into()));
        let data = Dataset::open(name).unwrap();
        assert_eq!((data.graph.n_nodes(), noted(&data.notes)), (60, expected));
        let text = data.notes.last().unwrap().to_string();
        let start = format!("the folder `{name}` is used; the built-in set has the same name");
        assert!(text.starts_with(&start), "{text}");
        assert!(Dataset::open(format!("./{name}")).unwrap().notes.is_empty());
    }
    fs::write("mutag", "2\n2 0\n0 1 1\n0 1 0\n2 1\n0 1 1\n0 1 0\n").unwrap();
    let graphs = GraphDataset::open("mutag").unwrap();
    assert_eq!((graphs.n_graphs(), noted(&graphs.notes)), (2, DatasetName::Mutag));
    let buys = RelationEdges {
        name: "buys",
        src_type: "user",
        dst_type: "item",
        srcs: &[0, 1],
        dsts: &[2, 0],
        weights: None,
        columns: None,
    };
    let types = NodeTypes::new([("user", 2), ("item", 3)]).unwrap();
    let data = Dataset::builder_with_types(types)
        .relation(buys)
        .nodes("item")
        .features(vec![0.0_f32; 3], 1)
        .build()
        .unwrap();
    format::write(&data, "debian-archive").unwrap();
    let data = Dataset::open("debian-archive").unwrap();
    assert_eq!((data.graph.n_nodes(), noted(&data.notes)), (5, DatasetName::DebianArchive));
    // A folder that is no dataset is an error that explains why the built-in set is not opened.
    fs::remove_dir_all("sbm").unwrap();
    fs::create_dir("sbm").unwrap();
    let error = Dataset::open("sbm").unwrap_err();
    assert!(matches!(&error, Error::Unrecognised { .. }), "{error}");
    assert!(error.to_string().contains("the built-in set has the same name"), "{error}");
}

/// Checks the errors of names of other kinds of sets, in a folder without files of these names.
fn check_other_kinds() {
    for (error, expected) in [
        (Dataset::open("mutag").unwrap_err(), "mutag is a set of graphs, expected a set for tasks on nodes"),
        (GraphDataset::open("sbm").unwrap_err(), "sbm is a set of nodes of one type, expected a graph"),
    ] {
        assert!(matches!(&error, Error::WrongKind { .. }), "{error}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
