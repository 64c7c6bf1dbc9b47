//! Generators of synthetic graphs. The same arguments produce the same set on every machine.

use std::sync::Arc;

use kiln_feature::{DenseFeatures, Labels};
use kiln_graph::{Csc, CscBuilder, Duplicates, NodeId, SelfLoops};

use crate::draws::Draws;
use crate::error::require;
use crate::{Dataset, DatasetTargets, Result, Split};

/// The largest `n` such that 32-bit floats represent every integer up to `n` exactly.
const MAX_EXACT_F32: usize = 1 << 24;
/// The number of classes of [`rmat`]'s labels.
const RMAT_CLASSES: usize = 16;
/// The maximum `scale` of [`rmat`]. It keeps ids and edge counts far below the limits of their types.
const MAX_SCALE: u32 = 30;

/// Generates a ring with predictable values: node `v`'s in-neighbours are `v - 1` and `v + 1` (modulo `n_nodes`), its
/// feature row is `[v]` and its label `v % 2`. If `v % 5` is 0, 1 or 2, the node is in the training split; if 3, in the
/// validation split; if 4, in the test split.
///
/// # Errors
/// Returns [`Error::BadParameter`](crate::Error::BadParameter) unless `n_nodes` is 3 to 2^24: in a smaller ring both
/// neighbours are the same node, and above 2^24 `v` is not exactly representable as a feature.
pub fn ring(n_nodes: usize) -> Result<Dataset> {
    require((3..=MAX_EXACT_F32).contains(&n_nodes), "n_nodes", "3 to 2^24", n_nodes)?;
    let nodes = || 0..n_nodes as u32;
    let next: Vec<u32> = nodes().map(|v| (v + 1) % n_nodes as u32).collect();
    let graph = CscBuilder::new(n_nodes).symmetrize().build(&nodes().collect::<Vec<_>>(), &next)?;
    let part = |wanted: fn(u32) -> bool| nodes().filter(|v| wanted(v % 5)).map(NodeId).collect();
    let split = Split { train: part(|v| v < 3), val: part(|v| v == 3), test: part(|v| v == 4) };
    let features = Features { rows: nodes().map(|v| v as f32).collect(), dim: 1 };
    dataset("ring", graph, features, nodes().map(|v| (v % 2) as i32).collect(), 2, split)
}

/// The parameters of [`sbm`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SbmConfig {
    /// The number of nodes, at least 2.
    pub n_nodes: usize,
    /// The number of classes, 2 to `n_nodes`; node `v` is of class `v % n_classes`.
    pub n_classes: usize,
    /// The average degree, before self loops and duplicate edges are removed.
    pub degree: usize,
    /// The probability, 0 to 1, that both ends of an edge are of the same class.
    pub homophily: f64,
    /// The number of feature columns, at least 1.
    pub dim: usize,
    /// The standard deviation of the features around their class's centre, at least 0. The coordinates of the centres
    /// have standard deviation 1.
    pub noise: f64,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// Generates a graph of the stochastic block model with noisy class centres as features. Every edge has its reverse.
///
/// After Holland, Laskey, Leinhardt, "Stochastic blockmodels: first steps", 1983, with a fixed number of edges: for
/// each of `n_nodes * degree / 2` edges, one end is drawn from all nodes and the other from the same class with
/// probability `homophily`, otherwise from the other classes. The split is random: 60 % training, 20 % validation and
/// 20 % test.
///
/// # Errors
/// Returns [`Error::BadParameter`](crate::Error::BadParameter) if a value is out of its range.
pub fn sbm(config: SbmConfig) -> Result<Dataset> {
    let SbmConfig { n_nodes, n_classes, degree, homophily, dim, noise, seed } = config;
    require((2..u32::MAX as usize).contains(&n_nodes), "n_nodes", "2 to 2^32 - 2", n_nodes)?;
    require((2..=n_nodes).contains(&n_classes), "n_classes", "2 to n_nodes", n_classes)?;
    require((0.0..=1.0).contains(&homophily), "homophily", "0 to 1", homophily)?;
    require(dim > 0, "dim", "at least 1", dim)?;
    require(noise.is_finite() && noise >= 0.0, "noise", "finite and at least 0", noise)?;
    let mut draws = Draws::new(seed);
    let n_edges = n_nodes * degree / 2;
    let (mut srcs, mut dsts) = (Vec::with_capacity(n_edges), Vec::with_capacity(n_edges));
    for _ in 0..n_edges {
        let src = draws.below(n_nodes);
        let class = match draws.unit() < homophily {
            true => src % n_classes,
            false => (src + 1 + draws.below(n_classes - 1)) % n_classes,
        };
        let n_members = (n_nodes - class).div_ceil(n_classes);
        srcs.push(src as u32);
        dsts.push((draws.below(n_members) * n_classes + class) as u32);
    }
    let builder = CscBuilder::new(n_nodes).symmetrize();
    let graph = builder.duplicates(Duplicates::Remove).self_loops(SelfLoops::Remove).build(&srcs, &dsts)?;
    let centres: Vec<f64> = (0..n_classes * dim).map(|_| draws.normal()).collect();
    let mut rows = Vec::with_capacity(n_nodes * dim);
    for node in 0..n_nodes {
        let centre = &centres[node % n_classes * dim..][..dim];
        rows.extend(centre.iter().map(|centre| (centre + noise * draws.normal()) as f32));
    }
    let labels = (0..n_nodes).map(|node| (node % n_classes) as i32).collect();
    let split = Split::draw_of_nodes(&mut draws, n_nodes);
    dataset("sbm", graph, Features { rows, dim }, labels, n_classes, split)
}

/// The parameters of [`fake`], with the names and the defaults of PyG's `FakeDataset`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FakeConfig {
    /// The average number of nodes, 1 to 2^31; 1,000 by default.
    pub avg_num_nodes: usize,
    /// The number of edges drawn per node, 1 to `avg_num_nodes`; 10 by default. The average degree is about twice this
    /// number, since the reverse of each edge is added.
    pub avg_degree: f64,
    /// The number of feature columns, 1 to 2^20; 64 by default.
    pub num_channels: usize,
    /// The number of classes, 1 to 2^24; 10 by default.
    pub num_classes: usize,
    /// The seed of the random numbers; 0 by default.
    pub seed: u64,
}

impl Default for FakeConfig {
    fn default() -> Self {
        Self { avg_num_nodes: 1000, avg_degree: 10.0, num_channels: 64, num_classes: 10, seed: 0 }
    }
}

/// Generates one random graph, as PyG's `FakeDataset` does for node classification:
///
/// - The number of nodes is uniform between 3/4 and 5/4 of `avg_num_nodes`, and at least `avg_degree`.
/// - Classes are uniform and independent of the edges.
/// - `num_nodes * avg_degree` edges have both ends uniform among the nodes. Self loops and parallel edges are
///   removed, and the reverse of each edge is added.
/// - Features are approximately normal (sums of twelve uniform numbers), with standard deviation 1 around the number of
///   the node's class.
///
/// The random numbers differ from PyG's. Unlike PyG's, the set has a split, which is random: 60 % training, 20 %
/// validation and 20 % test.
///
/// # Errors
/// Returns [`Error::BadParameter`](crate::Error::BadParameter) if a value is out of its range, or if more than 2^31
/// edges would be drawn on average. PyG instead increases an `avg_degree` below 1 to 1 and an `avg_num_nodes` below
/// `avg_degree` to `avg_degree`, and it allows 0 classes and 0 channels, which a [`Dataset`] does not support.
pub fn fake(config: FakeConfig) -> Result<Dataset> {
    let FakeConfig { avg_num_nodes, avg_degree, num_channels: dim, num_classes: n_classes, seed } = config;
    require((1..=1 << 31).contains(&avg_num_nodes), "avg_num_nodes", "1 to 2^31", avg_num_nodes)?;
    let degrees = 1.0..=avg_num_nodes as f64;
    require(degrees.contains(&avg_degree), "avg_degree", "1 to avg_num_nodes", avg_degree)?;
    let n_draws = avg_num_nodes as f64 * avg_degree;
    require(n_draws <= (1_u64 << 31) as f64, "avg_num_nodes * avg_degree", "at most 2^31", n_draws)?;
    require((1..=1 << 20).contains(&dim), "num_channels", "1 to 2^20", dim)?;
    require((1..=MAX_EXACT_F32).contains(&n_classes), "num_classes", "1 to 2^24", n_classes)?;
    let mut draws = Draws::new(seed);
    let least = (3 * avg_num_nodes / 4).max(avg_degree as usize);
    let n_nodes = least + draws.below(5 * avg_num_nodes / 4 - least + 1);
    let classes: Vec<i32> = (0..n_nodes).map(|_| draws.below(n_classes) as i32).collect();
    let n_edges = (n_nodes as f64 * avg_degree) as usize;
    let mut ends = || -> Vec<u32> { (0..n_edges).map(|_| draws.below(n_nodes) as u32).collect() };
    let (srcs, dsts) = (ends(), ends());
    let builder = CscBuilder::new(n_nodes).symmetrize();
    let graph = builder.duplicates(Duplicates::Remove).self_loops(SelfLoops::Remove).build(&srcs, &dsts)?;
    let mut rows = Vec::with_capacity(n_nodes * dim);
    for &class in &classes {
        rows.extend((0..dim).map(|_| (draws.normal() + f64::from(class)) as f32));
    }
    let split = Split::draw_of_nodes(&mut draws, n_nodes);
    dataset("fake", graph, Features { rows, dim }, classes, n_classes, split)
}

/// Generates a directed graph of `2^scale` nodes and `2^scale * edges_per_node` edges for benchmarks. Its degree
/// distribution is skewed, like that of the web graph.
///
/// R-MAT: Chakrabarti, Zhan, Faloutsos, "R-MAT: a recursive model for graph mining", 2004, with a, b, c, d = 0.57,
/// 0.19, 0.19, 0.05 at each level and without their noise. Parallel edges and self loops are kept. Ids are not
/// shuffled: low ids are hubs. Features are uniform in `[-1, 1)` and labels uniform among 16 classes, so that there is
/// nothing to learn. The split is random: 60 % training, 20 % validation and 20 % test.
///
/// # Errors
/// Returns [`Error::BadParameter`](crate::Error::BadParameter) unless `scale` is at most 30 and `dim` at least 1.
pub fn rmat(scale: u32, edges_per_node: usize, dim: usize, seed: u64) -> Result<Dataset> {
    require(scale <= MAX_SCALE, "scale", "0 to 30", scale)?;
    require(dim > 0, "dim", "at least 1", dim)?;
    let mut draws = Draws::new(seed);
    let n_nodes = 1_usize << scale;
    let n_edges = n_nodes * edges_per_node;
    let (mut srcs, mut dsts) = (Vec::with_capacity(n_edges), Vec::with_capacity(n_edges));
    for _ in 0..n_edges {
        let (mut src, mut dst) = (0, 0);
        for _ in 0..scale {
            let draw = draws.unit();
            src = src << 1 | u32::from(draw >= 0.76);
            dst = dst << 1 | u32::from((0.57..0.76).contains(&draw) || draw >= 0.95);
        }
        srcs.push(src);
        dsts.push(dst);
    }
    let graph = CscBuilder::new(n_nodes).build(&srcs, &dsts)?;
    let rows = (0..n_nodes * dim).map(|_| draws.symmetric()).collect();
    let labels = (0..n_nodes).map(|_| draws.below(RMAT_CLASSES) as i32).collect();
    let split = Split::draw_of_nodes(&mut draws, n_nodes);
    dataset("rmat", graph, Features { rows, dim }, labels, RMAT_CLASSES, split)
}

struct Features {
    rows: Vec<f32>,
    dim: usize,
}

fn dataset(
    name: &str,
    graph: Csc,
    features: Features,
    labels: Vec<i32>,
    n_classes: usize,
    split: Split,
) -> Result<Dataset> {
    let features = Arc::new(DenseFeatures::from_f32(features.rows, features.dim)?);
    let targets = DatasetTargets::new(0, Labels::new(labels, n_classes).into(), split);
    Ok(Dataset::homogeneous(name.to_owned(), graph, features, targets))
}
