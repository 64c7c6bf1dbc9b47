//! Tests of the synthetic sets, of standardization and of node names.

use std::sync::Arc;

use kiln_data::synthetic::{FakeConfig, SbmConfig, fake, ring, rmat, sbm};
use kiln_data::{Dataset, Error, NodeNames};
use kiln_feature::{DenseFeatures, FeatureBuffer};
use kiln_graph::NodeId;
use sha2::{Digest, Sha256};

const SBM: SbmConfig =
    SbmConfig { n_nodes: 3_000, n_classes: 4, degree: 10, homophily: 0.8, dim: 8, noise: 0.5, seed: 7 };

fn rows(data: &Dataset) -> Vec<f32> {
    let features = data.node_features().expect("a synthetic set should have one node type");
    let all: Vec<NodeId> = (0..features.n_rows() as u32).map(NodeId).collect();
    let mut rows = FeatureBuffer::default();
    features.gather(&all, &mut rows).expect("every node should have a feature row");
    rows.into_f32()
}

/// Returns the SHA-256 of all arrays of a set.
fn digest(data: &Dataset) -> String {
    let mut hasher = Sha256::new();
    let graph = data.csc().expect("a synthetic set should have one node type");
    graph.indptr().iter().for_each(|value| hasher.update(value.to_le_bytes()));
    graph.indices().iter().for_each(|node| hasher.update(node.0.to_le_bytes()));
    rows(data).iter().for_each(|value| hasher.update(value.to_le_bytes()));
    data.labels().as_slice().iter().for_each(|value| hasher.update(value.to_le_bytes()));
    let split = [&data.split().train, &data.split().val, &data.split().test];
    split.into_iter().flatten().for_each(|node| hasher.update(node.0.to_le_bytes()));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that every node is in exactly one part, and that the parts have 60, 20 and 20 %.
fn check_split(data: &Dataset) {
    let n_nodes = data.graph.n_nodes();
    let parts = [&data.split().train, &data.split().val, &data.split().test];
    let mut all: Vec<u32> = parts.into_iter().flatten().map(|node| node.0).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..n_nodes as u32));
    for (part, tenths) in parts.into_iter().zip([6, 2, 2]) {
        assert!(
            part.len().abs_diff(n_nodes * tenths / 10) <= 1,
            "the part has {} of {n_nodes} nodes",
            part.len()
        );
    }
}

#[test]
fn ring_has_the_documented_values() {
    let data = ring(10).unwrap();
    for v in 0..10 {
        let mut neighbors = [NodeId((v + 9) % 10), NodeId((v + 1) % 10)];
        neighbors.sort_unstable();
        assert_eq!(data.csc().unwrap().in_neighbors(NodeId(v)), neighbors);
        assert_eq!(data.node_features().unwrap().row(NodeId(v)).unwrap(), [v as f32]);
        assert_eq!(data.labels().get(NodeId(v)), Some(v % 2));
    }
    check_split(&data);
    assert!(data.names[0].is_empty());
    assert_eq!(data.names[0].get(NodeId(0)), None);
    assert_eq!(data.class_names(), ["0", "1"]);
}

#[test]
fn sbm_has_the_configured_degree_and_homophily() {
    let data = sbm(SBM).unwrap();
    check_split(&data);
    let n_edges = data.graph.n_edges() as f64;
    let degree = n_edges / 3_000.0;
    assert!((9.8..=10.0).contains(&degree), "the average degree is {degree}");
    let mut n_within = 0;
    for dst in (0..3_000).map(NodeId) {
        let class = data.labels().get(dst);
        n_within += data
            .csc()
            .unwrap()
            .in_neighbors(dst)
            .iter()
            .filter(|&&src| data.labels().get(src) == class)
            .count();
        assert!(!data.csc().unwrap().in_neighbors(dst).contains(&dst), "node {} has a self loop", dst.0);
    }
    // 15,000 edges were drawn, so the standard deviation of the homophily is 0.0033. Removing self loops and duplicates
    // hardly changes it.
    let homophily = n_within as f64 / n_edges;
    assert!((homophily - 0.8).abs() < 0.015, "the homophily is {homophily}");
}

#[test]
fn sbm_features_deviate_from_their_class_centre_by_the_configured_noise() {
    let data = sbm(SBM).unwrap();
    let mut means = vec![0.0; 4 * 8];
    for (node, row) in rows(&data).chunks_exact(8).enumerate() {
        for (column, &value) in row.iter().enumerate() {
            means[node % 4 * 8 + column] += f64::from(value) / 750.0;
        }
    }
    let mut variance = 0.0;
    for (node, row) in rows(&data).chunks_exact(8).enumerate() {
        for (column, &value) in row.iter().enumerate() {
            variance += (f64::from(value) - means[node % 4 * 8 + column]).powi(2) / 24_000.0;
        }
    }
    assert!((variance.sqrt() - 0.5).abs() < 0.01, "{}", variance.sqrt());
    let spread = means.iter().map(|mean| mean * mean).sum::<f64>() / 32.0;
    assert!((0.3..3.0).contains(&spread), "centres have the mean square {spread}");
}

#[test]
fn rmat_is_skewed_towards_low_ids() {
    let data = rmat(12, 8, 4, 1).unwrap();
    check_split(&data);
    assert_eq!((data.graph.n_nodes(), data.graph.n_edges()), (4_096, 32_768));
    assert_eq!((data.node_features().unwrap().n_rows(), data.node_features().unwrap().dim()), (4_096, 4));
    // The highest bit of a destination is 0 with probability a + c = 0.76, and the highest bit of a source is 0 with
    // probability a + b = 0.76.
    let low_dsts = data.csc().unwrap().indptr()[2_048] as f64 / 32_768.0;
    let low_srcs = data.csc().unwrap().indices().iter().filter(|src| src.0 < 2_048).count() as f64 / 32_768.0;
    assert!((low_dsts - 0.76).abs() < 0.01, "{low_dsts}");
    assert!((low_srcs - 0.76).abs() < 0.01, "{low_srcs}");
    assert!(data.csc().unwrap().in_degree(NodeId(0)) > 500);
    assert!(rows(&data).iter().all(|value| (-1.0..1.0).contains(value)));
}

#[test]
fn fake_set_has_the_configured_sizes() {
    let config = FakeConfig::default();
    assert_eq!(
        config,
        FakeConfig { avg_num_nodes: 1000, avg_degree: 10.0, num_channels: 64, num_classes: 10, seed: 0 }
    );
    let mut sizes = Vec::new();
    for seed in 0..40 {
        let data = fake(FakeConfig { seed, num_channels: 1, ..config }).unwrap();
        check_split(&data);
        sizes.push(data.graph.n_nodes());
        // For each node 10 edges are drawn, and the reverse of each is added. About 1 edge in 1,000 is a self loop and
        // 1 in 100 is a duplicate; these are removed.
        let degree = data.graph.n_edges() as f64 / data.graph.n_nodes() as f64;
        assert!((19.6..20.0).contains(&degree), "the average degree is {degree}");
    }
    let [least, most] = [sizes.iter().min(), sizes.iter().max()].map(|size| *size.unwrap());
    assert!((750..800).contains(&least) && (1201..=1250).contains(&most), "{least} to {most}");
    let few = |seed| fake(FakeConfig { avg_num_nodes: 4, avg_degree: 4.0, seed, ..config }).unwrap();
    let mut sizes: Vec<usize> = (0..20).map(|seed| few(seed).graph.n_nodes()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [4, 5]);
}

#[test]
fn fake_edges_are_simple_and_symmetric() {
    let data = fake(FakeConfig { avg_num_nodes: 20, avg_degree: 10.0, ..FakeConfig::default() }).unwrap();
    for dst in (0..data.graph.n_nodes() as u32).map(NodeId) {
        let neighbors = data.csc().unwrap().in_neighbors(dst);
        assert!(neighbors.windows(2).all(|pair| pair[0] < pair[1]));
        for &src in neighbors {
            assert!(
                src != dst && data.csc().unwrap().in_neighbors(src).contains(&dst),
                "{} -> {}",
                src.0,
                dst.0
            );
        }
    }
}

#[test]
fn fake_features_are_normally_distributed_around_the_class_number() {
    let data = fake(FakeConfig::default()).unwrap();
    let (mut n_of_class, mut sum, mut squares) = ([0; 10], 0.0, 0.0);
    let rows = rows(&data);
    for (row, &class) in rows.chunks_exact(64).zip(data.labels().as_slice()) {
        n_of_class[class as usize] += 1;
        for &value in row {
            let noise = f64::from(value) - f64::from(class);
            sum += noise;
            squares += noise * noise;
        }
    }
    // With about 64,000 values, the standard deviations of mean and variance are 0.004 and 0.006.
    let n = rows.len() as f64;
    assert!((sum / n).abs() < 0.02 && (squares / n - 1.0).abs() < 0.03, "{} {}", sum / n, squares / n);
    assert!(n_of_class.iter().all(|&n| 50 < n), "{n_of_class:?}");
}

#[test]
fn synthetic_sets_have_their_golden_digests() {
    assert_eq!(
        digest(&ring(100).unwrap()),
        "281f56b6f6a36ccaff0388a4d03d73af28261802fbe954cf0d2baaa01c4bf833"
    );
    assert_eq!(
        digest(&sbm(SBM).unwrap()),
        "1d7a27546351de494193b0e1c4f4fa415a2609263bf7e52b990df95f68d13f52"
    );
    let config = FakeConfig { avg_num_nodes: 100, seed: 7, ..FakeConfig::default() };
    assert_eq!(
        digest(&fake(config).unwrap()),
        "fe488dffee71e2bed580681422bc2a69d9bd288fee21d891ab295da84680696f"
    );
    assert_eq!(
        digest(&rmat(10, 8, 4, 1).unwrap()),
        "0a6e13276eeb0be4a282da2cffae649deddf135b8cffd31942ab302d97464ee6"
    );
}

#[test]
fn different_seeds_produce_different_sets() {
    let sbm = |seed| digest(&sbm(SbmConfig { seed, ..SBM }).unwrap());
    assert_ne!(sbm(1), sbm(2));
    let rmat = |seed| digest(&rmat(8, 4, 2, seed).unwrap());
    assert_ne!(rmat(1), rmat(2));
    let fake = |seed| digest(&fake(FakeConfig { seed, ..FakeConfig::default() }).unwrap());
    assert_ne!(fake(1), fake(2));
}

#[test]
fn rejects_parameters_out_of_range() {
    let defaults = FakeConfig::default();
    let cases = [
        (ring(2), "n_nodes is 2, expected 3 to 2^24"),
        (sbm(SbmConfig { n_nodes: 1, ..SBM }), "n_nodes is 1, expected 2 to 2^32 - 2"),
        (sbm(SbmConfig { n_classes: 1, ..SBM }), "n_classes is 1, expected 2 to n_nodes"),
        (sbm(SbmConfig { homophily: 1.5, ..SBM }), "homophily is 1.5, expected 0 to 1"),
        (sbm(SbmConfig { dim: 0, ..SBM }), "dim is 0, expected at least 1"),
        (sbm(SbmConfig { noise: f64::NAN, ..SBM }), "noise is NaN, expected finite and at least 0"),
        (fake(FakeConfig { avg_num_nodes: 0, ..defaults }), "avg_num_nodes is 0, expected 1 to 2^31"),
        (fake(FakeConfig { avg_num_nodes: 9, ..defaults }), "avg_degree is 10, expected 1 to avg_num_nodes"),
        (fake(FakeConfig { avg_degree: 0.5, ..defaults }), "avg_degree is 0.5, expected 1 to avg_num_nodes"),
        (
            fake(FakeConfig { avg_degree: f64::NAN, ..defaults }),
            "avg_degree is NaN, expected 1 to avg_num_nodes",
        ),
        (
            fake(FakeConfig { avg_num_nodes: 1 << 30, ..defaults }),
            "avg_num_nodes * avg_degree is 10737418240, expected at most 2^31",
        ),
        (fake(FakeConfig { num_channels: 0, ..defaults }), "num_channels is 0, expected 1 to 2^20"),
        (fake(FakeConfig { num_classes: 0, ..defaults }), "num_classes is 0, expected 1 to 2^24"),
        (rmat(31, 1, 1, 0), "scale is 31, expected 0 to 30"),
        (rmat(3, 1, 0, 0), "dim is 0, expected at least 1"),
    ];
    for (result, expected) in cases {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::BadParameter { .. }));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn standardize_gives_mean_0_and_deviation_1_and_constant_columns_0() {
    let values = vec![0.1, 1.0, 5.0, 0.1, 2.0, 5.0, 0.1, 3.0, 9.0, 0.1, 4.0, 9.0];
    let data = Dataset {
        features: vec![Some(Arc::new(DenseFeatures::from_f32(values, 3).unwrap()))],
        ..ring(4).unwrap()
    };
    let data = data.standardize();
    // The standard deviation of 1, 2, 3, 4 is the square root of 5 / 4.
    let unit = 1.0 / 5.0_f64.sqrt();
    let expected = [0.0, -3.0 * unit, -1.0, 0.0, -unit, -1.0, 0.0, unit, 1.0, 0.0, 3.0 * unit, 1.0];
    let data = data.unwrap();
    assert_eq!(rows(&data), expected.map(|value| value as f32));
    assert_eq!(data.node_features().unwrap().dim(), 3);
}

#[test]
fn node_names_are_looked_up_by_node_id() {
    let names = NodeNames::new(["zero", "", "zwei"]);
    assert_eq!(names.len(), 3);
    assert_eq!([0, 1, 2, 3].map(|v| names.get(NodeId(v))), [Some("zero"), Some(""), Some("zwei"), None]);
}
