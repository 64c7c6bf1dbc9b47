//! Columns of edges by name, from the data set to the blocks on the device, on whole and partitioned graphs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln::burn::tensor::{Int, Tensor};
use kiln::graph::{EdgeColumn, NodeTypes, RelationEdges};
use kiln::kernels::{DeviceBlock, to_vec_f32};
use kiln::prelude::*;

use crate::frozen::partitions::Parts;

const N_NODES: u32 = 60;

/// The rows of the edges of all blocks of an epoch and an evaluation, as bits, because missing ones are NaN, with the ids of
/// the edges.
type Rows = Vec<(Vec<i64>, Vec<u32>)>;

/// Returns a set whose edges have the column `amount`: the id of the edge in the graph, and half of it.
fn plain() -> Dataset {
    let srcs: Vec<u32> = (0..4 * N_NODES).map(|edge| edge * 7 % N_NODES).collect();
    let dsts: Vec<u32> = (0..4 * N_NODES).map(|edge| edge % N_NODES).collect();
    let data = Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .features(vec![0.5; N_NODES as usize], 1)
        .labels((0..N_NODES as i32).map(|node| node % 2).collect::<Vec<_>>(), 2)
        .split((0..40).collect::<Vec<u32>>(), (40..50).collect::<Vec<u32>>(), (50..60).collect::<Vec<u32>>())
        .build()
        .unwrap();
    with_amounts(data, 0)
}

/// Returns a set of three relations, of which `follows` has no column.
fn heterogeneous() -> Dataset {
    let srcs: Vec<u32> = (0..3 * N_NODES).map(|edge| edge * 7 % N_NODES).collect();
    let dsts: Vec<u32> = (0..3 * N_NODES).map(|edge| edge % N_NODES).collect();
    let of = |name, src_type, dst_type| RelationEdges::new(name, src_type, dst_type, &srcs, &dsts);
    let types = NodeTypes::new([("user", N_NODES as usize), ("item", N_NODES as usize)]).unwrap();
    let data = Dataset::builder_with_types(types)
        .relation(of("rates", "user", "item"))
        .relation(of("follows", "user", "user"))
        .relation(of("rated by", "item", "user"))
        .nodes("user")
        .features(vec![0.5; N_NODES as usize], 1)
        .nodes("item")
        .features(vec![0.5; N_NODES as usize], 1)
        .labels((0..N_NODES as i32).map(|node| node % 2).collect::<Vec<_>>(), 2)
        .split((0..40).collect::<Vec<u32>>(), (40..50).collect::<Vec<u32>>(), (50..60).collect::<Vec<u32>>())
        .build()
        .unwrap();
    with_amounts(with_amounts(data, 0), 2)
}

fn with_amounts(data: Dataset, relation: usize) -> Dataset {
    let first = data.graph.first_edge(relation).0;
    let n_edges = data.graph.relation(relation).graph.n_edges();
    let rows: Vec<f32> = (first..first + n_edges).flat_map(|edge| [edge as f32, edge as f32 / 2.0]).collect();
    data.with_edge_column(relation, "amount", EdgeColumn::new(rows, 2).unwrap()).unwrap()
}

/// Returns the rows of the blocks of a loader.
fn rows_of<C, L>(model: &C, loader: impl Fn(&RankHandle) -> kiln::Result<L> + Sync) -> Rows
where
    C: ModelConfig,
    L: DataLoader<C::Model, Task = kiln::train::NodeTask<C::Model>>,
    C::Model: kiln::nn::BlockModel,
{
    let config = RankConfig::threads(1).threads_per_rank(1);
    let rows = launch(config, |rank| {
        let loader = loader(&rank)?;
        let trainer =
            Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank).start(&loader)?;
        let mut rows = Rows::new();
        for phase in [Phase::Train { epoch: 0 }, Phase::Test] {
            let batches = loader.loader(phase, &trainer, &loader.evaluator(&rank)?)?;
            for batch in batches.epoch(phase) {
                let input = batch.map_err(kiln::train::Error::from)?.input;
                rows.extend(input.blocks.iter().map(amounts));
            }
        }
        Ok(rows)
    });
    rows.unwrap().remove(0)
}

#[expect(clippy::disallowed_methods, reason = "the data is copied at once")]
fn ids(tensor: &Tensor<1, Int>) -> Vec<i64> {
    tensor.clone().into_data().iter::<i64>().collect()
}

fn amounts(block: &DeviceBlock) -> (Vec<i64>, Vec<u32>) {
    let rows = block.edge_column("amount").unwrap();
    assert_eq!(rows.dims(), [block.n_edges(), 2]);
    assert!(block.edge_features().is_none());
    (ids(block.edge_ids()), to_vec_f32(rows.clone()).iter().map(|value| value.to_bits()).collect())
}

/// Checks that rows belong to their edges; those in `without` have NaN.
fn check(rows: &Rows, without: std::ops::Range<i64>) {
    let n_edges: usize = rows.iter().map(|(edges, _)| edges.len()).sum();
    assert!(200 < n_edges, "{n_edges} edges");
    for (edges, rows) in rows {
        for (edge, row) in edges.iter().zip(rows.chunks_exact(2)) {
            let row = [f32::from_bits(row[0]), f32::from_bits(row[1])];
            match without.contains(edge) {
                true => assert!(row.iter().all(|value| value.is_nan()), "edge {edge}: {row:?}"),
                false => assert_eq!(row, [*edge as f32, *edge as f32 / 2.0]),
            }
        }
    }
}

#[test]
fn blocks_on_the_device_have_the_columns_of_whole_and_partitioned_graphs() {
    let data = plain();
    let model = SageConfig::for_data(&data).layers(2).hidden(4);
    let with_column = |loader: NeighborLoader| loader.batch_size(16).workers(0).edge_column("amount");
    let whole = rows_of(&model, |_| Ok(with_column(NeighborLoader::new(&data, [3, 2]))));
    check(&whole, 0..0);
    let copied =
        |_: &RankHandle| Ok(with_column(NeighborLoader::new(&data, [3, 2])).graph_mode(GraphMode::Device));
    assert!(rows_of(&model, copied) == whole, "sampled on the device");
    let parts = Parts::of(&data);
    let served = parts.serve();
    let on_servers =
        |rank: &RankHandle| Ok(with_column(NeighborLoader::new(&served.graph.join(rank)?, [3, 2])));
    assert!(rows_of(&model, on_servers) == whole, "on servers");
}

#[test]
fn relations_without_a_column_have_nan_on_whole_and_partitioned_graphs() {
    let data = heterogeneous();
    let follows = data.graph.first_edge(1).0 as i64..data.graph.first_edge(2).0 as i64;
    let model = HeteroModelConfig::new(
        data.dims(),
        RsageConfig::new(1, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(4),
    );
    let with_column = |loader: NeighborLoader| loader.batch_size(16).workers(0).edge_column("amount");
    let whole = rows_of(&model, |_| Ok(with_column(NeighborLoader::new(&data, [3, 2]))));
    check(&whole, follows);
    let parts = Parts::of_typed(&data);
    let served = parts.serve();
    let on_servers =
        |rank: &RankHandle| Ok(with_column(NeighborLoader::new(&served.graph.join(rank)?, [3, 2])));
    assert!(rows_of(&model, on_servers) == whole, "on servers");
}

#[test]
fn a_column_that_no_relation_has_is_an_error_that_names_the_others() {
    let check = |error: Error| {
        let error = error.to_string();
        assert!(error.contains("no column `price`"), "{error}");
    };
    let folder = tempfile::tempdir().unwrap();
    for data in [plain(), heterogeneous()] {
        let loader = NeighborLoader::new(&data, [3, 2]).edge_column("price");
        let fit = FitConfig::epochs(1).out(folder.path().join("run")).quiet();
        let mut trainer = match data.is_heterogeneous() {
            false => {
                let model = SageConfig::for_data(&data).layers(2).hidden(4);
                check(Trainer::new(model, AdamConfig::new(1e-2)).fit(&loader, fit).unwrap_err());
                continue;
            }
            true => {
                let model = HeteroModelConfig::new(
                    data.dims(),
                    RsageConfig::new(1, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(4),
                );
                Trainer::new(model, AdamConfig::new(1e-2))
            }
        };
        check(trainer.fit(&loader, fit).unwrap_err());
    }
}
