//! Training from the weights of another run: of the same model, and of data with other nodes.

use std::fs;
use std::sync::{Arc, Mutex};

use kiln::data::NodeNames;
use kiln::train::{
    Error as TrainError, InitialWeightsError, ModelError, ModelFileError, RunError, TrainCallback,
    weights_to_bytes,
};

use super::*;
use crate::heterogeneous;

fn trained(out: &Path) -> TrainedModel<kiln::nn::Sage> {
    let data = cycle(80, 3);
    trainer(&data).fit(&loader(&data), quiet(3, out)).unwrap()
}

/// Returns the error of a training from these weights, which writes nothing.
pub(super) fn refused<C: ModelConfig, L: DataLoader<C::Model>>(
    setup: Trainer<C>,
    loader: &L,
    weights: &Path,
) -> TrainError {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    match setup.init_from(weights).fit(loader, quiet(1, &out)).map(drop) {
        Err(Error::Train(error)) if !out.exists() => error,
        other => panic!("expected an error before the run: {other:?}"),
    }
}

#[test]
fn of_a_run_or_a_file_are_the_weights_before_the_first_step_on_all_ranks() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let run = folder.path().join("run");
    let best = trained(&run);
    let expected = weights_to_bytes(&best.model).unwrap();
    let file = folder.path().join("weights.safetensors");
    fs::write(&file, &expected).unwrap();
    for from in [&run, &file] {
        let of_ranks = launch(RankConfig::threads(2).threads_per_rank(1), |rank| {
            let setup = trainer(&data).seed(9).rank(&rank).init_from(from);
            Ok(weights_to_bytes(setup.start(&loader(&data))?.model())?)
        });
        assert_eq!(of_ranks.unwrap(), [&expected[..], &expected]);
    }
}

#[test]
fn the_run_has_their_hash_and_resumes_with_the_same_ones_only() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let [first, other, out] = ["first", "other", "out"].map(|name| folder.path().join(name));
    let hash = trained(&first).best.weights_hash;
    trainer(&data).seed(8).fit(&loader(&data), quiet(1, &other)).unwrap();
    let whole = folder.path().join("whole");
    let from = || trainer(&data).init_from(&first);
    let expected = from().fit(&loader(&data), quiet(2, &whole)).unwrap();
    from().fit(&loader(&data), quiet(1, &out)).unwrap();
    assert_eq!(record(&out).settings["initial weights"], hash);
    let resumed = || FitConfig::epochs(2).resume(&out).quiet();
    for mut setup in [trainer(&data).init_from(&other), trainer(&data)] {
        let error = setup.fit(&loader(&data), resumed()).map(drop).unwrap_err();
        let Error::Train(TrainError::Run(RunError::OtherRun { name, then, .. })) = &error else {
            panic!("{error}")
        };
        assert_eq!((name.as_str(), then), ("initial weights", &hash));
    }
    let best = from().fit(&loader(&data), resumed()).unwrap();
    assert_eq!(best.best, expected.best);
    // Shows that the start matters.
    let fresh = trainer(&data).fit(&loader(&data), quiet(2, &folder.path().join("fresh"))).unwrap();
    assert_ne!(fresh.best.weights_hash, best.best.weights_hash);
}

/// Collects the notes.
#[derive(Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl TrainCallback for Notes {
    fn note(&mut self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

/// A user's row is found by the name, also if the user has another number.
#[test]
fn trainable_rows_are_found_by_the_names_of_their_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let named = |first: u32| {
        let data = heterogeneous::data();
        let names = |n: usize, prefix: &str, first: u32| {
            (0..n as u32).map(|node| format!("{prefix}{}", node + first)).collect::<Vec<_>>()
        };
        let counts = [0, 1].map(|node_type| data.graph.schema().types().range(node_type).len());
        let of_type = [names(counts[0], "user", first), names(counts[1], "item", 0)];
        let names = of_type.map(|names| Arc::new(NodeNames::new(names.iter().map(String::as_str))));
        Dataset { names: names.to_vec(), ..data }
    };
    let (then, now) = (named(0), named(20));
    let loader = |data: &Dataset| heterogeneous::loader(data).workers(0);
    let best = heterogeneous::trainer(&then).fit(&loader(&then), quiet(2, &run)).unwrap();
    let notes = Notes::default();
    let seen = Arc::clone(&notes.0);
    let out = folder.path().join("out");
    let mut setup = heterogeneous::trainer(&now).seed(5).init_from(&run);
    setup.fit(&loader(&now), FitConfig::epochs(1).out(&out).quiet().callback(notes)).unwrap();
    let note = "20 nodes are not among those of the initial weights: their rows start anew";
    assert!(seen.lock().unwrap().iter().any(|text| text == note), "{:?}", seen.lock().unwrap());
    let started = setup.start(&loader(&now)).unwrap();
    let fresh = heterogeneous::trainer(&now).seed(5).start(&loader(&now)).unwrap();
    let rows = |table: &kiln::train::NodeEmbedding, node: u32| table.rows(&[NodeId(node)]).unwrap();
    let [saved, taken, new] = [&best.embeddings[0], &started.embeddings()[0], &fresh.embeddings()[0]];
    let n_users = taken.n_nodes() as u32;
    for node in 0..n_users {
        let expected = if node + 20 < n_users { rows(saved, node + 20) } else { rows(new, node) };
        assert_eq!(rows(taken, node), expected, "user {node}");
    }
}

#[test]
fn weights_of_another_model_or_a_damaged_file_are_errors_that_name_the_tensor() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let run = folder.path().join("run");
    trained(&run);
    let sage = |config: SageConfig| Trainer::new(config, AdamConfig::new(1e-2));
    let config = SageConfig::for_data(&data).layers(2).hidden(8);
    let error = refused(sage(config.clone().hidden(16)), &loader(&data), &run);
    let TrainError::Saved(ModelError::Initial(InitialWeightsError::Shape { tensor, expected, got, .. })) =
        &error
    else {
        panic!("{error}")
    };
    assert!(tensor.starts_with("layers.0") && expected.contains("16") && got.contains('8'), "{error}");

    let three = NeighborLoader::new(&data, [2, 2, 2]).batch_size(32).workers(0);
    let error = refused(sage(config.clone().layers(3)), &three, &run);
    let kind = |error: &TrainError| match error {
        TrainError::Saved(ModelError::Initial(InitialWeightsError::Missing { tensor, kind, .. })) => {
            assert_eq!(kind.as_deref(), Some("sage"));
            format!("missing {tensor}")
        }
        TrainError::Saved(ModelError::Initial(InitialWeightsError::Unknown { tensor, .. })) => {
            format!("unknown {tensor}")
        }
        TrainError::Saved(ModelError::Initial(other)) => format!("{other:?}"),
        other => panic!("{other}"),
    };
    assert!(error.to_string().contains("layers."), "{error}");
    let one = NeighborLoader::new(&data, [2]).batch_size(32).workers(0);
    let error = refused(sage(config.clone().layers(1)), &one, &run);
    assert!(error.to_string().contains("layers."), "{error}");
    let gcn = Trainer::new(GcnConfig::for_data(&data).layers(2).hidden(8), AdamConfig::new(1e-2));
    let error = refused(gcn, &loader(&data).gcn_norm().unwrap(), &run);
    assert!(kind(&error).starts_with("missing layers.0"), "{error}");

    let error = refused(trainer(&data), &loader(&data), &folder.path().join("none"));
    assert!(
        matches!(error, TrainError::Saved(ModelError::File(ModelFileError::Unreadable { .. }))),
        "{error}"
    );
    let file = folder.path().join("text");
    fs::write(&file, "no weights").unwrap();
    let error = refused(trainer(&data), &loader(&data), &file);
    assert!(
        matches!(error, TrainError::Saved(ModelError::Initial(InitialWeightsError::NoWeights { .. }))),
        "{error}"
    );
    let weights = run.join("best.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let error = refused(trainer(&data), &loader(&data), &run);
    assert!(
        matches!(error, TrainError::Saved(ModelError::File(ModelFileError::BadWeights { .. }))),
        "{error}"
    );
}
