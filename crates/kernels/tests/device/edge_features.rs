//! Tests of edge features on a device: gathered rows are those of the host, and they are where the edges of the graph are.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor, TensorData};
use half::{bf16, f16};
use kiln_feature::{EdgeFeatures, FeatureBuffer};
use kiln_graph::{Csc, EdgeId, NodeId};
use kiln_kernels::ops;
use kiln_kernels::testing::{
    Reads, Uploads, device, edge_features_in_parts, n_parts_of_edges, reads_of, uploads_of, values,
};
use kiln_kernels::{DeviceEdgeColumn, DeviceGraph, DeviceSampledBlocks, UploadError, is_cpu};
use kiln_sample::{EdgeWeights, ExcludedEdges, Fanout, RngKey, Rule, Scratch, Seeds};

use super::features::{sent, value, values_type};
use super::sampler::{check_same, larger, nodes, on_host, sampler, weighted};

/// Returns rows of each element type for the edges of a graph.
fn sources(graph: &Csc, dim: usize) -> [EdgeFeatures; 3] {
    let values = (0..graph.n_edges() as usize * dim).map(value);
    [
        EdgeFeatures::new(values.clone().collect::<Vec<f32>>(), dim).unwrap(),
        EdgeFeatures::new(values.clone().map(f16::from_f32).collect::<Vec<_>>(), dim).unwrap(),
        EdgeFeatures::new(values.map(bf16::from_f32).collect::<Vec<_>>(), dim).unwrap(),
    ]
}

fn graphs(graph: &Arc<Csc>) -> [DeviceGraph; 2] {
    [DeviceGraph::new(graph.clone(), &device()), DeviceGraph::host_staged(graph.clone(), &device())]
        .map(Result::unwrap)
}

fn upload(ids: &[EdgeId]) -> Tensor<1, Int> {
    let ids: Vec<i64> = ids.iter().map(|edge| edge.0 as i64).collect();
    let n_ids = ids.len();
    Tensor::from_data(TensorData::new(ids, [n_ids]), (&device(), DType::I64))
}

fn expected(source: &EdgeFeatures, ids: &[EdgeId]) -> Vec<f32> {
    let mut rows = FeatureBuffer::default();
    source.gather(ids, &mut rows).unwrap();
    rows.into_f32()
}

fn ids(graph: &Csc, n_ids: u64) -> Vec<EdgeId> {
    (0..n_ids).map(|place| EdgeId((place * 7919 + graph.n_edges() - 1) % graph.n_edges())).collect()
}

#[test]
fn gathered_rows_equal_the_source_for_every_element_type() {
    let graph = weighted(&larger());
    let ids = ids(&graph, 300);
    for dim in [1, 3, 4, 100] {
        for source in sources(&graph, dim) {
            for place in graphs(&graph) {
                let features = DeviceEdgeColumn::new("features", source.clone(), &place).unwrap();
                assert_eq!(features.dim(), dim);
                for ids in [&ids[..], &ids[..1], &[]] {
                    let got = features.gather(&upload(ids)).unwrap();
                    assert_eq!(got.dims(), [ids.len(), dim]);
                    assert_eq!(
                        values(ops::widen(got)),
                        expected(&source, ids),
                        "dim {dim}, {}",
                        source.dtype()
                    );
                }
            }
        }
    }
}

#[test]
fn a_table_in_parts_gathers_the_rows_of_the_source() {
    let graph = weighted(&larger());
    let (n_edges, ids) = (graph.n_edges() as usize, ids(&graph, 300));
    for dim in [1, 3, 8] {
        for source in sources(&graph, dim) {
            for n_parts in [2, 5] {
                let part_bytes = (n_edges.div_ceil(n_parts) * dim * source.dtype().bytes()) as u64;
                let place = DeviceGraph::new(graph.clone(), &device()).unwrap();
                let features = edge_features_in_parts(source.clone(), part_bytes, &place).unwrap();
                let has_type = device().supports_dtype(values_type(source.dtype()));
                if !is_cpu(&device()) && has_type {
                    assert_eq!(n_parts_of_edges(&features), n_parts);
                }
                let got = features.gather(&upload(&ids)).unwrap();
                assert_eq!(values(ops::widen(got)), expected(&source, &ids), "dim {dim}, {n_parts} parts");
            }
        }
    }
}

/// Samples two layers, one of them without edges, and excludes some edges of the other.
fn sample(
    graph: &DeviceGraph,
    seeds: &Seeds,
    columns: &[Arc<DeviceEdgeColumn>],
) -> (DeviceSampledBlocks, Reads, Uploads) {
    let sampler = sampler(graph.clone(), &FANOUTS, Rule::Uniform, EdgeWeights::None);
    let (mut sampled, mut reads) = (None, Reads::default());
    let uploads = uploads_of(|| {
        reads = reads_of(|| {
            let sample = sampler.sample(seeds, RngKey::new(5), &mut Scratch::default()).unwrap();
            sampled = Some(sample.into_blocks(columns).unwrap());
        });
    });
    (sampled.unwrap(), reads, uploads)
}

const FANOUTS: [Fanout; 3] = [Fanout::UpTo(3), Fanout::UpTo(0), Fanout::UpTo(25)];

#[test]
fn blocks_have_the_rows_of_their_edges_which_are_where_the_graph_is() {
    let graph = weighted(&larger());
    let excluded = (0..3000).step_by(3).map(|src| (NodeId(src), NodeId(17)));
    let seeds = nodes([17, 2000, 5, 17, 900]).excluding(Some(Arc::new(ExcludedEdges::new(excluded))));
    let on_host = on_host(&graph, &FANOUTS, Rule::Uniform, EdgeWeights::None, &seeds, RngKey::new(5));
    let n_edges: Vec<usize> = on_host.blocks.iter().map(|block| block.n_edges()).collect();
    assert!(0 < n_edges[0] && n_edges[1] == 0 && 0 < n_edges[2], "{n_edges:?}");
    for source in sources(&graph, 3) {
        if !device().supports_dtype(values_type(source.dtype())) {
            continue;
        }
        let row_bytes = 3 * source.dtype().bytes();
        let (table, batch) = (graph.n_edges() as usize, n_edges.iter().sum::<usize>());
        for (place, [of_table, of_batch]) in graphs(&graph).iter().zip([[table, 0], [0, batch]]) {
            let mut columns = Vec::new();
            let uploads = uploads_of(|| {
                columns.push(Arc::new(DeviceEdgeColumn::new("features", source.clone(), place).unwrap()))
            });
            assert_eq!(uploads, sent(of_table * row_bytes), "rows of the graph");
            let (sampled, reads, uploads) = sample(place, &seeds, &columns);
            assert_eq!(uploads, sent(of_batch * row_bytes), "rows of a batch");
            let (without, reads_without, _) = sample(place, &seeds, &[]);
            assert_eq!(reads, reads_without, "the rows should not add reads from the device");
            check_same(&sampled, &on_host);
            for (block, of_host) in sampled.blocks.iter().zip(&on_host.blocks) {
                let rows = block.edge_features().unwrap();
                assert_eq!(rows.dims(), [of_host.n_edges(), 3]);
                assert_eq!(values(ops::widen(rows.clone())), expected(&source, of_host.edge_ids()));
            }
            assert!(without.blocks.iter().all(|block| block.edge_features().is_none()));
        }
    }
}

#[test]
fn rejects_edge_features_without_one_row_per_edge() {
    let graph = weighted(&larger());
    let n_edges = graph.n_edges();
    for n_rows in [n_edges - 1, n_edges + 1] {
        for place in graphs(&graph) {
            let features = EdgeFeatures::new(vec![0.0; n_rows as usize], 1).unwrap();
            let error = DeviceEdgeColumn::new("features", features, &place).unwrap_err();
            let is_expected =
                matches!(error, UploadError::EdgeFeatureRows { n_rows: got, .. } if got == n_rows);
            assert!(is_expected, "{error}");
        }
    }
}
