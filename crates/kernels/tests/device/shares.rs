//! The shares of edges in the edges of their destination and type, against loops over the edges.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::{DType, Tensor};
use kiln_graph::{Block, BlockParts};
use kiln_kernels::testing::{check_close, device, launches_of, ramp, supports, values};
use kiln_kernels::{DeviceBlock, ops, to_vec_f32};

use super::common::{six_nodes, with_hub};

const TOLERANCE: f32 = 1e-6;

/// Returns the block with edges of `n_types` types, and their weights, of which some are negative and all of one type are 0.
fn typed(host: &Block, n_types: usize) -> (Block, Vec<f32>) {
    let edge_types: Vec<u8> = (0..host.n_edges()).map(|edge| (edge * 7 % n_types) as u8).collect();
    let weight = |(edge, of_edge): (usize, &u8)| match of_edge {
        0 if 1 < n_types => 0.0,
        _ => (edge % 5) as f32 - 1.5,
    };
    let weights = edge_types.iter().enumerate().map(weight).collect();
    let parts = host.clone().into_parts();
    (Block::new(BlockParts { edge_types: Some(edge_types), ..parts }), weights)
}

/// Returns the share of each edge, from its definition.
fn expected(host: &Block, weights: Option<&[f32]>) -> Vec<f32> {
    let types = host.edge_types().unwrap();
    let size = |edge: usize| weights.map_or(1.0, |weights| weights[edge].abs());
    let mut shares = Vec::new();
    for ends in host.indptr().windows(2) {
        let edges = ends[0] as usize..ends[1] as usize;
        let mut sums = [0.0_f32; 256];
        for edge in edges.clone() {
            sums[usize::from(types[edge])] += size(edge);
        }
        for edge in edges {
            let weight = weights.map_or(1.0, |weights| weights[edge]);
            let sum = sums[usize::from(types[edge])];
            shares.push(if sum == 0.0 { 0.0 } else { weight / sum });
        }
    }
    shares
}

#[test]
fn shares_equal_their_definition() {
    for host in [six_nodes(), with_hub()] {
        for n_types in [1, 3, 70] {
            let (host, weights) = typed(&host, n_types);
            let block = DeviceBlock::upload(&host, &device());
            let got = ops::relation_shares(&block, n_types, None);
            check_close(&values(got), &expected(&host, None), TOLERANCE);
            let of_edges = || Tensor::<1>::from_floats(&weights[..], &device());
            let got = ops::relation_shares(&block, n_types, Some(of_edges()));
            check_close(&values(got), &expected(&host, Some(&weights)), TOLERANCE);
            if n_types == 1 {
                let got = ops::edge_shares(&block, of_edges());
                check_close(&values(got), &expected(&host, Some(&weights)), TOLERANCE);
            }
        }
    }
}

/// On every device the shares are one launch, not a sum by index, which is one unit on CUDA.
#[test]
fn shares_are_one_launch() {
    let (host, weights) = typed(&six_nodes(), 3);
    let block = DeviceBlock::upload(&host, &device());
    let launches = launches_of(|| {
        let weights = Tensor::<1>::from_floats(&weights[..], &device());
        ops::relation_shares(&block, 3, Some(weights));
    });
    assert_eq!((launches.direct, launches.reference), (1, 0));
}

/// Narrow tables have no list of the edges of each type on a GPU, wide ones have.
#[test]
fn gradients_of_tables_of_types_are_sums_over_the_edges_of_each_type() {
    for (host, n_types, width) in
        [(six_nodes(), 3, 4), (with_hub(), 5, 3), (with_hub(), 70, 4), (with_hub(), 200, 40)]
    {
        let (host, _) = typed(&host, n_types);
        let block = DeviceBlock::upload(&host, &device());
        let shares = ops::relation_shares(&block, n_types, None);
        let of_edges: Tensor<2> = ramp([host.n_edges(), width], &device());
        let gradient = |run: &dyn Fn(Tensor<2>) -> Tensor<2>| {
            // One row more than there are types: no edge has the last one.
            let table = ramp([n_types + 1, width], &device()).autodiff().require_grad();
            let grads = (run(table.clone()) * of_edges.clone().autodiff()).sum().backward();
            values(table.grad(&grads).unwrap())
        };
        let got = gradient(&|table| ops::edge_type_rows(&block, table));
        check_close(&got, &sums_by_type(&host, n_types + 1, &values(of_edges.clone()), None), 1e-4);
        let got = gradient(&|table| ops::relation_weights(&block, table, shares.clone().autodiff()));
        let shares = values(shares.clone());
        check_close(&got, &sums_by_type(&host, n_types + 1, &values(of_edges.clone()), Some(&shares)), 1e-4);
    }
}

#[test]
fn gradients_of_tables_in_half_precision_are_summed_in_f32() {
    let (host, _) = typed(&with_hub(), 5);
    let block = DeviceBlock::upload(&host, &device());
    // Multiples of an eighth are values of every float type.
    let of_edges = (ramp::<2>([host.n_edges(), 4], &device()) * 8.0).round() / 8.0;
    let expected = sums_by_type(&host, 5, &values(of_edges.clone()), None);
    for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        if supports(&device(), dtype) {
            let table = ramp::<2>([5, 4], &device()).cast(dtype).autodiff().require_grad();
            let rows = ops::edge_type_rows(&block, table.clone());
            let grads = (rows * of_edges.clone().cast(dtype).autodiff()).sum().backward();
            check_close(&to_vec_f32(table.grad(&grads).unwrap()), &expected, tolerance);
        }
    }
}

/// Returns the sums of the rows of the edges of each type, each multiplied by its factor if there are factors.
fn sums_by_type(host: &Block, n_types: usize, rows: &[f32], factors: Option<&[f32]>) -> Vec<f32> {
    let width = rows.len() / host.n_edges();
    let mut sums = vec![0.0_f64; n_types * width];
    for (edge, of_edge) in host.edge_types().unwrap().iter().enumerate() {
        let factor = factors.map_or(1.0, |factors| factors[edge]);
        let first = usize::from(*of_edge) * width;
        for column in 0..width {
            sums[first + column] += f64::from(rows[edge * width + column]) * f64::from(factor);
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}
