//! Predictions on data whose columns, categories, units, classes, types or weights mean something else than those of the
//! training data: they are found by name, or named in a note, or an error.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use crate::predict::{fails, succeeds, text, train};

/// The tables of a shop and the spec that imports them.
#[derive(Clone)]
struct Shop {
    spec: String,
    users: String,
    items: String,
    buys: String,
}

const SPEC: &str = "\
name: shop
nodes:
  - name: user
    files: [users.csv]
    key: id
    columns:
      - {column: score, transform: numeric}
      - {column: plan, transform: {one_hot: {max_categories: 10}}}
      - {column: level, transform: {ordinal: {max_categories: 10}}}
      - {column: tags, transform: {multi_hot: {max_categories: 10, separator: ' '}}}
      - {column: about, transform: {text: {columns: 4, unit: word, min_n: 1, max_n: 1}}}
      - {column: joined, transform: {time: {parts: [month], unit: seconds}}}
    target: {class: {column: segment}}
    split: {column: {column: part}}
  - name: item
    files: [items.csv]
    key: id
    columns:
      - {column: price, transform: standardize}
      - {column: rank, transform: quantile}
      - {column: maker, transform: {hash: {columns: 3}}}
      - {column: shape, transform: {vector: {columns: 2, separator: ' '}}}
relations:
  - name: buys
    files: [buys.csv]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    weight: amount
    reverse: bought by
  - name: views
    files: [buys.csv]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    reverse: viewed by
";

const N_USERS: usize = 24;
const N_ITEMS: usize = 8;

impl Shop {
    fn new() -> Self {
        let mut users = "id,score,plan,level,tags,about,joined,segment,part\n".to_owned();
        for user in 0..N_USERS {
            let plan = ["free", "pro"][user % 2];
            let level = ["low", "mid", "top"][user % 3];
            let tags = ["red", "red blue", "blue"][user % 3];
            let segment = ["a", "b", "c"][user * 7 % 3];
            let part = ["train", "val", "test"][user / 8];
            users += &format!(
                "u{user},{}.5,{plan},{level},{tags},word{} text,{},{segment},{part}\n",
                user,
                user % 5,
                1_600_000_000 + 3_000_000 * user
            );
        }
        let mut items = "id,price,rank,maker,shape\n".to_owned();
        for item in 0..N_ITEMS {
            items += &format!("i{item},{},{},m{},{item} {}\n", item * item, item * 3, item % 3, 8 - item);
        }
        let mut buys = "user,item,amount\n".to_owned();
        for user in 0..N_USERS {
            for item in [user % N_ITEMS, user * 3 % N_ITEMS] {
                buys += &format!("u{user},i{item},{}.5\n", user % 4);
            }
        }
        Self { spec: SPEC.to_owned(), users, items, buys }
    }

    /// Returns the shop with a text of the spec replaced.
    fn spec(mut self, from: &str, to: &str) -> Self {
        assert!(self.spec.contains(from), "{from}");
        self.spec = self.spec.replace(from, to);
        self
    }

    /// Returns the shop with a text of the table of users replaced.
    fn users(mut self, from: &str, to: &str) -> Self {
        assert!(self.users.contains(from), "{from}");
        self.users = self.users.replace(from, to);
        self
    }

    /// Imports the tables into `NAME` of a folder, and returns the path of the set.
    fn import(&self, root: &Path, name: &str) -> String {
        let folder = root.join(format!("{name}-tables"));
        fs::create_dir(&folder).unwrap();
        for (file, content) in [
            ("spec.yaml", &self.spec),
            ("users.csv", &self.users),
            ("items.csv", &self.items),
            ("buys.csv", &self.buys),
        ] {
            fs::write(folder.join(file), content).unwrap();
        }
        let out = root.join(name).to_str().unwrap().to_owned();
        succeeds(&["data", "import", folder.join("spec.yaml").to_str().unwrap(), "--out", &out]);
        out
    }
}

/// What `kiln predict` does with a shop.
enum Expected {
    /// The predictions are those for the training data.
    Same,
    /// The predictions are those for the training data, and it prints a note with this text.
    SameWithNote(&'static str),
    /// It fails with this text.
    Error(&'static str),
}

use Expected::{Error, Same, SameWithNote};

/// Returns the variants of the shop of the training by name.
fn variants() -> Vec<(&'static str, Shop, Expected)> {
    let shop = Shop::new;
    let prices = |shop: Shop| Shop { items: shop.items.replace(",49,", ",490,"), ..shop };
    let ranks = |shop: Shop| Shop { items: shop.items.replace(",21,", ",99,"), ..shop };
    let score = "      - {column: score, transform: numeric}\n";
    let plan = "      - {column: plan, transform: {one_hot: {max_categories: 10}}}\n";
    let reordered = shop().spec(&format!("{score}{plan}"), &format!("{plan}{score}"));
    // Most users have the plan `pro` and the tag `red`, so their columns come first.
    let mut frequent = shop();
    frequent.users += "u99,1.5,pro,low,red,word1 text,1600000000,,\n";
    let weights_of_views = "  - name: views\n    files: [buys.csv]\n";
    vec![
        ("statistics", prices(shop()), Error("`price` is standardize: mean")),
        ("order-statistics", ranks(shop()), Error("`rank` is quantile: 8 order statistics")),
        ("new-category", shop().users("u4,4.5,free", "u4,4.5,max"), Error("feature column `plan=max`")),
        ("no-category", shop().users("free", "pro"), Error("lacks the feature column `plan=free`")),
        ("renamed-category", shop().users("free", "gratis"), Error("lacks the feature column `plan=free`")),
        ("ordinal", shop().users("top", "zenith"), Error("`level` is ordinal: 3 categories")),
        ("multi-hot", shop().users("red blue", "red green"), Error("feature column `tags=green`")),
        ("missing-values", shop().users("u3,3.5,", "u3,,"), Error("feature column `score=missing`")),
        (
            "max-categories",
            shop().spec("{one_hot: {max_categories: 10}}", "{one_hot: {max_categories: 1}}"),
            Error("lacks the feature column `plan=pro`"),
        ),
        ("unit", shop().spec("unit: seconds", "unit: milliseconds"), Error("time, integers in milliseconds")),
        ("part-of-time", shop().spec("parts: [month]", "parts: [hour]"), Error("feature column `joined")),
        (
            "transform",
            shop().spec("{column: score, transform: numeric}", "{column: score, transform: standardize}"),
            Error("`score` is standardize"),
        ),
        (
            "hash-width",
            shop().spec("hash: {columns: 3}", "hash: {columns: 4}"),
            Error("`maker` is hash in 4 columns, and was hash in 3 columns"),
        ),
        (
            "n-grams",
            shop().spec("min_n: 1, max_n: 1", "min_n: 1, max_n: 2"),
            Error("`about` is text: 1 to 2 word"),
        ),
        (
            "vector-width",
            shop().spec("{vector: {columns: 2, separator: ' '}}", "numeric").clone().with_numbers(),
            Error("`shape` is numeric"),
        ),
        (
            "renamed-column",
            Shop {
                users: shop().users.replace("score", "points"),
                ..shop().spec("column: score", "column: points")
            },
            Error("lacks the feature column `score`"),
        ),
        ("fewer-columns", shop().spec(score, ""), Error("lacks the feature column `score`")),
        (
            "more-columns",
            shop().spec(score, &format!("{score}      - {{column: score, transform: quantile}}\n")),
            Error("the data has the feature column `score`"),
        ),
        ("order-of-columns", reordered, Same),
        ("order-of-categories", frequent, Same),
        ("fewer-classes", shop().users(",a,", ",,"), Same),
        (
            "renamed-class",
            shop().users(",c,", ",new,"),
            SameWithNote("classes that training did not have (`new`)"),
        ),
        (
            "class-before",
            shop().users(
                "u23,23.5,pro,top,blue,word3 text,1669000000,c",
                "u23,23.5,pro,top,blue,word3 text,1669000000,aa",
            ),
            SameWithNote("1 label of classes that training did not have (`aa`)"),
        ),
        (
            "node-type",
            Shop { ..shop().spec("name: user", "name: person").spec("type: user", "type: person") },
            Error("the node types"),
        ),
        ("relation", shop().spec("name: buys", "name: orders"), Error("relations")),
        ("reverse", shop().spec("reverse: bought by", "reverse: sold to"), Error("relations")),
        (
            "weights",
            shop().spec("    weight: amount\n", ""),
            Error("`buys` have no weights, but had some in training"),
        ),
        (
            "more-weights",
            shop().spec(weights_of_views, &format!("{weights_of_views}    weight: amount\n")),
            Error("`views` have weights, but had none in training"),
        ),
    ]
}

impl Shop {
    /// Returns the shop with one number instead of the shape of an item.
    fn with_numbers(mut self) -> Self {
        for item in 0..N_ITEMS {
            self.items = self.items.replace(&format!(",{item} {}\n", 8 - item), &format!(",{item}\n"));
        }
        self
    }
}

/// Checks that the rows of users with a class are those of the training data: the name, the number of the class in training and
/// the prediction.
fn check_classes(own: &str, of_variant: &str, name: &str) {
    let lines: Vec<&str> = of_variant.lines().skip(1).collect();
    let labelled = lines.iter().filter(|line| !line.rsplit(',').nth(1).unwrap().is_empty());
    let known: Vec<&&str> = labelled.collect();
    assert!(12 < known.len(), "{name}: {of_variant}");
    for line in known {
        assert!(own.lines().any(|other| other == *line), "{name}: {line}");
    }
}

#[test]
fn data_of_another_meaning_is_mapped_noted_or_an_error() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = Shop::new().import(root, "shop");
    let flags = format!(
        "--data {set} --layers 2 --fanouts all,all --hidden 4 --epochs 2 --batch-size 4 --edge-weighting normalize"
    );
    let run = train(root, &flags);
    let predict = |set: &str, out: &Path| -> Vec<String> {
        ["predict", "--run", &run, "--data", set, "--nodes", "all", "--out", out.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec()
    };
    let own = root.join("own");
    let flags = predict(&set, &own);
    succeeds(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let own_rows = ["scores.csv", "predictions.csv"].map(|file| text(&own.join(file)));
    let check = |out: &Path, name: &str| {
        let scores = text(&out.join("scores.csv"));
        assert!(scores.starts_with(&own_rows[0]), "{name}");
    };
    for (name, shop, expected) in variants() {
        let set = shop.import(root, name);
        let out = root.join(format!("{name}-out"));
        let flags = predict(&set, &out);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        match expected {
            Error(text) => {
                let said = fails(&flags);
                assert!(said.contains(text), "{name}: {said}");
            }
            Same => {
                let printed = succeeds(&flags);
                assert!(!printed.contains("note:"), "{name}: {printed}");
                check(&out, name);
                check_classes(&own_rows[1], &text(&out.join("predictions.csv")), name);
            }
            SameWithNote(note) => {
                let printed = succeeds(&flags);
                assert!(printed.contains(note), "{name}: {printed}");
                check(&out, name);
            }
        }
    }
}
