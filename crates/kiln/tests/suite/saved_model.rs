//! Tests of saved models: predictions repeat those of the run, on its data and on new nodes, and damaged run folders
//! and unsuitable requests are typed errors.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod rejected;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln::burn::module::Module;
use kiln::burn::tensor::{Device, Tensor};
use kiln::data::synthetic;
use kiln::kernels::{DeviceBlock, ops};
use kiln::nn::{BlockModel, ForwardContext, LayerSize, SageConv, SageConvConfig};
use kiln::prelude::*;
use kiln::sample::{KeyDomain, Neighbors, NodeKey, RngKey, Selection};
use kiln::train::{
    Error as TrainError, LayerWiseConfig, ModelEdgesError, ModelError, ModelRegistry, OutputRows,
    PredictModeError, PreparationError,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// Returns a data set whose feature columns have different means, so that predictions without scaling differ.
fn raw_data() -> Dataset {
    let config =
        synthetic::FakeConfig { avg_num_nodes: 400, num_channels: 16, seed: 3, ..Default::default() };
    synthetic::fake(config).unwrap()
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [4, 4]).batch_size(32).workers(0)
}

/// Trains for two epochs, writes the report, and moves the run folder. Returns the moved folder.
fn trained<C: ModelConfig>(
    config: &C,
    loader: &(impl DataLoader<C::Model> + Sync),
    n_ranks: usize,
) -> (TempDir, PathBuf)
where
    C::Model: Sync,
{
    let folder = tempfile::tempdir().unwrap();
    let (out, moved) = (folder.path().join("run"), folder.path().join("moved"));
    launch(RankConfig::threads(n_ranks), |rank| {
        let mut trainer = Trainer::new(config.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank);
        let best = trainer.fit(loader, FitConfig::epochs(2).out(&out).quiet())?;
        best.write_report(loader)?;
        Ok(())
    })
    .unwrap();
    fs::rename(out, &moved).unwrap();
    (folder, moved)
}

/// Returns the lines of `test_predictions.csv` for scores of labelled items.
fn predictions_csv(scores: &OutputRows, items: &[u32], label: impl Fn(u32) -> u32) -> String {
    let classes = scores.classes().into_iter().map(Option::unwrap);
    let mut rows: Vec<(u32, u32)> = items.iter().copied().zip(classes).collect();
    rows.sort_by_key(|(item, _)| *item);
    let lines = rows.iter().map(|(item, class)| format!("{item},{},{class}\n", label(*item)));
    format!("item,label,predicted\n{}", lines.collect::<String>())
}

/// Checks that the saved model repeats the run's predictions for the test split of the data as it was loaded.
fn check_repeats(run: &Path, registry: &ModelRegistry, raw: &Dataset) {
    let model = SavedModel::open_with(run, registry, &Device::flex()).unwrap();
    let test = &raw.split().test;
    let scores = model.on_nodes(raw).unwrap().predict(test, &PredictMode::AsEvaluated).unwrap();
    let items: Vec<u32> = test.iter().map(|node| node.0).collect();
    let csv = predictions_csv(&scores, &items, |item| raw.labels().get(NodeId(item)).unwrap());
    assert_eq!(csv, fs::read_to_string(run.join("test_predictions.csv")).unwrap());
    // A constant prediction would also be repeated.
    assert!(scores.classes().iter().any(|class| *class != scores.classes()[0]));
}

#[test]
fn predictions_of_sage_repeat_those_of_the_run_on_1_and_3_ranks() {
    let raw = raw_data();
    let data = raw.clone().symmetrize().unwrap().standardize().unwrap();
    for n_ranks in [1, 3] {
        let (_folder, run) =
            trained(&SageConfig::for_data(&data).layers(2).hidden(16), &loader(&data), n_ranks);
        check_repeats(&run, &ModelRegistry::default(), &raw);
    }
}

#[test]
fn predictions_of_gcn_and_of_exact_evaluation_repeat_those_of_the_run() {
    let raw = raw_data();
    let data = raw.clone().standardize().unwrap();
    let config = GcnConfig::for_data(&data).layers(2).hidden(16);
    for evaluation in [EvalMode::Sampled, EvalMode::Exact { memory_bytes: Some(1 << 20) }] {
        let loader = loader(&data).gcn_norm().unwrap().evaluation(evaluation);
        let (_folder, run) = trained(&config, &loader, 2);
        check_repeats(&run, &ModelRegistry::default(), &raw);
    }
}

#[test]
fn predictions_of_gat_repeat_those_of_the_run_on_data_with_and_without_self_loops() {
    let raw = raw_data();
    let data = raw.clone().symmetrize().unwrap().standardize().unwrap();
    let looped = data.clone().add_self_loops().unwrap();
    let config = GatConfig::for_data(&data).layers(2).hidden(16).heads(2).attention_dropout(0.2);
    for data in [&data, &looped] {
        let (_folder, run) = trained(&config, &loader(data).add_self_loops().unwrap(), 2);
        check_repeats(&run, &ModelRegistry::default(), &raw);
        check_repeats(&run, &ModelRegistry::default(), &raw.clone().add_self_loops().unwrap());
        let model = SavedModel::open(&run).unwrap();
        assert_eq!(model.on_nodes(&raw).unwrap().graph().unwrap().n_edges(), looped.graph.n_edges());
        check_repeats(&run, &ModelRegistry::default(), &looped);
    }
    // Another model was trained without the loops.
    let (_folder, run) = trained(&SageConfig::for_data(&data).layers(2).hidden(8), &loader(&data), 1);
    let error = SavedModel::open(&run).unwrap().on_nodes(&looped).unwrap_err();
    let is_other = |step: &str| step == "given self loops";
    assert!(
        matches!(&error, Error::Train(TrainError::Saved(ModelError::Preparation(PreparationError::OtherPreparation { step }))) if is_other(step)),
        "{error}"
    );
}

#[test]
fn predictions_of_rgcn_repeat_those_of_the_run_and_its_edge_types_are_checked() {
    let raw = raw_data();
    let typed = |n_types: u64| {
        let types: Vec<u8> = (0..raw.graph.n_edges()).map(|edge| (edge % n_types) as u8).collect();
        let graph = (**raw.csc().unwrap()).clone().with_edge_types(types.into()).unwrap();
        Dataset { graph: graph.into(), ..raw.clone() }
    };
    let data = typed(3);
    let config = RgcnConfig::for_data(&data).layers(2).hidden(16).bases(2);
    for evaluation in [EvalMode::Sampled, EvalMode::Exact { memory_bytes: None }] {
        let (_folder, run) = trained(&config, &loader(&data).edge_types().evaluation(evaluation), 2);
        check_repeats(&run, &ModelRegistry::default(), &data);
        let model = SavedModel::open(&run).unwrap();
        let error = model.on_nodes(&typed(4)).unwrap_err();
        let expected = "the graph has 4 edge types, but the model was trained with 3 relations";
        assert!(error.to_string().contains(expected), "{error}");
        let error = model.on_nodes(&raw).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Train(TrainError::Saved(ModelError::Edges(ModelEdgesError::NoEdgeTypes {
                    n_relations: 3
                })))
            ),
            "{error}"
        );
        model.on_nodes(&typed(2)).unwrap();
        // A description that contradicts itself.
        let path = run.join("model.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"edge_types\": true", "\"edge_types\": false", 1)).unwrap();
        let error = SavedModel::open(&run).unwrap_err().to_string();
        assert!(error.contains("a rgcn reads edge types, but `edge_types` is false"), "{error}");
    }
}

#[test]
fn predictions_of_gin_repeat_those_of_the_run() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.1], 0).unwrap();
    let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(16).workers(0);
    let config = GinConfig::paper(features.dim(), 16, graphs.labels().n_classes());
    let (_folder, run) = trained(&config, &loader, 2);
    let model = SavedModel::open(&run).unwrap();
    let scores = model.predict_dataset(&graphs, &features, &split.test).unwrap();
    let items: Vec<u32> = split.test.iter().map(|graph| graph.0).collect();
    let csv = predictions_csv(&scores, &items, |item| graphs.labels().get(GraphId(item)).unwrap());
    assert_eq!(csv, fs::read_to_string(run.join("test_predictions.csv")).unwrap());
    let error = model.on_nodes(&raw_data()).unwrap_err();
    assert!(matches!(error, Error::Train(TrainError::Saved(ModelError::OtherTask { .. }))), "{error}");
}

/// A model of a user: one SAGE layer, and a ReLU before the second.
#[derive(Module, Debug)]
struct Own {
    convs: Vec<SageConv>,
}

impl BlockModel for Own {
    fn n_layers(&self) -> usize {
        self.convs.len()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        self.convs[i].forward(block, if i == 0 { x } else { ops::relu(x) })
    }

    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        Some(LayerSize::new(self.convs[i].weight_self.dims()))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OwnConfig {
    widths: [usize; 3],
}

impl ModelConfig for OwnConfig {
    const KIND: &'static str = "own";
    type Model = Own;

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self { widths: [d_in, 8, n_classes] }
    }

    fn n_layers(&self) -> usize {
        2
    }

    fn init(&self, key: RngKey, device: &Device) -> kiln::nn::Result<Own> {
        let conv = |i: usize| {
            let config = SageConvConfig {
                d_in: self.widths[i],
                d_out: self.widths[i + 1],
                aggregate: Aggregate::Mean,
                edge_weighting: EdgeWeighting::None,
            };
            config.init(key.fold_in(KeyDomain::Layer, i as u64), device)
        };
        Ok(Own { convs: vec![conv(0)?, conv(1)?] })
    }
}

#[test]
fn a_registry_opens_a_model_of_a_users_own() {
    let raw = raw_data();
    let data = raw.clone().standardize().unwrap();
    let (_folder, run) = trained(&OwnConfig::for_data(&data), &loader(&data), 1);
    check_repeats(&run, &ModelRegistry::default().with_node_model::<OwnConfig>(), &raw);
    let error = SavedModel::open(&run).unwrap_err();
    let registry = ModelRegistry::default();
    let known = registry.kinds().collect::<Vec<_>>().join(", ");
    let expected = format!(
        "the model is a \"own\", expected one of {known}: it is a model of another program, which can predict with it"
    );
    assert!(error.to_string().ends_with(&expected), "{error}");
}

#[test]
fn a_model_with_a_custom_rule_needs_the_rule_for_sampled_predictions() {
    fn last(neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection) {
        picks.push(neighbors.degree() as u32 - 1);
    }
    let data = raw_data();
    let (_folder, run) =
        trained(&SageConfig::for_data(&data).layers(2).hidden(8), &loader(&data).rule(last), 1);
    let model = SavedModel::open(&run).unwrap();
    let predictor = model.on_nodes(&data).unwrap();
    let error = predictor.predict(&data.split().test, &PredictMode::AsEvaluated).unwrap_err();
    assert!(
        matches!(error, TrainError::Saved(ModelError::Mode(PredictModeError::CustomRule { .. }))),
        "{error}"
    );
    predictor.predict(&data.split().test, &PredictMode::Exact(LayerWiseConfig::default())).unwrap();
    let scores = predictor.rule(last).predict(&data.split().test, &PredictMode::AsEvaluated).unwrap();
    let items: Vec<u32> = data.split().test.iter().map(|node| node.0).collect();
    let csv = predictions_csv(&scores, &items, |item| data.labels().get(NodeId(item)).unwrap());
    assert_eq!(csv, fs::read_to_string(run.join("test_predictions.csv")).unwrap());
}

/// Trains a SAGE model on scaled data.
fn sage() -> (TempDir, PathBuf, Dataset) {
    let raw = raw_data();
    let data = raw.clone().standardize().unwrap();
    let (folder, run) = trained(&SageConfig::for_data(&data).layers(2).hidden(8), &loader(&data), 1);
    (folder, run, raw)
}

#[test]
fn sampled_predictions_of_a_node_do_not_depend_on_the_request_or_the_thread() {
    let (_folder, run, raw) = sage();
    let predictor = SavedModel::open(&run).unwrap().on_nodes(&raw).unwrap();
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::UpTo(2); 2], seed: 5 };
    let many: Vec<NodeId> = (0..100).map(NodeId).chain([NodeId(3), NodeId(3)]).collect();
    let together = predictor.predict(&many, &mode).unwrap();
    let rows: Vec<&[f32]> = together.rows().collect();
    assert_eq!((rows.len(), rows[100], rows[101]), (102, rows[3], rows[3]));
    std::thread::scope(|scope| {
        for node in 0..8 {
            let (predictor, mode, rows) = (&predictor, &mode, &rows);
            scope.spawn(move || {
                let alone = predictor.predict(&[NodeId(node)], mode).unwrap();
                assert_eq!(alone.values(), rows[node as usize], "node {node}");
            });
        }
    });
    let other = PredictMode::Sampled { fanouts: vec![Fanout::UpTo(2); 2], seed: 6 };
    assert_ne!(predictor.predict(&many, &other).unwrap(), together);
}

#[test]
fn embeddings_are_the_inputs_of_the_last_layer() {
    let (_folder, run, raw) = sage();
    let model = SavedModel::open(&run).unwrap();
    let nodes: Vec<NodeId> = [9, 2, 9].map(NodeId).to_vec();
    let all = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 0 };
    let exact = PredictMode::Exact(LayerWiseConfig::default());
    let predictor = model.on_nodes(&raw).unwrap();
    let mut of_modes = Vec::new();
    for mode in [&all, &exact] {
        let (scores, embeddings) = predictor.predict_and_embed(&nodes, mode).unwrap();
        assert_eq!(predictor.embed(&nodes, mode).unwrap(), embeddings);
        assert_eq!(predictor.predict(&nodes, mode).unwrap(), scores);
        assert_eq!((embeddings.n_rows(), embeddings.width()), (3, 8));
        let rows: Vec<&[f32]> = embeddings.rows().collect();
        assert!(rows[0] == rows[2] && rows[0] != rows[1]);
        of_modes.push(embeddings);
    }
    // With all neighbours, both modes compute the same sums, over other numbers of rows.
    let [sampled, exact] = &of_modes[..] else { unreachable!() };
    let largest = sampled.values().iter().zip(exact.values()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-4, "{largest}");
}

#[test]
fn predicts_nodes_that_training_did_not_have() {
    let (_folder, run, raw) = sage();
    // The new nodes repeat the features and the in-edges of the first ten nodes.
    let n_nodes = raw.graph.n_nodes() as u32;
    let (mut srcs, mut dsts, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for node in (0..n_nodes).chain(0..10) {
        let dst = if rows.len() < n_nodes as usize * raw.node_features().unwrap().dim() {
            node
        } else {
            n_nodes + node
        };
        rows.extend(raw.node_features().unwrap().row(NodeId(node)).unwrap());
        for src in raw.csc().unwrap().in_neighbors(NodeId(node)) {
            srcs.push(src.0);
            dsts.push(dst);
        }
    }
    let graph = kiln::graph::CscBuilder::new(n_nodes as usize + 10).build(&srcs, &dsts).unwrap();
    let features: Arc<dyn kiln::feature::FeatureStore> =
        Arc::new(kiln::feature::DenseFeatures::from_f32(rows, raw.node_features().unwrap().dim()).unwrap());
    let model = SavedModel::open(&run).unwrap();
    let mode = PredictMode::Exact(LayerWiseConfig::default());
    let new: Vec<NodeId> = (n_nodes..n_nodes + 10).map(NodeId).collect();
    let old: Vec<NodeId> = (0..10).map(NodeId).collect();
    let graph = Arc::new(graph);
    let of_new = model.predict(&graph, &features, &new, &mode).unwrap();
    assert_eq!(of_new, model.predict(&graph, &features, &old, &mode).unwrap());
}

#[test]
fn a_custom_rule_with_the_name_of_a_built_in_one_is_not_replaced_by_it() {
    fn first(_: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection) {
        picks.push(0);
    }
    let data = raw_data();
    let loader = loader(&data).rule(Rule::named("uniform", first));
    let (_folder, run) = trained(&SageConfig::for_data(&data).layers(2).hidden(8), &loader, 1);
    let predictor = SavedModel::open(&run).unwrap().on_nodes(&data).unwrap();
    let error = predictor.predict(&[NodeId(0)], &PredictMode::AsEvaluated).unwrap_err();
    assert!(
        matches!(error, TrainError::Saved(ModelError::Mode(PredictModeError::CustomRule { .. }))),
        "{error}"
    );
}

#[test]
fn a_prepared_set_on_disk_is_not_prepared_again_and_the_order_of_graph_and_features_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let raw = raw_data();
    let data = raw.clone().standardize().unwrap().symmetrize().unwrap();
    let (_folder, run) = trained(&SageConfig::for_data(&data).layers(2).hidden(8), &loader(&data), 1);
    let set = folder.path().join("set");
    kiln::data::format::write(&data, &set).unwrap();
    let model = SavedModel::open(&run).unwrap();
    let predict = |data: &Dataset| {
        model.on_nodes(data).unwrap().predict(&raw.split().test, &PredictMode::default()).unwrap()
    };
    let expected = predict(&raw);
    assert_eq!(predict(&Dataset::open(set.to_str().unwrap()).unwrap()), expected);
    assert_eq!(predict(&raw.clone().symmetrize().unwrap()), expected);
}

#[test]
fn data_that_was_prepared_like_the_training_data_is_not_prepared_again() {
    let (_folder, run, raw) = sage();
    let model = SavedModel::open(&run).unwrap();
    let prepared = model.on_nodes(&raw.clone().standardize().unwrap()).unwrap();
    let mode = PredictMode::default();
    let test = &raw.split().test;
    let expected = model.on_nodes(&raw).unwrap().predict(test, &mode).unwrap();
    assert_eq!(prepared.predict(test, &mode).unwrap(), expected);
}
