//! Tests of trainable rows: steps equal those of PyTorch's `SparseAdam`, whose values `fixtures/sparse_adam/make.py`
//! computed, and ranks exchange the rows of their batches.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use kiln_comm::{Communicator, RankInfo, Reduce, SingleRank, ThreadRanks};
use kiln_graph::NodeId;
use kiln_sample::RngKey;
use kiln_train::{
    EmbeddingError, Error, LossWeight, NodeEmbedding, RowGradients, SparseAdamConfig, TrainerError,
};
use serde_json::Value;

/// The row of node 42 in a table of 6 columns with the key of seed 0x0123456789abcdef, from `docs/rng.md`.
const DOCUMENTED: [f32; 6] = [0.055490684, 0.18565974, -0.008042901, -0.20374298, -0.38874176, 0.3235934];

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn nodes(ids: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

fn table() -> NodeEmbedding {
    NodeEmbedding::new(6, 3, RngKey::new(5)).unwrap()
}

fn all_rows(table: &NodeEmbedding) -> Vec<f32> {
    table.rows(&nodes(0..table.n_nodes() as u32)).unwrap()
}

#[test]
fn steps_equal_those_of_pytorch() {
    let found: Value = serde_json::from_str(include_str!("../fixtures/sparse_adam/steps.json")).unwrap();
    let (mut table, initial) = (table(), numbers(&found["initial"]));
    let first = all_rows(&table);
    for step in found["steps"].as_array().unwrap() {
        let rows = nodes(step["rows"].as_array().unwrap().iter().map(|row| row.as_u64().unwrap() as u32));
        let gradients = RowGradients::new(rows, numbers(&step["grads"])).unwrap();
        table.step(&gradients, &SparseAdamConfig::default(), step["rate"].as_f64().unwrap()).unwrap();
        // Adam's steps do not depend on the values, so the differences from the initial values are compared.
        let expected = numbers(&step["values"]);
        for (at, value) in all_rows(&table).into_iter().enumerate() {
            let (got, expected) = (value - first[at], expected[at] - initial[at]);
            assert!((got - expected).abs() < 1e-6, "value {at}: {got}, expected {expected}");
        }
    }
    assert_ne!(all_rows(&table)[..15], first[..15]);
    assert_eq!(all_rows(&table)[15..], first[15..], "no step touched row 5");
}

#[test]
fn rows_of_nodes_without_a_step_are_the_mean_of_the_others() {
    let mut table = table();
    assert_eq!(table.learned_rows(&nodes([0, 9])), [0.0; 6]);
    let gradients = RowGradients::new(nodes([1, 4]), vec![1.0, -2.0, 0.5, 3.0, 1.0, -1.0]).unwrap();
    table.step(&gradients, &SparseAdamConfig::default(), 0.1).unwrap();
    let learned = table.rows(&nodes([1, 4])).unwrap();
    let mean: Vec<f32> = (0..3).map(|column| (learned[column] + learned[3 + column]) / 2.0).collect();
    let found = table.learned_rows(&nodes([4, 0, 6, 1]));
    assert_eq!((&found[..3], &found[9..]), (&learned[3..], &learned[..3]));
    for (column, expected) in mean.iter().enumerate() {
        for of_row in [3, 6] {
            assert!((found[of_row + column] - expected).abs() < 1e-6, "{found:?}, expected {mean:?}");
        }
    }
}

#[test]
fn initial_rows_do_not_depend_on_the_number_of_nodes_and_are_bounded() {
    let [small, large] = [10, 2000].map(|n_nodes| NodeEmbedding::new(n_nodes, 6, RngKey::new(1)).unwrap());
    let values = all_rows(&large);
    assert_eq!(all_rows(&small), values[..60]);
    let bound = 6.0_f32.sqrt().recip();
    assert!(values.iter().all(|value| value.abs() <= bound));
    let mean_square = values.iter().map(|value| f64::from(value * value)).sum::<f64>() / values.len() as f64;
    assert!((mean_square - f64::from(bound * bound) / 3.0).abs() < 0.003, "{mean_square}");
}

#[test]
fn gradients_of_a_node_are_added_in_their_order() {
    let gradients =
        RowGradients::new(nodes([4, 1, 4, 4]), vec![1e8, 2.0, 5.0, 6.0, -1e8, 1.0, 0.5, -2.0]).unwrap();
    let expected = [5.0, 6.0, (1e8 - 1e8) + 0.5, (2.0 + 1.0) - 2.0];
    assert_eq!((gradients.nodes(), gradients.values()), (&nodes([1, 4])[..], &expected[..]));
    let rounded = RowGradients::new(nodes([4, 4, 4]), vec![1e8, 1.0, -1e8]).unwrap();
    assert_eq!(rounded.values(), [0.0], "1 is lost in the first sum");
}

#[test]
fn initial_rows_are_those_of_the_documented_vector() {
    let key = RngKey::new(0x0123_4567_89ab_cdef);
    let rows = NodeEmbedding::new(43, 6, key).unwrap().rows(&nodes([42])).unwrap();
    assert_eq!(rows, DOCUMENTED);
}

#[test]
fn wrong_rows_are_errors_that_leave_the_table_unchanged() {
    let (mut table, config) = (table(), SparseAdamConfig::default());
    let before = all_rows(&table);
    assert!(matches!(
        table.rows(&nodes([6])),
        Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::NoRow { node: NodeId(6), n_nodes: 6 })))
    ));
    let wrong = |nodes: Vec<NodeId>, n_values: usize| RowGradients::new(nodes, vec![1.0; n_values]);
    assert!(matches!(
        wrong(nodes([1, 2]), 3),
        Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::Gradients { n_nodes: 2, n_values: 3 })))
    ));
    assert!(matches!(
        wrong(Vec::new(), 3),
        Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::Gradients { n_nodes: 0, n_values: 3 })))
    ));
    let narrow = table.step(&wrong(nodes([1]), 2).unwrap(), &config, 0.1);
    assert!(matches!(
        narrow,
        Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::Gradients { n_nodes: 1, n_values: 2 })))
    ));
    let beyond = table.step(&wrong(nodes([1, 6]), 6).unwrap(), &config, 0.1);
    assert!(matches!(
        beyond,
        Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::NoRow { node: NodeId(6), .. })))
    ));
    let one = wrong(nodes([1]), 3).unwrap();
    let beta = table.step(&one, &SparseAdamConfig { betas: [0.9, 1.0], ..config }, 0.1);
    assert!(matches!(beta, Err(Error::Trainer(TrainerError::BadSetting { got: 1.0, .. }))));
    assert!(matches!(
        table.step(&one, &SparseAdamConfig { epsilon: 0.0, ..config }, 0.1),
        Err(Error::Trainer(TrainerError::BadSetting { .. }))
    ));
    assert!(matches!(
        table.step(&one, &config, f64::NAN),
        Err(Error::Trainer(TrainerError::BadSetting { .. }))
    ));
    assert_eq!(all_rows(&table), before);
    let new = |n_nodes, dim| NodeEmbedding::new(n_nodes, dim, RngKey::new(0));
    let is_too_large = |n_nodes, dim| {
        matches!(
            new(n_nodes, dim),
            Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::TooLarge { .. })))
        )
    };
    assert!(
        [(3, 0), (1 << 32, 1), (u32::MAX as usize, 1 << 20), (2, usize::MAX)]
            .iter()
            .all(|&(n, dim)| is_too_large(n, dim))
    );
    assert!(matches!(table.step(&one, &config, 1e300), Err(Error::Trainer(TrainerError::BadSetting { .. }))));
}

/// Sums the gradients of ranks, which `of_rank` returns with their weights, on all ranks.
fn summed(
    weights: &[f64],
    of_rank: impl Fn(usize) -> RowGradients + Sync,
) -> Vec<Result<RowGradients, Error>> {
    let all = weights.iter().sum();
    let sum = |mut comm: Box<dyn Communicator>| {
        let rank = comm.rank_info().rank;
        Ok(of_rank(rank).sum_over_ranks(LossWeight { own: weights[rank], all }, &mut *comm))
    };
    ThreadRanks::of(weights.len()).run(sum).unwrap()
}

#[test]
fn ranks_add_their_gradients_in_order_by_their_shares() {
    let of_rank = |rank: usize| match rank {
        0 => RowGradients::new(nodes([1, 4]), vec![1e8, 1.0, 2.0, 3.0]).unwrap(),
        1 => RowGradients::default(),
        2 => RowGradients::new(nodes([4, 7]), vec![2.0, 1.0, 2.0, -1e8]).unwrap(),
        _ => RowGradients::new(nodes([1, 4]), vec![-1e8, 5.0, 1.0, 8.0]).unwrap(),
    };
    // The shares are 1/4, 0, 1/2 and 1/4.
    let expected = [0.0, 1.5, 1.75, 3.25, 1.0, -5e7];
    for sum in summed(&[2.0, 0.0, 4.0, 2.0], of_rank) {
        let sum = sum.unwrap();
        assert_eq!((sum.nodes(), sum.values()), (&nodes([1, 4, 7])[..], &expected[..]));
    }
    let lost = |rank: usize| RowGradients::new(nodes([0]), vec![[2e8, 2.0, -2e8][rank]]).unwrap();
    for sum in summed(&[1.0, 1.0, 0.0], lost) {
        assert_eq!(sum.unwrap().values(), [1e8], "1 is lost in the sum of the first ranks");
    }
    let narrow = |rank: usize| RowGradients::new(nodes([1]), vec![1.0; 1 + rank]).unwrap();
    assert!(summed(&[1.0, 1.0], narrow).iter().all(|sum| matches!(
        sum,
        Err(Error::Trainer(TrainerError::Embedding(EmbeddingError::Gradients { .. })))
    )));
}

/// Two ranks with uneven shares of a batch have the step of one rank with the whole batch: the loss is a mean over items.
#[test]
fn the_gradients_of_uneven_ranks_are_those_of_one_rank() {
    // Item `i` has the gradient `i + 1` in the row of node `i % 3`.
    let of_items = |items: std::ops::Range<u32>| {
        let n_items = items.len() as f32;
        let values = items.clone().map(|item| (item + 1) as f32 / n_items).collect();
        RowGradients::new(nodes(items.map(|item| item % 3)), values).unwrap()
    };
    let whole = of_items(0..7);
    for sum in summed(&[5.0, 2.0], |rank| of_items([0..5, 5..7][rank].clone())) {
        let sum = sum.unwrap();
        assert_eq!(sum.nodes(), whole.nodes());
        for (got, expected) in sum.values().iter().zip(whole.values()) {
            assert!((got - expected).abs() < 1e-6, "{got}, expected {expected}");
        }
    }
}

/// A communicator that counts the bytes that its rank passes to collectives.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn Communicator>,
    n_sent: usize,
}

impl Communicator for Counted {
    fn rank_info(&self) -> RankInfo {
        self.inner.rank_info()
    }

    fn set_step(&mut self, step: u64) {
        self.inner.set_step(step);
    }

    fn all_reduce_sum(&mut self, buf: Reduce<'_>) -> kiln_comm::Result<()> {
        self.n_sent += match &buf {
            Reduce::F32(values) => size_of_val(*values),
            Reduce::U64(values) => size_of_val(*values),
        };
        self.inner.all_reduce_sum(buf)
    }

    fn all_gather(&mut self, send: &[u8]) -> kiln_comm::Result<Vec<Vec<u8>>> {
        self.n_sent += send.len();
        self.inner.all_gather(send)
    }

    fn all_to_all(&mut self, send: &[Vec<u8>]) -> kiln_comm::Result<Vec<Vec<u8>>> {
        self.n_sent += send.iter().map(Vec::len).sum::<usize>();
        self.inner.all_to_all(send)
    }

    fn broadcast(&mut self, root: usize, bytes: &mut Vec<u8>) -> kiln_comm::Result<()> {
        self.n_sent += bytes.len();
        self.inner.broadcast(root, bytes)
    }

    fn barrier(&mut self, deadline: Duration) -> kiln_comm::Result<()> {
        self.inner.barrier(deadline)
    }

    fn subgroup(&mut self, ranks: &[usize]) -> kiln_comm::Result<Box<dyn Communicator>> {
        self.inner.subgroup(ranks)
    }

    fn duplicate(&mut self, name: &str) -> kiln_comm::Result<Box<dyn Communicator>> {
        self.inner.duplicate(name)
    }
}

/// A step of two ranks on a table of `n_nodes` rows of 16 columns, of which each rank has `n_rows` in its batch, sends
/// these rows with their numbers, however large the table is.
#[test]
fn ranks_send_the_rows_of_their_batches() {
    let n_sent = |n_nodes: usize, n_rows: u32| {
        let step = |inner: Box<dyn Communicator>| {
            let mut comm = Counted { inner, n_sent: 0 };
            let first = 10 * comm.rank_info().rank as u32;
            let mut table = NodeEmbedding::new(n_nodes, 16, RngKey::new(5)).unwrap();
            let own = nodes(first..first + n_rows);
            let gradients = RowGradients::new(own.clone(), table.rows(&own).unwrap()).unwrap();
            let sum = gradients.sum_over_ranks(LossWeight { own: 1.0, all: 2.0 }, &mut comm).unwrap();
            table.step(&sum, &SparseAdamConfig::default(), 0.1).unwrap();
            Ok(comm.n_sent)
        };
        let of_ranks = ThreadRanks::of(2).run(step).unwrap();
        assert_eq!(of_ranks[0], of_ranks[1]);
        of_ranks[0]
    };
    for n_rows in [0, 1, 5, 50] {
        let expected = 8 + n_rows as usize * (4 + 4 * 16);
        assert_eq!([n_sent(100, n_rows), n_sent(100_000, n_rows)], [expected; 2]);
    }
}

#[test]
fn a_step_without_weight_has_no_gradients_and_a_wrong_weight_is_an_error() {
    let one = || RowGradients::new(nodes([1]), vec![3.0]).unwrap();
    let alone = |own, all| one().sum_over_ranks(LossWeight { own, all }, &mut SingleRank::new());
    assert_eq!(alone(0.0, 0.0).unwrap().values(), [0.0]);
    assert_eq!(alone(2.0, 2.0).unwrap().values(), [3.0]);
    for sum in summed(&[0.0, 0.0], |_| one()) {
        assert_eq!(sum.unwrap().values(), [0.0]);
    }
    for (own, all) in [(-1.0, 2.0), (3.0, 2.0), (f64::NAN, 2.0), (1.0, f64::INFINITY)] {
        assert!(
            matches!(alone(own, all), Err(Error::Trainer(TrainerError::BadSetting { .. }))),
            "{own} of {all}"
        );
    }
}
