//! Predictions of saved models of links: on the edges of the run they repeat the run's scores, on the same rows in another order
//! they are the same for each name, and the best destinations are those of all scores.

use std::fs;
use std::path::{Path, PathBuf};

use kiln::graph::Links;
use kiln::prelude::*;
use kiln::train::{Error as TrainError, LinkPrediction, LinkPredictor, ModelError, WantedRows};
use tempfile::TempDir;

use super::{rgcn, rsage};
use crate::heterogeneous::predictions::{N_ITEMS, N_USERS, named_shop};

/// All neighbours, so that the row of a node does not depend on its batch.
const ALL: [Fanout; 2] = [Fanout::All; 2];

fn split(data: &Dataset) -> LinkSplit {
    LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &LinkSplitConfig::default(), 3)
        .unwrap()
}

/// Trains on links. Returns the folder of the run, and the scores of the test links.
fn trained<C: ModelConfig>(data: &Dataset, model: C) -> (TempDir, PathBuf, Vec<LinkPrediction>)
where
    LinkNeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let nodes = NeighborLoader::new(data, ALL).batch_size(256).workers(0);
    let loader = LinkNeighborLoader::new(nodes, &split(data)).unwrap();
    let fit = FitConfig::epochs(2).out(folder.path().join("run")).quiet();
    let best = Trainer::new(model, AdamConfig::new(1e-2)).seed(7).fit(&loader, fit).unwrap();
    let scores = best.predict(&loader, Phase::Test).unwrap().link_predictions();
    (folder, best.folder().unwrap().to_owned(), scores)
}

fn predictor(run: &Path, data: &Dataset) -> LinkPredictor {
    SavedModel::open(run).unwrap().on_links(data).unwrap()
}

/// Returns the data without the links of the validation and the test.
fn message_data(data: &Dataset) -> Dataset {
    Dataset { graph: split(data).message().clone(), ..data.clone() }
}

fn links(pairs: impl IntoIterator<Item = [u32; 2]>) -> Links {
    let (srcs, dsts): (Vec<NodeId>, Vec<NodeId>) =
        pairs.into_iter().map(|[src, dst]| (NodeId(src), NodeId(dst))).unzip();
    Links::new(srcs, dsts).unwrap()
}

fn check_repeats<C: ModelConfig>(data: &Dataset, model: C)
where
    LinkNeighborLoader: DataLoader<C::Model>,
{
    let (_folder, run, expected) = trained(data, model);
    assert!(100 < expected.len());
    // Sources and destinations are numbered within their types.
    assert!(expected.iter().all(|link| link.src.0 < N_USERS && link.dst.0 < N_ITEMS));
    let of_run = links(expected.iter().map(|link| [link.src.0, link.dst.0]));
    let predictor = predictor(&run, &message_data(data));
    let scores = predictor.score_links(&of_run, &PredictMode::AsEvaluated).unwrap();
    for (score, expected) in scores.iter().zip(&expected) {
        assert_eq!(*score, expected.score, "{expected:?}");
    }
    // A constant would also be repeated.
    assert!(scores.iter().any(|score| 1e-2 < (score - scores[0]).abs()));
}

#[test]
fn scores_repeat_those_of_the_run() {
    let data = named_shop(1, 0);
    check_repeats(&data, rsage(&data));
    check_repeats(&data, rgcn(&data));
}

#[test]
fn rows_in_another_order_have_the_same_scores_by_name() {
    let data = named_shop(1, 0);
    let (_folder, run, _) = trained(&data, rsage(&data));
    // In the data with the step `step`, user `u` has the id `u * step % N_USERS`.
    let scores = |step: u32, n_new: u32| {
        let pairs = (0..200).map(|pair| [pair * 7 % N_USERS, pair * 3 % N_ITEMS]);
        let pairs = pairs.map(|[user, item]| [user * step % N_USERS, item * step % N_ITEMS]);
        let predictor = predictor(&run, &named_shop(step, n_new));
        predictor.score_links(&links(pairs), &PredictMode::AsEvaluated).unwrap()
    };
    let one = scores(1, 0);
    let distance = |other: Vec<f32>| one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance(scores(7, 0)) < 1e-4, "{}", distance(scores(7, 0)));
    // Users with other names have no rows of their own, so that the test above would fail without names.
    assert!(1e-2 < distance(scores(7, N_USERS)));
}

#[test]
fn top_k_are_the_best_of_all_destinations_without_known_links() {
    let data = named_shop(1, 0);
    let (_folder, run, _) = trained(&data, rsage(&data));
    let predictor = predictor(&run, &data);
    let [users, items] = predictor.node_ranges();
    assert_eq!((users, items), (0..N_USERS, N_USERS..N_USERS + N_ITEMS));
    assert_eq!(predictor.relation().unwrap().name, "buys");
    let mode = PredictMode::AsEvaluated;
    let known = predictor.known_links().unwrap();
    let srcs = [NodeId(5), NodeId(0), NodeId(5)];
    for excludes in [false, true] {
        let config = TopKConfig::new(4);
        let config = if excludes { config.excluding(known.clone()).unwrap() } else { config };
        let found = predictor.top_k(&srcs, &config, &mode).unwrap();
        assert_eq!(found.len(), 12);
        let mut n_known = 0;
        for (of_src, &src) in found.chunks(4).zip(&srcs) {
            let all = (0..N_ITEMS).map(|item| [src.0, item]);
            let all = predictor.score_links(&links(all), &mode).unwrap();
            let is_known = |item: usize| known.in_neighbors(NodeId(N_USERS + item as u32)).contains(&src);
            n_known += (0..all.len()).filter(|item| is_known(*item)).count();
            let mut ranked: Vec<usize> =
                (0..all.len()).filter(|item| !(excludes && is_known(*item))).collect();
            ranked.sort_by(|a, b| all[*b].total_cmp(&all[*a]));
            for (link, item) in of_src.iter().zip(&ranked) {
                assert_eq!(link.src, src);
                assert!((link.score - all[*item]).abs() < 1e-5, "{link:?} {}", all[*item]);
                assert!(!(excludes && is_known(link.dst.index())), "{link:?}");
            }
        }
        assert!(10 < n_known, "the sources should have links");
    }
    let first = predictor.top_k(&srcs[..1], &TopKConfig::new(4).among(10..13), &mode).unwrap();
    let mut dsts: Vec<u32> = first.iter().map(|link| link.dst.0).collect();
    dsts.sort_unstable();
    assert_eq!(dsts, [10, 11, 12]);
    assert!(predictor.top_k(&[], &TopKConfig::new(4), &mode).unwrap().is_empty());
    assert!(predictor.score_links(&links([]), &mode).unwrap().is_empty());
}

#[test]
fn requests_that_do_not_fit_are_errors() {
    let data = named_shop(1, 0);
    let (_folder, run, _) = trained(&data, rsage(&data));
    let model = SavedModel::open(&run).unwrap();
    let error = model.on_nodes(&data).unwrap_err();
    let Error::Train(TrainError::Saved(ModelError::OtherTask { .. })) = &error else { panic!("{error}") };
    assert_eq!(error.to_string(), "the model was trained for links, but the request needs a model of nodes");
    let predictor = predictor(&run, &data);
    for (pair, n_nodes) in [([N_USERS, 0], N_USERS), ([0, N_ITEMS], N_ITEMS)] {
        let error = predictor.score_links(&links([pair]), &PredictMode::AsEvaluated).unwrap_err();
        assert!(error.to_string().contains(&format!("expected an id below {n_nodes}")), "{error}");
    }
    let error = predictor.top_k(&[NodeId(N_USERS)], &TopKConfig::new(1), &PredictMode::AsEvaluated);
    assert!(error.unwrap_err().to_string().contains("expected an id below 120"));
    let outside = [NodeId(N_USERS + N_ITEMS)];
    let batches = predictor.encoder().batches(&outside, &PredictMode::AsEvaluated, WantedRows::Outputs);
    let error = batches.unwrap_err();
    assert!(error.to_string().contains("expected an id below 520"), "{error}");
    // All neighbours, layer by layer or by sampling, give the same score.
    let exact = predictor.score_links(&links([[0, 0], [7, 9]]), &PredictMode::Exact(Default::default()));
    let all = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 1 };
    let sampled = predictor.score_links(&links([[0, 0], [7, 9]]), &all).unwrap();
    for (exact, sampled) in exact.unwrap().iter().zip(&sampled) {
        assert!((exact - sampled).abs() < 1e-5, "{exact} {sampled}");
    }
    let json = fs::read_to_string(run.join("model.json")).unwrap();
    let relation = json.lines().find(|line| line.contains("\"relation\":")).unwrap();
    for (from, to, reason) in [
        (relation, "", "`relation` is missing for a model of links"),
        (relation, "\"relation\": \"sells\"", "the relation \"sells\" of the links is not in `relations`"),
        ("\"target_type\": \"item\"", "\"target_type\": \"user\"", "the links of \"buys\" end at \"item\""),
        ("\"n_outputs\": 1,", "\"n_outputs\": 2,", "a link has one score"),
        ("\"task\": \"links\"", "\"task\": \"nodes\"", "`relation` does not apply to a model of nodes"),
    ] {
        // The last field of an object has no comma after it.
        let mut damaged = json.replace(from, to);
        if to.is_empty() {
            let end = damaged.find("\"target_type\"").unwrap();
            let comma = end + damaged[end..].find(',').unwrap();
            damaged.remove(comma);
        }
        assert_ne!(json, damaged);
        fs::write(run.join("model.json"), damaged).unwrap();
        let error = SavedModel::open(&run).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
