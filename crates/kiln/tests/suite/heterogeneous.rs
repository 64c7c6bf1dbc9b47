//! Tests of training on heterogeneous graphs: trainable rows are learned, a run does not depend on threads and ranks, is
//! resumed exactly, and equals the run of a homogeneous graph if there is one type and one relation; and of the predictions of its
//! model.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod exact;
mod links;
mod one_type;
pub(crate) mod predictions;
mod regression;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kiln::burn::tensor::Tensor;
use kiln::data::synthetic;
use kiln::graph::{NodeTypes, Relations};
use kiln::kernels::to_vec_f32;
use kiln::prelude::*;
use kiln::train::{Error as TrainError, ExactError, RunError, weights_to_bytes};

use crate::relation::relation;

const N_USERS: u32 = 120;
const N_ITEMS: u32 = 400;
const N_EPOCHS: usize = 4;

/// Users who buy items of one of two classes. Only the purchases tell the class of an item, and users have no features.
pub(crate) fn shop(types: [&str; 2]) -> Dataset {
    let (mut users, mut items) = (Vec::new(), Vec::new());
    for item in 0..N_ITEMS {
        for purchase in 0..6 {
            let buyer = (item * 31 + purchase * 17) % (N_USERS / 2);
            users.push(2 * buyer + item % 2);
            items.push(item);
        }
    }
    let [user, item] = types;
    let features = (0..3 * N_ITEMS).map(|value| (value * 7 % 11) as f32 / 11.0).collect::<Vec<f32>>();
    let parts = |part: u32| (0..N_ITEMS).filter(|item| item % 5 == part).collect::<Vec<u32>>();
    let train: Vec<u32> = (0..3).flat_map(parts).collect();
    let types = NodeTypes::new([(user, N_USERS as usize), (item, N_ITEMS as usize)]).unwrap();
    Dataset::builder_with_types(types)
        .name("shop")
        .relation(relation("buys", [user, item], &users, &items))
        .relation(relation("bought by", [item, user], &items, &users))
        .nodes(item)
        .features(features, 3)
        .labels((0..N_ITEMS).map(|item| (item % 2) as i32).collect::<Vec<i32>>(), 2)
        .split(train.clone(), parts(3).clone(), parts(4).clone())
        .build()
        .unwrap()
}

pub(crate) fn data() -> Dataset {
    shop(["user", "item"])
}

pub(crate) fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [4, 4]).batch_size(32).workers(1)
}

pub(crate) fn config(data: &Dataset) -> HeteroModelConfig<RgcnConfig> {
    let n_relations = data.graph.n_relations();
    let model = RgcnConfig::new(8, 2, n_relations).layers(2).hidden(16).bases(2).dropout(0.0);
    HeteroModelConfig::new(data.dims(), model)
}

pub(crate) fn trainer(data: &Dataset) -> Trainer<HeteroModelConfig<RgcnConfig>> {
    Trainer::new(config(data), AdamConfig::new(1e-2)).seed(7)
}

fn quiet(out: &Path) -> FitConfig {
    quiet_for(N_EPOCHS, out)
}

fn quiet_for(n_epochs: usize, out: &Path) -> FitConfig {
    FitConfig::epochs(n_epochs).out(out).quiet()
}

#[test]
fn rows_of_nodes_without_features_are_learned() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let best = trainer(&data).fit(&loader(&data), FitConfig::epochs(12).out(&out).quiet()).unwrap();
    let accuracy = best.evaluate(&loader(&data), Phase::Test).unwrap().accuracy();
    assert!(0.9 < accuracy, "{accuracy}");
    // The trained model carries the rows of its best epoch, with which it repeats its validation.
    assert_eq!(best.evaluate(&loader(&data), Phase::Validation).unwrap(), best.best.val);
    let [table] = &best.embeddings[..] else { panic!("only users have trainable rows") };
    assert_eq!((table.n_nodes(), table.dim()), (N_USERS as usize, 8));
    let file = std::fs::read(best.folder().unwrap().join("best.safetensors")).unwrap();
    assert_eq!(kiln::store::sha256(&file), best.best.weights_hash);
    let names = String::from_utf8_lossy(&file);
    assert!(names.contains("embeddings.0.weight") && names.contains("embeddings.0.is_learned"));
    let summary = best.write_report(&loader(&data)).unwrap().unwrap();
    assert_eq!(summary.test_accuracy, accuracy);
}

/// A model that reads the groups of edges by relation.
fn rsage(data: &Dataset) -> HeteroModelConfig<RsageConfig> {
    let model = RsageConfig::new(8, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(16);
    HeteroModelConfig::new(data.dims(), model)
}

fn check_threads_and_workers<C: ModelConfig>(data: &Dataset, model: &C)
where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let run = |n_threads: usize, n_workers: usize| {
        let out = folder.path().join(format!("{n_threads}-{n_workers}"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let loader = loader(data).workers(n_workers);
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7);
        pool.install(|| trainer.fit(&loader, quiet(&out))).unwrap().best
    };
    let one = run(1, 0);
    assert_eq!(one, run(3, 0));
    assert_eq!(one, run(2, 2));
}

#[test]
fn threads_and_workers_do_not_change_the_weights() {
    let data = data();
    check_threads_and_workers(&data, &config(&data));
    check_threads_and_workers(&data, &rsage(&data));
}

#[test]
fn groups_of_relations_tell_the_classes() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let fit = FitConfig::epochs(12).out(folder.path().join("run")).quiet();
    let best = Trainer::new(rsage(&data), AdamConfig::new(1e-2)).seed(7).fit(&loader(&data), fit).unwrap();
    let accuracy = best.evaluate(&loader(&data), Phase::Test).unwrap().accuracy();
    assert!(0.9 < accuracy, "{accuracy}");
}

/// The embeddings of ranks stay equal, which each epoch compares, and their sums differ from those of one rank by rounding
/// only. Accumulated batches are those of ranks.
#[test]
fn ranks_and_accumulated_batches_train_the_same_rows() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let run = |n_ranks: usize, n_batches: usize| {
        let out = folder.path().join(format!("{n_ranks}-{n_batches}"));
        let fit = |rank: RankHandle| {
            let loader = loader(&data).batch_size(64 / n_ranks / n_batches);
            let mut trainer = trainer(&data).accumulate(n_batches).rank(&rank);
            let best = trainer.fit(&loader, quiet(&out))?;
            Ok((best.best, best.embeddings))
        };
        launch(RankConfig::threads(n_ranks).threads_per_rank(1), fit).unwrap()
    };
    let users: Vec<NodeId> = (0..N_USERS).map(NodeId).collect();
    let one = run(1, 1);
    let expected = one[0].1[0].learned_rows(&users);
    for (n_ranks, n_batches) in [(2, 1), (4, 1), (1, 2), (2, 2)] {
        let ranks = run(n_ranks, n_batches);
        let rows = ranks[0].1[0].learned_rows(&users);
        for (best, embeddings) in &ranks {
            assert_eq!((best, &embeddings[0].learned_rows(&users)), (&ranks[0].0, &rows));
        }
        let (loss, of_one) = (ranks[0].0.val.loss(), one[0].0.val.loss());
        assert!(
            (loss - of_one).abs() < 1e-3 * of_one,
            "{n_ranks} ranks, {n_batches} batches: {loss} {of_one}"
        );
        let distance = rows.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(distance < 1e-3, "{n_ranks} ranks, {n_batches} batches: {distance}");
    }
}

#[test]
fn a_stopped_run_resumes_to_identical_weights_and_rows() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let out = |name: &str| folder.path().join(name);
    let whole = trainer(&data).fit(&loader(&data), quiet(&out("whole"))).unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let error = trainer(&data).fit(&loader(&data), quiet(&out("stopped")).stop_flag(stop)).unwrap_err();
    assert!(matches!(&error, Error::Interrupted { n_epochs: 0, n_steps: 1, .. }), "{error}");
    let resume = || FitConfig::epochs(N_EPOCHS).resume(out("stopped")).quiet();
    // Another order of types has other ids, even if the relations are the same.
    let error = trainer(&data).fit(&loader(&shop(["customer", "item"])), resume()).unwrap_err();
    assert!(
        matches!(&error, Error::Train(TrainError::Run(RunError::OtherRun { name, .. })) if name == "node types"),
        "{error}"
    );
    let continued = trainer(&data).fit(&loader(&data), resume()).unwrap();
    assert_eq!(continued.best, whole.best);
}

#[test]
fn a_run_equals_that_of_a_homogeneous_graph_if_there_is_one_type_and_one_relation() {
    let fake = synthetic::FakeConfig { avg_num_nodes: 500, num_channels: 16, ..Default::default() };
    let (data, folder) = (synthetic::fake(fake).unwrap(), tempfile::tempdir().unwrap());
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<u32>>();
    let (train, val, test) = (ids(&data.split().train), ids(&data.split().val), ids(&data.split().test));
    let graph = Relations::of_graph(data.csc().unwrap().clone());
    let class = |node: u32| data.labels().get(NodeId(node)).map_or(-1, |class| class as i32);
    let classes: Vec<i32> = (0..data.graph.n_nodes() as u32).map(class).collect();
    let typed = Dataset::builder_with_relations(&graph)
        .nodes("node")
        .feature_store(data.node_features().unwrap().clone())
        .nodes("node")
        .labels(classes, data.labels().n_classes())
        .split(train.clone(), val.clone(), test.clone())
        .build()
        .unwrap();
    let model = SageConfig::for_data(&data).layers(2).hidden(16);
    let fit = |name: &str| FitConfig::epochs(2).out(folder.path().join(name)).quiet();
    let adam = AdamConfig::new(1e-2);
    let expected = Trainer::new(model.clone(), adam)
        .fit(&NeighborLoader::new(&data, [5, 5]).batch_size(64), fit("homogeneous"))
        .unwrap();
    let found = Trainer::new(HeteroModelConfig::new(typed.dims(), model), adam)
        .fit(&NeighborLoader::new(&typed, [5, 5]).batch_size(64), fit("typed"))
        .unwrap();
    assert!(found.model.encoder.is_none() && found.embeddings.is_empty());
    let model = RsageConfig::new(16, data.labels().n_classes()).layers(2).hidden(16);
    let grouped = Trainer::new(HeteroModelConfig::new(typed.dims(), model), adam)
        .fit(&NeighborLoader::new(&typed, [5, 5]).batch_size(64), fit("grouped"))
        .unwrap();
    assert_eq!(grouped.best.val, expected.best.val);
    for (rows, layer) in grouped.model.model.layers.iter().zip(&expected.model.layers) {
        let stacked = Tensor::cat(vec![layer.weight_self.val(), layer.weight_neigh.val()], 0);
        assert_eq!(to_vec_f32(rows.weight.val()), to_vec_f32(stacked));
    }
    assert!(weights_to_bytes(&found.model.model).unwrap() == weights_to_bytes(&expected.model).unwrap());
    assert_eq!(found.best.val, expected.best.val);
}

#[test]
fn rejects_inconsistent_settings() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let refused = |loader: &NeighborLoader, mut trainer: Trainer<HeteroModelConfig<RgcnConfig>>| {
        trainer.fit(loader, quiet(folder.path())).map(drop).unwrap_err()
    };
    let unlabelled = Dataset::builder_with_relations(&data.graph).build().unwrap();
    let error = refused(&NeighborLoader::new(&unlabelled, [1]), trainer(&data));
    assert!(matches!(&error, Error::NoTargets { name } if name == "dataset"), "{error}");
    let error = loader(&data).relation_fanouts("sells", [1, 1]).unwrap_err();
    assert_eq!(error.to_string(), "the data has no relation `sells`, expected one of: buys, bought by");
    let error = loader(&data).relation_fanouts("buys", [1]).unwrap_err();
    assert!(matches!(error, Error::FanoutsOfRelation { expected: 2, got: 1, .. }), "{error}");
    let error = refused(&NeighborLoader::new(&data, [4]), trainer(&data));
    assert!(matches!(error, Error::FanoutsMismatch { n_fanouts: 1, n_layers: 2 }), "{error}");
    let mut fewer = config(&data);
    fewer.model.n_relations = 1;
    let error = refused(&loader(&data), Trainer::new(fewer, AdamConfig::new(1e-2)));
    assert!(matches!(error, Error::TooManyEdgeTypes { n_edge_types: 2, n_relations: 1 }), "{error}");
    let error = loader(&data).gcn_norm().unwrap_err();
    assert!(matches!(error, Error::NeedsOneType { what: "gcn_norm", .. }), "{error}");
    let error = loader(&data).add_self_loops().unwrap_err();
    assert!(matches!(error, Error::NeedsOneType { what: "add_self_loops", .. }), "{error}");
    let error = refused(&loader(&data).feature_cache(1 << 20), trainer(&data));
    assert!(matches!(error, Error::NeedsOneType { what: "a feature cache", .. }), "{error}");
    let error = refused(&loader(&data).edge_features(), trainer(&data));
    assert!(
        error.to_string().contains("the edges have no column `features`; their columns are: none"),
        "{error}"
    );
    let mut of_one_type = Trainer::new(config(&data).model, AdamConfig::new(1e-2));
    let error = of_one_type.fit(&loader(&data), quiet(folder.path())).unwrap_err();
    assert!(matches!(error, Error::HomogeneousModel), "{error}");
    let exact = loader(&data).evaluation(EvalMode::Exact { memory_bytes: Some(100) });
    let error = refused(&exact, trainer(&data));
    assert!(matches!(error, Error::Train(TrainError::Exact(ExactError::MemoryTooSmall { .. }))), "{error}");
    let mut undirected = rsage(&data);
    undirected.model.relations = vec![[0, 1], [0, 1]];
    let error = Trainer::new(undirected, AdamConfig::new(1e-2)).fit(&loader(&data), quiet(folder.path()));
    assert!(matches!(error, Err(Error::OtherMetagraph)), "{error:?}");
    // One type of nodes whose features have another width than the model reads.
    let types = NodeTypes::new([("node", 4)]).unwrap();
    let narrow = Dataset::builder_with_types(types)
        .relation(relation("edge", ["node", "node"], &[0, 1], &[1, 2]))
        .nodes("node")
        .features(vec![0.5; 12], 3)
        .nodes("node")
        .labels(vec![0, 1, 0, 1], 2)
        .split(vec![0, 1], vec![2], vec![3])
        .build()
        .unwrap();
    let wide = HeteroModelConfig::new([Some(4)], RsageConfig::new(4, 2).layers(1));
    let error = Trainer::new(wide, AdamConfig::new(1e-2))
        .fit(&NeighborLoader::new(&narrow, [1]), quiet(folder.path()))
        .unwrap_err();
    assert!(
        error.to_string().contains("[Some(4)] feature columns, but those of the data have [Some(3)]"),
        "{error}"
    );
    let unequal = HeteroModelConfig::new([Some(3)], RsageConfig::new(4, 2).layers(1));
    let error = Trainer::new(unequal, AdamConfig::new(1e-2))
        .fit(&NeighborLoader::new(&narrow, [1]), quiet(folder.path()))
        .unwrap_err();
    assert!(
        error.to_string().contains("the model reads 4 feature columns, but the only type of nodes has 3"),
        "{error}"
    );
    let error = Trainer::new(config(&data), SgdConfig::new(1e-2)).fit(&loader(&data), quiet(folder.path()));
    assert!(error.unwrap_err().to_string().contains("use Adam or AdamW"));
    let mut other = config(&data);
    other.widths = vec![None, Some(4)];
    let error = refused(&loader(&data), Trainer::new(other, AdamConfig::new(1e-2)));
    let message = "the model reads types of nodes with [None, Some(4)] feature columns, but those of the data have [None, \
                   Some(3)]: create it for the widths of the data";
    assert_eq!(error.to_string(), message);
}

/// The fanout of a relation limits its own edges only.
#[test]
fn relations_have_fanouts_of_their_own() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let trained = |loader: &NeighborLoader, name: &str| {
        trainer(&data).fit(loader, quiet(&folder.path().join(name))).unwrap()
    };
    // Without purchases, nothing tells the class of an item.
    let without = loader(&data).relation_fanouts("buys", [0, 0]).unwrap();
    let accuracy = trained(&without, "without").best.val.accuracy();
    assert!((0.3..0.7).contains(&accuracy), "{accuracy}");
    let same = loader(&data).relation_fanouts("buys", [4, 4]).unwrap();
    assert_eq!(trained(&same, "same").best, trained(&loader(&data), "plain").best);
}

/// A graph of one type has one relation, `edge`.
#[test]
fn a_graph_of_one_type_has_fanouts_by_the_name_of_its_relation() {
    let data = kiln::data::synthetic::ring(200).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trained = |loader: &NeighborLoader, name: &str| {
        let model = SageConfig::for_data(&data).layers(2).hidden(8);
        Trainer::new(model, AdamConfig::new(1e-2)).fit(loader, quiet(&folder.path().join(name))).unwrap()
    };
    let loader = NeighborLoader::new(&data, [1, 1]).batch_size(64).workers(0);
    let by_name = NeighborLoader::new(&data, [9, 9]).relation_fanouts("edge", [1, 1]).unwrap();
    let by_name = by_name.batch_size(64).workers(0);
    assert_eq!(trained(&by_name, "by-name").best, trained(&loader, "plain").best);
    let error = loader.relation_fanouts("edges", [1, 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the data has no relation `edges`, expected one of: edge (did you mean `edge`?)"
    );
}

/// The links of a graph of one type are no links of a heterogeneous graph, and the other way round.
#[test]
fn links_of_the_other_kind_of_graph_are_errors() {
    let (data, ring) = (data(), kiln::data::synthetic::ring(200).unwrap());
    let of_ring = LinkSplit::random(&ring.graph, &Default::default(), 0).unwrap();
    let of_types = LinkSplit::random_relation(&data.graph, "buys", None, &Default::default(), 0).unwrap();
    let one = LinkNeighborLoader::new(NeighborLoader::new(&data, [2]), &of_ring).unwrap_err();
    let other = LinkNeighborLoader::new(NeighborLoader::new(&ring, [2]), &of_types).unwrap_err();
    assert!(matches!(one, Error::OtherRelations { .. }), "{one}");
    assert!(matches!(other, Error::OtherRelations { .. }), "{other}");
}

/// A trained model is evaluated on batches that suit it, as it is trained.
#[test]
fn evaluations_check_their_loader() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let best = trainer(&data).fit(&loader(&data), quiet_for(1, &folder.path().join("types"))).unwrap();
    let ring = kiln::data::synthetic::ring(60).unwrap();
    let of_ring = NeighborLoader::new(&ring, [2, 2]);
    let error = best.evaluate(&of_ring, Phase::Test).unwrap_err();
    assert!(matches!(error, Error::HeterogeneousModel), "{error}");
    let unlabelled = Dataset { targets: None, ..data.clone() };
    let error = best.write_report(&NeighborLoader::new(&unlabelled, [4, 4])).unwrap_err();
    assert!(matches!(error, Error::NoTargets { .. }), "{error}");
    let model = SageConfig::for_data(&ring).layers(2).hidden(8);
    let mut trainer = Trainer::new(model, AdamConfig::new(1e-2));
    let best = trainer.fit(&of_ring, quiet_for(1, &folder.path().join("ring"))).unwrap();
    let error = best.predict(&loader(&data), Phase::Test).map(drop).unwrap_err();
    assert!(matches!(error, Error::HomogeneousModel), "{error}");
}

/// The hash that the program knows is that of the run, and nothing reads all values.
#[test]
fn a_known_hash_of_the_data_is_recorded() {
    let (data, folder) = (Arc::new(data()), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let source = kiln::GraphSource::from(&data).with_hash("of the folder");
    let loader = NeighborLoader::new(source.clone(), [4, 4]).batch_size(32).workers(0);
    trainer(&data).fit(&loader, quiet_for(1, &out)).unwrap();
    let model = SavedModel::open(&out).unwrap();
    assert_eq!(model.info().data_hash, "of the folder");
    // Users have no names, so that their rows are found by id, on data with this hash.
    assert!(model.is_of_data("of the folder") && !model.is_of_data("other"));
    model.on_nodes(source).unwrap();
}
