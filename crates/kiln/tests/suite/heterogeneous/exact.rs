//! Tests of exact evaluation on heterogeneous graphs: it equals sampling with all neighbours, for models that read edges, groups of
//! edges and groups of nodes, within a memory limit, and in saved models.

use std::path::Path;

use kiln::feature::FeatureStore;
use kiln::train::{LayerWiseConfig, LayerWiseInference, OutputRows};

use super::*;

const ALL: [Fanout; 2] = [Fanout::All; 2];

/// The limit of memory of 8 bytes per node for the sampler and a few rows, which writes the rows of layers to files.
const SMALL: Option<u64> = Some(24 << 10);

fn exact(data: &Dataset, memory_bytes: Option<u64>) -> NeighborLoader {
    let loader = NeighborLoader::new(data, ALL).batch_size(64).workers(0);
    loader.evaluation(EvalMode::Exact { memory_bytes })
}

fn check_close(one: &OutputRows, other: &OutputRows) {
    assert_eq!((one.n_rows(), one.width()), (other.n_rows(), other.width()));
    for (a, b) in one.values().iter().zip(other.values()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

/// Trains a model whose evaluations are exact, and compares them with those of sampling with all neighbours.
fn check_model<C: ModelConfig>(name: &str, folder: &Path, model: C)
where
    NeighborLoader: DataLoader<C::Model>,
{
    let data = data();
    let sampled = NeighborLoader::new(&data, ALL).batch_size(64).workers(0);
    let out = folder.join(name);
    let best =
        Trainer::new(model, AdamConfig::new(1e-2)).seed(5).fit(&exact(&data, None), quiet(&out)).unwrap();
    assert_eq!(best.evaluate(&exact(&data, None), Phase::Validation).unwrap(), best.best.val, "{name}");
    let all_neighbors = best.evaluate(&sampled, Phase::Validation).unwrap();
    assert_eq!(best.best.val.accuracy(), all_neighbors.accuracy(), "{name}");
    assert!((best.best.val.loss() - all_neighbors.loss()).abs() < 1e-5, "{name}");
    let within = best.evaluate(&exact(&data, SMALL), Phase::Validation).unwrap();
    assert_eq!(within, best.best.val, "{name}: the memory limit should not change the bits");
    let summary = best.write_report(&exact(&data, None)).unwrap().unwrap();
    let tested = best.evaluate(&exact(&data, None), Phase::Test).unwrap();
    assert_eq!(summary.test_accuracy, tested.accuracy(), "{name}");
    check_saved(&out, &data, tested.accuracy());
}

/// Compares the predictions of a saved model that was evaluated exactly with those of sampling with all neighbours.
fn check_saved(run: &Path, data: &Dataset, test_accuracy: f64) {
    let predictor = SavedModel::open(run).unwrap().on_nodes(data).unwrap();
    let targets = data.targets.as_ref().unwrap();
    let first = data.graph.types().range(targets.node_type).start;
    let test: Vec<NodeId> = targets.split.test.iter().map(|node| NodeId(node.0 - first)).collect();
    let (scores, embeddings) = predictor.predict_and_embed(&test, &PredictMode::AsEvaluated).unwrap();
    let all = PredictMode::Sampled { fanouts: ALL.to_vec(), seed: 3 };
    let (sampled, of_sampled) = predictor.predict_and_embed(&test, &all).unwrap();
    check_close(&scores, &sampled);
    check_close(&embeddings, &of_sampled);
    assert_eq!(embeddings.width(), predictor.embedding_width().unwrap());
    let is_hit = |(class, node): &(Option<u32>, &NodeId)| *class == Some(node.0 % 2);
    let hits = scores.classes().into_iter().zip(&test).filter(is_hit).count();
    assert_eq!(hits as f64 / test.len() as f64, test_accuracy);
    let config = LayerWiseConfig::within(SMALL);
    assert_eq!(predictor.predict(&test, &PredictMode::Exact(config)).unwrap(), scores);
}

#[test]
fn exact_evaluation_equals_sampling_with_all_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let (data, metagraph) = (data(), data().graph.metagraph());
    check_model("sage", folder.path(), rsage(&data));
    check_model("rgcn", folder.path(), config(&data));
    let hgt = HgtConfig::new(8, 2).metagraph(&metagraph).layers(2).hidden(16).heads(2);
    check_model("hgt", folder.path(), HeteroModelConfig::new(data.dims(), hgt));
    // A jumping knowledge reads the encoded rows of all layers.
    let jumping = RsageConfig::new(8, 2).metagraph(&metagraph).layers(2).hidden(16);
    let jumping = jumping.jumping(JumpingKnowledge::Cat);
    check_model("jumping", folder.path(), HeteroModelConfig::new(data.dims(), jumping));
}

/// A relation without neighbours in training has no trained weights, and is left out.
#[test]
fn relations_that_are_not_sampled_are_left_out() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let without = |loader: NeighborLoader| loader.relation_fanouts("bought by", [0, 0]).unwrap();
    let of_exact = without(exact(&data, None));
    let of_sampled = without(NeighborLoader::new(&data, ALL).batch_size(64).workers(0));
    let mut trainer = Trainer::new(rsage(&data), AdamConfig::new(1e-2)).seed(5);
    let best = trainer.fit(&of_exact, quiet_for(1, &out)).unwrap();
    let expected = best.evaluate(&of_sampled, Phase::Validation).unwrap();
    assert_eq!(best.best.val.hits, expected.hits);
    assert!((best.best.val.loss() - expected.loss()).abs() < 1e-5);
    let with_all = best.evaluate(&exact(&data, None), Phase::Validation).unwrap();
    assert!(1e-4 < (with_all.loss() - expected.loss()).abs(), "the relation should tell something");
    let predictor = SavedModel::open(&out).unwrap().on_nodes(&data).unwrap();
    let nodes = [NodeId(0), NodeId(7)];
    let scores = predictor.predict(&nodes, &PredictMode::AsEvaluated).unwrap();
    let fanouts: kiln::sample::RelationFanouts = "all,all;bought by=0,0".parse().unwrap();
    check_close(
        &scores,
        &predictor.predict(&nodes, &PredictMode::SampledByRelation { fanouts, seed: 0 }).unwrap(),
    );
}

/// Bad arguments of the inference itself.
#[test]
fn inference_on_types_checks_its_arguments() {
    let (data, device) = (data(), kiln::burn::tensor::Device::flex());
    let model = config(&data).init(kiln::sample::RngKey::new(0), &device).unwrap();
    let inference = LayerWiseInference::new(data.graph.clone(), LayerWiseConfig::default()).unwrap();
    let stores = |features: Vec<Option<Arc<dyn FeatureStore>>>| {
        kiln::loader::FeatureStores::new(data.graph.types().clone(), features)
    };
    let error = inference.outputs_by_type(&model, &stores(data.features.clone()), &[], &device).unwrap_err();
    assert!(error.to_string().contains("the batch has nodes of 1 embeddings, but the task has 0"), "{error}");
    let both = vec![data.features[1].clone(), data.features[1].clone()];
    let error = inference.outputs_by_type(&model, &stores(both), &[], &device).unwrap_err();
    assert!(error.to_string().contains("[None, Some(3)]"), "{error}");
}
