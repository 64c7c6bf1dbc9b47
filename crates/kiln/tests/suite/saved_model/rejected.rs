//! Requests and run folders that are rejected, with the reason.

use std::fs;

use kiln::prelude::*;
use kiln::train::{Error as TrainError, ModelError, ModelFileError, ModelNodesError, PreparationError};

use super::{loader, raw_data, sage, trained};

#[test]
fn rejects_requests_that_do_not_fit_the_model() {
    let (_folder, run, raw) = sage();
    let model = SavedModel::open(&run).unwrap();
    let predictor = model.on_nodes(&raw).unwrap();
    let n_nodes = raw.graph.n_nodes();
    let error = predictor.predict(&[NodeId(n_nodes as u32)], &PredictMode::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("node {n_nodes} is not in the graph: expected an id below {n_nodes}")
    );
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::All], seed: 0 };
    let error = predictor.predict(&[NodeId(0)], &mode).unwrap_err();
    assert_eq!(error.to_string(), "got 1 fanouts for a model of 2 layers: give one fanout per layer");
    let error = model.on_links(&raw).unwrap_err().to_string();
    assert_eq!(error, "the model was trained for nodes, but the request needs a model of links");
    let error = model.on_nodes(&kiln::data::synthetic::ring(10).unwrap()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Train(TrainError::Saved(ModelError::Nodes(ModelNodesError::FeatureWidth {
                expected: 16,
                ..
            })))
        ),
        "{error}"
    );
    // A step that the model's preparation does not have cannot be undone.
    let other = raw.clone().symmetrize().unwrap();
    let error = model.on_nodes(&other).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Train(TrainError::Saved(ModelError::Preparation(PreparationError::OtherPreparation {
                step: "symmetrized"
            })))
        ),
        "{error}"
    );
    assert_eq!(predictor.predict(&[], &PredictMode::default()).unwrap().n_rows(), 0);
}

#[test]
fn rejects_a_gcn_without_edge_weights_and_a_gin_of_another_width() {
    let data = raw_data();
    let gcn = GcnConfig::for_data(&data).layers(2).hidden(8);
    let (_folder, run) = trained(&gcn, &loader(&data).gcn_norm().unwrap(), 1);
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.1], 0).unwrap();
    let gin = GinConfig::paper(features.dim(), 8, 2);
    let (_other, run_of_gin) = trained(&gin, &GraphLoader::new(&graphs, features, &split), 1);
    for (run, from, to, expected) in [
        (run, "\"edge_weights\": \"unbiased\"", "\"edge_weights\": \"none\"", "a gcn reads edge weights"),
        (run_of_gin, "\"n_features\": 7", "\"n_features\": 8", "the config is for 7 features"),
    ] {
        let path = run.join("model.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = SavedModel::open(&run).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn rejects_damaged_newer_and_incomplete_run_folders() {
    let (_folder, run, _) = sage();
    let path = run.join("model.json");
    let text = fs::read_to_string(&path).unwrap();
    let open = |text: &str| {
        fs::write(&path, text).unwrap();
        match SavedModel::open(&run).unwrap_err() {
            TrainError::Saved(error) => error,
            other => panic!("{other}"),
        }
    };
    let newer = open(&text.replace("\"format\": 4", "\"format\": 6"));
    assert!(matches!(newer, ModelError::File(ModelFileError::UnknownFormat { found: 6, .. })), "{newer}");
    // Each change is a damage that JSON allows.
    let damages = [
        ("{", "", "trailing characters"),
        ("\"format\": 4,", "", "the field `format` is missing"),
        ("\"kind\": \"sage\",", "", "missing field `kind`"),
        ("\"hidden\": 8", "\"hidden\": 0", "hidden"),
        ("\"hidden\": 8", "\"hidden\": -8", "invalid value"),
        ("\"hidden\": 8", "\"width\": 8", "unknown field `width`"),
        ("\"n_layers\": 2", "\"n_layers\": 0", "the config has 0 layers"),
        (
            "\"n_layers\": 2",
            "\"n_layers\": 1000000",
            "the config has 1000000 layers, but there are 2 fanouts",
        ),
        ("\"d_in\": 16", "\"d_in\": 15", "the config is for 15 features, but the inputs have 16"),
        (
            "\"built_in\": \"uniform\"",
            "\"built_in\": \"other\"",
            "there is no built-in sampling rule \"other\"",
        ),
        ("\"format\": 4", "\"format\": 0", "the `format` is 0"),
        ("\"batch_size\": 32", "\"batch_size\": 0", "`batch_size` is 0, expected at least 1"),
        ("\"n_ranks\": 1", "\"n_ranks\": 18446744073709551615", "which no run can have"),
        ("\"n_features\": 16", "\"n_features\": 17", "the scaling has 16 means, expected 17"),
        (
            "\"task\": \"nodes\"",
            "\"task\": \"graphs\"",
            "the task is whole graphs, but a sage is a model of nodes",
        ),
        ("\"class_names\": [", "\"class_names\": [\"one\",", "there are 11 class names, expected 10 or none"),
        ("\"factors\": [", "\"factors\": [1.0,", "the scaling has 17 factors, expected 16"),
    ];
    for (from, to, expected) in damages {
        assert!(text.contains(from), "{from} is not in {text}");
        let error = open(&text.replacen(from, to, 1));
        assert!(matches!(error, ModelError::File(ModelFileError::BadInfo { .. })), "{from} -> {to}: {error}");
        assert!(error.to_string().contains(expected), "{from} -> {to}: {error}");
    }
    let weights = open(&text.replace("\"hidden\": 8", "\"hidden\": 9"));
    assert!(matches!(weights, ModelError::File(ModelFileError::BadWeights { .. })), "{weights}");
    fs::write(&path, &text).unwrap();
    fs::write(run.join("best.safetensors"), b"not weights").unwrap();
    let error = SavedModel::open(&run).unwrap_err();
    assert!(
        matches!(error, TrainError::Saved(ModelError::File(ModelFileError::BadWeights { .. }))),
        "{error}"
    );
    // Without a hash, the bytes are parsed.
    fs::write(&path, without_hash(&text)).unwrap();
    let error = SavedModel::open(&run).unwrap_err();
    assert!(
        matches!(error, TrainError::Saved(ModelError::File(ModelFileError::BadWeights { .. }))),
        "{error}"
    );
    fs::remove_file(&path).unwrap();
    let error = SavedModel::open(&run).unwrap_err();
    assert!(
        matches!(error, TrainError::Saved(ModelError::File(ModelFileError::Unreadable { .. }))),
        "{error}"
    );
}

/// Returns `model.json` as an older version of kiln wrote it.
fn without_hash(text: &str) -> String {
    let is_newer = |line: &&str| ["\"weights_hash\"", "\"contract\""].iter().any(|name| line.contains(name));
    let lines: Vec<&str> = text.lines().filter(|line| !is_newer(line)).collect();
    lines.join("\n").replace("\"format\": 4", "\"format\": 1")
}

#[test]
fn rejects_changed_weights_by_their_hash_and_opens_files_without_a_hash() {
    let (_folder, run, _) = sage();
    let (path, weights) = (run.join("model.json"), run.join("best.safetensors"));
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    let hash = SavedModel::open(&run).unwrap().info().weights_hash.clone().unwrap();
    assert_eq!(SavedModel::open(&run).unwrap().info().note_on_draws(), None);
    assert!(summary.contains(&hash), "{hash} is not in {summary}");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let error = SavedModel::open(&run).unwrap_err();
    assert!(
        matches!(error, TrainError::Saved(ModelError::File(ModelFileError::BadWeights { .. }))),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("expected {hash}")), "{error}");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, without_hash(&text)).unwrap();
    let older = SavedModel::open(&run).unwrap();
    assert_eq!((older.info().weights_hash.clone(), older.info().contract), (None, 1));
    let note = older.info().note_on_draws().expect("that version drew other neighbours");
    assert!(
        note.contains("evaluated this run with version 1 of the determinism contract, this is version 2"),
        "{note}"
    );
}

/// Each of these models would take gigabytes or more.
#[test]
fn rejects_configs_that_are_too_large_for_the_weights_before_the_model_is_created() {
    let (_folder, run, _) = sage();
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.1], 0).unwrap();
    let gin = GinConfig::paper(features.dim(), 8, 2);
    let (_other, run_of_gin) = trained(&gin, &GraphLoader::new(&graphs, features, &split), 1);
    let data = kiln::data::synthetic::ring(60).unwrap();
    let split = LinkSplitConfig { val: 0.2, test: 0.2, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &split, 0).unwrap();
    let links = LinkNeighborLoader::new(NeighborLoader::new(&data, [2]).batch_size(20), &split).unwrap();
    let encoder = SageConfig::new(data.node_features().unwrap().dim(), 8).layers(1);
    let decoder = LinkDecoderConfig::Mlp { hidden: 5, n_layers: 2, dropout: 0.0 };
    let (_third, run_of_links) = trained(&LinkModelConfig { encoder, decoder }, &links, 1);
    for (run, from, to) in [
        (&run_of_links, "\"hidden\": 5", "\"hidden\": 1048576"),
        (&run_of_links, "\"n_layers\": 2", "\"n_layers\": 18446744073709551615"),
        (&run, "\"hidden\": 8", "\"hidden\": 1048576"),
        (&run, "\"hidden\": 8", "\"hidden\": 18446744073709551615"),
        (&run_of_gin, "\"hidden\": 8", "\"hidden\": 30000"),
        (&run_of_gin, "\"n_layers\": 4", "\"n_layers\": 1048576"),
        (&run_of_gin, "\"mlp_layers\": 2", "\"mlp_layers\": 18446744073709551615"),
    ] {
        let path = run.join("model.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = SavedModel::open(run).unwrap_err();
        assert!(
            matches!(error, TrainError::Saved(ModelError::File(ModelFileError::BadWeights { .. }))),
            "{to}: {error}"
        );
        assert!(error.to_string().contains("the weights of the config take at least"), "{to}: {error}");
        fs::write(&path, text).unwrap();
    }
}
