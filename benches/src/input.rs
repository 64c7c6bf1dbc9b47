use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::{Dataset, debian_packages, synthetic};
use kiln_feature::{DenseFeatures, FeatureStore, Labels};
use kiln_graph::{Csc, CscBuilder, GraphId, NodeId};
use kiln_loader::{ItemSampler, ItemSamplerConfig, Phase, SeedBatch};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, SampledBlocks, Scratch, Seeds};
use kiln_store::npy;

use crate::Result;

/// The number of seeds of a batch.
pub const BATCH_SIZE: usize = 1024;

/// The environment variable with the folders to bench instead of the built-in inputs, separated as in `PATH`.
const DATA: &str = "KILN_BENCH_DATA";

/// The environment variable that, if set, makes the benches copy the data of folders into huge pages of memory instead
/// of mapping the files.
const IN_MEMORY: &str = "KILN_BENCH_IN_MEMORY";

/// The environment variable with the fanouts of single data sets, as `NAME=15,10,5`, separated by semicolons.
const FANOUTS: &str = "KILN_BENCH_FANOUTS";

/// The largest node degree with its own feature column in sets of graphs. Larger degrees share its column.
const LARGEST_DEGREE: u64 = 64;

/// A data set for node tasks, with its name in bench names.
#[derive(Debug)]
pub struct Input {
    /// The name of the data set, which is the last component of a bench's name.
    pub name: String,
    /// The opened or generated data set.
    pub dataset: Dataset,
    /// The fanout of each layer, input layer first.
    pub fanouts: Vec<Fanout>,
    /// The folder of the data set; `None` if it was generated.
    pub folder: Option<PathBuf>,
}

/// A set of small graphs, with its name in bench names.
#[derive(Debug)]
pub struct GraphInput {
    /// The name of the set, which is the last component of a bench's name.
    pub name: String,
    /// The disjoint union of all graphs.
    pub graph: Arc<Csc>,
    /// The first node of each graph in the union, and at the end the number of nodes.
    pub node_offsets: Vec<u32>,
    /// The one-hot degree of each node; degrees above 64 share a column.
    pub features: Arc<dyn FeatureStore>,
    /// The class of each graph.
    pub labels: Arc<Labels<GraphId>>,
}

/// Opens the data sets for node tasks that `KILN_BENCH_DATA` lists, except `fake`. By default these are a power-law
/// graph of 2^17 nodes, 2^21 edges and 128 feature columns, which exceeds most caches, and the built-in data set
/// `debian-packages`, which fits into them.
///
/// # Errors
/// Returns an error if a data set cannot be opened, or if fanouts cannot be parsed.
pub fn inputs() -> Result<Vec<Input>> {
    let Some(folders) = folders() else {
        return Ok(vec![
            Input::new("rmat-17x16", synthetic::rmat(17, 16, 128, 0)?)?,
            Input::new("debian-packages", debian_packages()?)?,
        ]);
    };
    let of_nodes = folders.into_iter().filter(|folder| !is_of_graphs(folder) && !is_fake(folder));
    of_nodes.map(|folder| Input::open(&folder)).collect()
}

/// Opens the sets of graphs that `KILN_BENCH_DATA` lists; by default the built-in one, `mutag`.
///
/// # Errors
/// Returns an error if a set cannot be read.
pub fn graph_inputs() -> Result<Vec<GraphInput>> {
    let Some(folders) = folders() else {
        let set = kiln_data::mutag()?;
        let graph = set.graph().clone();
        let offsets = set.node_offsets().to_vec();
        return Ok(vec![GraphInput::new("mutag", graph, offsets, set.labels().clone())?]);
    };
    folders.iter().filter(|folder| is_of_graphs(folder)).map(|folder| GraphInput::read(folder)).collect()
}

/// Returns true if the graph of [`fake`] is benched: if `KILN_BENCH_DATA` is not set, or lists `fake`.
pub fn wants_fake() -> bool {
    folders().is_none_or(|folders| folders.iter().any(|folder| is_fake(folder)))
}

/// Generates a graph of about 100,000 nodes with random edges, features and classes, like PyG's `FakeDataset`.
///
/// # Errors
/// Never returns an error, because the parameters are in range.
pub fn fake() -> Result<Dataset> {
    Ok(synthetic::fake(synthetic::FakeConfig { avg_num_nodes: 100_000, ..Default::default() })?)
}

fn folders() -> Option<Vec<PathBuf>> {
    Some(env::split_paths(&env::var_os(DATA)?).collect())
}

/// Returns true if the folder contains a set of graphs, in the format of the generator in `benches/peers`.
fn is_of_graphs(folder: &Path) -> bool {
    folder.join("node_ptr.npy").exists()
}

fn is_fake(folder: &Path) -> bool {
    folder == Path::new("fake")
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}

impl Input {
    fn new(name: impl Into<String>, dataset: Dataset) -> Result<Self> {
        let name = name.into();
        let fanouts = match env::var(FANOUTS) {
            Ok(text) => fanouts_of(&name, &text)?,
            Err(_) => None,
        };
        let fanouts = fanouts.unwrap_or_else(|| vec![Fanout::UpTo(10); 3]);
        Ok(Self { name, dataset, fanouts, folder: None })
    }

    /// Opens a folder with `kiln_data::open`, and copies it into memory if `KILN_BENCH_IN_MEMORY` is set.
    ///
    /// # Errors
    /// Returns an error if the folder is not a data set, or if fanouts cannot be parsed.
    pub fn open(folder: &Path) -> Result<Self> {
        let dataset = kiln_data::open(folder)?;
        let dataset = if env::var_os(IN_MEMORY).is_some() { dataset.in_memory() } else { dataset };
        let input = Self::new(name_of(folder), dataset)?;
        Ok(Self { folder: Some(folder.to_owned()), ..input })
    }

    /// Returns the first batches of the training nodes, at most `n`. Each batch has [`BATCH_SIZE`] nodes. If there are
    /// fewer training nodes, they form one smaller batch. Benches cycle through the batches, so that the data of a
    /// batch is not in a cache.
    ///
    /// # Errors
    /// Returns an error if there are no training nodes.
    pub fn batches(&self, n: usize) -> Result<Vec<SeedBatch>> {
        let order = self.items(BATCH_SIZE)?.epoch(Phase::Train { epoch: 0 });
        let n_whole = (order.items().len() / BATCH_SIZE).max(1);
        Ok((0..n.min(n_whole)).map(|step| order.step(step)).collect())
    }

    /// Returns an item sampler that divides the training nodes into batches of this size.
    ///
    /// # Errors
    /// Returns the errors of [`ItemSampler::new`].
    pub fn items(&self, batch_size: usize) -> Result<ItemSampler> {
        let config = ItemSamplerConfig { batch_size, ..ItemSamplerConfig::default() };
        Ok(ItemSampler::new(self.dataset.split().train.to_vec(), config)?)
    }

    /// Returns a uniform neighbour sampler of the graph with the input's fanouts.
    pub fn sampler(&self) -> NeighborSampler {
        NeighborSampler::new(
            Arc::clone(self.dataset.csc().expect("a synthetic set should have one node type")),
            self.fanouts.clone(),
        )
    }

    /// Samples the blocks of the first `n` batches.
    ///
    /// # Errors
    /// Returns an error if the graph is invalid or there are no training nodes.
    pub fn sampled(&self, n: usize) -> Result<Vec<SampledBlocks>> {
        let sampler = self.sampler();
        let mut scratch = Scratch::default();
        let batches = self.batches(n)?;
        Ok(batches
            .iter()
            .map(|batch| sampler.sample_blocks(&Seeds::nodes(batch.seeds.clone()), batch.key, &mut scratch))
            .collect::<kiln_sample::Result<_>>()?)
    }

    /// Returns the fanouts as they occur in bench names: `15-10-5`.
    pub fn fanouts_name(&self) -> String {
        self.fanouts
            .iter()
            .map(|fanout: &Fanout| match fanout {
                Fanout::All => "all".to_owned(),
                Fanout::UpTo(n) => n.to_string(),
            })
            .collect::<Vec<_>>()
            .join("-")
    }
}

impl GraphInput {
    fn new(
        name: &str,
        graph: Arc<Csc>,
        node_offsets: Vec<u32>,
        labels: Arc<Labels<GraphId>>,
    ) -> Result<Self> {
        let dim = LARGEST_DEGREE as usize + 1;
        let mut rows = vec![0.0; graph.n_nodes() * dim];
        for node in 0..graph.n_nodes() {
            let degree = graph.in_degree(NodeId(node as u32)).min(LARGEST_DEGREE);
            rows[node * dim + degree as usize] = 1.0;
        }
        let features = Arc::new(DenseFeatures::from_f32(rows, dim)?);
        Ok(Self { name: name.to_owned(), graph, node_offsets, features, labels })
    }

    /// Reads a folder of arrays: `node_ptr`, `edge_ptr` and `labels` per graph, and `src` and `dst` per edge. The ids
    /// in `src` and `dst` are relative to the first node of their graph.
    fn read(folder: &Path) -> Result<Self> {
        let bytes = |name: &str| std::fs::read(folder.join(name));
        let longs = |name: &str| Ok::<_, Box<dyn std::error::Error>>(npy::read::<i64>(&bytes(name)?)?.values);
        let ints = |name: &str| Ok::<_, Box<dyn std::error::Error>>(npy::read::<i32>(&bytes(name)?)?.values);
        let node_ptr = longs("node_ptr.npy")?;
        let edge_ptr = longs("edge_ptr.npy")?;
        let mut srcs = ints("src.npy")?;
        let mut dsts = ints("dst.npy")?;
        for (first_node, edges) in node_ptr.iter().zip(edge_ptr.windows(2)) {
            for edge in edges[0] as usize..edges[1] as usize {
                srcs[edge] += *first_node as i32;
                dsts[edge] += *first_node as i32;
            }
        }
        let n_nodes =
            *node_ptr.last().ok_or("node_ptr.npy has no entries, expected one more than there are graphs")?;
        let [srcs, dsts] = [srcs, dsts].map(|ids| ids.into_iter().map(|id| id as u32).collect::<Vec<_>>());
        let graph = CscBuilder::new(n_nodes as usize).build(&srcs, &dsts)?;
        let labels: Vec<i32> = longs("labels.npy")?.into_iter().map(|label| label as i32).collect();
        let n_classes = labels.iter().max().map_or(1, |&largest| largest as usize + 1);
        let offsets = node_ptr.into_iter().map(|start| start as u32).collect();
        Self::new(&name_of(folder), Arc::new(graph), offsets, Arc::new(Labels::new(labels, n_classes)))
    }

    /// Returns the training graphs, which are the first four fifths of all graphs.
    pub fn train(&self) -> Vec<GraphId> {
        (0..(self.labels.len() * 4 / 5) as u32).map(GraphId).collect()
    }
}

/// Returns the fanouts of a data set from a list for several data sets, or `None` if the list does not contain it.
fn fanouts_of(name: &str, text: &str) -> Result<Option<Vec<Fanout>>> {
    for part in text.split(';').filter(|part| !part.is_empty()) {
        let (set, fanouts) = part.split_once('=').ok_or_else(|| bad_fanouts(part))?;
        if set == name {
            return Ok(Some(
                fanouts
                    .split(',')
                    .map(|number: &str| number.parse().map_err(|_| bad_fanouts(part)))
                    .collect::<std::result::Result<_, _>>()?,
            ));
        }
    }
    Ok(None)
}

fn bad_fanouts(part: &str) -> String {
    format!("invalid fanouts {part:?}: expected NAME=15,10,5")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn finds_the_fanouts_of_a_data_set() {
        let text = "a=15,10,5;b=3";
        assert_eq!(fanouts_of("a", text).unwrap().unwrap(), [15, 10, 5].map(Fanout::UpTo));
        assert_eq!(fanouts_of("b", text).unwrap().unwrap(), [Fanout::UpTo(3)]);
        assert_eq!(fanouts_of("c", text).unwrap(), None);
        assert!(fanouts_of("a", "a=ten").is_err());
        assert!(fanouts_of("a", "10,10").is_err());
    }
}
