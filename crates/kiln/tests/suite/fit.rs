//! Tests of `Trainer::fit` and `TrainedModel`: the errors for inconsistent settings, the settings that a run's result
//! does not depend on, resuming, and reports.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use kiln::data::synthetic;
use kiln::prelude::*;
use kiln::sample::{Neighbors, NodeKey, Selection};
use kiln::train::{
    EpochReport, Error as TrainError, InputError, MetricError, MetricSums, RunError, StepReport,
    TrainCallback, TrainerError,
};

const N_EPOCHS: usize = 3;

fn data() -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 500, num_channels: 16, ..Default::default() };
    synthetic::fake(config).unwrap()
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [5, 5]).batch_size(64).workers(1)
}

fn trainer(data: &Dataset) -> Trainer<SageConfig> {
    Trainer::new(SageConfig::for_data(data).layers(2).hidden(16), AdamConfig::new(1e-2)).seed(7)
}

fn quiet(out: &Path) -> FitConfig {
    FitConfig::epochs(N_EPOCHS).out(out).quiet()
}

fn refused(data: &Dataset, loader: &NeighborLoader) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let error = trainer(data).fit(loader, quiet(&out)).unwrap_err();
    assert!(!out.exists(), "{error}");
    error
}

#[test]
fn rejects_inconsistent_settings() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let error = trainer(&data).fit(&loader(&data), FitConfig::epochs(0).out(folder.path())).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Train(TrainError::Trainer(TrainerError::BadSetting { what: "the number of epochs", .. }))
        ),
        "{error}"
    );
    let error = refused(&data, &NeighborLoader::new(&data, [5, 5, 5]));
    assert!(matches!(error, Error::FanoutsMismatch { n_fanouts: 3, n_layers: 2 }), "{error}");
    // A `main` that returns this error prints its `Debug` form.
    let message = "the loader has 3 fanouts, but the model has 2 layers: pass one fanout per layer, or call .layers(3) on \
                   the model's config";
    assert_eq!(format!("{error:?}"), message);
    let error = refused(&data, &loader(&data).batch_size(0));
    assert!(matches!(error, Error::Train(TrainError::Loader(kiln::loader::Error::ZeroBatchSize))), "{error}");
    let error = refused(&data, &loader(&data).batch_size(1_000_000).drop_last());
    assert!(
        matches!(error, Error::Train(TrainError::Input(InputError::NoStep { per_step: 1_000_000, .. }))),
        "{error}"
    );
    let error = refused(&data, &loader(&data).feature_cache(1 << 20));
    assert!(matches!(error, Error::CacheNeedsDevice), "{error}");
    let error = trainer(&data).device("abacus").unwrap_err();
    assert!(matches!(error, Error::Device(_)), "{error}");
}

#[test]
fn rejects_empty_splits() {
    let mut data = data();
    let split = data.split().clone();
    data.targets.as_mut().unwrap().split.train = Default::default();
    let error = refused(&data, &loader(&data));
    assert!(
        matches!(error, Error::Train(TrainError::Input(InputError::EmptySplit { split: "training" }))),
        "{error}"
    );
    // An empty test split is an error only when it is evaluated.
    let data = data.with_split(Split { test: Default::default(), ..split }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let best = trainer(&data).fit(&loader(&data), quiet(folder.path())).unwrap();
    let error = best.evaluate(&loader(&data), Phase::Test).unwrap_err();
    assert!(
        matches!(error, Error::Train(TrainError::Input(InputError::EmptySplit { split: "test" }))),
        "{error}"
    );
}

#[test]
fn rejects_a_gcn_without_edge_weights() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = Trainer::new(GcnConfig::for_data(&data).layers(2).hidden(16), AdamConfig::new(1e-2));
    let error = trainer.fit(&loader(&data), quiet(folder.path())).unwrap_err();
    assert!(matches!(error, Error::NoEdgeWeights), "{error}");
    let best = trainer.fit(&loader(&data).gcn_norm().unwrap(), quiet(folder.path())).unwrap();
    assert_eq!(best.report.n_epochs, N_EPOCHS);
}

#[test]
fn rejects_a_gat_without_self_loops_and_accepts_a_rule_of_the_program() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let config = GatConfig::for_data(&data).layers(2).hidden(16).attention(AttentionKind::GatV2);
    let mut trainer = Trainer::new(config, AdamConfig::new(1e-2));
    // The default rule drops loops, also those of the dataset.
    let looped = data.clone().add_self_loops().unwrap();
    for loader in [loader(&data), loader(&looped), loader(&data).rule(Rule::UniformKeepSelfLoops)] {
        let error = trainer.fit(&loader, quiet(&out("refused"))).unwrap_err();
        assert!(matches!(error, Error::NoSelfLoops) && !out("refused").exists(), "{error}");
    }
    let hash = |best: TrainedModel<_>| best.best.weights_hash;
    let expected = hash(trainer.fit(&loader(&data).add_self_loops().unwrap(), quiet(&out("data"))).unwrap());
    let of_looped = trainer.fit(&loader(&looped).add_self_loops().unwrap(), quiet(&out("looped"))).unwrap();
    assert_eq!(hash(of_looped), expected);
    // All neighbours include the loop. A rule of the program is its own decision.
    let all = NeighborLoader::new(&looped, [Fanout::All; 2]).batch_size(64);
    trainer.fit(&all, quiet(&out("all"))).unwrap();
    let ruled = loader(&data).rule(Rule::Uniform).add_self_loops().unwrap();
    assert_ne!(hash(trainer.fit(&ruled, quiet(&out("ruled"))).unwrap()), expected);
    let normalised = loader(&data).gcn_norm().unwrap();
    let twice =
        hash(trainer.fit(&normalised.clone().add_self_loops().unwrap(), quiet(&out("twice"))).unwrap());
    assert_eq!(hash(trainer.fit(&normalised, quiet(&out("normalised"))).unwrap()), twice);
}

#[test]
fn rejects_edge_types_that_are_missing_or_not_below_the_relations() {
    let untyped = data();
    let types: Vec<u8> = (0..untyped.graph.n_edges()).map(|edge| (edge % 3) as u8).collect();
    let graph = (**untyped.csc().unwrap()).clone().with_edge_types(types.into()).unwrap();
    let typed = Dataset { graph: graph.into(), ..untyped.clone() };
    let folder = tempfile::tempdir().unwrap();
    let config = RgcnConfig::for_data(&typed).layers(2).hidden(16);
    assert_eq!((config.n_relations, RgcnConfig::for_data(&untyped).n_relations), (3, 256));
    let fit = |config: &RgcnConfig, loader: &NeighborLoader| {
        Trainer::new(config.clone(), AdamConfig::new(1e-2)).fit(loader, quiet(&folder.path().join("run")))
    };
    let error = fit(&config, &loader(&typed)).unwrap_err();
    assert!(matches!(error, Error::NoEdgeTypes), "{error}");
    let error = fit(&config, &loader(&untyped).edge_types()).unwrap_err();
    assert!(matches!(error, Error::Sample(kiln::sample::Error::NoEdgeTypes)), "{error}");
    let two = RgcnConfig { n_relations: 2, ..config.clone() };
    let error = fit(&two, &loader(&typed).edge_types()).unwrap_err();
    assert!(matches!(error, Error::TooManyEdgeTypes { n_edge_types: 3, n_relations: 2 }), "{error}");
    // Links have the edge types of the message graph.
    let link_config = LinkSplitConfig { val: 0.1, test: 0.1, ..Default::default() };
    let split = LinkSplit::random(&typed.graph, &link_config, 0).unwrap();
    let links = LinkNeighborLoader::new(loader(&typed).edge_types(), &split).unwrap();
    let two = LinkModelConfig { encoder: two, decoder: LinkDecoderConfig::Dot };
    let mut trainer = Trainer::new(two, AdamConfig::new(1e-2));
    let error = trainer.fit(&links, quiet(&folder.path().join("run"))).unwrap_err();
    assert!(matches!(error, Error::TooManyEdgeTypes { .. }), "{error}");
    assert!(!folder.path().join("run").exists());
    fit(&config, &loader(&typed).edge_types()).unwrap();
}

#[test]
fn gcn_norm_keeps_a_sampling_rule_set_before_or_after_it() {
    let data = data();
    let rule_of = |loader: NeighborLoader| {
        let settings = DataLoader::<kiln::nn::Gcn>::settings(&loader, 1);
        settings.into_iter().find(|(name, _)| *name == "rule").unwrap().1
    };
    let keeps_loops = format!("{:?}", Rule::UniformKeepSelfLoops);
    assert_eq!(rule_of(loader(&data).gcn_norm().unwrap()), keeps_loops);
    let custom = format!("{:?}", Rule::UniformWithReplacement);
    assert_ne!(custom, keeps_loops);
    let set_before = loader(&data).rule(Rule::UniformWithReplacement).gcn_norm().unwrap();
    assert_eq!(rule_of(set_before), custom);
    let set_after = loader(&data).gcn_norm().unwrap().rule(Rule::UniformWithReplacement);
    assert_eq!(rule_of(set_after), custom);
}

/// Picks the first neighbours of each node; serves as a custom sampling rule.
fn first(neighbors: Neighbors<'_>, _: NodeKey, fanout: u32, picks: &mut Selection) {
    (0..fanout.min(neighbors.degree() as u32)).for_each(|position| picks.push(position));
}

#[test]
fn weights_depend_on_the_seed_and_not_on_workers_or_where_batches_are_prepared() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let hash = |name: &str, loader: &NeighborLoader, seed| {
        let best = trainer(&data).seed(seed).fit(loader, quiet(&folder.path().join(name))).unwrap();
        best.best.weights_hash
    };
    let expected = hash("0", &loader(&data), 7);
    assert_eq!(hash("1", &loader(&data).workers(0), 7), expected);
    let on_device = loader(&data).graph_mode(GraphMode::Device);
    assert_eq!(hash("2", &on_device, 7), expected);
    assert_eq!(hash("3", &on_device.feature_cache(1 << 10), 7), expected);
    assert_ne!(hash("4", &loader(&data), 8), expected);
    let of_rule = hash("5", &loader(&data).rule(first), 7);
    assert_ne!(of_rule, expected);
    assert_eq!(hash("7", &loader(&data).rule(first).graph_mode(GraphMode::Device), 7), of_rule);
    assert_ne!(hash("6", &loader(&data).shuffle(false), 7), expected);
}

#[test]
fn a_stopped_run_resumes_to_identical_weights() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let whole = trainer(&data).fit(&loader(&data), quiet(&out("whole"))).unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let config = quiet(&out("stopped")).stop_flag(stop);
    let error = trainer(&data).fit(&loader(&data), config).unwrap_err();
    assert!(
        matches!(&error, Error::Interrupted { n_epochs: 0, folder, .. } if *folder == Some(out("stopped"))),
        "{error}"
    );
    // Each rank names the folder, which only rank 0 writes.
    let error = launch(RankConfig::threads(2).threads_per_rank(1), |rank| {
        let config = quiet(&out("ranks")).stop_flag(Arc::new(AtomicBool::new(true)));
        let error = trainer(&data).rank(&rank).fit(&loader(&data), config).unwrap_err();
        assert!(
            matches!(&error, Error::Interrupted { folder, .. } if *folder == Some(out("ranks"))),
            "{error}"
        );
        Err::<(), _>(error)
    });
    assert_eq!(error.unwrap_err().exit_status(), 75);
    let config = FitConfig::epochs(N_EPOCHS).resume(out("stopped")).quiet();
    let continued = trainer(&data).fit(&loader(&data), config).unwrap();
    assert_eq!(continued.best.weights_hash, whole.best.weights_hash);
    drop(continued);

    let config = FitConfig::epochs(N_EPOCHS).start_or_resume(out("stopped")).quiet();
    let error = trainer(&data).seed(8).fit(&loader(&data), config).unwrap_err();
    assert!(
        matches!(&error, Error::Train(TrainError::Run(RunError::OtherRun { name, .. })) if name == "seed"),
        "{error}"
    );
}

#[test]
fn evaluates_and_reports_the_best_model() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let best = trainer(&data).fit(&loader(&data), quiet(folder.path())).unwrap();
    let (val, test) = (Phase::Validation, Phase::Test);
    assert_eq!(best.evaluate(&loader(&data), val).unwrap(), best.best.val);
    let sums = best.evaluate(&loader(&data), test).unwrap();
    let outputs = best.predict(&loader(&data), test).unwrap();
    assert_eq!(sums.accuracy(), outputs.metrics().accuracy);
    assert_eq!(outputs.predictions().len(), data.split().test.len());
    let summary = best.write_report(&loader(&data)).unwrap().unwrap();
    assert_eq!((summary.test_accuracy, &summary.weights_hash), (sums.accuracy(), &best.best.weights_hash));
    for name in ["best.safetensors", "config.json", "metrics.jsonl", "summary.json", "test_predictions.csv"] {
        assert!(best.folder().unwrap().join(name).exists(), "{name}");
    }
}

/// The best epoch by macro F1 is the same on one and on two ranks, which share the validation nodes.
#[test]
fn the_metric_selects_the_epoch_on_any_number_of_ranks() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let fit = |rank: &RankHandle, batch_size: usize, out: &Path| -> Result<_> {
        let loader = loader(&data).batch_size(batch_size);
        let config = SageConfig::for_data(&data).layers(2).hidden(16).dropout(0.0);
        let mut trainer = Trainer::new(config, AdamConfig::new(1e-2)).seed(7).rank(rank);
        let best = trainer.fit(&loader, quiet(out).metric(Metric::F1Macro))?;
        Ok((best.best.clone(), best.predict(&loader, Phase::Validation)?, best.write_report(&loader)?))
    };
    let of_ranks = |n_ranks: usize| {
        let out = folder.path().join(n_ranks.to_string());
        launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| fit(&rank, 64 / n_ranks, &out))
            .unwrap()
    };
    let (one, two) = (of_ranks(1), of_ranks(2));
    assert_eq!((one[0].0.epoch, one[0].0.metric), (two[0].0.epoch, Metric::F1Macro));
    assert_eq!(two[0].0, two[1].0);
    for (best, val, summary) in [&one[0], &two[0]] {
        assert_eq!(best.value, val.confusion().f1_macro());
        let summary = summary.as_ref().unwrap();
        assert_eq!((summary.metric, summary.val_metric), (Metric::F1Macro, best.value));
        assert_eq!(summary.test_metrics.len(), 5);
    }
    let rows = std::fs::read_to_string(folder.path().join("1/metrics.jsonl")).unwrap();
    let values = rows.lines().map(|row| {
        let value = row.split("\"val_metric\":").nth(1).and_then(|rest| rest.split(',').next());
        value.unwrap().parse::<f64>().unwrap()
    });
    assert_eq!(values.fold(0.0, f64::max), one[0].0.value.unwrap());
}

#[test]
fn rejects_a_metric_of_other_targets_before_anything_is_written() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let error = trainer(&data).fit(&loader(&data), quiet(&out).metric(Metric::Rmse)).unwrap_err();
    assert!(matches!(error, Error::Train(TrainError::Metric(MetricError::OtherMetric { .. }))), "{error}");
    assert!(!out.exists());
}

/// A callback that keeps the notes of a run.
#[derive(Clone, Default)]
pub(crate) struct Notes(pub(crate) Arc<Mutex<Vec<String>>>);

impl TrainCallback for Notes {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}

    fn note(&mut self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }

    fn warning(&mut self, text: &str) {
        self.note(text);
    }
}

#[test]
fn few_steps_per_epoch_have_one_note() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let notes = |batch_size: usize| {
        let notes = Arc::default();
        let config = quiet(&folder.path().join(batch_size.to_string())).callback(Notes(Arc::clone(&notes)));
        trainer(&data).fit(&loader(&data).batch_size(batch_size), config).unwrap();
        notes.lock().unwrap().clone()
    };
    let [note] = &notes(1024)[..] else { panic!("one note should be given") };
    assert!(note.starts_with("an epoch has 1 step, because a step takes "), "{note}");
    assert_eq!(notes(4), [""; 0]);
}

/// The events do not depend on `quiet`, which only disables the lines per epoch.
#[test]
fn notes_and_warnings_are_events_once_each() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let mut targets = data.targets.clone().unwrap();
    targets.split.test = std::iter::empty().collect();
    let data = Dataset { targets: Some(targets), ..data };
    let loader = loader(&data).batch_size(1024);
    let (best, log) =
        kiln_testkit::record_log(|| trainer(&data).fit(&loader, quiet(&folder.path().join("run"))));
    best.unwrap();
    // Other tests of this process may cause page faults meanwhile.
    let log = log.iter().filter(|event| event.name != "page-faults");
    let log: Vec<_> = log.map(|event| (event.name, &*event.place, &event.text[..20])).collect();
    let expected = [
        ("run-warning", "WARN kiln_train::run", "the test split has n"),
        ("run-note", "INFO kiln_train::run", "an epoch has 1 step,"),
    ];
    assert_eq!(log, expected);
}
