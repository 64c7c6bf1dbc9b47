//! Models on data whose edges or node labels mean something else than those of the training data.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kiln::feature::{FeatureColumn, TargetValues, Targets};
use kiln::graph::CscBuilder;
use kiln::nn::{Gin, Sage};
use kiln::partition::{Part, part_dir};
use kiln::prelude::*;
use kiln::train::{Error as TrainError, ModelEdgesError, ModelError};
use serde_json::{Value, json};

use crate::fit::Notes;
use crate::frozen::partitions::Parts;

/// A ring with two edge types with these names, with weights if `is_weighted`.
fn ring(names: [&str; 2], is_weighted: bool) -> Dataset {
    let srcs: Vec<u32> = (0..80).map(|edge| edge % 40).collect();
    let dsts: Vec<u32> = (0..80).map(|edge| (edge + 1 + edge / 40) % 40).collect();
    let types: Vec<u8> = (0..80).map(|edge| (edge / 40) as u8).collect();
    let weights: Vec<f32> = (0..80).map(|edge| 1.0 + edge as f32).collect();
    let builder = Dataset::builder(40).edges(&srcs, &dsts).edge_types(&types);
    let builder = if is_weighted { builder.edge_weights(&weights) } else { builder };
    let data = builder
        .features((0..40).map(|node| node as f32 / 40.0).collect::<Vec<f32>>(), 1)
        .labels((0..40).map(|node| node / 20).collect::<Vec<i32>>(), 2)
        .split((0..20).collect::<Vec<u32>>(), (20..30).collect::<Vec<u32>>(), (30..40).collect::<Vec<u32>>())
        .build()
        .unwrap();
    Dataset { edge_type_names: names.map(str::to_owned).to_vec(), ..data }
}

fn train<C>(config: C, loader: &NeighborLoader, out: &Path) -> SavedModel
where
    C: ModelConfig,
    C::Model: kiln::nn::BlockModel,
{
    let fit = FitConfig::epochs(1).out(out).quiet();
    Trainer::new(config, AdamConfig::new(0.01)).fit(loader, fit).unwrap();
    SavedModel::open(out).unwrap()
}

fn error_of(model: &SavedModel, data: &Dataset) -> ModelEdgesError {
    match model.on_nodes(data).unwrap_err() {
        Error::Train(TrainError::Saved(ModelError::Edges(error))) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn edge_types_are_compared_by_name() {
    let root = tempfile::tempdir().unwrap();
    let data = ring(["cites", "extends"], false);
    let loader = NeighborLoader::new(&data, [4]).edge_types();
    let model = train(RgcnConfig::for_data(&data).layers(1), &loader, &root.path().join("run"));
    assert!(model.on_nodes(&data).is_ok());
    let error = error_of(&model, &ring(["extends", "cites"], false));
    assert!(
        matches!(&error, ModelEdgesError::EdgeTypeName { number: 0, expected, got } if expected == "cites" && got == "extends"),
        "{error}"
    );

    // Names that one side lacks cannot be compared.
    let unnamed = Dataset { edge_type_names: Vec::new(), ..data.clone() };
    let loader = NeighborLoader::new(&unnamed, [4]).edge_types();
    let of_unnamed = train(RgcnConfig::for_data(&unnamed).layers(1), &loader, &root.path().join("unnamed"));
    assert!(of_unnamed.on_nodes(&data).is_ok());
    assert_eq!(model.note_on_edge_types(&data.edge_type_names), None);
    assert_eq!(of_unnamed.note_on_edge_types(&[]), None);
    let note = model.note_on_edge_types(&[]).unwrap();
    assert!(note.starts_with("the edge types have no names in this data"), "{note}");
    let note = of_unnamed.note_on_edge_types(&data.edge_type_names).unwrap();
    assert!(note.starts_with("the edge types have no names in the training data"), "{note}");
    // A model that does not read the types has no note on them.
    let loader = NeighborLoader::new(&data, [4]);
    let without = train(SageConfig::for_data(&data).layers(1), &loader, &root.path().join("without"));
    assert_eq!(without.note_on_edge_types(&data.edge_type_names), None);
}

#[test]
fn weights_of_one_relation_are_those_of_the_training() {
    let root = tempfile::tempdir().unwrap();
    for is_weighted in [true, false] {
        let data = ring(["a", "b"], is_weighted);
        let loader = NeighborLoader::new(&data, [4]).gcn_norm().unwrap();
        let out = root.path().join(is_weighted.to_string());
        let model = train(GcnConfig::for_data(&data).layers(1), &loader, &out);
        assert!(model.on_nodes(&data).is_ok());
        let error = error_of(&model, &ring(["a", "b"], !is_weighted));
        assert!(
            matches!(&error, ModelEdgesError::RelationWeights { is_weighted: of_data, .. } if *of_data != is_weighted),
            "{error}"
        );
    }
}

/// A set that lacks most of the labels of the training data, in another order, has zeros in their columns.
#[test]
fn node_labels_of_graphs_are_found_by_name() {
    let root = tempfile::tempdir().unwrap();
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Labels).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0).unwrap();
    let loader = GraphLoader::new(&graphs, features, &split).node_features(NodeFeatures::Labels);
    let out = root.path().join("run");
    let config = GinConfig::paper(7, 8, 2);
    Trainer::new(config, AdamConfig::new(0.01)).fit(&loader, FitConfig::epochs(1).out(&out).quiet()).unwrap();
    let model = SavedModel::open(&out).unwrap();
    let small = |names: &[&str], labels: Vec<i32>| {
        let graph = CscBuilder::new(3).build(&[0, 1, 1, 2], &[1, 0, 2, 1]).unwrap();
        let classes = kiln::feature::Labels::new(vec![0], 2);
        let set = GraphDataset::new("small", graph, vec![0, 3], classes).unwrap();
        let labels = kiln::feature::Labels::new(labels, names.len());
        let mut set = set.with_node_labels(labels).unwrap();
        set.node_label_names = names.iter().map(|&name| name.to_owned()).collect();
        set
    };
    let scores = |set: &GraphDataset| {
        let features = model.node_features(set).unwrap();
        assert_eq!(features.dim(), 7);
        model.predict_dataset(set, &features, &[GraphId(0)]).unwrap().values().to_vec()
    };
    // N, C and C, in the numbering of mutag and in another one.
    let expected = scores(&small(&["C", "N", "O", "F", "I", "Cl", "Br"], vec![1, 0, 0]));
    assert_eq!(scores(&small(&["N", "C"], vec![0, 1, 1])), expected);
    let error = model.node_features(&small(&["N", "Xe"], vec![0, 1, 1])).unwrap_err().to_string();
    assert!(error.contains("`label Xe`"), "{error}");
}

/// Returns a ring with two feature columns of these names.
fn named(columns: [&str; 2], values: impl Fn(usize) -> [f32; 2]) -> Dataset {
    let data = Dataset::builder(40)
        .edges(&(0..40).collect::<Vec<u32>>(), &(0..40).map(|node| (node + 1) % 40).collect::<Vec<u32>>())
        .features((0..40).flat_map(values).collect::<Vec<f32>>(), 2)
        .labels((0..40).map(|node| node / 20).collect::<Vec<i32>>(), 2)
        .split((0..20).collect::<Vec<u32>>(), (20..30).collect::<Vec<u32>>(), (30..40).collect::<Vec<u32>>())
        .build()
        .unwrap();
    let feature_columns = vec![columns.map(|name| FeatureColumn::new(name, "numeric")).to_vec()];
    Dataset { feature_columns, ..data }
}

/// Lists that one side lacks cannot be compared, which a note says.
#[test]
fn names_of_one_side_have_a_note() {
    let root = tempfile::tempdir().unwrap();
    let data = named(["age", "price"], |node| [node as f32, -1.0]);
    let loader = NeighborLoader::new(&data, [Fanout::All]);
    let of_columns = train(SageConfig::for_data(&data).layers(1), &loader, &root.path().join("named"));
    let unnamed = Dataset { feature_columns: vec![Vec::new()], ..data.clone() };
    let loader = NeighborLoader::new(&unnamed, [Fanout::All]);
    let of_array = train(SageConfig::for_data(&unnamed).layers(1), &loader, &root.path().join("unnamed"));
    let columns = &data.feature_columns[0][..];
    assert_eq!(of_columns.note_on_columns([("node", columns)]), None);
    assert_eq!(of_array.note_on_columns([("node", &[][..])]), None);
    let note = of_columns.note_on_columns([("node", &[][..])]).unwrap();
    assert!(note.starts_with("the feature columns of node have no names in this data"), "{note}");
    let note = of_array.note_on_columns([("node", columns)]).unwrap();
    assert!(note.starts_with("the feature columns of node have no names in the training data"), "{note}");

    // The builder gives classes no names.
    let targets = &data.targets.as_ref().unwrap().values;
    let names = ["1", "2"].map(str::to_owned);
    let found = of_array.targets_by_name(targets, &names).unwrap();
    let (Targets::Classes(found_labels), Targets::Classes(labels)) = (&found.targets, targets) else {
        panic!()
    };
    assert!(Arc::ptr_eq(found_labels, labels), "the labels have other numbers");
    assert_eq!(
        found.notes,
        ["the classes have no names in the training data, so their numbers were compared"]
    );
    let numbers: Targets = TargetValues::regression(vec![0.5; 40], 1).unwrap().into();
    let found = of_array.targets_by_name(&numbers, &names).unwrap();
    assert!(found.targets.is_empty());
    assert!(found.notes[0].ends_with("they are not compared with the predictions"), "{:?}", found.notes);
}

/// Columns of partitions that are served are found by name, and one of another name is an error.
#[test]
fn feature_columns_of_whole_and_partitioned_graphs_are_found_by_name() {
    let root = tempfile::tempdir().unwrap();
    let data = named(["age", "price"], |node| [node as f32, -1.0]);
    let loader = NeighborLoader::new(&data, [Fanout::All]);
    let model = train(SageConfig::for_data(&data).layers(1), &loader, &root.path().join("run"));
    let info = model.info().inputs.feature_columns.clone();
    assert_eq!(info["node"], data.feature_columns[0]);
    let test = data.targets.as_ref().unwrap().split.test.to_vec();
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::All], seed: 0 };
    let expected = model.on_nodes(&data).unwrap().predict(&test, &mode).unwrap();
    let swapped = named(["price", "age"], |node| [-1.0, node as f32]);
    let other = named(["age", "cost"], |node| [node as f32, -1.0]);
    assert_eq!(model.on_nodes(&swapped).unwrap().predict(&test, &mode).unwrap(), expected);
    for data in [&swapped, &other] {
        let parts = Parts::of(data);
        let served = parts.serve();
        let results = launch(RankConfig::threads(1), |rank| {
            let joined = served.graph.join(&rank)?;
            match model.on_nodes(&joined) {
                Ok(predictor) => Ok(Ok(predictor.predict(&test, &mode)?)),
                Err(error) => Ok(Err(error.to_string())),
            }
        });
        match results.unwrap().remove(0) {
            Ok(rows) => assert_eq!(rows, expected),
            Err(error) => assert!(error.contains("lacks the feature column `price`"), "{error}"),
        }
    }
    let served = Parts::of(&other);
    let part = Part::open(part_dir(served.folder(), 0)).unwrap();
    assert_eq!(part.types[0].feature_columns, other.feature_columns[0]);

    // A width that the features do not have would select columns out of range.
    let path = root.path().join("run/model.json");
    let intact: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for width in [0, 2, usize::MAX] {
        let mut damaged = intact.clone();
        damaged["inputs"]["feature_columns"]["node"][0]["width"] = json!(width);
        fs::write(&path, damaged.to_string()).unwrap();
        let error = SavedModel::open(root.path().join("run")).unwrap_err().to_string();
        assert!(error.contains("the `feature_columns` of \"node\" have a width of"), "{error}");
    }
}

/// A class that training lacks has a note from every loader, whole or partitioned, of nodes or of graphs.
#[test]
fn classes_that_training_lacks_have_notes() {
    let data = named(["age", "price"], |node| [node as f32, -1.0]);
    let expected =
        ["val", "test"].map(|part| {
            format!("the {part} split has 10 nodes (100.0 %) of classes that no training node has (1): a model cannot predict them")
        });
    let of_classes = |notes: Vec<String>| -> Vec<String> {
        notes.into_iter().filter(|note| note.contains("no training")).collect()
    };
    let loader = NeighborLoader::new(&data, [2]);
    assert_eq!(of_classes(DataLoader::<Sage>::notes(&loader)), expected);
    // The notes of a reader were printed when the data was opened.
    let noted = Dataset { notes: data.check_split().unwrap(), ..data.clone() };
    assert_eq!(of_classes(DataLoader::<Sage>::notes(&NeighborLoader::new(&noted, [2]))), [""; 0]);
    let served = Parts::of(&data).serve();
    let results = launch(RankConfig::threads(1), |rank| {
        let joined = served.graph.join(&rank)?;
        Ok(DataLoader::<Sage>::notes(&NeighborLoader::new(&joined, [2])))
    });
    assert_eq!(of_classes(results.unwrap().remove(0)), expected);

    let graphs = kiln::data::mutag().unwrap();
    let Targets::Classes(classes) = graphs.targets() else { panic!("mutag should have classes") };
    let of_class = |class: u32| -> Vec<GraphId> {
        (0..188).map(GraphId).filter(|graph| classes.get(*graph) == Some(class)).collect()
    };
    let split =
        Split { train: of_class(0).into(), val: of_class(1)[..3].to_vec().into(), ..Split::default() };
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let notes = DataLoader::<Gin>::notes(&GraphLoader::new(&graphs, features, &split));
    let expected = "the val split has 3 graphs (100.0 %) of classes that no training graph has (1): a model cannot predict them";
    assert_eq!(of_classes(notes), [expected]);
}

/// The weights of a run belong to the classes, columns and edge types of its first epoch, which the hash of the data does not
/// name.
#[test]
fn a_run_does_not_resume_on_data_with_other_names() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("run");
    let mut data = ring(["cites", "extends"], false);
    data.targets.as_mut().unwrap().class_names = ["good", "bad"].map(str::to_owned).to_vec();
    data.feature_columns = vec![vec![FeatureColumn::new("age", "numeric")]];
    let fit = |data: &Dataset, n_epochs: usize, notes: &Arc<Mutex<Vec<String>>>| {
        let loader = NeighborLoader::new(data, [4]).edge_types();
        let mut trainer = Trainer::new(RgcnConfig::for_data(data).layers(1), AdamConfig::new(0.01));
        let config = FitConfig::epochs(n_epochs).start_or_resume(&out).quiet();
        trainer.fit(&loader, config.callback(Notes(Arc::clone(notes)))).map(|_| ())
    };
    let notes = Arc::default();
    fit(&data, 1, &notes).unwrap();
    let files = || ["config.json", "model.json"].map(|name| fs::read(out.join(name)).unwrap());
    let before = files();
    let mut classes = data.clone();
    classes.targets.as_mut().unwrap().class_names.reverse();
    let columns =
        Dataset { feature_columns: vec![vec![FeatureColumn::new("price", "numeric")]], ..data.clone() };
    let edge_types = ring(["extends", "cites"], false).edge_type_names;
    let edge_types = Dataset { edge_type_names: edge_types, ..data.clone() };
    // The same values may mean something else.
    let mut rescaled = data.clone();
    rescaled.feature_columns[0][0].meaning = "standardize: mean 3, deviation 2".to_owned();
    for (other, then, now) in [
        (rescaled, "age (numeric)", "age (standardize: mean 3, deviation 2)"),
        (classes, "good, bad", "bad, good"),
        (columns, "age (numeric)", "price (numeric)"),
        (edge_types, "cites, extends", "extends, cites"),
    ] {
        let error = fit(&other, 2, &notes).unwrap_err().to_string();
        assert!(error.contains(&format!(" was {then} and is {now} now")), "{error}");
        assert!(files() == before, "a refused run should change no file");
    }
    assert_eq!(notes.lock().unwrap().iter().filter(|note| note.contains("compared")).count(), 0);
    // Names that only the earlier part had are kept. The numbers of classes are no names.
    let mut unnamed = Dataset { edge_type_names: Vec::new(), feature_columns: vec![Vec::new()], ..data };
    unnamed.targets.as_mut().unwrap().class_names = ["0", "1"].map(str::to_owned).to_vec();
    fit(&unnamed, 2, &notes).unwrap();
    let inputs = SavedModel::open(&out).unwrap().info().inputs.clone();
    assert_eq!(inputs.class_names, ["good", "bad"]);
    assert_eq!(inputs.sampling.unwrap().edge_type_names, ["cites", "extends"]);
    assert_eq!(inputs.feature_columns["node"], [FeatureColumn::new("age", "numeric")]);
    // Without the file, nothing can be compared, which a warning says.
    fs::remove_file(out.join("model.json")).unwrap();
    fit(&unnamed, 3, &notes).unwrap();
    assert_eq!(notes.lock().unwrap().iter().filter(|note| note.contains("could not be compared")).count(), 1);
}
