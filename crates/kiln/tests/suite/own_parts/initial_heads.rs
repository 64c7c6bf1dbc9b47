//! Training from the weights of a model with another number of classes: the layers are taken, the head starts anew.

use std::sync::Arc;

use kiln::burn::module::Module;
use kiln::data::DatasetTargets;
use kiln::feature::Labels;
use kiln::train::{Error as TrainError, InitialWeightsError, ModelError, weights_to_bytes};

use super::initial_weights::refused;
use super::*;
use crate::edges::{self, Ratings};
use crate::heterogeneous;

/// Trains a model, starts one with other outputs from it, and returns the names of the tensors that are not taken.
fn new_tensors<C: ModelConfig, L: DataLoader<C::Model>>([then, now]: [(C, &L); 2]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let (config, loader) = then;
    let trained = Trainer::new(config, AdamConfig::new(1e-2)).fit(loader, quiet(1, &run)).unwrap();
    let (config, loader) = now;
    let setup = Trainer::new(config, AdamConfig::new(1e-2)).seed(5);
    let fresh = weights(setup.start(loader).unwrap().model());
    let setup = setup.init_from(&run);
    let started = weights(setup.start(loader).unwrap().model());
    let saved = weights(&trained.model);
    // It trains.
    let mut setup = setup;
    setup.fit(loader, quiet(1, &folder.path().join("out"))).unwrap();
    let mut new = Vec::new();
    for ((name, started), (_, fresh)) in tensors(&started).into_iter().zip(tensors(&fresh)) {
        let of_saved = tensors(&saved).into_iter().find(|(other, _)| *other == name).unwrap().1;
        if started == of_saved {
            continue;
        }
        assert_eq!(started, fresh, "{name}");
        new.push(name);
    }
    new
}

fn weights<M: Module>(model: &M) -> Vec<u8> {
    weights_to_bytes(model).unwrap()
}

/// Returns the names of the tensors of a safetensors file, with their shapes and values.
fn tensors(bytes: &[u8]) -> Vec<(String, (Value, Vec<u8>))> {
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, values) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let of_tensor = |(name, tensor): (String, Value)| {
        let [start, end] =
            [0, 1].map(|end| tensor["data_offsets"][end].as_u64().map(|offset| offset as usize));
        let range = start?..end?;
        Some((name, (tensor["shape"].clone(), values[range].to_vec())))
    };
    header.into_iter().filter_map(of_tensor).collect()
}

/// Checks that the tensors that are not taken begin with this name, and that there are some.
fn check(new: Vec<String>, head: &str) {
    assert!(!new.is_empty() && new.iter().all(|name| name.starts_with(head)), "{new:?}");
}

#[test]
fn of_models_of_nodes() {
    let data = [cycle(80, 3), cycle(80, 4)];
    let loaders = data.each_ref().map(loader);
    let [then, now] = &data;
    let with = |config: fn(&Dataset) -> SageConfig| [(config(then), &loaders[0]), (config(now), &loaders[1])];
    check(new_tensors(with(|data| SageConfig::for_data(data).layers(2).hidden(8))), "layers.1");
    let normalized = data.each_ref().map(|data| loader(data).gcn_norm().unwrap());
    let gcn = |data: &Dataset| GcnConfig::for_data(data).layers(2).hidden(8);
    check(new_tensors([(gcn(then), &normalized[0]), (gcn(now), &normalized[1])]), "layers.1");
    let looped = data.each_ref().map(|data| loader(data).add_self_loops().unwrap());
    // The widths of the last layer are multiples of the number of classes, and of hidden columns.
    let gat = |data: &Dataset| GatConfig::for_data(data).layers(2).hidden(8).heads(2).output_heads(2);
    check(new_tensors([(gat(then), &looped[0]), (gat(now), &looped[1])]), "layers.1");
    let transformer = |data: &Dataset| TransformerConfig::for_data(data).layers(2).hidden(8);
    check(new_tensors([(transformer(then), &loaders[0]), (transformer(now), &loaders[1])]), "layers.1");
}

#[test]
fn of_edges_and_graphs() {
    let ratings = Ratings::new();
    let classes = ratings.classes();
    let three = Labels::new((0..classes.len() as u32).map(|edge| (edge % 3) as i32).collect::<Vec<_>>(), 3);
    let splits = [ratings.split(classes), ratings.split(three)];
    let loaders = splits.each_ref().map(|split| ratings.loader(split));
    let config = |loader: &LinkNeighborLoader| edges::model(&ratings.data, loader.edge_dims().unwrap());
    let new = new_tensors([(config(&loaders[0]), &loaders[0]), (config(&loaders[1]), &loaders[1])]);
    check(new, "decoder");

    // A GIN has a head for each layer.
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.2], 0).unwrap();
    let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(32).workers(0);
    let gin = |n_classes| GinConfig::simplified(features.dim(), 8, n_classes);
    let new = new_tensors([(gin(2), &loader), (gin(2), &loader)]);
    assert!(new.is_empty(), "{new:?}");
}

#[test]
fn of_heterogeneous_models_with_trainable_rows() {
    let two = heterogeneous::data();
    let n_items = two.labels().len() as u32;
    let three = Labels::new((0..n_items).map(|item| (item % 3) as i32).collect::<Vec<_>>(), 3);
    let split = two.split().clone();
    let targets = DatasetTargets::new(1, Arc::new(three).into(), split);
    let three = Dataset { targets: Some(targets), ..heterogeneous::data() };
    let [loader_two, loader_three] = [&two, &three].map(|data| heterogeneous::loader(data).workers(0));
    let rgcn = |data: &Dataset| {
        let model = RgcnConfig::new(8, data.labels().n_classes(), data.graph.n_relations())
            .layers(2)
            .hidden(16)
            .bases(2);
        HeteroModelConfig::new(data.dims(), model)
    };
    let new = new_tensors([(rgcn(&two), &loader_two), (rgcn(&three), &loader_three)]);
    check(new, "model.layers.1");
    let rsage = |data: &Dataset| {
        let model = RsageConfig::new(8, data.labels().n_classes())
            .metagraph(&data.graph.metagraph())
            .layers(2)
            .hidden(16);
        HeteroModelConfig::new(data.dims(), model)
    };
    let new = new_tensors([(rsage(&two), &loader_two), (rsage(&three), &loader_three)]);
    check(new, "model.layers.1");
    let hgt = |data: &Dataset| {
        let model = HgtConfig::new(8, data.labels().n_classes())
            .metagraph(&data.graph.metagraph())
            .layers(2)
            .hidden(16)
            .heads(2);
        HeteroModelConfig::new(data.dims(), model)
    };
    let new = new_tensors([(hgt(&two), &loader_two), (hgt(&three), &loader_three)]);
    check(new, "model.");
}

/// A hidden width that changes as the number of classes does is no head.
#[test]
fn other_hidden_widths_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let [then, now] = [cycle(80, 2), cycle(80, 4)];
    let run = folder.path().join("run");
    let sage = |data: &Dataset, hidden| {
        Trainer::new(SageConfig::for_data(data).layers(2).hidden(hidden), AdamConfig::new(1e-2))
    };
    sage(&then, 8).fit(&loader(&then), quiet(1, &run)).unwrap();
    let error = refused(sage(&now, 16), &loader(&now), &run);
    assert!(
        matches!(&error, TrainError::Saved(ModelError::Initial(InitialWeightsError::Shape { .. }))),
        "{error}"
    );
    // A file of weights does not state the number of outputs of its model.
    let error = refused(sage(&now, 8), &loader(&now), &run.join("best.safetensors"));
    assert!(error.to_string().contains("tensor `layers.1"), "{error}");
    sage(&now, 8).init_from(&run).fit(&loader(&now), quiet(1, &folder.path().join("out"))).unwrap();
}
