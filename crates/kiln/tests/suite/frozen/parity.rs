//! A plain graph and the same graph as a heterogeneous one with one type and one relation: equal weights and predictions,
//! bit for bit, on partitions and after a resumed run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kiln::graph::Links;
use kiln::nn::{HeteroModel, LinkModel, Sage};
use kiln::prelude::*;
use kiln::train::{OutputRows, weights_to_bytes};

use super::partitions::Parts;
use super::{N_NODES, link_split, of_one_type, plain, relation_split};

const FANOUTS: [u32; 2] = [4, 3];
const N_EPOCHS: usize = 2;

/// The weights of a model, as bytes that do not depend on its type.
trait PlainWeights {
    fn plain_weights(&self) -> Vec<Vec<u8>>;
}

impl PlainWeights for Sage {
    fn plain_weights(&self) -> Vec<Vec<u8>> {
        vec![weights_to_bytes(self).unwrap()]
    }
}

impl PlainWeights for HeteroModel<Sage> {
    fn plain_weights(&self) -> Vec<Vec<u8>> {
        assert!(self.encoder.is_none(), "one type with features needs no encoder");
        self.model.plain_weights()
    }
}

impl<E: PlainWeights + kiln::burn::module::Module> PlainWeights for LinkModel<E> {
    fn plain_weights(&self) -> Vec<Vec<u8>> {
        let mut weights = self.encoder.plain_weights();
        weights.push(weights_to_bytes(&self.decoder).unwrap());
        weights
    }
}

fn sage(d_out: usize) -> SageConfig {
    SageConfig::new(4, d_out).layers(2).hidden(8).dropout(0.3)
}

fn typed_sage(data: &Dataset, d_out: usize) -> HeteroModelConfig<SageConfig> {
    HeteroModelConfig::new(data.dims(), sage(d_out))
}

fn of_links<E>(encoder: E) -> LinkModelConfig<E> {
    LinkModelConfig { encoder, decoder: LinkDecoderConfig::Mlp { hidden: 8, n_layers: 2, dropout: 0.3 } }
}

fn quiet(out: &Path) -> FitConfig {
    FitConfig::epochs(N_EPOCHS).out(out).quiet()
}

/// Trains on ranks with the loaders that `loader` returns, into the folder `out`. Returns the weights of rank 0.
fn weights<C, L>(
    model: &C,
    n_ranks: usize,
    out: &Path,
    loader: impl Fn(&RankHandle) -> kiln::Result<L> + Sync,
) -> Vec<Vec<u8>>
where
    C: ModelConfig,
    C::Model: PlainWeights,
    L: DataLoader<C::Model>,
{
    let config = RankConfig::threads(n_ranks).threads_per_rank(1);
    let of_ranks = launch(config, |rank| {
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank);
        Ok(trainer.fit(&loader(&rank)?, quiet(out))?.model.plain_weights())
    });
    of_ranks.unwrap().remove(0)
}

fn nodes(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, FANOUTS).batch_size(64)
}

fn typed_nodes(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, FANOUTS).batch_size(64)
}

/// Ranks with partitions take the nodes that they own, so their sums differ from those of the whole graph.
#[test]
fn nodes_on_partitions_have_the_weights_of_one_type() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let data = plain();
    let typed = of_one_type(&data);
    let model = sage(3);
    let typed_model = typed_sage(&typed, 3);
    let whole = weights(&model, 1, &out("whole"), |_| Ok(nodes(&data)));
    let parts = Parts::of(&data);
    let typed_parts = Parts::of_typed(&typed);
    let served = parts.serve();
    let of_servers = weights(&model, 1, &out("servers"), |rank| {
        Ok(NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(64))
    });
    assert!(of_servers == whole);
    let served = typed_parts.serve();
    let of_servers = weights(&typed_model, 1, &out("typed-servers"), |rank| {
        Ok(NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(64))
    });
    assert!(of_servers == whole);
    let graph = parts.of_workers();
    let of_workers = weights(&model, 2, &out("workers"), |rank| {
        Ok(NeighborLoader::new(&graph.join(rank)?, FANOUTS).batch_size(32))
    });
    let graph = typed_parts.of_workers();
    let of_typed_workers = weights(&typed_model, 2, &out("typed-workers"), |rank| {
        Ok(NeighborLoader::new(&graph.join(rank)?, FANOUTS).batch_size(32))
    });
    assert!(of_typed_workers == of_workers);
}

#[test]
fn links_on_partitions_have_the_weights_of_one_type() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let data = plain();
    let typed = of_one_type(&data);
    let split = link_split(&data);
    let typed_split = relation_split(&typed, "edge", None);
    let model = of_links(sage(8));
    let typed_model = of_links(typed_sage(&typed, 8));
    let whole =
        weights(&model, 1, &out("whole"), |_| LinkNeighborLoader::new(nodes(&data).batch_size(256), &split));
    let parts = Parts::of(&Dataset { graph: split.message().clone(), ..data });
    let typed_parts = Parts::of_typed(&Dataset { graph: typed_split.message().clone(), ..typed });
    let on = |graph: &PartitionedGraph, rank: &RankHandle, batch_size: usize| {
        let nodes = NeighborLoader::new(&graph.join(rank)?, FANOUTS).batch_size(batch_size);
        LinkNeighborLoader::new(nodes, split.targets())
    };
    let typed_on = |graph: &PartitionedGraph, rank: &RankHandle, batch_size: usize| {
        let nodes = NeighborLoader::new(&graph.join(rank)?, FANOUTS).batch_size(batch_size);
        LinkNeighborLoader::new(nodes, typed_split.dataset_links())
    };
    let served = parts.serve();
    let of_servers = weights(&model, 1, &out("servers"), |rank| on(&served.graph, rank, 256));
    assert!(of_servers == whole);
    let served = typed_parts.serve();
    let of_servers =
        weights(&typed_model, 1, &out("typed-servers"), |rank| typed_on(&served.graph, rank, 256));
    assert!(of_servers == whole);
    let graph = parts.of_workers();
    let of_workers = weights(&model, 2, &out("workers"), |rank| on(&graph, rank, 128));
    let graph = typed_parts.of_workers();
    let of_typed_workers =
        weights(&typed_model, 2, &out("typed-workers"), |rank| typed_on(&graph, rank, 128));
    assert!(of_typed_workers == of_workers);
}

/// Returns the predictions on a partitioned graph, of one rank that holds no partition.
fn on_served<T: Send>(
    parts: &Parts,
    predict: impl Fn(&PartitionedGraph, &RankHandle) -> kiln::Result<T> + Sync,
) -> T {
    let served = parts.serve();
    let config = RankConfig::threads(1).threads_per_rank(1);
    launch(config, |rank| predict(&served.graph, &rank)).unwrap().remove(0)
}

#[test]
fn predictions_of_nodes_are_those_of_one_type() {
    let folder = tempfile::tempdir().unwrap();
    let [run, typed_run] = ["plain", "typed"].map(|name| folder.path().join(name));
    let data = plain();
    let typed = of_one_type(&data);
    weights(&sage(3), 1, &run, |_| Ok(nodes(&data)));
    weights(&typed_sage(&typed, 3), 1, &typed_run, |_| Ok(typed_nodes(&typed)));
    let [model, typed_model] = [&run, &typed_run].map(|run| SavedModel::open(run).unwrap());
    let all: Vec<NodeId> = (0..N_NODES).rev().map(NodeId).collect();
    let sampled = PredictMode::Sampled { fanouts: vec![Fanout::UpTo(2), Fanout::All], seed: 5 };
    for mode in [PredictMode::AsEvaluated, sampled] {
        let predictor = model.on_nodes(&data).unwrap();
        let expected: [OutputRows; 2] =
            [predictor.predict(&all, &mode).unwrap(), predictor.embed(&all, &mode).unwrap()];
        assert!(expected[0].classes().iter().any(|class| *class != expected[0].classes()[0]));
        let predictor = typed_model.on_nodes(&typed).unwrap();
        let embeddings = predictor.embed(&all, &mode).unwrap();
        assert_eq!([predictor.predict(&all, &mode).unwrap(), embeddings], expected);
        let found = on_served(&Parts::of(&data), |graph, rank| {
            let predictor = model.on_nodes(&graph.join(rank)?)?;
            Ok([predictor.predict(&all, &mode)?, predictor.embed(&all, &mode)?])
        });
        assert_eq!(found, expected);
        let found = on_served(&Parts::of_typed(&typed), |graph, rank| {
            let predictor = typed_model.on_nodes(&graph.join(rank)?)?;
            Ok([predictor.predict(&all, &mode)?, predictor.embed(&all, &mode)?])
        });
        assert_eq!(found, expected);
    }
}

#[test]
fn scores_of_links_are_those_of_one_type() {
    let folder = tempfile::tempdir().unwrap();
    let [run, typed_run] = ["plain", "typed"].map(|name| folder.path().join(name));
    let data = plain();
    let typed = of_one_type(&data);
    let split = link_split(&data);
    let typed_split = relation_split(&typed, "edge", None);
    weights(&of_links(sage(8)), 1, &run, |_| LinkNeighborLoader::new(nodes(&data), &split));
    weights(&of_links(typed_sage(&typed, 8)), 1, &typed_run, |_| {
        let nodes = NeighborLoader::new(&typed, FANOUTS).batch_size(64);
        LinkNeighborLoader::new(nodes, &typed_split)
    });
    let [model, typed_model] = [&run, &typed_run].map(|run| SavedModel::open(run).unwrap());
    let srcs: Vec<NodeId> = (0..200).map(|link| NodeId(link * 7 % N_NODES)).collect();
    let dsts: Vec<NodeId> = (0..200).map(|link| NodeId(link * 11 % N_NODES)).collect();
    let links = Links::new(srcs.clone(), dsts).unwrap();
    let top = TopKConfig::new(3);
    let mode = PredictMode::AsEvaluated;
    let predictor = model.on_links(&data).unwrap();
    let expected =
        (predictor.score_links(&links, &mode).unwrap(), predictor.top_k(&srcs, &top, &mode).unwrap());
    assert!(expected.0.iter().any(|score| *score != expected.0[0]));
    let predictor = typed_model.on_links(&typed).unwrap();
    let found = (predictor.score_links(&links, &mode).unwrap(), predictor.top_k(&srcs, &top, &mode).unwrap());
    assert_eq!(found, expected);
    let found = on_served(&Parts::of(&data), |graph, rank| {
        let predictor = model.on_links(&graph.join(rank)?)?;
        Ok((predictor.score_links(&links, &mode)?, predictor.top_k(&srcs, &top, &mode)?))
    });
    assert_eq!(found, expected);
    let found = on_served(&Parts::of_typed(&typed), |graph, rank| {
        let predictor = typed_model.on_links(&graph.join(rank)?)?;
        Ok((predictor.score_links(&links, &mode)?, predictor.top_k(&srcs, &top, &mode)?))
    });
    assert_eq!(found, expected);
}

/// Trains a run that a stop flag interrupts after its first step, then resumes it. Returns the weights.
fn resumed<C>(model: &C, out: &Path, loader: &impl DataLoader<C::Model>) -> Vec<Vec<u8>>
where
    C: ModelConfig,
    C::Model: PlainWeights,
{
    let fit = |config| Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).fit(loader, config);
    let stop = Arc::new(AtomicBool::new(true));
    let error = fit(quiet(out).stop_flag(stop)).map(drop).unwrap_err();
    assert!(matches!(error, Error::Interrupted { n_epochs: 0, n_steps: 1, .. }), "{error}");
    fit(FitConfig::epochs(N_EPOCHS).resume(out).quiet()).unwrap().model.plain_weights()
}

#[test]
fn resumed_runs_have_the_weights_of_one_type() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let data = plain();
    let typed = of_one_type(&data);
    let whole = weights(&sage(3), 1, &out("nodes"), |_| Ok(nodes(&data)));
    assert!(resumed(&sage(3), &out("resumed-nodes"), &nodes(&data)) == whole);
    assert!(resumed(&typed_sage(&typed, 3), &out("resumed-typed-nodes"), &typed_nodes(&typed)) == whole);
    let split = link_split(&data);
    let loader = LinkNeighborLoader::new(nodes(&data).batch_size(256), &split).unwrap();
    let whole = weights(&of_links(sage(8)), 1, &out("links"), |_| Ok(loader.clone()));
    assert!(resumed(&of_links(sage(8)), &out("resumed-links"), &loader) == whole);
    let of_nodes = NeighborLoader::new(&typed, FANOUTS).batch_size(256);
    let typed_split = relation_split(&typed, "edge", None);
    let loader = LinkNeighborLoader::new(of_nodes, &typed_split).unwrap();
    let typed_model = of_links(typed_sage(&typed, 8));
    assert!(resumed(&typed_model, &out("resumed-typed-links"), &loader) == whole);
}
