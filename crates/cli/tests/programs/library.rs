//! One identity of a run for `kiln train` and the library, on whole and on partitioned graphs: either resumes a run that the
//! other began, with the weights of an uninterrupted run.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::GraphSource;
use kiln::data::{format, recorded_hash, synthetic};
use kiln::nn::WeightInit;
use kiln::prelude::*;
use serde_json::Value;

use crate::distributed_sage::{Data, Learned as Losses};
use crate::predict::{fails, succeeds};

/// The flags of all runs on nodes and links.
const FLAGS: &str = "--fanouts 3,2 --hidden 8 --batch-size 64 --threads-per-rank 1";

/// The number of epochs of an uninterrupted run.
const N_EPOCHS: usize = 3;

/// Runs `kiln train`. `folder` is `--out` or `--resume`, and the path.
fn program(flags: &str, n_epochs: usize, folder: [&str; 2]) -> String {
    let n_epochs = n_epochs.to_string();
    let mut words = vec!["train", "--epochs", &n_epochs];
    words.extend(folder);
    words.extend(flags.split_whitespace());
    succeeds(&words)
}

/// Trains with the library on one thread.
fn library<C: ModelConfig, L: DataLoader<C::Model>>(
    model: &C,
    learning_rate: f64,
    loader: &L,
    config: FitConfig,
) {
    Trainer::new(model.clone(), AdamConfig::new(learning_rate)).fit(loader, config.quiet()).unwrap();
}

/// The weights of the best epoch and the metrics of each epoch, without times and memory.
#[derive(Debug, PartialEq)]
struct Learned {
    weights_hash: String,
    metrics: Vec<Value>,
}

impl Learned {
    fn open(folder: &Path) -> Self {
        let metrics = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        let row = |line: &str| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            row.as_object_mut().unwrap().retain(|name, _| !name.contains("second") && !name.contains("rss"));
            row
        };
        Self {
            weights_hash: kiln::store::sha256(&fs::read(folder.join("best.safetensors")).unwrap()),
            metrics: metrics.lines().map(row).collect(),
        }
    }
}

/// Compares the runs of the program and of the library, alone and after each other. `library` trains with the settings of the
/// flags.
fn check(flags: &str, library: impl Fn(FitConfig)) {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let [whole, by_library, begun, finished] = ["whole", "by-library", "begun", "finished"].map(path);
    program(flags, N_EPOCHS, ["--out", &whole]);
    let expected = Learned::open(whole.as_ref());
    assert_eq!(expected.metrics.len(), N_EPOCHS);
    library(FitConfig::epochs(N_EPOCHS).out(&by_library));
    assert_eq!(Learned::open(by_library.as_ref()), expected, "{flags}");
    program(flags, 1, ["--out", &begun]);
    library(FitConfig::epochs(N_EPOCHS).resume(&begun));
    assert_eq!(Learned::open(begun.as_ref()), expected, "{flags}: begun by the program");
    library(FitConfig::epochs(1).out(&finished));
    let printed = program(flags, N_EPOCHS, ["--resume", &finished]);
    assert!(printed.contains("resumed after 1 epochs"), "{printed}");
    assert_eq!(Learned::open(finished.as_ref()), expected, "{flags}: begun by the library");
}

/// Writes a dataset of one type of nodes to a folder.
fn write_plain(root: &Path) -> String {
    let config = synthetic::FakeConfig { avg_num_nodes: 300, num_channels: 16, ..Default::default() };
    let path = root.join("plain");
    format::write(&synthetic::fake(config).unwrap(), &path).unwrap();
    path.to_str().unwrap().to_owned()
}

fn write_typed(root: &Path) -> String {
    let path = root.join("shop");
    format::write(&crate::typed::data(), &path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns the graph of a dataset in a folder, with the hash of its manifest, by which `kiln train` identifies it.
fn source(data: impl Into<GraphSource>, path: &str) -> GraphSource {
    data.into().with_hash(recorded_hash(path).unwrap().unwrap())
}

#[test]
fn runs_on_nodes_are_resumed_by_the_other() {
    let root = tempfile::tempdir().unwrap();
    let path = write_plain(root.path());
    let data = Dataset::open(&path).unwrap();
    let loader = NeighborLoader::new(source(&data, &path), [3, 2]).batch_size(64);
    let model = SageConfig::for_data(&data).layers(2).hidden(8);
    check(&format!("--data {path} {FLAGS}"), |config| library(&model, 0.003, &loader, config));
    // The program trains on the scaled data, not on the data in the folder.
    let data = data.standardize().unwrap();
    let loader = NeighborLoader::new(&data, [3, 2]).batch_size(64);
    check(&format!("--data {path} --standardize true {FLAGS}"), |config| {
        library(&model, 0.003, &loader, config);
    });
}

#[test]
fn runs_on_links_are_resumed_by_the_other() {
    let root = tempfile::tempdir().unwrap();
    let path = write_plain(root.path());
    let data = Dataset::open(&path).unwrap();
    let config = LinkSplitConfig { val: 0.05, test: 0.1, ..Default::default() };
    let split = LinkSplit::of_dataset(&data, &config, 0).unwrap();
    let nodes = NeighborLoader::new(source(&data, &path), [3, 2]).batch_size(64);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let encoder = SageConfig { weight_init: WeightInit::Pyg, ..SageConfig::new(16, 8).layers(2).hidden(8) };
    let model = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
    check(&format!("--task link --embedding 8 --data {path} {FLAGS}"), |config| {
        library(&model, 0.003, &loader, config);
    });
}

#[test]
fn runs_on_heterogeneous_graphs_are_resumed_by_the_other() {
    let root = tempfile::tempdir().unwrap();
    let path = write_typed(root.path());
    let data = Dataset::open(&path).unwrap();
    let rgcn = |n_outputs| {
        let config = RgcnConfig::new(8, n_outputs, data.graph.n_relations()).layers(2).hidden(8);
        HeteroModelConfig::new(data.dims(), config)
    };
    let flags = format!("--model rgcn --data {path} {FLAGS}");
    let nodes = NeighborLoader::new(source(&data, &path), [3, 2]).batch_size(64);
    check(&flags, |config| library(&rgcn(3), 0.003, &nodes, config));
    let config = LinkSplitConfig { val: 0.05, test: 0.1, ..Default::default() };
    let split = LinkSplit::random_relation(&data.graph, "rates", Some("rated-by"), &config, 0).unwrap();
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let model = LinkModelConfig { encoder: rgcn(8), decoder: LinkDecoderConfig::Dot };
    let flags = format!("--task link --relation rates --reverse-relation rated-by --embedding 8 {flags}");
    check(&flags, |config| library(&model, 0.003, &loader, config));
}

#[test]
fn runs_on_graphs_are_resumed_by_the_other() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0).unwrap();
    let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(32);
    let model = GinConfig::paper(features.dim(), 64, graphs.labels().n_classes());
    check("--data mutag --threads-per-rank 1", |config| library(&model, 0.01, &loader, config));
}

/// Sums over two ranks round differently.
#[test]
fn a_run_on_the_whole_graph_is_resumed_on_its_partitions() {
    let data = Data::of(500);
    let path = |name: &str| data.path(name).to_str().unwrap().to_owned();
    let [whole, parts, begun, expected] = ["whole", "parts", "begun", "expected"].map(path);
    let flags = "--fanouts 4,6 --hidden 16 --threads-per-rank 1";
    let on_whole = format!("{flags} --data {whole} --batch-size 128");
    program(&on_whole, 2, ["--out", &expected]);
    program(&on_whole, 1, ["--out", &begun]);
    let on_parts = format!("{flags} --parts {parts} --host 127.0.0.1 --ranks 2 --batch-size 64");
    program(&on_parts, 2, ["--resume", &begun]);
    Losses::of(begun.as_ref()).check_close(&Losses::of(expected.as_ref()));
}

/// The run of a program has no flags that the message could name.
#[test]
fn a_run_of_the_library_with_other_settings_is_rejected_with_their_names() {
    let root = tempfile::tempdir().unwrap();
    let path = write_plain(root.path());
    let data = Dataset::open(&path).unwrap();
    let loader = NeighborLoader::new(source(&data, &path), [3, 2]).batch_size(32);
    let model = SageConfig::for_data(&data).layers(2).hidden(8);
    let run = root.path().join("run");
    library(&model, 0.003, &loader, FitConfig::epochs(1).out(&run));
    let flags = format!("train --data {path} {FLAGS} --resume {}", run.display());
    let printed = fails(&flags.split_whitespace().collect::<Vec<_>>());
    assert!(
        printed.contains("the checkpoint belongs to another run: batch size x ranks was 32"),
        "{printed}"
    );
}
