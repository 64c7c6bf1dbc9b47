//! Tests of `--fanouts`: its default follows `--layers`, predictions accept the lists of training, and all commands begin at
//! the input layer; and of the note on few steps per epoch.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::data::{format, synthetic};

use crate::distributed_sage::{Learned, command, text};

fn output(subcommand: &str, flags: &str) -> (bool, String) {
    let output = command(subcommand, flags).output().unwrap();
    (output.status.success(), text(&output))
}

/// Trains into a new folder with this name. Returns its path and what was printed.
fn train(root: &Path, name: &str, flags: &str) -> (String, String) {
    let out = root.join(name).to_str().unwrap().to_owned();
    let (is_done, printed) = output("train", &format!("--hidden 8 --epochs 1 {flags} --out {out}"));
    assert!(is_done, "{flags}: {printed}");
    (out, printed)
}

fn refused(subcommand: &str, flags: &str, expected: &str) {
    let (is_done, printed) = output(subcommand, flags);
    assert!(!is_done && printed.contains(expected) && !printed.contains("panicked"), "{flags}: {printed}");
}

/// Writes a heterogeneous set with the relations `rates`, `rated-by` and `with`.
fn shop(root: &Path) -> String {
    let path = root.join("shop");
    format::write(&crate::typed::data(), &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn default_fanouts_follow_the_layers_and_fanouts_set_the_layers() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let shop = format!("--data {}", shop(root));
    for data in ["--data fake:300", &shop] {
        let name = data.split(['/', ' ', ':']).next_back().unwrap();
        let hash = |of: &str, flags: &str| {
            let (out, _) = train(root, &format!("{name}-{of}"), &format!("{data} --batch-size 64 {flags}"));
            let config = fs::read_to_string(Path::new(&out).join("config.json")).unwrap();
            let fanouts = serde_json::from_str::<serde_json::Value>(&config).unwrap()["fanouts"].clone();
            (Learned::of(Path::new(&out)).weights_hash, fanouts.as_str().unwrap().to_owned())
        };
        for (n_layers, fanouts) in [(1, "10"), (2, "10,10"), (3, "10,10,10"), (4, "10,10,10,10")] {
            let default = hash(&format!("default-{n_layers}"), &format!("--layers {n_layers}"));
            assert_eq!(default.1, fanouts);
            assert_eq!(hash(&format!("given-{n_layers}"), &format!("--fanouts {fanouts}")), default);
        }
        assert_eq!(hash("plain", "").1, "10,10,10");
        refused(
            "train",
            &format!("{data} --layers 2 --fanouts 10,10,10"),
            "--fanouts has 3 values for --layers 2",
        );
    }
}

#[test]
fn predictions_accept_fanouts_of_relations() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = shop(root);
    let (run, _) = train(root, "run", &format!("--data {set} --fanouts 4,4;with=3,2 --batch-size 64"));
    let predict = |name: &str, flags: &str| {
        let out = root.join(name);
        let flags =
            format!("--run {run} --data {set} --nodes all --format npy --out {} {flags}", out.display());
        let (is_done, printed) = output("predict", &flags);
        assert!(is_done, "{flags}: {printed}");
        fs::read(out.join("scores.npy")).unwrap()
    };
    let sampled = "--mode sampled --seed 0 --fanouts";
    let as_evaluated = predict("as-evaluated", "");
    assert_eq!(predict("same", &format!("{sampled} 4,4;with=3,2")), as_evaluated);
    assert_eq!(predict("by-name", &format!("{sampled} with=3,2;rates=4;rated-by=4,4")), as_evaluated);
    assert_eq!(predict("repeated", &format!("{sampled} 4;with=3,2")), as_evaluated);
    assert_ne!(predict("other", &format!("{sampled} 4,4")), as_evaluated);
    let flags = format!("--run {run} --data {set} --out {}/none {sampled}", root.display());
    refused("predict", &format!("{flags} 4,4;sells=1,1"), "no relation `sells`");
    refused("predict", &format!("{flags} with=1,1"), "there are no fanouts for the relation `rates`");
    refused("predict", &format!("{flags} 4,4;with=1,1,1"), "the relation `with` has 3 fanouts, expected 2");
    let (of_one_type, _) = train(root, "one-type", "--data fake:300 --fanouts 4,4 --batch-size 64");
    let flags = format!("--run {of_one_type} --data fake:300 --out {}/none {sampled}", root.display());
    refused("predict", &format!("{flags} 4,4;with=1,1"), "the fanouts name the relation `with`");
}

/// The cache of partitions is that of training with the same flag.
#[test]
fn partitions_are_presampled_from_the_input_layer() {
    use kiln::partition::{CacheConfig, Method, PartitionBook, PartitionMeta, partition_nodes, write_parts};
    use kiln::sample::Fanout;

    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let data = synthetic::fake(synthetic::FakeConfig { avg_num_nodes: 400, ..Default::default() }).unwrap();
    format::write(&data, root.join("set")).unwrap();
    let data = kiln::data::open(root.join("set")).unwrap();
    let parts = root.join("parts");
    let flags = format!("partition {} --method random --cache-ratio 0.1", root.join("set").display());
    let (is_done, printed) =
        output("data", &format!("{flags} --fanouts 1,7 --batch-size 8 --out {}", parts.display()));
    assert!(is_done, "{printed}");
    assert!(printed.contains("note: --fanouts begins at the input layer"), "{printed}");
    let assigned =
        partition_nodes(data.csc().unwrap(), &data.training_nodes().unwrap(), 2, Method::Random, 0).unwrap();
    let book = PartitionBook::from_parts(&assigned, 2).unwrap();
    let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
    let written = |name: &str, fanouts: [u32; 2]| {
        let fanouts = fanouts.map(Fanout::UpTo).to_vec();
        let cache = CacheConfig { ratio: 0.1, fanouts, batch_size: 8, seed: 0 };
        write_parts(&data, &book, &meta, Some(&cache), root.join(name)).unwrap();
        cached(&root.join(name))
    };
    let by_input = written("by-input", [1, 7]);
    assert_eq!(cached(&parts), by_input);
    assert_ne!(written("by-seeds", [7, 1]), by_input);
}

/// Returns the files of the caches of two partitions.
fn cached(parts: &Path) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for part in 0..2 {
        let entries = fs::read_dir(parts.join(format!("part{part}"))).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.file_name().unwrap().to_str().unwrap().contains("cache")).collect();
        paths.sort();
        files.extend(paths.iter().map(|path| fs::read(path).unwrap()));
    }
    assert!(!files.is_empty(), "the partitions have no caches");
    files
}

#[test]
fn few_steps_per_epoch_have_a_note() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let note = "note: an epoch has ";
    let data = format!("--data {} --layers 2", shop(root));
    for (name, data) in
        [("plain", "--data fake:300 --layers 2"), ("typed", &*data), ("graphs", "--data mutag")]
    {
        let (out, printed) = train(root, name, &format!("{data} --batch-size 100"));
        assert_eq!(printed.matches(note).count(), 1, "{printed}");
        assert!(printed.contains("a batch size of 8 instead of 100 makes"), "{printed}");
        let (_, printed) = train(root, &format!("{name}-more"), &format!("{data} --batch-size 4"));
        assert!(!printed.contains(note), "{printed}");
        // A resumed run cannot change its batches.
        let (is_done, printed) =
            output("train", &format!("--hidden 8 --epochs 2 {data} --batch-size 100 --resume {out}"));
        assert!(is_done && !printed.contains(note), "{printed}");
    }
    let (_, printed) = train(root, "json", "--data fake:300 --layers 2 --batch-size 100 --log-format json");
    assert_eq!(printed.matches(note).count(), 1, "{printed}");
}
