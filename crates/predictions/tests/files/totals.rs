use kiln_graph::NodeId;

use super::*;

#[test]
fn an_item_in_several_parts_is_in_the_first() {
    let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>().into();
    let split = Split { train: nodes(&[1, 9]), val: nodes(&[1, 2]), test: nodes(&[2, 3]) };
    let parts = SplitParts::new(5, &split);
    let expected =
        [SplitPart::None, SplitPart::Train, SplitPart::Validation, SplitPart::Test, SplitPart::None];
    assert_eq!([0, 1, 2, 3, 4].map(|node| parts.part(NodeId(node))), expected);
    // The split has a node that the data does not have.
    assert_eq!(parts.part(NodeId(9)), SplitPart::None);
    assert_eq!(SplitParts::default().part(NodeId(1)), SplitPart::None);
}

#[test]
fn totals_of_ranks_add_up_and_survive_the_transfer() {
    let mut one = PredictionTotals { n_items: 9, ..PredictionTotals::default() };
    one.add_label(SplitPart::Train, true);
    one.add_label(SplitPart::Test, false);
    for id in [7, 3, 4] {
        one.add_non_finite(id);
    }
    let mut two = PredictionTotals { n_items: 3, ..PredictionTotals::default() };
    two.add_label(SplitPart::Test, true);
    for id in [1, 8, 2] {
        two.add_non_finite(id);
    }
    let received = [&one, &two].map(|totals| PredictionTotals::from_bytes(&totals.to_bytes()));
    assert_eq!(received, [one, two]);
    let sum = PredictionTotals::sum(&received);
    assert_eq!((sum.n_items, sum.n_non_finite), (12, 6));
    let expected = [
        "accuracy 1.0000 on 1 labelled item of the training split",
        "accuracy 0.5000 on 2 labelled items of the test split",
    ];
    assert_eq!(sum.accuracies(), expected);
    let note = sum.non_finite_note().expect("6 items have no finite outputs");
    assert!(note.starts_with("the outputs of 6 items are not finite: "), "{note}");
    assert!(note.ends_with("(7, 3, 4, 1, 8, …)"), "{note}");
    assert_eq!(PredictionTotals::from_bytes(&[]), PredictionTotals::default());
    assert_eq!(PredictionTotals::default().non_finite_note(), None);
}
