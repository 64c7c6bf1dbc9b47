use super::*;

#[test]
fn links_of_named_types_have_names_and_scores_that_are_not_finite_are_empty() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let names = NodeNames::new(["a", "b, c"]);
    let nodes = LinkNodes { ids: [10..13, 20..22], names: [None, Some(names.into())] };
    let out = folder.path().join("links");
    let mut files =
        LinkPredictionFiles::create(&out, PredictionFormat::Csv, nodes).expect("the folder is new");
    let link = |src, dst, score| ScoredLink { src: NodeId(src), dst: NodeId(dst), score };
    files
        .write(&[link(12, 21, 0.5), link(10, 20, f32::NAN), link(12, 21, f32::INFINITY)])
        .expect("files can be written");
    files.add_source_without_links(NodeId(11));
    let (folder, totals) = files.complete().expect("files can be written");
    assert!(!out.exists());
    folder.commit().expect("the folder is new");
    assert_eq!((totals.n_items, totals.n_non_finite), (3, 3));
    assert_eq!(totals.first_non_finite, ["0 to 0", "2 to 1", "1"]);
    let csv = std::fs::read_to_string(out.join("links.csv")).expect("the file was written");
    let expected = "source,destination,destination_name,score\n2,1,\"b, c\",0.5\n0,0,a,\n2,1,\"b, c\",\n";
    assert_eq!(csv, expected);
}
