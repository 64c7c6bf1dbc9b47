//! A reader of the text format of the GIN paper (Xu et al., "How powerful are graph neural networks?", 2019), which DGL
//! reads as `GINDataset`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::{FromStr, SplitAsciiWhitespace};
use std::sync::Arc;

use kiln_feature::{DenseFeatures, Labels};
use kiln_graph::{CscBuilder, open_file};
use kiln_store::Error as StoreError;
use kiln_store::text::MAX_LINE_BYTES;

use crate::readers::relabel::{Relabelled, relabel};
use crate::{Error, GraphDataset, Result};

/// Reads a file of graphs:
///
/// ```text
/// 2            number of graphs
/// 3 1          a graph: the number of its nodes and its label
/// 0 2 1 2      node 0: its tag, its degree and its neighbours; further numbers are its features
/// 4 1 0
/// 0 1 0
/// 1 -1         the next graph
/// 0 0
/// ```
///
/// An edge runs from each node to each neighbour in its line, as in DGL. Files of this format list each edge at both
/// ends; a note is added if an edge lacks its reverse. Self loops and parallel edges are kept.
///
/// Labels and tags may be any integers. They are mapped to classes `0..k` in ascending order and become the names of
/// the classes (DGL numbers them in order of appearance). The tags are the node labels, even if all are equal. If
/// nodes have no features, DGL uses the tags as features; this function returns a set without features.
///
/// # Errors
/// Returns [`kiln_store::Error::BadLine`] for the first invalid line, and [`kiln_store::Error::Io`] if the file cannot
/// be read.
pub fn read(path: impl AsRef<Path>) -> Result<GraphDataset> {
    let path = path.as_ref();
    let mut lines = Lines::open(path)?;
    let mut graphs = Graphs { node_offsets: vec![0], ..Graphs::default() };
    let mut first = lines.next("the number of graphs")?;
    let n_graphs: u64 = first.parse("the number of graphs, at least 1")?;
    if n_graphs == 0 {
        return Err(first.bad("the number of graphs, at least 1"));
    }
    first.end("one number, the number of graphs")?;
    for _ in 0..n_graphs {
        graphs.read_one(&mut lines)?;
    }
    lines.end("no more lines after the last node of the last graph")?;
    graphs.into_dataset(path)
}

/// The graphs that were read so far. Nodes are numbered across all graphs.
#[derive(Debug, Default)]
struct Graphs {
    node_offsets: Vec<u32>,
    labels: Vec<i64>,
    srcs: Vec<u32>,
    dsts: Vec<u32>,
    tags: Vec<i64>,
    attributes: Vec<f32>,
    /// The number of attributes per node; `None` before the first node was read.
    n_attributes: Option<usize>,
}

impl Graphs {
    // Memory is only allocated for lines that were read, never in advance for the counts that the file states.
    fn read_one(&mut self, lines: &mut Lines) -> Result<()> {
        let mut header = lines.next("a graph: the number of its nodes and its label")?;
        let n_nodes: u32 = header.parse("the number of the graph's nodes, below 2^32")?;
        let first_node = self.tags.len() as u32;
        let Some(end) = first_node.checked_add(n_nodes) else {
            return Err(header.bad("fewer than 2^32 nodes in all graphs"));
        };
        self.labels.push(header.parse("the graph's label, an integer")?);
        header.end("two numbers: the graph's number of nodes and its label")?;
        for node in first_node..end {
            let mut line = lines.next("a node: its tag, its degree and its neighbours")?;
            self.tags.push(line.parse("the node's tag, an integer")?);
            let degree: u64 = line.parse("the node's degree, at least 0")?;
            for _ in 0..degree {
                let neighbor: u32 =
                    line.parse("a neighbour: the degree is the number of neighbours in the line")?;
                if n_nodes <= neighbor {
                    return Err(line.bad(&format!("a node id of this graph, below {n_nodes}")));
                }
                self.srcs.push(node);
                self.dsts.push(first_node + neighbor);
            }
            self.read_attributes(line)?;
        }
        self.node_offsets.push(end);
        Ok(())
    }

    /// Reads the attributes in the rest of a node's line.
    fn read_attributes(&mut self, mut line: Fields<'_>) -> Result<()> {
        let n_before = self.attributes.len();
        while !line.is_at_end() {
            let value: f32 = line.parse("a feature of the node (any number after the neighbours is one)")?;
            if !value.is_finite() {
                return Err(line.bad("a feature of the node, a finite number"));
            }
            self.attributes.push(value);
        }
        let n_here = self.attributes.len() - n_before;
        let n_attributes = *self.n_attributes.get_or_insert(n_here);
        if n_here != n_attributes {
            let expected =
                format!("{n_attributes} features after the neighbours, the number of the first node");
            return Err(line.lines.bad(&format!("{n_here} features"), &expected));
        }
        Ok(())
    }

    fn into_dataset(self, path: &Path) -> Result<GraphDataset> {
        let name = path.file_stem().map_or_else(|| "graphs".into(), |name| name.to_string_lossy());
        let graph = CscBuilder::new(self.tags.len()).build(&self.srcs, &self.dsts)?;
        let Relabelled { classes, names } = relabel(&self.labels, 1)?;
        let labels = Labels::new(classes, names.len());
        let mut data = GraphDataset::new(name, graph, self.node_offsets, labels)?.note_asymmetry()?;
        data.class_names = names;
        let Relabelled { classes, names } = relabel(&self.tags, 1)?;
        data = data.with_node_labels(Labels::new(classes, names.len()))?;
        data.node_label_names = names;
        if let Some(dim @ 1..) = self.n_attributes {
            data = data.with_features(Arc::new(DenseFeatures::from_f32(self.attributes, dim)?))?;
        }
        Ok(data)
    }
}

/// A reader of the lines of a file.
struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    /// The number of the current line, from 1.
    line: u64,
    bytes: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let file = open_file(path).map_err(|source| StoreError::Io { path: path.into(), source })?;
        Ok(Self { path: path.into(), reader: BufReader::new(file), line: 0, bytes: Vec::new() })
    }

    /// Reads the next line and returns false at the end of the file.
    fn advance(&mut self) -> Result<bool> {
        self.bytes.clear();
        self.line += 1;
        let io = |source| StoreError::Io { path: self.path.clone(), source };
        let mut bytes = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 1);
        let n_bytes = bytes.read_until(b'\n', &mut self.bytes).map_err(io)?;
        if n_bytes > MAX_LINE_BYTES {
            let found = format!("more than {MAX_LINE_BYTES} bytes");
            return Err(self.bad(&found, "a line of numbers: this is not a GIN file"));
        }
        Ok(n_bytes > 0)
    }

    fn next(&mut self, expected: &str) -> Result<Fields<'_>> {
        if !self.advance()? {
            return Err(self.bad("the end of the file", expected));
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Fields { lines: self, rest: text.split_ascii_whitespace(), last: "" }),
            Err(_) => Err(self.bad(&String::from_utf8_lossy(self.bytes.trim_ascii()), "numbers")),
        }
    }

    /// Checks that only empty lines remain.
    fn end(&mut self, expected: &str) -> Result<()> {
        while self.advance()? {
            if !self.bytes.trim_ascii().is_empty() {
                return Err(self.bad(&String::from_utf8_lossy(self.bytes.trim_ascii()), expected));
            }
        }
        Ok(())
    }

    fn bad(&self, found: &str, expected: &str) -> Error {
        const LONGEST: usize = 60;
        let found = found.chars().take(LONGEST).collect();
        StoreError::BadLine { path: self.path.clone(), line: self.line, expected: expected.to_owned(), found }
            .into()
    }
}

/// A reader of the fields of one line.
struct Fields<'a> {
    lines: &'a Lines,
    rest: SplitAsciiWhitespace<'a>,
    /// The field that was read last, for error messages.
    last: &'a str,
}

impl Fields<'_> {
    fn parse<T: FromStr>(&mut self, expected: &str) -> Result<T> {
        self.last = self.rest.next().unwrap_or("the end of the line");
        self.last.parse().map_err(|_| self.bad(expected))
    }

    fn is_at_end(&self) -> bool {
        self.rest.clone().next().is_none()
    }

    fn end(&mut self, expected: &str) -> Result<()> {
        match self.rest.next() {
            Some(field) => Err(self.lines.bad(field, expected)),
            None => Ok(()),
        }
    }

    /// Returns the error for the field that was read last.
    fn bad(&self, expected: &str) -> Error {
        self.lines.bad(self.last, expected)
    }
}
