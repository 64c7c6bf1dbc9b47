//! Batches: items, sampled blocks and input rows. Those of partitions, and those of a plain graph as a heterogeneous one
//! with one type and one relation, have the same digest.

use kiln::burn::tensor::{Int, Tensor};
use kiln::kernels::{DeviceBlock, to_vec_f32};
use kiln::prelude::*;
use kiln::store::sha256;
use kiln::train::{InputRows, LinkInput, NodeInput, Task};

use super::partitions::Parts;
use super::{heterogeneous, link_split, of_one_type, plain, relation_split};

const NODES: &str = "b7d3732f8f2a1189b77c6fa1fb084ab16f8f5f2d224ae0f0e3f83f6734c66bbb";
const LINKS: &str = "6805defbb7c9e65a12a9046326e7e92236ebfd38ccb7c949939a7aaa7b40ebc0";
const TYPED_NODES: &str = "a74113fbf222f135d26b95eddf0239e4eba6446edb9dce17d2d650a07c555b12";
const TYPED_LINKS: &str = "34dea0664cc55c4d66e27972d3b2445a206cf6f360f511bfee42db506032fbb8";

const PHASES: [Phase; 3] = [Phase::Train { epoch: 1 }, Phase::Validation, Phase::Test];
const FANOUTS: [u32; 2] = [4, 3];

/// The input of a model, as bytes that do not depend on the type of the input.
trait Observed {
    fn observe(&self, bytes: &mut Vec<u8>);
}

fn put(bytes: &mut Vec<u8>, name: &str, values: impl IntoIterator<Item = i64>) {
    let values: Vec<i64> = values.into_iter().collect();
    bytes.extend(format!("{name} {}\n", values.len()).bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

#[expect(clippy::disallowed_methods, reason = "the data is copied at once")]
fn put_ids(bytes: &mut Vec<u8>, name: &str, ids: &Tensor<1, Int>) {
    put(bytes, name, ids.clone().into_data().iter::<i64>());
}

fn put_blocks(bytes: &mut Vec<u8>, blocks: &[DeviceBlock]) {
    for block in blocks {
        put(bytes, "block", [block.n_src() as i64, block.n_dst() as i64, block.n_edges() as i64]);
        put_ids(bytes, "src nodes", block.src_nodes());
        put_ids(bytes, "dst nodes", block.dst_nodes());
        put_ids(bytes, "edge ids", block.edge_ids());
    }
}

fn put_rows(bytes: &mut Vec<u8>, rows: &Tensor<2>) {
    put(bytes, "rows", rows.dims().map(|n| n as i64));
    bytes.extend(to_vec_f32(rows.clone()).iter().flat_map(|value| value.to_le_bytes()));
}

impl Observed for NodeInput {
    fn observe(&self, bytes: &mut Vec<u8>) {
        put(bytes, "seeds", self.seeds.iter().map(|node| i64::from(node.0)));
        put(bytes, "seed index", self.seed_index.iter().map(|row| *row as i64));
        put(bytes, "labels", self.labels.iter().map(|class| i64::from(*class)));
        put_blocks(bytes, &self.blocks);
        // Aggregates depend on the model, and their sums on the processor.
        let InputRows::Gathered(rows) = &self.x else { panic!("the rows should be those of the store") };
        let mut embedded = rows.embedded.iter();
        for of_type in &rows.features {
            match of_type {
                Some(rows) => put_rows(bytes, rows),
                None => {
                    let nodes = embedded.next().expect("a type without features should have its nodes");
                    put(bytes, "trainable", nodes.iter().map(|node| i64::from(node.0)));
                }
            }
        }
    }
}

impl Observed for LinkInput {
    fn observe(&self, bytes: &mut Vec<u8>) {
        put(bytes, "links", self.links.iter().map(|link| link.0 as i64));
        put(bytes, "srcs", self.srcs.iter().map(|position| i64::from(*position)));
        put(bytes, "dsts", self.dsts.iter().map(|position| i64::from(*position)));
        put(bytes, "negatives", [self.n_negatives as i64, self.n_rejected as i64]);
        self.nodes.observe(bytes);
    }
}

/// Returns the digest of all batches of an epoch, a validation and a test, on one rank with the loader that `loader` returns.
fn digest<C, L>(model: &C, loader: impl Fn(&RankHandle) -> kiln::Result<L> + Sync) -> String
where
    C: ModelConfig,
    L: DataLoader<C::Model, Task: Task<Input: Observed>>,
{
    let config = RankConfig::threads(1).threads_per_rank(1);
    let digests = launch(config, |rank| {
        let loader = loader(&rank)?;
        let trainer =
            Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank).start(&loader)?;
        let mut bytes = Vec::new();
        for phase in PHASES {
            let batches = loader.loader(phase, &trainer, &loader.evaluator(&rank)?)?;
            let mut n_batches = 0;
            for batch in batches.epoch(phase) {
                put(&mut bytes, "batch", [n_batches]);
                batch.map_err(kiln::train::Error::from)?.input.observe(&mut bytes);
                n_batches += 1;
            }
            assert!(0 < n_batches, "{phase:?}");
        }
        Ok(sha256(&bytes))
    });
    digests.unwrap().remove(0)
}

/// A model that reads the gathered rows: a maximum is not computed by the loader.
fn sage(d_in: usize, d_out: usize) -> SageConfig {
    SageConfig::new(d_in, d_out).layers(2).hidden(8).aggregate(Aggregate::Max)
}

fn of_links<E>(encoder: E) -> LinkModelConfig<E> {
    LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }
}

#[test]
fn batches_of_nodes_are_frozen() {
    let data = plain();
    let typed = of_one_type(&data);
    let model = sage(4, 3);
    let typed_model = HeteroModelConfig::new(typed.dims(), model.clone());
    let whole = digest(&model, |_| Ok(NeighborLoader::new(&data, FANOUTS).batch_size(64)));
    assert_eq!(whole, NODES);
    let one_type = digest(&typed_model, |_| Ok(NeighborLoader::new(&typed, FANOUTS).batch_size(64)));
    assert_eq!(one_type, NODES);
    let served = Parts::of(&data).serve();
    let on_parts =
        digest(&model, |rank| Ok(NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(64)));
    assert_eq!(on_parts, NODES);
    let served = Parts::of_typed(&typed).serve();
    let on_parts = digest(&typed_model, |rank| {
        Ok(NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(64))
    });
    assert_eq!(on_parts, NODES);
}

#[test]
fn batches_of_links_are_frozen() {
    let data = plain();
    let typed = of_one_type(&data);
    let split = link_split(&data);
    let typed_split = relation_split(&typed, "edge", None);
    let model = of_links(sage(4, 8));
    let typed_model = of_links(HeteroModelConfig::new(typed.dims(), sage(4, 8)));
    let whole = digest(&model, |_| {
        LinkNeighborLoader::new(NeighborLoader::new(&data, FANOUTS).batch_size(256), &split)
    });
    assert_eq!(whole, LINKS);
    let one_type = digest(&typed_model, |_| {
        let nodes = NeighborLoader::new(&typed, FANOUTS).batch_size(256);
        LinkNeighborLoader::new(nodes, &typed_split)
    });
    assert_eq!(one_type, LINKS);
    let message = Dataset { graph: split.message().clone(), ..data };
    let served = Parts::of(&message).serve();
    let on_parts = digest(&model, |rank| {
        let nodes = NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(256);
        LinkNeighborLoader::new(nodes, split.targets())
    });
    assert_eq!(on_parts, LINKS);
    let message = Dataset { graph: typed_split.message().clone(), ..typed };
    let served = Parts::of_typed(&message).serve();
    let on_parts = digest(&typed_model, |rank| {
        let nodes = NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(256);
        LinkNeighborLoader::new(nodes, typed_split.dataset_links())
    });
    assert_eq!(on_parts, LINKS);
}

#[test]
fn batches_of_heterogeneous_nodes_are_frozen() {
    let data = heterogeneous();
    let model = HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 3, 2).layers(2).hidden(8));
    let whole = digest(&model, |_| Ok(NeighborLoader::new(&data, FANOUTS).batch_size(64)));
    assert_eq!(whole, TYPED_NODES);
    let served = Parts::of_typed(&data).serve();
    let on_parts =
        digest(&model, |rank| Ok(NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(64)));
    assert_eq!(on_parts, TYPED_NODES);
}

#[test]
fn batches_of_links_between_two_types_are_frozen() {
    let data = heterogeneous();
    let split = relation_split(&data, "buys", Some("bought by"));
    let model = of_links(HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 8, 2).layers(2).hidden(8)));
    let whole = digest(&model, |_| {
        let nodes = NeighborLoader::new(&data, FANOUTS).batch_size(256);
        LinkNeighborLoader::new(nodes, &split)
    });
    assert_eq!(whole, TYPED_LINKS);
    let message = Dataset { graph: split.message().clone(), ..data };
    let served = Parts::of_typed(&message).serve();
    let on_parts = digest(&model, |rank| {
        let nodes = NeighborLoader::new(&served.graph.join(rank)?, FANOUTS).batch_size(256);
        LinkNeighborLoader::new(nodes, split.dataset_links())
    });
    assert_eq!(on_parts, TYPED_LINKS);
}
