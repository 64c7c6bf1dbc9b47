//! Generated datasets of the shape of ogbn-products, whose features are all 0.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

/// A dataset of the shape of ogbn-products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Data {
    /// A folder of arrays: classes of nodes, types and features of edges.
    Nodes,
    /// The same nodes, with links.
    Links,
    /// Two types of nodes and eight relations, as a folder for GraphBolt.
    Relations,
    /// Many small graphs with a class each, as a TU folder.
    Graphs,
    /// The same graphs, with several labels each.
    Labels,
}

const N_NODES: u32 = 720_000;
const DEGREE: u32 = 16;
const N_FEATURES: u32 = 100;
const N_CLASSES: u32 = 47;
/// The number of training nodes: two batches, because the first step also creates the state of the optimizer.
const N_TRAIN: u32 = 2 * 1024;
const N_EVALUATED: u32 = 64;

/// The relations, by the types of their sources and destinations: two for each pair of types.
const RELATIONS: [[usize; 2]; 8] = [[0, 0], [0, 0], [0, 1], [0, 1], [1, 0], [1, 0], [1, 1], [1, 1]];
const N_OF_TYPE: u32 = N_NODES / 2;
/// The in-edges of a node by each relation into its type.
const DEGREE_OF_RELATION: u32 = 4;

/// The graphs of the training split are 80 % of all: two batches of 1,024.
const N_GRAPHS: u32 = 2_560;
const N_NODES_OF_GRAPH: u32 = 50;

impl Data {
    /// Writes the dataset below a folder, unless it is there, and returns its path.
    pub(super) fn write(self, folder: &Path) -> Result<PathBuf> {
        let whole = folder.join(format!("{self:?}").to_lowercase());
        if whole.exists() {
            return Ok(whole);
        }
        // A folder that an interrupted run has left is written anew.
        let path = folder.join("unfinished");
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        match self {
            Self::Nodes => {
                write_graph(&path)?;
                let labels = (0..N_NODES).map(|node| node % N_CLASSES);
                numbers(&path.join("labels.npy"), "<i4", labels)?;
                for (name, nodes) in parts() {
                    numbers(&path.join(format!("{name}.npy")), "<u4", nodes)?;
                }
            }
            Self::Links => {
                write_graph(&path)?;
                for (name, nodes) in parts() {
                    let links = nodes.flat_map(|node| [spread(node, N_NODES), node]);
                    write_links(&path.join(format!("{name}_edges.npy")), links.collect())?;
                }
            }
            Self::Relations => write_relations(&path)?,
            Self::Graphs => write_graphs(&path, 1)?,
            Self::Labels => write_graphs(&path, N_CLASSES)?,
        }
        fs::rename(path, &whole)?;
        Ok(whole)
    }
}

/// Writes a graph of nodes with the same number of in-edges from pseudo-random nodes.
fn write_graph(folder: &Path) -> Result<()> {
    let n_edges = N_NODES * DEGREE;
    let mut indptr = npy(&folder.join("indptr.npy"), "<i8", &format!("({},)", N_NODES + 1))?;
    for node in 0..=u64::from(N_NODES) {
        indptr.write_all(&(node * u64::from(DEGREE)).to_le_bytes())?;
    }
    indptr.flush()?;
    numbers(&folder.join("indices.npy"), "<u4", (0..n_edges).map(|edge| spread(edge, N_NODES)))?;
    let mut types = npy(&folder.join("edge_types.npy"), "|u1", &format!("({n_edges},)"))?;
    for edge in 0..n_edges {
        types.write_all(&[(edge % RELATIONS.len() as u32) as u8])?;
    }
    types.flush()?;
    zeros(&folder.join("edge_features.npy"), "<f4", [n_edges, 8], 4)?;
    zeros(&folder.join("features.npy"), "<f4", [N_NODES, N_FEATURES], 4)
}

/// The nodes of each part of the split.
fn parts() -> [(&'static str, std::ops::Range<u32>); 3] {
    let val = N_TRAIN..N_TRAIN + N_EVALUATED;
    let test = 2 * N_TRAIN..2 * N_TRAIN + N_EVALUATED;
    [("train", 0..N_TRAIN), ("val", val), ("test", test)]
}

/// Writes an array of pairs.
fn write_links(path: &Path, nodes: Vec<u32>) -> Result<()> {
    let mut array = npy(path, "<u4", &format!("({}, 2)", nodes.len() / 2))?;
    for node in nodes {
        array.write_all(&node.to_le_bytes())?;
    }
    Ok(array.flush()?)
}

/// Writes a folder for GraphBolt with the relations.
fn write_relations(folder: &Path) -> Result<()> {
    let mut yaml = String::from("dataset_name: products\ngraph:\n  nodes:\n");
    for of_type in ["a", "b"] {
        yaml += &format!("    - {{type: {of_type}, num: {N_OF_TYPE}}}\n");
        zeros(&folder.join(format!("{of_type}.npy")), "<f4", [N_OF_TYPE, N_FEATURES], 4)?;
    }
    yaml += "  edges:\n";
    let n_edges = N_OF_TYPE * DEGREE_OF_RELATION;
    for (number, ends) in RELATIONS.into_iter().enumerate() {
        let [src, dst] = ends.map(|of_type| ["a", "b"][of_type]);
        yaml += &format!("    - {{type: '{src}:r{number}:{dst}', format: numpy, path: r{number}.npy}}\n");
        let mut edges = npy(&folder.join(format!("r{number}.npy")), "<u4", &format!("(2, {n_edges})"))?;
        let srcs = (0..n_edges).map(|edge| spread(edge + number as u32, N_OF_TYPE));
        for node in srcs.chain((0..n_edges).map(|edge| edge / DEGREE_OF_RELATION)) {
            edges.write_all(&node.to_le_bytes())?;
        }
        edges.flush()?;
    }
    yaml += "feature_data:\n";
    for of_type in ["a", "b"] {
        yaml += &format!(
            "  - {{domain: node, type: {of_type}, name: feat, format: numpy, path: {of_type}.npy}}\n"
        );
    }
    yaml += &format!("tasks:\n  - name: node_classification\n    num_classes: {N_CLASSES}\n");
    for (set, (name, nodes)) in ["train_set", "validation_set", "test_set"].into_iter().zip(parts()) {
        yaml += &format!("    {set}:\n      - type: a\n        data:\n");
        for (array, values) in [("seeds", nodes.clone()), ("labels", 0..nodes.end - nodes.start)] {
            let file = format!("{name}_{array}.npy");
            yaml += &format!("          - {{name: {array}, format: numpy, path: {file}}}\n");
            let values = values.map(|value| if array == "labels" { value % N_CLASSES } else { value });
            numbers(&folder.join(file), "<i4", values)?;
        }
    }
    Ok(fs::write(folder.join("metadata.yaml"), yaml)?)
}

/// Writes a TU folder of graphs with a number of labels, each a ring with a chord from each node. The label of a node is its
/// position modulo [`N_FEATURES`].
fn write_graphs(folder: &Path, n_labels: u32) -> Result<()> {
    let file = |name: &str| Ok::<_, anyhow::Error>(BufWriter::new(File::create(folder.join(name))?));
    let mut edges = file("products_A.txt")?;
    let mut graphs = file("products_graph_indicator.txt")?;
    let mut labels = file("products_graph_labels.txt")?;
    let mut nodes = file("products_node_labels.txt")?;
    for graph in 0..N_GRAPHS {
        let of_graph: Vec<String> = (0..n_labels).map(|label| ((graph + label) % 2).to_string()).collect();
        writeln!(labels, "{}", of_graph.join(", "))?;
        for position in 0..N_NODES_OF_GRAPH {
            writeln!(graphs, "{}", graph + 1)?;
            writeln!(nodes, "{}", position % N_FEATURES)?;
            let node = graph * N_NODES_OF_GRAPH + position + 1;
            for other in [position + 1, position + 7] {
                let other = graph * N_NODES_OF_GRAPH + other % N_NODES_OF_GRAPH + 1;
                writeln!(edges, "{node}, {other}\n{other}, {node}")?;
            }
        }
    }
    for mut file in [edges, graphs, labels, nodes] {
        file.flush()?;
    }
    Ok(())
}

/// Returns a pseudo-random number below `n`: bits of a product with the golden ratio are evenly distributed (Knuth, The Art
/// of Computer Programming 3, 6.4).
fn spread(number: u32, n: u32) -> u32 {
    ((u64::from(number.wrapping_mul(2_654_435_769)) * u64::from(n)) >> 32) as u32
}

/// Writes an array with one dimension of numbers of 4 bytes.
fn numbers(path: &Path, dtype: &str, values: impl ExactSizeIterator<Item = u32>) -> Result<()> {
    let mut array = npy(path, dtype, &format!("({},)", values.len()))?;
    for value in values {
        array.write_all(&value.to_le_bytes())?;
    }
    Ok(array.flush()?)
}

/// Writes an array of zeros. A file that is longer than what was written reads as zeros, and takes no space.
fn zeros(path: &Path, dtype: &str, [n_rows, width]: [u32; 2], n_bytes: u64) -> Result<()> {
    let array = npy(path, dtype, &format!("({n_rows}, {width})"))?;
    let n_bytes = HEADER_BYTES as u64 + n_bytes * u64::from(n_rows) * u64::from(width);
    Ok(array.into_inner().map_err(|error| error.into_error())?.set_len(n_bytes)?)
}

/// The bytes before the values of a `.npy` file.
const HEADER_BYTES: usize = 128;

/// Creates a `.npy` file with its header, for values to be written.
fn npy(path: &Path, dtype: &str, shape: &str) -> Result<BufWriter<File>> {
    let mut file = BufWriter::new(File::create(path)?);
    let dict = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&(HEADER_BYTES as u16 - 10).to_le_bytes())?;
    writeln!(file, "{dict:<width$}", width = HEADER_BYTES - 11)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_begin_behind_a_header_of_128_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        npy(&path, "<i4", "(3,)").unwrap().flush().unwrap();
        let header = fs::read(&path).unwrap();
        assert_eq!(header.len(), HEADER_BYTES);
        assert!(header.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', "));
        assert_eq!(header.last(), Some(&b'\n'));
    }
}
