//! Tests of `kiln predict` on heterogeneous sets from tables: predictions repeat the run, and are those of the same keys if the rows
//! are shuffled, split over other files, and new.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kiln::data::Dataset;

use crate::predict::{fails, succeeds, text, train};
use crate::predict_answers::without_names;

const N_ITEMS: usize = 120;

/// The rows of items, and those of purchases. Buyers have no table.
pub(crate) fn rows() -> [Vec<String>; 2] {
    let item = |item: usize| format!("i{item},{},{}", item * 7 % 13, ["red", "green", "blue"][item % 3]);
    let purchase = |purchase: usize| {
        let (item, at) = (purchase / 4, purchase % 4);
        format!("b{},i{item}", 3 * ((item * 5 + at * 11) % 20) + item % 3)
    };
    [(0..N_ITEMS).map(item).collect(), (0..4 * N_ITEMS).map(purchase).collect()]
}

pub(crate) fn spec(item_files: &str, purchase_files: &str) -> String {
    format!(
        "name: shop
nodes:
  - {{name: buyer, from: relations}}
  - name: item
    files: [{item_files}]
    key: id
    columns: [{{column: price, transform: standardize}}]
    target: {{class: {{column: color}}}}
    split: {{random: {{seed: 0, train: 0.6, val: 0.2, test: 0.2}}}}
relations:
  - name: buys
    files: [{purchase_files}]
    src: {{type: buyer, column: buyer}}
    dst: {{type: item, column: item}}
    reverse: bought by
"
    )
}

/// Imports the rows in their order, and returns the path of the set.
pub(crate) fn imported(root: &Path) -> String {
    let [items, purchases] = rows();
    fs::write(root.join("items.csv"), format!("id,price,color\n{}\n", items.join("\n"))).unwrap();
    fs::write(root.join("purchases.csv"), format!("buyer,item\n{}\n", purchases.join("\n"))).unwrap();
    fs::write(root.join("spec.yaml"), spec("items.csv", "purchases.csv")).unwrap();
    import(root, "spec.yaml", "shop", &[])
}

pub(crate) fn import(root: &Path, spec: &str, out: &str, flags: &[&str]) -> String {
    let (spec, out) = (root.join(spec), root.join(out));
    let out = out.to_str().unwrap().to_owned();
    succeeds(&[&["data", "import", spec.to_str().unwrap(), "--out", &out], flags].concat());
    out
}

/// Imports the rows in another order, from two files per table, one of which is JSON lines. Two items are new.
pub(crate) fn shuffled(root: &Path, transforms_of: &str) -> String {
    let [mut items, purchases] = rows();
    items.extend(["n0,3,red".to_owned(), "n1,,blue".to_owned()]);
    let n_items = items.len();
    let mut items: Vec<String> = (0..n_items).map(|row| items[row * 25 % n_items].clone()).collect();
    let purchases: Vec<String> =
        (0..purchases.len()).map(|row| purchases[row * 7 % purchases.len()].clone()).collect();
    let rest = items.split_off(50);
    let json = rest.iter().map(|row| {
        let fields: Vec<&str> = row.split(',').collect();
        let price = if fields[1].is_empty() { "null" } else { fields[1] };
        format!("{{\"color\": \"{}\", \"id\": \"{}\", \"price\": {price}}}\n", fields[2], fields[0])
    });
    fs::write(root.join("rest.jsonl"), json.collect::<String>()).unwrap();
    fs::write(root.join("first.csv"), format!("id,price,color\n{}\n", items.join("\n"))).unwrap();
    let (one, two) = purchases.split_at(200);
    fs::write(root.join("one.csv"), format!("buyer,item\n{}\n", one.join("\n"))).unwrap();
    fs::write(root.join("two.csv"), format!("buyer,item\n{}\n", two.join("\n"))).unwrap();
    fs::write(root.join("other.yaml"), spec("rest.jsonl, first.csv", "two.csv, one.csv")).unwrap();
    import(root, "other.yaml", "other", &["--transforms-of", transforms_of])
}

/// Returns the class and the probability of each key in `classes.csv`.
fn by_key(folder: &Path) -> BTreeMap<String, (String, f64)> {
    let text = text(&folder.join("classes.csv"));
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[1].to_owned(), (fields[3].to_owned(), fields[4].parse().unwrap()))
    };
    text.lines().skip(1).map(of_line).collect()
}

pub(crate) fn predict(run: &str, data: &str, out: &Path, flags: &str) {
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let out = out.to_str().unwrap();
    succeeds(&[&["predict", "--run", run, "--data", data, "--out", out], &flags[..]].concat());
}

/// Rank 0 evaluates layer by layer, and the saved model predicts in the same way.
#[test]
fn exact_predictions_are_those_of_the_run() {
    for model in ["sage", "rgcn", "hgt"] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let set = imported(root);
        let flags = "--hidden 16 --layers 2 --fanouts 4,4 --epochs 1 --batch-size 32 --ranks 2 --eval exact";
        let run = train(root, &format!("--data {set} --model {model} {flags}"));
        let expected = text(&Path::new(&run).join("test_predictions.csv"));
        for (name, flags) in [("plain", ""), ("ranks", "--ranks 2"), ("small", "--mode exact --memory 16KiB")]
        {
            let out = root.join(name);
            predict(&run, &set, &out, &format!("{flags} --embeddings"));
            assert_eq!(without_names(&text(&out.join("predictions.csv"))), expected, "{model} {name}");
            assert_eq!(text(&out.join("embeddings.csv")), text(&root.join("plain/embeddings.csv")));
        }
    }
}

#[test]
fn predictions_of_keys_do_not_depend_on_files_and_order() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let run =
        train(root, &format!("--data {set} --hidden 16 --layers 2 --fanouts 4,4 --epochs 3 --batch-size 32"));
    // Without flags, the test split has the predictions of the run, on any number of ranks.
    for n_ranks in ["1", "2"] {
        let out = root.join(format!("test-{n_ranks}"));
        predict(&run, &set, &out, &format!("--ranks {n_ranks} --embeddings"));
        let expected = text(&Path::new(&run).join("test_predictions.csv"));
        assert_eq!(without_names(&text(&out.join("predictions.csv"))), expected);
    }
    assert_eq!(text(&root.join("test-1/embeddings.csv")), text(&root.join("test-2/embeddings.csv")));
    let other = shuffled(root, &set);
    let all = "--nodes all --mode sampled --fanouts all,all";
    predict(&run, &set, &root.join("all"), all);
    predict(&run, &other, &root.join("all-other"), all);
    let (one, other_rows) = (by_key(&root.join("all")), by_key(&root.join("all-other")));
    assert_eq!((one.len(), other_rows.len()), (N_ITEMS, N_ITEMS + 2));
    for (key, (class, probability)) in &one {
        let (of_other, other_probability) = &other_rows[key];
        assert_eq!(class, of_other, "{key}");
        assert!((probability - other_probability).abs() < 1e-5, "{key}: {probability} {other_probability}");
    }
    let classes: Vec<&String> = one.values().map(|(class, _)| class).collect();
    assert!(classes.iter().any(|class| *class != classes[0]));
    // The trained rows of buyers matter: without their own rows, probabilities are others.
    let data = Dataset::open(&other).unwrap();
    let mut renamed = data.clone();
    let names: Vec<String> = (0..renamed.names[0].len()).map(|buyer| format!("new {buyer}")).collect();
    renamed.names[0] = kiln::data::NodeNames::new(names.iter().map(String::as_str)).into();
    let path = root.join("renamed");
    kiln::data::format::write(&renamed, &path).unwrap();
    predict(&run, path.to_str().unwrap(), &root.join("all-renamed"), all);
    let renamed = by_key(&root.join("all-renamed"));
    assert!(one.iter().any(|(key, (_, probability))| 1e-3 < (probability - renamed[key].1).abs()));
}

#[test]
fn keys_select_nodes_and_parquet_files_are_tables() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = imported(root);
    let run = train(root, &format!("--data {set} --model rgcn --hidden 8 --layers 1 --fanouts 4 --epochs 1"));
    let (keys, out) = (root.join("keys.txt"), root.join("keys"));
    fs::write(&keys, "i7\ni3\ni7\n").unwrap();
    predict(&run, &set, &out, &format!("--keys {} --format parquet --embeddings", keys.display()));
    let classes = text(&out.join("classes.csv"));
    let of_keys: Vec<&str> = classes.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(of_keys, ["i7", "i3", "i7"]);
    // The files of predictions are tables of an import themselves.
    for (file, column, width) in [("scores", "scores", 3), ("embeddings", "embedding", 8)] {
        let all = root.join(format!("all-{file}"));
        predict(&run, &set, &all, "--nodes all --format parquet --embeddings");
        let path = all.join(format!("{file}.parquet"));
        let spec = format!(
            "name: predictions
nodes:
  - name: item
    files: [{}]
    key: name
    columns: [{{column: {column}, transform: {{vector: {{columns: {width}}}}}}}]
relations: []
",
            path.display()
        );
        fs::write(root.join("table.yaml"), spec).unwrap();
        let data = Dataset::open(import(root, "table.yaml", &format!("of-{file}"), &[])).unwrap();
        assert_eq!(data.dims(), [Some(width)]);
        assert_eq!(data.graph.n_nodes(), N_ITEMS);
        assert_eq!(data.names[0].get(kiln::graph::NodeId(5)), Some("i5"));
    }
    fs::write(&keys, "i7\nstranger\n").unwrap();
    let fails = |flags: &str| {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let out = root.join("none");
        fails(&[&["predict", "--run", &run, "--out", out.to_str().unwrap()], &flags[..]].concat())
    };
    let error = fails(&format!("--data {set} --keys {}", keys.display()));
    assert!(error.contains("line 2: no node is named \"stranger\""), "{error}");
    let error = fails("--data sbm");
    assert!(error.contains("predict on a heterogeneous dataset"), "{error}");
    let error = fails(&format!("--data {set} --mode exact --memory 10"));
    assert!(error.contains("the memory limit is 10 bytes"), "{error}");
    let error = fails("--data debian-archive");
    assert!(error.contains("the model was trained with"), "{error}");
    let of_one_type = root.join("of-one-type");
    fs::create_dir(&of_one_type).unwrap();
    let homogeneous = train(&of_one_type, "--data sbm --hidden 8 --layers 1 --fanouts 4 --epochs 1");
    let out = root.join("none").to_str().unwrap().to_owned();
    let error = crate::predict::fails(&["predict", "--run", &homogeneous, "--data", &set, "--out", &out]);
    assert!(error.contains("but a graph with one type of nodes is needed"), "{error}");
    let of_links = root.join("of-links");
    fs::create_dir(&of_links).unwrap();
    let flags = "--task link --data sbm --hidden 8 --layers 1 --fanouts 4 --embedding 8 --epochs 1";
    let links = train(&of_links, flags);
    let top = ["--top-k", "1", "--nodes", "all"];
    let request = [&["predict", "--run", &links, "--data", &set, "--out", &out], &top[..]].concat();
    let error = crate::predict::fails(&request);
    assert!(error.contains("but a graph with one type of nodes is needed"), "{error}");
}
