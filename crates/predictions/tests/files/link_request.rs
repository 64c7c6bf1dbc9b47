use super::*;

#[test]
fn pairs_have_ids_of_the_graph_and_those_beyond_their_type_are_rejected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pairs.csv");
    let names = kiln_data::NodeNames::new(["x", "y"]);
    let nodes = LinkNodes { ids: [0..3, 3..5], names: [None, Some(names.into())] };
    std::fs::write(&path, "2,1\n0,0\n").expect("the file can be written");
    let links = nodes.read_pairs(&path, &mut Vec::new()).expect("the pairs are those of nodes");
    assert_eq!(links.pair(kiln_graph::LinkId(0)), (NodeId(2), NodeId(4)));
    std::fs::write(&path, "2,1\n0,2\n").expect("the file can be written");
    let error = nodes.read_pairs(&path, &mut Vec::new()).expect_err("there is no such destination");
    assert!(
        error
            .to_string()
            .ends_with("the destination of pair 1, counted from 0, is 2: expected an id below 2")
    );
    std::fs::write(&path, "2 1\n").expect("the file can be written");
    let error = nodes.read_named_pairs(&path).expect_err("there is no tab");
    assert!(error.to_string().ends_with("line 1: expected two names and a tab between them"));
}
