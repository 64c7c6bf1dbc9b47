//! Tests of `kiln data import --append` and `kiln predict --nodes new`: new rows in the old graph, and predictions of them only.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::data::Dataset;
use kiln::graph::NodeId;

use crate::predict::{fails, succeeds, text, train};
use crate::predict_typed::{import, imported, predict, rows, spec};
use crate::predict_typed_links::trained;

/// Writes two new items, one row of an item of the set, and purchases by a known and a new buyer.
fn put_new_rows(root: &Path) -> [Vec<String>; 2] {
    let items = ["n0,3,".to_owned(), "n1,,blue".to_owned()].to_vec();
    let purchases = ["b3,n0", "new,n0", "new,i7", "b6,n1"].map(str::to_owned).to_vec();
    let known = &rows()[0][5];
    fs::write(root.join("new-items.csv"), format!("id,price,color\n{known}\n{}\n", items.join("\n")))
        .unwrap();
    fs::write(root.join("new-purchases.csv"), format!("buyer,item\n{}\n", purchases.join("\n"))).unwrap();
    fs::write(root.join("new.yaml"), spec("new-items.csv", "new-purchases.csv")).unwrap();
    [items, purchases]
}

/// Imports the old and the new rows as one set, with the transforms of a set.
fn import_all(root: &Path, [new_items, new_purchases]: [Vec<String>; 2], transforms_of: &str) -> String {
    let [items, purchases] = rows();
    let items = [items, new_items].concat().join("\n");
    let purchases = [purchases, new_purchases].concat().join("\n");
    fs::write(root.join("all-items.csv"), format!("id,price,color\n{items}\n")).unwrap();
    fs::write(root.join("all-purchases.csv"), format!("buyer,item\n{purchases}\n")).unwrap();
    fs::write(root.join("all.yaml"), spec("all-items.csv", "all-purchases.csv")).unwrap();
    import(root, "all.yaml", "all", &["--transforms-of", transforms_of])
}

#[test]
fn new_rows_are_predicted_in_the_old_graph() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let set = imported(root);
    let run = train(root, &format!("--data {set} --hidden 8 --layers 2 --fanouts 4,4 --epochs 1"));
    let new = put_new_rows(root);
    let new_yaml = path("new.yaml");
    let plan = succeeds(&["data", "import", &new_yaml, "--append", &set, "--dry-run"]);
    assert!(plan.contains("node type `item`: an unknown number of rows, and 120 nodes of the set"), "{plan}");
    let appended = path("shop-2");
    let printed = succeeds(&["data", "import", &new_yaml, "--append", &set, "--out", &appended]);
    for line in [
        "node type item: 122 nodes, 2 new",
        "relation buys: 484 edges, 4 new",
        "note: node type item: 1 row of nodes that the set has, with the same features",
        "note: node type `item`, column \"price\": 1 of 2 rows (50.0 %) have no value",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    assert_eq!(Dataset::open(&appended).unwrap().new_rows(1), Some(120..122));

    // The new items only, as among all items of an import of all rows.
    let all = import_all(root, new, &set);
    predict(&run, &appended, &root.join("new"), "--nodes new --mode exact");
    for data in [&appended, &all] {
        let out = root.join(format!("of-{}", Path::new(data).file_name().unwrap().to_str().unwrap()));
        predict(&run, data, &out, "--nodes all --mode exact --embeddings");
        let classes = text(&out.join("classes.csv"));
        let (header, lines) = classes.split_once('\n').unwrap();
        let new: String = lines.lines().skip(120).map(|line| format!("{line}\n")).collect();
        assert_eq!(new.lines().map(|line| &line[..6]).collect::<Vec<_>>(), ["120,n0", "121,n1"]);
        assert_eq!(text(&root.join("new/classes.csv")), format!("{header}\n{new}"));
    }
    for file in ["classes.csv", "scores.csv", "embeddings.csv"] {
        assert_eq!(text(&root.join("of-shop-2").join(file)), text(&root.join("of-all").join(file)));
    }

    // The items without a target, of the whole set and of its partitions.
    let targets = Dataset::open(&appended).unwrap().targets.unwrap().values;
    let unlabelled: Vec<u32> = (0..122).filter(|item| !targets.has_any(NodeId(*item))).collect();
    assert!(unlabelled.contains(&120) && !unlabelled.contains(&121), "{unlabelled:?}");
    let parts = path("parts");
    succeeds(&["data", "partition", &appended, "--parts", "2", "--method", "random", "--out", &parts]);
    let [whole, of_parts] = ["whole", "of-parts"].map(path);
    succeeds(&["predict", "--run", &run, "--data", &appended, "--nodes", "unlabelled", "--out", &whole]);
    let of_unlabelled = ["--ranks", "2", "--nodes", "unlabelled", "--out", &of_parts];
    succeeds(&[&["predict", "--run", &run, "--parts", &parts][..], &of_unlabelled].concat());
    for out in [&whole, &of_parts] {
        let classes = text(&Path::new(out).join("classes.csv"));
        let ids = classes.lines().skip(1).map(|line| line.split(',').next().unwrap().parse::<u32>().unwrap());
        assert_eq!(ids.collect::<Vec<_>>(), unlabelled, "{out}");
    }

    // Purchases of a known buyer only: no item is new.
    fs::write(root.join("new-purchases.csv"), "buyer,item\nb3,i9\n").unwrap();
    let whole = spec("none.csv", "new-purchases.csv");
    let (_, relations) = whole.split_once("relations:\n").unwrap();
    fs::write(root.join("edges.yaml"), format!("name: shop\nnodes: []\nrelations:\n{relations}")).unwrap();
    let edges = import(root, "edges.yaml", "shop-3", &["--append", &appended]);
    let out = path("none");
    let of_new =
        |data: &str| fails(&["predict", "--run", &run, "--data", data, "--nodes", "new", "--out", &out]);
    let error = of_new(&edges);
    assert!(error.contains("the rows that were appended last have no node of this type"), "{error}");
    let error = of_new(&set);
    assert!(error.contains("no rows were appended to the data"), "{error}");
    let error = fails(&["predict", "--run", &run, "--parts", &parts, "--nodes", "new", "--out", &out]);
    assert!(error.contains("partitions do not state which nodes are new"), "{error}");
    let error = fails(&["data", "import", &new_yaml, "--append", &parts, "--out", &out]);
    assert!(error.contains("this is a partitioned set, expected a whole one"), "{error}");
    let both = ["data", "import", &new_yaml, "--append", &set, "--transforms-of", &set, "--out", &out];
    assert!(fails(&both).contains("cannot be used with"), "the flags exclude each other");
    assert!(!Path::new(&out).exists());
}

#[test]
fn new_sources_get_their_best_destinations() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let run = trained(root, &set);
    put_new_rows(root);
    let appended = import(root, "new.yaml", "shop-2", &["--append", &set]);
    predict(&run, &appended, &root.join("top"), "--top-k 2 --nodes new");
    let links = text(&root.join("top/links.csv"));
    let sources: Vec<&str> = links.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(sources, ["new", "new"]);
}

/// Papers and an undirected relation, of which a GCN reads the homogeneous graph.
const PAPERS: &str = "name: papers
nodes:
  - name: paper
    files: [papers.csv]
    key: id
    columns: [{column: year, transform: standardize}]
    target: {class: {column: topic}}
    split: {random: {seed: 0, train: 0.6, val: 0.2, test: 0.2}}
relations:
  - name: cites
    files: [cites.csv]
    src: {type: paper, column: citing}
    dst: {type: paper, column: cited}
    undirected: true
";

/// Writes papers, each of which cites two others among the first ones.
fn put_papers(root: &Path, papers: std::ops::Range<usize>) {
    let rows = papers.clone().map(|paper| format!("p{paper},{},{}\n", paper * 7 % 20, paper % 3));
    fs::write(root.join("papers.csv"), format!("id,year,topic\n{}", rows.collect::<String>())).unwrap();
    let rows = papers.map(|paper| format!("p{paper},p{}\np{paper},p{}\n", paper / 2, paper * 11 % 40));
    fs::write(root.join("cites.csv"), format!("citing,cited\n{}", rows.collect::<String>())).unwrap();
    fs::write(root.join("papers.yaml"), PAPERS).unwrap();
}

#[test]
fn new_nodes_of_a_homogeneous_model_are_predicted() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put_papers(root, 0..60);
    let set = import(root, "papers.yaml", "papers", &[]);
    let flags = "--model gcn --hidden 4 --layers 2 --fanouts 3,3 --epochs 1";
    let run = train(root, &format!("--data {set} {flags}"));
    put_papers(root, 60..64);
    let appended = import(root, "papers.yaml", "papers-2", &["--append", &set]);
    predict(&run, &appended, &root.join("new"), "--nodes new --mode exact");
    predict(&run, &appended, &root.join("all"), "--nodes all --mode exact");
    let [new, all] = ["new", "all"].map(|out| text(&root.join(out).join("classes.csv")));
    let new: Vec<&str> = new.lines().skip(1).collect();
    assert_eq!(
        new.iter().map(|line| &line[..6]).collect::<Vec<_>>(),
        ["60,p60", "61,p61", "62,p62", "63,p63"]
    );
    assert_eq!(all.lines().skip(61).collect::<Vec<_>>(), new);
}
