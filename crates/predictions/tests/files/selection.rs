use kiln_feature::Labels;

use super::*;

fn error(result: Result<Vec<NodeId>>) -> String {
    result.expect_err("the selection should be rejected").to_string()
}

#[test]
fn selects_new_and_unlabelled_items_and_rejects_those_that_the_data_lacks() {
    let targets: Targets<NodeId> = Labels::new(vec![0, -1, 1, -1], 2).into();
    let nodes = SelectableItems { n_items: 4, test: &[], new: Some(2..4), targets: Some(&targets) };
    assert_eq!(nodes.select(&ItemSelection::All).expect("all"), [0, 1, 2, 3].map(NodeId));
    assert_eq!(nodes.select(&ItemSelection::New).expect("new"), [2, 3].map(NodeId));
    assert_eq!(nodes.select(&ItemSelection::Unlabelled).expect("unlabelled"), [1, 3].map(NodeId));
    assert!(error(nodes.select(&ItemSelection::Test)).contains("no test split"));
    let without = SelectableItems { new: None, targets: None, ..nodes };
    assert!(error(without.select(&ItemSelection::New)).contains("no rows were appended"));
    assert!(error(without.select(&ItemSelection::Unlabelled)).contains("no targets of these items"));
    assert!(error(without.select(&ItemSelection::new("none.npy"))).contains("there is no such file"));
}

#[test]
fn names_select_nodes_in_their_order_and_an_unknown_one_names_its_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys.txt");
    let names = NodeNames::new(["ann", "bob", "eve"]);
    std::fs::write(&path, "eve\nann\n").expect("the file can be written");
    assert_eq!(read_named_nodes(&path, 3, Some(&names)).expect("names"), [2, 0].map(NodeId));
    std::fs::write(&path, "eve\nanne\n").expect("the file can be written");
    let unknown = error(read_named_nodes(&path, 3, Some(&names)));
    assert!(unknown.ends_with(
        "line 2: no node is named \"anne\" (did you mean `ann`?): correct the line, or remove it"
    ));
    let unnamed = read_named_nodes(&path, 3, None).expect_err("the nodes have no names");
    assert!(
        unnamed.is_usage() && unnamed.to_string().starts_with("--keys needs data whose nodes have names")
    );
}
