//! Files of runs: `model.json`, the names and the shapes of the weights, and the header of a checkpoint.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kiln::prelude::*;
use kiln_testkit::check_golden;
use serde_json::Value;

use super::{heterogeneous, link_split, plain, relation_split};

const FANOUTS: [u32; 2] = [4, 3];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/frozen/golden").join(name)
}

/// Returns the header of a safetensors file.
fn header(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap();
    let n_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[8..8 + n_bytes]).unwrap()
}

/// Returns the name, type and shape of each tensor of a header, in alphabetical order.
fn tensors(header: &Value) -> String {
    let mut text = String::new();
    for (name, tensor) in header.as_object().unwrap() {
        if name != "__metadata__" {
            writeln!(text, "{name} {} {}", tensor["dtype"].as_str().unwrap(), tensor["shape"]).unwrap();
        }
    }
    text
}

/// Replaces the fields with these names, which depend on the version, the machine or the weights.
fn mask(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if names.contains(&name.as_str()) {
                    *field = Value::from("…");
                }
                mask(field, names);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask(value, names)),
        _ => {}
    }
}

fn masked(mut value: Value, names: &[&str]) -> String {
    mask(&mut value, names);
    serde_json::to_string_pretty(&value).unwrap()
}

/// Trains for one epoch, stopped by a flag after the first step and resumed. Compares the files with the golden one.
fn check<C: ModelConfig>(kind: &str, model: C, loader: &impl DataLoader<C::Model>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let fit =
        |config: FitConfig| Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).fit(loader, config);
    let stop = Arc::new(AtomicBool::new(true));
    let error = fit(FitConfig::epochs(1).out(&out).quiet().stop_flag(stop)).map(drop).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    let checkpoint = header(&out.join("last/checkpoint.safetensors"));
    let run: Value = serde_json::from_str(checkpoint["__metadata__"]["run"].as_str().unwrap()).unwrap();
    fit(FitConfig::epochs(1).resume(&out).quiet()).unwrap();
    let info = fs::read_to_string(out.join("model.json")).unwrap();
    let info = masked(serde_json::from_str(&info).unwrap(), &["kiln", "weights_hash"]);
    let of_weights = tensors(&header(&out.join("best.safetensors")));
    let of_machine = ["provenance", "counts", "timings_ns", "wall_ns", "param_ids", "hashes"];
    let run = masked(run, &of_machine);
    // The entries are bytes, whose numbers depend on the ids of parameters.
    let of_checkpoint: Vec<&String> = checkpoint.as_object().unwrap().keys().collect();
    let text = format!(
        "model.json\n{info}\n\nbest.safetensors\n{of_weights}\ncheckpoint.safetensors {of_checkpoint:?}\n{run}\n"
    );
    check_golden(golden(&format!("{kind}.txt")), &text);
}

#[test]
fn files_of_runs_on_nodes_are_frozen() {
    let data = plain();
    let loader = NeighborLoader::new(&data, FANOUTS).batch_size(64);
    check("nodes", SageConfig::for_data(&data).layers(2).hidden(8), &loader);
}

#[test]
fn files_of_runs_on_heterogeneous_nodes_are_frozen() {
    let data = heterogeneous();
    let loader = NeighborLoader::new(&data, FANOUTS).batch_size(64);
    let loader = loader.relation_fanouts("buys", [2, 2]).unwrap();
    let model = RgcnConfig::new(8, 3, 2).layers(2).hidden(8);
    check("heterogeneous-nodes", HeteroModelConfig::new(data.dims(), model), &loader);
}

#[test]
fn files_of_runs_on_links_are_frozen() {
    let data = plain();
    let nodes = NeighborLoader::new(&data, FANOUTS).batch_size(256);
    let loader = LinkNeighborLoader::new(nodes, &link_split(&data)).unwrap();
    let encoder = SageConfig::new(4, 8).layers(2).hidden(8);
    check("links", LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }, &loader);
}

#[test]
fn files_of_runs_on_links_of_a_relation_are_frozen() {
    let data = heterogeneous();
    let split = relation_split(&data, "buys", Some("bought by"));
    let nodes = NeighborLoader::new(&data, FANOUTS).batch_size(256);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let model = RsageConfig::new(8, 8).metagraph(&data.graph.metagraph()).layers(2).hidden(8);
    let encoder = HeteroModelConfig::new(data.dims(), model);
    let decoder = LinkDecoderConfig::Mlp { hidden: 8, n_layers: 2, dropout: 0.0 };
    check("heterogeneous-links", LinkModelConfig { encoder, decoder }, &loader);
}

#[test]
fn files_of_runs_on_graphs_are_frozen() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.1], 0).unwrap();
    let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(16).workers(0);
    check("graphs", GinConfig::paper(features.dim(), 8, graphs.labels().n_classes()), &loader);
}
