//! Tests of `kiln train --model gat`, `gatv2`, `transformer`, `rgcn` and `gine`, and of predictions by these models: results that do not depend
//! on threads, interruptions, ranks and partitions, and the errors for unsuitable data and flags.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln::graph::{EdgeColumn, Relations};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln::data::synthetic::{FakeConfig, fake};
use kiln::prelude::*;

use crate::distributed_sage::{Learned, Server, command, text as printed};
use crate::predict::{fails, succeeds, text, train};
use crate::predict_answers::without_names;
use crate::predict_ranks::{predicted, write};

const FLAGS: &str = "--hidden 16 --fanouts 4,4 --dropout 0.2";

const MODELS: [(&str, &str); 5] = [
    ("gat", "--model gat --heads 2 --attention-dropout 0.3"),
    ("gatv2", "--model gatv2 --output-heads 3 --norm layer"),
    ("transformer", "--model transformer --heads 2 --output-heads 2 --attention-dropout 0.3 --norm layer"),
    ("rgcn", "--model rgcn --bases 2 --jumping max"),
    ("gine", "--model gine --learn-epsilon --norm layer --residual --jumping cat"),
];

/// Returns a set of about 500 nodes whose edges have 5 types.
fn data() -> Dataset {
    let config = FakeConfig { avg_num_nodes: 500, num_channels: 16, seed: 3, ..Default::default() };
    let data = fake(config).unwrap();
    let types: Vec<u8> = (0..data.graph.n_edges()).map(|edge| (edge % 5) as u8).collect();
    let graph = (**data.csc().unwrap()).clone().with_edge_types(types.into()).unwrap();
    Dataset { graph: graph.into(), ..data }
}

/// Trains into a new folder `out`.
fn run(root: &Path, flags: &str, out: &str) -> Learned {
    let out = root.join(out);
    let output = command("train", &format!("{FLAGS} {flags} --out {}", out.display())).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", printed(&output));
    Learned::of(&out)
}

#[test]
fn weights_do_not_depend_on_threads_and_interruptions_and_agree_on_two_ranks() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let [set, _] = write(&data(), 1, root, "set");
    let with_features = root.join("with-features");
    kiln::data::format::write(&with_edge_features(data()), &with_features).unwrap();
    let of_features = ("gine-features", "--model gine", with_features.to_str().unwrap());
    let of_models = MODELS.map(|(name, model)| (name, model, set.as_str()));
    for (name, model, set) in of_models.into_iter().chain([of_features]) {
        let flags = format!("--data {set} {model}");
        let of_one = "--batch-size 64 --workers 1 --threads-per-rank 1";
        let whole = run(root, &format!("{flags} {of_one} --epochs 2"), name);
        let of_two = "--batch-size 64 --workers 2 --threads-per-rank 2";
        let threads = run(root, &format!("{flags} {of_two} --epochs 2"), &format!("{name}-threads"));
        assert_eq!(threads.weights_hash, whole.weights_hash, "{name}");
        let resumed = format!("{name}-resumed");
        run(root, &format!("{flags} {of_one} --epochs 1"), &resumed);
        let folder = root.join(&resumed);
        let more = format!("{FLAGS} {flags} {of_one} --epochs 2 --resume {}", folder.display());
        let output = command("train", &more).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
        let resumed = Learned::of(&folder);
        assert_eq!(
            (resumed.weights_hash, resumed.losses),
            (whole.weights_hash.clone(), whole.losses.clone())
        );
        let ranks = run(root, &format!("{flags} --batch-size 32 --ranks 2 --epochs 2"), &format!("{name}-2"));
        ranks.check_close(&whole);
    }
}

#[test]
fn predictions_are_those_of_the_run_byte_for_byte() {
    let root = tempfile::tempdir().unwrap();
    let [set, _] = write(&data(), 1, root.path(), "set");
    let exact = "--eval exact --standardize true";
    for (name, model) in MODELS {
        for (eval, flags) in [("sampled", "--ranks 2 --symmetrize"), ("exact", exact)] {
            let folder = root.path().join(format!("{name}-{eval}"));
            fs::create_dir(&folder).unwrap();
            let run = train(&folder, &format!("--data {set} {FLAGS} {model} {flags} --epochs 1"));
            let files = predicted(&folder, &run, &format!("--data {set}"));
            let expected = text(&Path::new(&run).join("test_predictions.csv"));
            assert!(files["predictions.csv"] == expected.as_bytes(), "{name} {eval}");
        }
    }
}

#[test]
fn rgcn_has_the_10_relations_of_debian_packages() {
    let root = tempfile::tempdir().unwrap();
    let flags = "--model rgcn --hidden 8 --fanouts 3,3 --batch-size 4096 --epochs 1 --bases 3";
    let run = train(root.path(), flags);
    let info: serde_json::Value = serde_json::from_str(&text(&Path::new(&run).join("model.json"))).unwrap();
    assert_eq!((&info["config"]["n_relations"], &info["config"]["n_bases"]), (&10.into(), &3.into()));
    let config = text(&Path::new(&run).join("config.json"));
    assert!(config.contains("\"bases\": \"3\"") && config.contains("\"model\": \"rgcn\""), "{config}");
    let files = predicted(root.path(), &run, "--data debian-packages");
    let expected = text(&Path::new(&run).join("test_predictions.csv"));
    // Predictions also have the names of packages, which have no commas.
    let predictions = std::str::from_utf8(&files["predictions.csv"]).unwrap();
    assert!(without_names(predictions) == expected);
}

/// Returns the set with two columns of features for each edge.
fn with_edge_features(data: Dataset) -> Dataset {
    let rows = (0..2 * data.graph.n_edges()).map(|i| (i * 7 % 23) as f32 / 23.0);
    let rows = EdgeColumn::new(rows.collect::<Vec<f32>>(), 2).unwrap();
    data.with_edge_column(0, "features", rows).unwrap()
}

#[test]
fn gine_reads_the_edge_features_of_the_data() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let with_features = root.join("with-features");
    kiln::data::format::write(&with_edge_features(data()), &with_features).unwrap();
    let set = with_features.to_str().unwrap();
    for (eval, flags) in [("sampled", "--ranks 2"), ("exact", "--eval exact")] {
        let folder = root.join(eval);
        fs::create_dir(&folder).unwrap();
        let run = train(&folder, &format!("--data {set} {FLAGS} --model gine {flags} --epochs 1"));
        let info: serde_json::Value =
            serde_json::from_str(&text(&Path::new(&run).join("model.json"))).unwrap();
        assert_eq!(info["config"]["edges"], serde_json::json!({ "features": 2 }));
        assert_eq!(info["inputs"]["sampling"]["edge_features"], 2);
        let files = predicted(&folder, &run, &format!("--data {set}"));
        let expected = text(&Path::new(&run).join("test_predictions.csv"));
        assert!(files["predictions.csv"] == expected.as_bytes(), "{eval}");
    }
    // A model that does not read the features may add edges without them.
    run(root, &format!("--data {set} --model sage --symmetrize --epochs 1"), "sage");
}

/// Links exclude the edges of their batch, whose features must not be read, and use the graph of the split.
#[test]
fn the_place_of_batches_does_not_change_results_of_gine_with_edge_features() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = root.join("with-features");
    kiln::data::format::write(&with_edge_features(data()), &set).unwrap();
    let of_features = format!("--data {} --model gine --edge-input features --epochs 2", set.display());
    let links = "--task link --embedding 8 --eval-negatives 5 --exclude reverses";
    for (task, flags) in [("nodes", "--batch-size 64 --ranks 2"), ("links", links)] {
        let trained = |mode: &str| {
            let out = format!("{task} {mode}").replace(' ', "_");
            let learned = run(root, &format!("{of_features} {flags} --graph-mode {mode}"), &out);
            let metrics = text(&root.join(&out).join("test_predictions.csv"));
            (learned.weights_hash, learned.losses, metrics)
        };
        let expected = trained("cpu");
        for mode in ["device", "zero-copy", "device --feature-cache 10KiB"] {
            assert!(trained(mode) == expected, "{task} {mode}");
        }
    }
}

#[test]
fn partitions_train_the_weights_of_the_whole_graph_and_predict_like_it() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let [set, typed] = write(&data(), 2, root, "set");
    let [featured, of_featured] = write(&with_edge_features(data()), 2, root, "featured");
    let looped_featured = root.join("looped-featured").to_str().unwrap().to_owned();
    succeeds(&[
        "data",
        "partition",
        &featured,
        "--parts",
        "2",
        "--add-self-loops",
        "--out",
        &looped_featured,
    ]);
    let looped = root.join("looped").to_str().unwrap().to_owned();
    succeeds(&["data", "partition", &set, "--parts", "2", "--add-self-loops", "--out", &looped]);
    let typed = [&looped, &looped, &typed, &typed, &typed];
    let of_types = MODELS.into_iter().zip(typed).map(|((name, model), parts)| (name, model, &set, parts));
    let of_features = [
        ("gine-features", "--model gine --residual"),
        // Models that do not read the features.
        ("gine-types-of-featured", "--model gine --edge-input types"),
        ("sage-of-featured", "--model sage"),
    ]
    .map(|(name, model)| (name, model, &featured, &of_featured));
    let asked = [
        ("gatv2-features", "--model gatv2 --edge-input features", &featured, &looped_featured),
        ("rgcn-features", "--model rgcn --edge-input features", &featured, &of_featured),
    ];
    for (name, model, set, parts) in of_types.chain(of_features).chain(asked) {
        let flags = format!("{model} --batch-size 32 --ranks 2 --epochs 1");
        let whole = run(root, &format!("--data {set} {flags}"), &format!("{name}-whole"));
        let servers = Server::all(Path::new(parts), 2);
        let flags_of_servers = format!("{flags} {}", Server::flags(&servers));
        let of_servers = run(root, &flags_of_servers, &format!("{name}-servers"));
        assert_eq!(of_servers.weights_hash, whole.weights_hash, "{name}");
        drop(servers);
        let of_parts = format!("--parts {parts} --host 127.0.0.1 --ranks 2");
        let workers = format!("{model} --batch-size 32 --epochs 1 {of_parts}");
        run(root, &workers, &format!("{name}-workers")).check_close(&whole);
        for from in ["whole", "servers"] {
            let model = root.join(format!("{name}-{from}")).to_str().unwrap().to_owned();
            let expected = predicted(root, &model, &format!("--data {set}"));
            assert!(expected == predicted(root, &model, &of_parts), "{name} {from}");
        }
    }
}

#[test]
fn encoders_of_links_train_and_predict_all_links() {
    let root = tempfile::tempdir().unwrap();
    let [set, _] = write(&data(), 1, root.path(), "set");
    for (name, model) in MODELS {
        let flags = format!("--task link --data {set} --embedding 8 --epochs 1 --eval exact {model}");
        let one = run(root.path(), &format!("{flags} --workers 1 --threads-per-rank 1"), name);
        let two =
            run(root.path(), &format!("{flags} --workers 2 --threads-per-rank 2"), &format!("{name}-2"));
        assert_eq!(one.weights_hash, two.weights_hash, "{name}");
        let run = root.path().join(name);
        let csv = text(&run.join("test_predictions.csv"));
        let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
        assert!(!rows.is_empty());
        let pairs = root.path().join("pairs.csv");
        let lines: String = rows.iter().map(|row| format!("{},{}\n", row[1], row[2])).collect();
        fs::write(&pairs, format!("source,destination\n{lines}")).unwrap();
        // Messages of the predictions pass over the links of the validation and the test, too, so scores differ.
        let files = predicted(
            root.path(),
            run.to_str().unwrap(),
            &format!("--data {set} --pairs {}", pairs.display()),
        );
        assert_eq!(files["links.csv"].iter().filter(|&&byte| byte == b'\n').count(), rows.len() + 1);
    }
}

#[test]
fn links_of_partitions_with_self_loops_train_the_weights_of_the_whole_graph() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let [set, _] = write(&data(), 1, root, "set");
    let [featured, _] = write(&with_edge_features(data()), 1, root, "featured");
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let [split, featured_split] = [(&set, "split"), (&featured, "featured-split")].map(|(set, name)| {
        succeeds(&["data", "split-links", set, "--out", &path(name)]);
        path(name)
    });
    let [looped, typed, of_featured, looped_of_featured] = [
        (&split, "looped", &["--add-self-loops"][..]),
        (&split, "typed", &[]),
        (&featured_split, "of-featured", &[]),
        (&featured_split, "looped-of-featured", &["--add-self-loops"]),
    ]
    .map(|(split, name, flags)| {
        succeeds(&[&["data", "partition", split, "--parts", "1", "--out", &path(name)], flags].concat());
        path(name)
    });
    let parts = [&looped, &looped, &typed, &typed, &typed];
    let of_types = MODELS.into_iter().zip(parts).map(|((name, model), parts)| (name, model, &split, parts));
    let of_features = [
        ("gine-features", "--model gine", &featured_split, &of_featured),
        // Loops have no features, so partitions with loops have none. Attention does not read them.
        ("gat-of-featured", "--model gat", &featured_split, &looped_of_featured),
        ("gine-features-device", "--model gine --graph-mode device", &featured_split, &of_featured),
    ];
    for (name, model, split, parts) in of_types.chain(of_features) {
        let flags = format!("--task link --data {split} --embedding 8 --epochs 1 {model}");
        let whole = run(root, &flags, name);
        let of_parts = format!("{flags} --parts {parts} --host 127.0.0.1");
        let of_parts = run(root, &of_parts, &format!("{name}-parts"));
        assert_eq!(of_parts.weights_hash, whole.weights_hash, "{name}");
    }
    // Servers leave out the edges of a batch's links, and the others have remote rows.
    let flags = "--task link --embedding 8 --epochs 1 --model gine";
    let two = path("two-of-featured");
    succeeds(&["data", "partition", &featured_split, "--parts", "2", "--out", &two]);
    let servers = Server::all(Path::new(&two), 2);
    let of_servers = format!("{flags} --data {featured_split} {}", Server::flags(&servers));
    let of_servers = run(root, &of_servers, "gine-features-servers");
    assert_eq!(of_servers.weights_hash, Learned::of(&root.join("gine-features")).weights_hash);
}

#[test]
fn errors_name_the_flag_and_the_unsuitable_data() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let [typed, parts] = write(&data(), 1, root, "typed");
    let plain = fake(FakeConfig { avg_num_nodes: 100, num_channels: 16, ..Default::default() }).unwrap();
    let [_, plain_parts] = write(&plain, 1, root, "plain");
    let of_parts = |parts: &str| format!("--parts {parts} --host 127.0.0.1");
    let out = root.join("out");
    for (flags, expected) in [
        ("--data sbm --heads 2", "--heads requires --model gat, gatv2, transformer or hgt"),
        ("--data sbm --model rgcn --output-heads 2", "require --model gat, gatv2 or transformer"),
        ("--data sbm --model gat --bases 2", "--bases requires --model rgcn"),
        ("--data sbm --model gat --heads 3", "expected a multiple of the 3 attention heads"),
        ("--data sbm --model gat --weight-init pyg", "--weight-init requires --model sage"),
        (
            "--data sbm --model gat --rule uniform",
            "--rule requires --model sage, transformer, rgcn, hgt or gine: gcn, gat and gatv2 always",
        ),
        ("--data sbm --model gat --jumping cat --output-heads 2", "--output-heads does not apply"),
        ("--data sbm --model rgcn", "--model rgcn needs data with edge types"),
        ("--data sbm --model gine", "--model gine needs data with edge features or edge types"),
        (
            "--data sbm --model gat --mlp-layers 3",
            "--mlp-layers and --learn-epsilon require --model gin or gine",
        ),
        (
            "--data sbm --model gatv2 --edge-input features",
            "the model gatv2 cannot read edge features, which the edges of the data do not have",
        ),
        (
            "--data sbm --model gat --edge-input features",
            "--model gat does not read the edge features of such data",
        ),
        ("--data mutag --model gat", "use gin or simplified for graphs"),
        ("--data mutag --heads 2", "--heads does not apply to training on graphs"),
        (
            &format!("{} --model gine --edge-input features", of_parts(&parts)),
            "--model gine needs data with edge features",
        ),
        (&format!("{} --model gcn", of_parts(&parts)), "--model gcn normalises over the whole graph"),
        (
            &format!("{} --model gat", of_parts(&parts)),
            "partition the dataset again with `kiln data partition",
        ),
        (&format!("{} --model rgcn", of_parts(&plain_parts)), "--model rgcn needs data with edge types"),
    ] {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let error = fails(&[&["train", "--out", out.to_str().unwrap()], &flags[..]].concat());
        assert!(error.contains(expected), "{flags:?}: {error}");
        assert!(!error.contains("panicked") && !out.exists(), "{flags:?}: {error}");
    }
    // Predictions on data with other edge types, or without.
    let run = train(root, &format!("--data {typed} {FLAGS} --model rgcn --epochs 1"));
    let graph = (**data().csc().unwrap()).clone();
    let types: Vec<u8> = (0..graph.n_edges()).map(|edge| (edge % 6) as u8).collect();
    let graph = Relations::of_graph(graph.with_edge_types(types.into()).unwrap());
    let more = Dataset { graph: Arc::new(graph), ..data() };
    let [more, more_parts] = write(&more, 1, root, "more");
    for (flags, expected) in [
        (format!("--data {more}"), "the graph has 6 edge types, but the model was trained with 5 relations"),
        (of_parts(&more_parts), "the graph has 6 edge types, but the model was trained with 5 relations"),
        (of_parts(&plain_parts), "the edge types of the graph are missing or unknown"),
    ] {
        let words: Vec<&str> = flags.split(' ').collect();
        let error =
            fails(&[&["predict", "--run", &run, "--out", out.to_str().unwrap()], &words[..]].concat());
        assert!(error.contains(expected), "{flags}: {error}");
    }
    // Partitions without self loops cannot serve a GAT, which was trained with them.
    fs::remove_dir_all(&run).unwrap();
    let run = train(root, &format!("--data {typed} {FLAGS} --model gat --epochs 1"));
    let words = ["--parts", &parts, "--host", "127.0.0.1"];
    let error = fails(&[&["predict", "--run", &run, "--out", out.to_str().unwrap()], &words[..]].concat());
    assert!(error.contains("adding self loops needs the whole graph"), "{error}");
}
