//! Saved models of links: scores of pairs, and the best destinations of a source.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::{DenseFeatures, FeatureStore, Preparation, TargetKind};
use kiln_graph::{Csc, CscBuilder, Links, NodeId, NodeTypes, Relations};
use kiln_kernels::testing::{check_close, values};
use kiln_nn::{ForwardContext, LinkDecoderConfig, LinkModelConfig, LinkPairs, Mode, ModelConfig, SageConfig};
use kiln_sample::{Fanout, NeighborSampler, RngKey, SamplerConfig};
use kiln_store::progress::{ProgressOutput, ProgressPrinter, ProgressReporter, ProgressScope, ProgressStage};
use kiln_train::{
    Error, EvaluatedNeighbors, EvaluationInfo, LayerWiseConfig, LinkPredictor, LinkScorer, LinkScorerBuilder,
    ModelError, ModelInfo, ModelInputs, ModelNodesError, ModelTask, OutputRows, PredictMode,
    PredictModeError, PredictedRows, PredictionData, PreparationError, SamplingInfo, SavedModel, ScoredLink,
    TopKConfig, WantedRows, weights_to_bytes,
};

const WIDTH: usize = 16;
const MLP: LinkDecoderConfig = LinkDecoderConfig::Mlp { hidden: 16, n_layers: 2, dropout: 0.1 };

/// Returns a graph in which each node has edges to four others.
fn graph(n_nodes: u32) -> Arc<Csc> {
    let edges = (0..n_nodes).flat_map(|src| [1, 4, 9, 13].map(|step| (src, (src + step) % n_nodes)));
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.unzip();
    Arc::new(CscBuilder::new(n_nodes as usize).build(&srcs, &dsts).unwrap())
}

fn features(n_nodes: u32) -> Arc<dyn FeatureStore> {
    let value = |i: u32| (i.wrapping_mul(2_654_435_769) >> 7) as f32 / (1 << 24) as f32 - 1.0;
    Arc::new(DenseFeatures::from_f32((0..n_nodes * 8).map(value).collect::<Vec<f32>>(), 8).unwrap())
}

fn data(n_nodes: u32) -> PredictionData {
    PredictionData::new(graph(n_nodes), features(n_nodes))
}

/// Returns the config of an untrained model, and the model as a run saves it.
fn saved(decoder: LinkDecoderConfig) -> (LinkModelConfig<SageConfig>, SavedModel) {
    saved_with(decoder, Some(Preparation::default()))
}

/// Returns a model like [`saved`] whose training data had this preparation.
fn saved_with(
    decoder: LinkDecoderConfig,
    preparation: Option<Preparation>,
) -> (LinkModelConfig<SageConfig>, SavedModel) {
    let config = LinkModelConfig { encoder: SageConfig::new(8, WIDTH).layers(2).hidden(WIDTH), decoder };
    let model = config.init(RngKey::new(4), &Device::flex()).unwrap();
    let sampling = SamplingInfo::new(&SamplerConfig::new([Fanout::All; 2]), false);
    let inputs = ModelInputs {
        task: ModelTask::Links,
        data_name: "a graph".into(),
        n_features: 8,
        feature_columns: Default::default(),
        targets: TargetKind::Links,
        n_outputs: 1,
        class_names: Vec::new(),
        target_scaler: None,
        preparation,
        node_features: None,
        sampling: Some(sampling),
        graph: None,
    };
    let neighbors = EvaluatedNeighbors::Sampled;
    let evaluation = EvaluationInfo { seed: 1, batch_size: 50, n_ranks: 1, neighbors };
    let info = ModelInfo::new(&config, &Device::flex(), "hash", inputs, evaluation).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.json"), serde_json::to_vec(&info).unwrap()).unwrap();
    std::fs::write(folder.path().join("best.safetensors"), weights_to_bytes(&model).unwrap()).unwrap();
    (config, SavedModel::open(folder.path()).unwrap())
}

fn predictor(decoder: LinkDecoderConfig, n_nodes: u32) -> LinkPredictor {
    LinkPredictor::new(&saved(decoder).1, data(n_nodes)).unwrap()
}

/// The pairs are in no batch.
#[test]
fn saved_models_score_links() {
    let (config, model) = saved(MLP);
    assert_eq!(
        (model.info().kind.as_str(), model.info().inputs.task.to_string()),
        ("link-sage", "links".into())
    );
    let predictor = LinkPredictor::new(&model, data(120)).unwrap();
    let pairs = Links::new(vec![3, 80, 3, 7], vec![80, 3, 3, 119]).unwrap();
    let nodes = [3, 80, 7, 119].map(NodeId);
    let rows = predictor.encoder().predict(&nodes, &PredictMode::default());
    let rows = TensorData::new(rows.unwrap().values().to_vec(), [4, WIDTH]);
    let rows = Tensor::<2>::from_data(rows, &Device::flex());
    let of_rows = LinkPairs::upload(&[0, 1, 0, 2], &[1, 0, 0, 3], vec![0; 4], 4, &Device::flex());
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    let decoder = config.init(RngKey::new(4), &Device::flex()).unwrap().decoder;
    let expected = values(decoder.score_pairs(rows, &of_rows, &ctx));
    let exact = PredictMode::Exact(LayerWiseConfig::default());
    for mode in [PredictMode::AsEvaluated, exact] {
        let scores = predictor.score_links(&pairs, &mode).unwrap();
        check_close(&scores, &expected, 1e-5);
        assert_eq!(scores[0], scores[1], "a score does not depend on the direction of the pair");
    }
    let outside = Links::new(vec![0], vec![120]).unwrap();
    predictor.score_links(&outside, &PredictMode::AsEvaluated).unwrap_err();
}

/// Returns the best destinations of each source, from the scores of all pairs.
fn by_sorting(
    scorer: &LinkScorer,
    srcs: &[NodeId],
    k: usize,
    excluded: Option<&Csc>,
) -> Vec<Vec<ScoredLink>> {
    let of_src = |&src: &NodeId| {
        let has_edge =
            |dst: NodeId| excluded.as_ref().is_some_and(|graph| graph.in_neighbors(dst).contains(&src));
        let is_candidate = |dst: &NodeId| *dst != src && !has_edge(*dst);
        let dsts: Vec<NodeId> = scorer.nodes().iter().copied().filter(is_candidate).collect();
        let scores = scorer.score(&Links::new(vec![src; dsts.len()], dsts.clone()).unwrap()).unwrap();
        let links = dsts.into_iter().zip(scores).map(|(dst, score)| ScoredLink { src, dst, score });
        let mut links: Vec<ScoredLink> = links.collect();
        links.sort_by(|a, b| b.score.total_cmp(&a.score));
        links.truncate(k);
        links
    };
    srcs.iter().map(of_src).collect()
}

/// The graph has several blocks of sources and of destinations, whose last ones are not full. Scores that are closer
/// than the rounding may change their order, so scores are compared by their rank.
#[test]
fn the_best_destinations_are_those_of_a_search_over_all_pairs() {
    let n_nodes = 5000;
    let srcs: Vec<NodeId> = (0..300).map(|i| NodeId(i * 16 % n_nodes)).collect();
    for (decoder, n_srcs) in [(LinkDecoderConfig::Dot, 300), (LinkDecoderConfig::DistMult, 20), (MLP, 5)] {
        let srcs = &srcs[..n_srcs];
        let predictor = predictor(decoder, n_nodes);
        for excluded in [None, Some(graph(n_nodes))] {
            let config = TopKConfig::new(7);
            let config = match &excluded {
                Some(graph) => config.excluding(graph.clone()).unwrap(),
                None => config,
            };
            let found = predictor.top_k(srcs, &config, &PredictMode::default()).unwrap();
            let nodes = (0..n_nodes).map(NodeId).collect();
            let scorer = predictor.link_scorer(nodes, &PredictMode::default()).unwrap();
            let expected = by_sorting(&scorer, srcs, 7, excluded.as_deref());
            assert_eq!(found.len(), 7 * n_srcs);
            for (found, expected) in found.chunks(7).zip(expected) {
                let scores = |links: &[ScoredLink]| links.iter().map(|link| link.score).collect::<Vec<f32>>();
                check_close(&scores(found), &scores(&expected), 1e-5);
                let pairs: (Vec<NodeId>, Vec<NodeId>) = found.iter().map(|link| (link.src, link.dst)).unzip();
                let again = scorer.score(&Links::new(pairs.0, pairs.1).unwrap()).unwrap();
                check_close(&scores(found), &again, 1e-5);
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_memory_limits_and_parts_of_the_request() {
    let n_nodes = 600;
    let predictor = predictor(LinkDecoderConfig::Dot, n_nodes);
    let srcs: Vec<NodeId> = (0..n_nodes).map(NodeId).collect();
    let config = TopKConfig::new(3);
    let exact = |memory| PredictMode::Exact(LayerWiseConfig::within(memory));
    let whole = predictor.top_k(&srcs, &config, &exact(Some(1 << 30))).unwrap();
    // The rows, 38,400 bytes, are written to a file, as are the outputs of the layers.
    let spilled = predictor.top_k(&srcs, &config, &exact(Some(20_000)));
    assert!(whole == spilled.unwrap(), "rows in files should give the same links");
    let scorer = predictor.link_scorer(srcs.clone(), &exact(None)).unwrap();
    let parts = srcs.chunks(LinkScorer::SRCS_AT_ONCE).flat_map(|srcs| scorer.top_k(srcs, &config).unwrap());
    assert!(whole == parts.collect::<Vec<_>>(), "parts of the request should give the same links");
}

/// Each part of the sources takes a minute of the test's clock.
#[test]
fn a_search_reports_its_share_before_its_last_part() {
    let predictor = predictor(LinkDecoderConfig::Dot, 600);
    let srcs: Vec<NodeId> = (0..600).map(NodeId).collect();
    let scorer = predictor.link_scorer(srcs.clone(), &PredictMode::default()).unwrap();
    let seconds = Arc::new(AtomicU64::new(0));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let clock = Arc::clone(&seconds);
    let printed = Arc::clone(&lines);
    let printer = Arc::new(ProgressPrinter::with_clock(
        ProgressOutput::Lines(Box::new(move |line| printed.lock().unwrap().push(line.to_string()))),
        move || Duration::from_secs(clock.load(Ordering::Relaxed)),
    ));
    let n_found = ProgressScope::new(printer.clone()).run(|| {
        let mut n_found = 0;
        let search = scorer.for_each_top_k(&srcs, &TopKConfig::new(3), |links| {
            n_found += links.len();
            seconds.fetch_add(60, Ordering::Relaxed);
            printer.tick();
            Ok::<(), Error>(())
        });
        search.map(|()| n_found)
    });
    assert_eq!(n_found.unwrap(), 3 * 600);
    let shares: Vec<String> = lines
        .lock()
        .unwrap()
        .iter()
        .map(|line| line.split(", ").take(2).collect::<Vec<_>>().join(", "))
        .collect();
    assert_eq!(
        shares,
        [
            "finding the best links: 42 % of 360000 links, 1 min 0 s",
            "finding the best links: 85 % of 360000 links, 2 min 0 s",
            "finding the best links: 100 % of 360000 links, 3 min 0 s",
        ]
    );
}

/// A reporter that records the names of stages.
#[derive(Default)]
struct Started(Mutex<Vec<String>>);

impl ProgressReporter for Started {
    fn started(&self, stage: &Arc<ProgressStage>) {
        self.0.lock().unwrap().push(stage.name().to_owned());
    }

    fn finished(&self, _: &Arc<ProgressStage>) {}
}

/// A stage of pairs that are scored at once would hide that of the caller, which scores many such parts.
#[test]
fn pairs_that_are_scored_at_once_are_no_stage() {
    let predictor = predictor(LinkDecoderConfig::Dot, 30);
    let scorer = predictor.link_scorer((0..30).map(NodeId).collect(), &PredictMode::default()).unwrap();
    for (n_pairs, expected) in [(1 << 16, &[][..]), ((1 << 16) + 1, &["scoring links"])] {
        let started = Arc::new(Started::default());
        let links = Links::new(vec![3; n_pairs], vec![4; n_pairs]).unwrap();
        let scores = ProgressScope::new(started.clone()).run(|| scorer.score(&links)).unwrap();
        assert_eq!(scores.len(), n_pairs);
        assert_eq!(*started.0.lock().unwrap(), expected, "{n_pairs} pairs");
    }
}

#[test]
fn few_nodes_have_few_destinations() {
    let predictor = predictor(LinkDecoderConfig::Dot, 30);
    let scorer =
        predictor.link_scorer(vec![NodeId(9), NodeId(4), NodeId(9)], &PredictMode::default()).unwrap();
    assert_eq!(scorer.nodes(), [NodeId(4), NodeId(9)]);
    let found = scorer.top_k(&[NodeId(9), NodeId(4)], &TopKConfig::new(10)).unwrap();
    let pairs: Vec<(u32, u32)> = found.iter().map(|link| (link.src.0, link.dst.0)).collect();
    assert_eq!(pairs, [(9, 4), (4, 9)]);
    let empty = predictor.link_scorer(Vec::new(), &PredictMode::default()).unwrap();
    assert!(empty.score(&Links::default()).unwrap().is_empty());
    assert!(empty.top_k(&[], &TopKConfig::new(10)).unwrap().is_empty());
}

/// Returns the reason why a model is not for the request.
fn reason(error: Error) -> ModelError {
    match error {
        Error::Saved(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn all_nodes_of_a_graph_of_one_type_are_sources_and_destinations() {
    let predictor = predictor(LinkDecoderConfig::Dot, 30);
    assert_eq!((predictor.node_ranges(), predictor.relation()), ([0..30, 0..30], None));
    assert_eq!(predictor.known_links().unwrap().indices(), graph(30).indices());
    let mode = PredictMode::default();
    let found = predictor.top_k(&[NodeId(2)], &TopKConfig::new(9).among(3..6), &mode).unwrap();
    let mut dsts: Vec<u32> = found.iter().map(|link| link.dst.0).collect();
    dsts.sort_unstable();
    assert_eq!(dsts, [3, 4, 5]);
    let error = reason(predictor.top_k(&[NodeId(30)], &TopKConfig::new(1), &mode).unwrap_err());
    assert_eq!(error.to_string(), "node 30 is not in the graph: expected an id below 30");
}

/// The sampler gets the fanouts of the only relation in each layer.
#[test]
fn a_graph_that_is_only_sampled_has_the_scores_of_the_whole_one_and_no_known_links() {
    let (_, model) = saved(LinkDecoderConfig::Dot);
    let sampled = PredictionData::sampled(30, features(30), |fanouts, config| {
        assert_eq!((&fanouts, &config.fanouts), (&vec![vec![Fanout::UpTo(2)]; 2], &Vec::new()));
        let config = SamplerConfig { fanouts: fanouts.concat(), ..config };
        Ok(Arc::new(NeighborSampler::with_config(graph(30), config)?))
    });
    let sampled = LinkPredictor::new(&model, sampled).unwrap();
    let whole = LinkPredictor::new(&model, data(30)).unwrap();
    let links = Links::new(vec![3, 8, 29], vec![8, 0, 3]).unwrap();
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::UpTo(2); 2], seed: 7 };
    assert_eq!(sampled.score_links(&links, &mode).unwrap(), whole.score_links(&links, &mode).unwrap());
    assert!(matches!(
        reason(sampled.known_links().unwrap_err()),
        ModelError::Mode(PredictModeError::NeedsWholeGraph { .. })
    ));
    let exact = sampled.score_links(&links, &PredictMode::Exact(LayerWiseConfig::default()));
    assert!(matches!(reason(exact.unwrap_err()), ModelError::Mode(PredictModeError::NeedsWholeGraph { .. })));
}

/// The neighbours of node 0 in the larger graph have no features.
#[test]
fn the_error_of_a_batch_of_a_graph_of_one_type_is_that_of_the_store() {
    let (_, model) = saved(LinkDecoderConfig::Dot);
    let larger = PredictionData::sampled(30, features(30), |fanouts, config| {
        let config = SamplerConfig { fanouts: fanouts.concat(), ..config };
        Ok(Arc::new(NeighborSampler::with_config(graph(40), config)?))
    });
    let predictor = LinkPredictor::new(&model, larger).unwrap();
    let error = predictor.encoder().predict(&[NodeId(0)], &PredictMode::default()).unwrap_err();
    assert!(matches!(error, Error::Feature(_)), "{error}");
    assert!(error.to_string().ends_with("has no feature row: expected an id below 30"), "{error}");
}

#[test]
fn rejects_data_whose_preparation_or_types_do_not_fit() {
    let (_, model) = saved_with(LinkDecoderConfig::Dot, None);
    let error = reason(LinkPredictor::new(&model, data(30)).unwrap_err());
    assert!(matches!(error, ModelError::Preparation(PreparationError::UnknownPreparation)), "{error}");
    LinkPredictor::new(&model, data(30).prepared(Preparation::default())).unwrap();
    let (_, model) = saved(LinkDecoderConfig::Dot);
    let error = reason(LinkPredictor::new(&model, data(30).keys(vec![None; 2])).unwrap_err());
    assert_eq!(error.to_string(), "got 2 lists of keys, expected 1: one per type of nodes");
    let of_one_type = NodeTypes::new([("node", 30)]).unwrap();
    let relations = Arc::new(Relations::new(of_one_type, Vec::new()).unwrap());
    let heterogeneous = PredictionData::heterogeneous(relations, vec![Some(features(30))]);
    let error = reason(LinkPredictor::new(&model, heterogeneous).unwrap_err());
    assert!(matches!(error, ModelError::NotHeterogeneous), "{error}");
}

#[test]
fn undefined_scores_are_left_out() {
    let (_, model) = saved(LinkDecoderConfig::Dot);
    let mut rows = LinkScorerBuilder::new(&model, (0..4).map(NodeId).collect(), None).unwrap();
    let row = |value: f32| vec![value; WIDTH];
    let values = [row(1.0), row(f32::NAN), row(2.0), row(-1.0)].concat();
    let scores = Some(OutputRows::new(values, WIDTH));
    rows.push(&PredictedRows { positions: 0..4, scores, embeddings: None }).unwrap();
    let found = rows.finish().unwrap().top_k(&[NodeId(0), NodeId(1)], &TopKConfig::new(3)).unwrap();
    let pairs: Vec<(u32, f32)> = found.iter().map(|link| (link.dst.0, link.score)).collect();
    assert_eq!(pairs, [(2, 32.0), (3, -16.0)]);
}

#[test]
fn rejects_nodes_without_rows_and_graphs_with_fewer_nodes() {
    let predictor = predictor(LinkDecoderConfig::Dot, 30);
    let scorer = predictor.link_scorer(vec![NodeId(9), NodeId(4)], &PredictMode::default()).unwrap();
    let is_no_row = |error: Error| {
        matches!(error, Error::Saved(ModelError::Nodes(ModelNodesError::NoRow { node: NodeId(5) })))
    };
    let links = Links::new(vec![4, 4], vec![9, 5]).unwrap();
    assert!(is_no_row(scorer.score(&links).unwrap_err()));
    assert!(is_no_row(scorer.top_k(&[NodeId(5)], &TopKConfig::new(1)).unwrap_err()));
    let config = TopKConfig::new(1).excluding(graph(9)).unwrap();
    let error = scorer.top_k(&[NodeId(4)], &config).unwrap_err().to_string();
    assert!(error.contains("node 9 is not in the graph: expected an id below 9"), "{error}");
    let batches = predictor.encoder().batches(&[NodeId(30)], &PredictMode::default(), WantedRows::Outputs);
    batches.unwrap_err();
}
